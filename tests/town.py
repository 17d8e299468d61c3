"""Two sites as ``deploy init`` makes them, and a coordinator, lying or not, that reaches them by bytes."""

import csv
import json
from dataclasses import fields, replace
from math import inf

from helpers import dealt, small_table

from agnosticfair.data.files import Roles, read_clients
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import merge, summary_statistics
from agnosticfair.deploy.folder import Federation, read_config, write_folder
from agnosticfair.deploy.node import read_site
from agnosticfair.deploy.secrets import read_key_list
from agnosticfair.deploy.site import reason, respond
from agnosticfair.federation import counts_of_all, summaries
from agnosticfair.methods import method
from agnosticfair.privacy.fit import imagined
from agnosticfair.protocol.engines.seam import Failure
from agnosticfair.protocol.faults import Coordinator
from agnosticfair.protocol.messages import Broadcast, pack, unpack
from agnosticfair.server import plan as server

ROWS = small_table(240, 5)
SITES = ("north", "south")
EDGES = {"age": (-0.5, 0.5), "hours": (0.5,)}


def rows_of(tables):
    return dict(zip(SITES, tables, strict=True))


def written(path, table):
    columns = {**table.numeric}
    kinds = ("categorical", "sensitive_features", "other")
    columns |= {k: c.values() for kind in kinds for k, c in getattr(table, kind).items()}
    columns |= {"y": table.target.values()}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


class Town:
    """Two sites as 'deploy init' makes them, and the engine by which a coordinator, lying or not, reaches them."""

    def __init__(self, folder, tables=None, schema=True, own=None, **run):
        tables = tables or rows_of(dealt(ROWS, 2).values())
        folder.mkdir(exist_ok=True)
        files = {key: written(folder / f"{key}.csv", table) for key, table in tables.items()}
        roles = Roles("y", ("sex",))
        statistics = merge(
            {k: summary_statistics(t, k) for k, t in read_clients(files.values(), roles).items()}
        )
        self.schema = replace(schema_of(statistics, "y"), bins=EDGES) if schema else None
        text = json.dumps(self.schema.to_json()) if schema else ""
        plain = {"secure": run.pop("secure", True), "min_rows": run.pop("min_rows", 10)}
        plan = Federation(
            files, roles, {"method": "fl", "positive": "yes", **run}, schema=text, **plain
        )
        write_folder(folder / "bank", plan)
        self.folder, self.tables = folder / "bank", tables
        sites = self.folder / "sites"
        self.config = {
            key: {**read_site(sites / f"{key}.toml").config, **(own or {})} for key in tables
        }
        keys = str(read_config(self.folder)["masking"])
        roster = read_key_list(keys).sites if keys else None
        self.coordinator = Coordinator(self, tuple(sorted(tables)), secure=roster)

    def clients(self):
        return tuple(sorted(self.config))

    def exchange(self, step, payload, keys, deadline=inf):
        return {key: self.one(key, step, payload) for key in keys}

    def one(self, key, step, payload):
        """What a site answers, or why it does not, as the coordinator reads it."""
        content = b"" if payload is None else pack(payload)
        try:
            return unpack(respond(self.config[key], step, content))
        except Exception as error:
            return Failure(reason(error), final=True)

    def task(self, **changes):
        """The task of an honest fit."""
        if self.schema is None:
            statistics = counts_of_all(self.coordinator, merge(summaries(self.coordinator)))
        else:
            statistics = counts_of_all(self.coordinator, self.schema.outline())
        return replace(
            server.plan(method("fl"), statistics, self.clients(), positive="yes").task, **changes
        )

    def total(self, one_request, task):
        return self.coordinator.total(Broadcast(1, task, one_request)).sums

    def said(self, step, broadcast, key="north"):
        """The sentence by which a site refuses a request of a session that it takes part in."""
        if self.coordinator.secure is not None and self.coordinator.session is None:
            counts_of_all(self.coordinator, self.schema.outline()) if self.schema else self.task()
        session = self.coordinator.session.session if self.coordinator.session else ""
        found = self.one(key, step, replace(broadcast, session=session))
        assert isinstance(found, Failure), f"step {step!r} was answered"
        return found.reason


def refusal(key="north"):
    return f"site {key!r} does not answer this request; its own log says why"


def noisy(kind, **more):
    """A private request of two sites."""
    known = {f.name for f in fields(kind)}
    return kind(
        **{k: v for k, v in {"z": 5.0, "sites": 2, "max_rows": 0, **more}.items() if k in known}
    )


def private_task(town, **changes):
    task = server.plan(method("fairfl"), imagined(town.schema), SITES, positive="yes").task
    return replace(task, **{"n": 0, **changes})
