"""The command line, through ``main``: what it writes, what it says, and what it refuses."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import ROLES, client_rows, refused, write
from safetensors.numpy import save_file

from agnosticfair import federation
from agnosticfair.auditing import fits
from agnosticfair.errors import SolverError
from agnosticfair.methods import METHODS
from agnosticfair.model import load_model
from agnosticfair.runs import provenance as record

COMMANDS = ("fit", "predict", "evaluate", "methods", "data", "audit", "tune")
COMMANDS += ("export", "report")


MODEL = Path("model.safetensors")


@pytest.fixture
def model(files, call):
    code, _, err = call("fit", *files, *ROLES, "--method", "fairfl")
    assert (code, err) == (0, "")
    return Path("model.safetensors")


# --- what it does ---


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_by_an_example(call, command):
    code, out, _ = call(command, "--help")
    assert code == 0
    assert f"Example: agnosticfair {command}" in out


def test_version(call):
    assert call("--version")[1].startswith("agnosticfair 0.")


def test_the_command_starts_without_the_heavy_parts():
    heavy = "{'numpy', 'scipy', 'pyarrow', 'matplotlib', 'rich.table'}"
    code = f"import sys, agnosticfair.cli; print({heavy} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "set()\n"


def test_as_a_module():
    command = [sys.executable, "-m", "agnosticfair", "--version"]
    assert "agnosticfair 0." in subprocess.run(command, capture_output=True, text=True).stdout


def test_methods_lists_every_one(call):
    _, out, _ = call("methods")
    assert all(name in out for name in METHODS)
    content = json.loads(call("methods", "--json")[1])
    assert [m["name"] for m in content] == [*METHODS]
    assert content[0]["bound"] is None  # infinite, which JSON cannot say


def test_fit_then_predict_then_evaluate(call, model, files):
    _, out, _ = call("predict", model, files[0], "--out", "p.csv")
    assert "150 rows" in out
    with Path("p.csv").open() as file:
        predicted = list(csv.DictReader(file))
    for r in predicted:
        assert (r["prediction"] == "yes") == (float(r["probability"]) > 0.5)
    code, out, _ = call("evaluate", model, *files, "--target", "income", "--json")
    assert code == 0
    everything, north, south = json.loads(out)
    assert [e["rows"] for e in (everything, north, south)] == [300, 150, 150]
    assert everything["accuracy"] == pytest.approx((north["accuracy"] + south["accuracy"]) / 2)
    right = [r["prediction"] for r in predicted]
    with files[0].open() as file:
        labels = [r["income"] for r in csv.DictReader(file)]
    assert north["accuracy"] == pytest.approx(
        np.mean([a == b for a, b in zip(right, labels, strict=True)])
    )
    rates = north["positive_rates"]
    assert north["risk_difference"] == pytest.approx(abs(rates["F"] - rates["M"]))


def test_a_column_that_is_no_feature_names_subgroups(call, files):
    head = files[0].read_text().splitlines()[0]
    column = head.split(",").index("job") if "job" in head else 0
    name = head.split(",")[column]
    code, _, err = call("fit", *files, *ROLES, "--subgroups-by", name)
    assert code == 0, err
    assert not any(name in feature for feature in load_model(MODEL).encoding.names)
    model = load_model(MODEL)
    assert model.method["fairness"]["basis"]["columns"] == ["*", name]
    code, _, err = call(
        "fit", *files, *ROLES, "--subgroups-by", "site", "--depth", "1", "--min-share", "0.1"
    )
    assert code == 0, err
    code, _, err = call("fit", *files, *ROLES, "--subgroups-by", name, "--method", "fairfl")
    assert code != 0
    assert "subgroups_by" in err
    code, _, err = call("fit", *files, *ROLES, "--depth", "4")
    assert "depth 4" in err


def test_a_limit_on_every_groups_loss_is_written_as_any_other(call, files):
    request = ("--method", "fairfl", "--metric", "bounded_group_loss", "--tau", "0.65")
    code, out, err = call("fit", *files, *ROLES, *request)
    assert code == 0, err
    assert "converged" in out


def test_fit_says_how_it_went(call, files):
    _, out, _ = call("fit", *files, *ROLES, "--method", "fl", "--json", "--out", "m.safetensors")
    content = json.loads(out)
    assert (content["outcome"], content["method"], content["positive"]) == (
        "converged",
        "fl",
        "yes",
    )
    assert [e["client"] for e in content["training_rows"]] == ["all rows", "north", "south"]
    _, out, _ = call("fit", *files, *ROLES, "--method", "fl")
    assert "converged after" in out
    assert f"{content['training_rows'][1]['accuracy']:.4f}" in out


def test_one_file_with_a_client_column_is_the_same_as_a_file_each(call, files):
    rows = [r | {"site": s} for k, s in enumerate(("north", "south")) for r in client_rows(k)]
    both = write(Path("both.csv"), rows)
    one = json.loads(call("fit", *files, *ROLES, "--method", "afl", "--json")[1])
    request = ("--client-column", "site", "--method", "afl", "--json")
    two = json.loads(call("fit", both, *ROLES, *request)[1])
    assert one["training_rows"] == two["training_rows"]
    request = ("--target", "income", "--client-column", "site", "--json")
    content = json.loads(call("evaluate", "model.safetensors", both, *request)[1])
    assert content == one["training_rows"]


def test_columns_can_be_told_apart(call, files):
    request = ("--drop", "job", "--categorical", "age", "--method", "fl")
    assert call("fit", files[0], *ROLES, *request)[0] == 0
    code, _, err = call("predict", "model.safetensors", files[1])
    assert code == 2
    assert "'age'" in err


def test_every_sensitive_column_is_protected_and_shown(call, files):
    request = ("--method", "fairfl", "--metric", "equal_opportunity", "--tau", "0.02")
    code, out, _ = call("fit", *files, *ROLES, "--sensitive-features", "job", *request)
    assert code == 0
    assert "Training rows, by sex" in out
    assert "Training rows, by job" in out
    content = json.loads(call("evaluate", MODEL, *files, "--target", "income", "--json")[1])
    assert [e["sensitive_feature"] for e in content] == ["sex"] * 3 + ["job"] * 3
    request = ("--sensitive-features", "job", "--json")
    content = json.loads(call("evaluate", MODEL, files[0], "--target", "income", *request)[1])
    assert [(e["sensitive_feature"], {*e["positive_rates"]}) for e in content] == [
        ("job", {"a", "b", "c"})
    ]
    header = load_model(MODEL).method
    assert header["fairness"]["metric"] == "equal_opportunity"


# --- what it refuses ---


BAD_FILES = {
    "constant label": ({"income": "no"}, "'no'"),
    "missing label": ({"income": lambda i, r: "" if i == 3 else r["income"]}, "'income'"),
    "one group": ({"sex": "F"}, "'sex'"),
    "NaN": ({"age": lambda i, r: "nan" if i == 4 else r["age"]}, "'age'"),
    "infinite": ({"age": lambda i, r: "inf" if i == 4 else r["age"]}, "'age'"),
    "gap": ({"sex": lambda i, r: "" if i == 4 else r["sex"]}, "'sex'"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_rows_are_refused(call, files, case):
    changes, named = BAD_FILES[case]
    bad = [write(path, client_rows(k), **changes) for k, path in enumerate(files)]
    linear = ("--method", "fairfl")  # a rule has a place for numbers that are missing
    assert named in refused(call, "fit", *bad, *ROLES, *linear)


def test_files_and_columns_that_are_not_there_are_refused(call, files, model):
    assert "'west.csv'" in refused(call, "fit", "west.csv", *ROLES)
    assert "'incom'" in refused(
        call, "fit", *files, "--target", "incom", "--sensitive-features", "sex"
    )
    assert "'site'" in refused(call, "fit", files[0], *ROLES, "--client-column", "site")
    assert "'west.csv'" in refused(call, "predict", model, "west.csv")
    assert "'incom'" in refused(call, "evaluate", model, files[0], "--target", "incom")
    request = ("--target", "income", "--sensitive-features", "race")
    assert "'race'" in refused(call, "evaluate", model, files[0], *request)


def test_an_empty_client_is_refused(call, files):
    write(files[1], [])
    assert "'south" in refused(call, "fit", *files, *ROLES)


def test_one_group_at_one_client_is_legal_but_for_localfair(call, files):
    write(files[1], client_rows(1), sex="F")
    assert "'south'" in refused(call, "fit", *files, *ROLES, "--method", "localfair")
    assert call("fit", *files, *ROLES, "--method", "fairfl")[0] == 0


def test_a_category_or_label_never_seen_is_refused(call, files, model):
    write(files[1], client_rows(1), job="d")
    assert "'d'" in refused(call, "predict", model, files[1])
    write(files[1], client_rows(1), income="Yes.")
    assert "'Yes.'" in refused(call, "evaluate", model, files[1], "--target", "income")


def test_models_that_are_not_ours_are_refused(call, files, model):
    save_file({"w": np.zeros(3)}, "foreign.safetensors")
    Path("cut.safetensors").write_bytes(model.read_bytes()[:-9])
    Path("text.safetensors").write_text("no model")
    for name in ("foreign", "cut", "text", "absent"):
        assert name in refused(call, "predict", f"{name}.safetensors", files[0])


@pytest.mark.parametrize(
    ("one_request", "named"),
    [
        (("fit", "north.csv", *ROLES, "--method", "fll"), "'fll'"),
        (("fit", "north.csv", *ROLES, "--method", "fairfl", "--tau", "-1"), "-1"),
        (("fit", "north.csv", *ROLES, "--method", "fl", "--max-rounds", "0"), "0"),
        (("fit", "north.csv", *ROLES, "--positive", "maybe"), "'maybe'"),
        (("fit", "north.csv", *ROLES, "--drop", "income"), "'income'"),
        (("fit", "north.csv", *ROLES, "--out", "no/folder/m.safetensors"), "no/folder"),
        (("fit", "north.csv", "north.csv", *ROLES), "'north.csv'"),
        (("fit", "north.csv", *ROLES, "--seed", "-1"), "seed is -1"),
        (("tune", "north.csv", *ROLES, "--seed", "-1"), "seed is -1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(call, files, one_request, named):
    assert named in refused(call, *one_request)


RULE = ("--learner", "additive", "--min-people", 5)


def test_subgroups_are_limited_each_or_in_every_mixture(call, files):
    for reading in ((), ("--no-each",)):
        code, out, _ = call("fit", *files, *ROLES, *RULE, "--tau", 0.5, *reading, "--force")
        assert code == 0
        assert "rule converged after " in out


def test_a_rule_says_its_learner_its_price_and_how_near_to_the_best_it_is(call, files):
    code, out, _ = call("fit", *files, *ROLES, *RULE, "--tau", 0.05, "--force")
    assert code == 0
    for words in (
        "Learner additive: mean log loss ",
        "Right, estimated: the rule on ",
        "No rule that decides from these estimates and keeps the limits is right more often",
    ):
        assert words in out
    code, out, _ = call("fit", *files, *ROLES, *RULE, "--tau", 1, "--force", "--json")
    told = json.loads(out)["rule"]
    assert told["learner"] == "additive"
    assert told["optimum"]["unchanged"]
    assert told["statements"][2].startswith("The rule is the learner's own decisions")
    assert call("predict", "model.safetensors", files[0], "--explain")[0] == 0
    header, *_ = Path("predictions.csv").read_text().splitlines()
    assert header == "prediction,probability,score,utility,overall,subgroups"
    assert call("predict", "model.safetensors", files[0])[0] == 0, "that file is ours"
    assert call("fit", *files, *ROLES, "--method", "fl", "--force")[0] == 0
    said = refused(call, "predict", "model.safetensors", files[0], "--explain")
    assert "'fl'" in said


@pytest.mark.parametrize(
    ("one_request", "said"),
    [
        (("--learner", "magic"), "learner 'magic'"),
        (("--learner", "given"), "name the column in probability"),
        (("--costs", "1"), "costs is (1.0,)"),
        (("--costs", "a,b"), "'a,b' are no numbers"),
        (("--costs", "1,-1"), "costs is (1.0, -1.0)"),
        (("--positive-rate", "0.9,0.1"), "positive_rate is (0.9, 0.1)"),
        (("--positive-rate", "0.1"), "positive_rate is (0.1,)"),
        (("--probability", "nobody"), "probability 'nobody'"),
        (("--probability", "age"), "0 to 1"),
        (("--min-people", "-1"), "min_people is -1.0"),
        (("--learning-folds", "1"), "learning_folds is 1"),
        (("--subgroups-by", "nowhere"), "has no column 'nowhere'"),
        (("--overall", "0"), "overall is 0.0"),
        (("--method", "fairfl", "--learner", "trees"), "'fairfl'"),
    ],
)
def test_what_a_rule_cannot_be_asked_is_a_sentence(call, files, one_request, said):
    assert said in refused(call, "fit", *files, *ROLES, *one_request)


def test_a_fit_that_does_not_converge_is_an_error_where_that_is_asked_for(call, files):
    request = ("fit", *files, *ROLES, "--method", "fairfl", "--max-rounds", 2)
    assert "2 rounds" in refused(call, *request, "--strict")
    code, out, _ = call(*request)
    assert code == 0
    assert "outcome 'rounds'" in out


def test_a_diverging_fit_leaves_no_model(call, files, monkeypatch):
    def diverge(*_, **__):
        raise SolverError("the fit diverged in round 3:\nlower the rate")

    monkeypatch.setattr(federation, "fit", diverge)
    assert "round 3: lower" in refused(call, "fit", *files, *ROLES)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A client's rows as a folder of Parquet files, streamed however few they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from agnosticfair.data import files as data_files

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(data_files, "STREAMED", 0)
    Path("north").mkdir()
    for k in range(2):
        rows = [r | {"age": float(r["age"])} for r in client_rows(k)]
        pq.write_table(pa.Table.from_pylist(rows), f"north/{k}.parquet")
    return Path("north")


FIT = (
    "--target",
    "income",
    "--sensitive-features",
    "sex",
    "--method",
    "fairfl",
    "--max-rounds",
    "5",
)


def test_fit_on_a_folder_of_parquet(call, folder):
    write(Path("south.csv"), client_rows(2))
    code, out, _ = call("fit", folder, "south.csv", *FIT, "--json")
    assert code == 0
    found = {entry["client"]: entry["rows"] for entry in json.loads(out)["training_rows"]}
    assert found == {"all rows": 450, "north": 300, "south": 150}


def test_streamed_rows_are_not_read_for_what_nobody_asked_for(call, folder, monkeypatch):
    made = []
    for room, name in ((fits, "certificates"), (record, "run_files")):
        own = getattr(room, name)
        monkeypatch.setattr(room, name, lambda *a, own=own, **k: made.append(own) or own(*a, **k))
    request = (folder, *FIT)
    assert call("fit", *request)[0] == 0
    assert not made
    assert call("fit", *request, "--run", "run")[0] == 0
    assert len(made) == 2


def test_a_truncated_file_in_a_folder_is_named(call, folder):
    (folder / "1.parquet").write_bytes((folder / "1.parquet").read_bytes()[:-50])
    code, _, err = call("fit", folder, *FIT)
    assert (code, err.count("\n")) == (2, 1)
    assert "file '1.parquet' cannot be read" in err


def test_a_device_without_a_rule_or_network_is_refused(call, files):
    code, _, err = call("fit", "north.csv", *FIT, "--method", "fairfl", "--device", "cuda")
    assert (code, err.count("\n")) == (2, 1)
    assert "fairfl" in err


def test_held_out_rows_are_measured_at_once(call, files):
    code, out, err = call("fit", files[0], *ROLES, "--method", "fl", "--test", files[1])
    assert (code, err) == (0, "")
    assert "Held-out rows" in out
    for word in ("majority", "base rate", "positive", "true-positive rate"):
        assert word in out
    code, out, _ = call(
        "fit", files[0], *ROLES, "--method", "fl", "--test", files[1], "--json", "--force"
    )
    told = json.loads(out)
    content_here = json.loads(
        call("evaluate", "model.safetensors", files[1], "--target", "income", "--json")[1]
    )
    assert told["held_out_rows"] == content_here
    assert told["columns"]["age"].startswith("numeric")


def test_nothing_is_written_over_what_is_not_ours(call, files):
    before = files[0].read_bytes()
    assert "the files" in refused(call, "fit", *files, *ROLES, "--out", files[0])
    Path("notes.txt").write_text("mine")
    said = refused(call, "fit", *files, *ROLES, "--out", "notes.txt")
    assert "was not written by agnosticfair" in said
    Path("model-card.md").write_text("mine")
    assert "model-card.md" in refused(call, "fit", *files, *ROLES)
    code, out, _ = call("fit", *files, *ROLES, "--method", "fl", "--force", "--out", "notes.txt")
    assert code == 0
    assert "'notes.txt' holds safetensors" in out
    assert files[0].read_bytes() == before
    assert "one of the files" in refused(call, "predict", "notes.txt", files[0], "--out", files[0])
    assert "one of the files" in refused(call, "export", "notes.txt", "--onnx", "notes.txt")


def test_predictions_beside_columns(call, model, files):
    code, _, _ = call("predict", model, files[0], "--keep", "sex", "--keep", "age")
    assert code == 0
    with Path("predictions.csv").open() as file:
        rows = list(csv.DictReader(file))
    with files[0].open() as file:
        given = list(csv.DictReader(file))
    assert [row["sex"] for row in rows] == [row["sex"] for row in given]
    assert list(rows[0]) == ["sex", "age", "prediction", "probability"]
    assert call("predict", model, files[0], "--keep", "all")[0] == 0
    assert "'nosuch' to keep" in refused(call, "predict", model, files[0], "--keep", "nosuch")


def test_evaluate_by_a_metric(call, model, files):
    code, out, _ = call(
        "evaluate", model, *files, "--target", "income", "--metric", "equalized_odds"
    )
    assert code == 0
    assert "equalized odds" in out
    assert "'fair'" in refused(
        call, "evaluate", model, *files, "--target", "income", "--metric", "fair"
    )


@pytest.mark.usefixtures("seeded_noise")
def test_a_private_fit_writes_a_card_that_says_what_was_spent(files, call, tmp_path):
    columns = ("--target", "income", "--sensitive-features", "sex")
    drafted = ("--outside", "clip", "--out", "agreed.json")
    assert call("schema", *files, *columns, *drafted)[0] == 0
    request = ("--method", "rule", "--schema", "agreed.json", "--epsilon", "200")
    code, out, err = call("fit", *files, *columns, *request)
    assert code == 0, err
    assert "epsilon 200" in out
    for kind in ("md", "html"):
        card = Path(f"model-card.{kind}").read_text()
        assert "epsilon 200" in card
        assert "under noise, at most" in card
    code, _, err = call("fit", *files, *columns, "--epsilon", "3", "--force")
    assert (code, "differential privacy needs --schema" in err) == (2, True)
    code, _, err = call("fit", *files, *columns, "--epsilon", "0", "--force")
    assert (code, "epsilon is 0" in err) == (2, True)
    code, out, err = call("fit", *files, *columns, *request, "--site-rows", "50", "--force")
    assert (code, "kept for" in err) == (2, True)
    whole = ("--site-rows", "50", "--force", "--ledgers", "whole")
    code, out, err = call("fit", *files, *columns, *request, *whole)
    assert code == 0, err
    assert "most 50 rows" in out
