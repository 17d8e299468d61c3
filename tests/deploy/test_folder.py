"""The folder of a federation of sites, a site's settings, and what is told about messages before they travel."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import small_table

from agnosticfair.cli import main
from agnosticfair.client.steps import STEPS
from agnosticfair.data.files import Roles
from agnosticfair.errors import SettingsError
from agnosticfair.federation import fit, in_process
from agnosticfair.methods import method


@pytest.fixture
def folder(tmp_path):
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    from agnosticfair.deploy.folder import Federation, write_folder

    sites = {"north": Path("north.csv"), "south": Path("so uth's.csv")}
    plan = Federation(sites, Roles("y", ("sex",), drop=("id",)), {"method": "fl"}, port=9400)
    write_folder(tmp_path / "bank", plan)
    return tmp_path / "bank"


def test_scripts_are_shell_and_safe_by_default(folder):
    for script in folder.glob("*.sh"):
        subprocess.run(["sh", "-n", str(script)], check=True)
    content = tomllib.loads((folder / "federation.toml").read_text())
    assert content["run"]["sites"] == "north,south"
    assert content["coordinator"]["listen"] == "127.0.0.1"


def test_certificates_hold_together(folder):
    from cryptography import x509

    at = folder / "tls"
    ca, server = (
        x509.load_pem_x509_certificate((at / f"{name}.crt").read_bytes())
        for name in ("ca", "server")
    )
    server.verify_directly_issued_by(ca)
    for secret in (at / "ca.key", at / "server.key", folder / "keys" / "north"):
        assert secret.stat().st_mode & 0o077 == 0


def test_a_folder_is_not_overwritten(folder):
    from agnosticfair.deploy.folder import Federation, write_folder

    with pytest.raises(SettingsError, match="is not empty"):
        write_folder(folder, Federation({"a": Path("a.csv")}, Roles("y", ("sex",)), secure=False))


@pytest.mark.parametrize(
    "name", ["a b", "a/b", "../x", "ä", "a;b", '"', "a\n", "\x1b[2J", "-a", "a" * 65, ""]
)
def test_a_site_has_a_plain_name(name):
    from agnosticfair.deploy.folder import Federation

    with pytest.raises(SettingsError, match="use letters"):
        Federation({name: Path("a.csv")}, Roles("y", ("sex",)))


def test_a_site_has_no_name_of_the_coordinators_files(folder, call):
    """A site of such a name would write its key over the list of all sites' keys."""
    text = (folder / "keys" / "masking.json").read_text()
    for name in ("masking", "Masking"):
        code, _, err = call("deploy", "add-site", folder, f"{name}=a.csv")
        assert (code, "the coordinator" in err) == (2, True)
    assert (folder / "keys" / "masking.json").read_text() == text


def test_a_text_with_any_character_is_read_back_from_the_folder(tmp_path):
    """A newline in an option wrote a folder that nothing could read."""
    from agnosticfair.deploy.folder import Federation, read_settings, write_folder

    odd = 'one\ntwo\t"three"\\ \x1b[2J \x7f é'
    plan = Federation({"a": Path("a")}, Roles("y", ("sex",)), {"positive": odd}, secure=False)
    write_folder(tmp_path / "bank", plan)
    assert read_settings(tmp_path / "bank").run["positive"] == odd


def test_a_folder_that_is_no_federation_is_told(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "run", str(tmp_path)])
    assert ended.value.code == 2
    assert "'deploy init'" in capsys.readouterr().err
    (tmp_path / "federation.toml").write_text('[run]\nmethod = "fl"\n')
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "run", str(tmp_path)])
    assert ended.value.code == 2
    assert "'deploy init'" in capsys.readouterr().err


def test_every_step_stands_in_the_documents_table():
    page = (Path(__file__).parents[2] / "docs" / "messages.md").read_text()
    table = page.partition("## The messages")[2].partition("\n## ")[0]
    named = {
        name
        for row in table.splitlines()
        if row.startswith("|")
        for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])
    }
    assert named - {"keys", "agree"} == {*STEPS}


def test_a_gradient_over_one_row_is_that_row_and_its_label():
    """What is said of it: in a layer that sees the row, gradients of weights are gradients of offsets times it."""
    pytest.importorskip("torch")
    from agnosticfair.client.client import Client
    from agnosticfair.client.steps import answer

    one, request = small_table(1, 3), []
    engine = in_process({"a": small_table(300, 3), "b": one})

    class Listening:
        def clients(self):
            return engine.clients()

        def exchange(self, step, payload, keys, deadline):
            request.append((step, payload))
            return engine.exchange(step, payload, keys)

    fit(Listening(), method("fl", network="mlp", max_rounds=1), positive="yes")
    step, broadcast = request[-1]
    site = Client("b", one)
    x, w = site.prepare(broadcast.task).X[0, :-1], broadcast.request.w
    d, hidden = len(x), 32
    gradients = answer(site, step, broadcast).sums["gradient"][2 * d :]
    weights, offsets = gradients[: hidden * d].reshape(hidden, d), gradients[hidden * d :][:hidden]
    unit = np.argmax(np.abs(offsets))
    solved = weights[unit] / offsets[unit] * w[d : 2 * d] + w[:d]
    np.testing.assert_allclose(solved, x, atol=1e-5)
    assert (gradients[-1] < 0) == (one.labels("yes")[0] > 0)


def test_the_documented_commands_are_the_commands(tmp_path, monkeypatch, capsys):
    """They are run for real in test_end_to_end; here the text is held to what they write and read."""
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    page = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    block = page.partition("## Three commands")[2].split("```")[1].splitlines()[1:]
    first, starts, last = block
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(first.split()[1:])
    assert ended.value.code in (0, None)
    for start in starts.split("&"):
        assert not start.strip() or Path(start.split()[-1]).is_file()
    assert last == capsys.readouterr().out.splitlines()[-1].strip()


@pytest.mark.parametrize(
    ("one_request", "said"),
    [
        (("--host", "münchen"), "host 'münchen'"),
        (("--host", "a b"), "host 'a b'"),
        (("--seed", "-1"), "seed is -1"),
        (("--metric", "luck"), "unknown metric 'luck'"),
        (("--network", "resnet"), "no network 'resnet' here"),
        (("--deadline", "-1"), "deadline is -1.0"),
        (("--min-rows", "0"), "min-rows is 0"),
        (("--drop", "a,b"), "column 'a,b'"),
        (("--sites", 'a=a".csv'), "quotation mark"),
        ((), "is not empty"),
    ],
)
def test_a_federation_that_cannot_work_is_refused_at_once(tmp_path, capsys, one_request, said):
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    there = tmp_path / ("bank" if one_request else "a file")
    if not one_request:
        there.write_text("")
    columns = ("--target", "y", "--sensitive-features", "sex")
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "init", str(there), "--sites", "a=a.csv,b=b.csv", *columns, *one_request])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
    assert there.exists() != bool(one_request)


def test_without_the_packages_a_sentence_says_what_to_install(tmp_path):
    without = (
        "import sys; sys.modules['cryptography'] = None; from agnosticfair.cli import main; main()"
    )
    own = ("--sites", "a=a.csv,b=b.csv", "--target", "y", "--sensitive-features", "sex")
    command = (sys.executable, "-c", without, "deploy", "init", tmp_path / "bank", *own)
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "pip install 'agnosticfair[secure]'" in ended.stderr


def test_without_pytorch_a_folder_is_written_for_what_needs_none(tmp_path, monkeypatch):
    """The documented installation has none."""
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delitem(sys.modules, "agnosticfair.networks", raising=False)
    own = ["--sites", "a=a.csv,b=b.csv", "--target", "y", "--sensitive-features", "sex"]
    for name, more, code in (("bank", [], 0), ("net", ["--network", "mlp"], 2)):
        with pytest.raises(SystemExit) as end:
            main(["deploy", "init", str(tmp_path / name), *own, *more])
        assert end.value.code == code


def test_every_sensitive_column_is_protected(tmp_path):
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    from agnosticfair.deploy.coordinator import sensitive_features_of
    from agnosticfair.deploy.folder import Federation, read_config, write_folder

    plan = Federation({"a": Path("a")}, Roles("y", ("sex", "race")), secure=False)
    write_folder(tmp_path / "bank", plan)
    assert sensitive_features_of(read_config(tmp_path / "bank")) == ("sex", "race")
    assert sensitive_features_of({"sensitive-features": ""}) is None


def test_a_network_can_be_deployed(tmp_path):
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    pytest.importorskip("torch")
    from agnosticfair.deploy.coordinator import method_of
    from agnosticfair.deploy.folder import read_config

    made = {}
    for name, request in (("linear", ()), ("mlp", ("--network", "mlp"))):
        folder = tmp_path / name
        columns = ("--target", "y", "--sensitive-features", "sex", *request)
        with pytest.raises(SystemExit) as ended:
            main(["deploy", "init", str(folder), "--sites", "a=a.csv,b=b.csv", *columns])
        assert ended.value.code == 0
        made[name] = method_of(read_config(folder))
    assert made == {
        "linear": method("auto", learner="linear"),  # without a schema there are no bins
        # under masks no site shows a row
        "mlp": method("agnosticfair", centres="kmeans", network="mlp"),
    }


def test_sums_are_masked_unless_it_is_said_otherwise(tmp_path, call):
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    from agnosticfair.deploy.folder import read_config
    from agnosticfair.deploy.node import read_site

    request = ("--target", "y", "--sensitive-features", "sex", "--sites")
    assert call("deploy", "init", tmp_path / "bank", *request, "a=a.csv,b=b.csv")[0] == 0
    assert read_config(tmp_path / "bank")["masking"] == str(tmp_path / "bank/keys/masking.json")
    config = read_site(tmp_path / "bank" / "sites" / "a.toml").config
    assert (config["min-sites"], config["may-drop"], len(config["mask-keeper"])) == (2, False, 64)
    consents = ("shows-rows", "shares-site-totals", "shares-cluster-means")
    assert [config[name] for name in consents] == [False] * 3
    assert call("deploy", "init", tmp_path / "open", *request, "a=a.csv,b=b.csv", "--plain")[0] == 0
    assert read_config(tmp_path / "open")["masking"] == ""
    assert "mask-key" not in read_site(tmp_path / "open" / "sites" / "a.toml").config
    code, _, err = call("deploy", "init", tmp_path / "one", *request, "a=a.csv")
    assert (code, "--plain" in err) == (2, True)
    rows = ("a=a.csv,b=b.csv", "--centres", "rows")
    code, out, _ = call("deploy", "init", tmp_path / "rows", *request, *rows)
    assert (code, "centres are rows" in out) == (0, True)
    assert read_site(tmp_path / "rows" / "sites" / "a.toml").config["shows-rows"] is True


def test_a_limit_can_be_deployed(tmp_path, call):
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    from agnosticfair.data.schema import Schema
    from agnosticfair.deploy.folder import read_config

    request = ("--target", "y", "--sensitive-features", "sex", "--sites", "a=a.csv,b=b.csv")
    code, _, err = call("deploy", "init", tmp_path / "no", *request, "--limit", 0.2)
    assert (code, "needs --schema" in err) == (2, True)
    schema = Schema("y", ("no", "yes"), {"sex": ("f", "m")}, {"age": (0.0, 9.0)})
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema.to_json()))
    code, _, err = call("deploy", "init", tmp_path / "no", *request, "--schema", path)
    assert (code, "declares no bins of 'age'" in err) == (2, True)
    path.write_text(json.dumps(replace(schema, bins={"age": (5.0,)}).to_json()))
    request = (*request, "--schema", path)
    assert call("deploy", "init", tmp_path / "bank", *request, "--limit", 0.2)[0] == 0
    config = read_config(tmp_path / "bank")
    told = [config[name] for name in ("method", "limit", "confidence", "precision")]
    assert told == ["rule", 0.2, 0.95, 0.1]
    for wrong, sentence in (
        (("--tau", 0.1), "there is a limit"),
        (("--on-failure", "drop"), "take wait"),
        (("--epsilon", 3), "no limit is searched under noise"),
        (("--confidence", 1), "confidence is 1.0; it must be"),
    ):
        code, _, err = call("deploy", "init", tmp_path / "no", *request, "--limit", 0.2, *wrong)
        assert (code, sentence in err) == (2, True)
