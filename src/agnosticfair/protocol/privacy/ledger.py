"""A site's budget: what its rows have been asked for, over all fits, and a refusal once it is spent.

An answer is paid for before it is computed, written down before it is given, and given as it was written down. So the
same request has the same noisy answer and costs once, wherever a process ends in between. A fit reserves room for all
of its requests before the first one: it is refused then, or has room to its end. What was answered is spent; what was
reserved and not answered is free again when the fit ends properly, and until then waits for the same fit to go on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from agnosticfair.data.storage import alone, write_atomically
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.protocol.messages import Reply, pack, unpack
from agnosticfair.protocol.privacy.accountant import check_budget, spent

FORMAT = "agnosticfair-ledger-3"


@dataclass
class Ledger:
    """The budget of a site's rows, and the answers that were paid from it.

    epsilon, delta: the budget of the rows, or with the unit 'site' of the site as a whole.  multipliers: of the noises
    that were paid for.  answers: by request a digest of its answer, empty while that is computed.  plans: by fit the
    multipliers that are reserved for it.  ended: the fits that are over.  path: a file that keeps all that over
    fits, and beside it a folder of the answers; None to keep them in memory.  replies: there the answers.  others:
    files of ledgers of mostly the same rows, whose spending counts here, too.
    """

    epsilon: float
    delta: float
    multipliers: list[float] = field(default_factory=list)
    path: Path | None = None
    unit: str = "row"
    answers: dict[str, str] = field(default_factory=dict)
    plans: dict[str, list[float]] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    replies: dict[str, bytes] = field(default_factory=dict)
    others: Callable[[], Sequence[Path]] = tuple

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        self._read()

    @property
    def spent(self) -> float:
        """Epsilon of all that was paid for so far."""
        return spent([*self.multipliers, *self._elsewhere()], self.delta)

    @property
    def reserved(self) -> float:
        """Epsilon of all that was paid for, and of what is reserved."""
        return spent(self._all_multipliers(), self.delta)

    def reserve(self, fit: str, multipliers: Sequence[float], who: str) -> None:
        """Keep room for all requests of a fit, once; or refuse the fit before its first request."""
        with self._alone():
            if fit in self.plans or fit in self.ended:
                return
            self._check(multipliers, who, "this fit")
            self.plans[fit] = [float(z) for z in multipliers]
            self._save()

    def end(self, fit: str) -> None:
        """A fit is over: what was reserved for it and not asked is free again."""
        with self._alone():
            self.plans.pop(fit, None)
            if fit not in self.ended:
                self.ended.append(fit)
            self._save()

    def answer(self, request: str, z: float, who: str, make: Callable[[], Reply]) -> Reply:
        """The answer that was given to this request of these rows; or a new one with this noise, within the budget."""
        content = self._reply(request)
        if content is None:
            self.spend(request, z, who)
            content = self._store(request, pack(make()))
        reply = unpack(content, f"{who}, as it was kept")
        assert isinstance(reply, Reply)
        return reply

    def spend(self, request: str, z: float, who: str) -> None:
        """Pay for an answer with this noise, before it is computed; or refuse it.  An answer that was paid for and
        never given is not paid for again."""
        with self._alone():
            if self.answers.get(request) == "":
                return
            plan = next((left for left in self.plans.values() if z in left), None)
            if plan is None:
                self._check([z], who, "this answer")
            else:
                plan.remove(z)
            self.multipliers.append(z)
            self.answers[request] = ""
            self._save()

    def _check(self, more: Sequence[float], who: str, what: str) -> None:
        """Refuse what the budget has no room for."""
        for z in more:
            if not (isfinite(z) and z > 0):
                raise FederationError(
                    f"{who} was asked for sums with noise of multiplier {z}: it gives none"
                )
        multipliers = self._all_multipliers()
        after = spent([*multipliers, *more], self.delta)
        if after > self.epsilon * (1 + 1e-9):
            gone, reserved = spent([*self.multipliers, *self._elsewhere()], self.delta), ""
            if any(self.plans.values()):
                reserved = f", {spent(multipliers, self.delta):.3g} with what a fit that has not ended reserved,"
            raise FederationError(
                f"the privacy budget of {who} is spent: {gone:.3g} of epsilon {self.epsilon:g} is gone{reserved} and "
                f"{what} would make it {after:.3g}; take a larger epsilon, or other rows"
            )

    def _all_multipliers(self) -> list[float]:
        """All multipliers that count against the budget."""
        reserved = [z for left in self.plans.values() for z in left]
        return [*self.multipliers, *reserved, *self._elsewhere()]

    def _elsewhere(self) -> list[float]:
        """What was paid and reserved in ledgers of mostly the same rows."""
        multipliers = []
        for path in self.others():
            content = _content(path, self.unit)
            multipliers += content["multipliers"]
            multipliers += [z for left in content["plans"].values() for z in left]
        return multipliers

    def _save(self) -> None:
        if self.path is None:
            return
        names = ("epsilon", "delta", "unit", "multipliers", "answers", "plans", "ended")
        content = {"format": FORMAT} | {name: getattr(self, name) for name in names}
        write_atomically({self.path: json.dumps(content).encode()}, 0o600)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process spends of the ledgers here meanwhile, and what others spent before is known."""
        if self.path is None:
            yield
            return
        with alone(self.path.with_name("ledgers")):
            self._read()
            yield

    def _reply(self, request: str) -> bytes | None:
        """The bytes of the answer that was given to a request, if they are still there."""
        self._read()
        digest = self.answers.get(request)
        if not digest:
            return None
        content = self.replies.get(request)
        if self.path is not None:
            path = self._folder() / request
            content = path.read_bytes() if path.is_file() else None
        known = content is not None and hashlib.sha256(content).hexdigest() == digest
        return content if known else None

    def _folder(self) -> Path:
        assert self.path is not None
        return self.path.with_suffix(".answers")

    def _store(self, request: str, content: bytes) -> bytes:
        """Write an answer down; the one that another process wrote meanwhile is the answer instead."""
        with self._alone():
            if (before := self._reply(request)) is not None:
                return before
            if self.path is None:
                self.replies[request] = content
            else:
                self._folder().mkdir(mode=0o700, exist_ok=True)
                write_atomically({self._folder() / request: content}, 0o600)
            self.answers[request] = hashlib.sha256(content).hexdigest()
            self._save()
        return content

    def _read(self) -> None:
        """What the file says was spent."""
        if self.path is None or not self.path.exists():
            return
        content = _content(self.path, self.unit)
        if content["delta"] != self.delta:
            raise SettingsError(
                f"the ledger {self.path.name!r} is kept for delta {content['delta']:g}, not {self.delta:g}: take "
                "that one"
            )
        self.multipliers, self.answers = content["multipliers"], content["answers"]
        self.plans, self.ended = content["plans"], content["ended"]


def _content(path: Path, unit: str) -> dict[str, Any]:
    """What a ledger's file says; damaged or kept for another unit, it is refused: a budget that cannot be read counts
    as spent."""
    try:
        content = json.loads(path.read_text())
        content["multipliers"] = [float(z) for z in content["multipliers"]]
        plans = {str(fit): [float(z) for z in left] for fit, left in content["plans"].items()}
        content["plans"] = plans
        content["answers"] = {str(k): str(digest) for k, digest in content["answers"].items()}
        content["ended"] = [str(fit) for fit in content["ended"]]
        every = [*content["multipliers"], *(z for left in plans.values() for z in left)]
        if content["format"] != FORMAT or not all(z > 0 for z in every):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise FederationError(
            f"the ledger {path.name!r} cannot be read: what was spent is not known, so nothing is answered"
        ) from None
    if content["unit"] != unit:
        raise SettingsError(
            f"the ledger {path.name!r} is kept for each {content['unit']}, not for each {unit}: take that unit, or "
            "another folder of ledgers"
        )
    return dict(content)
