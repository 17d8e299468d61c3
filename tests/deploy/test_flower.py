"""The run as a Flower app: over a grid in this process, and over Flower's own SuperLink and SuperNodes."""

import subprocess
import time
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs agnosticfair[flower]")

from deployed import BIN, LONG, SITES, Deployed, free_ports, here, rows_by_site, start, wait
from flwr.app import Context, Error, Message, RecordDict

from agnosticfair.deploy import flower
from agnosticfair.deploy.flower import FlowerLine
from agnosticfair.model import load_model
from agnosticfair.protocol.engines.remote import RemoteEngine
from agnosticfair.protocol.engines.seam import HELLO, Failure

APP = Path(__file__).parents[2] / "examples" / "flower"


class FakeGrid:
    """Carries messages to the ClientApp's function, by the node's file; a hook can replace replies."""

    def __init__(self, files, hook=lambda message, reply: reply):
        self.nodes, self.hook, self.replies = dict(enumerate(files, start=7)), hook, {}

    def get_node_ids(self):
        return [*self.nodes]

    def push_messages(self, messages):
        identities = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = identity = f"m{len(self.replies)}"
            context = Context(1, node, {"site-file": str(self.nodes[node])}, RecordDict(), {})
            self.replies[identity] = self.hook(message, flower.reply(message, context))
            identities.append(identity)
        return identities

    def pull_messages(self, identities):
        return [self.replies.pop(i) for i in identities if self.replies.get(i)]

    def send_and_receive(self, messages, timeout):
        return self.pull_messages(self.push_messages(messages))


@pytest.fixture(autouse=True)
def _identity(monkeypatch):
    """Flower's messages take the run and node from a global that its processes set."""
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture(scope="module")
def bank(adult, tmp_path_factory):
    bank = Deployed(tmp_path_factory.mktemp("flower") / "bank", rows_by_site(adult))
    bank.prepare()
    yield bank
    bank.close()


def site_files(bank):
    return [bank.folder / "sites" / f"{name}.toml" for name in SITES]


def test_a_node_is_known_by_the_site_that_it_names(bank):
    line = FlowerLine(FakeGrid(site_files(bank)))
    assert line.present() == dict(zip(SITES, (7, 8), strict=True))
    answers = RemoteEngine(line, SITES).exchange(HELLO, None, SITES, 30)
    assert [answers[name]["site"] for name in SITES] == [*SITES]
    assert line.collect(0.0) == []


def test_flower_s_own_error_is_told_without_its_reason(bank):
    def break_off(message, reply):
        step = message.content["request"]["step"]
        secret = Error(7, "Traceback: age = 44")
        return reply if step == HELLO else Message(secret, reply_to=message)

    engine = RemoteEngine(FlowerLine(FakeGrid(site_files(bank), break_off)), SITES)
    engine.exchange(HELLO, None, SITES, 30)
    answers = engine.exchange("statistics", None, SITES, 30)
    assert all(isinstance(answer, Failure) for answer in answers.values())
    assert "44" not in "".join(answer.reason for answer in answers.values())


@pytest.mark.slow
def test_stock_flower_gives_the_bits_of_pooled_rows(bank, tmp_path, monkeypatch):
    port = free_ports(3)
    home = tmp_path / "flower"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    quiet = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0"}
    for name, value in {**quiet, "FLWR_DISABLE_UPDATE_CHECK": "1"}.items():
        monkeypatch.setenv(name, value)
    at = ("--insecure", "--host", "127.0.0.1", "--port")
    link = ("flower-superlink", *at, port, "--disable-runtime-dependency-installation")
    bank.processes["link"] = start(link, bank.folder, tmp_path / "link.log")
    log = tmp_path / "link.log"
    wait(lambda: "running on" in log.read_text(), "the SuperLink")
    for k, (name, file) in enumerate(zip(SITES, site_files(bank), strict=True), start=1):
        node = ("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}")
        node += ("--port", port + k, "--node-config", f'site-file="{file}"')
        bank.processes[name] = start(node, bank.folder, tmp_path / f"{name}.log")
    run = ("flwr", "run", APP, "here", "--run-config", f'folder="{bank.folder}"')
    time.sleep(2)
    subprocess.run([f"{BIN}/{run[0]}", *map(str, run[1:])], check=True, timeout=LONG)
    model = bank.folder / "results" / "model.safetensors"
    wait(model.exists, "the model")
    assert load_model(model).digest == here(bank.files.values(), max_rounds=3).model.digest
