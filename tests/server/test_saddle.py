"""The saddle-point solver's two adversaries, against a quadratic program."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs agnosticfair[torch]")
from agnosticfair.mathematics.ambiguity import Ambiguity
from agnosticfair.mathematics.quadratic import minimise
from agnosticfair.server import saddle


def test_ascent_projects_as_a_quadratic_program_does():
    rng = np.random.default_rng(3)
    for _ in range(5):
        p, alpha, psi = rng.uniform(0.5, 2, 6), rng.uniform(0, 1, 6), rng.uniform(0, 1, 6)
        A = Ambiguity(p, float(p.sum()), 1.3)
        found = saddle.ascended(A, alpha, psi, 1.5)
        target = alpha + 1.5 * psi / p
        G = np.vstack([np.eye(6), -np.eye(6), p, -p])
        h = np.r_[np.full(6, 1.3), np.zeros(6), A.n, -A.n]
        np.testing.assert_allclose(found, minimise(np.diag(p), -p * target, G, h).x, atol=1e-6)


def test_cuts_that_are_the_same_share_one_multiplier():
    Q, gap = np.ones((3, 3)), np.full(3, 0.1)
    state = type("S", (), {"mu": np.zeros(3)})()
    together = saddle.multipliers(state, Q, gap, 2.0).sum()
    alone = saddle.multipliers(type("S", (), {"mu": np.zeros(1)})(), Q[:1, :1], gap[:1], 2.0).sum()
    assert together == pytest.approx(alone, rel=1e-3)
