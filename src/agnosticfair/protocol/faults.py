"""Answers that do not come: what is done about them, and a record of what happened.

A sum over the clients that answered, divided by the n of all, is another problem than the one
that was stated, and solves without complaint. So a round lacks no answer: it is asked again, or
the fit stops, or the problem is stated anew for the clients that remain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from typing import Any

from agnosticfair.data.rows import Fold
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.protocol.engines import Engine, Failure
from agnosticfair.protocol.messages import Broadcast, Reply, add_up, check_reply
from agnosticfair.protocol.requests import REQUESTS, UNCOUNTED, step_of
from agnosticfair.protocol.secure.keys import Roster, relays
from agnosticfair.protocol.secure.sessions import Opened, open_session
from agnosticfair.protocol.secure.sessions import total as secure_total

MALFORMED = 3
"""Times that a malformed answer is requested again, whatever the policy waits for: no time mends it."""

Check = Callable[[Any, str], Any]


@dataclass(frozen=True)
class Policy:
    """Ask ``retries`` more times, ``pause`` seconds apart, those that gave no usable answer and did not
    decline, for ``patience`` seconds in all; then 'stop', or 'drop' them and state the problem anew, if
    ``min_clients`` remain."""

    retries: int = 0
    pause: float = 0.0
    then: str = "stop"
    min_clients: int = 1
    patience: float = inf

    def __post_init__(self) -> None:
        if self.then not in ("stop", "drop"):
            raise SettingsError(
                f"after its retries a policy can 'stop' or 'drop', not {self.then!r}"
            )
        if self.retries < 0 or self.pause < 0 or self.min_clients < 1:
            raise SettingsError(
                f"retries ({self.retries}) and pause ({self.pause}) must not be negative, and "
                f"min_clients ({self.min_clients}) not under one"
            )
        if not self.patience > 0:
            raise SettingsError(f"patience is {self.patience}: give seconds, more than none")


POLICIES: dict[str, Policy] = {
    "stop": Policy(),
    "wait": Policy(retries=100_000, pause=5.0, patience=3600.0),
    "drop": Policy(retries=1, pause=1.0, then="drop"),
}


def policy(name: str | Policy) -> Policy:
    """A policy by name, or as it is.

    >>> policy("wait").patience
    3600.0
    """
    if isinstance(name, Policy):
        return name
    if name not in POLICIES:
        raise SettingsError(f"unknown policy {name!r}; there are: {', '.join(POLICIES)}")
    return POLICIES[name]


class Missing(FederationError):
    """Clients that gave no usable answer, with the reason of each.  declined: they would not, and none was lost."""

    def __init__(self, step: str, reasons: Mapping[str, str], declined: bool = False) -> None:
        self.step, self.reasons, self.declined = step, dict(reasons), declined
        (first, reason), *rest = self.reasons.items()
        more = f" (and at {len(rest)} more)" if rest else ""
        super().__init__(f"step {step!r} failed at client {first!r}{more}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        """So that it comes back from another process."""
        return type(self), (self.step, self.reasons, self.declined)


@dataclass
class Coordinator:
    """Asks some of an engine's clients under a policy, and writes down what went wrong.

    secure: the sites' long-term public keys, where all sums are to be masked; then a total is all that
    this side sees, and under a session of keys that is begun anew whenever clients are dropped.  fold: of the
    rows that are asked about; None for all.
    """

    engine: Engine
    keys: tuple[str, ...]
    policy: Policy = field(default_factory=Policy)
    deadline: float | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    secure: Roster | None = None
    session: Opened | None = None
    fold: Fold | None = None

    def total(self, broadcast: Broadcast[Any]) -> Reply:
        """The sum of every client's reply, each checked against what was asked."""
        broadcast = self._dealt(step_of(broadcast.request), broadcast)
        if self.secure is None:
            check = partial(check_reply, round=broadcast.round, shapes=broadcast.shapes)
            return add_up(self.send(step_of(broadcast.request), broadcast, check).values())
        if self.session is None:
            self.session = open_session(self.send, self._roster())
        return secure_total(self.send, self.session, broadcast)

    def _dealt(self, step: str, payload: Any) -> Any:
        """The request about the fold's rows only; one that comes without a task gets an empty one."""
        if self.fold is None or not (payload is None or isinstance(payload, Broadcast)):
            return payload
        broadcast = Broadcast(0, UNCOUNTED, REQUESTS[step]()) if payload is None else payload
        if broadcast.task.fold == self.fold:
            return broadcast
        return replace(broadcast, task=replace(broadcast.task, fold=self.fold))

    def _roster(self) -> dict[str, str]:
        """The public keys of those that are asked, or of the sites below them."""
        assert self.secure is not None
        below = relays(self.secure)
        for key in self.keys:
            if key not in below:
                raise SettingsError(
                    f"site {key!r} is missing from the list of keys: add its public key there"
                )
        return {site: self.secure[site] for key in self.keys for site in below[key]}

    @property
    def sites(self) -> tuple[str, ...]:
        """Whose rows are asked about: those that are asked, or under masks the sites below them."""
        return self.keys if self.secure is None else tuple(sorted(self._roster()))

    def send(self, step: str, payload: Any, check: Check | None = None) -> dict[str, Any]:
        """Every client's answer, checked, in the order of the keys; ``Missing`` if one has none."""
        payload = self._dealt(step, payload)
        good: dict[str, Any] = {}
        bad: dict[str, Failure] = {}
        end, malformed = time.monotonic() + self.policy.patience, 0
        for attempt in range(1 + self.policy.retries):
            if attempt and time.monotonic() + self.policy.pause >= end:
                break
            if attempt:
                time.sleep(self.policy.pause)
            good, bad = self._once(step, payload, check, good, end)
            number = getattr(payload, "round", 0)
            for key, failure in bad.items():
                self.note("no answer", step=step, round=number, client=key, reason=failure.reason)
            if not bad:
                return {key: good[key] for key in self.keys}
            malformed += any(failure.malformed for failure in bad.values())
            if malformed > MALFORMED or any(failure.final for failure in bad.values()):
                break
        declined = all(failure.final for failure in bad.values())
        raise Missing(step, {key: failure.reason for key, failure in bad.items()}, declined)

    def _once(
        self, step: str, payload: Any, check: Check | None, good: Mapping[str, Any], end: float
    ) -> tuple[dict[str, Any], dict[str, Failure]]:
        """The good answers with those of one more asking, and the failures of the others."""
        wanted = [key for key in self.keys if key not in good]
        deadline = min(inf if self.deadline is None else self.deadline, end - time.monotonic())
        answers = self.engine.exchange(step, payload, wanted, deadline)
        good, bad = dict(good), {}
        for key in wanted:
            answer = answers.get(key, Failure("it gave no answer"))
            if isinstance(answer, Failure):
                bad[key] = answer
                continue
            try:
                good[key] = answer if check is None else check(answer, key)
            except FederationError as error:
                bad[key] = Failure(str(error), malformed=True)
        return good, bad

    def note(self, event: str, **about: Any) -> None:
        """Write an event down; one that repeats is counted, so that waiting does not fill the list."""
        last = self.events[-1] if self.events else {}
        entry = {"event": event, **about}
        if {k: v for k, v in last.items() if k != "times"} == entry:
            last["times"] = last.get("times", 1) + 1
        else:
            self.events.append(entry)

    def drop(self, missing: Missing) -> None:
        """Go on without these clients, or raise where the policy or the number left forbids it."""
        left = tuple(key for key in self.keys if key not in missing.reasons)
        if self.policy.then != "drop":
            raise missing
        if len(left) < self.policy.min_clients:
            raise FederationError(
                f"{len(left)} clients would remain of at least {self.policy.min_clients}: {missing}"
            )
        self.keys, self.session = left, None
        self.note("restated", without=sorted(missing.reasons), clients=len(left))


def check_enough(keys: Iterable[str], policy: Policy) -> None:
    """Raise if there are fewer clients than the policy requires, before anything is asked."""
    count = len(tuple(keys))
    if count < policy.min_clients:
        raise FederationError(
            f"there are {count} clients of at least {policy.min_clients}: start the others first"
        )
