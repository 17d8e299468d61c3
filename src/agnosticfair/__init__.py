"""Federated classifiers that stay accurate and fair on a deployment nobody has seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agnosticfair.auditing.audit import audit, audit_clients
    from agnosticfair.auditing.certificate import Certificate
    from agnosticfair.data.datasets import iid, load_dataset
    from agnosticfair.data.files import read_table
    from agnosticfair.data.table import Column, Table
    from agnosticfair.estimator.classifier import AgnosticFairClassifier, frontier
    from agnosticfair.estimator.frames import fairness_scorer
    from agnosticfair.federation import Fit, fit
    from agnosticfair.learners.rule import Rule
    from agnosticfair.mathematics.basis import (
        by_client,
        constant,
        gaussian,
        gaussian_at,
        subgroups,
    )
    from agnosticfair.mathematics.metrics import METRICS, Metric, register_metric
    from agnosticfair.methods import METHODS, Method, Network, method
    from agnosticfair.model import Model, load_model
    from agnosticfair.monitoring.monitor import Monitor, MonitoredClassifier
    from agnosticfair.target import target_weights

__version__ = "0.1.0"

_HOMES = {
    "auditing.audit": ("audit", "audit_clients"),
    "auditing.certificate": ("Certificate",),
    "data.datasets": ("load_dataset", "iid"),
    "data.files": ("read_table",),
    "data.table": ("Column", "Table"),
    "estimator.classifier": ("AgnosticFairClassifier", "frontier"),
    "estimator.frames": ("fairness_scorer",),
    "federation": ("Fit", "fit"),
    "learners.rule": ("Rule",),
    "mathematics.basis": (*("by_client", "constant", "gaussian", "gaussian_at", "subgroups"),),
    "mathematics.metrics": ("METRICS", "Metric", "register_metric"),
    "methods": ("METHODS", "Method", "Network", "method"),
    "model": ("Model", "load_model"),
    "monitoring.monitor": ("MonitoredClassifier", "Monitor"),
    "target": ("target_weights",),
}
_ROOMS = {name: room for room, names in _HOMES.items() for name in names}
__all__ = tuple(sorted(_ROOMS))


def __getattr__(name: str) -> Any:
    """What the package offers, imported when it is first asked for."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'agnosticfair' has no attribute {name!r}")
    return getattr(import_module(f"agnosticfair.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
