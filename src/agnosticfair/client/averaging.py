"""Algorithms 1 and 2, client side: train on the client's own rows, for the server to average."""

from __future__ import annotations

import numpy as np

from agnosticfair.client.client import Client
from agnosticfair.client.sums import kernels
from agnosticfair.mathematics.basis import support
from agnosticfair.mathematics.linear import log_loss, log_loss_derivatives
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import Average


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
