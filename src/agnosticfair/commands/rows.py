"""The rows of a command: how they were read, which are measured on, and what a model does on them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from agnosticfair.commands.output import grid, show
from agnosticfair.errors import DataError, SettingsError, plain
from agnosticfair.threads import cpus

if TYPE_CHECKING:
    from agnosticfair.data.columns import Roles
    from agnosticfair.data.reading import Dialect
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.methods import Method
    from agnosticfair.model import Model

MAX_NAMES = 40


def with_subgroup_set(roles: Roles, method: Method) -> Roles:
    """The roles of columns, with those that name the method's subgroups and are no features."""
    columns = () if method.fairness is None else method.fairness.basis.column_names
    return replace(roles, subgroups=columns)


def columns_of(sources: Mapping[str, Table | Stream]) -> dict[str, str]:
    """How every column was read, in words, over all clients; of streams their kinds alone."""
    from agnosticfair.data.columns import described
    from agnosticfair.data.table import Table, concatenate

    tables = [rows for rows in sources.values() if isinstance(rows, Table)]
    if len(tables) < len(sources):
        return {k: v for rows in sources.values() for k, v in rows.kinds.items()}
    dropped = {k: v for t in tables for k, v in t.how.items() if v.startswith("dropped")}
    return described(concatenate(tables)) | dropped


def positive_of(
    sources: Mapping[str, Table | Stream], positive: str | None
) -> tuple[str | None, str]:
    """The positive label and why it is that, where it can be told before training; all rows in memory."""
    from agnosticfair.data.summary import positive_rule

    labels: set[str] = set()
    for rows in sources.values():
        target = getattr(rows, "target", None)
        if target is None:
            return positive, "as asked"
        labels |= {target.categories[k] for k in {*target.codes.tolist()}}
    if positive is not None or len(labels) != 2:
        return positive, "as asked"
    return positive_rule(sorted(labels))


def tell(sources: Mapping[str, Table | Stream], target: str, positive: str | None) -> None:
    """Print how the columns were read and what counts as positive, before anything is trained."""
    columns = columns_of(sources)
    for kind in ("numeric", "categorical"):
        names = [name for name, how in columns.items() if how.startswith(kind)]
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        _say(f"{kind.capitalize()}: {', '.join(names[:MAX_NAMES]) or 'none'}{more}.")
    for name, how in columns.items():
        if _notable(how):
            _say(f"{name}: {how}.")
    label, why = positive_of(sources, positive)
    if label is not None:
        other = "" if why == "as asked" else "; another by --positive"
        _say(f"Label {target}: {label!r} is the positive one ({why}{other}).")
    print(flush=True)


def _notable(how: str) -> bool:
    words = ("dropped", "one value", "missing", "written with", "days since", "too many")
    return any(word in how for word in words)


def _say(text: str) -> None:
    print(fill(plain(text, 8000), 80, subsequent_indent="  ", break_on_hyphens=False))


def warned(
    measures: Iterable[Mapping[str, Any]], sentences: Callable[[float, float, float], list[str]]
) -> list[str]:
    """Sentences of warning about what ``scores`` says of all rows."""
    names = ("accuracy", "majority_rate", "positive_rate")
    for entry in measures:
        if entry["client"] == "all rows" and entry["accuracy"] is not None:
            return sentences(*(entry[name] for name in names))
    return []


def labelled(
    model: Model,
    files: Sequence[Path],
    target: str,
    sensitive_features: Sequence[str],
    client: str | None,
    dialect: Dialect | None = None,
) -> dict[str, Table]:
    """The clients' rows to measure on, all with a group and a label that the model knows."""
    from agnosticfair.data.files import DETECTED, client_names, read_rows
    from agnosticfair.model import check_labels

    if client is not None and len(files) > 1:
        raise SettingsError(f"{len(files)} files and a client column {client!r}: name one file")
    clients: dict[str, Table] = {}
    names = client_names(files)
    for file in files:
        who = f"file {file.name!r}"
        table = read_rows(
            file,
            model.encoding,
            target=target,
            sensitive_features=tuple(dict.fromkeys((*sensitive_features, *model.further_columns))),
            client=client,
            dialect=dialect or DETECTED,
        )
        there = {target: table.target, **table.sensitive_features, **table.other}
        named = [(target, "target"), *((name, "sensitive-features") for name in sensitive_features)]
        named += [] if client is None else [(client, "client-column")]
        for name, option in named:
            if there.get(name) is None:
                raise DataError(f"{who} has no column {name!r}: name another by --{option}")
        if table.target is not None:
            check_labels(model, table.target.present, f"column {target!r} of {who}")
        subgroups = {names[file]: table}
        if client is not None:
            column = table.column(client)
            subgroups = {v: table.take(column.values() == v) for v in column.categories}
        if {*subgroups} & {*clients}:
            raise DataError(f"two files would be client {file.stem!r}: rename one")
        clients |= subgroups
    return clients


def scores(
    model: Model,
    clients: Mapping[str, Table | Stream],
    sensitive_features: Sequence[str] | None = None,
    metric: str | None = None,
) -> list[dict[str, Any]]:
    """What the model does on all rows together, then at every client where there are several; for each
    sensitive feature, by default the model's; by a metric, by default the one it was trained for.

    A number that a lack of rows leaves without meaning is None.
    """
    named = model.sensitive_features if sensitive_features is None else sensitive_features
    metric = metric or (model.method.get("fairness") or {}).get("metric", "demographic_parity")
    return [entry for name in named for entry in _scores(model, clients, name, str(metric))]


def _scores(
    model: Model, clients: Mapping[str, Table | Stream], sensitive_feature: str, metric: str
) -> list[dict[str, Any]]:
    import numpy as np

    from agnosticfair.report.studies import measured

    def counts(who: str, table: Table) -> Counter[tuple[str, int, int]]:
        column = table.sensitive_features[sensitive_feature]
        y, y_hat = table.labels(model.positive).astype(int), model.predict(table, who)
        strata, rows = np.unique((column.codes * 2 + y) * 2 + y_hat, return_counts=True)
        names = [(column.categories[c // 4], c // 2 % 2, c % 2) for c in strata.tolist()]
        return Counter(dict(zip(names, rows.tolist(), strict=True)))

    subgroups = {
        k: table.added_up(partial(counts, f"client {k!r}"), cpus()) for k, table in clients.items()
    }
    total = sum(subgroups.values(), Counter[tuple[str, int, int]]())
    groups = tuple(sorted({group for group, _, _ in total}))
    shown = {"all rows": total, **subgroups} if len(subgroups) > 1 else {"all rows": total}
    entries = []
    for key, some in shown.items():
        rows = np.array([[[some[g, y, d] for d in (0, 1)] for y in (0, 1)] for g in groups], float)
        about = {"sensitive_feature": sensitive_feature, "client": key}
        entries.append(about | measured(rows, groups, metric))
    return entries


def show_scores(title: str, measures: Sequence[Mapping[str, Any]]) -> None:
    """Print ``scores``, two tables per sensitive feature: by client, and by group."""
    names = list(dict.fromkeys(entry["sensitive_feature"] for entry in measures))
    for name in names:
        entries = [entry for entry in measures if entry["sensitive_feature"] == name]
        heading = f"{title}, by {name}" if len(names) > 1 else title
        shown = {
            "client": "client",
            "rows": "rows",
            "accuracy": "accuracy",
            "majority_rate": "majority",
            "base_rate": "base rate",
            "positive_rate": "positive",
            "risk_difference": "RD",
            "label_risk_difference": "label RD",
        }
        if entries[0]["metric"] != "demographic_parity":
            shown["difference"] = entries[0]["metric"].replace("_", " ")
        show(grid(heading, tuple(shown.values()), [[e[key] for key in shown] for e in entries]))
        print()
        rates = ("positive_rates", "true_positive_rates", "false_positive_rates")
        header = (name, "decided positive", "true-positive rate", "false-positive rate")
        groups = entries[0]["positive_rates"]
        show(grid("", header, [[g, *(entries[0][rate][g] for rate in rates)] for g in groups]))
