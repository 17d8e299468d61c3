"""What the counts say: where the rows lie, what the decisions do, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import permutations
from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import lower, upper
from agnosticfair.mathematics.binomial import (
    lowest_difference,
    rate_bounds,
)
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.monitoring.baseline import Baseline, placed
from agnosticfair.monitoring.state import MonitorState


@dataclass(frozen=True)
class GroupNow:
    """A group's rate in a subgroup with an interval valid at all times.  label: the label that the metric conditions
    on, '' for none.  rate: None without rows.  compared: whether the promise is about this group here."""

    group: str
    label: str
    rows: int
    rate: float | None
    low: float
    high: float
    compared: bool


@dataclass(frozen=True)
class SubgroupNow:
    """One subgroup: its rows whose group is known, its share then and now, the groups' difference (None where
    none is measured) with an interval valid at all times, and their rates.  limit: what was certified of this
    subgroup."""

    name: str
    rows: int
    share: float
    share_before: float
    difference: float | None
    low: float
    high: float
    limit: float
    verdict: str
    rates: tuple[GroupNow, ...]


@dataclass(frozen=True)
class BatchNow:
    """The last batch alone: where it lies and what decisions did in it. Its intervals are for one look at one
    batch, and raise no alarm: over many batches some are wrong."""

    rows: int
    where: str
    distance: float
    because: str
    overall: SubgroupNow
    worst: SubgroupNow | None


@dataclass(frozen=True)
class Verdict:
    """Where things stand.

    where : 'inside', 'edge' or 'outside': the mix of single values is one that a mixture in the set has; has
        only within the error of the rows so far; has not, whatever that error is
    distance : of the mix from the nearest one in the set, in shares
    nearest : that mixture: what the values that weigh most in it weigh, of 1 in all
    changed : the mix is not the baseline's
    decisions : 'kept', 'not yet known' or 'broken': whether every subgroup's difference is within its own limit
    limit : the largest of the limits
    subgroups : every subgroup but overall, the largest lower bound first
    batch : of the last batch alone
    """

    rows: int
    undecided: int
    grouped: int
    where: str
    distance: float
    nearest: Mapping[str, float]
    changed: bool
    because: str
    decisions: str
    limit: float
    overall: SubgroupNow
    subgroups: tuple[SubgroupNow, ...]
    strange: Mapping[str, tuple[str, ...]]
    advice: tuple[str, ...]
    since: Mapping[str, int] = field(default_factory=dict)
    batch: BatchNow | None = None

    @property
    def all_subgroups(self) -> tuple[SubgroupNow, ...]:
        return (*self.subgroups, self.overall)

    @property
    def alarm(self) -> bool:
        return self.where == "outside" or self.decisions == "broken"

    @property
    def sentence(self) -> str:
        limits = [p.limit for p in self.all_subgroups]
        ends = " to ".join(map(upper, sorted({min(limits), max(limits)})))
        if self.decisions == "broken":
            worst = next(p for p in self.all_subgroups if p.verdict == "broken")
            since = f" since row {self.since['broken']:,}" if "broken" in self.since else ""
            return (
                f"The limit of {upper(worst.limit)} is broken{since}: at least {lower(worst.low)} between groups of "
                f"{worst.name!r} ({worst.rows:,} rows)."
            )
        if self.decisions == "kept":
            who = (
                f"each of {len(limits)} subgroups keeps its"
                if len(limits) > 1
                else "overall keeps the"
            )
            return f"Kept: after {self.rows:,} rows {who} limit ({ends})."
        within_limit = sum(p.verdict == "kept" for p in self.all_subgroups)
        return (
            f"Not yet known: after {self.rows:,} rows {within_limit} of {len(limits)} subgroups surely keep their "
            f"limits ({ends}), and none surely breaks one."
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": self.sentence, "alarm": self.alarm}


def rates_of(metric: str, counts: np.ndarray) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(label given, k, n) of the known groups in every subgroup, k and n (P, G), for each of the metric's
    comparisons."""
    known = counts[:, :-1]  # (P, G, label, decision)
    if METRICS[metric].bounds:
        wrong = known[:, :, 1, 1] + known[:, :, 2, 0]
        return [("", wrong, known[:, :, 1:].sum(axis=(2, 3)))]
    rates = []
    for labels in METRICS[metric].labels:
        places = [0, 1, 2] if len(labels) == 2 else [1 + labels[0]]
        label = "" if len(labels) == 2 else ("negative", "positive")[labels[0]]
        k, n = known[:, :, places, 1].sum(axis=2), known[:, :, places].sum(axis=(2, 3))
        rates.append((label, k, n))
    return rates


@dataclass(frozen=True)
class Differences:
    """Of every subgroup's largest difference between two groups, or its highest rate where the metric bounds one:
    lower bound, upper bound and measured value, (P,) each.  rates: (label given, k, n, low, high), (P, G) each."""

    low: np.ndarray
    high: np.ndarray
    measured: np.ndarray
    rates: tuple[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray], ...]


RATES = 0.2
"""Of what a subgroup may fail with, what the intervals of its groups' own rates have."""


def subgroup_differences(
    metric: str, counts: np.ndarray, delta: float, keep: np.ndarray
) -> Differences:
    """Bounds that hold at all times.  delta: for each subgroup.  keep: (P, G), the groups that are compared."""
    compared, alone = rates_of(metric, counts), METRICS[metric].bounds
    low, high = np.zeros(len(counts)), np.zeros(len(counts))
    measured, rates = np.full(len(counts), np.nan), []
    for label, k, n in compared:
        of_rates = (1.0 if alone else RATES) * delta
        minimum, maximum = rate_bounds(k, n, of_rates / (len(compared) * keep.shape[1]))
        rates.append((label, k, n, minimum, maximum))
        rate = np.where(n > 0, k / np.maximum(n, 1), np.nan)
        now = np.fmax.reduce(np.where(keep, rate, np.nan), axis=1)
        if alone:
            lows = np.where(keep, minimum, -np.inf).max(axis=1)
            highs = np.where(keep, maximum, -np.inf).max(axis=1)
        else:
            groups = keep.shape[1]
            pairs = max(len(compared) * groups * (groups - 1), 1)  # ordered ones, for either end
            lows, highs = _between(k, n, (1 - RATES) * delta / pairs, keep)
            now = now - np.fmin.reduce(np.where(keep, rate, np.nan), axis=1)
        low, high = np.maximum(low, lows), np.maximum(high, highs)
        measured = np.fmax(measured, now)
    return Differences(low, high, measured, tuple(rates))


def _between(
    k: np.ndarray, n: np.ndarray, level: float, keep: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bound of the largest difference between two groups that are compared, (P,) each: an upper bound
    is the lower one of the pair turned round."""
    i, j = np.array([*permutations(range(k.shape[1]), 2)], int).reshape(-1, 2).T
    both = (keep[:, i] & keep[:, j]).T
    pairs = lowest_difference(np.stack([k.T[i], k.T[j]]), np.stack([n.T[i], n.T[j]]), level)
    low, high = (np.where(both, ends, 0.0) for ends in (pairs, -pairs))
    return low.max(axis=0, initial=0.0), high.max(axis=0, initial=0.0)


def judge(baseline: Baseline, state: MonitorState, delta: float) -> Verdict:
    """The verdict on a state; with probability 1 - delta none is ever wrong while the promise holds."""
    overall, subgroups = _subgroups(baseline, state, delta / 2)
    place = placed(baseline, state.values, state.rows, delta / 2)
    where, changed = place.where, place.changed
    verdicts = {p.verdict for p in (overall, *subgroups)}
    decisions = (
        "broken" if "broken" in verdicts else "kept" if verdicts == {"kept"} else "not yet known"
    )
    grouped = int(state.counts[0, :-1].sum())
    advice = _advice(where, changed, decisions, subgroups, grouped, state)
    return Verdict(
        rows=state.rows,
        undecided=state.undecided,
        grouped=grouped,
        where=where,
        distance=place.distance,
        nearest=place.nearest,
        changed=changed,
        because=place.because,
        decisions=decisions,
        limit=max(baseline.limits),
        overall=overall,
        subgroups=subgroups,
        strange=state.strange,
        advice=advice,
        since=dict(state.since),
    )


def batch_of(verdict: Verdict) -> BatchNow:
    """What a verdict on one batch alone says, in short."""
    worst = verdict.subgroups[0] if verdict.subgroups else None
    v = verdict
    return BatchNow(v.rows, v.where, v.distance, v.because, v.overall, worst)


def _subgroups(
    baseline: Baseline, state: MonitorState, delta: float
) -> tuple[SubgroupNow, tuple[SubgroupNow, ...]]:
    differences = subgroup_differences(
        baseline.metric, state.counts, delta / len(baseline.subgroups), baseline.comparable
    )
    rows, grouped = (c.sum(axis=(1, 2, 3)) for c in (state.counts, state.counts[:, :-1]))
    subgroups_now, limits = [], baseline.limits
    for k, name in enumerate(baseline.names):
        now, limit = float(differences.measured[k]), float(limits[k])
        low, high = float(differences.low[k]), float(differences.high[k])
        subgroups_now.append(
            SubgroupNow(
                name=name,
                rows=int(grouped[k]),
                share=float(rows[k]) / max(float(rows[0]), 1.0),
                share_before=baseline.subgroup_rows[k] / baseline.n,
                difference=now if isfinite(now) else None,
                low=low,
                high=high,
                limit=limit,
                verdict="broken" if low > limit else "kept" if high <= limit else "not yet known",
                rates=_rates(baseline, differences, k),
            )
        )
    return subgroups_now[0], tuple(
        sorted(subgroups_now[1:], key=lambda p: (p.verdict != "broken", -p.low, -p.high, p.name))
    )


def _rates(baseline: Baseline, differences: Differences, subgroup: int) -> tuple[GroupNow, ...]:
    keep = baseline.comparable[subgroup]
    return tuple(
        GroupNow(
            group,
            label,
            int(n[subgroup, g]),
            float(k[subgroup, g] / n[subgroup, g]) if n[subgroup, g] else None,
            float(low[subgroup, g]),
            float(high[subgroup, g]),
            bool(keep[g]),
        )
        for label, k, n, low, high in differences.rates
        for g, group in enumerate(baseline.groups)
    )


def _advice(
    where: str,
    changed: bool,
    decisions: str,
    subgroups: tuple[SubgroupNow, ...],
    grouped: int,
    state: MonitorState,
) -> tuple[str, ...]:
    """What to do, a sentence each."""
    sentences = []
    if decisions == "broken":
        sentences.append("Stop relying on the certificate, and audit the model anew on these rows.")
    if where == "outside":
        sentences.append(
            "The certificate says nothing about such rows: audit anew, and refit with rows like these."
        )
    elif changed:
        sentences.append(
            "Refit with the known target ('target_weights', 'trust') if this mix is to stay."
        )
    few = [p.name for p in subgroups if p.verdict == "not yet known" and p.low > 0]
    if few and decisions == "not yet known":
        sentences.append(f"Collect rows of these subgroups: {'; '.join(few[:3])}.")
    if state.undecided > 0.5 * state.rows:
        sentences.append(
            f"The model decides nothing on {state.undecided:,} of {state.rows:,} rows, which have values that it does "
            "not know."
        )
    if grouped < 0.5 * (state.rows - state.undecided):
        sentences.append(
            f"Groups are known of {grouped:,} of {state.rows:,} rows: what decisions do is judged by these alone."
        )
    return tuple(sentences)
