import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.mathematics.quadratic import (
    _by_signs,
    huber_step,
    kinked,
    lasso_on_simplex,
    lasso_step,
    residual,
)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 40),
    st.sampled_from((0.0, 0.1, 1.0)),
    st.sampled_from((1e-6, 1e-3, 0.1)),
)
def test_the_step_is_optimal(seed, a, tau, minimum):
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(max(2, a // 2), a))
    H = V.T @ V + minimum * np.eye(a)
    g, x0 = rng.normal(size=a), rng.normal(size=a) * (rng.random(a) < 0.3)
    up, down = tau * rng.random(a), tau * rng.random(a)
    down[0] = np.inf
    x0[0] = max(x0[0], 0.0)
    x = lasso_step(H, g, x0, up, down)
    assert residual(g + H @ (x - x0), x, up, down).max() < 1e-5
    curvature = np.where(rng.random(a) < 0.5, rng.random(a) + minimum, np.inf)
    curvature[0] = np.inf
    x = huber_step(H, g, x0, up, down, curvature, np.zeros(a, bool))
    assert residual(g + H @ (x - x0), x, up, down, curvature).max() < 1e-5


def test_an_infinite_gradient_holds_a_coordinate():
    both = np.full(1, np.inf)
    assert lasso_step(np.eye(1), np.array([-5.0]), np.zeros(1), both, both) == pytest.approx(0.0)
    assert kinked(np.zeros(1), both, both) == 0.0


def test_weights_that_an_adversary_has_not_stay_nothing():
    inside = np.array([False, True, True])
    x0, up = np.array([0.5, 0.0, 0.0]), np.array([0.1, 0.0, 0.0])
    down = np.array([0.1, np.inf, np.inf])
    x = lasso_on_simplex(np.eye(3), np.array([0.3, -1.0, -2.0]), x0, up, down, inside)
    assert x.tolist() == [pytest.approx(0.1), 0.0, 0.0]


@pytest.mark.parametrize("seed", range(20))
def test_a_coordinate_that_is_paid_to_grow_grows(seed):
    """A price on the simplex can be negative: then 0 is left although the gradient is positive."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(6, 12))
    H, g, x0 = V.T @ V + 1e-6 * np.eye(12), np.abs(rng.normal(size=12)), np.zeros(12)
    up, down = np.full(12, -3.0), np.full(12, np.inf)
    x = _by_signs(H, g, x0, x0, up, down)
    assert residual(g + H @ (x - x0), x, up, down).max() < 1e-5
