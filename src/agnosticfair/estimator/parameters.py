"""What the parameters of the scikit-learn front stand for: the method, the network, the kernels, the seed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from agnosticfair.auditing.limit import within
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.learners.rule import Rule
from agnosticfair.mathematics.basis import Basis, by_client, constant, gaussian
from agnosticfair.methods import DEFAULT, METHODS, Method, Network, default_for, method
from agnosticfair.settings import require

BASES = {"constant": constant, "by_client": by_client, "gaussian": gaussian}


def method_of(estimator: Any, K: np.ndarray | None = None) -> Method:
    """The method with an estimator's values; K where a function made the kernels."""
    given = {
        "tau": estimator.tau,
        "metric": estimator.metric,
        "subgroups_by": estimator.subgroups_by,
    }
    given |= {"network": network_of(estimator.network), "basis": estimator.basis}
    if estimator.basis is not None:
        given["basis"] = basis_of(estimator.basis) if K is None else Basis("function", K.shape[1])
    changes = {name: value for name, value in given.items() if value is not None}
    chosen_method = method(
        default_for(changes) if estimator.method == DEFAULT else estimator.method
    )
    if estimator.limit is not None:
        chosen_method = within(chosen_method, estimator.tau)
    chosen_method = method(chosen_method, **changes)
    if estimator.rule is None:
        return chosen_method
    require(Rule, rule=estimator.rule)
    if chosen_method.rule is None and chosen_method.name != "fl":
        raise SettingsError(
            f"method {chosen_method.name!r} has no rule: leave rule out, or take 'rule'"
        )
    return replace(chosen_method, rule=estimator.rule)


def takes_missing(estimator: Any) -> bool:
    """Whether the learner has a place for numbers that are missing."""
    try:
        rule = None if callable(estimator.basis) else method_of(estimator).rule
    except SettingsError:  # the fit says why
        return False
    return rule is not None and rule.takes_missing


def unprotected(estimator: Any, method: Method) -> Method:
    """What is fitted without groups, where nothing that is about them was requested."""
    about_groups = (
        estimator.tau,
        estimator.limit,
        estimator.metric,
        estimator.subgroups_by,
        estimator.basis,
    )
    if estimator.method != DEFAULT or any(value is not None for value in about_groups):
        raise DataError(
            f"method {method.name!r} compares groups and sensitive_features is missing: give one "
            "value per row, name columns of X by sensitive_columns, or take method 'fl'"
        )
    return replace(METHODS["fl"], network=method.network, rule=estimator.rule)


def network_of(network: Any) -> Network | str | None:
    """The network that is meant; a user's own is made known in this process."""
    if not callable(network):
        return network
    from agnosticfair.networks import known_as

    return Network(known_as(network))


def basis_of(basis: Any) -> Basis:
    if isinstance(basis, Basis):
        return basis
    if not isinstance(basis, str) or basis not in BASES:
        raise SettingsError(
            f"unknown basis {basis!r}; take {', '.join(BASES)}, a Basis, or a function from X to K"
        )
    return BASES[basis]()


def seed_of(random_state: Any) -> int:
    """An integer as it is; a generator's next one; for None an arbitrary one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def print_round(entry: dict[str, Any]) -> None:
    shown = (f"{k} {entry[k]:.4g}" for k in ("loss", "worst", "accuracy") if k in entry)
    print(f"round {entry['round']}:", ", ".join(shown))
