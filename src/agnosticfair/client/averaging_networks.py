"""Algorithms 1 and 2 for a network, client side: train it on the client's own rows, for the server to average."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import softplus

from agnosticfair.client.client import Client
from agnosticfair.client.networks import (
    enough_room,
    kernels,
    network_at,
    one_torch_thread,
    rng_of,
    training,
)
from agnosticfair.mathematics.basis import support
from agnosticfair.networks import Flat
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Averaged, AverageNetwork, Task


def average(client: Client, broadcast: Broadcast[AverageNetwork]) -> Reply:
    """Adam's steps on (1/n_k) sum theta l + lambda (C - tau)^2 (eq.
    agnostic_objective_fairness_penalty_term), all rows at a time, then the coefficients at w_k.

    C = (C_k(w) + the others' share) / n. The others' share is that of the last round's start, the total
    from the server less the client's own, and lags as phi_C does for a linear model.
    """
    task, request = broadcast.task, broadcast.request
    rows, columns = client.prepare(task), support(task.basis, client.key, task.clients)
    K = client.cached(task, kernels, task.basis)(slice(0, len(rows.X))).T
    y = torch.from_numpy(np.asarray(rows.y, np.float32))
    s = torch.from_numpy(rows.s - request.s_bar).float()
    with one_torch_thread(), enough_room():
        others = 0.0
        if request.penalty and request.before is not None:
            others = request.C - covariance(weighed_at(client, task, request, request.before, K, s))
        at = weighed_at(client, task, request, request, K, s)
        C = covariance(at)
        adam_steps(at, y, others, request, rng_of(client, task, 0, broadcast.round))
        with torch.no_grad():
            d = at.net.logits(at.z).cpu()
        loss = softplus(d) - y * d
        coefficients = {"psi_L": K.T @ loss, "psi_theta": K.sum(dim=0), "psi_C": K.T @ (s * d)}
        sums = {
            "w": at.net.values.double().cpu().numpy(),
            "clients": np.array(1.0),
            "C": np.array(C),
            "correct": np.array(float(((d > 0) == (y > 0)).sum())),
        }
    for name, values in coefficients.items():
        sums[name] = np.zeros_like(request.alpha)
        sums[name][columns] = values.numpy()
    return Reply(broadcast.round, sums)


@dataclass(frozen=True)
class WeighedNetwork:
    """A network at some weights, its inputs z, and of every row theta and s - s_bar, where it is."""

    net: Flat
    z: torch.Tensor
    theta: torch.Tensor
    s: torch.Tensor


def weighed_at(
    client: Client,
    task: Task,
    request: AverageNetwork,
    at: AverageNetwork | Averaged,
    K: torch.Tensor,
    s: torch.Tensor,
) -> WeighedNetwork:
    """The network and the rows' weights at this round's start, or the last one's."""
    net = network_at(client, task, request.device, at.w)
    net.module.eval()
    z = net.inputs(client.prepare(task).X[:, :-1])
    columns = support(task.basis, client.key, task.clients)
    theta = K @ torch.from_numpy(at.alpha[columns]).float()
    return WeighedNetwork(net, z, theta.to(z.device), s.to(z.device))


def covariance(at: WeighedNetwork) -> float:
    """sum_i theta_i (s_i - s_bar) d_i, the client's share of n C."""
    with torch.no_grad():
        return float((at.theta * at.s * at.net.logits(at.z)).sum())


def adam_steps(
    at: WeighedNetwork,
    y: torch.Tensor,
    others: float,
    request: AverageNetwork,
    rng: np.random.Generator,
) -> None:
    """Changes the network.  others: the share of all other clients in n C."""
    ridge = torch.from_numpy(request.ridge).float().to(at.z.device)
    labels = y.to(at.z.device)
    optimiser = torch.optim.Adam(at.net.module.parameters(), lr=request.rate)
    with training(at.net, rng):
        for _ in range(request.steps):
            at.net.gradients.zero_()
            d = at.net.logits(at.z)
            loss = (at.theta * (softplus(d) - labels * d)).sum() / len(labels)
            gap = ((at.theta * at.s * d).sum() + others) / request.n - request.tau
            (loss + request.penalty * gap**2).backward()
            at.net.gradients.add_(ridge * at.net.values)
            optimiser.step()
