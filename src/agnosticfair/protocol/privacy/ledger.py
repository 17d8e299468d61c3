"""A site's budget: what its rows have been asked for, over all fits, and a refusal once it is spent."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.protocol.privacy.accountant import check_budget, spent

FORMAT = "agnosticfair-ledger-1"


@dataclass
class Ledger:
    """epsilon, delta: the budget of a site's rows, or with the unit 'site' of the site as a whole.  multipliers:
    of the noises that answers had so far.  path: a file that keeps them over fits; None to keep them in memory."""

    epsilon: float
    delta: float
    multipliers: list[float] = field(default_factory=list)
    path: Path | None = None
    unit: str = "row"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if self.path is not None and self.path.exists():
            self.multipliers = _read(self.path, self.delta, self.unit)

    @property
    def spent(self) -> float:
        """Epsilon of all that was answered so far."""
        return spent(self.multipliers, self.delta)

    def spend(self, z: float, who: str) -> None:
        """Write down an answer with this noise, before it is given; or refuse it."""
        if not z > 0:
            raise FederationError(
                f"{who} was asked for sums with noise of multiplier {z}: it gives none"
            )
        after = spent([*self.multipliers, z], self.delta)
        if after > self.epsilon * (1 + 1e-9):
            raise FederationError(
                f"the privacy budget of {who} is spent: {self.spent:.3g} of epsilon {self.epsilon:g} is gone and this "
                f"answer would make it {after:.3g}; take a larger epsilon, or other rows"
            )
        self.multipliers.append(z)
        if self.path is not None:
            content = {"format": FORMAT, "epsilon": self.epsilon, "delta": self.delta}
            content |= {"unit": self.unit}
            new = self.path.with_name(self.path.name + ".new")
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(handle, "w") as file:
                json.dump({**content, "multipliers": self.multipliers}, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self.path)


def _read(path: Path, delta: float, unit: str) -> list[float]:
    """The multipliers in a ledger's file; damaged or kept for another delta, it is refused: a budget that
    cannot be read counts as spent."""
    try:
        content = json.loads(path.read_text())
        found = [float(z) for z in content["multipliers"]]
        if content["format"] != FORMAT or not all(z > 0 for z in found):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise FederationError(
            f"the ledger {path.name!r} cannot be read: what was spent is not known, so nothing is answered"
        ) from None
    if (kept := content.get("unit", "row")) != unit:
        raise SettingsError(
            f"the ledger {path.name!r} is kept for each {kept}, not for each {unit}: take that unit, or another ledger"
        )
    if content["delta"] != delta:
        raise SettingsError(
            f"the ledger {path.name!r} is kept for delta {content['delta']:g}, not {delta:g}: take that one"
        )
    return found
