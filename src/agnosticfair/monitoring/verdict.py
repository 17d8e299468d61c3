"""What the counts say: where the rows lie, what the decisions do, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite, log
from typing import Any

import numpy as np

from agnosticfair.mathematics.binomial import clopper_pearson
from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.parts import sizes_of, starts_of
from agnosticfair.mathematics.sequences import change_evidence, rate_bounds
from agnosticfair.monitoring.baseline import Baseline
from agnosticfair.monitoring.state import State


@dataclass(frozen=True)
class PartNow:
    """One named part: its share then and now, and the groups' difference with an interval valid at all times."""

    name: str
    rows: int
    share: float
    share_before: float
    difference: float
    low: float
    high: float
    verdict: str


@dataclass(frozen=True)
class Verdict:
    """Where things stand.

    where : 'inside', 'edge' or 'outside': the mix of single values is one that a mixture in the set has; has
        only within the error of the rows so far; has not, whatever that error is
    distance : of the mix from the nearest one in the set, in shares
    changed : the mix is not the baseline's
    decisions : 'kept', 'not yet known' or 'broken': whether every part's difference is within the limit
    parts : every part but everybody, the largest lower bound first
    """

    rows: int
    undecided: int
    grouped: int
    where: str
    distance: float
    changed: bool
    because: str
    decisions: str
    limit: float
    everybody: PartNow
    parts: tuple[PartNow, ...]
    strange: Mapping[str, tuple[str, ...]]
    advice: tuple[str, ...]
    since: Mapping[str, int] = field(default_factory=dict)

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
        all_of = 1 + len(self.parts)
        if self.decisions == "broken":
            worst = next(p for p in self.all_parts if p.verdict == "broken")
            since = f" since row {self.since['broken']:,}" if "broken" in self.since else ""
            return (
                f"The limit of {self.limit:g} is broken{since}: at least {worst.low:.3f} between groups of "
                f"{worst.name!r} ({worst.rows:,} rows)."
            )
        if self.decisions == "kept":
            return f"The limit of {self.limit:g} is kept in all {all_of} parts after {self.rows:,} rows."
        return (
            f"Not yet known: after {self.rows:,} rows {kept} of {all_of} parts are known to keep {self.limit:g}, "
            "none to break it."
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "sentence": self.sentence, "alarm": self.alarm}


def rates_of(baseline: Baseline, counts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """(k, n) of the known groups in every part, (P, G) each, for each of the notion's comparisons."""
    known = counts[:, :-1]  # (P, G, label, decision)
    if NOTIONS[baseline.notion].bounds:
        wrong = known[:, :, 1, 1] + known[:, :, 2, 0]
        return [(wrong, known[:, :, 1:].sum(axis=(2, 3)))]
    found = []
    for labels in NOTIONS[baseline.notion].labels:
        own = [0, 1, 2] if len(labels) == 2 else [1 + labels[0]]
        found.append((known[:, :, own, 1].sum(axis=2), known[:, :, own].sum(axis=(2, 3))))
    return found


def part_differences(
    baseline: Baseline, counts: np.ndarray, delta: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower bound, upper bound and measured value of every part's largest difference between two groups, (P,)
    each, or of its highest rate, where the notion bounds one.  delta: for each part."""
    compared = rates_of(baseline, counts)
    groups = counts.shape[1] - 1
    low = np.zeros(len(counts))
    high, measured = np.zeros(len(counts)), np.full(len(counts), np.nan)
    for k, n in compared:
        least, most = rate_bounds(k, n, delta / (len(compared) * groups))
        rate = np.where(n > 0, k / np.maximum(n, 1), np.nan)
        if NOTIONS[baseline.notion].bounds:
            lows, highs, now = least.max(axis=1), most.max(axis=1), rate.max(axis=1)
        else:
            lows = least.max(axis=1) - most.min(axis=1)
            highs = _apart(most, least)
            now = rate.max(axis=1) - rate.min(axis=1)
        low, high = np.maximum(low, lows), np.maximum(high, highs)
        measured = np.fmax(measured, now)
    return low, high, measured


def _apart(most: np.ndarray, least: np.ndarray) -> np.ndarray:
    """The largest most_j - least_k over two different groups, (P,)."""
    gaps = most[:, :, None] - least[:, None, :]
    gaps[:, np.arange(gaps.shape[1]), np.arange(gaps.shape[1])] = 0.0
    return gaps.max(axis=(1, 2))


def judge(baseline: Baseline, state: State, delta: float) -> Verdict:
    """The verdict on a state; with probability 1 - delta none is ever wrong while the promise holds."""
    everybody, parts = _parts(baseline, state, delta / 2)
    where, distance, changed, because = _where(baseline, state, delta / 2)
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
        distance,
        changed,
        because,
        decisions,
        baseline.limit,
        everybody,
        parts,
        state.strange,
        advice,
        dict(state.since),
    )


def _parts(baseline: Baseline, state: State, delta: float) -> tuple[PartNow, tuple[PartNow, ...]]:
    low, high, measured = part_differences(baseline, state.counts, delta / len(baseline.parts))
    rows = state.counts.sum(axis=(1, 2, 3))
    starts, before = starts_of(sizes_of(baseline.axes)), []
    for part in baseline.parts:
        ends = [starts[a] + v for a, v in part]
        before.append(baseline.counts[ends[0], ends[-1]] / baseline.n if ends else 1.0)
    made = []
    for k, name in enumerate(baseline.names):
        verdict = (
            "broken"
            if low[k] > baseline.limit
            else "kept"
            if high[k] <= baseline.limit
            else "not yet known"
        )
        share = float(rows[k]) / max(state.rows - state.undecided, 1)
        now = float(measured[k])
        made.append(
            PartNow(
                name,
                int(rows[k]),
                share,
                float(before[k]),
                now if isfinite(now) else 0.0,
                float(low[k]),
                float(high[k]),
                verdict,
            )
        )
    return made[0], tuple(sorted(made[1:], key=lambda p: (-p.low, -p.high, p.name)))


def _where(baseline: Baseline, state: State, delta: float) -> tuple[str, float, bool, str]:
    """Inside, edge or outside; the distance; whether the mix changed; and the value that moved most."""
    if not baseline.axes or not state.rows:
        return "inside", 0.0, False, ""
    then, shares = baseline.values / baseline.n, state.values / state.rows
    error = delta / 2 / len(then)  # of each value; the other half is for the change
    was_low, was_high = clopper_pearson(baseline.values, baseline.n, error / 3)
    low, high = rate_bounds(state.values, np.full(len(then), state.rows), 2 * error / 3)
    margin = np.maximum(was_high - then, then - was_low)
    point = nearest(baseline, shares, shares)
    if nearest(baseline, low - margin, high + margin) > 1e-9:
        where = "outside"
    else:
        where = "inside" if point <= margin.max() else "edge"
    changed = mix_changed(baseline, state.values, delta / 2)
    k = int(np.abs(shares - then).argmax())
    moved = f"{100 * then[k]:.1f}% to {100 * shares[k]:.1f}% of the rows."
    told = f"{baseline.value_names[k]} went from {moved}" if changed or where != "inside" else ""
    return where, float(point), changed, told


def mix_changed(baseline: Baseline, values: np.ndarray, delta: float) -> bool:
    """Whether the counts of values, (I + C,), show that the mix is not the baseline's; while it is, this ever says
    so with probability at most delta."""
    starts, then = starts_of(sizes_of(baseline.axes)), baseline.values
    low, high = clopper_pearson(then, baseline.n, delta / 2 / len(then))
    threshold = log(len(baseline.axes) / (delta / 2))
    for c in range(len(baseline.axes)):
        own = np.r_[starts[c] : starts[c + 1], starts[-1] + c]
        if change_evidence(values[own], low[own], high[own]) > threshold:
            return True
    return False


def nearest(baseline: Baseline, low: np.ndarray, high: np.ndarray) -> float:
    """How far the box of shares [low, high], (I + C,), lies from every mix that a mixture of single values has:
    min t >= 0 with low - t <= G alpha / n <= high + t, 0 <= alpha <= bound, mean weight one, G the counts of
    pairs. A value never seen has share 0 in all of them."""
    from scipy.optimize import linprog

    G, size = baseline.counts / baseline.n, len(baseline.counts)
    reached = np.vstack([G, np.zeros((len(low) - size, size))])
    ones = np.ones((len(low), 1))
    solved = linprog(
        np.r_[np.zeros(size), 1.0],
        A_ub=np.block([[reached, -ones], [-reached, -ones]]),
        b_ub=np.r_[high, -low],
        A_eq=np.r_[np.diag(G), 0.0][None],
        b_eq=[1.0],
        bounds=[(0, baseline.bound)] * size + [(0, None)],
    )
    return float(solved.fun) if solved.status == 0 else 1.0


def _advice(
    where: str,
    changed: bool,
    decisions: str,
    parts: tuple[PartNow, ...],
    grouped: int,
    state: State,
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
