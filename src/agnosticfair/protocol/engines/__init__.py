"""Engines carry requests to clients and answers back. They know nothing of algorithms."""

from agnosticfair.protocol.engines.seam import Engine, Failure

__all__ = ["Engine", "Failure"]
