"""The parameters of the scikit-learn front: one per setting, what each may be, and what it stands for."""

from __future__ import annotations

from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics.basis import Basis, by_client, constant, gaussian
from agnosticfair.methods import METHODS, Method, Network, method
from agnosticfair.settings import DEFAULT, SETTINGS, Reach, Setting

BASES = {"constant": constant, "by_client": by_client, "gaussian": gaussian}

TAKEN = tuple(s for s in SETTINGS.values() if s.option is not None or s.name == "basis")
"""The settings that the estimator has as parameters."""


SETS = {*Reach} - {Reach.METHOD}
"""What a setting reaches that is about groups, or about the set over which they are compared."""


def described() -> str:
    """The settings as numpydoc's parameters."""
    own = {
        "network": "str, Network or callable\n        None for the linear model; 'mlp', a ``Network``, or a function "
        "from d to a ``torch.nn.Module`` with\n        one logit (extra 'torch', docs/deep.md).",
        "basis": "str, Basis or callable\n        What can be weighed up: 'gaussian', 'by_client', 'constant', a "
        "``Basis``, or a function from X, as it is\n        given to ``fit``, to K, (n, M), not negative.",
        "centres": "str or array\n        Of the Gaussians: 'kmeans', 'ranges', 'rows' of the training set, or (M, d) "
        "in the units of X;\n        docs/estimator.md says what each discloses.",
        "parts_by": "str, int or a sequence of them\n        Columns of X that name parts of the population, too, as "
        "texts, and are no features; 'site' is who holds a row.",
    }
    return "\n    ".join(
        f"{s.name} : {own.get(s.name) or f'{_type(s)}{chr(10)}        {s.words}'}" for s in TAKEN
    )


def _type(setting: Setting) -> str:
    option = setting.option
    return option.__name__ if isinstance(option, type) else "float or str"


def constructor() -> Any:
    """``__init__`` with a parameter for every setting, which it keeps as scikit-learn asks."""
    named = Parameter("method", Parameter.POSITIONAL_OR_KEYWORD, default=DEFAULT)
    own = {
        "sensitive_columns": None,
        "handle_unknown": "error",
        "limit": None,
        "confidence": 0.95,
        "precision": 0.1,
    }
    own |= {"scale": True, "strict": False, "random_state": 0, "verbose": 0}
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=value)
        for name, value in {**dict.fromkeys(s.name for s in TAKEN), **own}.items()
    ]
    itself = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    signature = Signature([itself, named, *keywords])

    def __init__(self: Any, *args: Any, **values: Any) -> None:
        given = signature.bind(self, *args, **values)
        given.apply_defaults()
        for name, value in [*given.arguments.items()][1:]:
            setattr(self, name, value)

    __init__.__signature__ = signature  # type: ignore[attr-defined]
    return __init__


def is_function(basis: Any) -> bool:
    """Whether a basis is a user's own function."""
    return callable(basis) and not isinstance(basis, Basis)


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


def unprotected(estimator: Any, recipe: Method) -> Method:
    """What is fitted without groups, where nothing that is about them was asked for."""
    said = [s for s in TAKEN if getattr(estimator, s.name) is not None]
    asked = [s for s in said if s.reach in SETS and s.reach is not Reach.RULE]
    if estimator.method != DEFAULT or estimator.limit is not None or asked:
        raise DataError(
            f"method {recipe.name!r} compares groups and sensitive_features is missing: give one "
            "value per row, name columns of X by sensitive_columns, or take method 'fl'"
        )
    own = {s.name: getattr(recipe, s.name) for s in said if s.reach not in SETS}
    ruled = {s.name: getattr(estimator, s.name) for s in said if s.reach is Reach.RULE}
    plain = replace(METHODS["fl"], **own)
    return method(plain, **{"learner": "auto", **ruled}) if ruled else plain


def seed_of(random_state: Any) -> int:
    """An integer as it is; a generator's next one; for None an arbitrary one."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def print_round(entry: dict[str, Any]) -> None:
    """One line about a round."""
    shown = (f"{k} {entry[k]:.4g}" for k in ("loss", "worst", "accuracy") if k in entry)
    print(f"round {entry['round']}:", ", ".join(shown))
