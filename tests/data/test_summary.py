import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agnosticfair.data.summary import (
    SummaryStatistics,
    check_labels_known,
    check_statistics,
    encoding_of,
    merge,
    positive_label,
    summary_statistics,
)
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, FederationError

LETTERS = st.sampled_from("abcd")
ROWS = st.lists(st.tuples(st.floats(-1e9, 1e9), LETTERS, LETTERS, LETTERS), min_size=1, max_size=12)


def table(rows):
    x, c, y, s = zip(*rows, strict=True)
    return Table({"x": np.array(x)}, {"c": Column.of(c)}, Column.of(y), {"s": Column.of(s)})


def statistics(rows):
    return summary_statistics(table(rows), "client 'a'")


def labelled(*labels, **groups):
    return SummaryStatistics(len(labels), dict.fromkeys(labels, 1), groups, {"x": (0.0, 1.0)}, {})


@given(ROWS, ROWS, ROWS)
def test_censuses_add_like_rows(a, b, c):
    assert statistics(a) + statistics(b) == statistics(b) + statistics(a) == statistics(a + b)
    assert (statistics(a) + statistics(b)) + statistics(c) == statistics(a) + (
        statistics(b) + statistics(c)
    )


@given(ROWS, ROWS)
@example([(0.0, "a", "a", "a")], [(-0.0, "a", "a", "a")])
def test_order_of_clients_does_not_change_the_encoding(a, b):
    one = merge({"north": statistics(a), "south": statistics(b)})
    two = merge({"north": statistics(b), "south": statistics(a)})
    assert encoding_of(one) == encoding_of(two)
    assert json.dumps(one.to_json()) == json.dumps(two.to_json())


@given(ROWS)
def test_json_round_trip(rows):
    assert SummaryStatistics.from_json(
        json.loads(json.dumps(statistics(rows).to_json()))
    ) == statistics(rows)


def test_vocabulary_is_kept_and_absent_values_are_not_counted():
    rows = table([(1.0, "b", "yes", "F"), (2.0, "a", "no", "M")]).take(np.array([0]))
    statistics = summary_statistics(rows, "client 'a'")
    assert statistics.categorical == {"c": ("a", "b")}
    assert statistics.labels == {"yes": 1}
    assert statistics.groups == {"s": {"F": 1}}


def test_columns_need_no_common_order():
    one = Table({"x": np.ones(1), "a": np.ones(1)}, {}, Column.of("y"), {})
    two = Table({"a": np.ones(1), "x": np.zeros(1)}, {}, Column.of("y"), {})
    total = summary_statistics(one, "one") + summary_statistics(two, "two")
    assert encoding_of(total, scale=False).numeric == (("a", 1.0, 1.0), ("x", 0.0, 1.0))


Y = Column.of(["no", "yes"])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (Table({}, {}, Column.of([]), {}), "'north'.*drop"),
        (Table({"x": np.zeros(2)}, {}, None, {}), "'north'.*label"),
        (Table({"x": np.array([0, np.inf])}, {}, Y, {}), "'x'.*1 row.*row 2"),
        (Table({}, {}, Column(np.array([0, -1]), ("a",)), {}), "missing.*1 row"),
        (
            Table({}, {}, Y, {"s": Column(np.array([0, 5]), ("a",))}),
            "'s'.*missing",
        ),
        (Table({}, {"c": Column(np.array([0, -1]), ("a",))}, Y, {}), "'c'.*missing"),
    ],
)
def test_bad_clients_are_named(rows, message):
    with pytest.raises(DataError, match=message):
        summary_statistics(rows, "client 'north'")


def subgroup(numeric=(), categorical=(), groups=()):
    return SummaryStatistics(
        1,
        {"y": 1},
        {k: {"g": 1} for k in groups},
        dict.fromkeys(numeric, (0.0, 1.0)),
        dict.fromkeys(categorical, ("a",)),
    )


@pytest.mark.parametrize(
    ("one", "two", "message"),
    [
        (subgroup("x"), subgroup("xz"), "column 'z' is missing at north and there at south"),
        (subgroup("xz"), subgroup("x"), "column 'z' is missing at south and there at north"),
        (
            subgroup("x"),
            subgroup(categorical="x"),
            "'x' is numeric at north and categorical at south",
        ),
        (
            subgroup(categorical="x"),
            subgroup("x"),
            "'x' is categorical at north and numeric at south",
        ),
        (subgroup(groups="s"), subgroup(), "column 's' is missing at south and there at north"),
    ],
)
def test_clients_that_do_not_fit_are_named(one, two, message):
    nameless = message.replace("north", "one client").replace("south", "another")
    with pytest.raises(DataError, match=nameless):
        one + two
    named = message.replace("north", "client 'north'").replace("south", "client 'south'")
    with pytest.raises(DataError, match=named):
        merge({"south": two, "north": one})


@pytest.mark.parametrize(
    ("north", "south", "positive", "strange"),
    [
        ("no yes", "no yes!", None, "yes!"),
        ("no yes", "0 1", None, "0"),
        ("no yes", "no! yes!", "yes", "no!"),
        ("no yes", "no yes!", "yes", "yes!"),
    ],
)
def test_a_client_with_target_values_of_its_own_is_named(north, south, positive, strange):
    many = SummaryStatistics(20, dict.fromkeys(north.split(), 10), {}, {}, {})
    all_statistics = {"north": many, "south": labelled(*south.split())}
    with pytest.raises(DataError, match=f"'south'.*'{strange}'"):
        check_labels_known(all_statistics, positive)


@pytest.mark.parametrize(
    ("north", "south", "positive"),
    [
        ("no", "yes", "yes"),
        ("no", "yes", None),  # each client one label: extreme, but no mistake
        ("a b c", "a b c", None),  # refused for another reason, by positive_label
        ("a b c", "a b", "b"),
        ("a b", "b c", "b"),
    ],
)
def test_labels_that_may_differ_do(north, south, positive):
    check_labels_known(
        {"north": labelled(*north.split()), "south": labelled(*south.split())}, positive
    )


def test_no_clients():
    with pytest.raises(DataError, match="no clients"):
        merge({})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": -1}, "'n' and 'weight' should not be negative"),
        ({"n": 2.0}, "'n' should be a whole number"),
        ({"n": True}, "'n' should be a whole number"),
        ({"n": 7}, "'labels' should add up to n"),
        ({"labels": {"y": "1"}}, "'labels' of 'y' should be a whole number"),
        ({"groups": {"s": {"a": 3}}}, "'s' should add up to n"),
        ({"groups": []}, "'groups' should map names to values"),
        ({"numeric": {"x": [1, 0]}}, "'x' is 1 to 0"),
        ({"numeric": {"x": [0, float("inf")]}}, "'numeric' of 'x' should be a finite number"),
        ({"numeric": {"c": [0, 1]}}, "column 'c' is both numeric and categorical"),
        ({"categorical": {"c": [1]}}, "'categorical' of 'c' should be a text"),
        ({"spy": 1}, "'spy'"),
        ({"labels": {"y": -1, "n": 2}}, "add up to n"),
        ({"weight": -1.0}, "'weight' should not be negative"),
    ],
)
def test_damaged_json_is_refused(change, message):
    good = statistics([(0.0, "a", "y", "F")]).to_json()
    with pytest.raises(FederationError, match=f"'b'.*{message}"):
        SummaryStatistics.from_json(good | change, "client 'b'")


def test_merged_statistics_must_be_learnable():
    check_statistics(labelled("no", "yes", sex={"F": 1, "M": 1}))
    with pytest.raises(DataError, match=r"'no'.*row"):
        check_statistics(labelled("no"))
    with pytest.raises(DataError, match=r"'no'.*row"):
        check_statistics(SummaryStatistics(3, {"no": 3, "yes": 0}, {}, {}, {}))
    with pytest.raises(DataError, match=r"'sex'.*'F'"):
        check_statistics(labelled("no", "yes", sex={"F": 2, "M": 0}))
    with pytest.raises(DataError, match="no feature columns"):
        check_statistics(SummaryStatistics(2, {"no": 1, "yes": 1}, {}, {}, {}))


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (("1", "0"), "1"),
        (("-1", "1"), "1"),
        (("1.0", "0.0"), "1.0"),
        (("True", "False"), "True"),
        (("TRUE", "false"), "TRUE"),
        (("yes", "no"), "yes"),
        (("YES", "no"), "YES"),
        ((">50K", "<=50K"), ">50K"),
        ((">50K", "low"), ">50K"),
        (("good", "bad"), "good"),
        (("5_4_9", "2_1"), "5_4_9"),
        (("approved", "denied"), "approved"),
        (("granted", "on hold"), "granted"),
        (("recidivates", "not recidivates"), "recidivates"),
        (("default", "no default"), "default"),
        (("zebra", "fail"), "zebra"),
        (("10", "9"), "10"),
        (("1", "2"), "2"),
        (("b", "a"), "b"),
    ],
)
def test_positive_label_of_two(labels, positive):
    assert positive_label(labelled(*labels)) == positive
    assert positive_label(labelled(*labels), labels[1]) == labels[1]


def test_positive_label_must_be_named_and_exist():
    with pytest.raises(DataError, match=r"3 labels.*'a'.*'b'"):
        positive_label(labelled("a", "b", "c"))
    assert positive_label(labelled("a", "b", "c"), "a") == "a"
    with pytest.raises(DataError, match=r"'z'.*'a'.*'b'"):
        positive_label(labelled("a", "b"), "z")
    assert positive_label(SummaryStatistics(2, {"a": 1, "b": 1, "c": 0}, {}, {}, {})) == "b"


def test_a_quantity_is_no_label():
    with pytest.raises(DataError, match=r"21 different.*quantity"):
        positive_label(labelled(*(f"{i}.5" for i in range(21))))


def test_more_groups_and_features_than_can_be_solved_for():
    groups = {f"g{i:03}": 1 for i in range(51)}
    with pytest.raises(DataError, match=r"'zip'.*51 groups"):
        check_statistics(
            SummaryStatistics(51, {"a": 25, "b": 26}, {"zip": groups}, {"x": (0.0, 1.0)}, {})
        )
    wide = {f"x{i}": (0.0, 1.0) for i in range(10_001)}
    with pytest.raises(DataError, match=r"10001 features.*10000"):
        check_statistics(SummaryStatistics(2, {"a": 1, "b": 1}, {}, wide, {}))


def test_weights_add_up_and_travel_only_where_there_are_any():
    plain = SummaryStatistics(2, {"a": 1, "b": 1}, {}, {}, {})
    weighted = SummaryStatistics(1, {"a": 1}, {}, {}, {}, 2.5)
    assert "weight" not in plain.to_json()
    assert (plain + plain).weight is None
    assert (plain + weighted).mass == 4.5
    assert SummaryStatistics.from_json(weighted.to_json()) == weighted
