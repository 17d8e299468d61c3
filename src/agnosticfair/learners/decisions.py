"""How a rule decides: the score of a row from its estimates, and what each subgroup that it lies in adds.

score(x) = c(x) w(x) - shift - sum_s pi_s(x) sum_k b_k(x) A_ks,   c = false_negative eta - false_positive (1 - eta)

w(x) is 1, or sum_k b_k(x) W_k where the worst subgroup's utility counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from agnosticfair.data.axes import codes_of
from agnosticfair.data.encoding import FEATURE_BITS, Encoding, encode
from agnosticfair.data.table import Table
from agnosticfair.learners.estimates import Estimates, joint, predict, strata
from agnosticfair.mathematics.basis import Basis, design, is_apart, is_centred, kernel_width, width
from agnosticfair.mathematics.linear import on_grid
from agnosticfair.mathematics.scores import (
    COEFFICIENT_BITS,
    Dense,
    Estimated,
    Memberships,
    Weights,
    score,
    utility,
)
from agnosticfair.mathematics.subgroups import (
    SITE,
    SubgroupSet,
    checked_subgroups,
    cross,
    memberships,
    sizes_of,
    subgroup_name,
)


@dataclass(frozen=True)
class Decision:
    """What the program found.

    coefficients: (K, C), what belonging to a subgroup costs by the probability of each stratum; the last row is
    overall. ``error_costs`` are of a false positive and of a false negative, ``shift`` is the multiplier of the
    positive rate. The K - 1 are subgroups, or kernels.  weights: (K,), how much each one's utility counts; None for
    the mean.
    """

    error_costs: tuple[float, float]
    coefficients: np.ndarray
    shift: float = 0.0
    subgroups: SubgroupSet | None = None
    kernels: Kernels | None = None
    weights: np.ndarray | None = None


@dataclass(frozen=True)
class Explanation:
    """What makes up the scores of some rows: ``utility - shift + overall + subgroups.sum(axis=1)``.

    ``utility`` is what a positive decision is worth, by the learner's own estimate, times how much the row's
    subgroups count; ``overall`` what the limit of the difference overall adds.  subgroups: (n, a), 0 where the row
    does not lie in one, of those in which the rule had to act.
    """

    utility: np.ndarray
    shift: float
    overall: np.ndarray
    subgroups: np.ndarray
    names: tuple[str, ...]

    @property
    def score(self) -> np.ndarray:
        """(n,); positive where the decision is."""
        return self.utility - self.shift + self.overall + self.subgroups.sum(axis=1)

    def of_row(self, i: int) -> dict[str, float]:
        """What each subgroup adds that the row lies in, the largest first."""
        subgroups_of_row = self.subgroups[i]
        order = np.argsort(-np.abs(subgroups_of_row), kind="stable")
        return {
            self.names[k]: float(subgroups_of_row[k]) for k in order.tolist() if subgroups_of_row[k]
        }


def plain(estimates: Estimates, error_costs: tuple[float, float]) -> Decision:
    return Decision(error_costs, np.zeros((1, len(strata(estimates.heads)))))


def scores(
    decision: Decision,
    estimates: Estimates,
    encoding: Encoding,
    table: Table,
    who: str = "the data",
    client: str = "",
) -> np.ndarray:
    """The score of every row, (n,), by the model of all rows; positive where the decision is."""
    P = predict(estimates, encoding, estimates.folds, table, who)
    row_weights = weighing(decision, encoding, table, who, client)
    return of_probabilities(decision, estimates, P, row_weights)


def weighing(
    decision: Decision, encoding: Encoding, table: Table, who: str = "the data", client: str = ""
) -> np.ndarray:
    """By what the weight functions of every row are known: its values on the axes of the subgroups, (n, axes), or the
    weights of its kernels, (n, K - 1)."""
    if decision.kernels is None:
        return codes(decision, table, who, client)
    return kernel_weights(decision.kernels, encoding, table, who, client)


def threshold_shifts(decision: Decision) -> np.ndarray:
    """By how much the threshold on P(Y = 1 | x) rises in each subgroup for a row that is surely of a stratum, (K, C); a
    row gets the mean by its own probabilities, and what its subgroups add up to.

    >>> threshold_shifts(Decision((1.0, 1.0), np.array([[0.5, -0.25]])))
    array([[ 0.25 , -0.125]])
    """
    return np.asarray(decision.coefficients, float) / sum(decision.error_costs)


def codes(decision: Decision, table: Table, who: str, client: str = "") -> np.ndarray:
    """Every row's values on the axes of the subgroups, (n, axes); a site that is not known lies in no site's."""
    if decision.subgroups is None:
        return np.zeros((len(table), 0), np.int16)
    axes, _ = decision.subgroups.agreed
    unknown = [a for a, axis in enumerate(axes) if axis.name == SITE and client not in axis.values]
    known = tuple(axis for a, axis in enumerate(axes) if a not in unknown)
    codes = np.full((len(table), len(axes)), -1, np.int16)
    codes[:, [a for a in range(len(axes)) if a not in unknown]] = codes_of(
        table, known, who, client
    )
    return codes


def of_probabilities(
    decision: Decision, estimates: Estimates, P: np.ndarray, codes: np.ndarray
) -> np.ndarray:
    """The score of every row, (n,), from the probabilities of its heads, (H, n), and ``weighing``."""
    rows = Estimated(utility(P[0], decision.error_costs), joint(estimates.heads, P))
    b = weight_functions(decision, codes)
    return score(rows, b, decision.coefficients, decision.shift, decision.weights)


def weight_functions(decision: Decision, codes: np.ndarray) -> Weights:
    """The decision's weight functions of rows, overall last, from their ``weighing``."""
    if decision.subgroups is None:
        return Dense(np.hstack([codes, np.ones((len(codes), 1))]))
    axes, subgroups = decision.subgroups.agreed
    crossed = cross(codes, sizes_of(axes))
    return Memberships(np.ascontiguousarray(codes.T), crossed, subgroups, decision.subgroups.places)


def explain(
    decision: Decision, estimates: Estimates, P: np.ndarray, codes: np.ndarray
) -> Explanation:
    """What each row's score is made of, from the probabilities of its heads, (H, n), and ``weighing``.

    >>> from agnosticfair.learners.estimates import heads
    >>> both = Estimates("given", heads([("sex", ("F", "M"))]), 0, 0)
    >>> P, A = np.array([[0.75], [0.5]]), np.array([[0.5, -0.25]])
    >>> made = explain(Decision((1.0, 1.0), A), both, P, np.zeros((1, 0)))
    >>> made.utility.tolist(), made.overall.tolist(), made.score.tolist()
    ([0.5], [-0.125], [0.375])
    """
    A = on_grid(np.array(decision.coefficients, float), COEFFICIENT_BITS)
    pi = joint(estimates.heads, P)
    overall = -np.einsum("sn,s->n", pi, A[-1])
    names: tuple[str, ...] = ()
    added = np.zeros((P.shape[1], 0))
    on = np.flatnonzero(A[:-1].any(axis=1)).tolist()
    if decision.subgroups is not None and on:
        axes, subgroups = decision.subgroups.agreed
        names = tuple(subgroup_name(axes, subgroups[k]) for k in on)
        added = -memberships(codes, [subgroups[k] for k in on]) * np.einsum("sn,ks->nk", pi, A[on])
    if decision.kernels is not None and on:
        names = tuple(names_of(decision.kernels)[k] for k in on)
        added = -codes[:, on] * np.einsum("sn,ks->nk", pi, A[on])
    none = np.zeros_like(A)
    rows = Estimated(utility(P[0], decision.error_costs), pi)
    worth = score(rows, weight_functions(decision, codes), none, 0.0, decision.weights)
    return Explanation(worth, decision.shift, overall, added, names)


def further_columns(
    decision: Decision, estimates: Estimates, encoding: Encoding
) -> tuple[str, ...]:
    """The columns, no features, that a rule reads: those that name subgroups, and the sensitive ones if it is aware."""
    known = {name for name, *_ in (*encoding.numeric, *encoding.categorical)} | {SITE}
    axes = () if decision.subgroups is None else decision.subgroups.agreed[0]
    aware = [name for head in estimates.heads for name in head.features if estimates.aware]
    return tuple(dict.fromkeys(n for n in (*aware, *(a.name for a in axes)) if n not in known))


KERNEL_BITS = 14
"""A weight is a multiple of 2^-14."""


@dataclass(frozen=True)
class Kernels:
    """Weight functions that are no subgroups: Gaussians around ``centres``, (M, d), in the space of the columns
    without their bins, or one for each client of the fit.
    """

    basis: Basis
    clients: tuple[str, ...] = ()
    centres: np.ndarray | None = None

    @property
    def size(self) -> int:
        return width(self.basis, self.clients)


def names_of(kernels: Kernels) -> tuple[str, ...]:
    """What each is called.

    >>> from agnosticfair.mathematics.basis import by_client, gaussian
    >>> names_of(Kernels(by_client(), ("a", "b"))), names_of(Kernels(gaussian(2)))
    (('client a', 'client b'), ('kernel 1', 'kernel 2'))
    """
    width = kernel_width(kernels.basis)
    numbers = [f"kernel {m}" for m in range(1, width + 1)]
    if not is_apart(kernels.basis):
        return tuple(numbers)
    of_each = numbers if is_centred(kernels.basis) else [""]
    return tuple(f"client {key} {name}".strip() for key in kernels.clients for name in of_each)


def without_bins(encoding: Encoding) -> Encoding:
    """The encoding without bins, in whose space the centres lie."""
    return replace(encoding, bins=())


def kernel_weights(
    kernels: Kernels, encoding: Encoding, table: Table, who: str = "the data", client: str = ""
) -> np.ndarray:
    """Every row's kernel_weights, (n, K), multiples of 2^-14; zeros at a client that was not in the fit.

    >>> from agnosticfair.mathematics.basis import by_client
    >>> rows = Table({"age": np.array([25.0])}, {}, None, {})
    >>> kernel_weights(Kernels(by_client(), ("a", "b")), Encoding((("age", 20.0, 40.0),), ()), rows, client="b")
    array([[0., 1.]])
    """
    if is_apart(kernels.basis) and client not in kernels.clients:
        return np.zeros((len(table), kernels.size))
    X = encode(without_bins(encoding), table, who)
    # on the features' grid products are exact, in whatever order they are added up
    centres = None if kernels.centres is None else on_grid(kernels.centres.copy(), FEATURE_BITS)
    return on_grid(design(kernels.basis, X, centres, client, kernels.clients), KERNEL_BITS)


def check_decision(rule: Decision, encoding: Encoding, strata: int) -> None:
    """Raise ``ValueError`` for what comes from a file and is none.  strata: how many the estimates have."""
    if rule.subgroups is not None:
        checked_subgroups(rule.subgroups.axes, rule.subgroups.values)
    K = 1 + (0 if rule.subgroups is None else len(rule.subgroups.values))
    if rule.kernels is not None:
        if rule.subgroups is not None:
            raise ValueError("both subgroups and kernels")
        _check_kernels(rule.kernels, encoding)
        K = 1 + rule.kernels.size
    _check_numbers(rule.coefficients, (K, strata))
    if rule.weights is not None:
        _check_numbers(rule.weights, (K,))


def _check_kernels(kernels: Kernels, encoding: Encoding) -> None:
    basis, centres = kernels.basis, kernels.centres
    comes_with_rows = basis.kind in ("function", "subgroups")
    if comes_with_rows or is_centred(basis) != (centres is not None):
        raise ValueError("kernels")
    if centres is not None:
        _check_numbers(centres, (basis.kernels, without_bins(encoding).width))


def _check_numbers(values: np.ndarray, shape: tuple[int, ...]) -> None:
    if values.shape != shape or values.dtype != np.float64 or not np.isfinite(values).all():
        raise ValueError("the rule's numbers")
