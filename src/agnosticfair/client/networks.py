"""A client's steps for networks: what its rows are like, a few local steps, and sums at where they began.

A client trains on weighted rows. With alpha and the cuts' weighted sum C from the server,

    f_k(w) = (1 / n_k) sum_i [a_i l_i(w) + c_i g_i(w)] + ridge |w|^2 / 2,    a = theta_L,  c = K C[s]

and f, the Lagrangian, is the n_k-weighted mean of all f_k. Clients differ, so the minimum of f_k is not
that of f; a local step therefore follows grad f_k(v) + b_k, b_k = grad f(u) - grad f_k(u) at the last
round's start u, as in SCAFFOLD: where f is stationary, no client moves. What b_k needs is recomputed
from the question where it is not at hand, so that an answer is a function of rows and question.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn.functional import softplus

from agnosticfair.client.client import CHUNK, Client, Rows
from agnosticfair.client.sums.float64 import KERNEL_BYTES, designed
from agnosticfair.client.sums.torch_device import is_full, room_for
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.mathematics.basis import Basis, comes_with_rows, own_width, support, width
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.networks import Flat, flat
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import Moments, Task, Trained, TrainNetwork

FEW = 10
"""Rows that are no batch of their own."""

LEAST_CHUNK = 1 << 10
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


def enough_room() -> AbstractContextManager[None]:
    """Local steps take a batch as it is: where the device has no room for one, a sentence."""
    return room_for(
        "the rows and a step on a batch of them",
        "take a smaller batch or network, end other programs on it, or take device 'cpu'",
    )


@dataclass
class Kept:
    """What steps keep between the rounds of a task.  inputs: where the network is.  before: the client's
    mean gradient at the point of this digest."""

    inputs: dict[torch.device, torch.Tensor] = field(default_factory=dict)
    before: tuple[bytes, np.ndarray] | None = None


def kept(client: Client, task: Task) -> Kept:
    """Nothing is kept at first."""
    return Kept()


def kernels(client: Client, task: Task, basis: Basis) -> Callable[[slice], torch.Tensor]:
    """From a slice of the rows to K^T, (M, n), of its ``support`` only, in float32: in this layout a
    product with a vector, from either side, runs at the speed of memory."""
    rows, M, made = client.prepare(task), own_width(basis), designed(client, task, basis)

    def build(part: slice) -> torch.Tensor:
        return torch.as_tensor(made(part).T, dtype=torch.float32)

    if comes_with_rows(basis) or len(rows.X) * M * 4 > KERNEL_BYTES:
        return build
    whole = torch.empty(M, len(rows.X))
    for _, part in rows.chunks():
        whole[:, part] = build(part)
    return lambda part: whole[:, part]


@dataclass(frozen=True)
class Products:
    """K of a chunk of the rows from either side: ``of_rows`` is K v, ``of_kernels`` K^T v."""

    of_rows: Callable[[slice, torch.Tensor], torch.Tensor]
    of_kernels: Callable[[slice, torch.Tensor], torch.Tensor]


def products(client: Client, task: Task, basis: Basis) -> Products:
    """By ``kernels``."""
    K = client.kept(task, kernels, basis)
    return Products(lambda part, v: K(part).T @ v, lambda part, v: K(part) @ v)


def moments(client: Client, broadcast: Broadcast[Moments]) -> Reply:
    """First and second moments of the features, and of the kernels per cell: gram[j] = sum_{s=j} K K^T,
    with K = 1 as its last column, in one block for all clients, or where each has its own kernels
    (``support``) in a block of each: (G, blocks, M + 1, M + 1)."""
    task, rows = broadcast.task, client.prepare(broadcast.task)
    x, squares, mass = np.zeros(rows.X.shape[1] - 1), np.zeros(rows.X.shape[1] - 1), 0.0
    for _, part in rows.chunks():
        weights, X = _weights(rows)[part], rows.X[part, :-1]
        x, squares, mass = x + weights @ X, squares + weights @ (X * X), mass + weights.sum()
    sums = {"mass": np.array(float(mass)), "x": x, "x_squares": squares}
    sums["gram"] = _gram(client, task, broadcast.shapes["gram"])
    return Reply(broadcast.round, sums)


def _gram(client: Client, task: Task, shape: tuple[int, ...]) -> np.ndarray:
    """The kernels' moments, in the client's own block."""
    rows, K = client.prepare(task), client.kept(task, kernels, task.fair_basis)
    own = support(task.fair_basis, client.key, task.clients)
    gram = np.zeros(shape)
    block = gram[:, own.start // (own.stop - own.start)]
    with one_torch_thread():
        for j, part in rows.chunks():
            k = torch.cat([K(part), torch.ones(1, part.stop - part.start)])
            block[j] += ((k * torch.from_numpy(_weights(rows)[part])) @ k.T).numpy()
    return gram


def _weights(rows: Rows) -> np.ndarray:
    ones = np.ones(len(rows.X)) if rows.weights is None else rows.weights
    return ones.astype(np.float32)


@dataclass(frozen=True)
class Held:
    """A client's rows where the network is.  z: inputs.  weights: of the rows.  a, c: what they weigh in
    loss and surrogate, each with the row's own weight."""

    z: torch.Tensor
    y: torch.Tensor
    weights: torch.Tensor
    a: torch.Tensor
    c: torch.Tensor

    def take(self, rows: torch.Tensor | slice) -> Held:
        if isinstance(rows, slice):
            return Held(*(v[rows] for v in vars(self).values()))
        return Held(*(v.index_select(0, rows) for v in vars(self).values()))  # faster than v[rows]


def values(d: torch.Tensor, held: Held, surrogate: Surrogate) -> tuple[torch.Tensor, torch.Tensor]:
    """l and g of every row, from its signed distance."""
    loss = softplus(d) - held.y * d
    if surrogate.kind == "loss":
        return loss, loss
    return loss, torch.sigmoid(d / surrogate.temperature) if surrogate.kind == "sigmoid" else d


def slopes(d: torch.Tensor, held: Held, surrogate: Surrogate) -> torch.Tensor:
    """The slope of a_i l_i + c_i g_i in d_i, of every row: fewer steps than autograd takes."""
    of_loss = torch.sigmoid(d).sub_(held.y)
    if surrogate.kind == "loss":
        return of_loss.mul_(held.a + held.c)
    if surrogate.kind != "sigmoid":
        return of_loss.mul_(held.a).add_(held.c)
    g = torch.sigmoid(d / surrogate.temperature)
    return of_loss.mul_(held.a).addcmul_(held.c, g - g * g, value=1.0 / surrogate.temperature)


def held_at(
    client: Client, task: Task, net: Flat, share: float, at: TrainNetwork | Trained
) -> Held:
    """The rows, weighed as a question says, this round's or the last one's."""
    rows, own = client.prepare(task), support(task.fair_basis, client.key, task.clients)
    K_L, K_F = (client.kept(task, products, basis) for basis in (task.basis, task.fair_basis))
    alpha = torch.from_numpy(at.alpha[support(task.basis, client.key, task.clients)]).float()
    C = torch.from_numpy(at.C).float()
    a, c = torch.empty(len(rows.X)), torch.empty(len(rows.X))
    for j, part in rows.chunks():
        a[part] = (1.0 - share) + share * K_L.of_rows(part, alpha)
        c[part] = K_F.of_rows(part, C[j, own]) + C[j, -1]
    weights, where = torch.from_numpy(_weights(rows)), net.values.device
    inputs = client.kept(task, kept).inputs
    if where not in inputs:
        inputs[where] = net.inputs(rows.X[:, :-1])
    y = torch.from_numpy(np.asarray(rows.y, np.float32))
    return Held(inputs[where], *(v.to(where) for v in (y, weights, a * weights, c * weights)))


def in_chunks(n: int, where: torch.device, visit: Callable[[slice], None]) -> None:
    """Visit n rows in chunks that suit a core's cache or a device; where it has no room, in smaller ones."""
    first, most = 0, CHUNK if where.type == "cpu" else 1 << 20
    while first < n:
        try:
            visit(slice(first, min(first + most, n)))
            first = min(first + most, n)
        except RuntimeError as error:
            if not is_full(error):
                raise
            torch.cuda.empty_cache()
            most //= 4
            if most < LEAST_CHUNK:
                raise SettingsError(
                    f"the device has no room for {LEAST_CHUNK} rows at a time: take a smaller network, "
                    "or device 'cpu'"
                ) from None


def sums_at(
    client: Client, task: Task, net: Flat, held: Held, surrogate: Surrogate
) -> dict[str, np.ndarray]:
    """Sums over the rows at w, as ``mathematics.sums`` states them, and the gradient of
    sum_i a_i l_i + c_i g_i."""
    n = len(held.y)
    # loss, g, what is decided, whether that is right, each times the row's weight
    v = torch.empty(4, n)
    net.module.eval()
    gradient = torch.zeros_like(net.slopes)

    def visit(part: slice) -> None:
        here = held.take(part)
        net.slopes.zero_()
        out = net.logits(here.z)
        d = out.detach()
        out.backward(slopes(d, here, surrogate))
        right = (d > 0) == (here.y > 0)
        hat = ~right if surrogate.kind == "loss" else d > 0
        found = torch.stack([*values(d, here, surrogate), hat.float(), right.float()])
        v[:, part] = (found * here.weights).cpu()
        gradient.add_(net.slopes)  # last: a chunk that has no room is visited again

    in_chunks(n, net.values.device, visit)
    of_loss, of_fair = by_kernel(client, task, v[0], v[1], v[2])
    theta_L, theta = client.kept(task, masses)
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
    cell over the other's, with K = 1 as a last column, (.., G, F + 1)."""
    rows, L, F = client.prepare(task), task.basis, task.fair_basis
    K_L, K_F = client.kept(task, products, L), client.kept(task, products, F)
    own_L, own_F = (support(basis, client.key, task.clients) for basis in (L, F))
    of_fair = of_fair or (of_loss,)
    psi_L = np.zeros(width(L, task.clients))
    psi = np.zeros((len(of_fair), task.cells, width(F, task.clients) + 1))
    for j, part in rows.chunks():
        psi_L[own_L] += K_L.of_kernels(part, of_loss[part]).numpy()
        for k, v in enumerate(of_fair):
            psi[k, j, own_F] += K_F.of_kernels(part, v[part]).numpy()
            psi[k, j, -1] += float(v[part].double().sum())
    return psi_L, psi


def masses(client: Client, task: Task) -> tuple[np.ndarray, np.ndarray]:
    """``by_kernel`` of the rows' weights, the same in every round."""
    return by_kernel(client, task, torch.from_numpy(_weights(client.prepare(task))))


def train(client: Client, broadcast: Broadcast[TrainNetwork]) -> Reply:
    """Sums and gradient at w, then some local steps: what they moved (times n_k), and the mean square of
    their gradients, by which the server scales the steps of the next round."""
    task, asked, number = broadcast.task, broadcast.asked, broadcast.round
    with one_torch_thread(), enough_room():
        before = _gradient_before(client, task, asked)
        net = network_at(client, task, asked.device, asked.w)
        held = held_at(client, task, net, asked.share, asked)
        sums = sums_at(client, task, net, held, asked.surrogate)
        mass = float(sums["mass"])
        if not np.isfinite(sums["loss"]):
            fresh = "check its module, which has not been trained yet"
            slower = f"lower its rate, which is {asked.rate:g}"
            raise SolverError(
                f"{client.who}: the network's logits are not finite in round {number}: "
                + (fresh if number == 1 else slower)
            )
        client.kept(task, kept).before = (_key(asked), sums["gradient"] / mass)
        correction = np.zeros_like(asked.w)
        if before is not None and asked.before is not None:
            correction = asked.before.gradient - before
        rng = rng_of(client, task, asked.seed, number)
        steps = descend(net, held, correction, asked, rng)
        if not bool(torch.isfinite(net.values).all()):
            raise SolverError(
                f"{client.who}: weights of the network became NaN in round {number}: "
                f"lower the network's rate, which is {asked.rate:g}"
            )
        moved = net.values.double().cpu().numpy() - asked.w
    return Reply(number, {**sums, "moved": mass * moved, "squares": mass * steps})


def network_at(client: Client, task: Task, device: str, w: np.ndarray) -> Flat:
    """The task's network with weights w."""
    assert task.network is not None
    d = client.prepare(task).X.shape[1] - 1
    return flat(task.network.name, task.network.hidden, d, w, device)


def rng_of(client: Client, task: Task, seed: int, number: int) -> np.random.Generator:
    """The same for the same rows, and unknown to the server: who knew the batches of many rounds could solve for the
    rows."""
    return np.random.default_rng([seed, number, *client.kept(task, row_digest)])


def row_digest(client: Client, task: Task) -> bytes:
    """Of the client's name and rows, as the task encodes them."""
    rows, digest = client.prepare(task), hashlib.sha256(client.key.encode())
    for values in (rows.X, rows.y, rows.s):
        digest.update(np.ascontiguousarray(values).data)
    return digest.digest()


def _key(at: TrainNetwork | Trained) -> bytes:
    return hashlib.sha256(b"".join(v.tobytes() for v in (at.w, at.alpha, at.C))).digest()


def _gradient_before(client: Client, task: Task, asked: TrainNetwork) -> np.ndarray | None:
    """The client's mean gradient at the start of the last round; None in the first one."""
    if asked.before is None:
        return None
    found = client.kept(task, kept).before
    if found is not None and found[0] == _key(asked.before):
        return found[1]
    net = network_at(client, task, asked.device, asked.before.w)
    held = held_at(client, task, net, asked.share, asked.before)
    sums = sums_at(client, task, net, held, asked.surrogate)
    return sums["gradient"] / float(sums["mass"])


def descend(
    net: Flat, held: Held, correction: np.ndarray, asked: TrainNetwork, rng: np.random.Generator
) -> np.ndarray:
    """Local steps v <- v - rate scale m, m the running mean of grad f_k(v) + b_k over batches; no weight
    moves by more than the rate in one.

    Changes the network; returns the mean of the squared gradients, (P,).
    """
    where = net.values.device
    ridge, scale, b = (
        torch.from_numpy(v).float().to(where) for v in (asked.ridge, asked.scale, correction)
    )
    m, squares = torch.zeros_like(net.values), torch.zeros_like(net.values)
    keep, mean_weight = asked.momentum, float(held.weights.double().mean())

    def step(rows: torch.Tensor | None) -> None:
        here = held if rows is None else held.take(rows)
        net.slopes.zero_()
        d = net.logits(here.z)
        part = 1.0 / (len(here.y) * mean_weight)
        d.backward(slopes(d.detach(), here, asked.surrogate).mul_(part))
        gradient = torch.addcmul(b, ridge, net.values).add_(net.slopes)
        squares.addcmul_(gradient, gradient)
        m.lerp_(gradient, 1.0 - keep)
        net.values.sub_((scale * m).clamp_(-1.0, 1.0), alpha=asked.rate)

    with training(net, rng):
        for rows in batches(len(held.y), asked.batch, asked.steps, rng):
            # sent without a wait: where several fits share a GPU, each wait is a turn of all the others
            step(None if rows is None else torch.from_numpy(rows).to(where, non_blocking=True))
    return (squares / asked.steps).double().cpu().numpy()


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
