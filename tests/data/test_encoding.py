import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, ModelError

ENCODING = Encoding((("age", 20.0, 40.0), ("flat", 3.0, 3.0)), (("job", ("a", "b", "c")),))


def table(ages=(20.0, 30.0), jobs=("c", "a"), flat=(3.0, 9.0)):
    numeric = {"age": np.asarray(ages), "flat": np.asarray(flat)}
    return Table(numeric, {"job": Column.of(jobs)}, None, {})


def test_scaled_numbers_then_one_hots():
    expected = [[0, 0, 0, 0, 1], [0.5, 0, 1, 0, 0]]
    np.testing.assert_array_equal(encode(ENCODING, table()), expected)
    assert ENCODING.names == ("age", "flat", "job=a", "job=b", "job=c")
    assert ENCODING.width == len(ENCODING.names)


def test_raw_numbers():
    raw = Encoding(ENCODING.numeric, (), scale=False)
    np.testing.assert_array_equal(encode(raw, table()), [[20, 3], [30, 9]])


def test_no_rows():
    assert encode(ENCODING, table((), (), ())).shape == (0, 5)


def test_unused_unknown_vocabulary_is_no_error():
    job = Column(np.array([0, 1]), ("a", "b", "zzz"))
    X = encode(Encoding((), ENCODING.categorical), Table({}, {"job": job}, None, {}))
    np.testing.assert_array_equal(X, [[1, 0, 0], [0, 1, 0]])


@given(arrays(float, st.integers(1, 20), elements=st.floats(-1e100, 1e100)))
def test_training_rows_fill_the_unit_interval(values):
    low, high = float(values.min()), float(values.max())
    X = encode(Encoding((("v", low, high),), ()), Table({"v": values}, {}, None, {}))
    assert X.min() == 0
    assert X.max() == (1 if high - low > 1e-100 else 0)


@given(st.floats(-1e100, 1e100), st.floats(0, 1e100), st.floats(-1e100, 1e100))
def test_no_value_overflows(low, span, value):
    X = encode(
        Encoding((("v", low, low + span),), ()), Table({"v": np.array([value])}, {}, None, {})
    )
    assert np.isfinite(X).all()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (table((np.nan, np.nan)), "'age'.*'north'.*2 rows"),
        (table((1.0, np.inf)), "'age'.*'north'.*1 row"),
        (table((20.0, -np.inf)), "'age'.*1 row.*row 2"),
        (table((20.0, 1e200)), "100.*1 row"),
        (
            table(jobs=("a", "x")),
            "'job'.*'north'.*'x'",
        ),
        (Table({}, {}, None, {}), "'north'.*'age'"),
        (Table({}, {"age": Column.of("ab")}, None, {}), "'age'.*categorical"),
        (
            Table({"job": np.zeros(1), "age": np.zeros(1), "flat": np.zeros(1)}, {}, None, {}),
            "'job'.*'north'",
        ),
    ],
)
def test_bad_rows_are_named(rows, message):
    with pytest.raises(DataError, match=message):
        encode(ENCODING, rows, who="client 'north'")


def test_long_values_and_vocabularies_are_shortened():
    known = tuple(f"v{i}" for i in range(300))
    rows = Table({}, {"job": Column.of(["x" * 500])}, None, {})
    with pytest.raises(DataError) as error:
        encode(Encoding((), (("job", known),)), rows)
    assert len(str(error.value)) < 250
    assert "and 295 more" in str(error.value)


NAMES = st.text(max_size=4)
NUMBERS = st.floats(-1e100, 1e100)


@given(
    st.dictionaries(NAMES, st.tuples(NUMBERS, NUMBERS).map(sorted), max_size=3),
    st.dictionaries(NAMES, st.sets(NAMES).map(sorted), max_size=3),
    st.booleans(),
)
def test_json_round_trip(numeric, categorical, scale):
    encoding = Encoding(
        tuple((name, *ends) for name, ends in numeric.items()),
        tuple((k, tuple(v)) for k, v in categorical.items() if k not in numeric),
        scale,
        dates=tuple(numeric)[:1],
    )
    assert Encoding.from_json(json.loads(json.dumps(encoding.to_json()))) == encoding


def test_bins_of_dates_are_dates():
    dated = Encoding(
        (("day", 0.0, 9e6),), (), bins=(("day", (365.0, 366.25, 8e6)),), dates=("day",)
    )
    assert dated.names[1:] == (
        "day before 1971-01-01",
        "day 1971-01-01 to 1971-01-02 06:00",
        "day 1971-01-02 06:00 to 8e+06 days after 1970",
        "day 8e+06 days after 1970 or later",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale": 1}, "'scale'.*should"),
        ({"extra": 1}, "'extra'"),
        ({"numeric": None}, "'numeric'.*should"),
        ({"numeric": [["age", 1]]}, "'numeric'.*should"),
        ({"numeric": [["age", 2, 1]]}, "'age'"),
        ({"numeric": [["age", float("nan"), 1]]}, "'numeric'.*should"),
        ({"numeric": [["age", 0, 10**400]]}, "'numeric'.*should"),
        ({"numeric": [["age", 0, 1e101]]}, "'age'"),
        ({"numeric": [["age", True, 1]]}, "'numeric'.*should"),
        ({"numeric": [[7, 0, 1]]}, "'numeric'.*should"),
        ({"numeric": [["a", 0, 1], ["a", 0, 1]]}, "entry twice"),
        ({"numeric": [["job", 0, 1]]}, "entry twice"),
        ({"categorical": [["job", "abc"]]}, "'categorical'.*should"),
        ({"categorical": [["job", ["a", "a"]]]}, "'job'.*entry"),
        ({"categorical": {"job": 1}}, "'categorical'.*should"),
        ({"dates": [1]}, "'dates'.*should"),
        ({"categorical": [["a", ["x"]], ["a", ["y"]]]}, "entry twice"),
    ],
)
def test_damaged_json_is_refused(change, message):
    with pytest.raises(ModelError, match=message):
        Encoding.from_json(ENCODING.to_json() | change)


@given(
    st.recursive(
        st.none() | st.integers() | NAMES, lambda x: st.lists(x) | st.dictionaries(NAMES, x)
    )
)
def test_foreign_json_is_read_or_refused(data):
    for foreign in (
        data,
        {"numeric": [data], "categorical": [], "scale": True},
        {"numeric": [], "categorical": [data], "scale": True},
    ):
        try:
            encoding = Encoding.from_json(foreign)
        except ModelError:
            continue
        assert Encoding.from_json(encoding.to_json()) == encoding


def test_bins_are_one_hots_behind_the_others():
    encoding = Encoding((("age", 0.0, 100.0),), (), bins=(("age", (30.0, 50.0)),))
    X = encode(encoding, Table({"age": np.array([29.9, 30.0, 50.0])}, {}, None, {}))
    np.testing.assert_array_equal(X[:, 1:], np.eye(3))
    assert X.shape[1] == encoding.width == len(encoding.names)
    assert Encoding.from_json(encoding.to_json()) == encoding


@pytest.mark.parametrize(
    ("bins", "says"),
    [
        ([["age", [50, 30]]], "ascend"),
        ([["job", [1]]], "column of numbers"),
        ([["age", []]], "column of numbers"),
        ([["age", ["x"]]], "'bins'"),
        ([["age", [1e101]]], "ascend"),
        (3, "should be"),
    ],
)
def test_damaged_bins_are_refused(bins, says):
    data = {"numeric": [["age", 0, 100]], "categorical": [], "scale": True, "bins": bins}
    with pytest.raises(ModelError, match=says):
        Encoding.from_json(data)
