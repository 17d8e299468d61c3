"""Sums of the rule's program row by row: against plain loops, and only where rounding allows it."""

import numpy as np
import pytest

from agnosticfair.mathematics import scores
from agnosticfair.mathematics.multipliers import RateLimits, coordinates
from agnosticfair.mathematics.scores import (
    Dense,
    Directions,
    Estimated,
    Memberships,
    Points,
    evaluate,
    smoothed,
)
from agnosticfair.mathematics.subgroups import all_places, conjunctions, cross, gram


def rows_of(n, seed=0):
    rng = np.random.default_rng(seed)
    c, pi = rng.uniform(-1, 1, n), rng.dirichlet(np.ones(3), n).T
    b = np.column_stack([rng.random((n, 2)), np.ones(n)])
    return Estimated(c, pi), Dense(b), rng.integers(0, 2, n)


def test_sums_are_those_of_a_loop_over_rows():
    rows, b, y = rows_of(40)
    A, nu = np.random.default_rng(1).normal(size=(3, 3)), 0.125
    sums = evaluate(rows, b, y, Points(A[None], np.array([nu]), np.array([0.1])), 40, 34)
    value, decided = 0.0, np.zeros((3, 3))
    for i in range(40):
        t = rows.c[i] - nu - rows.pi[:, i] @ (A.T @ b.b[i])
        value += 0.1 * np.logaddexp(0, t / 0.1)
        decided += np.outer(rows.pi[:, i], b.b[i]) / (1 + np.exp(-t / 0.1))
    assert sums["value"][0] == pytest.approx(value, abs=1e-6)
    np.testing.assert_allclose(sums["decided"][0], decided, atol=1e-6)


def test_without_smoothing_decisions_are_hard_and_ties_are_negative():
    value, d, curvature = smoothed(np.array([-1.0, 0.0, 2.0]), 0.0)
    assert value.tolist() == [0, 0, 2]
    assert d.tolist() == [0, 0, 1]
    assert not curvature.any()


def test_far_from_the_threshold_nothing_overflows():
    value, d, curvature = smoothed(np.array([-50.0, 50.0]), 1e-3)
    assert value.tolist() == [0, 50]
    assert d.tolist() == [0, 1]
    assert not curvature.any()


def test_of_many_rows_a_draw_enters_the_hessian_and_says_how_much_it_is(monkeypatch):
    monkeypatch.setattr(scores, "HESSIAN_ROWS", 1000)
    rows, b, y = rows_of(20_000)
    rows = Estimated(np.rint(rows.c * 2**20) / 2**20, np.rint(rows.pi * 2**20) / 2**20)
    inside = scores.sampled_rows(rows, 20_000)
    assert 800 < inside.sum() < 1200
    some = np.arange(0, 20_000, 7)
    subgroup = Estimated(rows.c[some], rows.pi[:, some])
    np.testing.assert_array_equal(scores.sampled_rows(subgroup, 20_000), inside[some])
    at = Directions(
        np.array([0, 2]),
        np.array([0, 1]),
        np.array([1, 2]),
        np.ones(2),
        np.ones(2),
        np.zeros((0, 3, 3)),
    )
    points = Points(np.zeros((1, 3, 3)), np.zeros(1), np.array([0.3]), at)
    found = evaluate(rows, b, y, points, 20_000, 34)
    monkeypatch.undo()
    every = evaluate(rows, b, y, points, 20_000, 34)
    share = found["drawn"] / found["curvature"]
    np.testing.assert_allclose(found["hessian"] / share, every["hessian"], rtol=0.2, atol=20)


@pytest.mark.parametrize(("groups", "weighted"), [(2, False), (3, True)])
def test_counting_what_subgroups_share_gives_the_bits_of_the_product(groups, weighted, monkeypatch):
    rng = np.random.default_rng(groups)
    sizes, n = (2, 3, 4, 3, 2), 500
    codes = np.array([rng.integers(-(a == 1), size, n) for a, size in enumerate(sizes)])
    subgroups = conjunctions(gram(cross(codes.T, sizes), np.ones(n)), sizes, 1)
    b = Memberships(codes, cross(codes.T, sizes), subgroups, all_places(sizes, subgroups))
    weights = rng.uniform(0, 3, n) if weighted else None
    rows = Estimated(rng.uniform(-1, 1, n), rng.dirichlet(np.ones(groups), n).T, weights)
    at = coordinates(
        {"mass": b.add(rows.pi)}, n, RateLimits(np.full(b.size, 0.05), ((0, groups - 1), (0, 1)))
    )
    points = Points(
        np.zeros((1, b.size, groups)),
        np.zeros(1),
        np.array([0.3]),
        at.directions(np.arange(at.size)),
    )
    found = []
    for pays in (True, False):
        monkeypatch.setattr(Memberships, "counts_pay", lambda *_, pays=pays: pays)
        found.append(evaluate(rows, b, np.ones(n), points, n, 34))
    np.testing.assert_array_equal(found[0]["hessian"], found[1]["hessian"])
    assert np.count_nonzero(found[0]["hessian"]) > 1000
