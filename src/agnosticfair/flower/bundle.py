"""The Flower app as it is submitted: the same bytes for every federation of one version, and its hash.

A run's settings come with the run, not with the app, so that a site can register the app once.
"""

from __future__ import annotations

import hashlib
import warnings
from importlib.metadata import version

_PROJECT = """[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "agnosticfair-app"
version = "{0}"
description = "Fits one classifier over sites whose rows stay with them"
license = "MIT"
dependencies = ["agnosticfair[flower]=={0}"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "agnosticfair"

[tool.flwr.app.components]
serverapp = "agnosticfair_app.server:app"
clientapp = "agnosticfair_app.client:app"

[tool.flwr.app.config]
settings = ""
"""
_MODULE = "from agnosticfair.flower.apps import {0} as app\n\n__all__ = ['app']\n"


def app_files() -> dict[str, str]:
    """The app's few files; its code is in the package."""
    return {
        "pyproject.toml": _PROJECT.format(version("agnosticfair")),
        "agnosticfair_app/__init__.py": "",
        "agnosticfair_app/client.py": _MODULE.format("client_app"),
        "agnosticfair_app/server.py": _MODULE.format("server_app"),
    }


def app_bundle() -> bytes:
    """The app as Flower packs it."""
    from flwr.cli.build import build_fab_from_files

    with warnings.catch_warnings(action="ignore"):  # Flower's own, about what it is built on
        return build_fab_from_files({name: text.encode() for name, text in app_files().items()})[0]


def app_hash() -> str:
    """The name that a site registers the app by."""
    return hashlib.sha256(app_bundle()).hexdigest()
