"""Every message of a fit, written down in a dry run over a site's own rows, and what each field could reveal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np

from agnosticfair.auditing.fits import certificates
from agnosticfair.data.records import taken_apart
from agnosticfair.data.schema import Schema, applied
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.data.table import Column, Table
from agnosticfair.federation import fit, in_process
from agnosticfair.mathematics.subgroups import SITE
from agnosticfair.methods import Method
from agnosticfair.privacy.fit import Budget, fit_private, rehearsed_sites
from agnosticfair.privacy.requests import SHARES, deviations
from agnosticfair.protocol.engines.seam import Answers, Engine, Failure, Keys
from agnosticfair.protocol.messages import Broadcast, Masked, Reply, pack
from agnosticfair.protocol.requests import REVEALS
from agnosticfair.server.plan import consents, fairness_of
from agnosticfair.server.solvers import CANDIDATES, TREES_FROM
from agnosticfair.site.guard import rehearsed

UNSAID = "nobody has said: ask whoever wrote the step"
"""Of a field without words; ``request`` takes them."""

BLOCKS = ("psi_", "J_", "gram", "counts")
AFTER = ("decisions", "subgroup_decisions", "histograms")
"""Fields that have an entry for every kernel; and the steps of which no method has kernels of each site's own."""

OUTLINED = ("n", "weight")
"""What an outline does not count."""

SIGNED = ("site", "session", "signature")
"""What is no secret of a signed key."""

OF_KEYS = {
    "public": "nothing: a key for this session",
    "rows": "under noise, whether the rows are those of an earlier fit: a hash under a key of the site",
    "labels": "which labels occur, without a count",
    "groups": "which groups occur, without a count",
}
"""What the messages that begin a session could reveal, where it is other than in ``REVEALS``."""

DRAWN = 1000
"""Rows of a site that are drawn where there is a schema and no file."""

SAMPLE = 1000
"""Rows of a file that a dry run takes: enough for every kind of message to be sent."""


@dataclass
class Explained:
    """A step's largest message of one sender: its fields with their shapes, its bytes, in which rounds it came."""

    step: str
    sender: str
    fields: Mapping[str, str]
    size: int
    reveals: Mapping[str, str]
    first: int
    last: int
    times: int = 1

    @property
    def rounds(self) -> str:
        span = f"{self.first} to {self.last}" if self.last > self.first else f"{self.first}"
        return span if self.times == 1 else f"{span}, {self.times} times"


@dataclass
class Recorder:
    """An engine that writes down what goes over it.  own_blocks: steps' totals have a block of each site's own where
    they are not in ``AFTER``, or in all (``SITE``)."""

    engine: Engine
    without_blocks: tuple[str, ...] | None = None
    on_message: Callable[[str], None] = lambda step: None
    seen: dict[tuple[str, str], Explained] = field(default_factory=dict)

    def clients(self) -> tuple[str, ...]:
        return self.engine.clients()

    def exchange(self, step: str, payload: Any, keys: Keys, deadline: float = inf) -> Answers:
        answers = self.engine.exchange(step, payload, keys, deadline)
        self.on_message(step)
        if payload is not None:
            self._note(step, "server", payload, _fields(payload), {})
        for answer in list(answers.values())[:1]:
            if not isinstance(answer, Failure):
                fields = _fields(answer if not isinstance(answer, Masked) else payload.shapes)
                self._note(
                    step, "site", answer, fields, self._reveals(step, payload, answer, fields)
                )
        return answers

    def _note(
        self,
        step: str,
        sender: str,
        message: Any,
        fields: Mapping[str, str],
        reveals: dict[str, str],
    ) -> None:
        number, size = getattr(message, "round", 0), len(pack(message))
        before = self.seen.get((step, sender))
        if before is None:
            self.seen[step, sender] = Explained(step, sender, fields, size, reveals, number, number)
            return
        before.last, before.times = number, before.times + 1
        if size > before.size:
            before.fields, before.size, before.reveals = fields, size, reveals

    def _reveals(
        self, step: str, payload: Any, answer: Any, fields: Mapping[str, str]
    ) -> dict[str, str]:
        words = REVEALS | (OF_KEYS if step in ("keys", "outline") else {})
        said = {name: words.get(name.partition(" ")[0], UNSAID) for name in fields}  # 'groups sex'
        if step in SHARES:
            rows = payload.request.max_rows
            who = f"this site, of at most {rows} rows," if rows else "one row"
            noise = deviations(payload.request, payload.task)
            return {
                k: f"of {who} nothing certain: noise of deviation {noise[k]:.3g}" for k in fields
            }
        if not isinstance(answer, Masked):
            return said
        apart = self.without_blocks is not None and step not in self.without_blocks
        return {
            name: f"OF THIS SITE, in a block of its own (refused without shares-site-totals): {text}"
            if apart and name.startswith(BLOCKS)
            else f"of this site nothing; of the total: {text}"
            for name, text in said.items()
        }


def _fields(message: Any) -> dict[str, str]:
    """The fields of a message with their shapes; 'setting' for what is no array."""
    if isinstance(message, Broadcast):
        plain, arrays = taken_apart(message.request)
        of_task, task_arrays = taken_apart(message.task)
        shown = dict.fromkeys((*of_task, *plain), "setting")
        arrays |= {f"task.{k}": v for k, v in task_arrays.items()}
        return shown | {k: _shape(v.shape) for k, v in arrays.items()}
    if isinstance(message, SummaryStatistics):
        entries = {k: v for k, v in message.to_json().items() if message.n or k not in OUTLINED}
        return {
            k: f"{len(v)} entries" if isinstance(v, Mapping) else "1" for k, v in entries.items()
        }
    if isinstance(message, Mapping):  # shapes of sums
        return {k: _shape(shape) for k, shape in message.items()}
    values = message.sums if isinstance(message, Reply) else vars(message)
    return {k: _shape(np.shape(v)) for k, v in values.items() if k not in SIGNED and np.size(v)}


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def dry_run(
    method: Method,
    rows: Table,
    sites: int,
    *,
    schema: Schema | None = None,
    secure: bool = False,
    budget: Budget | None = None,
    positive: str | None = None,
    sample: int | None = SAMPLE,
    on_message: Callable[[str], None] = lambda step: None,
) -> list[Explained]:
    """The messages of a fit, and of its certificate, over so many sites with these rows each.

    sample: how many of the rows are taken, None for all; learners that all rows would try are tried all the same.
    """
    rows = rows if schema is None else applied(schema, rows, "the file")
    rule, total = method.rule, sites * len(rows)
    tries_trees = rule is not None and rule.learner == "auto" and total >= TREES_FROM
    if sample is not None and len(rows) > sample:
        rows = rows.take(np.sort(np.random.default_rng(0).permutation(len(rows))[:sample]))
    tables = {f"site-{k + 1}": rows for k in range(sites)}
    how: dict[str, Any] = {
        "sensitive_features": tuple(rows.sensitive_features),
        "positive": positive,
    }
    if budget is not None:
        assert schema is not None
        engine, roster = rehearsed_sites(tables, budget, schema)
        recorder = Recorder(engine, on_message=on_message)
        fit_private(recorder, method, budget=budget, schema=schema, secure=roster, **how)
        return [*recorder.seen.values()]

    def recorded(method: Method) -> dict[tuple[str, str], Explained]:
        engine, keys = in_process(tables), None
        needed = consents(method)
        if secure:
            engine, keys = rehearsed(engine, consents=needed, schema=schema)
        after = () if SITE in (fairness_of(method).basis.columns or ()) else AFTER
        blocks = after if "shares_site_totals" in needed else None
        recorder = Recorder(engine, blocks, on_message)
        fitted = fit(recorder, method, secure=keys or False, schema=schema, **how)
        certificates(fitted, recorder, secure=keys or False, schema=schema)
        return recorder.seen

    if rule is None or not tries_trees or sites * len(rows) >= TREES_FROM:
        return [*recorded(method).values()]
    first, last = (replace(rule, learner=name) for name in CANDIDATES)
    loose = method.fairness and replace(
        method.fairness, tau=1.0
    )  # learns the same, and decides in a round
    tried = recorded(replace(method, rule=first, fairness=loose))
    seen = recorded(replace(method, rule=last))
    messages, place = [*seen.values()], [*seen].index(("fine_counts", "server"))
    only = [message for key, message in tried.items() if key not in seen]
    return messages[:place] + only + messages[place:]


def drawn_rows(schema: Schema) -> Table:
    rng = np.random.default_rng(0)

    def column(values: tuple[str, ...]) -> Column:
        return Column(rng.integers(0, len(values), DRAWN).astype(np.int32), values)

    return Table(
        {name: rng.uniform(low, high, DRAWN) for name, (low, high) in schema.numeric.items()},
        {name: column(values) for name, values in schema.categorical.items()},
        column(schema.labels),
        {name: column(groups) for name, groups in schema.sensitive_features.items()},
    )


LIES = "the model of each round; it can spoil the model by false sums, and nothing finds that out"


def learned(method: Method, *, secure: bool, epsilon: float | None, schema: bool) -> dict[str, str]:
    """What each adversary learns from a run of this method.

    >>> from agnosticfair.methods import method
    >>> learned(method("fl"), secure=True, epsilon=None, schema=True)["a site that lies"] == LIES
    True
    """
    outline = "" if schema else ", each site's ranges and categories"
    shown = {
        "shows_rows": "rows of each site",
        "shares_site_totals": "each site's own sums",
        "shares_cluster_means": "means of clusters of rows, single rows where a cluster has one",
    }
    more = "".join(f", {shown[need]} (by consent)" for need in sorted(consents(method)))
    whom = {"a site that lies": LIES, "an outsider on the network": "sizes and times of messages"}
    model = "weights, ranges and categories; what a model remembers of its rows"
    if epsilon is not None:
        whom |= {
            "an honest coordinator": f"totals with noise: of a row no more than epsilon {epsilon:g} bounds",
            "a coordinator that lies": "the same; what is not the agreed task is refused by one sentence",
            "a coordinator with all sites but one": "that site's sums, with its own share of the noise",
        }
        model = "weights and what the schema says; of a row as above"
    elif secure:
        whom |= {
            "an honest coordinator": f"totals of all sites{outline}{more}",
            "a coordinator that lies": "totals under models of its own choice, which can single out a person, though "
            "not the site; what is not the agreed task is refused by one sentence",
            "a coordinator with all sites but one": "that site's own sums, by subtraction",
        }
    else:
        whom["any coordinator"] = (
            f"every site's own sums, by group and subgroup{outline}{more}; one that lies, rows"
        )
    return whom | {"who holds the model file": model}
