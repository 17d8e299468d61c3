"""The services in packaging/ start the documented commands, and give away nothing more."""

import configparser
from pathlib import Path

import pytest
import yaml

from agnosticfair.commands.deploy import deploy

AT = Path(__file__).parents[2] / "packaging"
COMMANDS = {command.name or command.callback.__name__ for command in deploy.registered_commands}
UNITS = ("agnosticfair-run@.service", "agnosticfair-site@.service")


def service(name):
    (found,) = yaml.safe_load((AT / f"{name}.compose.yaml").read_text())["services"].values()
    return found


def unit(name):
    parsed = configparser.ConfigParser(strict=False, interpolation=None)
    parsed.optionxform = str
    parsed.read(AT / name)
    return parsed["Service"]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (service("coordinator")["command"], ["deploy", "run"]),
        (service("site")["command"], ["deploy", "site"]),
        (unit(UNITS[0])["ExecStart"].split()[1:], ["deploy", "run"]),
        (unit(UNITS[1])["ExecStart"].split()[1:], ["deploy", "site"]),
    ],
    ids=["coordinator", "site", "run-unit", "site-unit"],
)
def test_services_start_the_documented_commands(command, words):
    assert command[:2] == words
    assert words[1] in COMMANDS


def test_a_site_publishes_no_port_and_reads_one_file():
    site = service("site")
    assert "ports" not in site
    assert [v for v in site["volumes"] if not v.endswith(":ro")] == ["./state:/site/state"]
    assert unit(UNITS[1])["SocketBindDeny"] == "any"


@pytest.mark.parametrize("name", ["coordinator", "site"])
def test_a_container_has_a_read_only_root_limits_and_a_health_check(name):
    found = service(name)
    assert (found["read_only"], found["cap_drop"]) == (True, ["ALL"])
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "pids_limit", "healthcheck"} <= found.keys()


def test_the_coordinator_publishes_the_sites_port_only():
    assert service("coordinator")["ports"] == ["8000:8000"]
    assert "mode tcp" in (AT / "haproxy.cfg").read_text()  # TLS ends inside, where keys are checked


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_has_a_user_and_a_state_directory_of_its_own_and_is_shut_off(name):
    found = unit(name)
    assert found["DynamicUser"] == "true"
    assert found["User"] == found["StateDirectory"]
    assert found["User"].endswith("-%i")
    assert int(found["LimitNOFILE"]) >= 1024
    assert found["CapabilityBoundingSet"] == ""
    for switch in ("NoNewPrivileges", "PrivateDevices", "ProtectHome", "RestrictNamespaces"):
        assert found[switch] == "true"
    assert found["ProtectSystem"] == "strict"


def test_the_image_has_a_named_base_no_source_and_takes_no_key():
    text = (AT / "Dockerfile").read_text()
    bases = [line for line in text.splitlines() if line.startswith("FROM")]
    assert bases == ["FROM ${BASE} AS build", "FROM ${BASE}"]  # by digest, which is asked for
    assert "sha256:" in text
    assert "COPY . " not in text.rpartition("FROM")[2]
    ignored = (AT.parent / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert {line for line in ignored if line.startswith("!")} == {
        f"!{name}" for name in ("src", "pyproject.toml", "README.md", "LICENSE", "constraints.txt")
    }
