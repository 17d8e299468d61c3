"""The product on the Dutch census, which is not shipped."""

import numpy as np
import pandas as pd
import pytest

from agnosticfair import AgnosticFairClassifier, fit, method
from agnosticfair.data.encoding import encode
from agnosticfair.runs.export import to_onnx
from agnosticfair_research.datasets import dataset
from agnosticfair_research.splits import shift

DUTCH = dataset("dutch")
METHOD = method("agnosticfair", tau=DUTCH.tau, centres="rows")


@pytest.mark.slow
def test_few_rounds_and_one_model_for_any_number_of_clients(dutch):
    fits = [
        fit(shift(dutch, DUTCH, clients, 0).train, METHOD, positive=DUTCH.positive, strict=True)
        for clients in (2, 10, 100)
    ]
    assert max(found.rounds for found in fits) <= 30
    for found in fits[1:]:
        np.testing.assert_allclose(found.model.w, fits[0].model.w, atol=1e-6)


def ordered(X):
    """Columns whose names sort as they stand, for a file's columns are sorted by name."""
    return pd.DataFrame(X, columns=[f"x{j:03}" for j in range(X.shape[1])])


@pytest.mark.slow
def test_it_is_the_same_through_the_estimator_as_through_tables(dutch):
    split = shift(dutch, DUTCH)
    bare = fit(split.train, METHOD, sensitive_features="sex", positive=DUTCH.positive)
    tables = split.train.values()
    X = ordered(np.vstack([encode(bare.model.encoding, t) for t in tables]))
    y = np.concatenate([t.labels(DUTCH.positive) for t in tables])
    s = np.concatenate([t.column("sex").values() for t in tables])
    owners = np.repeat([*split.train], [len(t) for t in tables])
    ours = AgnosticFairClassifier(METHOD).fit(X, y, sensitive_features=s, clients=owners)
    found = ours.decision_function(ordered(encode(bare.model.encoding, split.test)))
    np.testing.assert_allclose(found, bare.model.decision(split.test), atol=1e-6)


@pytest.mark.slow
def test_its_onnx_graph_decides_as_the_model_does_on_every_row(dutch):
    runtime = pytest.importorskip("onnxruntime")
    model = fit({"all": dutch}, "fairfl", positive=DUTCH.positive).model
    columns = {**dutch.numeric, **{name: c.values() for name, c in dutch.categorical.items()}}
    session = runtime.InferenceSession(to_onnx(model).SerializeToString())
    wanted = [given.name for given in session.get_inputs()]
    (found,) = session.run(["decision"], {name: columns[name] for name in wanted})
    d = model.decision(dutch)
    assert np.abs(found - d).max() <= 1e-13 * np.abs(d).max()
    np.testing.assert_array_equal(found > 0, model.predict(dutch) > 0)
