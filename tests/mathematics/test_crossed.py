"""Crossed axes: counts by pairs of blocks against products of indicators, to the last bit."""

import numpy as np
import pytest

from agnosticfair.mathematics import subgroups as crossed_room
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.subgroups import cross, entries, gram, sums_at, totals, weighed_at

SIZES = (3, 2, 4, 7)


def rows(lowest, n=300):
    rng = np.random.default_rng(0)
    codes = np.stack([rng.integers(lowest, size, n) for size in SIZES], axis=1)
    Z = np.hstack([codes[:, [c]] == np.arange(size) for c, size in enumerate(SIZES)]).astype(float)
    return codes, Z, on_grid(rng.normal(size=(2, n)), 30)


@pytest.mark.parametrize("lowest", [0, -1])
@pytest.mark.parametrize("maximum", [1, 8, 30, 1000])
def test_sums_are_those_of_indicators(lowest, maximum):
    codes, Z, V = rows(lowest)
    crossed = cross(codes, SIZES, maximum)
    assert all(len(block.hot) <= max(maximum, 8) for block in crossed.blocks)
    np.testing.assert_array_equal(gram(crossed, V), [Z.T @ (v[:, None] * Z) for v in V])
    np.testing.assert_array_equal(totals(crossed, V[0]), Z.T @ V[0])


@pytest.mark.parametrize("remembered", [0, 1 << 20])
@pytest.mark.parametrize("maximum", [1, 8, 30, 1000])
def test_some_entries_are_those_of_the_matrix(maximum, remembered, monkeypatch):
    monkeypatch.setattr(crossed_room, "REMEMBERED", remembered)
    codes, Z, V = rows(-1)
    crossed, rng = cross(codes, SIZES, maximum), np.random.default_rng(1)
    at = rng.integers(0, Z.shape[1], (2, 25))
    found = entries(crossed, *at)
    assert sorted(np.concatenate([own.which for own in found])) == list(range(25))
    np.testing.assert_array_equal(sums_at(crossed, found, V, 25), gram(crossed, V)[:, at[0], at[1]])
    W = on_grid(rng.normal(size=25), 20)
    weighed = (Z[:, at[0]] * Z[:, at[1]]) @ W
    np.testing.assert_array_equal(weighed_at(crossed, found, W, len(Z)), weighed)
    assert len(crossed._both) == 0 or remembered
    assert entries(crossed, *at[:, :0]) == ()


@pytest.mark.parametrize("maximum", [1, 30])
def test_some_rows_and_none(maximum):
    codes, Z, V = rows(0)
    crossed = cross(codes, SIZES, maximum)
    np.testing.assert_array_equal(
        gram(crossed.take(slice(10, 50)), V[0, 10:50]), Z[10:50].T @ (V[0, 10:50, None] * Z[10:50])
    )
    assert not gram(cross(codes[:0], SIZES, maximum), V[0, :0]).any()
    assert gram(cross(codes[:, :0], (), maximum), V[0]).shape == (0, 0)
