"""A site that answers private steps only, with its share of the noise; and its budget: what its rows were asked for
over all fits, and a refusal once it is spent.

An answer is paid for before it is computed, written down before it is sent, and repeated as it was written. So the same
request has the same noisy answer and costs once, wherever a process ends in between. A fit reserves room for all of its
requests before the first one: it is refused then, or has room to its end. What was answered is spent; what was reserved
and not answered is free again when the fit ends properly, and until then waits for the same fit to go on.

What a list of Gaussian noises costs is dp-accounting's, over Renyi divergences: a discrete Gaussian's are at most those
of the Gaussian of the same multiplier, so the sum over steps bounds both. Shares of several sites add up to almost a
discrete Gaussian: at scales above 10^3 units the difference (Kairouz, Liu and Steinke, 2021) is below exp(-10^6), and
the scales here are above 10^8.

A ledger is known by the content of its rows under a secret key, not by a name: the same rows have the same ledger, in
whatever file or folder they lie. Rows of which half or more are those of another ledger (a file to which rows were
added, say) begin with what was spent there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import isfinite, sqrt
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from agnosticfair.data.rows import contents, marked
from agnosticfair.data.storage import alone, write_atomically
from agnosticfair.data.table import Table
from agnosticfair.errors import FederationError, SettingsError, existing, needing
from agnosticfair.privacy.requests import SHARES, PrivatePlan, check_private, deviations
from agnosticfair.protocol.messages import Broadcast, Reply, bits, pack, unpack
from agnosticfair.protocol.requests import step_of
from agnosticfair.protocol.secure.masks import request_digest

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
        return existing(self.path).with_suffix(".answers")

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


def check_budget(epsilon: float, delta: float) -> None:
    """Raise unless epsilon is positive and delta a small probability.

    >>> check_budget(3.0, 1e-5)
    """
    if not (isfinite(epsilon) and epsilon > 0):
        raise SettingsError(f"epsilon is {epsilon:g}: give a positive number, 1 to 10 is usual")
    if not 0 < delta < 0.01:
        raise SettingsError(
            f"delta is {delta:g}: give a probability well under one over the number of rows, 1e-5 say"
        )


def spent(multipliers: Sequence[float], delta: float) -> float:
    """Epsilon of steps with these noise multipliers, one after the other."""
    return _spent(tuple(multipliers), delta) if multipliers else 0.0


@lru_cache(maxsize=1024)
def _spent(multipliers: tuple[float, ...], delta: float) -> float:
    with needing("dp", "differential privacy needs more packages"):
        from dp_accounting import GaussianDpEvent, rdp
    accountant = rdp.RdpAccountant()
    for z in multipliers:
        accountant.compose(GaussianDpEvent(z))
    return float(accountant.get_epsilon(delta))


@lru_cache(maxsize=64)
def multiplier(epsilon: float, delta: float) -> float:
    """The least noise multiplier of one Gaussian that costs at most epsilon.

    >>> round(multiplier(3.0, 1e-5), 2)
    1.49
    """
    check_budget(epsilon, delta)
    low, high = 1e-3, 1e6
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if _spent((middle,), delta) > epsilon else (low, middle)
    return high


VARIABLE = "AGNOSTICFAIR_STATE"
"""Names the folder of what this user's sites keep, where it is not the system's usual one."""

KEY = "rows.key"
SAME = 0.5
"""The share of the smaller of two sets of rows from which on both have one budget."""


def ledger_folder() -> Path:
    """The standard place of ledgers, outside any federation's folder, so that a copied folder has no budget of its
    own."""
    named, state = os.environ.get(VARIABLE), os.environ.get("XDG_STATE_HOME")
    base = Path(state) if state else Path.home() / ".local" / "state"
    return (Path(named) if named else base / "agnosticfair") / "ledgers"


def ledger_of(
    table: Table, epsilon: float, delta: float, unit: str = "row", folder: Path | None = None
) -> Ledger:
    """The ledger of these rows.  folder: of ledgers; by default the standard place."""
    place = ledger_folder() if folder is None else folder
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        marks = np.sort(marked(contents(table), _key(place)))
        name = hashlib.sha256(marks.tobytes()).hexdigest()[:32]
        rows = place / f"{name}.rows"
        if not rows.exists():
            write_atomically({rows: np.unique(marks).tobytes()}, 0o600)
    except OSError as error:
        raise SettingsError(
            f"cannot keep a ledger in {str(place)!r}: {error.strerror}; name another folder, or set {VARIABLE}"
        ) from None
    others = Relatives(place, name, np.unique(marks))
    return Ledger(epsilon, delta, path=place / f"{name}.json", unit=unit, others=others)


@dataclass
class Relatives:
    """The ledgers of mostly the same rows.  marks: of these rows, sorted.  known: by name whether another is one."""

    folder: Path
    name: str
    marks: np.ndarray
    known: dict[str, bool] = field(default_factory=dict)

    def __call__(self) -> list[Path]:
        """Their files, those that came later among them."""
        for rows in self.folder.glob("*.rows"):
            if rows.stem != self.name and rows.stem not in self.known:
                self.known[rows.stem] = self._same(np.frombuffer(rows.read_bytes(), np.uint64))
        files = [self.folder / f"{name}.json" for name, same in self.known.items() if same]
        return [file for file in files if file.exists()]

    def _same(self, other: np.ndarray) -> bool:
        common = len(np.intersect1d(self.marks, other, assume_unique=True))
        return common > 0 and common >= SAME * min(len(self.marks), len(other))


def _key(folder: Path) -> bytes:
    """The key of the site's rows, made at the first use: a ledger's name tells nobody else whose rows it is of."""
    path = folder / KEY
    with alone(path):
        if not path.exists():
            write_atomically({path: secrets.token_bytes(32)}, 0o600)
    key = path.read_bytes()
    if len(key) != 32:
        raise SettingsError(f"the key {str(path)!r} is damaged: restore it, or nothing is answered")
    return hmac.digest(key, b"agnosticfair ledgers", "sha256")


PLAN = step_of(PrivatePlan)
NOBODY: Mapping[str, str] = MappingProxyType({})
MAX_INTEGER = 2.0**61
"""Of a sum in units of its grid: with its noise it stays below 2^63."""


def share_of(sites: int, colluding: int) -> float:
    """By what each site multiplies the noise, so that those who do not collude make up the whole of it.

    >>> share_of(5, 1)
    0.5
    """
    return 1.0 / sqrt(max(1, sites - colluding))


def discrete_gaussian(scale: float, size: int) -> np.ndarray:
    """Exact samples of the discrete Gaussian, (size,) int64, by OpenDP; their randomness is the system's."""
    return np.array(_sampler(scale)([0] * size), np.int64)


@lru_cache(maxsize=64)
def _sampler(scale: float) -> Any:
    with needing("dp", "differential privacy needs more packages"):
        import opendp.prelude as dp
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l2_distance(T=float)
    return dp.m.make_gaussian(*space, scale=scale)


def _unit(max_rows: int) -> str:
    return f"itself as a whole, of at most {max_rows} rows" if max_rows else "rows"


@dataclass
class PrivateSite:
    """answer: from (step, payload) to the site's clipped sums.  ledger: its budget, and the noisy answers that it
    gave, so that asking again shows nothing new.  colluding: how many other sites may pool what they know with the
    coordinator, and the rows stay as private.  max_rows: rows that it adds at most, where the site as a whole is to be
    hidden; 0 where its rows are.  rows: a fingerprint of its rows: other rows are another request."""

    name: str
    answer: Callable[[str, Any], Any]
    ledger: Ledger
    colluding: int = 1
    max_rows: int = 0
    sampler: Callable[[float, int], np.ndarray] = discrete_gaussian
    rows: str = ""

    def __call__(self, step: str, broadcast: Any, roster: Mapping[str, str] = NOBODY) -> Reply:
        """The noisy answer to one step.  roster: the sites of its session, as it agreed with them by their signed keys,
        and a hash of the rows of each: the noise is shared among them. Without a session it adds all of the noise."""
        if step not in (*SHARES, PLAN) or not isinstance(broadcast, Broadcast):
            raise FederationError(
                f"site {self.name!r} answers private steps only, not {step!r}: its sums need noise"
            )
        if step == PLAN:
            return self._reserved(broadcast)
        if broadcast.request.max_rows != self.max_rows:
            raise FederationError(
                f"site {self.name!r} hides {_unit(self.max_rows)} and was asked for sums that hide "
                f"{_unit(broadcast.request.max_rows)}: agree on one"
            )
        check_private(broadcast, self.name)
        # where another site is there, or has other rows, it adds other noise: the difference of two totals with the
        # same noise of this site would have the other's share of the noise alone
        about = [self.rows, self.colluding, sorted(roster.items())]
        request = request_digest(step, broadcast, json.dumps(about).encode()).hex()
        noisy = partial(self._noisy, step, broadcast, share_of(len(roster), self.colluding))
        return self.ledger.answer(request, broadcast.request.z, f"site {self.name!r}", noisy)

    def _reserved(self, broadcast: Broadcast[PrivatePlan]) -> Reply:
        """Room in the ledger for a whole fit, or what is left of it given back."""
        request = broadcast.request
        fit = hashlib.sha256(json.dumps([request.fit, self.rows]).encode()).hexdigest()
        if request.ends:
            self.ledger.end(fit)
        else:
            self.ledger.reserve(fit, request.multipliers.ravel().tolist(), f"site {self.name!r}")
        return Reply(broadcast.round, {"reserved": np.array(1.0)})

    def _noisy(self, step: str, broadcast: Broadcast[Any], share: float) -> Reply:
        reply = self.answer(step, broadcast)
        if reply.sums.keys() != SHARES[step].keys():
            raise FederationError(
                f"step {step!r} has fields that have no sensitivity: check versions"
            )
        sums = {}
        for name, sigma in deviations(broadcast.request, broadcast.task).items():
            value, unit = np.asarray(reply.sums[name]), 2.0 ** bits(name, broadcast.task)
            noise = self.sampler(sigma * share * unit, value.size).reshape(value.shape)
            # whole numbers are added, so that rounding to a float comes after the noise
            whole = np.clip(np.rint(value * unit), -MAX_INTEGER, MAX_INTEGER).astype(np.int64)
            sums[name] = (whole + noise.astype(np.int64)).astype(np.float64) / unit
        return replace(reply, sums=sums)
