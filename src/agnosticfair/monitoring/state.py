"""What a monitor remembers: counts by part, group, label and decision. States of several sites add up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agnosticfair.errors import ModelError

FORMAT = "agnosticfair-monitor-1"
MOST_POINTS, MOST_STRANGE, MOST_BATCHES = 240, 20, 10_000
"""Points of the timeline, which is thinned beyond; values never seen that are remembered of each column; and
batches, the last ones, that are known again."""


@dataclass(frozen=True)
class MonitorState:
    """Sums over all rows so far.

    Parameters
    ----------
    baseline : its id
    counts : (P, G + 1, 3, 2), by part (the first is everybody), group (the last: not known), label (not known,
        negative, positive) and decision
    values : (I + C,), rows of each value of each axis, those of no agreed value last, axis by axis
    rows, undecided : all rows, and those with a value that the model does not know
    batches : digests of what was counted, each with whether its labels were
    strange : column -> values never seen
    since : verdict -> the row at which it was first reached
    timeline : a record per look, thinned
    last : time of the last batch
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

    def __add__(self, other: MonitorState) -> MonitorState:
        """The state of a federation: what its sites counted, together."""
        if self.baseline != other.baseline:
            raise ModelError(
                "these states watch different baselines and do not add up: start both with the same certificate"
            )
        twice = self.batches.keys() & other.batches.keys()
        if twice:
            raise ModelError(
                f"{len(twice)} batches were counted in both states: leave one of them out"
            )
        names = sorted({*self.strange, *other.strange})
        strange = {k: {*self.strange.get(k, ()), *other.strange.get(k, ())} for k in names}
        return MonitorState(
            self.baseline,
            self.counts + other.counts,
            self.values + other.values,
            self.rows + other.rows,
            self.undecided + other.undecided,
            latest({**self.batches, **other.batches}),
            {k: tuple(sorted(v)[:MOST_STRANGE]) for k, v in strange.items()},
            {},  # first rows of one site are not those of all
            (),
            max(self.last, other.last),
        )

    def thinned(self) -> MonitorState:
        """The same with a timeline of at most MOST_POINTS points: every other one is dropped, but the last."""
        kept = self.timeline
        while len(kept) > MOST_POINTS:
            kept = (*kept[:-1:2], kept[-1])
        return replace(self, timeline=kept)

    def to_bytes(self) -> bytes:
        """The state file: JSON behind its own digest."""
        own = {**vars(self), "counts": self.counts.tolist(), "values": self.values.tolist()}
        content = json.dumps({"format": FORMAT, **own}, separators=(",", ":"))
        digest = hashlib.sha256(content.encode()).hexdigest()
        return f'{{"sha256":"{digest}","state":{content}}}\n'.encode()


def latest(batches: Mapping[str, bool]) -> dict[str, bool]:
    """The last MOST_BATCHES of them."""
    return dict([*batches.items()][-MOST_BATCHES:])


def from_bytes(content: bytes, who: str) -> MonitorState:
    """Read a state file; a damaged one is refused."""
    try:
        text = content.decode().rstrip("\n")
        digest, inner = text[11:75], text[len('{"sha256":"') + 64 + len('","state":') : -1]
        if hashlib.sha256(inner.encode()).hexdigest() != digest:
            raise ValueError("digest")
        made = json.loads(inner)
        if made.pop("format") != FORMAT:
            raise ValueError("format")
        counts, values = np.array(made.pop("counts")), np.array(made.pop("values"))
        if counts.dtype.kind != "i" or values.dtype.kind != "i" or counts.ndim != 4:
            raise ValueError("counts")
        made["strange"] = {k: tuple(v) for k, v in made["strange"].items()}
        return MonitorState(
            counts=counts, values=values, **{**made, "timeline": tuple(made["timeline"])}
        )
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ModelError(
            f"{who} is no state of a monitor, or it is damaged ({type(error).__name__}): restore a copy, or begin anew"
        ) from None
