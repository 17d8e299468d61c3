"""What a certificate promised before a natural shift, what happened after it, and what the monitor would have said.

The training rows are cut: one part fits our default with tau at the limit and balanced costs, the other certifies it.
Each natural deployment then arrives row by row, in an order that the seed draws, and the monitor looks after every
LOOK rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from agnosticfair.auditing.audit import audit
from agnosticfair.auditing.certificate import Certificate
from agnosticfair.data.axes import codes_of
from agnosticfair.data.table import Table, concatenate
from agnosticfair.mathematics.subgroups import members
from agnosticfair.model import Model
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair_research.deployments import BEYOND, MIN_ROWS, MIN_SHARE, Row
from agnosticfair_research.entrants import Train
from agnosticfair_research.entrants.ours import rule_model

if TYPE_CHECKING:
    from agnosticfair_research.benchmark import Prepared

CERTIFIED = 0.5  # of the training rows
LOOK, LOOKS = 250, 16


def promised(split: Prepared, limit: float) -> Row:
    """The promise, and what came of it in every natural deployment."""
    fitting, held = split.train.shared("halves", lambda: halves(split.train))
    model = rule_model(fitting, limit)
    feature = split.train.sensitive_features
    columns = sorted({*held.numeric, *held.categorical})
    certificate = audit(model, held, sensitive_features=feature, subgroups=columns, mixtures=True)
    test, suite = split.split.test, split.suite
    rows = []
    for k in np.flatnonzero(np.array(suite.kinds) == "natural"):
        inside = suite.weights[[k]].toarray()[0] > 0
        rows.append(
            {"name": suite.names[k]}
            | happened(model, certificate, test.take(inside), feature, split.train.seed)
        )
    everywhere = [p.high for p in certificate.subgroups if p.estimable]
    return {
        "limit": limit,
        "certified": len(everywhere),
        "upper": _short(max(everywhere, default=np.nan)),
        "overall": _short(certificate.subgroups[0].high),
        "mixtures": _short(certificate.mixtures),
        "natural": rows,
    }


def halves(train: Train) -> tuple[Train, Table]:
    """Rows to fit on, by client, and rows to certify on."""
    fitting, held = {}, []
    for k, (name, table) in enumerate(train.clients.items()):
        out = np.random.default_rng([train.seed, k, 5]).random(len(table)) < CERTIFIED
        fitting[name] = table.take(~out)
        held.append(table.take(out))
    return replace(train, clients=fitting, cache={}), concatenate(held)


def happened(model: Model, certificate: Certificate, rows: Table, feature: str, seed: int) -> Row:
    """Overall in this deployment: the difference, its standard error, and whether it is beyond what was certified
    overall; in the certified subgroups of enough rows: how many are beyond their own bounds; and the monitor."""
    monitor = Monitor(model, certificate)
    baseline, decided = monitor.baseline, model.decision(rows) > 0
    s = rows.column(feature).codes
    codes = codes_of(rows, baseline.axes)
    looked = broken = 0
    overall = (np.nan, np.nan)
    for subgroup, limit in zip(baseline.subgroups, baseline.limits, strict=True):
        inside = members(codes, subgroup) if len(subgroup) else np.ones(len(rows), bool)
        measured = difference(decided[inside], s[inside])
        if measured is None:
            continue
        if not len(subgroup):
            overall = measured
        looked += 1
        broken += measured[0] - BEYOND * measured[1] > limit
    order = np.random.default_rng([seed, 9]).permutation(len(rows))
    return {
        "rows": len(rows),
        "difference": _short(overall[0]),
        "error": _short(overall[1]),
        "beyond": bool(overall[0] - BEYOND * overall[1] > certificate.subgroups[0].high),
        "subgroups": looked,
        "broken": int(broken),
        **said(monitor, rows.take(order)),
    }


def difference(decided: np.ndarray, s: np.ndarray) -> tuple[float, float] | None:
    """Of two groups' rates of positives, with its standard error; None of fewer rows than a deployment has."""
    counts = np.bincount(s, minlength=2)[:2]
    if counts.sum() < MIN_ROWS or counts.min() < MIN_SHARE * counts.sum():
        return None
    rates = np.array([decided[s == g].mean() for g in (0, 1)])
    return float(abs(rates[1] - rates[0])), float(np.sqrt((rates * (1 - rates) / counts).sum()))


def said(monitor: Monitor, rows: Table) -> Row:
    """By which row the monitor first said that the mix is another one, that it lies outside what was certified, and
    that a bound is broken: None for never in LOOKS looks of LOOK rows."""
    first: dict[str, int | None] = {"changed": None, "outside": None, "alarmed": None}
    seen = 0
    for batch in batches(rows):
        verdict, seen = monitor.update(batch), seen + len(batch)
        now = {
            "changed": verdict.changed,
            "outside": verdict.where == "outside",
            "alarmed": verdict.decisions == "broken",
        }
        first |= {k: seen for k, true in now.items() if true and first[k] is None}
    return {"looked": seen, **first}


def batches(rows: Table) -> Iterator[Table]:
    """At most LOOKS of LOOK rows."""
    for k in range(min(LOOKS, len(rows) // LOOK)):
        yield rows.take(np.arange(k * LOOK, (k + 1) * LOOK))


def _short(value: float | None) -> float | None:
    return None if value is None or not np.isfinite(value) else round(float(value), 4)


def totals(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """By data set and limit, over seeds and natural deployments: how often the overall promise was broken beyond error,
    how many of the subgroups' promises were, and what the monitor said."""
    groups: dict[tuple[str, float], list[tuple[Mapping[str, Any], Mapping[str, Any]]]] = {}
    for cell in cells:
        for row in cell["rows"] if cell["protocol"] == "promise" else ():
            for one in row["natural"]:
                groups.setdefault((cell["dataset"], row["limit"]), []).append((row, one))
    return [{"dataset": d, "limit": at} | _total(pairs) for (d, at), pairs in groups.items()]


def _total(pairs: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Row:
    deployments = [one for _, one in pairs]
    rows: Row = {
        "deployments": len(deployments),
        "promised": float(np.mean([row["overall"] for row, _ in pairs])),
        "happened": float(np.mean([one["difference"] for one in deployments])),
        "beyond": sum(one["beyond"] for one in deployments),
        "subgroups": sum(one["subgroups"] for one in deployments),
        "broken": sum(one["broken"] for one in deployments),
    }
    for name in ("changed", "outside", "alarmed"):
        at = [one[name] for one in deployments if one[name] is not None]
        rows[name] = len(at)
        rows[f"{name}_row"] = float(np.median(at)) if at else None
    hidden = [one for one in deployments if one["beyond"] or one["broken"]]
    rows["warned"] = sum(one["outside"] is not None or one["alarmed"] is not None for one in hidden)
    rows["hidden"] = len(hidden)
    return rows
