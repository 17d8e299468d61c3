"""Gauges in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Mapping

from agnosticfair.errors import needing


class Gauges:
    """A registry that knows a gauge by its name."""

    def __init__(self) -> None:
        with needing("monitor", "metrics need prometheus-client"):
            import prometheus_client as prometheus
        self.prometheus, self.known = prometheus, {}  # type: ignore[var-annotated]
        self.registry = prometheus.CollectorRegistry()

    def gauge(self, name: str, words: str, about: Mapping[str, str], value: float) -> None:
        """Set a gauge.  about: its labels."""
        if name not in self.known:
            full = f"agnosticfair_{name}"
            self.known[name] = self.prometheus.Gauge(full, words, [*about], registry=self.registry)
        gauge_known = self.known[name]
        (gauge_known.labels(**about) if about else gauge_known).set(float(value))

    def text(self) -> bytes:
        """What a node exporter's text collector, or an endpoint, hands out."""
        return bytes(self.prometheus.generate_latest(self.registry))
