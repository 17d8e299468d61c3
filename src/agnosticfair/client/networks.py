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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import softplus

from agnosticfair.client.answers import CHUNK, KERNEL_BYTES, Client, Rows, given_kernels
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.mathematics.basis import Basis, at_client, design, support, width
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.networks import Flat, flat
from agnosticfair.protocol.messages import Broadcast, Reply, Task

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


@contextmanager
def enough_room() -> Iterator[None]:
    """Local steps take a batch as it is: where the device has no room for one, a sentence."""
    try:
        yield
    except torch.cuda.OutOfMemoryError:
        raise SettingsError(
            "the device has no room for the rows and a step on a batch of them: take a smaller batch or "
            "network, or device 'cpu'"
        ) from None


def kernels(client: Client, task: Task, basis: Basis) -> Callable[[slice], torch.Tensor]:
    """From a slice of the rows to K^T, (M, n), of its ``support`` only, in float32: in this layout a
    product with a vector, from either side, runs at the speed of memory."""
    rows, centres = client.prepare(task), task.arrays.get("centres")
    if basis.kind == "given":
        given = given_kernels(client.key, rows, basis)
        return lambda part: torch.as_tensor(given(part).T, dtype=torch.float32)
    own = at_client(basis)
    centres = None if centres is None else centres[: basis.kernels]

    def build(part: slice) -> torch.Tensor:
        K = design(own, rows.X[part, :-1], centres, client.key, ())
        return torch.as_tensor(K.T, dtype=torch.float32)

    if len(rows.X) * width(own, ()) * 4 > KERNEL_BYTES:
        return build
    if basis not in client.deep:
        whole = torch.empty(width(own, ()), len(rows.X))
        for _, part in rows.chunks():
            whole[:, part] = build(part)
        client.deep[basis] = whole
    return lambda part: client.deep[basis][:, part]


def moments(client: Client, broadcast: Broadcast) -> Reply:
    """First and second moments of the features, and of the kernels per cell: gram[j] = sum_{s=j} K K^T,
    with K = 1 as its last column, in one block for all clients, or where each has its own kernels
    (``support``) in a block of each: (G, blocks, M + 1, M + 1)."""
    task, rows = broadcast.task, client.prepare(broadcast.task)
    basis, clients = Basis(**task.settings["fair_basis"]), task.settings["clients"]
    K, own = kernels(client, task, basis), support(basis, client.key, clients)
    M = own.stop - own.start
    gram = np.zeros((task.settings["cells"], width(basis, clients) // M, M + 1, M + 1))
    block = gram[:, own.start // M]
    x, squares, mass = np.zeros(rows.X.shape[1] - 1), np.zeros(rows.X.shape[1] - 1), 0.0
    with one_torch_thread():
        for j, part in rows.chunks():
            k = torch.cat([K(part), torch.ones(1, part.stop - part.start)])
            weights = _weights(rows)[part]
            block[j] += ((k * torch.from_numpy(weights)) @ k.T).numpy()
            X = rows.X[part, :-1]
            x, squares, mass = x + weights @ X, squares + weights @ (X * X), mass + weights.sum()
    sums = {"mass": np.array(float(mass)), "x": x, "x_squares": squares, "gram": gram}
    return Reply(broadcast.round, sums)


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


def held_at(client: Client, broadcast: Broadcast, net: Flat, suffix: str = "") -> Held:
    """The rows, weighed as this question says; ``suffix`` for the question before."""
    task, arrays, share = broadcast.task, broadcast.arrays, broadcast.settings["share"]
    rows, clients = client.prepare(task), task.settings["clients"]
    of_L, of_F = Basis(**task.settings["basis"]), Basis(**task.settings["fair_basis"])
    K_L, K_F = kernels(client, task, of_L), kernels(client, task, of_F)
    alpha = torch.from_numpy(arrays["alpha" + suffix][support(of_L, client.key, clients)]).float()
    own = support(of_F, client.key, clients)
    C = torch.from_numpy(arrays["C" + suffix]).float()
    a, c = torch.empty(len(rows.X)), torch.empty(len(rows.X))
    for j, part in rows.chunks():
        a[part] = (1.0 - share) + share * (K_L(part).T @ alpha)
        c[part] = K_F(part).T @ C[j, own] + C[j, -1]
    weights, where = torch.from_numpy(_weights(rows)), net.values.device
    place = f"z, {where}"
    if place not in client.deep:
        client.deep[place] = net.inputs(rows.X[:, :-1])
    y = torch.from_numpy(np.asarray(rows.y, np.float32))
    return Held(client.deep[place], *(v.to(where) for v in (y, weights, a * weights, c * weights)))


def in_chunks(n: int, where: torch.device, visit: Callable[[slice], None]) -> None:
    """Visit n rows in chunks that suit a core's cache or a device; where it has no room, in smaller ones."""
    first, most = 0, CHUNK if where.type == "cpu" else 1 << 20
    while first < n:
        try:
            visit(slice(first, min(first + most, n)))
            first = min(first + most, n)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            most //= 4
            if most < LEAST_CHUNK:
                raise SettingsError(
                    f"the device has no room for {LEAST_CHUNK} rows at a time: take a smaller network, "
                    "or device 'cpu'"
                ) from None


def sums_at(
    client: Client, broadcast: Broadcast, net: Flat, held: Held, surrogate: Surrogate
) -> dict[str, np.ndarray]:
    """Sums over the rows at w, as in ``client.sums``, and the gradient of sum_i a_i l_i + c_i g_i."""
    rows, n = client.prepare(broadcast.task), len(held.y)
    v = torch.empty(
        4, n
    )  # loss, g, what is decided, whether that is right, each times the row's weight
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
    if "theta" not in client.deep:
        client.deep["theta"] = by_kernel(client, broadcast.task, torch.from_numpy(_weights(rows)))
    of_loss, of_fair = by_kernel(client, broadcast.task, v[0], v[1], v[2])
    theta_L, theta = client.deep["theta"]
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
    rows, clients = client.prepare(task), task.settings["clients"]
    L, F = Basis(**task.settings["basis"]), Basis(**task.settings["fair_basis"])
    K_L, K_F = kernels(client, task, L), kernels(client, task, F)
    own_L, own_F = (support(basis, client.key, clients) for basis in (L, F))
    of_fair = of_fair or (of_loss,)
    psi_L = np.zeros(width(L, clients))
    psi = np.zeros((len(of_fair), task.settings["cells"], width(F, clients) + 1))
    for j, part in rows.chunks():
        psi_L[own_L] += (K_L(part) @ of_loss[part]).numpy()
        for k, v in enumerate(of_fair):
            psi[k, j, own_F] += (K_F(part) @ v[part]).numpy()
            psi[k, j, -1] += float(v[part].double().sum())
    return psi_L, psi


def train(client: Client, broadcast: Broadcast) -> Reply:
    """Sums and gradient at w, then some local steps: what they moved (times n_k), and the mean square of
    their gradients, by which the server scales the steps of the next round."""
    task, arrays, settings = broadcast.task, broadcast.arrays, broadcast.settings
    surrogate, w = Surrogate(**settings["surrogate"]), arrays["w"]
    with one_torch_thread(), enough_room():
        before = _gradient_before(client, broadcast, surrogate)
        net = flat({**task.settings["network"], "device": settings["device"]}, _d(client, task), w)
        held = held_at(client, broadcast, net)
        sums = sums_at(client, broadcast, net, held, surrogate)
        mass = float(sums["mass"])
        if not np.isfinite(sums["loss"]):
            first = "check its module, which has not been trained yet"
            raise SolverError(
                f"client {client.key!r}: the network's logits are not finite in round {broadcast.round}: "
                + (
                    first
                    if broadcast.round == 1
                    else f"lower its rate, which is {settings['rate']:g}"
                )
            )
        client.deep["before"] = (_key(arrays, ""), sums["gradient"] / mass)
        correction = np.zeros_like(w) if before is None else arrays["gradient_before"] - before
        steps = descend(net, held, surrogate, correction, broadcast, _rng(client, broadcast))
        if not bool(torch.isfinite(net.values).all()):
            raise SolverError(
                f"client {client.key!r}: weights of the network became NaN in round {broadcast.round}: "
                f"lower the network's rate, which is {settings['rate']:g}"
            )
        moved = net.values.double().cpu().numpy() - w
    return Reply(broadcast.round, {**sums, "moved": mass * moved, "squares": mass * steps})


def _d(client: Client, task: Task) -> int:
    return client.prepare(task).X.shape[1] - 1


def _rng(client: Client, broadcast: Broadcast) -> np.random.Generator:
    digest = hashlib.sha256(client.key.encode()).digest()
    seed = broadcast.settings.get("seed", 0)  # Algorithm 2 has none
    return np.random.default_rng([seed, broadcast.round, *digest])


def _key(arrays: Mapping[str, np.ndarray], suffix: str) -> bytes:
    content = b"".join(arrays[name + suffix].tobytes() for name in ("w", "alpha", "C"))
    return hashlib.sha256(content).digest()


def _gradient_before(
    client: Client, broadcast: Broadcast, surrogate: Surrogate
) -> np.ndarray | None:
    """The client's mean gradient at the start of the last round; None in the first one."""
    task, arrays = broadcast.task, broadcast.arrays
    if "w_before" not in arrays:
        return None
    client.prepare(task)
    key, found = client.deep.get("before", (b"", None))
    if key == _key(arrays, "_before"):
        return found
    settings = {**task.settings["network"], "device": broadcast.settings["device"]}
    net = flat(settings, _d(client, task), arrays["w_before"])
    held = held_at(client, broadcast, net, "_before")
    sums = sums_at(client, broadcast, net, held, surrogate)
    return sums["gradient"] / float(sums["mass"])


def descend(
    net: Flat,
    held: Held,
    surrogate: Surrogate,
    correction: np.ndarray,
    broadcast: Broadcast,
    rng: np.random.Generator,
) -> np.ndarray:
    """Local steps v <- v - rate scale m, m the running mean of grad f_k(v) + b_k over batches; no weight
    moves by more than the rate in one.

    Changes the network; returns the mean of the squared gradients, (P,).
    """
    settings, arrays, where = broadcast.settings, broadcast.arrays, net.values.device
    ridge, scale, b = (
        torch.from_numpy(v).float().to(where)
        for v in (arrays["ridge"], arrays["scale"], correction)
    )
    m, squares = torch.zeros_like(net.values), torch.zeros_like(net.values)
    keep, mean_weight = settings["momentum"], float(held.weights.double().mean())
    with training(net, rng):
        for rows in batches(len(held.y), settings["batch"], settings["steps"], rng):
            here = held if rows is None else held.take(torch.from_numpy(rows).to(where))
            net.slopes.zero_()
            d = net.logits(here.z)
            part = 1.0 / (len(here.y) * mean_weight)
            d.backward(slopes(d.detach(), here, surrogate).mul_(part))
            gradient = torch.addcmul(b, ridge, net.values).add_(net.slopes)
            squares.addcmul_(gradient, gradient)
            m.lerp_(gradient, 1.0 - keep)
            net.values.sub_((scale * m).clamp_(-1.0, 1.0), alpha=settings["rate"])
    return (squares / settings["steps"]).double().cpu().numpy()


def batches(
    n: int, size: int | None, steps: int, rng: np.random.Generator
) -> Iterator[np.ndarray | None]:
    """Rows of every step, pass after pass over a shuffle; None for all of them.

    >>> [len(rows) for rows in batches(5, 2, 3, np.random.default_rng(0))]
    [2, 2, 2]
    """
    if size is None or size >= n:
        yield from [None] * steps
        return
    order, first = rng.permutation(n), 0
    for _ in range(steps):
        if first + size > n:
            order, first = rng.permutation(n), 0
        yield order[first : first + size]
        first += size


def average(client: Client, broadcast: Broadcast) -> Reply:
    """Algorithms 1 and 2 for a network: Adam's steps on (1/n_k) sum theta l + lambda (C - tau)^2 (eq.
    agnostic_objective_fairness_penalty_term), all rows at a time, then the coefficients at w_k.

    C = (C_k(w) + the others' share) / n. The others' share is that of the last round's start, the total
    from the server less the client's own, and lags as phi_C does for a linear model.
    """
    task, arrays, settings = broadcast.task, broadcast.arrays, broadcast.settings
    rows, basis = client.prepare(task), Basis(**task.settings["basis"])
    own = support(basis, client.key, task.settings["clients"])
    K = kernels(client, task, basis)(slice(0, len(rows.X))).T
    network = {**task.settings["network"], "device": settings["device"]}
    centred = torch.from_numpy(rows.s - settings["s_bar"]).float()
    y = torch.from_numpy(np.asarray(rows.y, np.float32))

    def share(suffix: str) -> tuple[Flat, torch.Tensor, torch.Tensor]:
        net = flat(network, _d(client, task), arrays["w" + suffix])
        net.module.eval()
        z = net.inputs(rows.X[:, :-1])
        theta = K @ torch.from_numpy(arrays["alpha" + suffix][own]).float()
        return net, z, theta.to(z.device)

    def spread(values: torch.Tensor) -> np.ndarray:
        whole = np.zeros_like(arrays["alpha"])
        whole[own] = values.numpy()
        return whole

    with one_torch_thread(), enough_room():
        others = 0.0
        if settings["penalty"] and "w_before" in arrays:
            net, z, theta = share("_before")
            with torch.no_grad():
                mine = (theta * centred.to(z.device) * net.logits(z)).sum()
            others = settings["C"] - float(mine)
        net, z, theta = share("")
        s, labels = centred.to(z.device), y.to(z.device)
        with torch.no_grad():
            C = float((theta * s * net.logits(z)).sum())
        ridge = torch.from_numpy(arrays["ridge"]).float().to(z.device)
        optimiser = torch.optim.Adam(net.module.parameters(), lr=settings["rate"])
        with training(net, _rng(client, broadcast)):
            for _ in range(settings["steps"]):
                net.slopes.zero_()
                d = net.logits(z)
                loss = (theta * (softplus(d) - labels * d)).sum() / len(labels)
                gap = ((theta * s * d).sum() + others) / settings["n"] - settings["tau"]
                (loss + settings["penalty"] * gap**2).backward()
                net.slopes.add_(ridge * net.values)
                optimiser.step()
        with torch.no_grad():
            d = net.logits(z).cpu()
        loss = softplus(d) - y * d
        sums = {
            "w": net.values.double().cpu().numpy(),
            "clients": np.array(1.0),
            "psi_L": spread(K.T @ loss),
            "psi_theta": spread(K.sum(dim=0)),
            "psi_C": spread(K.T @ (centred * d)),
            "C": np.array(C),
            "correct": np.array(float(((d > 0) == (y > 0)).sum())),
        }
    return Reply(broadcast.round, sums)
