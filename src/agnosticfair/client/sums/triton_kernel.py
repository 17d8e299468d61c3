"""The sums of a round in one pass of a Triton kernel: K is made, used and forgotten in registers.

Matrix units multiply half-precision numbers. Every operand is split into two of them, high + low, which
hold 22 bits together, and three of the four products are taken: float32's accuracy at a third of the
units' rate. Features lie about the middle of the centres, which changes no distance and keeps exponents
small. A product's sum over one tile of rows is added to the total by ordinary, rounded additions,
because the matrix units truncate theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch
import triton
import triton.language as tl

from agnosticfair.client.sums.float32 import Question32, Rows32

MOST_FEATURES = 61
"""With the intercept, that the kernel has columns for."""

K_SCALE, V_SCALE = 4096.0, 64.0
"""What K and its factors are multiplied with before they are split, so that small ones keep their bits."""

KINDS = {"sigmoid": 0, "covariance": 1, "loss": 2}


def fits(q: Question32) -> bool:
    """Whether the features are few enough."""
    return len(q.w) <= MOST_FEATURES


@triton.jit
def _row_values(d, y, T, KIND: tl.constexpr):
    """The loss, the surrogate and their slopes and curvatures of signed distances d; two decisions."""
    e = tl.exp(-tl.abs(d))
    p = tl.where(d >= 0, 1.0, e) / (1.0 + e)
    loss = tl.maximum(d, 0.0) + tl.log(1.0 + e) - y * d
    slope, curve = p - y, p * (1.0 - p)
    right = tl.where((d > 0) == (y > 0), 1.0, 0.0)
    if KIND == 0:
        e = tl.exp(-tl.abs(d) / T)
        g = tl.where(d >= 0, 1.0, e) / (1.0 + e)
        g_slope = g * (1.0 - g) / T
        g_curve = g_slope * (1.0 - 2.0 * g) / T
        hat = tl.where(d > 0, 1.0, 0.0)
    elif KIND == 1:
        g, g_slope, g_curve = d, 1.0 + 0.0 * d, 0.0 * d
        hat = tl.where(d > 0, 1.0, 0.0)
    else:
        g, g_slope, g_curve = loss, slope, curve
        hat = 1.0 - right
    return loss, slope, curve, g, g_slope, g_curve, right, hat


@triton.jit
def _split(v):
    high = v.to(tl.float16)
    return high, (v - high.to(tl.float32)).to(tl.float16)


@triton.jit
def _factors(x_at, w_at, column, inside, loss, slope, g, g_slope, right, hat, D: tl.constexpr):
    """Columns of (g' x, g, 1, hat, l' x, l, right), (rows, columns), scaled and weighed."""
    second = column >= D + 3
    place = tl.where(second, column - D - 3, column)
    of_x = place < D
    x = tl.load(x_at[:, None] + place[None, :], mask=inside[:, None] & of_x[None, :], other=0.0)
    factor = tl.where(second[None, :], slope[:, None], g_slope[:, None])
    v = tl.where(of_x[None, :], x * factor, 0.0)
    v = tl.where((column == D)[None, :], g[:, None], v)
    v = tl.where((column == D + 1)[None, :], 1.0, v)
    v = tl.where((column == D + 2)[None, :], hat[:, None], v)
    v = tl.where((column == 2 * D + 3)[None, :], loss[:, None], v)
    v = tl.where((column == 2 * D + 4)[None, :], right[:, None], v)
    return v * w_at[:, None]


@triton.jit
def _multiply(K_high, K_low, V, total, one):
    V_high, V_low = _split(V)
    part = tl.dot(K_low, V_high)
    part = tl.dot(K_high, V_low, part)
    part = tl.dot(K_high, V_high, part)
    return total + part * one  # the factor keeps this addition out of the matrix units


@triton.jit
def _sums(
    Z, Y, WEIGHTS, B_HIGH, B_LOW, U, NB, ALPHA, C, W, OUT, THETA,
    first, last, n, T, one, programs,
    D: tl.constexpr, STRIDE: tl.constexpr, DA: tl.constexpr, DB: tl.constexpr,
    VA: tl.constexpr, VB: tl.constexpr, KIND: tl.constexpr, WEIGHED: tl.constexpr,
    BLOCKS: tl.constexpr, BM: tl.constexpr, BR: tl.constexpr,
    K_SCALE: tl.constexpr, V_SCALE: tl.constexpr,
):  # fmt: skip
    block, program = tl.program_id(0) % BLOCKS, tl.program_id(0) // BLOCKS
    m = block * BM + tl.arange(0, BM)
    a = tl.arange(0, DA)
    B_at = m[:, None] * STRIDE
    ba_high, ba_low = tl.load(B_HIGH + B_at + a[None, :]), tl.load(B_LOW + B_at + a[None, :])
    w_a = tl.load(W + a)
    if DB > 0:
        b = DA + tl.arange(0, DB)
        bb_high, bb_low = tl.load(B_HIGH + B_at + b[None, :]), tl.load(B_LOW + B_at + b[None, :])
        w_b = tl.load(W + b)
    u, nb, alpha, c = tl.load(U + m), tl.load(NB + m), tl.load(ALPHA + m), tl.load(C + m)
    column_a = tl.arange(0, VA)
    total_a = tl.zeros((BM, VA), tl.float32)
    if VB > 0:
        column_b = VA + tl.arange(0, VB)
        total_b = tl.zeros((BM, VB), tl.float32)
    for tile in range(program, tl.cdiv(last - first, BR), programs):
        r = first + tile * BR + tl.arange(0, BR)
        inside = r < last
        x_at = Z + r.to(tl.int64) * STRIDE
        xa = tl.load(x_at[:, None] + a[None, :], mask=inside[:, None], other=0.0)
        d = tl.sum(xa * w_a[None, :], axis=1)
        x_high, x_low = _split(xa)
        S = tl.dot(ba_low, tl.trans(x_high))
        S = tl.dot(ba_high, tl.trans(x_low), S)
        S = tl.dot(ba_high, tl.trans(x_high), S)
        if DB > 0:
            xb = tl.load(x_at[:, None] + b[None, :], mask=inside[:, None], other=0.0)
            d += tl.sum(xb * w_b[None, :], axis=1)
            x_high, x_low = _split(xb)
            S = tl.dot(bb_low, tl.trans(x_high), S)
            S = tl.dot(bb_high, tl.trans(x_low), S)
            S = tl.dot(bb_high, tl.trans(x_high), S)
        nx = tl.load(x_at + D, mask=inside, other=0.0)
        y = tl.load(Y + r, mask=inside, other=0.0)
        loss, slope, _, g, g_slope, _, right, hat = _row_values(d, y, T, KIND)
        weight = tl.where(inside, V_SCALE, 0.0)
        if WEIGHED:
            weight *= tl.load(WEIGHTS + r, mask=inside, other=0.0)
        # K, (BM, BR), times K_SCALE, which nb holds; u and nb are in units of log 2
        K = tl.exp2((S - nx[None, :]) * u[:, None] - nb[:, None])
        at = THETA + (2 * block).to(tl.int64) * n + r
        tl.store(at, tl.sum(K * alpha[:, None], axis=0) / K_SCALE, mask=inside)
        tl.store(at + n, tl.sum(K * c[:, None], axis=0) / K_SCALE, mask=inside)
        K_high, K_low = _split(K)
        V = _factors(x_at, weight, column_a, inside, loss, slope, g, g_slope, right, hat, D)
        total_a = _multiply(K_high, K_low, V, total_a, one)
        if VB > 0:
            V = _factors(x_at, weight, column_b, inside, loss, slope, g, g_slope, right, hat, D)
            total_b = _multiply(K_high, K_low, V, total_b, one)
    at = OUT + (program * BLOCKS * BM + m[:, None]).to(tl.int64) * (VA + VB)
    tl.store(at + column_a[None, :], total_a)
    if VB > 0:
        tl.store(at + column_b[None, :], total_b)


@triton.jit
def _curvature(
    Z, Y, WEIGHTS, W, THETA, OUT, first, last, n, T, share, c_uniform, programs,
    D: tl.constexpr, STRIDE: tl.constexpr, DP: tl.constexpr, KIND: tl.constexpr,
    WEIGHED: tl.constexpr, BLOCKS: tl.constexpr, BR: tl.constexpr, V_SCALE: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    a = tl.arange(0, DP)
    w = tl.load(W + a)
    total = tl.zeros((DP, DP), tl.float32)
    for tile in range(program, tl.cdiv(last - first, BR), programs):
        r = first + tile * BR + tl.arange(0, BR)
        inside = r < last
        x_at = Z + r.to(tl.int64) * STRIDE
        there = inside[:, None] & (a < D)[None, :]
        x = tl.load(x_at[:, None] + a[None, :], mask=there, other=0.0)
        d = tl.sum(x * w[None, :], axis=1)
        y = tl.load(Y + r, mask=inside, other=0.0)
        _, _, curve, _, _, g_curve, _, _ = _row_values(d, y, T, KIND)
        theta, c = tl.zeros((BR,), tl.float32), tl.zeros((BR,), tl.float32)
        at = THETA + r.to(tl.int64)
        for _ in range(BLOCKS):
            theta += tl.load(at, mask=inside, other=0.0)
            c += tl.load(at + n, mask=inside, other=0.0)
            at += 2 * n
        h = (1.0 - share + share * theta) * curve + (c + c_uniform) * g_curve
        if WEIGHED:
            h *= tl.load(WEIGHTS + r, mask=inside, other=0.0)
        largest = tl.max(tl.abs(h), axis=0)  # so that what is split has the size of one
        h = h * tl.where(largest > 0, V_SCALE / largest, 0.0)
        x = x * V_SCALE
        x_high, x_low = _split(x)
        v_high, v_low = _split(x * h[:, None] / V_SCALE)
        part = tl.dot(tl.trans(x_low), v_high)
        part = tl.dot(tl.trans(x_high), v_low, part)
        part = tl.dot(tl.trans(x_high), v_high, part)
        total = total + part * (largest / (V_SCALE * V_SCALE))
    at = OUT + (program * DP + a[:, None]) * DP
    tl.store(at + a[None, :], total)


def padded(rows: Rows32, middle: torch.Tensor) -> torch.Tensor:
    """(x - middle, 1, |x - middle|^2 / 2, 0...), (n, STRIDE), for a stride that is a multiple of 16."""
    n, d = rows.Z.shape[0], rows.Z.shape[1] - 2
    Z = torch.zeros((n, -(-(d + 2) // 16) * 16), device=rows.Z.device)
    for first in range(0, n, 1 << 22):
        part = slice(first, first + (1 << 22))
        x = rows.Z[part, :d] - middle
        Z[part, :d], Z[part, d], Z[part, d + 1] = x, 1.0, (x * x).sum(1) / 2
    return Z


def middle_of(q: Question32) -> np.ndarray:
    """The mean of the centres, on a coarse grid, (d,)."""
    d = len(q.w) - 1
    scaled = q.W[:d] / np.maximum(q.W[d + 1], 1e-30)
    return np.round(scaled.mean(axis=1) * 256).astype(np.float32) / 256


TILES = {
    64: {"BR": 64, "num_warps": 4, "num_stages": 1, "per_sm": 2},
    128: {"BR": 128, "num_warps": 8, "num_stages": 1, "per_sm": 1},
    256: {"BR": 64, "num_warps": 8, "num_stages": 1, "per_sm": 1},
}
"""By the kernels of a tile (BM): its rows, how many warps share it, and tiles at a time on a processor.
The fastest of those that benchmarks/gpu_scale.py tries, on an H200."""


def tile(kernels: int) -> dict[str, int]:
    """The smallest tile that holds all kernels and the uniform weights, or the largest there is.

    >>> tile(200)["BM"]
    256
    """
    BM = next((size for size in TILES if kernels < size), 256)
    return {"BM": BM, **TILES[BM]}


_kept: WeakKeyDictionary[Rows32, tuple[bytes, torch.Tensor]] = WeakKeyDictionary()


def add_up(
    rows: Rows32, q: Question32, config: dict[str, int] | None = None
) -> tuple[np.ndarray, ...]:
    """``float32.add_up`` on a GPU; the rows in this kernel's layout are kept for the next round."""
    middle = middle_of(q)
    key, Z = _kept.get(rows, (b"", None))
    if Z is None or key != middle.tobytes():
        Z = padded(rows, torch.from_numpy(middle).to(rows.Z.device))
        _kept[rows] = (middle.tobytes(), Z)
    kernels = q.W.shape[1] + (0 if q.own is None else q.own.shape[1])
    return launch(rows, Z, q, middle, config or tile(kernels))


@dataclass(frozen=True)
class Operands:
    """What the kernels read besides the rows: centres in two halves, u and nb of exp2((x b - |x|^2 / 2) u - nb),
    alpha, C of every cell and w.  begin: where the loss' kernels begin.  kernels: the place of K = 1."""

    high: torch.Tensor
    low: torch.Tensor
    u: torch.Tensor
    nb: torch.Tensor
    alpha: torch.Tensor
    C: torch.Tensor
    w: torch.Tensor
    begin: int
    kernels: int


def operands(q: Question32, middle: np.ndarray, BM: int, Z: torch.Tensor) -> Operands:
    """The question in the layout of ``padded`` rows Z, kernels filled up to whole tiles of BM."""
    stride, d, M = Z.shape[1], len(q.w) - 1, q.W.shape[1]
    W = q.W if q.own is None else np.hstack([q.W, q.own])
    kernels = W.shape[1]
    size = -(-(kernels + 1) // BM) * BM
    B = np.zeros((size, stride))
    u, nb = np.zeros(size), np.full(size, 1e30)
    scale = W[d + 1].astype(float)
    B[:kernels, :d] = np.where(scale > 0, W[:d] / np.maximum(scale, 1e-30) - middle[:, None], 0.0).T
    u[:kernels] = scale / np.log(2.0)
    nb[:kernels] = u[:kernels] * (B[:kernels] ** 2).sum(axis=1) / 2
    nb[kernels] = 0.0  # K = 1, the uniform weights
    nb[: kernels + 1] -= np.log2(K_SCALE)
    alpha, C = np.zeros(size), np.zeros((len(q.C), size))
    begin = 0 if q.own is None else M
    alpha[begin : begin + len(q.alpha)], C[:, :M] = q.alpha, q.C[:, :-1]
    w = np.zeros(max(stride, 64))
    w[: d + 1] = q.w
    w[d] += float(middle.astype(float) @ q.w[:d])

    def there(v: np.ndarray, kind: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(v)).to(Z.device, kind)

    high = there(B, torch.float16)
    low = (there(B, torch.float64) - high.double()).half()
    vectors = there(u), there(nb), there(alpha), there(C), there(w)
    return Operands(high, low, *vectors, begin, kernels)


def launch(
    rows: Rows32, Z: torch.Tensor, q: Question32, middle: np.ndarray, config: dict[str, int]
) -> tuple[np.ndarray, ...]:
    """Both kernels for every cell, and their totals in float64."""
    device, (n, stride), D, BM = Z.device, Z.shape, len(q.w), config["BM"]
    o = operands(q, middle, BM, Z)
    size = len(o.u)
    columns = 2 * D + 5
    VA, VB = (64, 32) if 64 < columns <= 96 else (max(16, triton.next_power_of_2(columns)), 0)
    DA, DB = (32, 16) if stride == 48 else (stride, 0)
    many = torch.cuda.get_device_properties(device).multi_processor_count if Z.is_cuda else 2
    blocks, programs = size // BM, max(1, many * config["per_sm"] // (size // BM))
    DP = 64 if D > 32 else 32 if D > 16 else 16
    theta = torch.empty((2 * blocks, n), device=device)
    out = torch.empty((programs, size, VA + VB), device=device)
    out_H = torch.empty((4 * many, DP, DP), device=device)
    kind, T = KINDS[q.surrogate.kind], float(q.surrogate.temperature)
    weights, weighed = (Z, False) if rows.weights is None else (rows.weights, True)
    how = {k: v for k, v in config.items() if k in ("num_warps", "num_stages")}
    found, H = [], torch.zeros((DP, DP), dtype=torch.float64, device=device)
    for j in range(len(rows.starts) - 1):
        first, last = int(rows.starts[j]), int(rows.starts[j + 1])
        _sums[(blocks * programs,)](
            Z, rows.y, weights, o.high, o.low, o.u, o.nb, o.alpha, o.C[j], o.w, out, theta,
            first, last, n, T, 1.0, programs,
            D=D, STRIDE=stride, DA=DA, DB=DB, VA=VA, VB=VB, KIND=kind, WEIGHED=weighed,
            BLOCKS=blocks, BM=BM, BR=config["BR"], K_SCALE=K_SCALE, V_SCALE=V_SCALE, **how,
        )  # fmt: skip
        _curvature[(4 * many,)](
            Z, rows.y, weights, o.w, theta, out_H, first, last, n, T, q.share, float(q.C[j, -1]),
            4 * many, D=D, STRIDE=stride, DP=DP, KIND=kind, WEIGHED=weighed, BLOCKS=blocks,
            V_SCALE=V_SCALE, BR=64, num_warps=4, num_stages=1,
        )  # fmt: skip
        found.append(out.sum(0, dtype=torch.float64) / (K_SCALE * V_SCALE))
        H += out_H.sum(0, dtype=torch.float64)
    return gathered(torch.stack(found).cpu().numpy(), H.cpu().numpy(), q, o, middle)


def gathered(
    total: np.ndarray, H: np.ndarray, q: Question32, o: Operands, middle: np.ndarray
) -> tuple[np.ndarray, ...]:
    """The kernels' totals, (G, kernels, columns of ``_factors``), in the order of ``float32.add_up``, for
    features as they were before ``middle`` was taken off."""
    D, M, M_L = len(q.w), q.W.shape[1], len(q.alpha)
    d, own = D - 1, slice(o.begin, o.begin + M_L)
    shift = np.append(middle.astype(float), 0.0)
    total[:, :, :D] += shift * total[:, :, d : d + 1]
    total[:, :, D + 3 : 2 * D + 3] += shift * total[:, :, D + 3 + d : D + 4 + d]
    fair = total[:, :, [D, D + 1, D + 2, *range(D)]]
    loss = total[:, :, [2 * D + 3, D + 1, *range(D + 3, 2 * D + 3)]].sum(axis=0)
    S = np.eye(D)
    S[:, -1] += shift
    return (
        loss[own].T,
        fair[:, :M].swapaxes(1, 2),
        loss[o.kernels],
        fair[:, o.kernels],
        S @ H[:D, :D] @ S.T,
        total[:, o.kernels, 2 * D + 4].sum(),
    )
