"""What Flower loads: the code is in the package that each machine has installed."""

from agnosticfair.deploy.flower import client_app, server_app

__all__ = ["client_app", "server_app"]
