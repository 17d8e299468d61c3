"""Trees as an ONNX graph: onnxruntime decides as the model does, on every row, missing and new values among them."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from agnosticfair import load_dataset
from agnosticfair.data.table import Column
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.runs.export import to_onnx


@pytest.fixture(scope="module")
def rows():
    return load_dataset("adult").take(np.arange(3000))


@pytest.fixture(scope="module")
def model(rows):
    return fit(
        {"all": rows.take(np.arange(1000))}, method("fl", learner="trees", costs=(1, 2))
    ).model


def ran(model, table):
    content = to_onnx(model).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    columns = {**table.numeric, **{k: c.values() for k, c in table.categorical.items()}}
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in columns.items() if k in wanted})


def check(model, table):
    prediction, probability, decision = ran(model, table)
    np.testing.assert_allclose(probability, model.probabilities(table), rtol=0, atol=1e-12)
    np.testing.assert_allclose(decision, model.decision(table), rtol=0, atol=1e-12)
    labels = np.array([model.negative, model.positive], dtype=object)
    sure = np.abs(model.decision(table)) > 1e-5
    assert sure.mean() > 0.99
    np.testing.assert_array_equal(prediction[sure], labels[model.predict(table)][sure])


def test_onnxruntime_decides_as_the_model_does(model, rows):
    assert {*model.estimates.arrays["forests"].tolist()}  # there are trees
    check(model, rows)


def test_missing_numbers_and_new_categories_go_where_the_trees_send_them(model, rows):
    numeric = {k: v.copy() for k, v in rows.numeric.items()}
    for k, values in enumerate(numeric.values()):
        values[k::7] = np.nan
        values[k + 1 :: 11] = np.inf
    words = rows.categorical["workclass"].values()
    words[::5] = "never seen"
    categorical = {**rows.categorical, "workclass": Column.of(words)}
    check(model, replace(rows, numeric=numeric, categorical=categorical))
