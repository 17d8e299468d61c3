"""What an audit is asked for, checked, whoever holds the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Any

from agnosticfair.auditing.subgroups import Subgroups, subgroups_asked
from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.basis import Basis, check_seed, gaussian
from agnosticfair.mathematics.metrics import PARITY, metric_of
from agnosticfair.settings import CONFIDENCE, POSITIVE, SHARE, Kind, require

BOUND = 5.0
"""Of alpha, where kernels are asked for without one."""


@dataclass(frozen=True)
class AuditRequest:
    """The set that is certified: named subgroups, their mixtures, and kernels where ``basis`` is not None."""

    subgroups: Subgroups = field(default_factory=Subgroups)
    confidence: float = 0.95
    precision: float = 0.1
    mixtures: bool = False
    metric: str = PARITY.name
    floor: float = 0.05
    basis: Basis | None = None
    bound: float = inf

    def __post_init__(self) -> None:
        metric_of(self.metric)
        require(POSITIVE, bound=self.bound, precision=self.precision)
        require(SHARE, floor=self.floor)
        require(CONFIDENCE, confidence=self.confidence)

    @property
    def share(self) -> float:
        """What subgroups, their mixtures and kernels each have of 1 - confidence."""
        return 1 / (1 + self.mixtures + (self.basis is not None))


def audit_request(
    subgroups: Any, basis: Any, bound: float | None, centres: Any, seed: int, **options: Any
) -> AuditRequest:
    """What a user's arguments ask for.  basis: of kernels or of subgroups, or a function that makes kernels."""
    check_seed(seed)
    if isinstance(basis, Basis) and basis.kind == "subgroups":
        basis, subgroups = None, basis if subgroups is None else subgroups
    if isinstance(basis, Basis) and basis.kind == "constant":
        basis, bound = None, None  # uniform weights
    if basis is not None and not isinstance(basis, Basis):
        require(Kind("a Basis, or a function from X to K", callable, object), basis=basis)
        basis = getattr(basis, "basis", Basis("function"))  # of a fit
    if basis is None and centres is not None:
        basis = gaussian(200, 1.0)
    if basis is None and bound is not None:
        raise SettingsError(
            f"bound {bound:g} is of kernels, and none are asked for: give a basis, or leave out the bound"
        )
    bound = inf if basis is None else BOUND if bound is None else bound
    return AuditRequest(subgroups=subgroups_asked(subgroups), basis=basis, bound=bound, **options)
