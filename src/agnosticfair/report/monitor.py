"""The page of a monitor: a verdict, a timeline with intervals, the mix against training, the worst parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

import agnosticfair
from agnosticfair.data.encoding import shown
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair.monitoring.verdict import Verdict

MOST_PARTS, MOST_VALUES = 25, 10


def page_data(monitor: Monitor, verdict: Verdict, live: bool = False) -> dict[str, Any]:
    """All that the page shows: counts and names, and no rows."""
    state, found = monitor.state, verdict.to_json()
    counted = Counter(p.verdict for p in (verdict.everybody, *verdict.parts))
    made = datetime.fromtimestamp(state.last, UTC).strftime("%Y-%m-%d %H:%M UTC")
    made = f"After the batch of {made}" if state.last else "Before the first batch"
    return {
        **found,
        "version": agnosticfair.__version__,
        "live": live,
        "confidence": monitor.confidence,
        "counted": {
            k.rpartition(" ")[2].replace("known", "unknown"): counted[k] for k in _VERDICTS
        },
        "parts_in_all": 1 + len(verdict.parts),
        "parts": found["parts"][:MOST_PARTS],
        "strange": [f"Values of {k} never seen: {shown(v)}." for k, v in verdict.strange.items()],
        "timeline": [*state.timeline],
        "nearest": _mixture(verdict),
        "alone": _alone(state.timeline),
        "mix": _mix(monitor),
        "made": made,
    }


def _mixture(verdict: Verdict) -> str:
    """The nearest mixture in the set, in words."""
    if not verdict.nearest:
        return ""
    heavy = "; ".join(f"{name} {weight:.0%}" for name, weight in verdict.nearest.items())
    return f"The nearest mixture in the set weighs most: {heavy}."


def _alone(timeline: tuple[Mapping[str, Any], ...]) -> str:
    """What the last batch shows by itself."""
    last = timeline[-1].get("batch") if timeline else None
    if not last:
        return ""
    place = f"{last['rows']:,} rows, is {PLACES.get(last['where'], last['where'])} the set"
    if last["difference"] is None:
        return f"The last batch alone, {place}; its groups are not known."
    ends = f"{last['low']:.3f} to {last['high']:.3f}"
    return f"The last batch alone, {place}, with a difference of {last['difference']:.3f} ({ends}, for one look at it)."


PLACES = {"edge": "at the edge of"}
_VERDICTS = ("kept", "broken", "not yet known")


def _mix(monitor: Monitor) -> list[dict[str, Any]]:
    """The values whose shares moved most, then and now."""
    baseline, state = monitor.baseline, monitor.state
    then, now = baseline.values / baseline.n, state.values / max(state.rows, 1)
    names, order = (
        baseline.value_names,
        np.argsort(-np.abs(now - then), kind="stable")[:MOST_VALUES],
    )
    return [{"name": names[k], "before": float(then[k]), "now": float(now[k])} for k in order]
