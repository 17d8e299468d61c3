"""What the counts say: where the rows lie, what the decisions do, and what to do about it. The counts are a
monitor's state, by subgroup, group, label and decision; states of several sites add up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import permutations
from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import lower, upper
from agnosticfair.errors import ModelError, needing
from agnosticfair.mathematics.binomial import (
    lowest_difference,
    rate_bounds,
)
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.monitoring.baseline import Baseline, placed


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


FORMAT = "agnosticfair-monitor-1"
MAX_POINTS = 240  # of the timeline, which is thinned beyond
MAX_STRANGE = 20  # values never seen that are remembered of each column
MAX_BATCHES = 10_000  # the last ones, that are known again


SKETCH = 32  # numbers by which a batch is known again without some of its rows, or among others
MAX_SKETCHES = 256  # the last batches of which they are remembered
ALIKE = 0.5  # the share of rows in common from which on it is the same batch
DISTINCT = 0.9
"""The share of its rows that must differ: where people are alike by chance, so are batches."""
SURELY = 8  # the fewest rows that show a part of a batch


@dataclass(frozen=True)
class MonitorState:
    """Sums over all rows so far, for the baseline of this id.

    counts: (P, G + 1, 3, 2), by subgroup (the first is overall), group (the last: not known), label (not known,
    negative, positive) and decision.  values: (I + C,), rows of each value of each axis, those of no agreed value
    last, axis by axis. ``undecided`` rows have a value that the model does not know; ``batches`` are digests of what
    was counted, each with whether its labels were; ``strange`` are values never seen, by column; ``since``: the row
    at which a verdict was first reached; ``timeline`` a record for each look, thinned; ``last`` the time of the last
    batch; ``sketches`` of the last batches.
    """

    baseline: str
    counts: np.ndarray
    values: np.ndarray
    rows: int = 0
    undecided: int = 0
    batches: Mapping[str, bool] = field(default_factory=dict)
    strange: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    since: Mapping[str, int] = field(default_factory=dict)
    timeline: tuple[Mapping[str, Any], ...] = ()
    last: float = 0.0
    sketches: tuple[tuple[int, ...], ...] = ()

    def __add__(self, other: MonitorState) -> MonitorState:
        """The state of a federation: what its sites counted, together."""
        if self.baseline != other.baseline:
            raise ModelError(
                "these states watch different baselines and do not add up: start both with the same certificate"
            )
        twice = self.batches.keys() & other.batches.keys()
        if twice:
            raise ModelError(
                f"both states have counted the same batches ({len(twice)}): leave one of them out"
            )
        names = sorted({*self.strange, *other.strange})
        strange = {k: {*self.strange.get(k, ()), *other.strange.get(k, ())} for k in names}
        return MonitorState(
            baseline=self.baseline,
            counts=self.counts + other.counts,
            values=self.values + other.values,
            rows=self.rows + other.rows,
            undecided=self.undecided + other.undecided,
            batches=latest({**self.batches, **other.batches}),
            strange={k: tuple(sorted(v)[:MAX_STRANGE]) for k, v in strange.items()},
            since={},  # first rows of one site are not those of all
            timeline=(),
            last=max(self.last, other.last),
            sketches=(*self.sketches, *other.sketches)[-MAX_SKETCHES:],
        )

    def thinned(self) -> MonitorState:
        """The same with a timeline of at most MAX_POINTS points: every other one is dropped, but the last."""
        timeline = self.timeline
        while len(timeline) > MAX_POINTS:
            timeline = (*timeline[:-1:2], timeline[-1])
        return replace(self, timeline=timeline)

    def to_bytes(self) -> bytes:
        fields = {**vars(self), "counts": self.counts.tolist(), "values": self.values.tolist()}
        content = json.dumps({"format": FORMAT, **fields}, separators=(",", ":"))
        digest = hashlib.sha256(content.encode()).hexdigest()
        return f'{{"sha256":"{digest}","state":{content}}}\n'.encode()


def hashes_of(content: np.ndarray) -> np.ndarray:
    """The different hashes of a batch, 32 bits each, sorted; the first SKETCH are its sketch. None where its rows are
    too much alike to tell batches apart.

    content: (n,) hashes of the rows.

    >>> hashes_of(np.array([5, 3], np.uint64) << np.uint64(32)), hashes_of(np.zeros(9, np.uint64)).size
    (array([3, 5], dtype=uint64), 0)
    """
    single = np.unique(content >> np.uint64(32))
    return single[: 0 if len(single) < max(DISTINCT * len(content), 2) else None]


def in_common(sketch: tuple[int, ...], hashes: np.ndarray) -> float:
    """The share of an earlier batch's rows that are in this one, about, by its sketch; or of this one's in the earlier
    one, where nearly all of SURELY or more are.

    >>> rows = np.arange(100, dtype=np.uint64)
    >>> in_common((1, 3, 5, 7), rows[4:]), in_common((1, 3, 5, 7), rows[8:]), in_common((1, 3, 5, 7), rows[:1])
    (0.5, 0.0, 0.0)
    """
    if not sketch or not len(hashes):
        return 0.0
    known = np.array(sketch, np.uint64)
    there = hashes[np.minimum(np.searchsorted(hashes, known), len(hashes) - 1)] == known
    first = int(np.searchsorted(hashes, known[-1], "right"))
    inside = there.sum() / first if first >= SURELY else 0.0
    return float(max(there.mean(), inside if inside >= DISTINCT else 0.0))


def latest(batches: Mapping[str, bool]) -> dict[str, bool]:
    """The last MAX_BATCHES of them."""
    return dict([*batches.items()][-MAX_BATCHES:])


def from_bytes(content: bytes, who: str) -> MonitorState:
    """Read a state file; a damaged one is refused."""
    try:
        text = content.decode().rstrip("\n")
        digest, inner = text[11:75], text[len('{"sha256":"') + 64 + len('","state":') : -1]
        if hashlib.sha256(inner.encode()).hexdigest() != digest:
            raise ValueError("digest")
        fields = json.loads(inner)
        if fields.pop("format") != FORMAT:
            raise ValueError("format")
        counts, values = np.array(fields.pop("counts")), np.array(fields.pop("values"))
        if counts.dtype.kind != "i" or values.dtype.kind != "i" or counts.ndim != 4:
            raise ValueError("counts")
        fields["timeline"] = tuple(fields["timeline"])
        fields["sketches"] = tuple(map(tuple, fields.get("sketches", ())))
        fields["strange"] = {k: tuple(v) for k, v in fields["strange"].items()}
        return MonitorState(counts=counts, values=values, **fields)
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{who} is no state of a monitor, or it is damaged ({type(error).__name__}): restore a copy, or begin anew"
        ) from None


STATES = {"kept": 0, "inside": 0, "not yet known": 1, "edge": 1, "broken": 2, "outside": 2}


class Gauges:
    """A registry that knows a gauge by its name."""

    def __init__(self) -> None:
        with needing("monitor", "metrics need prometheus-client"):
            import prometheus_client as prometheus
        self.prometheus, self.known = prometheus, {}  # type: ignore[var-annotated]
        self.registry = prometheus.CollectorRegistry()

    def gauge(self, name: str, words: str, labels: Mapping[str, str], value: float) -> None:
        if name not in self.known:
            full = f"agnosticfair_{name}"
            self.known[name] = self.prometheus.Gauge(full, words, [*labels], registry=self.registry)
        gauge = self.known[name]
        (gauge.labels(**labels) if labels else gauge).set(float(value))

    def text(self) -> bytes:
        """What a node exporter's text collector, or an endpoint, hands out."""
        return bytes(self.prometheus.generate_latest(self.registry))


def exposition(verdict: Verdict) -> bytes:
    gauges, overall = Gauges(), verdict.overall
    for name, words, value in (
        ("rows", "Rows counted", verdict.rows),
        ("undecided_rows", "Rows with a value the model does not know", verdict.undecided),
        ("limit", "Certified limit", verdict.limit),
        ("decisions", "0 kept, 1 not yet known, 2 broken", STATES[verdict.decisions]),
        ("where", "0 inside, 1 at the edge, 2 outside the set", STATES[verdict.where]),
        ("distance", "From the nearest mix in the set", verdict.distance),
        ("changed", "1 if the mix is not the baseline's", verdict.changed),
        ("difference_low", "Lower end of the difference, all rows", overall.low),
        ("difference_high", "Upper end of the difference, all rows", overall.high),
    ):
        gauges.gauge(name, words, {}, value)
    for subgroup in verdict.subgroups[:10]:
        labels = {"subgroup": subgroup.name}
        gauges.gauge("subgroup_difference_low", "Lower end, worst subgroups", labels, subgroup.low)
    return gauges.text()
