"""The sums of a round in float32, for rows that are streamed from disk or lie on a GPU.

``float64`` adds on a grid, so that its sums are exact. Here products of a few thousand rows are made in
float32 and added up in float64: half the bytes and twice the operations a second, at a relative error
near 1e-7 (measured in research/docs/scale.md). ``chunk_sums`` is the same for numpy and for PyTorch, which take
turns as ``xp``. K never exists for more than one chunk.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, Protocol

import numpy as np

from agnosticfair.client.client import Client, strata_of
from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.stream import summed
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, SettingsError, needing
from agnosticfair.mathematics.basis import KINDS, Basis, support, width
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.sums import OF_FAIR, OF_LOSS, fields_of, of_fair, of_loss, row_values
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Sums, Task

CHUNK = 1024
"""Rows that are worked on at a time: K for them stays in a core's cache, and float32 adds up that many
products without harm."""


@dataclass(frozen=True, eq=False)
class Rows32:
    """Encoded rows in float32, sorted by cell.  Z: (n, d + 2), the features, 1 and -|x|^2 / 2.  y: labels.
    starts: where each cell begins, (G + 1,).  weights: None for ones."""

    Z: Any
    y: Any
    starts: np.ndarray
    weights: Any = None


@dataclass(frozen=True)
class Request32:
    """A round's request as arrays.  W: (d + 2, M), Z W are the exponents of K.  loss_kernels: another W for the
    loss, where its kernels are not the first of the fairness adversary's.  alpha: (M_L,).  C: (G, M + 1).
    """

    W: Any
    loss_kernels: Any
    w: Any
    alpha: Any
    C: Any
    share: float
    surrogate: Surrogate


def exponents(basis: Basis, centres: np.ndarray | None, d: int) -> np.ndarray:
    """W, (d + 2, M), such that K = exp((x, 1, -|x|^2 / 2) W); zeros where K = 1.

    >>> exponents(Basis("gaussian", 1, 1.0), np.array([[0.5]]), 1)
    array([[ 0.5  ],
           [-0.125],
           [ 1.   ]])
    """
    make = KINDS[basis.kind].exponents
    if make is None:
        raise SettingsError("kernels of your own are added up exactly: leave out the device")
    return make(basis, centres, d)


def request32(task: Task, request: Sums, key: str) -> Request32:
    """What is asked of the client of that key."""
    d = len(request.w) - 1
    own_L, own_F = (support(basis, key, task.clients) for basis in (task.basis, task.fair_basis))
    W_L, W = (exponents(basis, task.centres, d) for basis in (task.basis, task.fair_basis))
    shared = W_L.shape[1] <= W.shape[1] and np.array_equal(W_L, W[:, : W_L.shape[1]])
    loss_kernels = None if shared else W_L
    C = np.hstack([request.C[:, own_F], request.C[:, -1:]])
    request32 = Request32(
        W, loss_kernels, request.w, request.alpha[own_L], C, request.share, request.surrogate
    )
    return moved(request32, lambda v: v.astype(np.float32))


def moved(value: Any, move: Any) -> Any:
    """A dataclass with ``move`` applied to its arrays."""
    values = {f.name: getattr(value, f.name) for f in fields(value)}
    return replace(value, **{k: move(v) for k, v in values.items() if isinstance(v, np.ndarray)})


def encoded32(
    encoding: Encoding, table: Table, y: np.ndarray, s: np.ndarray, strata: int, who: str
) -> Rows32:
    """The rows of a table, with labels y and cells s, as float32, column by column, sorted by cell."""
    order = np.argsort(s.astype(np.min_scalar_type(strata)), kind="stable")
    Z = np.empty((encoding.width + 2, len(table)), np.float32)
    encode(encoding, table, who, Z[:-2].T)
    Z[-2] = 1.0
    Z = np.take(Z, order, axis=1)
    np.einsum("ji,ji->i", Z[:-2], Z[:-2], out=Z[-1])
    Z[-1] /= -2
    starts = np.searchsorted(s[order], np.arange(strata + 1))
    weights = None if table.weights is None else table.weights[order].astype(np.float32)
    return Rows32(Z.T, y[order].astype(np.float32), starts, weights)


def scratch_file() -> Any:
    """A file without a name in $TMPDIR, or in /var/tmp, which unlike /tmp is seldom kept in memory."""
    lasting = "/var/tmp"  # noqa: S108
    folder = os.environ.get("TMPDIR") or (lasting if Path(lasting).is_dir() else None)
    try:
        return TemporaryFile(dir=folder)
    except OSError as error:
        raise DataError(
            f"cannot keep encoded rows in {folder!r} ({error.strerror}): name another folder by TMPDIR"
        ) from None


@dataclass
class Shelf:
    """Encoded rows on disk, in a file that ends with its holder: rounds then neither decode nor encode."""

    file: Any = field(default_factory=scratch_file)
    size: int = 0
    lock: Any = field(default_factory=Lock)

    def __post_init__(self) -> None:
        weakref.finalize(self, self.file.close)

    def put(self, rows: Rows32) -> Callable[[], Rows32]:
        """Keep these rows; the function that comes back reads them."""
        weights = () if rows.weights is None else (rows.weights,)
        block = np.ascontiguousarray(np.vstack([rows.Z.T, rows.y, *weights]))
        with self.lock:
            first, self.size = self.size, self.size + block.nbytes
        try:
            written = os.pwrite(self.file.fileno(), block.data, first)
        except OSError:
            written = 0
        if written < block.nbytes:
            raise DataError(
                f"no room on disk for encoded rows ({self.size / 2**30:.2f} GiB and more are needed): "
                "name a folder on a larger disk by TMPDIR"
            )
        return partial(self.get, first, block.shape, rows.Z.shape[1], rows.starts)

    def get(self, first: int, shape: tuple[int, int], width: int, starts: np.ndarray) -> Rows32:
        block = np.empty(shape, np.float32)
        os.preadv(self.file.fileno(), [block.data.cast("B")], first)
        weights = block[width + 1] if len(block) > width + 1 else None
        return Rows32(block[:width].T, block[width], starts, weights)


def chunk_sums(xp: Any, q: Request32, j: int, z: Any, y: Any, weights: Any) -> tuple[Any, ...]:
    """Sums over rows z (..., c, d + 2) of cell j, in float32, as ``mathematics.sums`` states them:
    ``of_loss``^T K_L, ``of_fair``^T K, the same with K = 1, H and the rows decided rightly."""
    x = z[..., :-1]
    v = row_values(x @ q.w, y, q.surrogate, xp)
    K = _exp(xp, z @ q.W)
    k_L = K[..., : len(q.alpha)] if q.loss_kernels is None else _exp(xp, z @ q.loss_kernels)
    h = (1.0 - q.share + q.share * (k_L @ q.alpha)) * v.hessian
    h = h + (K @ q.C[j, :-1] + q.C[j, -1]) * v.g_hessian
    V_L = _columns(xp, *of_loss(v), x, weights)
    V = _columns(xp, *of_fair(v), x, weights)
    H = _columns(xp, (), h, x, weights)
    of_L, of_F = V_L.swapaxes(-1, -2) @ k_L, V.swapaxes(-1, -2) @ K
    correct = (v.right * V[..., OF_FAIR.index("psi_theta")]).sum(-1)
    return of_L, of_F, V_L.sum(-2), V.sum(-2), x.swapaxes(-1, -2) @ H, correct


def _exp(xp: Any, v: Any) -> Any:
    return xp.exp(v, out=v)


def _columns(xp: Any, first: tuple[Any, ...], gradient: Any, x: Any, weights: Any) -> Any:
    """(first, gradient x), (..., c, k), times the rows' weights."""
    V = x * gradient[..., None]
    if first:
        V = xp.concatenate([v[..., None] for v in first] + [V], axis=-1)
    if weights is not None:
        V *= weights[..., None]
    return V


def add_up(rows: Rows32, q: Request32) -> tuple[np.ndarray, ...]:
    """``chunk_sums`` over all rows, added up in float64, on the CPU; of_F and its plain sums per cell."""
    D, G = len(q.w), len(rows.starts) - 1
    M, M_L = q.W.shape[1], len(q.alpha)
    D_L, D_F = D + len(OF_LOSS) - 1, D + len(OF_FAIR) - 1
    of_L, of_F, H = np.zeros((D_L, M_L)), np.zeros((G, D_F, M)), np.zeros((D, D))
    plain_L, plain_F, correct = np.zeros(D_L), np.zeros((G, D_F)), np.zeros(())
    for j in range(G):
        totals = (of_L, of_F[j], plain_L, plain_F[j], H, correct)
        for first in range(rows.starts[j], rows.starts[j + 1], CHUNK):
            chunk = slice(first, min(first + CHUNK, rows.starts[j + 1]))
            weights = None if rows.weights is None else rows.weights[chunk]
            sums_here = chunk_sums(np, q, j, rows.Z[chunk], rows.y[chunk], weights)
            for total, some in zip(totals, sums_here, strict=True):
                total += some
    return of_L, of_F, plain_L, plain_F, H, correct


def whole(sums: tuple[np.ndarray, ...], task: Task, key: str) -> dict[str, np.ndarray]:
    """The sums by name, over the kernels of all clients, as ``mathematics.sums`` has them."""
    own_L, own_F, plain, uniform, H, correct = sums
    L, F = task.basis, task.fair_basis
    of_L, of_F = (support(basis, key, task.clients) for basis in (L, F))
    by_loss = np.zeros((width(L, task.clients), len(plain)))
    by_fair = np.zeros((len(own_F), width(F, task.clients) + 1, uniform.shape[1]))
    by_loss[of_L], by_fair[:, of_F], by_fair[:, -1] = own_L.T, own_F.swapaxes(1, 2), uniform
    return fields_of(plain, by_loss, by_fair, H, correct)


def batches(client: Client, task: Task) -> list[Callable[[], Rows32]]:
    """The rows as the task encodes them, in float32, a function for each batch: a stream's lie on
    disk, and all others, and those on a device, in memory."""
    if not task.encoding.scale:
        raise SettingsError(
            "sums in float32 are accurate for features from 0 to 1 only: let columns be scaled, or "
            "leave the rows in memory and out of a device"
        )
    shelf = Shelf() if client.table.streamed else None

    def keep(table: Table) -> list[Callable[[], Rows32]]:
        y, s = table.labels(task.positive), strata_of(client, table, task)
        rows = encoded32(task.encoding, table, y, s, task.strata, client.who)
        return [(lambda: rows) if shelf is None else shelf.put(rows)]

    message = client.table.added_up(keep, client.threads)
    if client.device is None:
        return message
    there = on_device(client.device).load(message, client.device)
    return [lambda: there]


def sums(client: Client, broadcast: Broadcast[Sums]) -> Reply:
    """What ``mathematics.sums`` states, the batches added in their order."""
    task = broadcast.task
    q = request32(task, broadcast.request, client.key)
    of_rows = add_up if client.device is None else on_device(client.device).add_up

    def of_batch(rows: Callable[[], Rows32]) -> Reply:
        return Reply(broadcast.round, whole(of_rows(rows(), q), task, client.key))

    return summed(of_batch, client.cached(task, batches), client.threads)


class Device(Protocol):
    """What ``torch_device`` does; it is imported where a device is named."""

    def load(self, batches: Sequence[Callable[[], Rows32]], name: str) -> Rows32: ...

    def add_up(self, rows: Rows32, q: Request32) -> tuple[np.ndarray, ...]: ...


def on_device(name: str) -> Device:
    """The room that knows PyTorch, if it is installed."""
    with needing("torch", f"device {name!r} needs PyTorch; leave it out, or install that"):
        from agnosticfair.client.sums import torch_device
    return torch_device
