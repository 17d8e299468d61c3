"""The services in packaging/ start the commands that the scripts start, and give away nothing more."""

import configparser
import re
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

import yaml

from agnosticfair.commands.deploy import deploy
from agnosticfair.deploy.folder import QUIET, SWIFT, _script

AT = Path(__file__).parents[2] / "packaging"
COMMANDS = {command.name or command.callback.__name__ for command in deploy.registered_commands}


def service(name):
    (found,) = yaml.safe_load((AT / f"{name}.compose.yaml").read_text())["services"].values()
    return found


def unit(name):
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str
    parsed.read(AT / name)
    return parsed["Service"]


@pytest.mark.parametrize(
    ("command", "script"),
    [
        (["agnosticfair", *service("coordinator")["command"]], "deploy superlink ."),
        (["agnosticfair", *service("site")["command"]], "deploy site sites/north.toml"),
        (unit("agnosticfair-superlink.service")["ExecStart"].split(), "deploy superlink ."),
        (unit("agnosticfair-site@.service")["ExecStart"].split(), "deploy site sites/north.toml"),
    ],
    ids=["coordinator", "site", "superlink-unit", "site-unit"],
)
def test_services_start_what_the_scripts_start(command, script):
    program, *rest = command
    assert Path(program).name == "agnosticfair"
    assert f"exec agnosticfair {script}" in _script("", script)
    assert rest[:2] == script.split()[:2]
    assert rest[1] in COMMANDS
    assert len(rest) == 3


def test_a_site_publishes_no_port_and_reads_one_file():
    site = service("site")
    assert "ports" not in site
    assert site["read_only"] is True
    assert [v for v in site["volumes"] if not v.endswith(":ro")] == ["./state:/site/state"]
    assert unit("agnosticfair-site@.service")["SocketBindDeny"] == "any"


def test_the_coordinator_publishes_the_sites_port_only():
    assert service("coordinator")["ports"] == ["8000:8000"]
    locations = re.findall(r"location (\S+) \{", (AT / "nginx.conf").read_text())
    assert locations == ["/v1/fleet/", "/"]
    assert "return 404" in (AT / "nginx.conf").read_text().partition("location / {")[2]


def test_flower_calls_nobody_from_a_service():
    texts = [(AT / name).read_text() for name in ("Dockerfile", "agnosticfair-superlink.service")]
    for name, value in (QUIET | SWIFT).items():
        assert all(f"{name}={value}" in text for text in texts)
