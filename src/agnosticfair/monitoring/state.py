"""What a monitor remembers: counts by subgroup, group, label and decision. States of several sites add up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agnosticfair.errors import ModelError

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
