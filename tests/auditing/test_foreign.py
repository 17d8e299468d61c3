"""Models of others: pipelines over frames with texts, pickles, ONNX graphs, probabilities of two columns."""

import json
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from helpers import client_rows, refused, write
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import agnosticfair
from agnosticfair.data.files import Roles, read_clients
from agnosticfair.runs.export import to_onnx

ROLES = ("--target", "income", "--sensitive-features", "sex")


def fitted(frame, target):
    """A pipeline as people write it: it reads a frame, texts and the group's column included."""
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["job", "sex"]), remainder="passthrough"
    )
    return make_pipeline(columns, LogisticRegression()).fit(frame[["age", "job", "sex"]], target)


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """A file to audit on, in the current folder, with a second group; and the frame it is."""
    monkeypatch.chdir(tmp_path)
    town = {"town": lambda i, r: ["hill", "dale", "moor"][i % 3]}
    write(Path("rows.csv"), client_rows(5, 1200), **town)
    return pd.read_csv("rows.csv")


def certificate(folder="audit"):
    return json.loads(Path(folder, "certificate.json").read_text())


def test_a_pipeline_over_a_frame_with_texts_is_audited(rows):
    model, sex = fitted(rows, rows["income"]), rows["sex"]
    X, y = rows[["age", "job", "sex"]], rows["income"]
    certificate = agnosticfair.audit(model, X, y, sensitive_features=sex)
    decided = (model.predict(X) == "yes").astype(int)
    plain = agnosticfair.audit(decided, X, y, sensitive_features=sex)
    rates = [decided[sex == g].mean() for g in "FM"]
    assert certificate.difference == pytest.approx(abs(rates[0] - rates[1]))
    assert (certificate.upper, certificate.accuracy) == (plain.upper, plain.accuracy)


@pytest.mark.parametrize("bits", [False, True])
def test_probabilities_of_two_columns_are_those_of_the_labels_in_order(rows, bits):
    y = rows["income"] == "yes" if bits else rows["income"]
    model, X = fitted(rows, y), rows[["age", "job", "sex"]]
    send = {"sensitive_features": rows["sex"]}
    certificate = agnosticfair.audit(model.predict_proba(X), X, y, **send)
    assert certificate.accuracy == agnosticfair.audit(model, X, y, **send).accuracy
    one = agnosticfair.audit(model.predict_proba(X)[:, 1], X, y, **send)
    assert certificate.difference == one.difference


def test_a_model_of_0_and_1_is_read_beside_labels_in_words(rows):
    model, X = fitted(rows, (rows["income"] == "yes").astype(int)), rows[["age", "job", "sex"]]
    certificate = agnosticfair.audit(model, X, rows["income"], sensitive_features=rows["sex"])
    assert certificate.accuracy == pytest.approx(model.score(X, rows["income"] == "yes"))


def test_predictions_that_are_true_and_false_are_labels_of_these_names(rows):
    y = rows["income"] == "yes"
    send = {"sensitive_features": rows["sex"], "positive": "False"}
    certificate = agnosticfair.audit(y.to_numpy(), rows[["age"]], y.astype(str).to_numpy(), **send)
    assert certificate.accuracy == 1.0


@pytest.mark.parametrize("send", [{}, {"basis": agnosticfair.gaussian(20)}])
def test_units_do_not_change_a_certificate(rows, send):
    X, s, y = rows[["age"]].to_numpy(), rows["sex"], rows["income"]
    d = X[:, 0] > 40
    found = [
        agnosticfair.audit(d, unit * X + low, y, sensitive_features=s, **send)
        for unit, low in ((1.0, 0.0), (12.0, 0.0), (1.8, 32.0))
    ]
    assert len({(made.upper, made.worst_difference) for made in found}) == 1


def test_the_command_reads_a_pickle_only_where_its_code_is_trusted(call, rows):
    joblib.dump(fitted(rows, rows["income"]), "theirs.joblib")
    request = ("audit", "rows.csv", *ROLES, "--model", "theirs.joblib")
    said = refused(call, *request)
    assert "whoever wrote" in said
    assert "--trust-code" in said
    code, out, err = call(*request, "--trust-code")
    assert code == 0
    assert "'theirs.joblib' runs the code" in err
    assert "true-positive rates: F" in out
    model = joblib.load("theirs.joblib")
    decided = (model.predict(rows[["age", "job", "sex"]]) == "yes").astype(int)
    rows.assign(decided=decided).to_csv("decided.csv", index=False)
    theirs = certificate()
    assert call("audit", "decided.csv", *ROLES, "--predictions", "decided")[0] == 0
    ours = certificate()
    assert (theirs["upper"], theirs["accuracy"]) == (ours["upper"], ours["accuracy"])
    assert theirs["method"] == "theirs.joblib"


def test_a_threshold_asks_a_classifier_for_probabilities(call, rows):
    for target in (rows["income"], (rows["income"] == "yes").astype(int)):
        model = fitted(rows, target)
        joblib.dump(model, "theirs.joblib")
        request = ("--model", "theirs.joblib", "--trust-code", "--threshold", 0.8)
        assert call("audit", "rows.csv", *ROLES, *request)[0] == 0
        p = model.predict_proba(rows[["age", "job", "sex"]])[:, 1] > 0.8
        assert certificate()["accuracy"] == pytest.approx(np.mean(p == (rows["income"] == "yes")))


def test_an_onnx_file_is_audited_as_the_model_it_was_made_of(call, rows):
    write(Path("train.csv"), client_rows(6, 600))
    fit = agnosticfair.fit(read_clients(["train.csv"], Roles("income", ("sex",))), "fl")
    Path("ours.onnx").write_bytes(to_onnx(fit.model).SerializeToString())
    fit.model.save("ours.safetensors")
    found = []
    for name in ("ours.onnx", "ours.safetensors"):
        assert call("audit", "rows.csv", *ROLES, "--model", name, "--columns", "job")[0] == 0
        found.append({k: certificate()[k] for k in ("upper", "accuracy", "difference")})
    assert found[0] == found[1]


def test_an_onnx_file_may_take_all_columns_as_one(call, rows):
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.array([[1.0], [0.0]], np.float32), "w")
    minimum = numpy_helper.from_array(np.array([40.0], np.float32), "b")
    nodes = [
        helper.make_node("MatMul", ["X", "w"], ["d"]),
        helper.make_node("Greater", ["d", "b"], ["above"]),
        helper.make_node("Cast", ["above"], ["label"], to=TensorProto.INT64),
    ]
    X = helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 2])
    y = helper.make_tensor_value_info("label", TensorProto.INT64, [None, 1])
    graph = helper.make_graph(nodes, "g", [X], [y], [weight, minimum])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    Path("g.onnx").write_bytes(made.SerializeToString())
    numbers = rows.assign(hours=1.0)[["age", "hours"]]
    numbers.assign(income=rows["income"]).to_csv("n.csv", index=False)
    request = ("audit", "n.csv", "--target", "income", "--sensitive-features", "hours")
    assert "one group" in refused(call, *request, "--model", "g.onnx")
    numbers.assign(hours=lambda f: f.index % 2, income=rows["income"]).to_csv("n.csv", index=False)
    assert call(*request, "--model", "g.onnx", "--positive", "yes")[0] == 0
    expected = np.mean((numbers["age"] > 40) == (rows["income"] == "yes"))
    assert certificate()["accuracy"] == pytest.approx(expected, abs=1e-3)


def test_several_sensitive_features_have_certificates_that_hold_together(call, rows):
    joblib.dump(fitted(rows, rows["income"]), "theirs.joblib")
    request = ("--sensitive-features", "town", "--model", "theirs.joblib", "--trust-code")
    code, out, _ = call("audit", "rows.csv", *ROLES, *request, "--json")
    assert code == 0
    content = json.loads(out)
    assert [*content] == ["sex", "town"]
    for name in content:
        assert certificate(f"audit/{name}") == content[name]
        assert content[name]["confidence"] == pytest.approx(0.975)
    assert call("verify", "audit/town/certificate.json")[0] == 0
    assert call("report", "audit/sex", "audit/town")[0] == 0
    assert call("audit", "rows.csv", *ROLES, *request, "--intersections", "--out", "both")[0] == 0
    assert next(iter(certificate("both")["groups"])) == "F & dale"


BAD = {
    "nosuch.onnx": (None, "no model file 'nosuch.onnx'"),
    "text.onnx": (b"hello", "is no ONNX model"),
    "text.joblib": (b"hello", "cannot be read"),
    "list.joblib": ([1, 2], "holds a list, which does not predict"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_model_is_one_sentence(call, rows, name):
    content, words = BAD[name]
    if isinstance(content, bytes):
        Path(name).write_bytes(content)
    elif content is not None:
        joblib.dump(content, name)
    assert words in refused(call, "audit", "rows.csv", *ROLES, "--model", name, "--trust-code")


def test_a_model_that_cannot_decide_on_the_rows_says_why(call, rows):
    joblib.dump(fitted(rows, rows["income"]), "theirs.joblib")
    request = ("--model", "theirs.joblib", "--trust-code")
    rows.drop(columns="job").to_csv("less.csv", index=False)
    code, _, err = call("audit", "less.csv", *ROLES, *request)
    assert (code, "column 'job'" in err) == (2, True)
    rows.assign(age="old").to_csv("old.csv", index=False)
    code, _, err = call("audit", "old.csv", *ROLES, *request)
    assert code == 2
    assert "cannot decide" in err
    assert "Traceback" not in err
