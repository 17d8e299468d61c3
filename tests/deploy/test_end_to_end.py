"""A real SuperLink and real sites on loopback, with TLS and authentication, attacked and killed for real.

Every process is started here and stopped by its own id. All tests run in one worker (see conftest): they
share a set-up, and one federation at a time is enough for two cores.
"""

import json
import re
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from agnosticfair.deploy.bundle import app_files
from agnosticfair.deploy.fleet import Fleet
from deployed import (
    LONG,
    SITES,
    Deployed,
    deployed,
    free,
    free_ports,
    here,
    listens,
    program,
    rows_by_site,
    site_rows,
    start,
    started_for,
    wait,
    write_files,
)
from flwr.proto.node_pb2 import Node
from pyarrow import csv

from agnosticfair.auditing.fits import as_content, certificates
from agnosticfair.deploy import admin, control, runner
from agnosticfair.deploy.node import cause, load_key, read_site
from agnosticfair.deploy.secrets import tls_files
from agnosticfair.model import load_model
from agnosticfair.threads import one_thread

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(adult):
    return rows_by_site(adult)


@pytest.fixture(scope="module")
def standing(rows, tmp_path_factory):
    """One set-up for all tests of this module, while it is sound."""
    kept = []
    yield kept, lambda: Deployed(tmp_path_factory.mktemp("standing") / "bank", rows)
    for one in kept:
        one.close()


@pytest.fixture
def bank(standing):
    """A SuperLink and two sites; new ones if a test before did not come to its end."""
    kept, make = standing
    if kept and not kept[0].sound():
        kept.pop().close()
    if not kept:
        kept.append(make())
        kept[0].consent()
        kept[0].start("superlink")
        control.register(kept[0].settings)
        kept[0].start(*SITES)
    return kept[0]


def test_the_documented_three_commands_give_the_in_process_model_exactly(rows, tmp_path):
    """The block of docs/deploy.md, in a shell, in a folder with the two files it names."""
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    block = page.partition("## Three commands")[2].split("```")[1].partition("\n")[2]
    assert len(block.splitlines()) == 3
    if not free(8000, 3):  # somebody else's: the one thing that may differ
        block = block.replace("deploy init", f"deploy init --port {free_ports(3)}", 1)
    files = write_files(rows, tmp_path)
    script, log = f"trap 'kill $(jobs -p)' EXIT\nset -e\n{block}", tmp_path / "log"
    shell = start(["bash", "-c", script], tmp_path, log, cwd=tmp_path)
    try:
        assert shell.wait(timeout=LONG) == 0, log.read_text()
    finally:
        shell.terminate()
        shell.wait(timeout=60)
        wait(lambda: not started_for(tmp_path), "the servers to end")
    text, results = log.read_text(), tmp_path / "bank" / "results"
    # the default, which shows no row; without a schema it has no bins of features
    expected = here(files.values(), "rule", learner="linear")
    assert load_model(results / "model.safetensors").digest == expected.model.digest
    history = json.loads((results / "history.json").read_text())
    assert history["rounds"] == expected.rounds
    assert history["events"] == []
    assert max(t["sent"] + t["received"] for t in history["traffic"]) < 1_000_000
    assert "bytes per site" in text
    certificate = json.loads((results / "certificate.json").read_text())
    assert 0 <= certificate["worst_difference"] <= 1
    secret = (tmp_path / "bank" / "keys" / "north").read_text().splitlines()[1]
    assert secret not in text


def test_sites_killed_at_their_work_do_not_change_the_model(bank):
    """Under 'wait': a site that is killed and started again, and one that is told to end and comes back."""
    bank.prepare()
    run = bank.run()
    wait(lambda: bank.round() >= 1, "the first round", pause=0.02)
    bank.stop("north", signal.SIGKILL)
    bank.stop("south")
    waiting = wait(lambda: bank.result("progress.json")["waiting"], "the missing site to be told")
    assert waiting["north"].startswith("it has been silent since")
    bank.start(*SITES)
    told = bank.ends(run)
    assert "waiting for site 'north': it has been silent since" in " ".join(told.split())
    assert bank.weights() == here(bank.files.values(), max_rounds=3).model.w.tobytes()


def test_a_network_and_its_certificate_are_the_in_process_ones_exactly(bank, rows):
    pytest.importorskip("torch")
    bank.prepare(method='"agnosticfair"', centres='"kmeans"', network='"mlp"', certify="true")
    cut = {key: table.slice(0, 2000) for key, table in rows.items()}
    files = write_files(cut, bank.folder.parent).values()
    told = bank.ends(bank.run())
    expected = here(files, "agnosticfair", centres="kmeans", network="mlp", max_rounds=3)
    assert bank.weights() == expected.model.w.tobytes()
    history = bank.result("history.json")
    assert history["history"] == list(expected.history)
    trained = [t for t in history["traffic"] if t["step"] == "train"]
    assert len(trained) == len(SITES) * 3
    assert f"{trained[-1]['sent'] + trained[-1]['received']}" in told.replace(",", "")
    tables = site_rows(files)
    with one_thread():
        certificate = as_content(*certificates(expected, tables))
    found = bank.result("certificate.json")
    assert {key: found[key] for key in certificate} == json.loads(json.dumps(certificate))


def test_a_superlink_killed_in_mid_run_resumes_from_the_checkpoint(bank):
    bank.prepare(max_rounds=4)
    run = bank.run()
    wait(lambda: bank.round() >= 2, "the second round", pause=0.05)
    bank.stop("superlink", signal.SIGKILL)
    run.terminate()
    run.wait(timeout=60)
    assert (bank.folder / "state" / "checkpoint" / "checkpoint.safetensors").is_file()
    bank.start("superlink")
    bank.ends(bank.run())
    assert bank.weights() == here(bank.files.values(), max_rounds=4).model.w.tobytes()
    assert any(event["event"] == "resumed" for event in bank.result("history.json")["events"])


def test_a_site_whose_schema_disagrees_is_named_before_any_training(bank, rows):
    bank.prepare()
    csv.write_csv(rows["south"].drop_columns("age"), bank.files["south"])
    told = " ".join(bank.ends(bank.run(), code=2).split())
    assert "ended as finished:failed: column 'age' is missing at client 'south'" in told
    assert bank.round() == 0
    assert not [*(bank.folder / "results").glob("model*")]


def test_a_site_that_declines_is_dropped_and_the_rest_has_its_own_certificate(rows, tmp_path):
    with deployed(tmp_path, rows, "--plain", "--on-failure", "drop", "--min-sites", 1) as bank:
        bank.prepare(**{"on-failure": '"drop"', "certify": "true"})
        csv.write_csv(rows["south"].slice(0, 12), bank.files["south"])  # too few for its min-rows
        told = " ".join(bank.ends(bank.run()).split())
        assert "fewer than 10 rows and does not answer" in told
        assert "restated" in told
        alone = here([bank.files["north"]], max_rounds=3)
        assert bank.weights() == alone.model.w.tobytes()
        assert bank.result("certificate.json")["n"] == rows["north"].num_rows


def test_a_total_of_one_site_is_refused(bank, rows):
    bank.prepare(**{"on-failure": '"drop"', "min-sites": 1})
    csv.write_csv(rows["south"].slice(0, 12), bank.files["south"])
    told = " ".join(bank.ends(bank.run(), code=2).split())
    assert "a total of 1 site is not shown where min_sites is 2" in told
    assert not [*(bank.folder / "results").glob("model*")]


ROGUE = {
    "pyproject.toml": app_files()["pyproject.toml"].replace("agnosticfair_app", "rogue"),
    "rogue/__init__.py": "",
    "rogue/client.py": """
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
app = ClientApp()

@app.query()
def steal(message, context):
    row = Path(context.node_config["file"]).read_text().splitlines()[1]
    return Message(RecordDict({"answer": ConfigRecord({"row": row})}), reply_to=message)
""",
    "rogue/server.py": """
import json, time
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
app = ServerApp()

@app.main()
def main(grid, context):
    asked = RecordDict({"request": ConfigRecord({"step": "summary statistics", "content": b""})})
    nodes = [*grid.get_node_ids()]
    sent = [Message(asked, dst_node_id=n, message_type="query", ttl=60) for n in nodes]
    replies = grid.send_and_receive(sent, timeout=60)
    told = [dict(r.content.config_records["answer"]) for r in replies]
    Path(context.run_config["settings"]).write_text(json.dumps([{k: str(v) for k, v in t.items()} for t in told]))
""",
}
"""The attack: an app of somebody else's that returns every site's first row."""


def rogue_run(out):
    import hashlib
    import warnings

    from flwr.cli.build import build_fab_from_files
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import StartRunRequest
    from flwr.supercore.fab import Fab

    with warnings.catch_warnings(action="ignore"):
        content = build_fab_from_files({k: v.encode() for k, v in ROGUE.items()})[0]
    fab = fab_to_proto(Fab(hashlib.sha256(content).hexdigest(), content, {}))
    config = user_config_to_proto({"settings": str(out)})
    return StartRunRequest(fab=fab, override_config=config)


def test_no_app_but_ours_runs_at_a_site(bank, tmp_path):
    """Submitted at the sites' door: not found. On the control side without the token: refused. By the
    coordinator itself: no site answers it, and none runs its code."""
    import httpx
    from flwr.supercore.control.control_http_client import ControlHttpClient

    request = rogue_run(tmp_path / "stolen.json")
    authority = (bank.folder / "tls" / "ca.crt").read_bytes()
    for port, status in ((bank.port, 404), (bank.port + 1, 401)):
        with ControlHttpClient.from_server_address(
            f"127.0.0.1:{port}", False, authority, []
        ) as client:
            with pytest.raises(httpx.HTTPStatusError) as refused:
                client.StartRun(request)
            assert refused.value.response.status_code == status
            body = request.SerializeToString()
            for path in ("/v1/fleet/../control", "/v1/fleet/%2e%2e/control", "//v1/control"):
                url = f"https://127.0.0.1:{port}{path}/start-run"
                head = {"content-type": "application/x-protobuf"}
                said = client._client.post(url, content=body, headers=head)
                assert said.status_code in (401, 404, 405), path
    assert control.active_runs(bank.settings) == []
    with control.control(bank.settings) as client:
        run = client.StartRun(request).run_id
    wait(lambda: (tmp_path / "stolen.json").exists(), "the rogue app's end")
    wait(lambda: control.active_runs(bank.settings) == [], "the rogue run's end")
    answers = json.loads((tmp_path / "stolen.json").read_text())
    assert len(answers) == len(SITES)
    assert all("row" not in told and "is not the registered" in told["failure"] for told in answers)
    assert [e["event"] for e in bank.trail("north") if e.get("run") == str(run)] == ["refused"]


def test_a_site_opens_no_port(bank):
    for key in SITES:
        found = [pid for pid in started_for(bank.folder) if f"{key}.toml" in program(pid)]
        assert found
        assert not any(listens(pid) for pid in found)


def test_who_has_no_registered_key_or_repeats_a_request_is_refused(bank, tmp_path):
    joined = read_site(bank.folder / "sites" / "north.toml")
    stranger = load_key(tmp_path / "keys" / "stranger")
    other = tls_files("127.0.0.1")["tls/ca.crt"]
    own = load_key(joined.key)
    for key, authority, said in (
        (stranger, joined.tls_authority, "its key is not registered"),
        (own, other, "is of another authority"),
    ):
        with Fleet.to(joined.address, authority, key) as fleet:
            with pytest.raises(Exception) as refused:
                fleet.activate()
            assert said in cause(refused.value)
    sent = []

    class Listening:
        def intercept(self, context, call_next):
            sent.append(context.request)
            return call_next(context)

    with Fleet.to(joined.address, joined.tls_authority, own) as fleet:
        fleet.client._interceptors += (Listening(),)
        nodes = {site.name: site.node for site in control.known_sites(bank.settings)}
        fleet.node = Node(node_id=nodes["north"])
        fleet.beat()
        again = fleet.client._client.send(sent[0])
    assert again.status_code == 409
    assert "used before" in again.text


def test_an_old_key_is_refused_from_its_rotation_on_and_a_check_finds_all_in_order(bank):
    joined = read_site(bank.folder / "sites" / "north.toml")
    old = load_key(joined.key)
    bank.prepare()
    bank.stop("north")
    admin.rotate_key(bank.folder, "north")
    with Fleet.to(joined.address, joined.tls_authority, old) as fleet:
        with pytest.raises(Exception) as refused:
            fleet.activate()
        assert "its key is not registered (any more)" in cause(refused.value)
    bank.start("north")
    before = sorted((bank.folder / "results").rglob("*"))
    found = runner.check_federation(bank.folder, timeout=LONG)
    assert [about["rows"] for about in found.values()] == [
        None,
        None,
    ]  # a site's rows are not counted
    assert [about["keys"][0] for about in found.values()] == [2, 2]  # the rotation's list
    assert all(about["app"] == joined.app for about in found.values())
    assert sorted((bank.folder / "results").rglob("*")) == before
    assert set(admin.status(bank.folder)["sites"].values()) == {"connected"}


def test_a_clock_that_is_an_hour_off_is_named(bank, monkeypatch):
    import datetime

    from flwr.supernode import node_auth_http_interceptor as signing

    joined = read_site(bank.folder / "sites" / "north.toml")
    apart = datetime.timedelta(hours=1)
    monkeypatch.setattr(signing, "now", lambda: datetime.datetime.now(datetime.UTC) - apart)
    monkeypatch.setattr("agnosticfair.deploy.node.time.time", lambda real=time.time: real() - 3600)
    with Fleet.to(joined.address, joined.tls_authority, load_key(joined.key)) as fleet:
        with pytest.raises(Exception) as refused:
            fleet.activate()
        assert re.match(r"its clock is 3[56]\d\d s behind the coordinator's", cause(refused.value))


def test_the_coordinator_has_the_same_model_and_no_sum(bank):
    bank.prepare(certify="true")
    bank.ends(bank.run())
    assert bank.weights() == here(bank.files.values(), max_rounds=3).model.w.tobytes()
    steps = {entry["step"] for entry in bank.result("history.json")["traffic"]}
    assert {"keys", "agree", "outline", "counts", "sums", "subgroup_decisions"} <= steps
    assert "statistics" not in steps
    assert bank.result("history.json")["certificate"]
    for name in SITES:  # a restart finds its session, for it is kept beside the key
        assert (bank.folder / "keys" / f"{name}.sessions").stat().st_mode & 0o077 == 0
        assert (bank.folder / "keys" / f"{name}.mask").stat().st_mode & 0o077 == 0
