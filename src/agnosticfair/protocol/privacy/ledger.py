"""A site's budget: what its rows have been asked for, over all fits, and a refusal once it is spent.

An answer is written down before it is paid for, and paid for before it is given. So the same question has the same
noisy answer and costs once, wherever a process ends in between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agnosticfair.data.storage import alone, write_atomically
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.protocol.messages import Reply, pack, unpack
from agnosticfair.protocol.privacy.accountant import check_budget, spent

FORMAT = "agnosticfair-ledger-2"


@dataclass
class Ledger:
    """epsilon, delta: the budget of a site's rows, or with the unit 'site' of the site as a whole.  multipliers:
    of the noises that answers had so far.  paid: digests of these answers.  path: a file that keeps both over fits,
    and beside it a folder of the answers; None to keep them in memory.  given: answers by question."""

    epsilon: float
    delta: float
    multipliers: list[float] = field(default_factory=list)
    path: Path | None = None
    unit: str = "row"
    paid: list[str] = field(default_factory=list)
    given: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        self._read()

    @property
    def spent(self) -> float:
        """Epsilon of all that was answered so far."""
        return spent(self.multipliers, self.delta)

    def answer(self, question: str, z: float, who: str, make: Callable[[], Reply]) -> Reply:
        """The answer that was given to this question of these rows; or a new one with this noise, within the budget."""
        content = self._kept(question)
        if content is None:
            self.check(z, who)
            content = pack(make())
            self._keep(question, content)
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self.paid:
            self.spend(z, who, digest)
        found = unpack(content, f"{who}, as it was kept")
        assert isinstance(found, Reply)
        return found

    def check(self, z: float, who: str) -> None:
        """Refuse an answer with this noise where the budget has no room for it."""
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

    def spend(self, z: float, who: str, digest: str = "") -> None:
        """Write down an answer with this noise, before it is given; or refuse it."""
        with self._alone():
            self.check(z, who)
            self.multipliers.append(z)
            self.paid.append(digest)
            if self.path is not None:
                content = {"format": FORMAT, "epsilon": self.epsilon, "delta": self.delta}
                content |= {"unit": self.unit, "multipliers": self.multipliers, "paid": self.paid}
                write_atomically({self.path: json.dumps(content).encode()}, 0o600)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process spends of this ledger meanwhile, and what others spent before is known."""
        if self.path is None:
            yield
            return
        with alone(self.path):
            self._read()
            yield

    def _answers(self) -> Path | None:
        return self.path and self.path.with_suffix(".answers")

    def _kept(self, question: str) -> bytes | None:
        """The bytes of the answer that was given to a question, if one was."""
        folder = self._answers()
        if folder is None:
            return self.given.get(question)
        path = folder / question
        return path.read_bytes() if path.is_file() else None

    def _keep(self, question: str, content: bytes) -> None:
        folder = self._answers()
        if folder is None:
            self.given[question] = content
            return
        folder.mkdir(mode=0o700, exist_ok=True)
        write_atomically({folder / question: content}, 0o600)

    def _read(self) -> None:
        """What the file says was spent; damaged or kept for another delta, it is refused: a budget that cannot be read
        counts as spent."""
        if self.path is None or not self.path.exists():
            return
        name = self.path.name
        try:
            content = json.loads(self.path.read_text())
            found = [float(z) for z in content["multipliers"]]
            digests = [str(digest) for digest in content["paid"]]
            if content["format"] != FORMAT or not all(z > 0 for z in found):
                raise ValueError
        except (OSError, ValueError, KeyError, TypeError):
            raise FederationError(
                f"the ledger {name!r} cannot be read: what was spent is not known, so nothing is answered"
            ) from None
        if (kept := content.get("unit", "row")) != self.unit:
            raise SettingsError(
                f"the ledger {name!r} is kept for each {kept}, not for each {self.unit}: take that unit, or another one"
            )
        if content["delta"] != self.delta:
            raise SettingsError(
                f"the ledger {name!r} is kept for delta {content['delta']:g}, not {self.delta:g}: take that one"
            )
        self.multipliers, self.paid = found, digests
