"""Bins from counts in cells: near the quantiles, the same over any split, rare values together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.data.axes import (
    PASSES,
    agreed,
    equal_fine_bins,
    fine_bin_counts,
    refined,
    value_counts,
)
from agnosticfair.data.encoding import Encoding
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError


def agree(tables, max_bins=255, min_rows=20):
    """As clients and server do."""
    values = np.concatenate([t.numeric["x"] for t in tables])
    words = sorted({v for t in tables for v in t.categorical.get("c", Column.of([])).categories})
    categorical = (("c", tuple(words)),) if words else ()
    encoding = Encoding((("x", float(np.nanmin(values)), float(np.nanmax(values))),), categorical)
    cuts = equal_fine_bins(encoding)
    for k in range(PASSES):
        sums = {
            "fine_bin_counts": sum(fine_bin_counts(encoding, t, cuts, "the data") for t in tables),
            "value_counts": sum(value_counts(encoding, t) for t in tables),
        }
        if k < PASSES - 1:
            cuts = refined(encoding, cuts, sums["fine_bin_counts"])
    return encoding, agreed(encoding, cuts, sums, max_bins, min_rows)


def table(x, words=None):
    return Table(
        {"x": np.asarray(x, float)}, {} if words is None else {"c": Column.of(words)}, None, {}
    )


DRAWS = {
    "normal": lambda r, n: r.normal(size=n),
    "long tail": lambda r, n: np.exp(3 * r.normal(size=n)),
    "spike": lambda r, n: np.where(r.random(n) < 0.9, 0.0, r.normal(size=n) * 1e4),
    "few values": lambda r, n: r.integers(0, 30, n),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_bins_are_near_equal_shares(kind):
    x = DRAWS[kind](np.random.default_rng(0), 20_000)
    encoding, binning = agree([table(x)], max_bins=64)
    counts = np.bincount(binning.columns(encoding, table(x))[0], minlength=2)
    assert counts[0] == 0
    assert len(counts) - 1 <= 64
    assert counts[1:].min() >= 20
    _, own = np.unique(x, return_counts=True)
    maximum = max(2.5 * len(x) / 64, own.max() + 2 * len(x) / 64)
    assert counts.max() <= maximum


@given(st.integers(0, 1000), st.integers(2, 5))
@settings(max_examples=15, deadline=None)
def test_any_split_agrees_on_the_same_bins(seed, subgroups):
    r = np.random.default_rng(seed)
    x, words = np.exp(r.normal(size=500)), r.integers(0, 40, 500).astype(str)
    x[r.random(500) < 0.1] = np.nan
    whole = table(x, words)
    owner = r.integers(0, subgroups, 500)
    split = [whole.take(np.flatnonzero(owner == k)) for k in range(subgroups)]
    split = [t for t in split if len(t)]
    assert agree(split)[1].key == agree([whole])[1].key


def test_ten_thousand_categories_fit_in_a_byte_rare_ones_together():
    r = np.random.default_rng(0)
    words = np.concatenate(
        [np.repeat(["a", "b", "c"], 500), r.integers(0, 10_000, 12_000).astype(str)]
    )
    rows = table(r.normal(size=len(words)), words)
    encoding, binning = agree([rows])
    codes = binning.columns(encoding, rows)[1]
    assert len(encoding.categorical[0][1]) > 6000
    assert max(binning.bins(encoding).sizes) <= 256
    assert len({codes[0], codes[500], codes[1000]} - {0}) == 3
    assert (codes[1500:] == 0).mean() > 0.9


def test_three_hundred_frequent_categories_leave_the_least_frequent_to_code_0():
    words = np.repeat(np.arange(300).astype(str), np.arange(300) + 30)
    encoding, binning = agree([table(np.zeros(len(words)), words)])
    codes = binning.columns(encoding, table(np.zeros(len(words)), words))[1]
    assert len(np.unique(codes)) == 255
    assert (codes[words.astype(int) < 40] == 0).all()


def test_values_that_training_did_not_see_have_code_0():
    encoding, binning = agree([table(np.arange(100.0), ["a", "b"] * 50)])
    codes = binning.columns(encoding, table([np.nan, -1e9, 1e9], ["z", "a", "b"]))
    assert codes[1, 0] == 0
    assert codes[0].tolist() == [0, 1, int(codes[0].max())]


def test_a_constant_column_has_one_bin():
    encoding, binning = agree([table(np.full(100, 7.0))])
    assert binning.bins(encoding).sizes == (2,)


def test_few_rows_have_few_bins():
    encoding, binning = agree([table(np.arange(50.0))])
    counts = np.bincount(binning.columns(encoding, table(np.arange(50.0)))[0])[1:]
    assert counts.min() >= 20
    assert agree([table([1.0])])[1].bins(encoding).sizes == (2,)


def test_a_column_that_is_not_there_is_said():
    encoding, binning = agree([table(np.arange(100.0), ["a", "b"] * 50)])
    with pytest.raises(DataError, match=r"numbers.*'x'"):
        binning.columns(encoding, Table({}, {"c": Column.of(["a"])}, None, {}))
    with pytest.raises(DataError, match=r"categories.*'c'"):
        binning.columns(encoding, table([1.0]))
