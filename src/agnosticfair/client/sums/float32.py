"""The sums of a round in float32, for rows that are streamed from disk or lie on a GPU.

``client.sums`` adds in float64 on a grid, so that its sums are exact. Here products of a few thousand
rows are made in float32 and added up in float64: half the bytes and twice the operations a second, at a
relative error near 1e-7 (measured in docs/scale.md). ``chunk_sums`` is the one place where the formulas
stand; it is the same for numpy and for PyTorch, which take turns as ``xp``. K never exists for more
than one chunk.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

import numpy as np

from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics.basis import Basis, support, width
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.protocol.messages import Broadcast

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
class Question:
    """A round's question as arrays.  W: (d + 2, M), Z W are the exponents of K.  own: another W for the
    loss, where its kernels are not the first of the fairness adversary's.  alpha: (M_L,).  C: (G, M + 1).
    """

    W: Any
    own: Any
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
    if basis.kind == "given":
        raise SettingsError("kernels of your own are added up exactly: leave out the device")
    if basis.kind != "gaussian":
        return np.zeros((d + 2, 1))
    if centres is None:
        raise SettingsError("a gaussian basis needs centres: draw them before the first round")
    b = centres[: basis.kernels] / float(basis.sigma)
    last = np.full(len(b), 1.0 / float(basis.sigma) ** 2)
    return np.vstack([b.T / float(basis.sigma), -(b * b).sum(axis=1) / 2, last])


def question(broadcast: Broadcast, key: str) -> Question:
    """What a broadcast asks of the client of that key."""
    task, arrays, settings = broadcast.task, broadcast.arrays, broadcast.settings
    bases, clients = _bases(broadcast), task.settings["clients"]
    centres, d = task.arrays.get("centres"), len(arrays["w"]) - 1
    of_L, of_F = (support(basis, key, clients) for basis in bases)
    W_L, W = (exponents(basis, centres, d) for basis in bases)
    shared = W_L.shape[1] <= W.shape[1] and np.array_equal(W_L, W[:, : W_L.shape[1]])
    C = arrays["C"]
    asked = Question(
        W,
        None if shared else W_L,
        arrays["w"],
        arrays["alpha"][of_L],
        np.hstack([C[:, of_F], C[:, -1:]]),
        settings["share"],
        Surrogate(**settings["surrogate"]),
    )
    return moved(asked, lambda v: v.astype(np.float32))


def moved(value: Any, move: Any) -> Any:
    """A dataclass with ``move`` applied to its arrays."""
    own = {f.name: getattr(value, f.name) for f in fields(value)}
    return replace(value, **{k: move(v) for k, v in own.items() if isinstance(v, np.ndarray)})


def encoded32(
    encoding: Encoding, table: Table, y: np.ndarray, s: np.ndarray, cells: int, who: str
) -> Rows32:
    """The rows of a table, with labels y and cells s, as float32, column by column, sorted by cell."""
    order = np.argsort(s.astype(np.min_scalar_type(cells)), kind="stable")
    Z = np.empty((encoding.width + 2, len(table)), np.float32)
    encode(encoding, table, who, Z[:-2].T)
    Z[-2] = 1.0
    Z = np.take(Z, order, axis=1)
    np.einsum("ji,ji->i", Z[:-2], Z[:-2], out=Z[-1])
    Z[-1] /= -2
    starts = np.searchsorted(s[order], np.arange(cells + 1))
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


def chunk_sums(xp: Any, q: Question, j: int, z: Any, y: Any, weights: Any) -> tuple[Any, ...]:
    """Sums over rows z (..., c, d + 2) of cell j, in float32: what ``client.sums`` says, as
    (l, 1, l' x)^T K_L, (g, 1, [d > 0], g' x)^T K, the same with K = 1, H and the rows decided rightly."""
    x = z[..., :-1]
    d = x @ q.w
    e = xp.exp(-abs(d))
    p = xp.where(d >= 0, 1.0, e) / (1.0 + e)
    loss, slope, curve = (d + abs(d)) / 2 + xp.log1p(e) - y * d, p - y, p * (1.0 - p)
    right = (d > 0) == (y > 0)
    g, g_slope, g_curve, hat = loss, slope, curve, ~right
    if q.surrogate.kind != "loss":
        hat = d > 0
        g, g_slope, g_curve = d, 1.0 + 0.0 * d, 0.0 * d
    if q.surrogate.kind == "sigmoid":
        T = q.surrogate.temperature
        e = xp.exp(-abs(d) / T)
        g = xp.where(d >= 0, 1.0, e) / (1.0 + e)
        g_slope = g * (1.0 - g) / T
        g_curve = g_slope * (1.0 - 2.0 * g) / T
    K = _exp(xp, z @ q.W)
    k_L = K[..., : len(q.alpha)] if q.own is None else _exp(xp, z @ q.own)
    h = (1.0 - q.share + q.share * (k_L @ q.alpha)) * curve + (
        K @ q.C[j, :-1] + q.C[j, -1]
    ) * g_curve
    one = x[..., -1]
    V_L = _columns(xp, (loss, one), x, slope, weights)
    V = _columns(xp, (g, one, hat * one), x, g_slope, weights)
    H = _columns(xp, (), x, h, weights)
    of_L, of_F = V_L.swapaxes(-1, -2) @ k_L, V.swapaxes(-1, -2) @ K
    correct = (right * V[..., 1]).sum(-1)
    return of_L, of_F, V_L.sum(-2), V.sum(-2), x.swapaxes(-1, -2) @ H, correct


def _exp(xp: Any, v: Any) -> Any:
    return xp.exp(v, out=v)


def _columns(xp: Any, first: tuple[Any, ...], x: Any, slope: Any, weights: Any) -> Any:
    """(first, slope x), (..., c, k), times the rows' weights."""
    V = x * slope[..., None]
    if first:
        V = xp.concatenate([v[..., None] for v in first] + [V], axis=-1)
    if weights is not None:
        V *= weights[..., None]
    return V


def sums(rows: Rows32, q: Question) -> tuple[np.ndarray, ...]:
    """``chunk_sums`` over all rows, added up in float64, on the CPU; of_F and its plain sums per cell."""
    D, G = len(q.w), len(rows.starts) - 1
    M, M_L = q.W.shape[1], len(q.alpha)
    of_L, of_F = np.zeros((D + 2, M_L)), np.zeros((G, D + 3, M))
    plain_L, plain_F, H, correct = np.zeros(D + 2), np.zeros((G, D + 3)), np.zeros((D, D)), 0.0
    for j in range(G):
        for first in range(rows.starts[j], rows.starts[j + 1], CHUNK):
            part = slice(first, min(first + CHUNK, rows.starts[j + 1]))
            weights = None if rows.weights is None else rows.weights[part]
            found = chunk_sums(np, q, j, rows.Z[part], rows.y[part], weights)
            of_L += found[0]
            of_F[j] += found[1]
            plain_L += found[2]
            plain_F[j] += found[3]
            H += found[4]
            correct += float(found[5])
    return of_L, of_F, plain_L, plain_F, H, np.array(correct)


def named(
    found: tuple[np.ndarray, ...], broadcast: Broadcast, key: str
) -> Mapping[str, np.ndarray]:
    """The sums under the names, and in the shapes, of ``client.sums``."""
    own_L, own_F, plain, uniform, H, correct = found
    bases, clients = _bases(broadcast), broadcast.task.settings["clients"]
    of_L, of_F = (support(basis, key, clients) for basis in bases)
    of_loss = np.zeros((width(bases[0], clients), len(plain)))
    of_fair = np.zeros((len(own_F), width(bases[1], clients) + 1, uniform.shape[1]))
    of_loss[of_L], of_fair[:, of_F], of_fair[:, -1] = own_L.T, own_F.swapaxes(1, 2), uniform
    return by_name(plain, of_loss, of_fair, H, correct)


def by_name(
    plain: np.ndarray, of_loss: np.ndarray, of_fair: np.ndarray, H: np.ndarray, correct: np.ndarray
) -> dict[str, np.ndarray]:
    """The fields of a reply.  plain: (D + 2,) of loss, mass and slopes; of_loss: (M, D + 2) the same by
    kernel; of_fair: (G, F + 1, D + 3) of surrogate, mass, decisions and slopes."""
    return {
        "loss": plain[0],
        "J_1": plain[2:],
        "psi_L": of_loss[:, 0],
        "psi_theta_L": of_loss[:, 1],
        "J_L": of_loss[:, 2:],
        "psi_g": of_fair[:, :, 0],
        "psi_theta": of_fair[:, :, 1],
        "psi_hat": of_fair[:, :, 2],
        "J_g": of_fair[:, :, 3:],
        "H": H,
        "correct": correct,
    }


def _bases(broadcast: Broadcast) -> tuple[Basis, Basis]:
    settings = broadcast.task.settings
    return Basis(**settings["basis"]), Basis(**settings["fair_basis"])
