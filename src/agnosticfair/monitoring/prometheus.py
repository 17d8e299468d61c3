"""A verdict as Prometheus metrics, in its text format."""

from __future__ import annotations

from agnosticfair.monitoring.gauges import Gauges
from agnosticfair.monitoring.verdict import Verdict

STATES = {"kept": 0, "inside": 0, "not yet known": 1, "edge": 1, "broken": 2, "outside": 2}


def exposition(verdict: Verdict) -> bytes:
    """What a node exporter's text collector, or an endpoint, hands out."""
    gauges = Gauges()
    gauges.gauge("rows", "Rows counted", {}, verdict.rows)
    gauges.gauge(
        "undecided_rows", "Rows with a value the model does not know", {}, verdict.undecided
    )
    gauges.gauge("limit", "Certified limit", {}, verdict.limit)
    gauges.gauge("decisions", "0 kept, 1 not yet known, 2 broken", {}, STATES[verdict.decisions])
    gauges.gauge("where", "0 inside, 1 at the edge, 2 outside the set", {}, STATES[verdict.where])
    gauges.gauge("distance", "From the nearest mix in the set", {}, verdict.distance)
    gauges.gauge("changed", "1 if the mix is not the baseline's", {}, float(verdict.changed))
    gauges.gauge("difference_low", "Lower end of the difference, all rows", {}, verdict.overall.low)
    gauges.gauge(
        "difference_high", "Upper end of the difference, all rows", {}, verdict.overall.high
    )
    for subgroup in verdict.subgroups[:10]:
        about = {"subgroup": subgroup.name}
        gauges.gauge("subgroup_difference_low", "Lower end, worst subgroups", about, subgroup.low)
    return gauges.text()
