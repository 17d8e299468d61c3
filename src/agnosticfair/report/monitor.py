"""The page of a monitor: a verdict, a timeline with intervals, the mix against training, the worst parts."""

from __future__ import annotations

from collections import Counter
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
        "mix": _mix(monitor),
        "made": f"After the batch of {made}",
    }


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
