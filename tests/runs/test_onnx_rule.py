"""The ONNX graph of a rule decides as the model does, to the bit, and refuses what it cannot know."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.data.datasets import load_dataset
from agnosticfair.data.table import Column
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import by_client, subgroups
from agnosticfair.methods import method
from agnosticfair.runs.export import to_onnx

onnxruntime = pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")
onnxruntime.set_default_logger_severity(4)


def ran(model, table):
    content = to_onnx(model).SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    kinds = (table.categorical, table.other, table.sensitive_features)
    columns = {**table.numeric, **{k: c.values() for kind in kinds for k, c in kind.items()}}
    wanted = {i.name for i in session.get_inputs()}
    return session.run(None, {k: v for k, v in columns.items() if k in wanted})


def check(model, table):
    prediction, probability, decision = ran(model, table)
    np.testing.assert_allclose(probability, model.probabilities(table), rtol=0, atol=1e-12)
    np.testing.assert_allclose(decision, model.decision(table), rtol=0, atol=1e-12)
    labels = np.array([model.negative, model.positive], dtype=object)
    np.testing.assert_array_equal(prediction, labels[model.predict(table)])


@pytest.mark.parametrize(
    "learner",
    ["linear", *(pytest.param(k, marks=pytest.mark.slow) for k in ("additive", "trees"))],
)
def test_every_row_of_adult_is_decided_as_by_the_model(learner):
    adult = load_dataset("adult")
    chosen_method = method("rule", learner=learner, tau=0.05)
    model = fit({"all": adult.take(np.arange(3000))}, chosen_method, sensitive_features="sex").model
    assert model.rule.coefficients[:-1].any(), "subgroups matter"
    seen = np.all(
        [
            adult.categorical[name].aligned(values) >= 0
            for name, values in model.encoding.categorical
        ],
        axis=0,
    )
    check(model, adult.take(np.flatnonzero(seen)[:: 2 if learner == "trees" else 1]))


def three_groups(n, seed):
    rows = small_table(n, seed)
    group = Column.of(np.random.default_rng(seed).choice(["a", "b", "c"], n))
    return replace(rows, sensitive_features={"sex": group})


@pytest.mark.parametrize(
    ("rows", "changes"),
    [
        (small_table(400, 1), {"metric": "equalized_odds"}),
        (three_groups(600, 2), {}),
        (small_table(400, 1), {"basis": subgroups(depth=3)}),
        (small_table(400, 1), {"costs": (1.0, 3.0), "positive_rate": (0.1, 0.3)}),
    ],
    ids=["labels", "three groups", "three values", "costs"],
)
def test_every_kind_of_rule_decides_as_the_model_does(rows, changes):
    chosen_method = method("rule", learner="linear", tau=0.02, min_people=2, **changes)
    model = fit(dealt(rows, 2), chosen_method).model
    A = np.random.default_rng(0).normal(size=model.rule.coefficients.shape) / 8
    check(replace(model, rule=replace(model.rule, coefficients=A)), rows)


def test_given_probabilities_are_inputs_and_others_are_refused():
    rows = small_table(400, 3)
    p = np.random.default_rng(0).uniform(size=len(rows))
    rows = replace(rows, numeric={**rows.numeric, "p": p})
    model = fit(dealt(rows, 2), method("rule", probability=("p",), tau=0.02)).model
    check(model, rows)
    bad = replace(rows, numeric={**rows.numeric, "p": p + 1})
    with pytest.raises(DataError, match="no probability"):
        model.predict(bad)
    with pytest.raises(Exception, match=r"'p'.*probability"):
        ran(model, bad)


def test_a_column_that_names_subgroups_and_is_no_feature_is_an_input():
    rows = small_table(400, 3)
    other = Column.of(np.random.default_rng(1).choice(["n", "s"], len(rows)))
    rows = replace(rows, other={**rows.other, "region": other})
    chosen_method = method("rule", learner="linear", tau=0.02, min_people=2, subgroups_by="region")
    model = fit(dealt(rows, 2), chosen_method).model
    A = np.random.default_rng(0).normal(size=model.rule.coefficients.shape) / 8
    check(replace(model, rule=replace(model.rule, coefficients=A)), rows)


def test_what_a_graph_cannot_know_is_refused():
    rows = small_table(400, 3)
    made = fit(dealt(rows, 2), method("rule", learner="linear", min_people=2)).model
    with pytest.raises(SettingsError, match=r"feature itself \(aware\)"):
        to_onnx(replace(made, estimates=replace(made.estimates, aware=True)))
    with pytest.raises(SettingsError, match=r"'network'.*ONNX"):
        to_onnx(replace(made, estimates=replace(made.estimates, kind="network")))
    worst = replace(made.rule, weights=np.ones(len(made.rule.coefficients)))
    with pytest.raises(SettingsError, match=r"ONNX.*graph"):
        to_onnx(replace(made, rule=worst))
    chosen_method = method("rule", learner="linear", min_people=2, subgroups_by="site")
    with pytest.raises(SettingsError, match="subgroups by site"):
        to_onnx(fit(dealt(rows, 2), chosen_method).model)
    chosen_method = method("rule", learner="linear", basis=by_client())
    with pytest.raises(SettingsError, match="over kernels"):
        to_onnx(fit(dealt(rows, 2), chosen_method).model)
