"""Subgroups from the summaries to the model: which columns name them, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.data.table import Column
from agnosticfair.errors import SettingsError
from agnosticfair.estimator.classifier import AgnosticFairClassifier
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import subgroups
from agnosticfair.mathematics.subgroups import subgroup_name
from agnosticfair.methods import Fairness, Method, method

ROWS = small_table(400, 5)


def named_method(**changes):
    return method("rule", **{"learner": "linear", "min_people": 5.0, **changes})


def subgroup_names(fitted):
    axes, subgroups = fitted.subgroups.agreed
    return [subgroup_name(axes, subgroup) for subgroup in subgroups]


def test_subgroups_need_a_rule():
    method = Method("x", fairness=Fairness(0.1, basis=subgroups(), each=True))
    with pytest.raises(SettingsError, match="no rule"):
        fit({"one": ROWS}, method, positive="yes")


def test_subgroups_are_of_three_values():
    fitted = fit(dealt(ROWS, 2), named_method(basis=subgroups(depth=3)), positive="yes")
    names = subgroup_names(fitted)
    assert len(set(names)) == len(names)
    assert any(name.count(" and ") == 2 for name in names)


def test_sites_are_a_column():
    method = named_method(basis=subgroups(columns=("site",), depth=1))
    names = subgroup_names(fit(dealt(ROWS, 2), method, positive="yes"))
    assert all(name.startswith("site = ") for name in names)


def test_columns_that_are_no_features_name_subgroups():
    town = Column(np.random.default_rng(1).integers(0, 3, len(ROWS)).astype(np.int32), tuple("xyz"))
    rows = replace(ROWS, other={"town": town})
    request = named_method(basis=subgroups(columns=("*", "town"), min_share=0.05))
    one, three = (fit(t, request, positive="yes") for t in ({"one": rows}, dealt(rows, 3)))
    np.testing.assert_array_equal(one.model.decision(rows), three.model.decision(rows))
    masked = fit(dealt(rows, 3), request, positive="yes", secure=True)
    np.testing.assert_array_equal(one.model.decision(rows), masked.model.decision(rows))
    assert all("town" not in name for name in one.model.encoding.names)
    names = subgroup_names(one)
    assert "town = x" in names
    assert any(name.startswith("age ") for name in names)
    plain = fit({"one": rows}, named_method(), positive="yes")
    assert not any("town" in name for name in subgroup_names(plain))


def test_a_column_that_one_client_lacks_names_no_subgroup():
    town = Column(np.zeros(len(ROWS), np.int32), ("x",))
    tables = {"a": replace(ROWS, other={"town": town}), "b": ROWS}
    request = named_method(basis=subgroups(columns=("*", "town")))
    with pytest.raises(SettingsError, match=r"'town'.*200 values"):
        fit(tables, request, positive="yes")


@pytest.mark.parametrize(
    ("basis", "says"),
    [
        ({"columns": ("hair",)}, "'hair'.*200 values"),
        ({"depth": 4}, "depth 4"),
        ({"min_share": -1.0}, "min_share is -1.0"),
        ({"bins": 0}, "bins is 0"),
    ],
)
def test_a_set_that_cannot_be_is_refused(basis, says):
    with pytest.raises(SettingsError, match=says):
        fit({"one": ROWS}, named_method(basis=subgroups(**basis)), positive="yes")


def test_a_blind_rule_has_no_subgroups_of_the_sensitive_feature():
    method = named_method(basis=subgroups(("job", "sex"), depth=1))
    with pytest.raises(SettingsError, match="'sex'"):
        fit({"one": ROWS}, method, positive="yes")


def test_a_column_of_a_thousand_values_names_no_subgroup():
    ids = replace(ROWS, categorical={**ROWS.categorical, "id": Column.of(range(len(ROWS)))})
    fitted = fit({"one": ids}, named_method(), positive="yes")
    assert "id" not in [axis.name for axis in fitted.subgroups.agreed[0]]
    with pytest.raises(SettingsError, match=f"'id'.*{len(ROWS)}"):
        fit({"one": ids}, named_method(subgroups_by=("id",)), positive="yes")


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan")])
def test_a_limit_that_says_nothing_is_refused(tau):
    with pytest.raises(SettingsError, match="tau is"):
        named_method(tau=tau)


def people(n=600):
    """A frame with a number, a text, a column that is no feature, and groups and labels beside it."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    age, job = rng.uniform(20, 60, n), rng.choice(["a", "b", "c"], n)
    s = rng.integers(0, 2, n)
    y = age + 20 * s + 10 * rng.normal(size=n) > 50
    return pd.DataFrame({"age": age, "job": job, "town": rng.choice(["x", "y"], n)}), y, s


def inside(X, name):
    """The rows of a subgroup by its name."""
    rows = np.ones(len(X), bool)
    for one in name.split(" and "):
        column, value = one.split(" = ")
        if column != "age":
            rows &= X[column] == value
        elif value.endswith(" or more"):
            rows &= X["age"] >= float(value.split(" ")[0])
        else:
            low, _, high = value.removeprefix("under ").rpartition(" to ")
            rows &= (X["age"] >= float(low or -np.inf)) & (X["age"] < float(high))
    return rows


def test_the_estimator_names_subgroups_in_the_columns_names_and_units():
    X, y, s = people()
    fair = AgnosticFairClassifier(tau=0.1, subgroups_by="town").fit(X, y, sensitive_features=s)
    assert fair.fit_.method.name == "rule"
    named_, decided = dict(fair.trained_subgroups_), fair.predict(X)
    assert {name.split(" = ")[0] for name in named_} <= {"age", "job", "town"}
    for name, worst in named_.items():
        rows = inside(X, name)
        rates = [decided[rows & (s == g)] for g in (0, 1)]
        error = np.sqrt(sum(0.25 / len(rate) for rate in rates))
        counted = abs(rates[1].mean() - rates[0].mean())
        assert abs(counted - worst) < 4 * error  # estimated, and counted on these rows
    assert np.isfinite(fair.certificate_.worst_difference)
    other = X.assign(town=X["town"].where(np.arange(len(X)) % 2 == 0, "elsewhere"))
    assert np.isfinite(fair.audit(other, y, sensitive_features=s).worst_difference)
    np.testing.assert_array_equal(fair.predict(other), decided)


@pytest.mark.parametrize(
    ("columns", "starts"),
    [(("job",), ("job",)), (("site",), ("site",))],
)
def test_the_estimator_takes_columns_by_their_names(columns, starts):
    X, y, s = people(300)
    fair = AgnosticFairClassifier(basis=subgroups(columns, depth=1), subgroups_by=["town"])
    owners = np.where(np.arange(300) % 2 == 0, "north", "south")
    fair.fit(X, y, sensitive_features={"sex": s}, clients=owners)
    assert {name.split(" = ")[0] for name, _ in fair.trained_subgroups_} <= {*starts, "town"}
    assert {axis.name.removeprefix("column ") for axis in fair.fit_.subgroups.agreed[0]} <= {
        *starts,
        "town",
        "x0",
    }
    assert np.isfinite(fair.certificate_.worst_difference)


def test_columns_that_cannot_name_subgroups_are_refused_by_the_estimator():
    X, y, s = people(200)
    for made, says in (
        (
            {"basis": subgroups(("hair",))},
            "no column 'hair' to name subgroups by; there are 'age'",
        ),
        ({"method": "fairfl", "subgroups_by": "town"}, "subgroups_by has no meaning"),
        (
            {"subgroups_by": "sex", "sensitive_columns": "sex"},
            "is among sensitive_columns and subgroups_by",
        ),
    ):
        with pytest.raises(SettingsError, match=says):
            AgnosticFairClassifier(**made).fit(X, y, sensitive_features=s)
