"""How clients train by themselves: by local steps and an average, or a network of PyTorch's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.settings import COUNT, NOT_NEGATIVE, POSITIVE, Kind, require

_WIDTHS = Kind(
    "whole numbers, 1 or more, as a tuple",
    lambda v: all(isinstance(h, COUNT.type) and COUNT.good(h) for h in v),
    tuple | list,
)


def given(**values: Any) -> dict[str, Any]:
    """Those of the values that are not None."""
    return {k: v for k, v in values.items() if v is not None}


@dataclass(frozen=True)
class Averaging:
    """Clients train by themselves and the server takes the plain average.

    steps: gradient steps a round, None for full local minimisation.  penalty: lambda of eq.
    agnostic_objective_fairness_penalty_term, None for no fairness term.
    """

    steps: int | None = None
    rate: float = 1.0
    penalty: float | None = None
    tau: float = 0.05

    def __post_init__(self) -> None:
        require(COUNT, **given(steps=self.steps))
        require(POSITIVE, rate=self.rate, tau=self.tau)
        require(NOT_NEGATIVE, **given(penalty=self.penalty))


@dataclass(frozen=True)
class Network:
    """Which network clients train, and how (``server/saddle.py``).

    Parameters
    ----------
    name : str
        'mlp', 'linear', or one that ``networks.register`` was told of.
    hidden : tuple of int
        Widths of its layers.
    steps : int
        Local steps a round.
    batch : int or None
        Rows of a step; None for all.
    rate : float
        Of a step, scaled as in Adam.
    momentum : float
        Of local steps.
    decisions : bool
        The constraint holds for the decisions, and the surrogate lends its gradient only; a network can meet tau in the
        surrogate and break it in what it decides.
    device : str
        'cpu' or 'cuda'.
    """

    name: str = "mlp"
    hidden: tuple[int, ...] = (32,)
    steps: int = 50
    batch: int | None = 2048
    rate: float = 0.001
    momentum: float = 0.9
    decisions: bool = True
    device: str = "cpu"

    def __post_init__(self) -> None:
        require(COUNT, steps=self.steps, **given(batch=self.batch))
        require(POSITIVE, rate=self.rate)
        require(Kind("a number from 0 to below 1", lambda v: 0 <= v < 1), momentum=self.momentum)
        require(_WIDTHS, hidden=self.hidden)
        require(str, name=self.name, device=self.device)
        require(bool, decisions=self.decisions)
        # a search over settings draws numpy's numbers, of which JSON knows nothing
        object.__setattr__(self, "hidden", tuple(map(int, self.hidden)))
        for name in ("steps", "batch", "rate", "momentum"):
            value = getattr(self, name)
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())
