"""A verdict as Prometheus metrics, in its text format."""

from __future__ import annotations

from agnosticfair.monitoring.gauges import Gauges
from agnosticfair.monitoring.verdict import Verdict

STATES = {"kept": 0, "inside": 0, "not yet known": 1, "edge": 1, "broken": 2, "outside": 2}


def exposition(verdict: Verdict) -> bytes:
    """What a node exporter's text collector, or an endpoint, hands out."""
    told = Gauges()
    told.gauge("rows", "Rows counted", {}, verdict.rows)
    told.gauge("undecided_rows", "Rows with a value the model does not know", {}, verdict.undecided)
    told.gauge("limit", "Certified limit", {}, verdict.limit)
    told.gauge("decisions", "0 kept, 1 not yet known, 2 broken", {}, STATES[verdict.decisions])
    told.gauge("where", "0 inside, 1 at the edge, 2 outside the set", {}, STATES[verdict.where])
    told.gauge("distance", "From the nearest mix in the set", {}, verdict.distance)
    told.gauge("changed", "1 if the mix is not the baseline's", {}, float(verdict.changed))
    told.gauge("difference_low", "Lower end of the difference, all rows", {}, verdict.everybody.low)
    told.gauge(
        "difference_high", "Upper end of the difference, all rows", {}, verdict.everybody.high
    )
    for part in verdict.parts[:10]:
        about = {"part": part.name}
        told.gauge("part_difference_low", "Lower end, worst parts", about, part.low)
    return told.text()
