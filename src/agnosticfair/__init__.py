"""Federated classifiers that stay accurate and fair on a deployment nobody has seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agnosticfair.auditing import audit, audit_clients
    from agnosticfair.certificate import Certificate
    from agnosticfair.estimator import AgnosticFairClassifier, frontier
    from agnosticfair.target import target_weights

__version__ = "0.1.0"
__all__ = [
    "AgnosticFairClassifier",
    "Certificate",
    "audit",
    "audit_clients",
    "frontier",
    "target_weights",
]

_ROOMS = {
    "AgnosticFairClassifier": "estimator",
    "audit": "auditing",
    "audit_clients": "auditing",
    "Certificate": "certificate",
    "frontier": "estimator",
    "target_weights": "target",
}


def __getattr__(name: str) -> Any:
    """What the package offers, imported when it is first asked for."""
    if name not in _ROOMS:
        raise AttributeError(f"module 'agnosticfair' has no attribute {name!r}")
    return getattr(import_module(f"agnosticfair.{_ROOMS[name]}"), name)
