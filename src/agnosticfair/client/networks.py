"""A client's steps for networks: what its rows are like, a few local steps, and sums at where they began.

A client trains on weighted rows. With alpha and the cuts' weighted sum C from the server,

    f_k(w) = (1 / n_k) sum_i [a_i l_i(w) + c_i g_i(w)] + ridge |w|^2 / 2,    a = theta_L,  c = K C[s]

and f, the Lagrangian, is the n_k-weighted mean of all f_k. Clients differ, so the minimum of f_k is not
that of f; a local step therefore follows grad f_k(v) + b_k, b_k = grad f(u) - grad f_k(u) at the last
round's start u, as in SCAFFOLD: where f is stationary, no client moves. What b_k needs is recomputed
from the request where it is not at hand, so that an answer is a function of rows and request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.functional import softplus

from agnosticfair.client.client import CHUNK, Client, Rows
from agnosticfair.client.sums import KERNEL_BYTES, designed
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.mathematics.basis import Basis, comes_with_rows, kernel_width, support, width
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.networks import Flat, flat
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Moments, Task, Trained, TrainNetwork

FEW = 10
"""Rows that are no batch of their own."""

MIN_CHUNK = 1 << 10
"""A device that has no room for this many rows at a time is too small."""


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """With several threads the bits of a sum depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def training(net: Flat, rng: np.random.Generator) -> Iterator[None]:
    """What a module does in training only (dropout), drawn by rng; afterwards it does not."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**31)))
        net.module.train()
        yield
    net.module.eval()


@contextmanager
def enough_room() -> Iterator[None]:
    """Local steps take a batch as it is: where the device has no room for one, a sentence."""
    try:
        yield
    except RuntimeError as error:
        if not is_full(error):
            raise
        raise SettingsError(
            "the device has no room for the rows and a step on a batch of them: take a smaller batch or network, end "
            "other programs on it, or take device 'cpu'"
        ) from None


def is_full(error: BaseException) -> bool:
    """Whether a device has no room left, of which its libraries speak in their own words.

    >>> is_full(RuntimeError("CUDA error: out of memory")), is_full(RuntimeError("no kernel image"))
    (True, False)
    """
    words = ("out of memory", "ALLOC_FAILED", "CUBLAS_STATUS_NOT_INITIALIZED")
    return isinstance(error, torch.OutOfMemoryError) or any(word in str(error) for word in words)


@dataclass
class Prepared:
    """What steps keep between the rounds of a task.  inputs: where the network is.  before: the client's
    mean gradient at the point of this digest."""

    inputs: dict[torch.device, torch.Tensor] = field(default_factory=dict)
    before: tuple[bytes, np.ndarray] | None = None


def prepared_rows(client: Client, task: Task) -> Prepared:
    return Prepared()


def kernels(client: Client, task: Task, basis: Basis) -> Callable[[slice], torch.Tensor]:
    """From a slice of the rows to K^T, (M, n), of its ``support`` only, in float32: in this layout a
    product with a vector, from either side, runs at the speed of memory."""
    rows, M, design = client.prepare(task), kernel_width(basis), designed(client, task, basis)

    def build(chunk: slice) -> torch.Tensor:
        return torch.as_tensor(design(chunk).T, dtype=torch.float32)

    if comes_with_rows(basis) or len(rows.X) * M * 4 > KERNEL_BYTES:
        return build
    whole = torch.empty(M, len(rows.X))
    for _, chunk in rows.chunks():
        whole[:, chunk] = build(chunk)
    return lambda chunk: whole[:, chunk]


def moments(client: Client, broadcast: Broadcast[Moments]) -> Reply:
    """First and second moments of the features, and of the kernels per stratum: gram[j] = sum_{s=j} K K^T,
    with K = 1 as its last column, in one block for all clients, or where each has its own kernels
    (``support``) in a block of each: (G, blocks, M + 1, M + 1)."""
    task, rows = broadcast.task, client.prepare(broadcast.task)
    x, squares, mass = np.zeros(rows.X.shape[1] - 1), np.zeros(rows.X.shape[1] - 1), 0.0
    for _, chunk in rows.chunks():
        weights, X = _weights(rows)[chunk], rows.X[chunk, :-1]
        x, squares, mass = x + weights @ X, squares + weights @ (X * X), mass + weights.sum()
    sums = {"mass": np.array(float(mass)), "x": x, "x_squares": squares}
    sums["gram"] = _gram(client, task, broadcast.shapes["gram"])
    return Reply(broadcast.round, sums)


def _gram(client: Client, task: Task, shape: tuple[int, ...]) -> np.ndarray:
    """The kernels' moments, in the client's own block."""
    rows, K = client.prepare(task), client.cached(task, kernels, task.fair_basis)
    columns = support(task.fair_basis, client.key, task.clients)
    gram = np.zeros(shape)
    block = gram[:, columns.start // (columns.stop - columns.start)]
    with one_torch_thread():
        for j, chunk in rows.chunks():
            k = torch.cat([K(chunk), torch.ones(1, chunk.stop - chunk.start)])
            block[j] += ((k * torch.from_numpy(_weights(rows)[chunk])) @ k.T).numpy()
    return gram


def _weights(rows: Rows) -> np.ndarray:
    ones = np.ones(len(rows.X)) if rows.weights is None else rows.weights
    return ones.astype(np.float32)


@dataclass(frozen=True)
class RowSums:
    """A client's rows where the network is.  z: inputs.  weights: of the rows.  a, c: what they weigh in
    loss and surrogate, each with the row's own weight."""

    z: torch.Tensor
    y: torch.Tensor
    weights: torch.Tensor
    a: torch.Tensor
    c: torch.Tensor

    def take(self, rows: torch.Tensor | slice) -> RowSums:
        if isinstance(rows, slice):
            return RowSums(*(v[rows] for v in vars(self).values()))
        return RowSums(
            *(v.index_select(0, rows) for v in vars(self).values())
        )  # faster than v[rows]


def values(
    d: torch.Tensor, row_sums: RowSums, surrogate: Surrogate
) -> tuple[torch.Tensor, torch.Tensor]:
    """l and g of every row, from its signed distance."""
    loss = softplus(d) - row_sums.y * d
    if surrogate.kind == "loss":
        return loss, loss
    return loss, torch.sigmoid(d / surrogate.temperature)


def gradients(d: torch.Tensor, row_sums: RowSums, surrogate: Surrogate) -> torch.Tensor:
    """The gradient of a_i l_i + c_i g_i in d_i, of every row: fewer steps than autograd takes."""
    of_loss = torch.sigmoid(d).sub_(row_sums.y)
    if surrogate.kind == "loss":
        return of_loss.mul_(row_sums.a + row_sums.c)
    g = torch.sigmoid(d / surrogate.temperature)
    return of_loss.mul_(row_sums.a).addcmul_(
        row_sums.c, g - g * g, value=1.0 / surrogate.temperature
    )


def row_sums_at(
    client: Client, task: Task, net: Flat, share: float, at: TrainNetwork | Trained
) -> RowSums:
    """The rows, weighed as a request says, this round's or the last one's."""
    rows, columns = client.prepare(task), support(task.fair_basis, client.key, task.clients)
    K_L, K_F = (client.cached(task, kernels, basis) for basis in (task.basis, task.fair_basis))
    alpha = torch.from_numpy(at.alpha[support(task.basis, client.key, task.clients)]).float()
    C = torch.from_numpy(at.C).float()
    a, c = torch.empty(len(rows.X)), torch.empty(len(rows.X))
    for j, chunk in rows.chunks():
        a[chunk] = (1.0 - share) + share * K_L(chunk).T @ alpha
        c[chunk] = K_F(chunk).T @ C[j, columns] + C[j, -1]
    weights, where = torch.from_numpy(_weights(rows)), net.values.device
    inputs = client.cached(task, prepared_rows).inputs
    if where not in inputs:
        inputs[where] = net.inputs(rows.X[:, :-1])
    y = torch.from_numpy(np.asarray(rows.y, np.float32))
    return RowSums(inputs[where], *(v.to(where) for v in (y, weights, a * weights, c * weights)))


def in_chunks(n: int, where: torch.device, visit: Callable[[slice], None]) -> None:
    """Visit n rows in chunks that suit a core's cache or a device; where it has no room, in smaller ones."""
    first, size = 0, CHUNK if where.type == "cpu" else 1 << 20
    while first < n:
        try:
            visit(slice(first, min(first + size, n)))
            first = min(first + size, n)
        except RuntimeError as error:
            if not is_full(error):
                raise
            torch.cuda.empty_cache()
            size //= 4
            if size < MIN_CHUNK:
                raise SettingsError(
                    f"the device has no room for {MIN_CHUNK} rows at a time: take a smaller network, "
                    "or device 'cpu'"
                ) from None


def sums_at(
    client: Client, task: Task, net: Flat, row_sums: RowSums, surrogate: Surrogate
) -> dict[str, np.ndarray]:
    """Sums over the rows at w, as ``mathematics.sums`` states them, and the gradient of
    sum_i a_i l_i + c_i g_i."""
    n = len(row_sums.y)
    # loss, g, what is decided, whether that is right, each times the row's weight
    v = torch.empty(4, n)
    net.module.eval()
    gradient = torch.zeros_like(net.gradients)

    def visit(chunk: slice) -> None:
        here = row_sums.take(chunk)
        net.gradients.zero_()
        out = net.logits(here.z)
        d = out.detach()
        out.backward(gradients(d, here, surrogate))
        right = (d > 0) == (here.y > 0)
        hat = ~right if surrogate.kind == "loss" else d > 0
        values_here = torch.stack([*values(d, here, surrogate), hat.float(), right.float()])
        v[:, chunk] = (values_here * here.weights).cpu()
        gradient.add_(net.gradients)  # last: a chunk that has no room is visited again

    in_chunks(n, net.values.device, visit)
    of_loss, of_fair = by_kernel(client, task, v[0], v[1], v[2])
    theta_L, theta = client.cached(task, masses)
    loss, right = v[[0, 3]].double().sum(dim=1).tolist()
    return {
        "loss": np.array(loss),
        "mass": np.array(theta[0, :, -1].sum()),
        "correct": np.array(right),
        "psi_L": of_loss,
        "psi_theta_L": theta_L,
        "psi_g": of_fair[0],
        "psi_theta": theta[0],
        "psi_hat": of_fair[1],
        "gradient": gradient.double().cpu().numpy(),
    }


def by_kernel(
    client: Client, task: Task, of_loss: torch.Tensor, *of_fair: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """sum_i K_m(x_i) v_i over the loss adversary's kernels, (M,), and for each v (by default the same) per
    stratum over the other's, with K = 1 as a last column, (.., G, F + 1)."""
    rows, L, F = client.prepare(task), task.basis, task.fair_basis
    K_L, K_F = client.cached(task, kernels, L), client.cached(task, kernels, F)
    columns_L, columns_F = (support(basis, client.key, task.clients) for basis in (L, F))
    of_fair = of_fair or (of_loss,)
    psi_L = np.zeros(width(L, task.clients))
    psi = np.zeros((len(of_fair), task.strata, width(F, task.clients) + 1))
    for j, chunk in rows.chunks():
        psi_L[columns_L] += (K_L(chunk) @ of_loss[chunk]).numpy()
        for k, v in enumerate(of_fair):
            psi[k, j, columns_F] += (K_F(chunk) @ v[chunk]).numpy()
            psi[k, j, -1] += float(v[chunk].double().sum())
    return psi_L, psi


def masses(client: Client, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """``by_kernel`` of the rows' weights, the same in every round."""
    return by_kernel(client, task, torch.from_numpy(_weights(client.prepare(task))))


def train(client: Client, broadcast: Broadcast[TrainNetwork]) -> Reply:
    """Sums and gradient at w, then some local steps: what they moved (times n_k), and the mean square of
    their gradients, by which the server scales the steps of the next round."""
    task, request, number = broadcast.task, broadcast.request, broadcast.round
    with one_torch_thread(), enough_room():
        before = _gradient_before(client, task, request)
        net = network_at(client, task, request.device, request.w)
        row_sums = row_sums_at(client, task, net, request.share, request)
        sums = sums_at(client, task, net, row_sums, request.surrogate)
        mass = float(sums["mass"])
        if not np.isfinite(sums["loss"]):
            fresh = "check its module, which has not been trained yet"
            slower = f"lower its rate, which is {request.rate:g}"
            raise SolverError(
                f"{client.who}: the network's logits are not finite in round {number}: "
                + (fresh if number == 1 else slower)
            )
        client.cached(task, prepared_rows).before = (_key(request), sums["gradient"] / mass)
        correction = np.zeros_like(request.w)
        if before is not None and request.before is not None:
            correction = request.before.gradient - before
        rng = rng_of(client, task, request.seed, number)
        steps = descend(net, row_sums, correction, request, rng)
        if not bool(torch.isfinite(net.values).all()):
            raise SolverError(
                f"{client.who}: weights of the network became NaN in round {number}: "
                f"lower the network's rate, which is {request.rate:g}"
            )
        moved = net.values.double().cpu().numpy() - request.w
    return Reply(number, {**sums, "moved": mass * moved, "squares": mass * steps})


def network_at(client: Client, task: Task, device: str, w: np.ndarray) -> Flat:
    assert task.network is not None
    d = client.prepare(task).X.shape[1] - 1
    return flat(task.network.name, task.network.hidden, d, w, device)


def rng_of(client: Client, task: Task, seed: int, number: int) -> np.random.Generator:
    """The same for the same rows, and unknown to the server: who knew the batches of many rounds could solve for the
    rows."""
    return np.random.default_rng([seed, number, *client.cached(task, row_digest)])


def row_digest(client: Client, task: Task) -> bytes:
    """Of the client's name and rows, as the task encodes them."""
    rows, digest = client.prepare(task), hashlib.sha256(client.key.encode())
    for values in (rows.X, rows.y, rows.s):
        digest.update(np.ascontiguousarray(values).data)
    return digest.digest()


def _key(at: TrainNetwork | Trained) -> bytes:
    return hashlib.sha256(b"".join(v.tobytes() for v in (at.w, at.alpha, at.C))).digest()


def _gradient_before(client: Client, task: Task, request: TrainNetwork) -> np.ndarray | None:
    """The client's mean gradient at the start of the last round; None in the first one."""
    if request.before is None:
        return None
    before = client.cached(task, prepared_rows).before
    if before is not None and before[0] == _key(request.before):
        return before[1]
    net = network_at(client, task, request.device, request.before.w)
    row_sums = row_sums_at(client, task, net, request.share, request.before)
    sums = sums_at(client, task, net, row_sums, request.surrogate)
    return sums["gradient"] / float(sums["mass"])


def descend(
    net: Flat,
    row_sums: RowSums,
    correction: np.ndarray,
    request: TrainNetwork,
    rng: np.random.Generator,
) -> np.ndarray:
    """Local steps v <- v - rate scale m, m the running mean of grad f_k(v) + b_k over batches; no weight
    moves by more than the rate in one.

    Changes the network; returns the mean of the squared gradients, (P,).
    """
    where = net.values.device
    ridge, scale, b = (
        torch.from_numpy(v).float().to(where) for v in (request.ridge, request.scale, correction)
    )
    m, squares = torch.zeros_like(net.values), torch.zeros_like(net.values)
    keep, mean_weight = request.momentum, float(row_sums.weights.double().mean())

    def step(rows: torch.Tensor | None) -> None:
        here = row_sums if rows is None else row_sums.take(rows)
        net.gradients.zero_()
        d = net.logits(here.z)
        row_share = 1.0 / (len(here.y) * mean_weight)
        d.backward(gradients(d.detach(), here, request.surrogate).mul_(row_share))
        gradient = torch.addcmul(b, ridge, net.values).add_(net.gradients)
        squares.addcmul_(gradient, gradient)
        m.lerp_(gradient, 1.0 - keep)
        net.values.sub_((scale * m).clamp_(-1.0, 1.0), alpha=request.rate)

    with training(net, rng):
        for rows in batches(len(row_sums.y), request.batch, request.steps, rng):
            # sent without a wait: where several fits share a GPU, each wait is a turn of all the others
            step(None if rows is None else torch.from_numpy(rows).to(where, non_blocking=True))
    return (squares / request.steps).double().cpu().numpy()


def batches(
    n: int, size: int | None, steps: int, rng: np.random.Generator
) -> Iterator[np.ndarray | None]:
    """Rows of every step, pass after pass over a shuffle; None for all of them. A pass leaves no few rows out: what it
    saw, taken from all rows, would be these.

    >>> [len(rows) for rows in batches(50, 20, 3, np.random.default_rng(0))]
    [20, 20, 20]
    >>> [len(rows) for rows in batches(45, 20, 3, np.random.default_rng(0))]
    [20, 25, 20]
    """
    if size is None or size + FEW > n:
        yield from [None] * steps
        return
    order, first = rng.permutation(n), 0
    for _ in range(steps):
        if first + size > n:
            order, first = rng.permutation(n), 0
        last = first + size if first + size + FEW <= n else n
        yield order[first:last]
        first = last
