"""What an audit is asked for, checked, whoever holds the rows."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from agnosticfair.auditing.parts import Subpopulations, asked_parts
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.basis import Basis, Reweighing, check_seed, constant, gaussian
from agnosticfair.mathematics.notions import notion_of
from agnosticfair.settings import CONFIDENCE, NATURAL, POSITIVE, SHARE, Kind, require

BOUND = 5.0
"""Of alpha, where kernels are asked for without one."""

RESAMPLES = 200
"""For kernels' intervals, unless another number is asked for."""

_DEFAULT = gaussian(200, 1.0)


@dataclass(frozen=True)
class AuditQuestion:
    """The set of kernels and how its worst case is looked for; uniform weights where only parts are asked for."""

    basis: Basis
    bound: float
    floor: float
    tolerance: float
    bootstrap: int
    confidence: float
    notion: str

    def __post_init__(self) -> None:
        notion_of(self.notion)
        require(POSITIVE, bound=self.bound, tolerance=self.tolerance)
        require(SHARE, floor=self.floor)
        require(NATURAL, bootstrap=self.bootstrap)
        require(CONFIDENCE, confidence=self.confidence)


@dataclass(frozen=True)
class Wanted:
    """What is to be bounded beyond the rows: named parts, their mixtures, kernels.  own: a user's function that
    makes the kernels."""

    parts: Subpopulations | None
    precision: float
    mixtures: bool
    kernels: bool
    own: Reweighing | None = None

    @property
    def share(self) -> float:
        """What each of them has of 1 - confidence."""
        asked = (self.parts is not None, self.mixtures and self.parts is not None, self.kernels)
        return 1 / max(sum(asked), 1)


def opened(
    basis: Any,
    bound: float | None,
    centres: Any,
    parts: Any,
    precision: float,
    mixtures: bool,
    bootstrap: int | None,
    seed: int,
    floor: float,
    tolerance: float,
    confidence: float,
    notion: str,
) -> tuple[AuditQuestion, Wanted]:
    """What a user's arguments ask for: kernels where they are named, and named parts else or besides."""
    check_seed(seed)
    if isinstance(basis, Basis) and basis.kind == "named":
        basis, parts = None, basis if parts is None else parts
    if basis is not None and not isinstance(basis, Basis):
        require(Kind("a Basis, or a function from X to K", callable, object), basis=basis)
    kernels = basis is not None or centres is not None
    if bound != BOUND and not kernels:
        raise SettingsError(
            f"bound {bound if bound is None else f'{bound:g}'} is of kernels, and none are asked for: give a basis, or "
            "leave out the bound"
        )
    asked = None if kernels and parts is None else asked_parts(parts)
    if not kernels:
        plain = AuditQuestion(constant(), inf, floor, tolerance, bootstrap or 0, confidence, notion)
        return plain, Wanted(asked, precision, mixtures, False)
    data, own = (basis, None) if isinstance(basis, Basis) else (None, basis)
    B, resamples = inf if bound is None else bound, RESAMPLES if bootstrap is None else bootstrap
    question = AuditQuestion(data or _DEFAULT, B, floor, tolerance, resamples, confidence, notion)
    return question, Wanted(asked, precision, mixtures, True, own)
