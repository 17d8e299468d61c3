"""A verdict as Prometheus metrics, in its text format."""

from __future__ import annotations

from agnosticfair.errors import SettingsError
from agnosticfair.monitoring.verdict import Verdict

STATES = {"kept": 0, "inside": 0, "not yet known": 1, "edge": 1, "broken": 2, "outside": 2}


def exposition(verdict: Verdict) -> bytes:
    """What a node exporter's text collector, or an endpoint, hands out."""
    try:
        from prometheus_client import CollectorRegistry, Gauge, generate_latest
    except ImportError:
        raise SettingsError(
            "metrics need prometheus-client: install it by pip install 'agnosticfair[monitor]'"
        ) from None
    registry = CollectorRegistry()

    def gauge(name: str, words: str, value: float) -> None:
        Gauge(f"agnosticfair_{name}", words, registry=registry).set(value)

    gauge("rows", "Rows counted", verdict.rows)
    gauge("undecided_rows", "Rows with a value the model does not know", verdict.undecided)
    gauge("limit", "Certified limit", verdict.limit)
    gauge("decisions", "0 kept, 1 not yet known, 2 broken", STATES[verdict.decisions])
    gauge("where", "0 inside, 1 at the edge, 2 outside the set", STATES[verdict.where])
    gauge("distance", "From the nearest mix in the set", verdict.distance)
    gauge("changed", "1 if the mix is not the baseline's", float(verdict.changed))
    gauge("difference_low", "Lower end of the difference, all rows", verdict.everybody.low)
    gauge("difference_high", "Upper end of the difference, all rows", verdict.everybody.high)
    of_part = Gauge(
        "agnosticfair_part_difference_low", "Lower end, worst parts", ["part"], registry=registry
    )
    for part in verdict.parts[:10]:
        of_part.labels(part.name).set(part.low)
    return generate_latest(registry)
