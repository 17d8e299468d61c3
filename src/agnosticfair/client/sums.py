"""A round's sums over rows in memory, exactly: the same bits in whatever order and at however many clients. And
Algorithms 1 and 2: training on the client's own rows, for the server to average.

Encoded rows are few columns of numbers and crossed indicators: an indicator's products are its rows' values, so that
sums over x are, to the last bit, those of rounded products v x, without multiplying by zeros and ones. Rows that look
alike are added up once, times how many there are: whole numbers keep sums exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agnosticfair.client.client import CHUNK, Client
from agnosticfair.data.encoding import FEATURE_BITS
from agnosticfair.data.rows import kinds_of
from agnosticfair.errors import DataError
from agnosticfair.mathematics.basis import (
    Basis,
    comes_with_rows,
    kernel_design,
    kernel_width,
    support,
    width,
)
from agnosticfair.mathematics.linear import log_loss, log_loss_derivatives, on_grid
from agnosticfair.mathematics.subgroups import Crossed, gram, totals
from agnosticfair.mathematics.sums import OF_FAIR, OF_LOSS, fields_of, of_fair, of_loss, row_values
from agnosticfair.protocol.messages import Broadcast, Reply, base_bits, exponents
from agnosticfair.protocol.requests import Average, Sums, Task, Trials

KERNEL_BITS = 14
"""Features and kernels are multiples of 2^-20 and 2^-14; what they are multiplied with is rounded to the
bits that then remain of 53 when n rows are added, less some for values above one (``linear.on_grid``)."""

KERNEL_BYTES = 1 << 29
"""A client keeps its kernel matrices between rounds up to this many bytes, and rebuilds larger ones."""

MASS = OF_FAIR.index("psi_theta")


def kernels(client: Client, task: Task, basis: Basis) -> Callable[[slice], np.ndarray]:
    """A function from a slice of the rows to K for these rows, of its ``support`` only."""
    rows, M, design = client.prepare(task), kernel_width(basis), designed(client, task, basis)
    if comes_with_rows(basis):
        return design

    def build(chunk: slice) -> np.ndarray:
        return on_grid(design(chunk), KERNEL_BITS)

    if len(rows.X) * M * 8 > KERNEL_BYTES:
        return build
    K = np.empty((len(rows.X), M))
    for _, chunk in rows.chunks():
        K[chunk] = build(chunk)
    return K.__getitem__


def designed(client: Client, task: Task, basis: Basis) -> Callable[[slice], np.ndarray]:
    """The same as the basis makes it; or as the holder of the rows did, the first kernels where a basis has fewer."""
    rows = client.prepare(task)
    if not comes_with_rows(basis):
        return lambda chunk: kernel_design(basis, rows.X[chunk, :-1], task.centres)
    there = 0 if rows.kernels is None else rows.kernels.shape[1]
    if rows.kernels is None or there < basis.kernels:
        raise DataError(
            f"{client.who} has {there} kernels of its own where {basis.kernels} are agreed: make them "
            "with the same function at every client"
        )
    return rows.kernels[:, : basis.kernels].__getitem__


def filled(
    out: np.ndarray, values: tuple[np.ndarray, ...], gradient: np.ndarray, X: np.ndarray
) -> np.ndarray:
    """(values, gradient x), (n, k), written into the first rows of ``out``."""
    out = out[: len(X)]
    for k, value in enumerate(values):
        out[:, k] = value
    np.multiply(X, gradient[:, None], out=out[:, len(values) :])
    return out


def sums(client: Client, broadcast: Broadcast[Sums]) -> Reply:
    """What ``mathematics.sums`` states, of rows in memory."""
    task, request, rows = broadcast.task, broadcast.request, client.prepare(broadcast.task)
    L, F = task.basis, task.fair_basis
    K_L, K_F = client.cached(task, kernels, L), client.cached(task, kernels, F)
    columns_L, columns_F = (support(basis, client.key, task.clients) for basis in (L, F))
    alpha, C, share, D = request.alpha[columns_L], request.C, request.share, len(request.w)
    scalars = len(OF_LOSS) - 1, len(OF_FAIR) - 1
    by_loss = np.zeros((width(L, task.clients), scalars[0] + D))
    by_fair = np.zeros((task.strata, width(F, task.clients) + 1, scalars[1] + D))
    plain, H, correct = np.zeros(scalars[0] + D), np.zeros((D, D)), 0.0
    size = min(CHUNK, int(np.diff(rows.starts).max()))
    V_L, V_F = (np.empty((size, k + D)) for k in scalars)
    spare = base_bits(task.n) - KERNEL_BITS
    bits_x = spare - exponents(task.encoding)
    bits_L, bits_F = (np.concatenate([np.full(k, spare), bits_x]) for k in scalars)
    for j, chunk in rows.chunks():
        X, k_L, k_F = rows.X[chunk], K_L(chunk), K_F(chunk)
        weights = None if rows.weights is None else rows.weights[chunk]
        d = np.einsum(
            "ij,j->i", X, request.w
        )  # unlike X @ w, the same for a row wherever it stands
        v = row_values(d, rows.y[chunk], request.surrogate)
        V = weighed(filled(V_L, *of_loss(v), X), bits_L, weights)
        by_loss[columns_L] += k_L.T @ V
        plain += V.sum(axis=0)
        V = weighed(filled(V_F, *of_fair(v), X), bits_F, weights)
        by_fair[j, columns_F] += k_F.T @ V
        by_fair[j, -1] += V.sum(axis=0)
        correct += float(v.right @ V[:, MASS])
        h = ((1.0 - share) + share * (k_L @ alpha)) * v.hessian
        h += (k_F @ C[j, columns_F] + C[j, -1]) * v.g_hessian
        H += X.T @ weighed(X * h[:, None], bits_x + KERNEL_BITS - FEATURE_BITS, weights)
    return Reply(broadcast.round, fields_of(plain, by_loss, by_fair, H, correct))


def trials(client: Client, broadcast: Broadcast[Trials]) -> Reply:
    """Loss and decisions under several weights, of rows in memory: the same bits as ``sums`` has under each."""
    task, W, rows = broadcast.task, broadcast.request.W, client.prepare(broadcast.task)
    L, F = task.basis, task.fair_basis
    K_L, K_F = client.cached(task, kernels, L), client.cached(task, kernels, F)
    columns_L, columns_F = (support(basis, client.key, task.clients) for basis in (L, F))
    by_loss = np.zeros((width(L, task.clients), len(W)))
    by_fair = np.zeros((task.strata, width(F, task.clients) + 1, len(W)))
    plain, spare = np.zeros(len(W)), base_bits(task.n) - KERNEL_BITS
    bits = np.full(len(W), spare)
    for j, chunk in rows.chunks():
        X, y = rows.X[chunk], rows.y[chunk]
        weights = None if rows.weights is None else rows.weights[chunk]
        d = np.stack([np.einsum("ij,j->i", X, w) for w in W], axis=1)
        losses = weighed(log_loss(d, y[:, None]), bits, weights)
        hat = weighed((d > 0).astype(float), bits, weights)
        by_loss[columns_L] += K_L(chunk).T @ losses
        by_fair[j, columns_F] += K_F(chunk).T @ hat
        by_fair[j, -1] += hat.sum(axis=0)
        plain += losses.sum(axis=0)
    fields = {"loss": plain, "psi_L": by_loss.T, "psi_hat": np.moveaxis(by_fair, -1, 0)}
    return Reply(broadcast.round, fields)


def average(client: Client, broadcast: Broadcast[Average]) -> Reply:
    """Train on the weighted rows, then send the coefficients at w_k."""
    task, request = broadcast.task, broadcast.request
    rows, columns = client.prepare(task), support(task.basis, client.key, task.clients)
    K = client.cached(task, kernels, task.basis)(slice(0, len(rows.X)))
    theta = K @ request.alpha[columns]

    def over_clients(values: np.ndarray) -> np.ndarray:
        whole = np.zeros_like(request.alpha)
        whole[columns] = values
        return whole

    w_k = train_locally(rows.X, rows.y, theta, request.phi_C / request.n, request)
    d = rows.X @ w_k
    centred = rows.s - request.s_bar
    return Reply(
        broadcast.round,
        {
            "w": w_k,
            "clients": np.array(1.0),
            "psi_L": over_clients(K.T @ log_loss(d, rows.y)),
            "psi_theta": over_clients(K.sum(axis=0)),
            "psi_C": over_clients(K.T @ (centred * d)),
            "phi_C": rows.X.T @ (theta * centred),
            "correct": np.array(float(((d > 0) == (rows.y > 0)).sum())),
        },
    )


def train_locally(
    X: np.ndarray, y: np.ndarray, theta: np.ndarray, phi_C: np.ndarray, request: Average
) -> np.ndarray:
    """Minimise (1/n_k) sum theta l + lambda (phi_C.w - tau)^2 + ridge from w on (eq.
    agnostic_objective_fairness_penalty_term): gradient steps, or Newton until nothing moves."""
    w, penalty, tau, steps = request.w, request.penalty, request.tau, request.steps
    ridge = np.full(len(w), request.ridge)
    ridge[-1] = 0.0

    def value(w: np.ndarray) -> float:
        fit = theta @ log_loss(X @ w, y) / len(y)
        return float(fit + penalty * (phi_C @ w - tau) ** 2 + ridge @ (w * w) / 2)

    for _ in range(50 if steps is None else steps):
        row_gradient, row_hessian = log_loss_derivatives(X @ w, y)
        gradient = X.T @ (theta * row_gradient) / len(y) + ridge * w
        gradient += 2 * penalty * (phi_C @ w - tau) * phi_C
        if steps is not None:
            w = w - request.rate * gradient
            continue
        H = X.T @ (X * (theta * row_hessian / len(y))[:, None]) + np.diag(ridge + 1e-9)
        p = -np.linalg.solve(H + 2 * penalty * np.outer(phi_C, phi_C), gradient)
        scale, here = 1.0, value(w)
        while value(w + scale * p) > here + 1e-4 * scale * (gradient @ p) and scale > 1e-6:
            scale /= 2
        w = w + scale * p
        if np.abs(p).max() < 1e-8:
            break
    return w


@dataclass(frozen=True)
class Features:
    """Rows x of D features.  numbers: (k, n), those that are no indicators, the intercept last; others: (k,), their
    columns in x; exponents: (k,), powers of two that they do not exceed.  hot: the indicators; at: (I,), their columns
    in x."""

    numbers: np.ndarray
    others: np.ndarray
    exponents: np.ndarray
    hot: Crossed
    at: np.ndarray


def weighed(
    v: np.ndarray, bits: int | np.ndarray, weights: np.ndarray | None, axis: int = 0
) -> np.ndarray:
    """v times the weights of the rows, which lie along the axis, if any, on the grid, in place. It is rounded before
    and after: so a row that weighs 2 is the same, to the last bit, as the row twice."""
    on_grid(v, bits)
    if weights is not None:
        v *= np.expand_dims(weights, tuple(k for k in range(v.ndim) if k != axis % v.ndim))
        on_grid(v, bits)
    return v


def _products(
    rows: Features, v: np.ndarray, bits: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """v x on the grid: of the numbers, (k, n), and of an indicator's rows, (n,)."""
    numbers = weighed(rows.numbers * v, (bits - rows.exponents)[:, None], weights, axis=1)
    return numbers, weighed(v.copy(), bits, weights)


def gradient_of(rows: Features, v: np.ndarray, bits: int, weights: np.ndarray | None) -> np.ndarray:
    """sum v x, (D,), of products on a grid of 2^-bits, less the numbers' exponents."""
    numbers, products = _products(rows, v, bits, weights)
    forest = np.empty(len(rows.others) + len(rows.at))
    forest[rows.others], forest[rows.at] = numbers.sum(axis=1), totals(rows.hot, products)
    return forest


def hessian_of(rows: Features, h: np.ndarray, bits: int, weights: np.ndarray | None) -> np.ndarray:
    """sum h x x^T, (D, D), exactly, on a grid of 2^-bits less the numbers' exponents.

    Both h and the numbers are rounded first, so that it is positive semidefinite whatever the rows' number leaves of
    the bits; a number's diagonal has room for what rounding may have taken off it.
    """
    x, products, room = _coarse(rows, h, bits, weights)
    numbers = x * products
    forest = np.empty((len(rows.others) + len(rows.at),) * 2)
    forest[rows.others[:, None], rows.others] = x @ numbers.T + np.diag(room)
    forest[rows.at[:, None], rows.at] = gram(rows.hot, products)
    between = np.array([totals(rows.hot, column) for column in numbers])
    forest[rows.others[:, None], rows.at] = between
    forest[rows.at[:, None], rows.others] = between.T
    return forest


def diagonal(rows: Features, h: np.ndarray, bits: int, weights: np.ndarray | None) -> np.ndarray:
    x, products, room = _coarse(rows, h, bits, weights)
    forest = np.empty(len(rows.others) + len(rows.at))
    forest[rows.others] = np.einsum("kn,n->k", x * x, products) + room
    forest[rows.at] = totals(rows.hot, products)
    return forest


def _coarse(
    rows: Features, h: np.ndarray, bits: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers and h on grids whose products are exact, and the square of the numbers' grid times sum h, 0 for the
    intercept, which is whole."""
    fine = bits // 3
    x = on_grid(rows.numbers.copy(), (fine - rows.exponents)[:, None])
    coarse = weighed(h.copy(), bits - 2 * fine, weights)
    room = coarse.sum() * np.ldexp(1.0, 2 * (rows.exponents - fine))
    room[-1] = 0.0
    return x, coarse, room


MAX_DISTINCT = 0.7
"""The most kinds, as a share of the rows, for which that is done."""


@dataclass(frozen=True)
class Distinct:
    """One row of every kind.  first: (kinds,), their places in the table; None for every row.  weights: (kinds,), how
    many rows are of each kind, or what each row weighs; None for one each.

    >>> rows = Distinct.of([np.array([3.0, 4.0, 3.0, 3.0])], None)
    >>> rows.take(np.array([3.0, 4.0, 3.0, 3.0])) @ rows.weights
    np.float64(13.0)
    """

    first: np.ndarray | None
    weights: np.ndarray | None

    @classmethod
    def of(cls, columns: Sequence[np.ndarray], weights: np.ndarray | None) -> Distinct:
        """The rows that differ in one of the columns, (n,) each; rows with weights are all taken."""
        kinds = (
            None if weights is not None or not len(columns[0]) else kinds_of(columns, MAX_DISTINCT)
        )
        return cls(None, weights) if kinds is None else cls(*kinds)

    def take(self, values: np.ndarray) -> np.ndarray:
        """Values of every row, (..., n), as values of every kind."""
        return values if self.first is None else values[..., self.first]
