"""Subgroups: Gram sums and enumeration against brute force, and additivity to the last bit."""

import tracemalloc
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.subgroups import (
    Axis,
    conjunctions,
    counted,
    cross,
    gram,
    large_subgroups,
    members,
    read,
    subgroup_name,
    subgroup_sums,
    triples,
)

SIZES = (3, 2, 4)


def rows(n=200, seed=0):
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(-1, size, n) for size in SIZES], axis=1)
    return codes, on_grid(rng.normal(size=n), 30), rng.integers(0, 2, n)


def all_subgroups(depth):
    for axes in combinations(range(len(SIZES)), depth):
        yield from (
            tuple(zip(axes, values, strict=True))
            for values in product(*(range(SIZES[a]) for a in axes))
        )


def test_gram_is_the_product_of_indicators():
    codes, v, _ = rows()
    Z = np.hstack([codes[:, [c]] == np.arange(size) for c, size in enumerate(SIZES)]).astype(float)
    np.testing.assert_array_equal(gram(cross(codes, SIZES), v), Z.T @ (v[:, None] * Z))


def test_gram_is_read_as_the_sums_of_subgroups():
    codes, v, strata = rows()
    subgroups = [*all_subgroups(1), *all_subgroups(2)]
    for j in range(2):
        own = strata == j
        found = read(gram(cross(codes[own], SIZES), v[own]), SIZES, subgroups)
        np.testing.assert_array_equal(found, subgroup_sums(codes[own], subgroups, v[own]))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), cut=st.integers(0, 200))
def test_sums_are_the_same_bits_for_any_split(seed, cut):
    codes, v, _ = rows(seed=seed)
    order = np.random.default_rng(seed + 1).permutation(len(v))
    one, two = order[:cut], order[cut:]
    split = gram(cross(codes[one], SIZES), v[one]) + gram(cross(codes[two], SIZES), v[two])
    np.testing.assert_array_equal(split, gram(cross(codes, SIZES), v))


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("minimum", [0.0, 0.05, 0.2])
def test_enumeration_is_brute_force(depth, minimum):
    codes, _, _ = rows()
    brute = {
        subgroup
        for k in range(1, depth + 1)
        for subgroup in all_subgroups(k)
        if members(codes, subgroup).sum() >= max(minimum * len(codes), 1)
    }
    subgroups = large_subgroups(codes, SIZES, minimum, depth)
    assert len(subgroups) == len(set(subgroups))
    assert set(subgroups) == brute


def test_no_large_triple_is_missed():
    codes, _, _ = rows(1000, 3)
    pairs = conjunctions(gram(cross(codes, SIZES), np.ones(1000)), SIZES, 20)
    offered = set(triples(pairs))
    assert {p for p in all_subgroups(3) if members(codes, p).sum() >= 20} <= offered


def test_names_and_depth():
    axes = (
        Axis("workclass", ("Local-gov", "Private")),
        Axis("marital-status", ("Married", "Single")),
    )
    assert (
        subgroup_name(axes, ((0, 0), (1, 1))) == "workclass = Local-gov and marital-status = Single"
    )
    assert subgroup_name(axes, ()) == "overall"
    with pytest.raises(SettingsError, match="depth 4"):
        large_subgroups(np.zeros((1, 1), int), (1,), 0.1, 4)


def test_counting_takes_memory_for_the_subgroups_that_are_asked_for_not_for_all_pairs_of_values():
    """1,500 columns have 6,000 values: their pairs in 8 cells would be 2.3 GB."""
    sizes, rng = (4,) * 1500, np.random.default_rng(0)
    codes = rng.integers(0, 4, (500, len(sizes)), np.int16)
    subgroups = [((axis, 1),) for axis in range(len(sizes))] + [((0, 1), (7, 2))]
    strata = rng.integers(0, 8, 500)
    tracemalloc.start()
    counts = counted(codes, sizes, subgroups, strata, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6
    np.testing.assert_array_equal(counts[:-1].sum(axis=1), (codes == 1).sum(axis=0))
    assert counts[-1].sum() == ((codes[:, 0] == 1) & (codes[:, 7] == 2)).sum()
