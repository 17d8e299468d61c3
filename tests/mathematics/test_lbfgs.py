"""Quasi-Newton steps of quadratic problems, all at once."""

import numpy as np

from agnosticfair.mathematics.quadratic import lbfgs_step


def test_steps_minimise_quadratic_functions_together():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 12, 12))
    H = root @ root.transpose(0, 2, 1) + np.eye(12)
    best = rng.normal(size=(3, 12))
    w, moves, turns = np.zeros((3, 12)), np.zeros((0, 3, 12)), np.zeros((0, 3, 12))
    diagonal = np.einsum("kdd->kd", H)
    g = np.einsum("kde,ke->kd", H, w - best)
    for _ in range(80):
        step = lbfgs_step(g, diagonal, moves, turns, 0.1)
        assert ((step * g).sum(axis=1) <= 0).all()
        along = -(step * g).sum(axis=1) / np.maximum(
            np.einsum("kd,kde,ke->k", step, H, step), 1e-300
        )
        move = np.minimum(along, 4.0)[:, None] * step
        turn = np.einsum("kde,ke->kd", H, move)
        moves, turns = (
            np.concatenate([v, n[None]])[-8:] for v, n in ((moves, move), (turns, turn))
        )
        w, g = w + move, g + turn
    np.testing.assert_allclose(w, best, atol=1e-5)


def test_moves_of_no_curvature_are_left_out():
    g, diagonal, none = np.array([[1.0, -2.0]]), np.ones((1, 2)), np.zeros((1, 1, 2))
    np.testing.assert_array_equal(lbfgs_step(g, diagonal, none, none, 0.25), -0.25 * g)
