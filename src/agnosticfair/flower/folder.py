"""The folder of a federation of sites: the Flower app, TLS certificates for a test, keys, and start scripts.

Everything in it is plain text that a person can read; what is secret is readable by its owner only.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agnosticfair.data.files import Roles
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.basis import check_seed
from agnosticfair.settings import to_config

DAYS = 90
"""How long the TLS certificates for a test are good."""

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}
"""Flower calls nobody: no telemetry, no look for updates."""

SWIFT = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}
"""Seconds until a message that came is taken up, on one machine; Flower's own value is 1."""


@dataclass(frozen=True)
class Federation:
    """sites: each site's key and file.  run: the values of the fit (method, seed, deadline, ...)."""

    sites: Mapping[str, Path]
    roles: Roles
    run: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    port: int = 8000
    least_rows: int = 10

    def __post_init__(self) -> None:
        for key in self.sites:
            if not key.replace("-", "").replace("_", "").isalnum() or not key.isascii():
                raise SettingsError(f"site {key!r}: use letters, digits, '-' and '_' in its name")
        if not self.sites:
            raise SettingsError("there are no sites: name each as NAME=FILE")
        if not re.fullmatch(r"[A-Za-z0-9.:-]+", self.host):
            raise SettingsError(f"host {self.host!r}: give an address, or a name in ASCII")
        if self.least_rows < 1:
            raise SettingsError(f"least-rows is {self.least_rows}: give one or more")
        if not float(self.run.get("deadline", 1.0)) > 0:
            raise SettingsError(f"deadline is {self.run['deadline']}: give seconds, more than none")
        check_seed(int(self.run.get("seed", 0)))
        for name in self.roles.named():  # in lists names have commas between, and texts are quoted
            if re.search('[,"]', name) or not name.isprintable():
                raise SettingsError(f"column {name!r}: rename it without comma and quotation mark")
        for file in map(str, self.sites.values()):
            if '"' in file:
                raise SettingsError(f"file {file!r}: rename it without quotation mark")
        if not 0 < self.port < 65536 - len(self.sites):
            raise SettingsError(f"port {self.port}: name one between 1 and 65000")


def write_folder(folder: Path, plan: Federation) -> None:
    """Write the federation's folder, which must not be there yet."""
    folder = folder.resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{str(folder)!r} is not empty: name a new folder")
    files: dict[str, str] = {
        "app/pyproject.toml": _pyproject(folder, plan),
        "app/agnosticfair_app/__init__.py": '"""The Flower app; its code is in the package."""\n',
        "app/agnosticfair_app/client.py": _IMPORT.format("client_app"),
        "app/agnosticfair_app/server.py": _IMPORT.format("server_app"),
        "flower/config.toml": _connection(folder, plan),
        "start-superlink.sh": _superlink(folder, plan),
        **{f"start-{key}.sh": _supernode(folder, plan, key) for key in plan.sites},
    }
    try:
        secrets = tls_certificates(plan.host)
    except ImportError:
        raise SettingsError("sites need Flower: install 'agnosticfair[flower]'") from None
    for key in plan.sites:
        secrets |= {f"keys/{key}{end}": text for end, text in key_pair().items()}
    try:
        for private in ("keys", "tls", "state", "results"):
            (folder / private).mkdir(0o700, parents=True)
        for name, text in (files | secrets).items():
            _write(folder / name, text)
    except OSError as error:
        raise SettingsError(
            f"cannot write to {str(folder)!r}: {error.strerror}; name another folder"
        ) from None


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    secret = path.suffix in (".key", "") and path.parent.name in ("keys", "tls")
    mode = 0o600 if secret else 0o755 if path.suffix == ".sh" else 0o644
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)


_IMPORT = """from agnosticfair.flower.apps import {0} as app

__all__ = ["app"]
"""


def _pyproject(folder: Path, plan: Federation) -> str:
    """The Flower app's own file, with the fit's values in its configuration."""
    run = {
        "method": "agnosticfair",
        **to_config({}),
        "seed": 0,
        "sensitive-features": ",".join(plan.roles.sensitive_features),
        "positive": "",
        "deadline": 120.0,
        "on-failure": "wait",
        "least-clients": 1 if plan.run.get("on-failure") == "drop" else len(plan.sites),
        "certify": True,
        **plan.run,
        "sites": ",".join(sorted(plan.sites)),
        "out": str(folder / "results"),
        "checkpoint": str(folder / "state" / "checkpoint"),
    }
    config = "\n".join(f"{key} = {_toml(value)}" for key, value in run.items())
    extras = "flower,torch" if run["network"] else "flower"
    return f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "agnosticfair-app"
version = "1.0.0"
description = "Fits one classifier over sites whose rows stay with them"
license = "MIT"
dependencies = ["agnosticfair[{extras}]"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "agnosticfair"

[tool.flwr.app.components]
serverapp = "agnosticfair_app.server:app"
clientapp = "agnosticfair_app.client:app"

# Empty texts and zeros are 'as the method has it'. out and checkpoint are on the SuperLink's machine.
[tool.flwr.app.config]
{config}
"""


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _connection(folder: Path, plan: Federation) -> str:
    """Flower's own configuration: how 'flwr' reaches the SuperLink."""
    return f"""[superlink]
default = "sites"

[superlink.sites]
address = {_toml(f"{plan.host}:{plan.port}")}
root-certificates = {_toml(folder / "tls" / "ca.crt")}
"""


def _script(comment: str, home: Path, command: Sequence[str]) -> str:
    quiet = "\n".join(f"export {name}={value}" for name, value in (QUIET | SWIFT).items())
    lines = " \\\n  ".join(shlex.quote(part) for part in command)
    return f"""#!/bin/sh
# {comment}
set -eu
{quiet}
export FLWR_HOME={shlex.quote(str(home))}
exec {lines}
"""


def _again(script: str) -> str:
    """The script with its command started anew when it ends badly: a SuperNode gives up at once where
    its key is not registered yet, and may be killed."""
    head, _, command = script.rpartition("exec ")
    return f"""{head}child=
trap 'trap - TERM INT; kill "$child" 2>/dev/null; wait "$child"; exit 0' TERM INT
while :; do
  {command.rstrip()} &
  child=$!
  wait "$child" && exit 0
  echo "The SuperNode ended badly, perhaps because its key is not registered yet; again in 3 s."
  sleep 3 &
  child=$!
  wait "$child"
done
"""


def _superlink(folder: Path, plan: Federation) -> str:
    at = folder / "tls"
    command = ["flower-superlink", "--host", plan.host, "--port", str(plan.port)]
    command += ["--ssl-ca-certfile", str(at / "ca.crt"), "--ssl-certfile", str(at / "server.crt")]
    command += ["--ssl-keyfile", str(at / "server.key"), "--enable-supernode-auth"]
    command += ["--disable-runtime-dependency-installation"]
    command += ["--database", str(folder / "state" / "superlink.db")]
    comment = "The SuperLink. Whoever reaches its port can submit runs: keep it private."
    return _script(comment, folder / "flower", command)


def _supernode(folder: Path, plan: Federation, key: str) -> str:
    roles = plan.roles
    config: dict[str, Any] = {"site": key, "file": str(Path(plan.sites[key]).resolve())}
    config |= {"target": roles.target, "sensitive-features": ",".join(roles.sensitive_features)}
    for name in ("numeric", "categorical", "drop"):
        if getattr(roles, name):
            config[name] = ",".join(getattr(roles, name))
    config["least-rows"] = plan.least_rows
    told = " ".join(f"{name}={_toml(value)}" for name, value in config.items())
    command = ["flower-supernode", "--superlink", f"{plan.host}:{plan.port}"]
    command += ["--root-certificates", str(folder / "tls" / "ca.crt")]
    command += ["--auth-supernode-private-key", str(folder / "keys" / key)]
    command += ["--port", str(plan.port + 1 + sorted(plan.sites).index(key)), "--node-config", told]
    comment = f"The SuperNode of site {key}: its file and key stay on its machine."
    return _again(_script(comment, folder / "state" / f"flower-{key}", command))


def key_pair() -> dict[str, str]:
    """A site's private key and, ending in .pub, its public one, as OpenSSH writes them."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return {"": private.decode(), ".pub": f"{public.decode()}\n"}


def tls_certificates(host: str) -> dict[str, str]:
    """A certificate authority for a test, and the server's TLS certificate by it; real ones can take
    their place. The authority's key is not kept: it can sign nothing more."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "agnosticfair test CA")])
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    begin = datetime.now(UTC) - timedelta(minutes=5)

    def made(subject: x509.Name, public: Any, is_ca: bool) -> x509.CertificateBuilder:
        identity = x509.SubjectKeyIdentifier.from_public_key(public)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
        return (
            x509.CertificateBuilder(ca_name, subject, public, x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + timedelta(days=DAYS))
            .add_extension(x509.BasicConstraints(is_ca, 0 if is_ca else None), critical=True)
            .add_extension(_usage(is_ca), critical=True)
            .add_extension(identity, critical=False)
            .add_extension(authority, critical=False)
        )

    names = x509.SubjectAlternativeName(_names(host))
    server = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
    ca = made(ca_name, ca_key.public_key(), True).sign(ca_key, hashes.SHA256())
    leaf = made(name, key.public_key(), False).add_extension(names, critical=False)
    signed = leaf.add_extension(server, critical=False).sign(ca_key, hashes.SHA256())
    pem = form.Encoding.PEM
    private = key.private_bytes(pem, form.PrivateFormat.PKCS8, form.NoEncryption())
    parts = {"ca.crt": ca.public_bytes(pem), "server.crt": signed.public_bytes(pem)}
    return {f"tls/{k}": v.decode() for k, v in {**parts, "server.key": private}.items()}


def _usage(is_ca: bool) -> Any:
    from cryptography import x509

    signs = {"key_cert_sign": is_ca, "crl_sign": is_ca, "digital_signature": not is_ca}
    rest = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(**signs, **dict.fromkeys((*rest, "encipher_only", "decipher_only"), False))


def _names(host: str) -> list[Any]:
    """The names the server answers to: the host, and this machine itself."""
    from cryptography import x509

    loop = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    try:
        own: Any = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        own = x509.DNSName(host)
    return loop if own in loop else [own, *loop]
