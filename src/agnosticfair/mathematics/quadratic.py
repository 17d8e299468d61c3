"""Small dense convex quadratic programs, solved by an interior point and polished on its active set."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agnosticfair.mathematics.ambiguity import Outcome


@dataclass(frozen=True)
class Solution:
    """x, the multipliers of the rows of G (non-negative), and how it ended."""

    x: np.ndarray
    multipliers: np.ndarray
    outcome: Outcome


def minimise(
    P: np.ndarray,
    q: np.ndarray,
    G: np.ndarray,
    h: np.ndarray,
    guess: np.ndarray | None = None,
    definite: bool = False,
) -> Solution:
    """min x.P.x / 2 + q.x subject to G x <= h, for P symmetric and positive semidefinite.

    guess: which rows may be active; where that is right, nothing else is looked at.  definite: whether these rows
    determine x, so that LU factors do where singular values are looked at else.

    >>> minimise(np.eye(1), np.array([-2.0]), np.array([[1.0]]), np.array([1.0])).x.round(9)
    array([1.])
    """
    guessed = None if guess is None else _polish(P, q, G, h, guess, definite)
    if guessed is not None:
        return guessed
    import clarabel
    from scipy import sparse

    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas"):
        setattr(settings, name, 1e-10)
    solver = clarabel.DefaultSolver(
        sparse.triu(P, format="csc"),
        q,
        sparse.csc_matrix(G),
        h,
        [clarabel.NonnegativeConeT(len(h))],
        settings,
    )
    result = solver.solve()
    x, z, s = np.array(result.x), np.array(result.z), np.array(result.s)
    if str(result.status).endswith("Infeasible"):
        return Solution(x, z, Outcome.INFEASIBLE)
    polished = _polish(P, q, G, h, z > s)
    if polished is not None:
        return polished
    solved = str(result.status) in ("Solved", "AlmostSolved") and np.isfinite(x).all()
    return Solution(x, np.maximum(z, 0.0), Outcome.OPTIMAL if solved else Outcome.FAILED)


def _polish(
    P: np.ndarray,
    q: np.ndarray,
    G: np.ndarray,
    h: np.ndarray,
    active: np.ndarray,
    definite: bool = False,
) -> Solution | None:
    """The exact solution on a guessed active set, or None where the guess does not hold."""
    k, D = int(active.sum()), len(q)
    kkt = np.zeros((D + k, D + k))
    kkt[:D, :D] = P
    kkt[:D, D:], kkt[D:, :D] = G[active].T, G[active]
    right = np.concatenate([-q, h[active]])
    solution = _solved(kkt, right, definite)
    x, multipliers = solution[:D], np.zeros(len(h))
    multipliers[active] = solution[D:]
    scale = 1.0 + np.abs(right).max()
    residual = np.abs(kkt @ solution - right).max()
    if residual > 1e-9 * scale or multipliers.min(initial=0.0) < -1e-9 or (G @ x - h).max() > 1e-9:
        return None
    return Solution(x, np.maximum(multipliers, 0.0), Outcome.OPTIMAL)


def _solved(A: np.ndarray, b: np.ndarray, definite: bool) -> np.ndarray:
    """A solution of A x = b, the shortest where there are several."""
    if definite:
        try:
            return np.linalg.solve(A, b)
        except np.linalg.LinAlgError:
            pass
    return np.linalg.lstsq(A, b, rcond=1e-14)[0]
