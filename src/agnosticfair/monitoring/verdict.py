"""What the counts say: where the rows lie, what the decisions do, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import permutations
from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.sequences import (
    lowest_difference,
    rate_bounds,
)
from agnosticfair.monitoring.baseline import Baseline
from agnosticfair.monitoring.mix import placed
from agnosticfair.monitoring.state import MonitorState


@dataclass(frozen=True)
class GroupNow:
    """A group's rate in a part with an interval valid at all times.  given: the label that the notion conditions
    on, '' for none.  rate: None without rows.  compared: whether the promise is about this group here."""

    group: str
    given: str
    rows: int
    rate: float | None
    low: float
    high: float
    compared: bool


@dataclass(frozen=True)
class PartNow:
    """One named part: its rows whose group is known, its share then and now, the groups' difference (None where
    none is measured) with an interval valid at all times, and their rates.  limit: what was certified of this part."""

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
    everybody: PartNow
    worst: PartNow | None


@dataclass(frozen=True)
class Verdict:
    """Where things stand.

    where : 'inside', 'edge' or 'outside': the mix of single values is one that a mixture in the set has; has
        only within the error of the rows so far; has not, whatever that error is
    distance : of the mix from the nearest one in the set, in shares
    nearest : that mixture: what the values that weigh most in it weigh, of 1 in all
    changed : the mix is not the baseline's
    decisions : 'kept', 'not yet known' or 'broken': whether every part's difference is within its own limit
    limit : the largest of the limits
    parts : every part but everybody, the largest lower bound first
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
    everybody: PartNow
    parts: tuple[PartNow, ...]
    strange: Mapping[str, tuple[str, ...]]
    advice: tuple[str, ...]
    since: Mapping[str, int] = field(default_factory=dict)
    batch: BatchNow | None = None

    @property
    def all_parts(self) -> tuple[PartNow, ...]:
        """The worst first, everybody last."""
        return (*self.parts, self.everybody)

    @property
    def alarm(self) -> bool:
        return self.where == "outside" or self.decisions == "broken"

    @property
    def sentence(self) -> str:
        kept = sum(p.verdict == "kept" for p in self.all_parts)
        all_of, limits = 1 + len(self.parts), [p.limit for p in self.all_parts]
        one = min(limits) == max(limits)
        what = f"the limit of {self.limit:.4g}"
        if not one:
            what = f"its own limit ({min(limits):.4g} to {max(limits):.4g})"
        if self.decisions == "broken":
            worst = next(p for p in self.all_parts if p.verdict == "broken")
            since = f" since row {self.since['broken']:,}" if "broken" in self.since else ""
            return (
                f"The limit of {worst.limit:.4g} is broken{since}: at least {worst.low:.3f} between groups of "
                f"{worst.name!r} ({worst.rows:,} rows)."
            )
        if self.decisions == "kept":
            if all_of == 1:
                where = "by everybody, the one part there is,"
                return f"The limit of {self.limit:.4g} is kept {where} after {self.rows:,} rows."
            return f"Each of {all_of} parts keeps {what} after {self.rows:,} rows."
        told = f"{kept} of {all_of} parts are known to keep {what}, none to break it"
        if all_of == 1:
            told = f"the one part there is, everybody, may keep {self.limit:.4g} or break it"
        return f"Not yet known: after {self.rows:,} rows {told}."

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": self.sentence, "alarm": self.alarm}


def rates_of(notion: str, counts: np.ndarray) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(label given, k, n) of the known groups in every part, k and n (P, G), for each of the notion's
    comparisons."""
    known = counts[:, :-1]  # (P, G, label, decision)
    if NOTIONS[notion].bounds:
        wrong = known[:, :, 1, 1] + known[:, :, 2, 0]
        return [("", wrong, known[:, :, 1:].sum(axis=(2, 3)))]
    found = []
    for labels in NOTIONS[notion].labels:
        own = [0, 1, 2] if len(labels) == 2 else [1 + labels[0]]
        given = "" if len(labels) == 2 else ("negative", "positive")[labels[0]]
        k, n = known[:, :, own, 1].sum(axis=2), known[:, :, own].sum(axis=(2, 3))
        found.append((given, k, n))
    return found


@dataclass(frozen=True)
class Differences:
    """Of every part's largest difference between two groups, or its highest rate where the notion bounds one:
    lower bound, upper bound and measured value, (P,) each.  rates: (label given, k, n, low, high), (P, G) each."""

    low: np.ndarray
    high: np.ndarray
    measured: np.ndarray
    rates: tuple[tuple[str, np.ndarray, np.ndarray, np.ndarray, np.ndarray], ...]


RATES = 0.2
"""Of what a part may fail with, what the intervals of its groups' own rates have."""


def part_differences(
    notion: str, counts: np.ndarray, delta: float, keep: np.ndarray
) -> Differences:
    """Bounds that hold at all times.  delta: for each part.  keep: (P, G), the groups that are compared."""
    compared, alone = rates_of(notion, counts), NOTIONS[notion].bounds
    low, high = np.zeros(len(counts)), np.zeros(len(counts))
    measured, rates = np.full(len(counts), np.nan), []
    for given, k, n in compared:
        of_rates = (1.0 if alone else RATES) * delta
        least, most = rate_bounds(k, n, of_rates / (len(compared) * keep.shape[1]))
        rates.append((given, k, n, least, most))
        rate = np.where(n > 0, k / np.maximum(n, 1), np.nan)
        now = np.fmax.reduce(np.where(keep, rate, np.nan), axis=1)
        if alone:
            lows = np.where(keep, least, -np.inf).max(axis=1)
            highs = np.where(keep, most, -np.inf).max(axis=1)
        else:
            level = level_of(delta, len(compared), keep.shape[1])
            lows, highs = _between(k, n, level, keep)
            now = now - np.fmin.reduce(np.where(keep, rate, np.nan), axis=1)
        low, high = np.maximum(low, lows), np.maximum(high, highs)
        measured = np.fmax(measured, now)
    return Differences(low, high, measured, tuple(rates))


def level_of(delta: float, sets: int, groups: int) -> float:
    """What a bound of one pair of groups may fail with, of a part's delta: there is one for every ordered pair in
    each set of labels, and an upper bound is the lower one of the pair turned round."""
    return (1 - RATES) * delta / max(sets * groups * (groups - 1), 1)


def _between(
    k: np.ndarray, n: np.ndarray, level: float, keep: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bound of the largest difference between two groups that are compared, (P,) each."""
    low, high = np.zeros(len(k)), np.zeros(len(k))
    for i, j in permutations(range(k.shape[1]), 2):
        both = keep[:, i] & keep[:, j]
        least = lowest_difference(k[:, [i, j]].T, n[:, [i, j]].T, level)
        low = np.where(both, np.maximum(low, least), low)
        high = np.where(both, np.maximum(high, -least), high)
    return low, high


def judge(baseline: Baseline, state: MonitorState, delta: float) -> Verdict:
    """The verdict on a state; with probability 1 - delta none is ever wrong while the promise holds."""
    everybody, parts = _parts(baseline, state, delta / 2)
    place = placed(baseline, state.values, state.rows, delta / 2)
    where, changed = place.where, place.changed
    verdicts = {p.verdict for p in (everybody, *parts)}
    decisions = (
        "broken" if "broken" in verdicts else "kept" if verdicts == {"kept"} else "not yet known"
    )
    grouped = int(state.counts[0, :-1].sum())
    advice = _advice(where, changed, decisions, parts, grouped, state)
    return Verdict(
        state.rows,
        state.undecided,
        grouped,
        where,
        place.distance,
        place.nearest,
        changed,
        place.because,
        decisions,
        max(baseline.limits),
        everybody,
        parts,
        state.strange,
        advice,
        dict(state.since),
    )


def batch_of(verdict: Verdict) -> BatchNow:
    """What a verdict on one batch alone says, in short."""
    worst = verdict.parts[0] if verdict.parts else None
    v = verdict
    return BatchNow(v.rows, v.where, v.distance, v.because, v.everybody, worst)


def _parts(
    baseline: Baseline, state: MonitorState, delta: float
) -> tuple[PartNow, tuple[PartNow, ...]]:
    found = part_differences(
        baseline.notion, state.counts, delta / len(baseline.parts), baseline.keep
    )
    rows, grouped = (c.sum(axis=(1, 2, 3)) for c in (state.counts, state.counts[:, :-1]))
    made, limits = [], baseline.limits
    for k, name in enumerate(baseline.names):
        now = float(found.measured[k])
        made.append(
            PartNow(
                name,
                int(grouped[k]),
                float(rows[k]) / max(float(rows[0]), 1.0),
                baseline.part_rows[k] / baseline.n,
                now if isfinite(now) else None,
                float(found.low[k]),
                float(found.high[k]),
                float(limits[k]),
                _against(limits[k], found.low[k], found.high[k]),
                _rates(baseline, found, k),
            )
        )
    return made[0], tuple(
        sorted(made[1:], key=lambda p: (p.verdict != "broken", -p.low, -p.high, p.name))
    )


def _against(limit: float, low: float, high: float) -> str:
    return "broken" if low > limit else "kept" if high <= limit else "not yet known"


def _rates(baseline: Baseline, found: Differences, part: int) -> tuple[GroupNow, ...]:
    """Every group's rate in one part."""
    keep = baseline.keep[part]
    return tuple(
        GroupNow(
            group,
            given,
            int(n[part, g]),
            float(k[part, g] / n[part, g]) if n[part, g] else None,
            float(low[part, g]),
            float(high[part, g]),
            bool(keep[g]),
        )
        for given, k, n, low, high in found.rates
        for g, group in enumerate(baseline.groups)
    )


def _advice(
    where: str,
    changed: bool,
    decisions: str,
    parts: tuple[PartNow, ...],
    grouped: int,
    state: MonitorState,
) -> tuple[str, ...]:
    """What to do, a sentence each."""
    told = []
    if decisions == "broken":
        told.append("Stop relying on the certificate, and audit the model anew on these rows.")
    if where == "outside":
        told.append(
            "The certificate says nothing about such rows: audit anew, and refit with rows like these."
        )
    elif changed:
        told.append(
            "Refit with the known target ('target_weights', 'trust') if this mix is to stay."
        )
    few = [p.name for p in parts if p.verdict == "not yet known" and p.low > 0]
    if few and decisions == "not yet known":
        told.append(f"Collect rows of these parts: {'; '.join(few[:3])}.")
    if grouped < 0.5 * state.rows:
        told.append(
            f"Groups are known of {grouped:,} of {state.rows:,} rows: what decisions do is judged by these alone."
        )
    return tuple(told)
