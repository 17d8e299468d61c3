"""Small quadratic programs against brute force over every set of active rows, and their KKT conditions."""

from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.quadratic import minimise


def brute(P, q, G, h):
    """The best feasible stationary point over all active sets; None where there is none."""
    best, D = None, len(q)
    for active in chain.from_iterable(combinations(range(len(h)), k) for k in range(D + 1)):
        rows = list(active)
        kkt = np.block([[P, G[rows].T], [G[rows], np.zeros((len(rows), len(rows)))]])
        if np.linalg.matrix_rank(kkt) < len(kkt):
            continue
        x = np.linalg.solve(kkt, np.concatenate([-q, h[rows]]))[:D]
        if (G @ x <= h + 1e-9).all():
            value = x @ P @ x / 2 + q @ x
            best = value if best is None else min(best, value)
    return best


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 10_000))
def test_the_minimum_is_that_of_brute_force(D, rows, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(D, D))
    P, q = root @ root.T + 0.1 * np.eye(D), rng.normal(size=D)
    G = rng.normal(size=(rows, D))
    h = G @ rng.normal(size=D) + rng.uniform(0, 1, size=rows)  # so that some x is feasible
    solution = minimise(P, q, G, h)
    assert solution.outcome is Outcome.OPTIMAL
    x, mu = solution.x, solution.multipliers
    assert x @ P @ x / 2 + q @ x == pytest.approx(brute(P, q, G, h), abs=1e-7)
    np.testing.assert_allclose(P @ x + q + G.T @ mu, 0.0, atol=1e-6)  # stationary
    assert (G @ x <= h + 1e-7).all()
    assert (mu >= 0).all()
    np.testing.assert_allclose(mu * (G @ x - h), 0.0, atol=1e-6)  # a slack row has no price


def test_a_flat_direction_is_held_by_its_constraint():
    """The program of a round: a quadratic in p, linear in t and in the slack xi."""
    P, q = np.diag([1.0, 0.0]), np.array([0.0, 1.0])
    G, h = np.array([[2.0, -1.0], [0.0, -1.0]]), np.array([-1.0, 0.0])  # t >= 2 p + 1, t >= 0
    solution = minimise(P, q, G, h)
    np.testing.assert_allclose(solution.x, [-0.5, 0.0], atol=1e-8)
    np.testing.assert_allclose(solution.multipliers, [0.25, 0.75], atol=1e-8)


def test_what_has_no_solution_is_said():
    contrary = np.array([[1.0], [-1.0]])
    assert minimise(np.eye(1), np.zeros(1), contrary, np.array([0.0, -1.0])).outcome is (
        Outcome.INFEASIBLE
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_guess_is_taken_only_where_it_is_right(seed):
    rng = np.random.default_rng(seed)
    A, G = rng.normal(size=(4, 4)), rng.normal(size=(3, 4))
    P, q, h = A @ A.T + np.eye(4), rng.normal(size=4), rng.normal(size=3)
    plain = minimise(P, q, G, h)
    for guess in np.array(list(np.ndindex(2, 2, 2)), bool):
        guessed = minimise(P, q, G, h, guess)
        np.testing.assert_allclose(guessed.x, plain.x, atol=1e-7)
        np.testing.assert_allclose(guessed.multipliers, plain.multipliers, atol=1e-6)
