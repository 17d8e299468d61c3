"""Missing numbers: at training, in subgroups, files, models, schemas and ONNX graphs; and who refuses them."""

import json
from dataclasses import replace

import numpy as np
import pytest

from agnosticfair import fit, load_model, method
from agnosticfair.data.axes import axes_of, codes_of, histogram
from agnosticfair.data.columns import Roles
from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.files import read_table
from agnosticfair.data.rows import folds_by_features
from agnosticfair.data.schema import applied, brought, load_schema, schema_of, under
from agnosticfair.data.summary import SummaryStatistics, encoding_of, merge, summary_statistics
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError
from agnosticfair.learners.estimates import predict
from agnosticfair.runs.export import to_onnx

LEARNERS = ["additive", "trees"]


def drawn(n=600, seed=0, empty=True):
    """Rows whose pay is missing where that tells of the label, and a column that nobody has."""
    r = np.random.default_rng(seed)
    age, pay = r.integers(18, 80, n).astype(float), r.normal(size=n).round(2)
    gone = r.random(n) < 0.3
    y = age / 40 + pay + 2 * gone + r.normal(size=n) > 2
    pay[gone] = np.nan
    columns = {"age": age, "pay": pay} | ({"none": np.full(n, np.nan)} if empty else {})
    job = Column.of(r.choice(["a", "b"], n))
    sex = Column.of(np.where(r.random(n) < 0.5, "F", "M"))
    return Table(columns, {"job": job}, Column.of(np.where(y, "yes", "no")), {"sex": sex})


def dealt(table, clients):
    owner = np.arange(len(table)) % clients
    return {f"s{k}": table.take(owner == k) for k in range(clients)}


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("learner", LEARNERS)
def test_any_split_gives_the_same_model(learner, tmp_path):
    rows = drawn()
    chosen_method = method("fl", learner=learner)
    one = fit({"all": rows}, chosen_method).model
    # the last site lacks every pay
    order = np.argsort(np.isnan(rows.numeric["pay"]), kind="stable")
    sites = {f"s{k}": rows.take(own) for k, own in enumerate(np.array_split(order, 4))}
    assert np.isnan(sites["s3"].numeric["pay"]).all()
    for other in (fit(sites, chosen_method), fit(sites, chosen_method, secure=True)):
        assert other.model.digest == one.digest
    one.save(tmp_path / "m.json")
    again = load_model(tmp_path / "m.json")
    assert again.digest == one.digest
    p = again.probabilities(rows)
    gone = np.isnan(rows.numeric["pay"])
    assert p[gone].mean() > p[~gone].mean() + 0.1  # that a number is missing tells


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("learner", LEARNERS)
def test_a_rule_has_subgroups_of_those_who_lack_a_number(learner):
    rows = drawn(1500)
    fitted = fit(dealt(rows, 2), method("rule", learner=learner, tau=0.1, min_people=5))
    axes = {axis.name: axis for axis in fitted.model.rule.subgroups.agreed[0]}
    assert axes["pay"].values[-1] == "missing"
    assert "none" not in axes or axes["none"].values == ("known", "missing")
    assert fitted.model.digest == fit({"a": rows}, fitted.method).model.digest


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_graph_has_the_same_bits(learner):
    onnxruntime = pytest.importorskip("onnxruntime")
    rows = drawn(1500)
    model = fit({"a": rows}, method("rule", learner=learner, tau=0.1, min_people=5)).model
    graph = onnxruntime.InferenceSession(to_onnx(model).SerializeToString())
    given = {**rows.numeric, "job": rows.categorical["job"].values()}
    request = {i.name: given[i.name] for i in graph.get_inputs()}
    prediction, probability, _ = graph.run(None, request)
    assert np.array_equal(probability, model.probabilities(rows))
    assert np.array_equal(prediction == "yes", model.predict(rows))


@pytest.mark.parametrize(
    "method",
    [method("fl"), method("fl", learner="linear"), method("fairfl"), method("agnosticfair")],
)
def test_others_name_the_column_and_the_remedy(method):
    with pytest.raises(DataError, match=r"'none'.*'trees'"):
        fit({"a": drawn()}, method)


def test_what_a_client_says_of_missing_numbers():
    rows = drawn(50)
    statistics = summary_statistics(rows, "a")
    assert statistics.missing == ("none", "pay")
    assert SummaryStatistics.from_json(json.loads(json.dumps(statistics.to_json()))) == statistics
    full = summary_statistics(rows.take(~np.isnan(rows.numeric["pay"])), "b")
    assert merge({"a": statistics, "b": full}).numeric["pay"] == full.numeric["pay"]
    encoding = encoding_of(statistics)
    assert ("none", 0.0, 0.0) in encoding.numeric
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding
    for wrong in (
        {"missing": ["job"]},
        {"numeric": {**statistics.to_json()["numeric"], "age": [9, 1]}},
    ):
        with pytest.raises(Exception, match="damaged"):
            SummaryStatistics.from_json({**statistics.to_json(), **wrong})


def test_an_additive_row_has_a_bin_of_its_own():
    encoding = Encoding((("x", 0.0, 10.0),), (), bins=(("x", (5.0,)),), missing=("x",))
    assert encoding.names == ("x", "x under 5", "x 5 or more", "x missing")
    X = encode(encoding, Table({"x": np.array([2.0, 7.0, np.nan])}, {}, None, {}))
    assert X.round(5).tolist() == [[0.2, 1, 0, 0], [0.7, 0, 1, 0], [0, 0, 0, 1]]
    with pytest.raises(DataError, match=r"'x'.*1 row.*'trees'"):
        encode(replace(encoding, missing=()), Table({"x": np.array([np.nan])}, {}, None, {}))
    with pytest.raises(DataError, match="infinite"):
        encode(encoding, Table({"x": np.array([np.inf])}, {}, None, {}))


def test_every_kind_of_missing_number_is_in_one_fold():
    other = np.array([0x7FF8000000000001], np.uint64).view(float)
    rows = Table({"x": np.array([np.nan, other[0]])}, {}, None, {})
    assert len({*folds_by_features(rows, 1000).tolist()}) == 1


def test_a_missing_number_is_in_no_subgroup_that_does_not_know_it():
    rows = drawn(200, empty=False)
    statistics = summary_statistics(rows, "a")
    counts = {k: histogram(v, *statistics.ranges[k]) for k, v in rows.numeric.items()}
    gone = np.isnan(rows.numeric["pay"])
    assert counts["pay"].sum() == (~gone).sum()
    for missing, code in ((("pay",), 4), ((), -1)):
        axes = axes_of(replace(statistics, missing=missing), counts, 4, ("pay",))
        assert {*codes_of(rows, axes)[gone, 0].tolist()} == {code}


def test_files_have_missing_numbers(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        'age,pay,day,sex,y\n1,"1,045",2020-01-01,F,no\n?,NA,,M,yes\n3,12%,2020-01-03,F,no\n'
    )
    table = read_table(path, Roles("y", ("sex",)))
    assert np.isnan(table.numeric["age"]).tolist() == [False, True, False]
    assert table.numeric["pay"][[0, 2]].tolist() == [1045.0, 12.0]
    assert np.isnan(table.numeric["day"][1])
    assert table.dates == ("day",)


def test_a_schema_says_which_numbers_may_be_missing(tmp_path):
    rows = drawn(300, empty=False)
    schema = schema_of(summary_statistics(rows, "a"), "y")
    assert schema.missing == ("pay",)
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema.to_json()))
    assert load_schema(path) == schema
    assert np.isnan(applied(schema, rows, "a").numeric["pay"]).any()
    strict = replace(schema, missing=())
    assert "missing" not in strict.to_json()
    with pytest.raises(DataError, match=r"'pay'.*missing"):
        applied(strict, rows, "a")
    assert not np.isnan(brought(strict, rows, "a").numeric["pay"]).any()
    assert np.isnan(brought(schema, rows, "a").numeric["pay"]).any()
    path.write_text(json.dumps(schema.to_json() | {"missing": ["job"]}))
    with pytest.raises(DataError, match="'job' of 'missing'"):
        load_schema(path)


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("learner", LEARNERS)
def test_sites_under_a_schema_and_masks_have_the_pooled_model(learner):
    rows = drawn(800, empty=False)
    schema = schema_of(summary_statistics(rows, "a"), "y")
    chosen_method = method("fl", learner=learner)
    pooled = fit({"all": under(schema, rows, "a")}, chosen_method, schema=schema)
    sites = {k: under(schema, v, k) for k, v in dealt(rows, 3).items()}
    masked = fit(sites, chosen_method, schema=schema, secure=True)
    assert masked.model.digest == pooled.model.digest


def test_a_new_missing_number_goes_a_trees_way_and_stops_others():
    rows = drawn(500, empty=False)
    full = rows.take(~np.isnan(rows.numeric["pay"]))
    trees, additive = (
        fit({"a": full}, method("fl", learner=k)).model for k in ("trees", "additive")
    )
    p = predict(trees.estimates, trees.encoding, 0, rows)
    assert np.isfinite(p).all()
    with pytest.raises(DataError, match=r"'pay'.*missing"):
        additive.probabilities(rows)
