"""The ONNX graph, run by onnxruntime on raw columns, decides as the model does and refuses what it does."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.cli import main
from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.methods import Network, method
from agnosticfair.runs.export import graph_of, to_onnx

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
onnxruntime.set_default_logger_severity(4)  # errors are raised; no need to print them, too

ROWS = small_table(200, 4)
MODEL = fit(dealt(ROWS, 2), "fairfl", positive="yes").model
AGREES = 1e-13
"""Of distances, relative to the largest: float64 sums of about 40 terms in another order."""


def session(made):
    content = made if isinstance(made, bytes) else made.SerializeToString()
    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def columns(table):
    """The raw columns, as a user has them."""
    return {**table.numeric, **{name: c.values() for name, c in table.categorical.items()}}


def check_agreement(model, table, made):
    wanted = {i.name for i in session(made).get_inputs()}
    feed = {name: values for name, values in columns(table).items() if name in wanted}
    prediction, probability, decision = session(made).run(None, feed)
    d = model.decision(table)
    assert np.abs(decision - d).max() <= AGREES * np.abs(d).max()
    np.testing.assert_allclose(probability, model.probabilities(table), rtol=0, atol=1e-12)
    labels = np.array([model.negative, model.positive], dtype=object)
    np.testing.assert_array_equal(prediction, labels[model.predict(table)])


def test_bins_decide_as_the_model_does():
    name, low, high = MODEL.encoding.numeric[0]
    edges = (low + 0.25 * (high - low), (low + high) / 2)
    encoding = replace(MODEL.encoding, bins=((name, edges),))
    w = np.concatenate([MODEL.w[:-1], [1.0, -2.0, 3.0], MODEL.w[-1:]])
    model = replace(MODEL, w=w, encoding=encoding)
    check_agreement(model, ROWS, to_onnx(model))
    at_edge = replace(ROWS, numeric={**ROWS.numeric, name: np.full(len(ROWS), edges[1])})
    check_agreement(model, at_edge, to_onnx(model))


@pytest.mark.parametrize("name", ["mlp", "linear"])
def test_a_network_decides_as_it_does_here(name):
    """In float32 here and in float64 there: distances agree to 1e-5, and decisions away from zero."""
    pytest.importorskip("torch", reason="the extra 'torch' is not installed")
    net = Network(name, (6, 4), steps=5)
    model = fit(dealt(ROWS, 2), method("fl", network=net, max_rounds=3), positive="yes").model
    prediction, _, decision = session(to_onnx(model)).run(None, columns(ROWS))
    d = model.decision(ROWS)
    np.testing.assert_allclose(decision, d, rtol=0, atol=1e-5 * np.abs(d).max())
    clear = np.abs(d) > 1e-4
    assert clear.sum() > 100
    np.testing.assert_array_equal((prediction == "yes")[clear], d[clear] > 0)
    with pytest.raises(SettingsError, match="is your own"):
        to_onnx(replace(model, network={"name": "thin", "hidden": ()}))


def test_it_decides_as_the_model_does():
    check_agreement(MODEL, ROWS, to_onnx(MODEL))


def test_it_decides_as_the_model_does_on_every_row(adult):
    model = fit({"all": adult}, "fairfl", positive=">50K").model
    check_agreement(model, adult, to_onnx(model))


def test_far_from_the_training_rows_features_are_the_same_bits():
    """Beyond the range, on the grid's ties, where a column was constant, and unscaled."""
    v = np.array([-7.0, 0.0, 1.5 * 2.0**-20, 2.5 * 2.0**-20, 0.1, 1e6 / 3])
    table = Table({"v": v, "c": v}, {"job": Column.of("aabbab")}, None, {})
    for scale in (True, False):
        encoding = Encoding((("v", 0.0, 1.0), ("c", 3.0, 3.0)), (("job", ("a", "b", "c")),), scale)
        for j in range(encoding.width):
            picks = np.eye(encoding.width)[:, [j]]
            made = graph_of(encoding, [(picks, np.zeros(1))], {"positive": "1", "negative": "0"})
            got = session(made).run(["decision"], columns(table))[0]
            np.testing.assert_array_equal(got, encode(encoding, table)[:, j])


def test_layers_follow_the_same_encoding():
    rng = np.random.default_rng(0)
    X = encode(MODEL.encoding, ROWS)
    layers = [
        (rng.normal(size=s), rng.normal(size=s[1])) for s in ((X.shape[1], 4), (4, 3), (3, 1))
    ]
    made = graph_of(MODEL.encoding, layers, {"positive": "yes", "negative": "no"})
    for k, (W, b) in enumerate(layers):
        X = X / (1 + np.exp(-X)) @ W + b if k else X @ W + b
    got = session(made).run(["decision"], columns(ROWS))[0]
    np.testing.assert_allclose(got, X[:, 0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("column", "value", "says"),
    [
        ("job", "pilot", "'job'.*unseen"),
        ("job", "", "'job'.*unseen"),
        ("age", np.nan, "'age'.*missing"),
        ("age", -np.inf, "'age'.*infinite"),
        ("age", 1e101, "'age'.*infinite"),
    ],
)
def test_it_refuses_what_the_model_refuses(column, value, says):
    values = columns(ROWS)[column].copy()
    values[17] = value
    changed = {"numeric": {**ROWS.numeric, "age": values}}
    if column == "job":
        changed = {"categorical": {"job": Column.of(values)}}
    with pytest.raises(DataError, match=column):
        MODEL.predict(replace(ROWS, **changed))
    with pytest.raises(Exception, match=says):
        session(to_onnx(MODEL)).run(None, columns(ROWS) | {column: values})


def test_columns_may_have_any_name():
    names = {"age": "prediction", "hours": "constant 0"}
    numeric = {names[k]: v for k, v in ROWS.numeric.items()}
    table = replace(ROWS, numeric=numeric, categorical={"Gather 3": ROWS.categorical["job"]})
    model = fit(dealt(table, 2), "fl", positive="yes").model
    made = to_onnx(model)
    assert [o.name for o in made.graph.output] == ["prediction_", "probability", "decision"]
    check_agreement(model, table, made)


def test_the_command_writes_a_file_that_says_what_it_is(tmp_path, capsys):
    MODEL.save(tmp_path / "m.safetensors")
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path / "m.safetensors"), "--onnx", str(tmp_path / "m.onnx")])
    assert ended.value.code == 0
    assert "outputs prediction" in capsys.readouterr().out
    content = (tmp_path / "m.onnx").read_bytes()
    check_agreement(MODEL, ROWS, content)
    about = session(content).get_modelmeta().custom_metadata_map
    assert (about["positive"], about["sensitive_feature"], about["method"]) == (
        "yes",
        "sex",
        "fairfl",
    )


def test_without_the_package_a_sentence_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "onnx", None)
    MODEL.save(tmp_path / "m.safetensors")
    with pytest.raises(SystemExit) as ended:
        main(["export", str(tmp_path / "m.safetensors"), "--onnx", str(tmp_path / "m.onnx")])
    assert ended.value.code == 2
    assert "agnosticfair[onnx]" in capsys.readouterr().err
