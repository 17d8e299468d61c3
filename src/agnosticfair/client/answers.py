"""The client's side: a census, then answers to the server's questions, all of them sums over rows.

``answer`` is a function of the rows and the question. What it keeps between rounds (encoded rows,
kernels) is a cache that any later question rebuilds. Never imports the server's side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any, cast

import numpy as np

from agnosticfair.client.sums import float32 as accelerated
from agnosticfair.client.sums.float32 import Rows32, Shelf, encoded32, question
from agnosticfair.data.census import Census, counts_of, take_census
from agnosticfair.data.encoding import FEATURE_BITS, Encoding, encode
from agnosticfair.data.stream import Stream, summed
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, FederationError, SettingsError
from agnosticfair.mathematics.basis import Basis, at_client, design, row_priorities, support, width
from agnosticfair.mathematics.fairness import Surrogate, surrogate_values
from agnosticfair.mathematics.linear import log_loss, log_loss_derivatives, on_grid, with_intercept
from agnosticfair.protocol.grid import base_bits, exponents
from agnosticfair.protocol.grid import on_grid as reply_on_grid
from agnosticfair.protocol.messages import Broadcast, Candidates, Reply, Task

KERNEL_BITS = 14
"""Features and kernels are multiples of 2^-20 and 2^-14; what they are multiplied with is rounded to the
bits that then remain of 53 when n rows are added, less some for values above one (``linear.on_grid``)."""

CHUNK = 4096
"""Rows that are worked on at a time: small enough to stay in a core's cache."""

KERNEL_BYTES = 1 << 29
"""A client keeps its kernel matrices between rounds up to this many bytes, and rebuilds larger ones."""


@dataclass(frozen=True)
class Rows:
    """Encoded rows, sorted by cell. X: (n, d + 1) with the intercept.  s: cell codes, a group's each
    where nothing else is asked for.  starts: where each cell begins, (G + 1,).  weights: None for ones."""

    X: np.ndarray
    y: np.ndarray
    s: np.ndarray
    starts: np.ndarray
    weights: np.ndarray | None = None
    kernels: np.ndarray | None = None

    def chunks(self) -> Iterator[tuple[int, slice]]:
        """(cell, rows) pieces of at most CHUNK rows, each within one cell."""
        for j in range(len(self.starts) - 1):
            for first in range(self.starts[j], self.starts[j + 1], CHUNK):
                yield j, slice(first, min(first + CHUNK, self.starts[j + 1]))


@dataclass
class Client:
    """One client: its key, its rows, and a cache of what the present task makes of them.  threads: that
    add up a stream.  device: of PyTorch, on which the rows lie and are added up; None for here."""

    key: str
    table: Table | Stream
    threads: int = 1
    device: str | None = None
    _task: str = ""
    _rows: Rows | None = None
    _kernels: dict[Basis, Callable[[slice], np.ndarray]] = field(default_factory=dict)
    deep: dict[Any, Any] = field(default_factory=dict)
    _batches: list[Callable[[], Rows32]] = field(default_factory=list)

    @property
    def rows(self) -> Table:
        """The rows in memory: ``answer`` asks a stream's batches one by one."""
        return cast(Table, self.table)

    def prepare(self, task: Task) -> Rows:
        """The encoded rows under this task, built anew when the task is another one."""
        if self._rows is None or self._task != task.id:
            self._rows, self._kernels, self._task = encoded(self.key, self.rows, task), {}, task.id
            self.deep = {}
        return self._rows

    def batches(self, task: Task) -> list[Callable[[], Rows32]]:
        """The rows as the task encodes them, in float32, a function for each batch: a stream's lie on
        disk, and all others, and those on a device, in memory."""
        if not self._batches or self._task != task.id:
            encoding, cells = Encoding.from_json(task.settings["encoding"]), task.settings["cells"]
            if not encoding.scale:
                raise SettingsError(
                    "sums in float32 are accurate for features from 0 to 1 only: let columns be scaled, or "
                    "leave the rows in memory and out of a device"
                )
            shelf, who = Shelf() if self.table.streamed else None, f"client {self.key!r}"

            def keep(table: Table) -> list[Callable[[], Rows32]]:
                y, s = table.labels(task.settings["positive"]), cells_of(self.key, table, task)
                rows = encoded32(encoding, table, y, s, cells, who)
                return [(lambda: rows) if shelf is None else shelf.put(rows)]

            self._batches, self._task = self.table.added_up(keep, self.threads), task.id
            if self.device is not None:
                there = on_device(self.device).load(self._batches, self.device)
                self._batches = [lambda: there]
        return self._batches

    def kernels(self, task: Task, basis: Basis) -> Callable[[slice], np.ndarray]:
        """A function from a slice of the rows to K for these rows, of its ``support`` only."""
        rows = self.prepare(task)
        if basis.kind == "given":
            return given_kernels(self.key, rows, basis)
        if basis not in self._kernels:
            centres = task.arrays.get("centres")
            centres = None if centres is None else centres[: basis.kernels]
            own = at_client(basis)

            def build(part: slice) -> np.ndarray:
                K = design(own, rows.X[part, :-1], centres, self.key, ())
                return on_grid(K, KERNEL_BITS)

            if len(rows.X) * width(own, ()) * 8 <= KERNEL_BYTES:
                K = np.empty((len(rows.X), width(own, ())))
                for _, part in rows.chunks():
                    K[part] = build(part)
                self._kernels[basis] = K.__getitem__
            else:
                self._kernels[basis] = build
        return self._kernels[basis]


def encoded(key: str, table: Table, task: Task) -> Rows:
    """The rows of a table as the task encodes them, sorted by cell (``fairness.comparisons``)."""
    settings = task.settings
    X = with_intercept(
        encode(Encoding.from_json(settings["encoding"]), table, who=f"client {key!r}")
    )
    y = table.labels(settings["positive"])
    s = cells_of(key, table, task)
    order = np.argsort(s, kind="stable")
    starts = np.searchsorted(s[order], np.arange(settings["cells"] + 1))
    weights = None if table.weights is None else table.weights[order]
    kernels = None if table.kernels is None else table.kernels[order]
    return Rows(X[order], y[order], s[order], starts, weights, kernels)


def cells_of(key: str, table: Table, task: Task) -> np.ndarray:
    """The cell of every row, (n,): its groups and, where the task says so, its label."""
    settings = task.settings
    s = np.zeros(len(table), np.int64)
    for name, groups in settings["sensitive_features"]:
        codes = table.column(name).aligned(tuple(groups))
        if (codes < 0).any():
            raise DataError(f"client {key!r} has groups of {name!r} that were not in its census")
        s = s * len(groups) + codes
    return 2 * s + (table.labels(settings["positive"]) > 0) if settings["by_label"] else s


def given_kernels(key: str, rows: Rows, basis: Basis) -> Callable[[slice], np.ndarray]:
    """K as the holder of the rows made it, the first kernels where a basis has fewer."""
    there = 0 if rows.kernels is None else rows.kernels.shape[1]
    if rows.kernels is None or there < basis.kernels:
        raise DataError(
            f"client {key!r} has {there} kernels of its own where {basis.kernels} are agreed: make them "
            "with the same function at every client"
        )
    return rows.kernels[:, : basis.kernels].__getitem__


def census(client: Client, broadcast: None = None) -> Census:
    """Round zero: counts, groups, ranges and categories."""
    return take_census(client.rows, who=f"client {client.key!r}")


def outline(client: Client, broadcast: None = None) -> Census:
    """Round zero of secure sums, in the open: groups, ranges and categories, and no count of anything."""
    return census(client).outline()


def counts(client: Client, broadcast: Broadcast) -> Reply:
    """Round zero of secure sums, masked: how many rows there are of each label and group agreed on."""
    agreed = Census.from_json(broadcast.task.settings["outline"])
    return Reply(broadcast.round, counts_of(census(client), agreed, f"client {client.key!r}"))


def centres(client: Client, broadcast: Broadcast) -> Candidates:
    """Distinct rows offered as kernel centres: those whose priority is under the share asked for."""
    X = client.prepare(broadcast.task).X[:, :-1]
    priorities, first = np.unique(row_priorities(X, broadcast.settings["seed"]), return_index=True)
    chosen = priorities < broadcast.settings["share"]
    return Candidates(priorities[chosen], X[first[chosen]])


def clusters(client: Client, broadcast: Broadcast) -> Reply:
    """One step of k-means: how many rows are nearest to each centre, and their sum."""
    X, b = client.prepare(broadcast.task).X[:, :-1], broadcast.arrays["centres"]
    count, total = np.zeros(len(b)), np.zeros_like(b)
    for first in range(0, len(X), CHUNK):
        x = X[first : first + CHUNK]
        nearest = np.argmin((b * b).sum(axis=1) - 2 * x @ b.T, axis=1)
        hot = np.eye(len(b))[nearest]
        count, total = count + hot.sum(axis=0), total + hot.T @ x
    return Reply(broadcast.round, {"count": count, "total": total})


def weighed(v: np.ndarray, bits: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """v, (n, k), times the rows' weights, if any, on the grid, in place. It is rounded before and after:
    so a row that weighs 2 is the same, to the last bit, as the row twice."""
    on_grid(v, bits)
    if weights is not None:
        v *= weights[:, None]
        on_grid(v, bits)
    return v


def sums(client: Client, broadcast: Broadcast) -> Reply:
    """Values and slopes at w of every coefficient of alpha, in loss and fairness, and one curvature.

    Under w with d = X w, per kernel m and cell j (every sum with the rows' weights, where they have any):
    psi_L = sum K l,  J_L = sum K l' x  (and the same with K = 1: loss, J_1),
    psi_g[j] = sum_{s=j} K g,  J_g[j] = sum_{s=j} K g' x,
    psi_hat[j] = sum_{s=j} K [d > 0] (of wrong decisions instead, where g is the loss),
    psi_theta[j] = sum_{s=j} K  (each with K = 1 as a last column: the uniform weights), and
    H = sum (theta_L l'' + c g'') x x^T, where theta_L = 1 - share + share K alpha and c = K C[s].
    Rows in memory are added up exactly; a stream's, and those on a device, in float32 (``sums32``).
    """
    if client.table.streamed or client.device is not None:
        return sums32(client, broadcast)
    task, w = broadcast.task, broadcast.arrays["w"]
    rows = client.prepare(task)
    loss_basis, fair_basis = Basis(**task.settings["basis"]), Basis(**task.settings["fair_basis"])
    K_L, K_F = client.kernels(task, loss_basis), client.kernels(task, fair_basis)
    surrogate, share = Surrogate(**broadcast.settings["surrogate"]), broadcast.settings["share"]
    clients, G, D = task.settings["clients"], task.settings["cells"], len(w)
    of_L, of_F = (support(basis, client.key, clients) for basis in (loss_basis, fair_basis))
    alpha, C = broadcast.arrays["alpha"][of_L], broadcast.arrays["C"]
    of_loss = np.zeros((width(loss_basis, clients), D + 2))
    of_fair = np.zeros((G, width(fair_basis, clients) + 1, D + 3))
    plain, H, correct = np.zeros(D + 2), np.zeros((D, D)), 0.0
    most = min(CHUNK, int(np.diff(rows.starts).max()))
    V_L, V_F = np.empty((most, D + 2)), np.empty((most, D + 3))
    bits = np.concatenate([np.zeros(3, int), -exponents(task)])
    bits += base_bits(task.settings["n"]) - KERNEL_BITS
    for j, part in rows.chunks():
        X, y, k_L, k_F = rows.X[part], rows.y[part], K_L(part), K_F(part)
        d = np.einsum("ij,j->i", X, w)  # unlike X @ w, the same for a row wherever it stands
        slope, curve = log_loss_derivatives(d, y)
        loss, right = log_loss(d, y), (d > 0) == (y > 0)
        if surrogate.kind == "loss":
            g, g_slope, g_curve, hat = loss, slope, curve, ~right
        else:
            g, g_slope, g_curve = surrogate_values(surrogate, d)
            hat = d > 0
        weights = None if rows.weights is None else rows.weights[part]
        v = V_L[: len(d)]
        v[:, 0], v[:, 1] = loss, 1.0
        np.multiply(X, slope[:, None], out=v[:, 2:])
        of_loss[of_L] += k_L.T @ weighed(v, bits[1:], weights)
        plain += v.sum(axis=0)
        v = V_F[: len(d)]
        v[:, 0], v[:, 1], v[:, 2] = g, 1.0, hat
        np.multiply(X, g_slope[:, None], out=v[:, 3:])
        of_fair[j, of_F] += k_F.T @ weighed(v, bits, weights)
        of_fair[j, -1] += v.sum(axis=0)
        theta_L = (1.0 - share) + share * (k_L @ alpha)
        h = theta_L * curve + (k_F @ C[j, of_F] + C[j, -1]) * g_curve
        H += X.T @ weighed(X * h[:, None], bits[3:] + KERNEL_BITS - FEATURE_BITS, weights)
        correct += float(v[right, 1].sum())
    found = accelerated.by_name(plain, of_loss, of_fair, H, np.array(correct))
    return Reply(broadcast.round, found)


def sums32(client: Client, broadcast: Broadcast) -> Reply:
    """``sums`` in float32, the batches added in their order."""
    q = question(broadcast, client.key)
    add_up = accelerated.sums if client.device is None else on_device(client.device).sums

    def of_batch(rows: Callable[[], Rows32]) -> Reply:
        found = add_up(rows(), q)
        return Reply(broadcast.round, accelerated.named(found, broadcast, client.key))

    return summed(of_batch, client.batches(broadcast.task), client.threads)


def on_device(name: str) -> ModuleType:
    """The room that knows PyTorch, if it is installed."""
    try:
        from agnosticfair.client.sums import torch_device as device
    except ImportError:
        raise SettingsError(
            f"device {name!r} needs PyTorch: install it by pip install 'agnosticfair[torch]', or leave out "
            "the device"
        ) from None
    return device


def check_in_memory(client: Client) -> None:
    if client.table.streamed:
        raise DataError(
            f"client {client.key!r} streams its rows, and local steps need them in memory: take a linear "
            "model by a method without them, or fewer rows"
        )


def local(client: Client, broadcast: Broadcast) -> Reply:
    """Algorithm 2, client side: train on the weighted rows, then send the coefficients at w_k."""
    check_in_memory(client)
    task, arrays, settings = broadcast.task, broadcast.arrays, broadcast.settings
    rows, basis = client.prepare(task), Basis(**task.settings["basis"])
    own = support(basis, client.key, task.settings["clients"])
    K = client.kernels(task, basis)(slice(0, len(rows.X)))
    theta = K @ arrays["alpha"][own]

    def spread(values: np.ndarray) -> np.ndarray:
        whole = np.zeros_like(arrays["alpha"])
        whole[own] = values
        return whole

    phi_C = arrays["phi_C"] / settings["n"]
    w_k = train_locally(rows.X, rows.y, theta, phi_C, arrays["w"], settings)
    d = rows.X @ w_k
    centred = rows.s - settings["s_bar"]
    return Reply(
        broadcast.round,
        {
            "w": w_k,
            "clients": np.array(1.0),
            "psi_L": spread(K.T @ log_loss(d, rows.y)),
            "psi_theta": spread(K.sum(axis=0)),
            "psi_C": spread(K.T @ (centred * d)),
            "phi_C": rows.X.T @ (theta * centred),
            "correct": np.array(float(((d > 0) == (rows.y > 0)).sum())),
        },
    )


def train_locally(
    X: np.ndarray,
    y: np.ndarray,
    theta: np.ndarray,
    phi_C: np.ndarray,
    w: np.ndarray,
    settings: Mapping[str, Any],
) -> np.ndarray:
    """Minimise (1/n_k) sum theta l + lambda (phi_C.w - tau)^2 + ridge from w (eq.
    agnostic_objective_fairness_penalty_term): gradient steps, or Newton until nothing moves."""
    penalty, tau, steps = settings["penalty"], settings["tau"], settings["steps"]
    ridge = np.full(len(w), settings["ridge"])
    ridge[-1] = 0.0

    def value(w: np.ndarray) -> float:
        fit = theta @ log_loss(X @ w, y) / len(y)
        return float(fit + penalty * (phi_C @ w - tau) ** 2 + ridge @ (w * w) / 2)

    for _ in range(50 if steps is None else steps):
        slope, curve = log_loss_derivatives(X @ w, y)
        gradient = X.T @ (theta * slope) / len(y) + ridge * w
        gradient += 2 * penalty * (phi_C @ w - tau) * phi_C
        if steps is not None:
            w = w - settings["rate"] * gradient
            continue
        H = X.T @ (X * (theta * curve / len(y))[:, None]) + np.diag(ridge + 1e-9)
        p = -np.linalg.solve(H + 2 * penalty * np.outer(phi_C, phi_C), gradient)
        scale, here = 1.0, value(w)
        while value(w + scale * p) > here + 1e-4 * scale * (gradient @ p) and scale > 1e-6:
            scale /= 2
        w = w + scale * p
        if np.abs(p).max() < 1e-8:
            break
    return w


def decisions(client: Client, broadcast: Broadcast) -> Reply:
    """What an audit needs of the decisions d_w(x) > 0: ``tally`` over cells (group, label, decision).

    The resamples' seed is made of the rows, so that it is the same at every asking and yet unknown
    to the server: who knew how often each row was drawn could solve for the rows.
    """
    task = broadcast.task
    rows, basis = client.prepare(task), Basis(**task.settings["basis"])
    if "network" in task.settings:
        decide = import_module("agnosticfair.networks").decide
        d = decide(task.settings["network"], broadcast.arrays["w"], rows.X[:, :-1])
    else:
        d = rows.X @ broadcast.arrays["w"]
    cells = (rows.s * 2 + (rows.y > 0)) * 2 + (d > 0)
    digest = hashlib.sha256(np.ascontiguousarray(rows.X).data).digest()
    rng = np.random.default_rng([broadcast.settings["seed"], *digest])

    def kernels(x: np.ndarray) -> np.ndarray:
        centres, clients = task.arrays.get("centres"), task.settings["clients"]
        return design(basis, x, centres, client.key, clients)

    count, replicates = 4 * len(task.settings["groups"]), broadcast.settings["replicates"]
    X = rows.X[:, :-1]
    return Reply(broadcast.round, tally(X.__getitem__, kernels, cells, count, replicates, rng))


def tally(
    rows: Callable[[slice], np.ndarray],
    kernels: Callable[[np.ndarray], np.ndarray],
    cells: np.ndarray,
    count: int,
    replicates: int,
    rng: np.random.Generator,
) -> dict[str, np.ndarray]:
    """Sums of (K, 1) over the rows of each cell, in one pass of CHUNK rows at a time.

    rows: from a slice to x, (k, d).  kernels: from x to K, (k, M).  cells: (n,), each < count.
    psi[0, c] = sum_{i in c} (K_i, 1); psi[r, c], r = 1..replicates, is the same over a resample that
    has row i Poisson(1) times; psi_x = sum_i (K_i, 1) x_i^T; x_squares = sum_i x_i^2.
    """
    psi, psi_x, squares = np.zeros(()), np.zeros(()), np.zeros(())
    for first in range(0, len(cells), CHUNK):
        part = slice(first, first + CHUNK)
        order = np.argsort(cells[part], kind="stable")
        ends = np.searchsorted(cells[part][order], np.arange(count + 1))
        x = rows(part)[order]
        K = np.hstack([kernels(x), np.ones((len(x), 1))])
        times = np.ones((1 + replicates, len(x)))
        times[1:] = rng.poisson(1.0, size=(replicates, len(x)))
        psi = psi + np.stack([times[:, a:b] @ K[a:b] for a, b in pairwise(ends)], axis=1)
        psi_x, squares = psi_x + K.T @ x, squares + (x * x).sum(axis=0)
    return {"psi": psi, "psi_x": psi_x, "x_squares": squares}


def _of_networks(name: str) -> Callable:
    """A step that trains or asks a network: PyTorch is imported when the first one is asked for, and a
    network that is not known here is refused then."""

    def step(client: Client, broadcast: Broadcast) -> Reply:
        # first, for it is this module that says so where PyTorch is missing
        networks = import_module("agnosticfair.networks")
        networks.factory(broadcast.task.settings["network"]["name"])
        check_in_memory(client)
        return getattr(import_module("agnosticfair.client.networks"), name)(client, broadcast)

    return step


STEPS: dict[str, Callable] = {
    "census": census,
    "outline": outline,
    "counts": counts,
    "centres": centres,
    "clusters": clusters,
    "sums": sums,
    "local": local,
    "decisions": decisions,
    "moments": _of_networks("moments"),
    "train": _of_networks("train"),
    "average": _of_networks("average"),
}

BY_BATCH = {"census", "outline", "counts", "centres", "clusters", "decisions"}
"""Steps that a stream answers batch by batch, each as if it were a client: messages add."""


def answer(client: Client, step: str, broadcast: Broadcast | None) -> Census | Candidates | Reply:
    """The client's reply to one step of the protocol; the same question gets the same answer."""
    if step not in STEPS:
        raise FederationError(
            f"client {client.key!r} knows no step {step!r}; it knows {', '.join(STEPS)}"
        )
    if not client.table.streamed or step not in BY_BATCH:
        found = STEPS[step](client, broadcast)
    else:
        found = client.table.added_up(
            lambda table: STEPS[step](Client(client.key, table), broadcast), client.threads
        )
    # masked or not, sums are integers of one unit: what is exact already keeps its bits
    if broadcast is None or not isinstance(found, Reply):
        return found
    return reply_on_grid(found, broadcast.task)
