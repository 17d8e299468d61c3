"""A network before the first round: weights that are drawn, inputs that are scaled by all clients' moments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.methods import Network
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import Moments
from agnosticfair.server.plan import Beginning, Plan


@dataclass(frozen=True)
class Drawn:
    """w: (P,), the inputs' centre and scale first.  decay: (P,), ridge where it holds.  gram: the
    kernels' second moments."""

    w: np.ndarray
    decay: np.ndarray
    gram: np.ndarray


def moments_request(plan: Plan) -> Broadcast[Moments]:
    """Ask for the moments of features and kernels; a network that cannot be built is refused first."""
    _initial(plan, 0)
    return Broadcast(0, plan.task, Moments())


def _initial(plan: Plan, seed: int) -> tuple[np.ndarray, np.ndarray]:
    from agnosticfair.networks import initial

    network = plan.method.network or Network()
    return initial(network.name, network.hidden, plan.features, seed)


def drawn(plan: Plan, beginning: Beginning) -> Drawn:
    """Inputs are centred and scaled by their moments, unit where they are constant."""
    if beginning.start is not None:
        raise SettingsError("a network begins at weights drawn by its seed: leave out start")
    assert beginning.answer is not None
    moments, (w, pulled) = beginning.answer.sums, _initial(plan, beginning.seed)
    x = moments["x"] / moments["mass"]
    deviation = np.sqrt(np.maximum(moments["x_squares"] / moments["mass"] - x * x, 0.0))
    w = np.concatenate([x, np.where(deviation > 1e-6, deviation, 1.0), w[2 * len(x) :]])
    return Drawn(w, plan.method.ridge * pulled, moments["gram"])
