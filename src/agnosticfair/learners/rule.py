"""The rule's settings: which learner estimates P(Y, S | x), and what the program over the estimates asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.settings import (
    FOLDS,
    Reach,
    check_settings,
    names_of,
    require,
    signs_of,
)

NAMES = ["auto", "additive", "linear", "trees", "given"]
"""Of learners (``learners.estimates.register_learner`` adds to them); 'auto' is the best of them on held-out rows."""


@dataclass(frozen=True)
class Rule:
    """How probabilities are estimated, and what is requested of the decisions.

    Parameters
    ----------
    learner : str or classifier
        A name of ``NAMES``, or, where rows are in one place, a scikit-learn classifier with ``predict_proba``.
    costs : None, 'balanced' or (float, float)
        Of a false positive and of a false negative; 'balanced' weighs both labels alike.
    positive_rate : (float, float), optional
        Lowest and highest share of positive decisions.
    overall : float, optional
        Limit of the difference overall.
    min_people : float
        Expected people of each compared group in a subgroup.
    folds : int
        By which training rows are judged out of fold.
    aware : bool
        Decide by the sensitive feature itself instead of an estimate.
    agnostic : bool
        Maximise the utility of the worst subgroup.
    monotone : mapping of str to int
        Columns of numbers with which trees' probability of the label may only rise (1) or fall (-1).
    probability : tuple of str
        Columns with an existing model's probabilities: of the label, then of the groups' heads, if any.

    Examples
    --------
    >>> Rule(costs=(1, 5)).costs
    (1.0, 5.0)
    """

    learner: Any = "auto"
    costs: str | tuple[float, float] | None = None
    positive_rate: tuple[float, float] | None = None
    overall: float | None = None
    min_people: float = 20.0
    folds: int = 5
    aware: bool = False
    agnostic: bool = False
    monotone: Any = ()
    probability: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "monotone", signs_of(self.monotone))
        check_settings(self, Reach.RULE)
        require(FOLDS, learning_folds=self.folds)
        object.__setattr__(self, "probability", tuple(map(str, names_of(self.probability))))
        for name in ("costs", "positive_rate"):
            if not isinstance(value := getattr(self, name), str | None):
                object.__setattr__(self, name, tuple(map(float, value)))
        for name in ("overall", "min_people", "folds"):
            if isinstance(value := getattr(self, name), np.generic):
                object.__setattr__(self, name, value.item())
        self._check_learner()

    @property
    def takes_missing(self) -> bool:
        """Whether the learner has a place for numbers that are missing: bins of their own."""
        return isinstance(self.learner, str) and self.learner != "linear"

    def error_costs(self, base_rate: float) -> tuple[float, float]:
        """What a false positive and a false negative cost, where so many rows are positive.

        Parameters
        ----------
        base_rate : float

        Returns
        -------
        (float, float)

        Examples
        --------
        >>> Rule().error_costs(0.25), Rule(costs="balanced").error_costs(0.25)
        ((1.0, 1.0), (0.5, 1.5))
        """
        if self.costs is None:
            return 1.0, 1.0
        if isinstance(self.costs, str):
            return 2.0 * base_rate, 2.0 * (1.0 - base_rate)
        return self.costs

    def _check_learner(self) -> None:
        learner = self.learner
        if self.monotone and learner != "trees":
            raise SettingsError(
                f"monotone is for trees, and the learner is {learner!r}: take learner 'trees', or leave it out"
            )
        if isinstance(learner, str):
            if learner not in NAMES:
                raise SettingsError(f"unknown learner {learner!r}; there are: {', '.join(NAMES)}")
        elif not hasattr(learner, "predict_proba"):
            raise SettingsError(
                f"learner {type(learner).__name__} has no predict_proba: take a classifier that estimates "
                "probabilities, or calibrate it (CalibratedClassifierCV)"
            )
        if (learner == "given") != bool(self.probability):
            if learner == "auto":
                object.__setattr__(self, "learner", "given")
                return
            raise SettingsError(
                "learner 'given' and columns of probabilities go together: name the column in probability, and take "
                "learner 'given'"
            )
