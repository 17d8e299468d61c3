"""The health of SuperLink and sites as Prometheus metrics, in its text format."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from agnosticfair.monitoring.prometheus import Gauges


def site_gauges(
    site: str, connected: bool, counts: Mapping[tuple[str, str], int], sent: int
) -> bytes:
    """A site's events since its start, and the bytes that left it: for a node exporter's text collector."""
    gauges = Gauges()
    gauges.gauge("site_connected", "1 if the SuperLink lets the site in", {"site": site}, connected)
    gauges.gauge("site_answer_bytes", "Bytes that left the site", {"site": site}, sent)
    gauges.gauge("site_seen", "When this was written", {"site": site}, time.time())
    for (event, step), count in sorted(counts.items()):
        about = {"site": site, "event": event, "step": step}
        gauges.gauge("site_events", "Events in the site's log", about, count)
    return gauges.text()


def superlink_gauges(
    names: Mapping[str, str],
    last: Mapping[str, Mapping[str, Any]],
    counts: Mapping[tuple[str, int], int],
    progress: Mapping[str, Any],
) -> bytes:
    """Requests at the sites' door, when each site was last seen, and the run's round.

    names: by the identity of a key, the site.  last, counts: of ``superlink.Visits``.
    """
    gauges = Gauges()
    for (path, status), count in sorted(counts.items()):
        about = {"path": path.rpartition("/")[2], "status": str(status)}
        gauges.gauge("fleet_requests", "Requests at the sites' door", about, count)
    for key, site in sorted(names.items()):
        seen = last.get(key, {}).get("seen", 0.0)
        gauges.gauge("fleet_site_seen", "When a site was last seen", {"site": site}, seen)
    gauges.gauge(
        "run_round", "The last round of the last run", {}, progress.get("round", {}).get("round", 0)
    )
    gauges.gauge(
        "run_waiting", "Sites that the run waits for", {}, len(progress.get("waiting", {}))
    )
    return gauges.text()
