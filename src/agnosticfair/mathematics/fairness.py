"""Fairness metrics as linear cuts on per-group coefficient vectors.

Every metric here looks at psi_g[j] = sum_{s_i = j} K(x_i) g(d_w(x_i)), shape (G, M), with g the
indicator of a positive decision or a surrogate of it. For a fixed reweighting alpha, the risk
difference of two groups is *linear* in psi_g, because the masses psi_theta[j] do not depend on w:

    RD_alpha(j, k) = alpha.psi_g[j] / alpha.psi_theta[j] - alpha.psi_g[k] / alpha.psi_theta[k]

so it is one matrix of coefficients C, (G, M), and the constraint is <C, psi_g> <= tau: a *cut*.

Rows are cut into *strata*, the finest pieces that anything is said about: a group of every sensitive feature,
and a label where the metric asks for one. A *compared group* is a union of strata, say all women whose label is
positive, and what a metric compares is pairs of groups; or it bounds one group by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import numpy as np

from agnosticfair.mathematics.ambiguity import Ambiguity, Outcome, Worst, worst_linear
from agnosticfair.mathematics.linear import sigmoid
from agnosticfair.mathematics.metrics import PARITY, metric_of
from agnosticfair.mathematics.ratios import worst_difference, worst_differences, worst_ratio
from agnosticfair.settings import POSITIVE, require, require_name

MAX_CUTS = 6
"""Reweightings that one look for the worst one offers as cuts."""

Pairs = Sequence[tuple[int, int | None]]


@dataclass(frozen=True)
class Comparisons:
    """What a metric looks at.  members: (P, G), 1 where a stratum belongs to a group.  names: (P,).
    pairs: (j, k) for rate_j - rate_k, or (j, None) for the rate of j alone."""

    members: np.ndarray
    names: tuple[str, ...]
    pairs: tuple[tuple[int, int | None], ...]

    def without(self, left_out: Sequence[int]) -> Comparisons:
        """The same, with some groups compared to none."""
        gone = {*left_out}
        return replace(self, pairs=tuple(pair for pair in self.pairs if not gone & {*pair}))


def comparisons(
    sensitive_features: Sequence[tuple[str, Sequence[str]]],
    metric: str = PARITY.name,
    intersections: bool = False,
) -> Comparisons:
    """Pairs of groups, feature by feature, or of the groups' intersections.

    sensitive_features: the name and the groups of each.  Cells are numbered with the last feature, and then
    the label, running fastest.

    >>> comparisons([("sex", ("F", "M"))]).pairs
    ((0, 1), (1, 0))
    >>> comparisons([("sex", ("F", "M"))], "equal_opportunity").names
    ('F with label 1', 'M with label 1')
    """
    fairness_metric = metric_of(metric)
    by_label = (0, 1) if fairness_metric.uses_labels else (None,)
    strata = [*product(*(groups for _, groups in sensitive_features), by_label)]
    one, several = len(sensitive_features) == 1, range(len(sensitive_features))
    blocks = [tuple(several)] if intersections else [(a,) for a in several]
    members: list[list[bool]] = []
    names: list[str] = []
    pairs: list[tuple[int, int | None]] = []
    for block in blocks:
        for labels in fairness_metric.labels:
            first = len(members)
            for group in product(*(sensitive_features[a][1] for a in block)):
                inside = [
                    all(stratum[a] == g for a, g in zip(block, group, strict=True))
                    and (stratum[-1] is None or stratum[-1] in labels)
                    for stratum in strata
                ]
                members.append(inside)
                what = " & ".join(
                    g if one else f"{sensitive_features[a][0]} {g}"
                    for a, g in zip(block, group, strict=True)
                )
                names.append(what if by_label == (None,) else f"{what} with label {labels[0]}")
            here = range(first, len(members))
            alone = [(j, None) for j in here]
            pairs += alone if fairness_metric.bounds else permutations(here, 2)
    shape = (len(members), len(strata))
    return Comparisons(np.array(members, float).reshape(shape), tuple(names), tuple(pairs))


def shrunk(psi: np.ndarray, share: np.ndarray, trust: float) -> np.ndarray:
    """Sums of K' = (1 - trust) K + trust p from those of K, along the axis of kernels after the strata'.

    psi: (G, M + 1, ...), the last one of uniform weights.  share: (M,), p = psi_theta / n.  Where the
    mean weight is one, K' alpha = (1 - trust) K alpha + trust: A is drawn towards uniform weights.
    """
    p = share.reshape(-1, *(1,) * (psi.ndim - 2))
    kernels = (1 - trust) * psi[:, :-1] + trust * p * psi[:, -1:]
    return np.concatenate([kernels, psi[:, -1:]], axis=1)


def under_floor(A: Ambiguity, masses: np.ndarray, floor: float) -> list[int]:
    """The groups, by their masses (P, M), that have the share ``floor`` under no alpha, or no row at all."""
    masses_at_most = [worst_linear(A, mass).value / A.n for mass in masses]
    return [j for j, share in enumerate(masses_at_most) if not share > 0 or share < floor - 1e-12]


@dataclass(frozen=True)
class Surrogate:
    """g: 'sigmoid' of d / temperature, compared as rates; or 'loss', the model's own loss."""

    kind: str = "sigmoid"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_name("surrogate", self.kind, ("sigmoid", "loss"))
        require(POSITIVE, temperature=self.temperature)


def surrogate_values(
    surrogate: Surrogate, d: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """g, g' and g'' at the signed distances d, of a sigmoid.

    >>> [float(v[0]) for v in surrogate_values(Surrogate(), np.zeros(1))]
    [0.5, 0.25, 0.0]
    """
    T = surrogate.temperature
    g = sigmoid(d / T)
    gradient = g * (1.0 - g) / T
    return g, gradient, gradient * (1.0 - 2.0 * g) / T


def rate_cut(alpha: np.ndarray, psi_theta: np.ndarray, j: int, k: int | None = None) -> np.ndarray:
    """C with <C, psi_g> = rate of group j minus rate of group k, if any, under alpha.  psi_theta: (P, M).

    >>> rate_cut(np.ones(1), np.array([[4.0], [2.0]]), 1, 0)
    array([[-0.25],
           [ 0.5 ]])
    """
    C = np.zeros_like(psi_theta)
    C[j] = alpha / (alpha @ psi_theta[j])
    if k is not None:
        C[k] = -alpha / (alpha @ psi_theta[k])
    return C


def kernel_cuts(
    psi_theta: np.ndarray, pairs: Pairs, kernels: Sequence[int] | None = None
) -> np.ndarray:
    """Cuts (k, P, M) that compare the groups under each kernel, or some, by itself, groups of no mass left
    out."""
    P, M = psi_theta.shape
    return np.array(
        [
            rate_cut(np.eye(M)[m], psi_theta, j, k)
            for m in (range(M) if kernels is None else kernels)
            for j, k in pairs
            if psi_theta[j, m] > 0 and (k is None or psi_theta[k, m] > 0)
        ]
    ).reshape(-1, P, M)


def uniform_cuts(psi_theta: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Cuts (k, P, M) that compare the groups under the last kernel alone, which is K = 1."""
    return kernel_cuts(psi_theta, pairs, (-1,))


def worst_rate_cuts(
    A: Ambiguity,
    psi_g: np.ndarray,
    psi_theta: np.ndarray,
    pairs: Pairs,
    floor: float,
    tolerance: float,
    target: float,
) -> np.ndarray:
    """Cuts (k, P, M) of the reweightings in A under which two groups' rates differ most, or one is highest.

    The first of each pair is within ``tolerance`` of the worst, or nothing exceeds ``target``.
    """
    cuts: list[np.ndarray] = []
    bounds = Extremes(A, psi_g, psi_theta, floor) if len(pairs) > 2 else None
    for j, k in pairs:
        if k is None:
            worst = worst_ratio(A, psi_g[j], psi_theta[j], floor)
            if worst.outcome is Outcome.OPTIMAL:
                cuts.append(rate_cut(worst.alpha, psi_theta, j))
            continue
        # max rate_j - min rate_k bounds the pair: with many pairs most need no search
        if bounds is not None and bounds.gap(j, k) <= target:
            cuts += [rate_cut(alpha, psi_theta, j, k) for alpha in bounds.witness(j, k)]
            continue
        alphas, _ = worst_differences(A, psi_g[[k, j]], psi_theta[[k, j]], floor, tolerance, target)
        cuts += [rate_cut(alpha, psi_theta, j, k) for alpha in alphas[:MAX_CUTS]]
    return np.array(cuts).reshape(-1, *psi_g.shape)


@dataclass(frozen=True)
class WorstPair:
    """Two groups, (j, k), whose rates differ most over A; or the one, (j, None), whose rate is highest.
    reachable: the groups that keep the floor under some alpha."""

    worst: Worst
    pair: tuple[int, int | None]
    reachable: frozenset[int]


def worst_pair(
    A: Ambiguity,
    psi: np.ndarray,
    theta: np.ndarray,
    pairs: Pairs,
    floor: float,
    tolerance: float = 1e-4,
) -> WorstPair | None:
    """The largest difference of rates, psi / theta, over A and all pairs of groups; None if there is none.

    psi, theta: (P, M).  max rate_j - min rate_k bounds a pair from above: pairs go by it, and those that
    cannot be worse than what was seen are left out.

    >>> A = Ambiguity(np.array([1.0, 1.0]), 2.0, 1.5)
    >>> psi, theta = np.array([[0.2, 0.1], [0.1, 0.4]]), np.full((2, 2), 0.5)
    >>> found = worst_pair(A, psi, theta, [(0, 1), (1, 0)], 0.1)
    >>> found.pair, round(found.worst.value, 4)
    ((1, 0), 0.4)
    """
    extremes = Extremes(A, psi, theta, floor)
    groups = {j for pair in pairs for j in pair if j is not None}
    there = frozenset(j for j in groups if extremes.highest(j).outcome is Outcome.OPTIMAL)
    known = [(j, k) for j, k in pairs if j in there and (k is None or k in there)]
    value, shows = -np.inf, -np.inf
    best: tuple[np.ndarray, tuple[int, int | None]] | None = None
    for j, k in sorted(known, key=lambda pair: -extremes.gap(*pair)):
        if extremes.gap(j, k) <= shows:
            break
        worst = extremes.highest(j)
        if k is not None:
            worst = worst_difference(A, psi[[k, j]], theta[[k, j]], floor, tolerance)
        if worst.outcome is Outcome.INFEASIBLE:
            continue
        value = max(value, worst.value)
        if worst.value - worst.tolerance > shows:
            shows, best = worst.value - worst.tolerance, (worst.alpha, (j, k))
    if best is None:
        return None
    outcome = Outcome.OPTIMAL if value - shows <= tolerance + 1e-12 else Outcome.FAILED
    return WorstPair(Worst(value, best[0], outcome, value - shows), best[1], there)


class Extremes:
    """The largest and the lowest rate of every group over A, each found once."""

    def __init__(self, A: Ambiguity, psi_g: np.ndarray, psi_theta: np.ndarray, floor: float):
        self._of = (A, psi_g, psi_theta, floor)
        self._cache: dict[tuple[int, int], Worst] = {}

    def _at(self, j: int, sign: int) -> Worst:
        if (j, sign) not in self._cache:
            A, psi_g, psi_theta, floor = self._of
            # a rate is at most 1, so that rate + sign is a ratio of non-negative sums
            a = psi_g[j] if sign > 0 else psi_theta[j] - psi_g[j]
            self._cache[j, sign] = worst_ratio(A, a, psi_theta[j], floor)
        return self._cache[j, sign]

    def highest(self, j: int) -> Worst:
        return self._at(j, 1)

    def gap(self, j: int, k: int | None) -> float:
        """No alpha shows more between j and k, or of j alone."""
        return self._at(j, 1).value - (0.0 if k is None else 1.0 - self._at(k, -1).value)

    def witness(self, j: int, k: int) -> list[np.ndarray]:
        """An alpha that shows something, for the record; it may break the floor of k."""
        alpha, mass = self._at(j, 1).alpha, self._of[2][k]
        return [alpha] if alpha @ mass > self._of[3] * self._of[0].n else []
