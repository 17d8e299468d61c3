"""The engine of remote sites and the coordinator's run, over a line in this process."""

import csv
import json
import random
import shutil
import sys
import threading
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from helpers import dealt, small_table

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from agnosticfair.data.axes import edges_at_quantiles, histogram, round_cuts
from agnosticfair.data.files import Roles, read_clients
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.deploy import coordinator, node
from agnosticfair.deploy import site as site_process
from agnosticfair.deploy.folder import RUN
from agnosticfair.deploy.node import Joined
from agnosticfair.deploy.runner import publish
from agnosticfair.errors import FederationError, ModelError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.methods import METHODS, Network, method
from agnosticfair.model import load_model
from agnosticfair.privacy.ledger import ledger_folder
from agnosticfair.privacy.messages import dry_run
from agnosticfair.protocol.engines.remote import RemoteEngine
from agnosticfair.protocol.faults import Policy
from agnosticfair.protocol.messages import FORMAT
from agnosticfair.report.page import page_data as data
from agnosticfair.report.studies import read_run
from agnosticfair.server import plan as server

ROWS = small_table(300, 3)
read_of = lru_cache(maxsize=64)(site_process._rows.__wrapped__)
ROLES = Roles("y", ("sex",))


def write_csv(path, table):
    columns = {**table.numeric, "job": table.categorical["job"].values()}
    columns |= {"y": table.target.values(), "sex": table.sensitive_features["sex"].values()}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


@pytest.fixture(autouse=True)
def many_files(monkeypatch):
    """A process is one site and remembers one file; this one is all sites."""
    monkeypatch.setattr(site_process, "_rows", read_of)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sites")
    paths = {key: folder / f"{key}.csv" for key in ("east", "north", "south")}
    for path, table in zip(paths.values(), dealt(ROWS, 3).values(), strict=True):
        write_csv(path, table)
    return paths


def node_config(key, path, **more):
    return {"site": key, "file": str(path), "target": "y", "sensitive-features": "sex", **more}


class FakeLine:
    """Carries requests to the sites' own function; a hook can lose or change answers."""

    def __init__(self, configs):
        self.sites = {config["site"]: config for config in configs}
        self.started = dict.fromkeys(self.sites, 1)
        self.replies, self.log, self.ids = [], [], {}
        self.hook = lambda step, site, answer: answer

    def present(self):
        return self.started

    def post(self, site, request):
        config, step = self.sites[site], request["step"]
        self.log.append((step, site))
        self.ids[site] = request["id"]
        pinned = Path(config["file"]).with_suffix(".log")
        joined = Joined("", 0, "", config, pinned, pinned)
        answer = self.hook(step, site, node.answer(joined, request, request["content"]))
        if answer is not None:
            self.replies.append((site, {"id": request["id"], **answer}))

    def collect(self, seconds):
        if not self.replies:
            time.sleep(0.01)
        random.shuffle(self.replies)  # the order in which answers come means nothing
        replies, self.replies = self.replies, []
        return replies


def engine_over(files, sites=None, **more):
    line = FakeLine([node_config(k, p, **more.get(k, {})) for k, p in files.items()])
    return RemoteEngine(line, tuple(sites or files)), line


@pytest.mark.slow
def test_a_network_is_the_in_process_one_bit_for_bit(files):
    pytest.importorskip("torch")
    chosen_method = method(
        "agnosticfair", network=Network("mlp", (4,), steps=3), kernels=20, max_rounds=4
    )
    engine, line = engine_over(files)
    result = fit(engine, chosen_method)
    here = fit(read_clients(files.values(), ROLES), chosen_method)
    assert result.model.digest == here.model.digest
    assert [step for step, _ in line.log].count("train") == 3 * 4


def test_a_site_knows_its_own_networks_by_a_module_it_names(files, tmp_path, monkeypatch):
    pytest.importorskip("torch")
    made = replace(method("fl", network="their_network", max_rounds=2), name="fl")
    code = (
        "import torch\nfrom agnosticfair.networks import register\n"
        "register('their_network', lambda d: torch.nn.Linear(d, 1))\n"
    )
    (tmp_path / "their_networks.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    engine, _ = engine_over(files, **{k: {"imports": "their_networks"} for k in files})
    fit(engine, "fl", deadline=5)  # a first request, with which the sites import
    assert fit(engine, made).rounds == 2


def site_without(monkeypatch, key, change):
    """One site answers as if it were installed otherwise; ``change`` gets a patch that lasts so long."""
    inner = node.respond

    def respond(config, step, content):
        with monkeypatch.context() as patch:
            if config["site"] == key:
                change(patch)
            return inner(config, step, content)

    monkeypatch.setattr(node, "respond", respond)


def no_torch(patch):
    patch.setitem(sys.modules, "torch", None)
    for name in ("networks", "client.networks"):
        patch.delitem(sys.modules, f"agnosticfair.{name}", raising=False)


def no_mlp(patch):
    from agnosticfair import networks

    patch.setattr(networks, "FACTORIES", {"linear": networks.FACTORIES["linear"]})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (no_torch, r"networks need PyTorch.*: pip install 'agnosticfair\[torch\]'"),
        (no_mlp, "no network 'mlp' here; there are: linear"),
    ],
)
def test_a_site_that_cannot_train_the_network_is_named_before_any_training(
    files, monkeypatch, change, said
):
    pytest.importorskip("torch")
    site_without(monkeypatch, "south", change)
    engine, line = engine_over(files)
    with pytest.raises(FederationError, match=f"'moments'.*'south'.*{said}"):
        fit(engine, method("fl", network="mlp", max_rounds=2))
    assert "train" not in {step for step, _ in line.log}


@pytest.mark.parametrize("name", ["agnosticfair", "agnosticfair-printed", "afl"])
def test_the_model_is_the_in_process_one_bit_for_bit(files, name):
    engine, line = engine_over(files)
    result = fit(engine, name)
    here = fit(read_clients(files.values(), ROLES), name)
    assert result.model.digest == here.model.digest
    assert result.history == here.history
    steps = [step for step, _ in line.log]
    assert steps.count("statistics") == 3
    rounds = sum(steps.count(name) for name in ("sums", "trials", "average"))
    assert rounds == 3 * result.rounds
    assert {t["site"] for t in engine.traffic} == {*files}
    assert all(t["received"] > 0 for t in engine.traffic)


def test_a_node_that_is_not_asked_for_takes_no_part(files):
    engine, line = engine_over(files, sites=("north", "south"))
    result = fit(engine, "fl")
    assert result.model.clients == 2
    assert ("statistics", "east") not in line.log


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("fl", {}),
        ("agnosticfair", {}),
        ("rule", {"learner": "linear"}),
        ("rule", {"learner": "trees"}),
        ("fl", {"network": "mlp"}),
    ],
    ids=["linear", "kernels", "rule", "trees", "network"],
)
def test_one_model_is_one_file(files, name, more):
    """A local fit and a run over sites by the same schema write the same bytes."""
    if "network" in more:
        pytest.importorskip("torch")
    chosen = method(name, max_rounds=3, **more) if name != "rule" else method(name, **more)
    schema = with_bins(schema_of(summary_statistics(ROWS, "all"), "y"))
    here = fit(read_clients(files.values(), ROLES), chosen, schema=schema)
    few = {key: {"min-rows": 1} for key in files}
    there = fit(engine_over(files, **few)[0], chosen, schema=schema)
    assert there.model.to_bytes() == here.model.to_bytes()
    again = fit(read_clients(files.values(), ROLES), chosen, schema=schema)
    assert again.model.to_bytes() == here.model.to_bytes()


def test_a_site_that_is_away_is_named_after_the_deadline(files):
    engine, _ = engine_over({"north": files["north"]}, sites=("north", "south"))
    with pytest.raises(FederationError, match=r"'south'.*connected"):
        fit(engine, "fl", deadline=0.2)


def lost_once(line, step, restart):
    """The south's answer to that step is lost once; it may come back as a new process."""
    lost = []

    def hook(one_request, site, answer):
        if one_request == step and site == "south" and not lost:
            lost.append(answer)
            if restart:
                line.started = {**line.started, site: 2}
            return None
        return answer

    return hook


@pytest.mark.parametrize("step", ["statistics", "centres", "sums"])
def test_a_site_that_was_started_anew_is_asked_again_at_once(files, step):
    engine, line = engine_over(files)
    line.hook = lost_once(line, step, restart=True)
    result = fit(engine, "agnosticfair", deadline=30.0)
    here = fit(read_clients(files.values(), ROLES), "agnosticfair")
    assert result.model.digest == here.model.digest
    assert result.events == ()


def late_reply(line, answer):
    """An answer as it comes in: to the last request that its site was sent."""
    return "south", {"id": line.ids["south"], **answer}


def test_a_late_answer_still_counts_by_policy(files):
    engine, line = engine_over(files)
    late = []

    def hook(step, site, answer):
        if step == "sums" and site == "south" and not late:
            late.append(answer)
            threading.Timer(0.6, lambda: line.replies.append(late_reply(line, answer))).start()
            return None
        return answer

    line.hook = hook
    result = fit(engine, "fl", deadline=0.3, on_failure=Policy(retries=5))
    assert result.events[0]["client"] == "south"
    assert "no answer in time" in result.events[0]["reason"]
    here = fit(read_clients(files.values(), ROLES), "fl")
    assert result.model.digest == here.model.digest


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"content": b"junk"}, "'south' is damaged"),
        ({"site": "north"}, "says that it is site 'north'"),
        ({"content": b""}, "no content"),
        ({"content": None}, "no content"),
        ({"site": None}, "says that it is site 'None'"),
    ],
    ids=["junk", "imposter", "empty", "none", "bare"],
)
def test_an_answer_that_is_none_ends_the_fit_by_name_at_once(files, change, said):
    """Under 'wait' it was asked for again, without a word, for an hour."""
    engine, line = engine_over(files)
    line.hook = lambda step, site, answer: (
        answer | change if (step, site) == ("sums", "south") else answer
    )
    with pytest.raises(FederationError, match=f"'sums'.*'south'.*{said}"):
        fit(engine, "fl", on_failure="wait")
    assert line.log.count(("sums", "south")) == 1


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"allow": "statistics,sums"},
            "'south'.*'clusters'",
        ),
        ({"min-rows": 1000}, "'south'.*'sex'.*1000 rows"),
        ({"target": "label"}, "'south'.*'label'"),
        ({"file": "/none.csv"}, "'south'.*'/'"),
        ({"drop": "job"}, "'job'.*'south'"),
        (
            {"categorical": "age"},
            "'age'.*'east'.*'south'",
        ),
        ({"target": "job", "drop": "y"}, "'south'.*'a'"),
    ],
)
def test_a_site_refuses_and_is_named_before_any_training(files, more, said):
    from agnosticfair.errors import AgnosticFairError

    engine, line = engine_over(files, south=more)
    with pytest.raises(AgnosticFairError, match=said):
        fit(engine, "agnosticfair")
    assert "sums" not in {step for step, _ in line.log}


def test_an_error_of_another_kind_tells_its_type_only(files, monkeypatch):
    def broken(*args):
        raise RuntimeError("row 17 has income 12345")

    monkeypatch.setattr(node, "respond", broken)
    engine, _ = engine_over(files)
    with pytest.raises(FederationError, match="RuntimeError at") as told:
        fit(engine, "fl")
    assert "12345" not in str(told.value)


def run_over(line, config):
    """A run as 'deploy run' has it, without its door."""
    engine, out = RemoteEngine(line, tuple(config["sites"].split(","))), Path(config["out"])
    publish(out, "7", coordinator.results(engine, config, "7"))
    return engine


def run_server(files, out, **changes):
    config = {
        **RUN,
        "method": "fairfl",
        "sites": ",".join(files),
        "deadline": 20.0,
        "out": str(out),
    }
    config |= {"on-failure": "stop", "min-sites": 1, "sensitive-features": "sex"}
    config |= {"checkpoint": str(out / "state")}
    config |= {name.replace("_", "-"): value for name, value in changes.items()}
    shown = {"shows-rows": changes.get("centres") == "rows", "min-rows": 1}  # few, in fifths
    _, line = engine_over(files, **dict.fromkeys(files, shown))
    return line, lambda: run_over(line, config)


def test_a_run_leaves_model_history_and_certificate(files, tmp_path):
    _, run = run_server(files, tmp_path)
    run()
    here = fit(read_clients(files.values(), ROLES), "fairfl")
    assert load_model(tmp_path / "model.safetensors").digest == here.model.digest
    history = json.loads((tmp_path / "history.json").read_text())
    assert history["run"] == "7"
    assert history["rounds"] == here.rounds
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    assert 0 <= certificate["worst_difference"] <= 1
    (study,) = data([read_run(tmp_path)])["studies"]
    assert study["methods"][0]["certified"] is None  # measured on the rows of the fit
    assert study["methods"][0]["sentence"] == certificate["sentence"]


@pytest.mark.parametrize("network", ["", "mlp"])
def test_a_run_goes_on_from_its_checkpoint(files, tmp_path, network):
    if network:
        pytest.importorskip("torch")
    wanted = {"network": network, "max-rounds": 5}
    line, run = run_server(files, tmp_path, deadline=0.3, **wanted)
    rounds = []

    def hook(step, site, answer):
        rounds.append(step)
        times = rounds.count("train" if network else "sums")
        return None if times > 9 else answer  # dies in the fourth round

    line.hook = hook
    with pytest.raises(FederationError):
        run()
    _, run = run_server(files, tmp_path, **wanted)
    run()
    history = json.loads((tmp_path / "history.json").read_text())
    assert [e for e in history["events"] if e["event"] == "resumed"] == [
        {"event": "resumed", "round": 3}
    ]
    chosen_method = method("fairfl", network=network or None, max_rounds=5)
    here = fit(read_clients(files.values(), ROLES), chosen_method)
    assert load_model(tmp_path / "model.safetensors").digest == here.model.digest


def test_a_site_that_refuses_the_certificate_still_gives_a_model(files, tmp_path):
    config = {
        **RUN,
        "method": "fl",
        "sites": ",".join(files),
        "deadline": 20.0,
        "out": str(tmp_path),
    }
    _, line = engine_over(files, south={"allow": "statistics,sums"})
    run_over(line, config)
    assert (tmp_path / "model.safetensors").is_file()
    content = json.loads((tmp_path / "certificate.json").read_text())
    assert "does not answer step 'histograms'" in content["sentence"]


@pytest.mark.parametrize(
    ("name", "network", "steps"),
    [
        ("agnosticfair", None, ["sums"]),
        ("agnosticfair", "mlp", ["moments", "train"]),
        ("rule", None, ["subgroup_masses"]),
    ],
)
def test_a_run_over_sites_has_the_bytes_that_were_explained(files, tmp_path, name, network, steps):
    if network:
        pytest.importorskip("torch")
    chosen_method = method(name, network=network, max_rounds=2)
    _, run = run_server(
        files, tmp_path, method=chosen_method.name, network=network or "", max_rounds=2
    )
    run()
    told = {m.step: m for m in dry_run(chosen_method, ROWS, len(files)) if m.sender == "site"}
    traffic = json.loads((tmp_path / "history.json").read_text())["traffic"]
    for step in ("histograms", *steps):
        assert {t["received"] for t in traffic if t["step"] == step} == {told[step].size}
    assert {t["step"] for t in traffic} - {"hello"} == {*told}


@pytest.mark.parametrize(
    ("name", "more", "rows"),
    [("fairfl", {}, 0), ("agnosticfair", {}, 0), ("agnosticfair", {"centres": "rows"}, 1)],
)
def test_a_certificate_asks_no_site_for_a_row(files, tmp_path, name, more, rows):
    line, run = run_server(files, tmp_path, method=name, max_rounds=2, **more)
    run()
    steps = [step for step, site in line.log if site == "north"]
    assert (steps.count("centres"), steps.count("decisions")) == (rows, int(name == "agnosticfair"))
    assert "worst_difference" in json.loads((tmp_path / "certificate.json").read_text())


def test_a_restated_problem_has_its_model_and_its_certificate(files, tmp_path):
    config = {
        **RUN,
        "method": "fairfl",
        "sites": ",".join(files),
        "deadline": 20.0,
        "out": str(tmp_path),
    }
    _, line = engine_over(files, south={"allow": "statistics"})
    run_over(line, config | {"on-failure": "drop"})
    rest = [files["east"], files["north"]]
    here = fit(read_clients(rest, ROLES), "fairfl")
    assert load_model(tmp_path / "model.safetensors").digest == here.model.digest
    content = json.loads((tmp_path / "certificate.json").read_text())
    assert content["n"] == here.model.rows
    assert ("decisions", "south") not in line.log
    events = json.loads((tmp_path / "history.json").read_text())["events"]
    assert events[-1] == {"event": "restated", "without": ["south"], "clients": 2}


def test_replies_are_added_in_the_order_of_the_keys(files):
    """Addition of floats is not associative, and the line shuffles: equal bits are no accident."""
    engine, _ = engine_over(files)
    one, two = (fit(engine, "agnosticfair").model.w for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_a_site_of_another_message_format_ends_the_run_by_name(files, tmp_path, monkeypatch):
    def elsewhere(config):
        told = {"format": "agnosticfair-message-0" if config["site"] == "south" else FORMAT}
        return json.dumps(told)

    monkeypatch.setattr(node, "hello", elsewhere)
    line, run = run_server(files, tmp_path)
    said = r"'hello' failed at client 'south': its messages \(version .*\) have the format 'agnosticfair-message-0'"
    with pytest.raises(FederationError, match=said):
        run()
    assert {step for step, _ in line.log} == {"hello"}


def test_a_model_of_too_few_sites_is_no_success(files, tmp_path):
    config = {
        **RUN,
        "method": "fl",
        "sites": ",".join(files),
        "deadline": 20.0,
        "out": str(tmp_path),
    }
    config |= {"on-failure": "drop", "min-sites": 2}
    declines = {"min-rows": 1000}
    _, line = engine_over(files, south=declines, north=declines)
    with pytest.raises(FederationError, match=r"1 clients.*least 2"):
        run_over(line, config)
    assert not (tmp_path / "model.safetensors").exists()


def test_one_empty_site_of_twenty_is_named(files, tmp_path):
    paths = {f"s{k:02}": files["north"] for k in range(20)}
    empty = tmp_path / "empty.csv"
    empty.write_text(files["north"].read_text().splitlines()[0] + "\n")
    engine, _ = engine_over({**paths, "s13": empty})
    with pytest.raises(FederationError, match=r"client 's13'.*no rows"):
        fit(engine, "fl")


def test_results_of_two_runs_are_not_reported_as_one(files, tmp_path):
    _, run = run_server(files, tmp_path)
    run()
    read_run(tmp_path)
    other = fit(read_clients(files.values(), ROLES), "fl").model
    place = tmp_path / "latest" / "model.safetensors"
    place.unlink()
    other.save(place)
    with pytest.raises(ModelError, match=r"'model\.safetensors'.*run"):
        read_run(tmp_path)


def test_who_is_waited_for_is_told_live(files, monkeypatch):
    from agnosticfair.protocol.engines import remote

    monkeypatch.setattr(remote, "LOOK", 0.05)
    engine, _ = engine_over({"north": files["north"]}, sites=("north", "south"))
    told = []
    engine.notice = lambda waiting: told.append(dict(waiting))
    with pytest.raises(FederationError, match="client 'south'"):
        fit(engine, "fl", deadline=0.5)
    assert told[0] == {"south": "it is not connected: start it"}
    assert told[-1] == {}


def test_a_run_ends_when_its_time_is_up_and_says_who_held_it_up(files, monkeypatch):
    from agnosticfair.protocol.engines import remote

    monkeypatch.setattr(remote, "LOOK", 0.05)
    engine, _ = engine_over({"north": files["north"]}, sites=("north", "south"))
    engine.until = time.monotonic() + 0.3
    with pytest.raises(FederationError, match=r"'south'.*connected"):
        fit(engine, "fl", on_failure="wait")


@pytest.mark.parametrize("name", ["fairfl", "agnosticfair"])
def test_a_deployed_certificate_is_the_one_of_fit_run_bit_for_bit(
    call, files, tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)  # fit leaves its model and card there
    _, run = run_server(files, tmp_path, method=name, max_rounds=2)
    run()
    roles = ("--target", "y", "--sensitive-features", "sex", "--max-rounds", 2)
    assert call("fit", *files.values(), *roles, "--method", name, "--run", "here")[0] == 0
    there, here = (
        json.loads((place / "certificate.json").read_text()) for place in (tmp_path, Path("here"))
    )
    assert {k: v for k, v in there.items() if k != "run"} == here
    named = json.loads(Path("here/history.json").read_text())["files"]
    assert {*named} == {"model.safetensors", "certificate.json"}
    (Path("here") / "certificate.json").write_text("{}")
    with pytest.raises(ModelError, match="take all files"):
        read_run(Path("here"))


def test_a_run_leaves_every_sites_versions(files, tmp_path):
    _, run = run_server(files, tmp_path)
    run()
    sites = json.loads((tmp_path / "history.json").read_text())["sites"]
    assert {*sites} == {*files}
    assert all("agnosticfair" in about["versions"] for about in sites.values())


@pytest.mark.parametrize("network", [None, "mlp"])
@pytest.mark.parametrize(
    "name",
    [n if n == "fairfl" else pytest.param(n, marks=pytest.mark.slow) for n in sorted(METHODS)],
)
def test_secure_sums_over_a_line_give_the_same_model(name, network, files, tmp_path):
    if network and (METHODS[name].rule is not None or METHODS[name].averaging is not None):
        return  # they train none
    from agnosticfair.deploy.secrets import LIST, first_list, key_pair, masking_key, read_key_list

    pairs = {key: key_pair(key) for key in files}
    lists, _ = first_list({key: masking_key(pair[".pub"]) for key, pair in pairs.items()})
    for file, text in (lists | {key: pair[""] for key, pair in pairs.items()}).items():
        (tmp_path / file).write_text(text)
        (tmp_path / file).chmod(0o600)
    chosen_method = method(name, network=network, max_rounds=3)
    consents = {need.replace("_", "-"): True for need in server.consents(chosen_method)}
    own = {
        key: {"mask-key": str(tmp_path / key), "mask-list": str(tmp_path / LIST)}
        | {"min-rows": 1, **consents}
        for key in files
    }
    engine, line = engine_over(files, **own)
    secure = fit(engine, chosen_method, secure=read_key_list(tmp_path / LIST).sites)
    here = fit(read_clients(files.values(), ROLES), chosen_method)
    assert secure.model.digest == here.model.digest
    assert secure.history == here.history
    assert "statistics" not in {step for step, _ in line.log}
    engine, _ = engine_over(files, **own)
    with pytest.raises(FederationError, match="masked sums only"):
        fit(engine, "fairfl")


@pytest.mark.slow
def test_private_sums_over_a_line_spend_a_budget_at_the_sites(files, tmp_path):
    """From 'deploy init' to the model: every site adds its share of the noise, and keeps its own ledger."""
    from agnosticfair.data.schema import schema_of
    from agnosticfair.deploy.folder import Federation, read_config, write_folder
    from agnosticfair.deploy.node import read_site

    schema = schema_of(summary_statistics(ROWS, "all"), "y")
    agreed = json.dumps(schema.to_json())
    run = {"method": "fairfl", "epsilon": 50.0, "delta": 1e-5, "positive": "yes"}
    write_folder(tmp_path / "bank", Federation(files, ROLES, run, schema=agreed, min_rows=1))
    config = read_config(tmp_path / "bank")
    sites = {key: read_site(tmp_path / "bank" / "sites" / f"{key}.toml").config for key in files}
    line = FakeLine(list(sites.values()))
    engine = RemoteEngine(line, tuple(files))
    made, _ = coordinator.run_fit(engine, config, None)
    assert made.model.privacy["epsilon"] == pytest.approx(50.0)
    request = {step for step, _ in line.log}
    assert request == {"keys", "agree", *(f"private_{k}" for k in PRIVATE_STEPS)}
    ledgers = [json.loads(path.read_text()) for path in ledger_folder().glob("*.json")]
    assert [len(ledger["multipliers"]) for ledger in ledgers] == [3 + made.rounds] * len(files)
    assert all(ledger["plans"] == {} and len(ledger["ended"]) == 1 for ledger in ledgers)
    certificate = coordinator.certify(made, engine, config)
    assert certificate["subgroups"][0]["high"] >= certificate["worst_difference"]
    assert "under noise, at most" in certificate["sentence"]
    # the same requests: the same answers, which cost once
    again, _ = coordinator.run_fit(engine, config, None)
    assert again.model.digest == made.model.digest
    with pytest.raises(FederationError, match=r"the privacy budget of site '\w+' is spent"):
        coordinator.run_fit(engine, {**config, "tau": 0.2}, None)
    with pytest.raises(FederationError, match="answers private steps"):
        fit(engine, "fairfl", secure=coordinator.masks_of(config), schema=schema)
    # the same rows in files of other names, in a folder with keys of its own: the same budget
    renamed = {
        key: Path(shutil.copy(path, tmp_path / f"other-{key}.csv")) for key, path in files.items()
    }
    write_folder(tmp_path / "anew", Federation(renamed, ROLES, run, schema=agreed, min_rows=1))
    config = read_config(tmp_path / "anew") | {"tau": 0.2}
    sites = [read_site(tmp_path / "anew" / "sites" / f"{key}.toml").config for key in files]
    with pytest.raises(FederationError, match=r"the privacy budget of site '\w+' is spent"):
        coordinator.run_fit(RemoteEngine(FakeLine(sites), tuple(files)), config, None)


def test_a_private_site_answers_whatever_its_rows_are(files, tmp_path):
    """Few rows of a group, numbers out of range, values that nobody declared: no refusal tells of them."""
    from agnosticfair.data.schema import schema_of
    from agnosticfair.deploy.folder import Federation, read_config, write_folder
    from agnosticfair.deploy.node import read_site

    schema = schema_of(summary_statistics(ROWS, "all"), "y")
    files = {key: Path(shutil.copy(path, tmp_path)) for key, path in files.items()}
    lines = files["north"].read_text().splitlines()
    names = lines[0].split(",")
    odd = dict(zip(names, lines[1].split(","), strict=True)) | {"age": "1e9"}
    strange = odd | {"job": "never declared"}
    more = [",".join(row[name] for name in names) for row in (odd, strange)]
    files["north"].write_text("\n".join([*lines[:4], *more]) + "\n")
    run = {"method": "fairfl", "epsilon": 50.0, "delta": 1e-5, "positive": "yes"}
    agreed = json.dumps(schema.to_json())
    write_folder(tmp_path / "bank", Federation(files, ROLES, run, schema=agreed, min_rows=100))
    config = read_config(tmp_path / "bank")
    sites = [read_site(tmp_path / "bank" / "sites" / f"{key}.toml").config for key in files]
    made, _ = coordinator.run_fit(RemoteEngine(FakeLine(sites), tuple(files)), config, None)
    assert made.model.privacy["epsilon"] == pytest.approx(50.0)


def test_under_a_schema_and_masks_there_is_a_certificate(files, tmp_path):
    """Sites that signed off a schema show no outline, and are not asked for one."""
    from agnosticfair.data.schema import schema_of
    from agnosticfair.deploy.folder import Federation, read_config, write_folder
    from agnosticfair.deploy.node import read_site

    agreed = json.dumps(with_bins(schema_of(summary_statistics(ROWS, "all"), "y")).to_json())
    run = {"method": "fairfl", "positive": "yes", "max-rounds": 2}
    write_folder(tmp_path / "bank", Federation(files, ROLES, run, schema=agreed, min_rows=1))
    config = read_config(tmp_path / "bank")
    sites = [read_site(tmp_path / "bank" / "sites" / f"{key}.toml").config for key in files]
    line = FakeLine(sites)
    engine = RemoteEngine(line, tuple(files))
    made, _ = coordinator.run_fit(engine, config, None)
    certificate = coordinator.certify(made, engine, config)
    assert "There is no certificate" not in certificate["sentence"]
    assert certificate["n"] == len(ROWS)
    assert not {"outline", "statistics"} & {step for step, _ in line.log}


def with_bins(schema):
    """The schema with the bins that its command drafts."""
    ranges = schema.numeric.items()
    found = {
        k: edges_at_quantiles(round_cuts(*ends), histogram(ROWS.numeric[k], *ends), 4)
        for k, ends in ranges
    }
    return replace(schema, bins=found)


@pytest.mark.slow
def test_sites_are_held_to_a_limit_under_masks(files, tmp_path, monkeypatch):
    """From 'deploy init --limit' to the certificate: the model and the promise of the same rows in one place."""
    from agnosticfair.auditing import limit as limits
    from agnosticfair.auditing.proof import verify
    from agnosticfair.data.schema import schema_of
    from agnosticfair.deploy.folder import Federation, read_config, write_folder
    from agnosticfair.deploy.node import read_site
    from agnosticfair.protocol.secure import sessions

    monkeypatch.setattr(limits, "MAX_FITS", 3)
    monkeypatch.setattr(limits, "SURE", 0.5)  # several models are within the limit
    monkeypatch.setattr(sessions, "SESSIONS", 2)  # a fit's own, and the one that counts models
    promised = {"limit": 0.8, "confidence": 0.95, "precision": 0.5}
    run = {"method": "rule", "positive": "yes", **promised}
    schema = with_bins(schema_of(summary_statistics(ROWS, "all"), "y"))
    agreed = json.dumps(schema.to_json())
    write_folder(tmp_path / "bank", Federation(files, ROLES, run, schema=agreed, min_rows=1))
    config = read_config(tmp_path / "bank") | {"out": str(tmp_path / "out")}
    (tmp_path / "out").mkdir()
    sites = {key: read_site(tmp_path / "bank" / "sites" / f"{key}.toml").config for key in files}
    engine = RemoteEngine(FakeLine(list(sites.values())), tuple(files))
    left = coordinator.results(engine, config, "1")
    how = {"sensitive_features": "sex", "positive": "yes", "schema": schema}
    here, certified_limit = limits.fit_within(
        read_clients(files.values(), ROLES), **how, **promised
    )
    certificate = json.loads(left["certificate.json"])
    assert verify(certificate) == ()
    assert certified_limit.tried > 1
    assert (certificate["sentence"], certificate["kept"]) == (
        str(certified_limit),
        certified_limit.holds,
    )
    (tmp_path / "model.safetensors").write_bytes(left["model.safetensors"])
    assert load_model(tmp_path / "model.safetensors").digest == here.model.digest


PRIVATE_STEPS = ("plan", "counts", "moments", "gradients", "decisions")


def test_privacy_without_what_it_needs_is_refused(files):
    from agnosticfair.deploy.folder import Federation
    from agnosticfair.deploy.site import site_of
    from agnosticfair.errors import SettingsError

    with pytest.raises(SettingsError, match=r"secure.*--schema"):
        Federation(files, ROLES, {"epsilon": 3.0})
    with pytest.raises(SettingsError, match="needs secure sums"):
        site_of(node_config("north", "a.csv", epsilon=3.0))
    with pytest.raises(SettingsError, match=r"--on-failure.*drop"):
        Federation(files, ROLES, {"epsilon": 3.0, "on-failure": "drop"}, schema="{}")
    private = {"mask-key": "a", "mask-list": "b", "schema": "c", "epsilon": 3.0, "may-drop": True}
    with pytest.raises(SettingsError, match="may-drop do"):
        site_of(node_config("north", "a.csv", **private))


@pytest.mark.slow
def test_rows_that_change_in_a_run_or_before_it_is_resumed_are_refused_with_the_site(
    files, tmp_path
):
    """A model and a certificate of neither file, with exit 0, is what came of it before."""
    files = {key: Path(shutil.copy(path, tmp_path)) for key, path in files.items()}
    whole = files["north"].read_bytes()
    head, first, second, *others = whole.splitlines(keepends=True)
    fewer = b"".join((head, first, second, *others[:-5]))
    engine, line = engine_over(files)

    def changing(step, site, answer):
        if [step for step, _ in line.log].count("sums") == 7:
            files["north"].write_bytes(fewer)
        return answer

    line.hook = changing
    here = {"checkpoint": tmp_path / "kept"}
    with pytest.raises(FederationError, match=r"'north'.*changed"):
        fit(engine, "fairfl", **here)
    assert (tmp_path / "kept" / "checkpoint.safetensors").exists()
    # other rows with the same summary statistics, too
    files["north"].write_bytes(b"".join((head, second, first, *others)))
    with pytest.raises(SettingsError, match=r"differs.*'north'"):
        fit(engine_over(files)[0], "fairfl", **here)
    files["north"].write_bytes(whole)
    engine = engine_over(files)[0]
    resumed = fit(engine, "fairfl", **here)
    assert any(event["event"] == "resumed" for event in resumed.events)
    assert resumed.model.digest == fit(engine_over(files)[0], "fairfl").model.digest
    # in the certificate's phase, too
    files["north"].write_bytes(fewer)
    with pytest.raises(FederationError, match=r"'north'.*changed"):
        coordinator.certify(resumed, engine, {**RUN, "on-failure": "stop", "min-sites": 1})


def test_a_site_lost_in_the_certificates_phase_ends_the_run_and_keeps_the_checkpoint(
    files, tmp_path
):
    """It was exit 0, without a certificate and without a checkpoint."""
    config = {
        **RUN,
        "method": "fl",
        "sites": ",".join(files),
        "deadline": 1.0,
        "out": str(tmp_path),
    }
    config |= {"checkpoint": str(tmp_path / "kept"), "on-failure": "stop"}
    _, line = engine_over(files)
    counting = {"histograms", "decisions", "subgroup_counts"}
    line.hook = lambda step, site, answer: None if site == "south" and step in counting else answer
    with pytest.raises(FederationError, match=r"'south'.*gave"):
        run_over(line, config)
    assert (tmp_path / "kept" / "checkpoint.safetensors").exists()
    assert not (tmp_path / "model.safetensors").exists()
    line.hook = lambda step, site, answer: answer
    run_over(line, config)
    assert (
        "no certificate" not in json.loads((tmp_path / "certificate.json").read_text())["sentence"]
    )


def test_what_a_site_sends_is_shown_without_escapes_and_in_short(files, tmp_path, capsys):
    engine, line = engine_over(files)
    loud = "\x1b[2J\x1b]0;title\x07\nroot#\u202e " + "x" * 100_000

    def hostile(step, site, answer):
        return {"site": site, "failure": loud} if step == "sums" else answer

    line.hook = hostile
    with pytest.raises(FederationError) as failed:
        fit(engine, "fl")
    assert str(failed.value).isprintable()
    assert len(str(failed.value)) < 3000

    line.hook = lambda step, site, answer: answer | {"about": about}
    about = json.dumps({"format": FORMAT, "versions": {loud: loud}, "steps": [loud[:100]]})
    told = engine.exchange("hello", None, ("north",), 5.0)["north"]
    assert told.reason.isprintable()  # too long
    about = json.dumps({"format": FORMAT, "versions": {loud[:90]: loud[:999]}, "steps": [loud[:9]]})
    told = json.dumps(engine.exchange("hello", None, ("north",), 5.0)["north"], ensure_ascii=False)
    assert told.isprintable()
    about = "[" * 19_000
    assert "format None" in engine.exchange("hello", None, ("north",), 5.0)["north"].reason
