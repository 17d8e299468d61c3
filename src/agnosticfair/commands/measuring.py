"""Labelled rows to measure a model on, and what it does there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agnosticfair.commands.output import grid, show
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.threads import cpus

if TYPE_CHECKING:
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.model import Model


def labelled(
    model: Model,
    files: Sequence[Path],
    target: str,
    sensitive_features: Sequence[str],
    client: str | None,
) -> dict[str, Table]:
    """The clients' rows to measure on, all with a group and a label that the model knows."""
    from agnosticfair.data.encoding import shown
    from agnosticfair.data.files import read_rows

    if client is not None and len(files) > 1:
        raise SettingsError(f"{len(files)} files and a client column {client!r}: name one file")
    clients: dict[str, Table] = {}
    for file in files:
        who = f"file {file.name!r}"
        table = read_rows(
            file,
            model.encoding,
            target=target,
            sensitive_features=tuple(sensitive_features),
            client=client,
        )
        there = {target: table.target, **table.sensitive_features, **table.other}
        named = [(target, "target"), *((name, "sensitive-features") for name in sensitive_features)]
        named += [] if client is None else [(client, "client-column")]
        for name, option in named:
            if there.get(name) is None:
                raise DataError(f"{who} has no column {name!r}: name another by --{option}")
        known = (model.negative, model.positive)
        strange = sorted({*(table.target.values() if table.target else ())} - {*known})
        if strange and model.negative != f"not {model.positive}":
            raise DataError(
                f"column {target!r} of {who} has the label {shown(strange)}, unknown to the model: "
                f"write {shown(known)}"
            )
        parts = {file.stem: table}
        if client is not None:
            column = table.column(client)
            parts = {v: table.take(column.values() == v) for v in column.categories}
        if {*parts} & {*clients}:
            raise DataError(f"two files would be client {file.stem!r}: rename one")
        clients |= parts
    return clients


def scores(
    model: Model,
    clients: Mapping[str, Table | Stream],
    sensitive_features: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    """What the model does on all rows together, then at every client where there are several; for each
    sensitive feature, by default the model's.

    A number that a lack of rows leaves without meaning is None.
    """
    named = model.sensitive_features if sensitive_features is None else sensitive_features
    return [entry for name in named for entry in _scores(model, clients, name)]


def _scores(
    model: Model, clients: Mapping[str, Table | Stream], sensitive_feature: str
) -> list[dict[str, Any]]:
    import numpy as np

    from agnosticfair.auditing.certificate import plain
    from agnosticfair.mathematics import metrics

    def counts(table: Table) -> Counter[tuple[str, int, int]]:
        column = table.sensitive_features[sensitive_feature]
        y, y_hat = table.labels(model.positive).astype(int), model.predict(table)
        cells, rows = np.unique((column.codes * 2 + y) * 2 + y_hat, return_counts=True)
        names = [(column.categories[c // 4], c // 2 % 2, c % 2) for c in cells.tolist()]
        return Counter(dict(zip(names, rows.tolist(), strict=True)))

    parts = {k: table.added_up(counts, cpus()) for k, table in clients.items()}
    total = sum(parts.values(), Counter[tuple[str, int, int]]())
    groups = tuple(sorted({group for group, _, _ in total}))
    found = []
    for key, part in {"all rows": total, **parts}.items():
        s = np.array([groups.index(group) for group, _, _ in part], int)
        y, y_hat = (np.array([cell[i] for cell in part]) for i in (1, 2))
        rows = np.array([*part.values()], float)
        rates = metrics.positive_rates(y_hat, s, rows, len(groups))
        values = {
            "accuracy": metrics.accuracy(y, y_hat, rows),
            "majority_rate": metrics.majority_rate(y, rows),
            "balanced_accuracy": metrics.balanced_accuracy(y, y_hat, rows),
            "risk_difference": metrics.risk_difference(y_hat, s, rows),
            "label_risk_difference": metrics.risk_difference(y, s, rows),
            "positive_rates": dict(zip(groups, rates.tolist(), strict=True)),
        }
        found.append(
            {
                "sensitive_feature": sensitive_feature,
                "client": key,
                "rows": part.total(),
                **plain(values),
            }
        )
    return found if len(parts) > 1 else found[:1]


def show_scores(title: str, found: Sequence[Mapping[str, Any]]) -> None:
    """Print what ``scores`` found, a table per sensitive feature."""
    names = list(dict.fromkeys(entry["sensitive_feature"] for entry in found))
    header = ("client", "rows", "acc.", "maj. rate", "bal. acc.", "RD", "label RD")
    for name in names:
        lines = []
        for entry in (entry for entry in found if entry["sensitive_feature"] == name):
            rates = entry["positive_rates"]
            values = [
                v for k, v in entry.items() if k not in ("sensitive_feature", "positive_rates")
            ]
            lines.append((*values, *rates.values()))
        own = f"{title}, by {name}" if len(names) > 1 else title
        show(grid(own, (*header, *(f"rate {group}" for group in rates)), lines))
