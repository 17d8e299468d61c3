"""The settings of a method, in one table: what each may be, in words and as a test, and where it is read.

``method``, the estimator, the options of the commands and the deployed app derive theirs from ``SETTINGS``.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from numbers import Integral, Real
from typing import Any, NamedTuple

from agnosticfair.errors import SettingsError


def names_of(value: Any) -> tuple[Any, ...]:
    """One name, several, or a text with commas between them.

    >>> names_of("town, site"), names_of(["town"]), names_of(2)
    (('town', 'site'), ('town',), (2,))
    """
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return (value,) if isinstance(value, Integral) else tuple(value)


def numbers_of(text: Any) -> tuple[float, ...]:
    """
    >>> numbers_of("1, 5"), numbers_of((0.1, 0.2))
    ((1.0, 5.0), (0.1, 0.2))
    """
    try:
        return tuple(map(float, text.split(",") if isinstance(text, str) else text))
    except ValueError:
        raise SettingsError(f"{text!r} are no numbers: write them as 1,5") from None


def signs_of(value: Any) -> tuple[tuple[str, int], ...]:
    """Columns and their signs, in the order of names, from a mapping, pairs, or a text.

    >>> signs_of("hours=-1, age=+1"), signs_of({"age": 1})
    ((('age', 1), ('hours', -1)), (('age', 1),))
    """
    pairs = (
        [tuple(name.split("=")) for name in names_of(value)] if isinstance(value, str) else value
    )
    try:
        pairs = pairs.items() if isinstance(pairs, Mapping) else pairs
        return tuple(sorted((str(name), int(sign)) for name, sign in pairs))
    except (TypeError, ValueError):
        raise SettingsError(f"monotone is {value!r}: write columns and signs as age=+1") from None


def _numbers(value: Any, count: int) -> bool:
    """Whether it is a tuple of so many finite numbers."""
    good = isinstance(value, tuple | list) and len(value) == count
    return good and all(isinstance(v, Real) and -inf < float(v) < inf for v in value)


class Kind(NamedTuple):
    """Values of a type that pass a test, and how one is read from an option's text."""

    words: str
    good: Callable[[Any], bool] = lambda v: True
    type: Any = Real
    read: Callable[[Any], Any] = float


POSITIVE = Kind("a positive number", lambda v: v > 0)
LIMIT = Kind(
    "a positive number below infinity; for no limit take method 'fl'", lambda v: 0 < v < inf
)
NOT_NEGATIVE = Kind("a number, 0 or more", lambda v: v >= 0)
SHARE = Kind("a number from 0 to 1", lambda v: 0 <= v <= 1)
CONFIDENCE = Kind("a number between 0 and 1, both left out", lambda v: 0 < v < 1)
COUNT = Kind("a whole number, 1 or more", lambda v: v >= 1, Integral, int)
NATURAL = Kind("a whole number, 0 or more", lambda v: v >= 0, Integral, int)
FLAG = Kind("a bool", type=bool, read=bool)
WORD = Kind("a name, or the record that it names", type=object, read=str)
DEPTH = Kind("1, 2 or 3", lambda v: 1 <= v <= 3, Integral, int)
NAMES = Kind("names of columns", type=object, read=names_of)

LEARNER = Kind("the name of a learner, or a classifier with predict_proba", type=object, read=str)
COSTS = Kind(
    "'balanced', or two positive numbers: of a false positive and of a false negative",
    lambda v: v in (None, "balanced") or (_numbers(v, 2) and min(v) > 0),
    object,
    lambda text: text if text == "balanced" else numbers_of(text),
)
RATES = Kind(
    "two numbers from 0 to 1, the lower one first",
    lambda v: v is None or (_numbers(v, 2) and 0 <= v[0] <= v[1] <= 1),
    object,
    lambda text: numbers_of(text),
)
MONOTONE = Kind(
    "columns of numbers with +1 or -1 each, as {'age': 1} or age=+1",
    lambda v: all(abs(sign) == 1 for _, sign in v),
    tuple,
    lambda text: signs_of(text),
)
GAP = Kind("a positive number", lambda v: v is None or v > 0, Real | None)
FOLDS = Kind("a whole number, 2 or more", lambda v: v >= 2, Integral, int)

DEFAULT = "auto"
"""The method that is meant where none is named: ``methods.default_for`` says which."""

TAUS = (0.02, 0.03, 0.05, 0.08, 0.12, 0.18, 0.27, 0.4, 0.63, 1.0)
"""The path along which tau is chosen, unless another is given: from the strictest to 1, which no difference exceeds."""


def require(kind: Kind | type, **values: object) -> None:
    """Raise for the first value that is not of the kind, or of the type.

    >>> require(POSITIVE, tau=0.1, bound="5")
    Traceback (most recent call last):
    agnosticfair.errors.SettingsError: bound is '5'; it must be a positive number
    """
    if isinstance(kind, type):
        kind = Kind(f"a {kind.__name__}", type=kind)
    for what, value in values.items():
        truth = isinstance(value, bool) and kind.type is not bool  # True is no number here
        if truth or not isinstance(value, kind.type) or not kind.good(value):
            raise SettingsError(f"{what} is {reprlib.repr(value)}; it must be {kind.words}")


def require_name(what: str, value: object, known: Iterable[str]) -> None:
    """Raise unless the value is a name that is known."""
    known = tuple(known)
    if not isinstance(value, str) or value not in known:
        raise SettingsError(f"unknown {what} {reprlib.repr(value)}; there are: {', '.join(known)}")


class Reach(StrEnum):
    """What of a method a setting changes: the method itself, its fairness constraint, the surrogate in that, the
    set of every adversary that has one, the kernels of these sets, the subgroups of the fairness adversary, or the
    rule (``learners.rule``)."""

    METHOD = "method"
    FAIRNESS = "fairness"
    SURROGATE = "surrogate"
    ADVERSARY = "adversary"
    KERNELS = "kernels"
    SUBGROUPS = "subgroups"
    RULE = "rule"


TAU = (
    "The largest difference between two groups' rates, in every subgroup with enough people, by the model's own "
    "estimates on the training rows; methods other than 'rule' limit it over their set of reweightings. A fit that "
    "converged keeps it to 0.001 before decisions are rounded to yes or no. What holds on new rows is the "
    "certificate's to say."
)
"""What tau is: the same words in help, README, docs and cards."""


@dataclass(frozen=True)
class Setting:
    """A value of a method, under one name in ``method``, the estimator, the command line and a deployed app.

    reach: what it is a field of; field: its name there, where that is another one.  words: for the help of its option
    and the estimator's documentation.  kind: what a value must be, None where the record it reaches checks it; a
    ``Kind`` has an option, unless it is for Python alone.
    """

    name: str
    reach: Reach
    words: str
    kind: Kind | type | None = None
    field: str = ""
    python: bool = False

    @property
    def key(self) -> str:
        """The name as an option and a configuration have it."""
        return self.name.replace("_", "-")

    @property
    def option(self) -> Callable[[Any], Any] | None:
        """Reads the text of its option; None where it has none."""
        return self.kind.read if isinstance(self.kind, Kind) and not self.python else None


SETTINGS: dict[str, Setting] = {}
"""The settings by name; ``register_setting`` adds to them."""


def register_setting(setting: Setting) -> Setting:
    """Make a setting known, in this process, to everything that is imported after it and reads settings."""
    require(Setting, setting=setting)
    SETTINGS[setting.name] = setting
    return setting


_M, _F, _S, _A, _K, _P, _R = Reach

for _setting in (
    Setting("tau", _F, TAU, LIMIT),
    Setting("nominal", _F, "Largest difference under uniform weights.", POSITIVE, python=True),
    Setting("metric", _F, "What fairness means: 'demographic_parity', for example.", WORD),
    Setting("intersections", _F, "Compare the sensitive features' intersections.", FLAG),
    Setting("floor", _F, "Share of the mass that compared groups keep.", SHARE),
    Setting("trust", _F, "How far A is drawn to the rows' own weights.", SHARE, python=True),
    Setting("each", _F, "One constraint per kernel or subgroup, not for every mixture.", FLAG),
    Setting("temperature", _S, "Width of the sigmoid's step.", POSITIVE, python=True),
    Setting("bound", _A, "Bound B on the adversary's alpha: larger is a larger A.", POSITIVE),
    Setting("basis", _A, "The kernels that an adversary weighs."),
    Setting("kernels", _K, "Number of Gaussian kernels.", COUNT),
    Setting("sigma", _K, "Their width.", POSITIVE),
    Setting("centres", _K, "Their centres: 'rows', 'ranges' or 'kmeans'.", WORD),
    Setting("split", _K, "Every client's rows have kernels of their own.", FLAG, python=True),
    Setting(
        "subgroups_by",
        _P,
        "Columns, no features, that name subgroups, too; or 'site'.",
        NAMES,
        "columns",
    ),
    Setting("depth", _P, "Values in one subgroup, 1 to 3.", DEPTH),
    Setting("min_share", _P, "Share of the rows that a subgroup holds.", SHARE),
    Setting("share", _M, "Share of the loss that its adversary moves.", SHARE, python=True),
    Setting("ridge", _M, "Weight of |w|^2 / 2.", NOT_NEGATIVE),
    Setting("max_rounds", _M, "Most rounds.", COUNT),
    Setting("tolerance", _M, "What the next step may still promise at the end.", POSITIVE),
    Setting("network", _M, "mlp, a network (extra 'torch'), not the linear model.", WORD),
    Setting("averaging", _M, "Local steps and a plain average, instead of a solver."),
    Setting("fairness", _M, "The whole constraint."),
    Setting("learner", _R, "What estimates probabilities: 'auto', 'additive', ...", LEARNER),
    Setting("costs", _R, "Of a false positive and a false negative, or 'balanced'.", COSTS),
    Setting("positive_rate", _R, "Lowest and highest share of positive decisions.", RATES),
    Setting("overall", _R, "Largest difference overall; by default a share of tau.", GAP),
    Setting("min_people", _R, "Expected people of each group in a subgroup.", POSITIVE),
    Setting("learning_folds", _R, "Folds by which rows are judged.", FOLDS, "folds"),
    Setting("aware", _R, "Decide by the sensitive feature itself, not an estimate.", FLAG),
    Setting("agnostic", _R, "Maximise the utility of the worst subgroup.", FLAG),
    Setting("monotone", _R, "Columns with which trees only rise or fall: age=+1.", MONOTONE),
    Setting("probability", _R, "Columns with an existing model's probabilities.", NAMES),
):
    register_setting(_setting)


def check_settings(record: object, *reach: Reach) -> None:
    """Raise for the first field of a record of a method that is not what its setting must be."""
    for setting in SETTINGS.values():
        if setting.reach in reach and setting.kind is not None and not setting.field:
            require(setting.kind, **{setting.name: getattr(record, setting.name)})


def from_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a run's configuration says; an empty text is 'not said'.

    >>> from_config({"tau": 0.1, "bound": "", "max-rounds": 3, "method": "fl"})
    {'tau': 0.1, 'max_rounds': 3}
    """
    values = {s: config.get(s.key, "") for s in SETTINGS.values() if s.option is not None}
    return {s.name: s.option(value) for s, value in values.items() if s.option and value != ""}


def to_config(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration of a run that says these settings.

    >>> to_config({"max_rounds": 3, "subgroups_by": ("town", "site")})
    {'max-rounds': 3, 'subgroups-by': 'town,site'}
    """
    values = {SETTINGS[name].key: value for name, value in settings.items()}
    return {key: ",".join(map(str, v)) if isinstance(v, tuple) else v for key, v in values.items()}
