"""The coordinator's talk with its SuperLink, over the control side: sites, runs, and what became of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agnosticfair.errors import FederationError, SettingsError, needing
from agnosticfair.flower.bundle import app_bundle
from agnosticfair.flower.folder import TOKEN, Settings

OFTEN = 10.0
"""Seconds that a call may take."""


class Away(FederationError):
    """The SuperLink does not answer, which may change."""


@dataclass(frozen=True)
class Known:
    """A site as the SuperLink knows it."""

    node: int
    name: str
    public_key: bytes
    status: str


@contextmanager
def control(settings: Settings) -> Any:
    """A client of the SuperLink's control side; what goes wrong with it, in words."""
    with needing("flower", "sites need Flower"):
        import httpx
        from flwr.supercore.control.control_http_client import ControlHttpClient
        from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    at = f"127.0.0.1:{settings.control}"
    start = f"start it by 'sh {settings.folder}/start-superlink.sh'"
    try:
        token = (settings.folder / TOKEN).read_text()
    except OSError:
        raise Away(f"the SuperLink has not been started here yet: {start}") from None
    authority = (settings.folder / "tls" / "ca.crt").read_bytes()
    interceptors: list[Any] = [RuntimeVersionHttpInterceptor(component_name="flwr"), _Token(token)]
    client = ControlHttpClient.from_server_address(at, False, authority, interceptors)
    client._client.timeout = httpx.Timeout(OFTEN)
    try:
        with client:
            yield client
    except httpx.HTTPStatusError as error:
        if error.response.status_code == 401:
            raise FederationError(
                f"the SuperLink at {at} has another token: it is of another federation, or was started "
                f"in another folder; {start}"
            ) from None
        raise FederationError(
            f"the SuperLink refused: {_error_text(error.response.text)}"
        ) from None
    except httpx.TransportError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise FederationError(
                f"what answers at {at} is not this federation's SuperLink: its TLS certificate is of another "
                "authority, or expired ('agnosticfair deploy renew')"
            ) from None
        raise Away(f"the SuperLink at {at} does not answer: {start}") from None


class _Token:
    """Adds the token to every request."""

    def __init__(self, token: str) -> None:
        self.token = token

    def intercept(self, context: Any, call_next: Any) -> Any:
        context.request.headers["authorization"] = f"Bearer {self.token}"
        return call_next(context)


def _error_text(text: str) -> str:
    """The words in an answer of Flower's that is an error."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        content = {}
    words = content.get("message") or content.get("detail") if isinstance(content, dict) else None
    return " ".join(str(words or text or "no reason").split())[:300]


def public_key(path: Path, key: str) -> bytes:
    """A site's public key as Flower wants it."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes

    try:
        public = load_ssh_public_key(path.read_bytes())
    except FileNotFoundError:
        raise SettingsError(
            f"there is no public key {str(path)!r} of site {key!r}: put the site's own there"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        public = None
    if not isinstance(public, EllipticCurvePublicKey):
        raise SettingsError(f"{str(path)!r} of site {key!r} is no public ECDSA key of OpenSSH's")
    return public_key_to_bytes(public)


def known_sites(settings: Settings) -> list[Known]:
    """The sites whose keys are registered."""
    from flwr.proto.control_pb2 import ListNodesRequest

    with control(settings) as client:
        nodes = client.ListNodes(ListNodesRequest()).nodes_info
    return [
        Known(n.node_id, n.name, n.public_key, n.status)
        for n in nodes
        if n.status != "unregistered"
    ]


def register(settings: Settings) -> None:
    """Make the registered keys those in the folder: new ones are added, others of its sites removed."""
    from flwr.proto.control_pb2 import RegisterNodeRequest, UnregisterNodeRequest

    wanted = {k: public_key(settings.folder / "keys" / f"{k}.pub", k) for k in settings.sites}
    by_key = {key_of_site: key for key, key_of_site in wanted.items()}
    if len(by_key) < len(wanted):
        twice = next(k for k, key_of_site in wanted.items() if by_key[key_of_site] != k)
        raise SettingsError(
            f"sites {twice!r} and {by_key[wanted[twice]]!r} have one and the same key: let each make its own"
        )
    known = known_sites(settings)
    with control(settings) as client:
        for site in known:
            if by_key.get(site.public_key) != site.name:
                client.UnregisterNode(UnregisterNodeRequest(node_id=site.node))
        there = {site.public_key for site in known if by_key.get(site.public_key) == site.name}
        for key, key_of_site in wanted.items():
            if key_of_site not in there:
                client.RegisterNode(RegisterNodeRequest(public_key=key_of_site, name=key))


def submit(settings: Settings, config: Mapping[str, Any]) -> str:
    """Start a run of the app with these settings; its id."""
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    content = app_bundle()
    fab = Fab(hashlib.sha256(content).hexdigest(), content, {})
    start_request = StartRunRequest(
        fab=fab_to_proto(fab),
        override_config=user_config_to_proto({"settings": json.dumps(dict(config))}),
    )
    with control(settings) as client:
        reply = client.StartRun(start_request)
    if not reply.HasField("run_id"):
        raise FederationError(
            f"the SuperLink did not start a run: {reply.note or 'it gave no reason'}"
        )
    return str(reply.run_id)


def status_of(settings: Settings, run: str) -> tuple[str, str]:
    """A run's status, such as 'finished:completed', and what Flower knows of its cause."""
    from flwr.proto.control_pb2 import ListRunsRequest

    with control(settings) as client:
        runs = client.ListRuns(ListRunsRequest(run_id=int(run))).run_dict
    if int(run) not in runs:
        raise FederationError(f"the SuperLink knows no run {run}")
    status = runs[int(run)].status
    return ":".join(p for p in (status.status, status.sub_status) if p), str(status.details)


def active_runs(settings: Settings) -> list[str]:
    """The runs that have not ended."""
    from flwr.proto.control_pb2 import ListRunsRequest

    with control(settings) as client:
        runs = client.ListRuns(ListRunsRequest()).run_dict
    return [str(run) for run, about in runs.items() if about.status.status != "finished"]


def stop(settings: Settings, run: str) -> bool:
    """Stop a run; whether there was something to stop."""
    from flwr.proto.control_pb2 import StopRunRequest

    with control(settings) as client:
        return bool(client.StopRun(StopRunRequest(run_id=int(run))).success)
