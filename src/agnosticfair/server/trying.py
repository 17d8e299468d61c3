"""Trials: several weights whose decisions are asked for in one round, where a single step led nowhere.

Decisions are steps of w, and rows on the threshold come and go in lumps: what a model promises near the limit is right
on average only. One round then looks at many steps from the same place, along several models, and takes the best.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product

import numpy as np

ALONG = (0.3, 0.6, 1.0)
"""How far along each proposed step trials lie."""

JITTER = (0.01, 0.02, 0.04, 0.07, 0.11)
"""By which shares of their deviation scores are moved at random."""

SCALES, RETREATS = (1.0, 0.5, 0.25), (0.15, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
"""Shares of the scores' deviation by which thresholds are moved where no decisions within the limit are known."""

TRIALS = tuple(product((0.2, 1.0, 5.0, 25.0), (0.0, 0.2, 0.4, 0.8)))
"""Steps are proposed with these times the damping, and aim at this share of tau under it."""


def around(w: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Trials (T, D) from w along the steps, (k, D)."""
    return w + np.concatenate([share * steps for share in ALONG])


def beside(
    trials: np.ndarray, second_moments: np.ndarray, deviation: float, seed: int, maximum: int
) -> np.ndarray:
    """The trials (T, D) and up to ``maximum`` in all, moved at random: scores by a share of their deviation, in the
    metric X'X / n."""
    D, more = len(second_moments), max(maximum - len(trials), 0)
    root = np.linalg.cholesky(second_moments + 1e-4 * np.eye(D))
    z = np.random.default_rng(seed).standard_normal((more, D))
    size = deviation * np.resize(JITTER, more) / np.sqrt(D)
    bases = trials[np.arange(more) % len(trials)]
    return np.concatenate([trials, bases + size[:, None] * np.linalg.solve(root.T, z.T).T])


def damped(t: int) -> float:
    """How much more than asked the step was damped that trial t lies on or beside."""
    return TRIALS[t % len(TRIALS)][0]


def retreats(w: np.ndarray, deviation: float, constant: float | None) -> np.ndarray:
    """Trials (T, D) with the threshold moved towards a constant decision, which keeps every limit; the same
    decisions from smaller scores, which cost less; and that answer itself.

    constant: its intercept, so that thresholds move towards the commoner label; None where that is not known.
    """
    ways = (-1.0, 1.0) if constant is None else (float(np.sign(constant)) or -1.0,)
    shifts = deviation * np.outer(ways, RETREATS).ravel()
    moved = np.tile(w, (len(shifts), 1))
    moved[:, -1] += shifts
    thresholds = [scale * moved for scale in SCALES]
    if constant is not None:
        thresholds.append(np.append(np.zeros(len(w) - 1), constant)[None])
    return np.concatenate(thresholds)


def best_of(
    losses: np.ndarray,
    psi: np.ndarray,
    cuts: np.ndarray,
    merit: Callable[[float, float], float],
    search: Callable[[int], np.ndarray],
) -> tuple[int, float]:
    """The trial of least merit, and the worst difference of its decisions.

    Parameters
    ----------
    losses, psi
        Of every trial, (T,) and (T, G, F + 1).
    cuts
        Known ones, (k, G, F + 1): what they show bounds each trial's merit from below.
    merit
        Of a loss and a worst difference.
    search
        From a trial to its worst cuts; they bound the other trials, too, so that few are searched.
    """
    worst = _shown(cuts, psi)
    searched: set[int] = set()
    while True:
        t = int(np.argmin([merit(*pair) for pair in zip(losses, worst, strict=True)]))
        if t in searched:
            return t, float(worst[t])
        searched.add(t)
        worst = np.maximum(worst, _shown(search(t), psi))


def _shown(cuts: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """The largest value of the cuts in each trial, (T,), at least 0."""
    return np.einsum("kgm,tgm->tk", cuts, psi).max(axis=1, initial=0.0)


def of_trial(
    sums: Mapping[str, np.ndarray], reply: Mapping[str, np.ndarray], t: int
) -> dict[str, np.ndarray]:
    """What is known of one trial: its loss and decisions, with the masses, which no w changes."""
    masses = {name: sums[name] for name in ("psi_theta", "psi_theta_L")}
    return {**masses, **{name: value[t] for name, value in reply.items()}}
