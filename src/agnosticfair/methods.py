"""Methods as data: each is a short recipe of the same parts, found by its name in ``METHODS``.

A method says what the adversary of the *loss* may reweigh (``basis``, ``bound``), what the fairness
constraint holds for (``fairness``), and, for the methods of local steps and an average, how a
client trains (``local``). Everything else is the same code for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from agnosticfair.basis import Basis, by_client, constant, gaussian
from agnosticfair.errors import SettingsError
from agnosticfair.fairness import Surrogate

_UNIFORM, _PLAIN = constant(), Surrogate()


@dataclass(frozen=True)
class Fairness:
    """max over alpha of the groups' difference <= tau, and <= nominal under uniform weights.

    basis, bound: the fairness adversary's set A.  each: one constraint per kernel instead of every
    mixture of kernels.  floor: the least share of mass every group keeps in a reweighing.
    """

    tau: float = 0.05
    surrogate: Surrogate = _PLAIN
    basis: Basis = _UNIFORM
    bound: float = inf
    each: bool = False
    floor: float = 0.0
    nominal: float = inf


@dataclass(frozen=True)
class Local:
    """Clients train by themselves and the server takes the plain average.

    steps: gradient steps a round, None for full local minimisation.  penalty: lambda of eq.
    agnostic_objective_fairness_penalty_term, None for no fairness term.
    """

    steps: int | None = None
    rate: float = 1.0
    penalty: float | None = None
    tau: float = 0.05


@dataclass(frozen=True)
class Method:
    """One recipe. share: the part of the weight that the loss adversary may move, the rest stays
    uniform.  q: the power of q-fair federated learning, 0 for a plain (worst-case) mean.
    ridge: weight of |w|^2 / 2, intercept excepted, which makes the optimum unique.
    """

    name: str
    summary: str = ""
    basis: Basis = _UNIFORM
    bound: float = inf
    share: float = 1.0
    q: float = 0.0
    fairness: Fairness | None = None
    local: Local | None = None
    ridge: float = 1e-5
    rounds: int = 40
    tolerance: float = 1e-5

    def __post_init__(self) -> None:
        fairness = self.fairness or Fairness()
        tau, nominal = fairness.tau, fairness.nominal
        for what, value, good in (
            ("bound", self.bound, self.bound > 0),
            ("tau", tau, tau > 0),
            ("nominal", nominal, nominal > 0),
            ("share", self.share, 0 <= self.share <= 1),
            ("q", self.q, self.q >= 0),
            ("ridge", self.ridge, self.ridge >= 0),
            ("rounds", self.rounds, self.rounds >= 1),
        ):
            if not good:
                raise SettingsError(f"{what} is {value}; it must be positive")


_PRINTED = gaussian(200, 1.0)
_SMOOTH = Surrogate("sigmoid", 0.5)

_RECIPES = (
    Method("fl", "federated optimum of the mean loss, no fairness"),
    Method(
        "fedavg",
        "Algorithm 1: local gradient steps, plain average",
        local=Local(steps=10),
        rounds=60,
    ),
    Method(
        "fairfl",
        "mean loss, groups' rates within tau under uniform weights",
        fairness=Fairness(0.02, _SMOOTH),
    ),
    Method("afl", "worst mixture of the clients' losses (Mohri et al.)", basis=by_client()),
    Method(
        "agnosticfair",
        "loss and fairness robust over A: groups' rates within tau for every reweighing",
        basis=gaussian(100, 0.8),
        bound=5.0,
        share=0.1,
        fairness=Fairness(
            0.05, Surrogate("sigmoid", 0.7), gaussian(200, 0.8), 5.0, floor=0.05, nominal=0.025
        ),
    ),
    Method(
        "agnosticfair-printed",
        "Algorithm 2 as printed: local minimisation, LP for alpha, plain average",
        basis=_PRINTED,
        bound=5.0,
        local=Local(steps=None, penalty=2.0, tau=0.05),
        rounds=15,
    ),
    Method("agnosticfair-a", "loss robust over A, no fairness", basis=_PRINTED, bound=5.0),
    Method(
        "agnosticfair-b",
        "loss robust over A, fairness under uniform weights",
        basis=_PRINTED,
        bound=5.0,
        fairness=Fairness(0.02, _SMOOTH),
    ),
    Method(
        "localfair",
        "mean loss, groups' rates within tau at every client by itself",
        fairness=Fairness(0.02, _SMOOTH, by_client(), each=True),
    ),
    Method(
        "qffl",
        "q-fair federated learning: sum of client losses to the power q + 1",
        basis=by_client(),
        q=1.0,
    ),
)

METHODS: dict[str, Method] = {m.name: m for m in _RECIPES}


def method(name: str, **changes: Any) -> Method:
    """The recipe of that name, with some of its values changed.

    ``tau``, ``nominal``, ``surrogate`` and ``floor`` reach into its fairness; ``bound`` is set
    wherever an adversary has kernels.

    >>> method("fairfl", tau=0.1).fairness.tau
    0.1
    """
    if name not in METHODS:
        raise SettingsError(f"unknown method {name!r}; there are: {', '.join(METHODS)}")
    recipe = METHODS[name]
    inner: dict[str, Any] = {
        k: changes.pop(k) for k in ("tau", "nominal", "surrogate", "floor") if k in changes
    }
    if "bound" in changes:
        bound = changes.pop("bound")
        if recipe.basis != _UNIFORM:
            changes["bound"] = bound
        if recipe.fairness is not None and recipe.fairness.basis != _UNIFORM:
            inner["bound"] = bound
        if "bound" not in changes and "bound" not in inner:
            raise SettingsError(f"method {name!r} has no adversary, so bound has no meaning")
    if inner and recipe.fairness is not None:
        changes["fairness"] = replace(recipe.fairness, **inner)
    elif inner.keys() == {"tau"} and recipe.local is not None and recipe.local.penalty is not None:
        changes["local"] = replace(recipe.local, tau=inner["tau"])
    elif inner:
        raise SettingsError(
            f"method {name!r} has no fairness constraint, so {', '.join(inner)} has no meaning"
        )
    try:
        return replace(recipe, **changes)
    except TypeError as error:
        raise SettingsError(f"method {name!r}: {error}") from None
