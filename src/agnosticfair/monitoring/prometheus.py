"""Metrics in Prometheus' text format: a verdict's, and the gauges that others fill."""

from __future__ import annotations

from collections.abc import Mapping

from agnosticfair.errors import needing
from agnosticfair.monitoring.verdict import Verdict

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
