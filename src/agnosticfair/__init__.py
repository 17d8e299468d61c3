"""Federated classifiers that stay accurate and fair on a deployment nobody has seen."""

__version__ = "0.1.0"
