"""The health of a run and of sites as Prometheus metrics, in its text format, for a node exporter's text collector."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from agnosticfair.monitoring.prometheus import Gauges


def site_gauges(
    site: str, connected: bool, counts: Mapping[tuple[str, str], int], sent: int
) -> bytes:
    """A site's events since its start, and the bytes that left it."""
    gauges = Gauges()
    gauges.gauge("site_connected", "1 if the site is in a run", {"site": site}, connected)
    gauges.gauge("site_answer_bytes", "Bytes that left the site", {"site": site}, sent)
    gauges.gauge("site_seen", "When this was written", {"site": site}, time.time())
    for (event, step), count in sorted(counts.items()):
        about = {"site": site, "event": event, "step": step}
        gauges.gauge("site_events", "Events in the site's log", about, count)
    return gauges.text()


def run_gauges(state: Mapping[str, Any]) -> bytes:
    """A run's round and its sites.  state: as ``runner.Live`` has it."""
    gauges = Gauges()
    for key, words in state["sites"].items():
        connected = words == "connected"
        gauges.gauge("run_site_connected", "1 if the site is connected", {"site": key}, connected)
    ended = state["ended"]
    rounds = state["round"].get("round", 0)
    gauges.gauge("run_round", "The last round of the last run", {}, rounds)
    gauges.gauge("run_waiting", "Sites that the run waits for", {}, len(state["waiting"]))
    gauges.gauge("run_failed", "1 if the last run failed", {}, ended not in ("", "well"))
    gauges.gauge("run_seen", "When this was written", {}, state["seen"])
    return gauges.text()
