"""Methods as data: each is a record of the same few parts, by its name in ``METHODS``.

A method says what the adversary of the *loss* may reweight (``basis``, ``bound``), what the fairness
constraint holds for (``fairness``), and, for the methods of local steps and an average, how a
client trains (``averaging``). Which model is trained, linear or a network of PyTorch's, is its
``network``. Everything else is the same code for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.learners.rule import Rule as Rule
from agnosticfair.mathematics.basis import (
    Basis,
    by_client,
    constant,
    gaussian,
    is_centred,
    subgroups,
)
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.metrics import METRICS, PARITY, metric_of
from agnosticfair.mathematics.subgroups import FEATURES
from agnosticfair.settings import (
    COUNT,
    DEFAULT,
    NOT_NEGATIVE,
    POSITIVE,
    SETTINGS,
    Kind,
    Reach,
    check_settings,
    names_of,
    require,
    require_name,
)

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
    device : str
        'cpu' or 'cuda'.
    """

    name: str = "mlp"
    hidden: tuple[int, ...] = (32,)
    steps: int = 50
    batch: int | None = 2048
    rate: float = 0.001
    momentum: float = 0.9
    device: str = "cpu"

    def __post_init__(self) -> None:
        require(COUNT, steps=self.steps, **given(batch=self.batch))
        require(POSITIVE, rate=self.rate)
        require(Kind("a number from 0 to below 1", lambda v: 0 <= v < 1), momentum=self.momentum)
        require(_WIDTHS, hidden=self.hidden)
        require(str, name=self.name, device=self.device)
        # a search over settings draws numpy's numbers, of which JSON knows nothing
        object.__setattr__(self, "hidden", tuple(map(int, self.hidden)))
        for name in ("steps", "batch", "rate", "momentum"):
            value = getattr(self, name)
            if isinstance(value, np.generic):
                object.__setattr__(self, name, value.item())


_UNIFORM = constant()
_PLAIN = Surrogate()


@dataclass(frozen=True)
class Fairness:
    """max over alpha of the groups' difference <= tau, and <= nominal under uniform weights.

    basis, bound: the fairness adversary's set A.  each: one constraint per kernel instead of every
    mixture of kernels.  floor: the least share of mass every group keeps in a reweighting.
    metric: a name of Metrics; where it bounds, tau and nominal bound every group's mean loss.
    intersections: compare the intersections of several sensitive features, not each one's own groups.
    trust: how sure the rows' own weights are: theta = trust + (1 - trust) K alpha, so 1 is one point.
    tau is a limit on decisions: ``surrogate`` lends its gradient, with its temperature as a share of the scores'
    standard deviation (of a network's logits themselves).
    """

    tau: float = 0.05
    surrogate: Surrogate = _PLAIN
    basis: Basis = _UNIFORM
    bound: float = inf
    each: bool = False
    floor: float = 0.0
    nominal: float = inf
    metric: str = PARITY.name
    intersections: bool = False
    trust: float = 0.0

    def __post_init__(self) -> None:
        metric_of(self.metric)
        require(Surrogate, surrogate=self.surrogate)
        require(Basis, basis=self.basis)
        check_settings(self, Reach.FAIRNESS, Reach.ADVERSARY)

    @property
    def measured(self) -> Surrogate:
        """g, of which the subgroups' means are taken."""
        return Surrogate("loss") if METRICS[self.metric].bounds else self.surrogate


@dataclass(frozen=True)
class Method:
    """One method: what is minimised, against which adversary, under which constraint, and until when.

    Parameters
    ----------
    name : str
    summary : str
        The method in a sentence.
    basis, bound : Basis, float
        The set of the loss adversary's reweightings.
    share : float
        Share of the weight that the loss adversary may move; the rest stays uniform.
    fairness : Fairness, optional
        The constraint.
    averaging : Averaging, optional
        Local steps and a plain average, instead of a solver.
    ridge : float
        Weight of ``|w|^2 / 2``, intercept excepted, which makes the optimum unique.
    max_rounds : int
    tolerance : float
        What the next step may still promise at the end.
    network : Network, optional
        Instead of the linear model.
    rule : Rule, optional
        Estimates P(Y, S | x), and decides by a convex program, instead of training one score.
    """

    name: str
    summary: str = ""
    basis: Basis = _UNIFORM
    bound: float = inf
    share: float = 1.0
    fairness: Fairness | None = None
    averaging: Averaging | None = None
    ridge: float = 1e-5
    max_rounds: int = 40
    tolerance: float = 1e-5
    network: Network | None = None
    rule: Rule | None = None

    def __post_init__(self) -> None:
        require(Basis, basis=self.basis)
        require(Fairness, **given(fairness=self.fairness))
        require(Averaging, **given(averaging=self.averaging))
        require(Network, **given(network=self.network))
        require(Rule, **given(rule=self.rule))
        check_settings(self, Reach.METHOD, Reach.ADVERSARY)
        if self.network is not None and (self.averaging is not None or self.rule is not None):
            raise SettingsError(
                f"method {self.name!r} does not train a network: take 'fl', 'fairfl' or 'agnosticfair'"
            )


_PRINTED = gaussian(200, 1.0)
_SMOOTH = Surrogate("sigmoid", 0.3)

_METHODS = (
    Method("fl", "federated optimum of the mean loss, no fairness"),
    Method(
        "fedavg",
        "Algorithm 1: local gradient steps, plain average",
        averaging=Averaging(steps=10),
        max_rounds=60,
    ),
    Method(
        "fairfl",
        "mean loss, groups' rates within tau under uniform weights",
        fairness=Fairness(0.02, _SMOOTH),
    ),
    Method("afl", "worst mixture of the clients' losses (Mohri et al.)", basis=by_client()),
    Method(
        "agnosticfair",
        "loss and fairness robust over A: groups' rates within tau for every reweighting",
        basis=gaussian(100, 0.8),
        bound=5.0,
        share=0.1,
        fairness=Fairness(0.05, Surrogate("sigmoid", 0.3), gaussian(200, 0.8), 5.0, floor=0.05),
    ),
    Method(
        "rule",
        "utility of decisions, groups' rates within tau in every subgroup: a program over estimates of P(Y, S | x)",
        fairness=Fairness(0.1, basis=subgroups(), each=True),
        rule=Rule(),
        max_rounds=100,
    ),
    Method(
        "agnosticfair-printed",
        "Algorithm 2 as printed: local minimisation, LP for alpha, plain average",
        basis=_PRINTED,
        bound=5.0,
        averaging=Averaging(steps=None, penalty=2.0, tau=0.05),
        max_rounds=15,
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
)

METHODS: dict[str, Method] = {m.name: m for m in _METHODS}

DEEP: dict[str, dict[str, Any]] = {
    "agnosticfair": {
        "kernels": 300,
        "sigma": 1.0,
        "split": True,
        "bound": 30.0,
        "nominal": 0.01,
        "temperature": 0.7,
    },
    **{name: {"temperature": 0.5} for name in ("fairfl", "agnosticfair-b", "localfair")},
}
"""What a method changes for a network, which needs a richer set (docs/deep.md) and a temperature of its logits;
``ridge``, ``max_rounds`` and ``tolerance`` change for all of them."""


def method(name: str | Method, **changes: Any) -> Method:
    """The method of that name, or one that is given, with some of its values changed.

    Parameters
    ----------
    name : str or Method
        A name of ``METHODS``, a method of one's own, or 'auto', the default: see ``DEFAULT``.
    **changes
        Settings by name (``agnosticfair.settings.SETTINGS``).  Those of an adversary's set and its kernels change
        every adversary that has one.  ``network``, a ``Network`` or its name, is trained instead of the linear
        model, with the values that suit it (``DEEP``) wherever neither the changes nor a method that is given have
        values of their own.

    Examples
    --------
    >>> method("fairfl", tau=0.1).fairness.tau
    0.1
    """
    for key in changes:
        require_name("setting", key, SETTINGS)
    if name == DEFAULT:
        name = default_for(changes)
    if not isinstance(name, Method):
        require_name("method", name, METHODS)
    chosen = name if isinstance(name, Method) else METHODS[name]
    # a search over settings draws numpy's numbers, of which JSON knows nothing
    changes = {k: v.item() if isinstance(v, np.generic) else v for k, v in changes.items()}
    network = changes.pop("network", None)
    if network is not None:
        changes = _deep(chosen, changes) | changes
        changes["network"] = Network(network) if isinstance(network, str) else network
    by: dict[Reach, dict[str, Any]] = {reach: {} for reach in Reach}
    for key, value in changes.items():
        by[SETTINGS[key].reach][SETTINGS[key].field or key] = value
    chosen = _with_sets(chosen, by[Reach.ADVERSARY], by[Reach.KERNELS])
    chosen = _with_subgroups(chosen, by[Reach.SUBGROUPS])
    chosen = _with_fairness(chosen, by[Reach.FAIRNESS], by[Reach.SURROGATE])
    return replace(_with_rule(chosen, by[Reach.RULE]), **by[Reach.METHOD])


_OF_KERNELS = {s.name for s in SETTINGS.values() if s.reach in (Reach.ADVERSARY, Reach.KERNELS)}
_OF_KERNELS |= {"network", "trust", "share", "nominal"}
_OF_SUBGROUPS = {s.name for s in SETTINGS.values() if s.reach in (Reach.SUBGROUPS, Reach.RULE)}


def default_for(changes: Mapping[str, Any]) -> str:
    """The method that is meant where these settings are given and none is named.

    >>> default_for({"tau": 0.1}), default_for({"kernels": 50}), default_for({"network": None})
    ('rule', 'agnosticfair', 'rule')
    >>> default_for({"basis": subgroups(depth=1), "network": "mlp"})
    'rule'
    """
    set_names = {key for key, value in changes.items() if value is not None}
    over_subgroups = (
        set_names & _OF_SUBGROUPS or getattr(changes.get("basis"), "kind", None) == "subgroups"
    )
    return "agnosticfair" if set_names & _OF_KERNELS and not over_subgroups else "rule"


def _with_fairness(method: Method, inner: dict[str, Any], surrogate: dict[str, Any]) -> Method:
    """The method with another constraint, or the tau of the printed penalty."""
    penalised = method.averaging is not None and method.averaging.penalty is not None
    if method.fairness is not None:
        new_surrogate = replace(method.fairness.surrogate, **surrogate)
        return replace(
            method, fairness=replace(method.fairness, surrogate=new_surrogate, **_of_metric(inner))
        )
    if method.averaging is not None and penalised and inner.keys() == {"tau"} and not surrogate:
        return replace(method, averaging=replace(method.averaging, tau=inner["tau"]))
    if inner or surrogate:
        raise SettingsError(
            f"method {method.name!r} has no fairness constraint, so {', '.join((*inner, *surrogate))} has no "
            "meaning"
        )
    return method


def _deep(method: Method, changes: dict[str, Any]) -> dict[str, Any]:
    """What suits a network, without what the changes make meaningless (another basis' kernels, a
    difference's bound) and what the method has otherwise than the one of its name."""
    usual = METHODS.get(method.name, method)
    values = {"ridge": 2e-3, "max_rounds": 240, "tolerance": 1e-3}
    values = {k: v for k, v in values.items() if getattr(method, k) == getattr(usual, k)}
    if _sets(method) != _sets(usual):
        return values
    off = {"nominal"} if metric_of(changes.get("metric", PARITY.name)).bounds else set()
    if changes.get("basis") is not None:  # it comes with its own
        off |= {"kernels", "sigma", "split"}
    off |= {k for k in vars(method) if getattr(method, k) != getattr(usual, k)}
    return values | {k: v for k, v in DEEP.get(method.name, {}).items() if k not in off}


def _sets(method: Method) -> tuple[Any, ...]:
    """All that says what the adversaries may do, tau aside."""
    fairness = method.fairness and replace(method.fairness, tau=1.0)
    return method.basis, method.bound, fairness


def _of_metric(inner: dict[str, Any]) -> dict[str, Any]:
    """A bound on a loss is no bound on a difference: its tau must be said, and nominal is off unless said."""
    if metric_of(inner.get("metric", PARITY.name)).bounds:
        if "tau" not in inner:
            raise SettingsError(
                f"metric {inner['metric']!r} needs tau, the largest mean log loss of a group: give "
                "0.5 for example (0.69 is a coin's)"
            )
        return {"nominal": inf, **inner}
    return inner


def _with_rule(method: Method, values: dict[str, Any]) -> Method:
    """The method with another rule; a method without one has none of its settings."""
    plain = method.name == "fl" and method.fairness is None and method.network is None
    if "learner" in values and method.rule is None and plain:  # accuracy alone, by another learner
        return replace(method, rule=Rule(**values))
    if values and method.rule is None:
        raise SettingsError(
            f"method {method.name!r} has no rule, so {', '.join(values)} has no meaning: take 'rule'"
        )
    return method if method.rule is None else replace(method, rule=replace(method.rule, **values))


def _with_sets(method: Method, sets: dict[str, Any], kernels: dict[str, Any]) -> Method:
    """The method with another set, or other kernels, for those of its adversaries that have any."""
    fairness = method.fairness
    of_loss, of_fair = method.basis != _UNIFORM, fairness is not None and fairness.basis != _UNIFORM
    if (sets or kernels) and not of_loss and not of_fair:
        raise SettingsError(
            f"method {method.name!r} has no adversary, so {', '.join((*sets, *kernels))} has no meaning"
        )
    if of_fair and fairness is not None:
        values = {**sets, "basis": _changed(sets.get("basis", fairness.basis), kernels)}
        method = replace(method, fairness=replace(fairness, **values))
    if of_loss:
        values = {**sets, "basis": _changed(sets.get("basis", method.basis), kernels)}
        method = replace(method, **values)
    return method


def _with_subgroups(method: Method, inner: dict[str, Any]) -> Method:
    """The method with other subgroups; ``subgroups_by`` adds to the columns that name them, all features unless
    said."""
    fairness = method.fairness
    if not inner:
        return method
    if fairness is None or fairness.basis.kind != "subgroups":
        names = ", ".join(s.name for s in SETTINGS.values() if (s.field or s.name) in inner)
        raise SettingsError(
            f"method {method.name!r} has no subgroups, so {names} has no meaning: take 'rule'"
        )
    changes = dict(inner)
    if "columns" in changes:
        before = fairness.basis.columns or (FEATURES,)
        changes["columns"] = tuple(
            dict.fromkeys((*before, *map(str, names_of(changes["columns"]))))
        )
    return replace(method, fairness=replace(fairness, basis=replace(fairness.basis, **changes)))


def _changed(basis: Basis, kernels: dict[str, Any]) -> Basis:
    require(Basis, basis=basis)
    if kernels and not is_centred(basis):
        raise SettingsError(f"a basis {basis.kind!r} has no {', '.join(kernels)}: take 'gaussian'")
    return replace(basis, **kernels)


def needs_groups(method: Method) -> bool:
    """Whether the method looks at sensitive groups at all."""
    averaging = method.averaging
    return method.fairness is not None or (averaging is not None and averaging.penalty is not None)
