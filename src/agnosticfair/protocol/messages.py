"""What crosses the wire. Messages add with ``+``; only the server divides. One wire form, no pickle.

The wire form is a safetensors file: named arrays behind a header of strings. It is read without
running anything, and every reply is checked against what was asked before it is added.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any, Generic, TypeVar

import numpy as np

from agnosticfair.data.encoding import FEATURE_BITS, exponents
from agnosticfair.data.records import put_together, taken_apart
from agnosticfair.data.summary import SummaryStatistics, merge
from agnosticfair.errors import FederationError, ModelError, SettingsError
from agnosticfair.protocol.requests import (
    REQUESTS,
    UNCOUNTED,  # noqa: F401 (an example)
    Request,
    Task,
    step_of,
)

RequestT = TypeVar("RequestT", bound=Request, covariant=True)
FORMAT = "agnosticfair-message-4"
NARROW = tuple(map(np.dtype, ("u1", "u2", "i2", "i4", "f4", "f8")))
"""Kinds of numbers of which a task's estimates may consist."""

MAX_BYTES = 1 << 28
"""A longer message is refused unread; Adult's are under a megabyte."""


@dataclass(frozen=True)
class Broadcast(Generic[RequestT]):
    """The server's request of one round, the same for every client.  session: of secure sums, under whose
    keys the answer is masked; empty for an answer in the open."""

    round: int
    task: Task
    request: RequestT
    session: str = ""

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """What every client's answer must look like."""
        return self.request.shapes(self.task)


@dataclass(frozen=True)
class Reply:
    """A client's answer: sums over its rows, by name."""

    round: int
    sums: Mapping[str, np.ndarray]

    def __add__(self, other: Reply) -> Reply:
        """Add two replies to the same request.

        >>> (Reply(1, {"n": np.array(2.0)}) + Reply(1, {"n": np.array(3.0)})).sums["n"]
        np.float64(5.0)
        """
        if self.round != other.round or self.sums.keys() != other.sums.keys():
            raise FederationError(
                f"replies of round {self.round} and {other.round} with fields {sorted(self.sums)} "
                f"and {sorted(other.sums)} do not add up: ask both clients again"
            )
        return Reply(self.round, {k: v + other.sums[k] for k, v in self.sums.items()})

    @property
    def nbytes(self) -> int:
        return sum(np.asarray(v).nbytes for v in self.sums.values())


def joined(*pieces: bytes) -> bytes:
    """Pieces with their lengths, so that no two lists of pieces give the same bytes."""
    return b"".join(len(piece).to_bytes(8, "little") + piece for piece in pieces)


def digest(roster: Mapping[str, str]) -> bytes:
    """What the sites of a session agree on: who takes part, and with which long-term key."""
    content = [text.encode() for site in sorted(roster) for text in (site, roster[site])]
    return hashlib.sha256(joined(*content)).digest()


@dataclass(frozen=True)
class Offer:
    """A site's masking key (X25519) for one session, signed with its long-term key; all in hexadecimal.  rows: where
    the site adds noise, a hash of its rows under a key of its own: others see by it whether they are the same."""

    site: str
    session: str
    public: str
    signature: str
    rows: str = ""


@dataclass(frozen=True)
class Invitation:
    """To a session of secure sums.  sites: who takes part, with their long-term public keys.  coordinator: its
    public key (X25519) for this session, with which replies are authenticated; empty where sites sign them."""

    session: str
    sites: Mapping[str, str]
    coordinator: str = ""

    @cached_property
    def roster(self) -> bytes:
        """A digest of who takes part."""
        return digest(self.sites)


@dataclass(frozen=True)
class Agreement:
    """The signed masking keys of all sites of a session, for each of them to check."""

    session: str
    offers: tuple[Offer, ...]


@dataclass(frozen=True)
class KeyList:
    """All sites' long-term public keys, in a version that its keeper signed; all in hexadecimal."""

    version: int
    sites: Mapping[str, str]
    signature: str


@dataclass(frozen=True)
class Masked:
    """A site's answer as integers modulo 2^64 under masks, (N,) uint64.  proof: that it is this site's answer to this
    request, a tag for the session's coordinator or a signature for all, in hexadecimal."""

    round: int
    site: str
    values: np.ndarray
    proof: str


@dataclass(frozen=True)
class Candidates:
    """Rows a client offers as kernel centres, with their priorities (``basis.row_priorities``)."""

    priorities: np.ndarray
    rows: np.ndarray

    def __add__(self, other: Candidates) -> Candidates:
        return Candidates(
            np.concatenate([self.priorities, other.priorities]),
            np.concatenate([self.rows, other.rows]),
        )

    def lowest(self, count: int) -> np.ndarray:
        """The distinct rows of lowest priority, at most ``count``: (M, d)."""
        _, first = np.unique(self.priorities, return_index=True)
        return self.rows[first[:count]]


def check_reply(
    reply: object, client: str, round: int, shapes: Mapping[str, tuple[int, ...]]
) -> Reply:
    """The reply, if it answers the question that was asked: type, round, fields, shapes, finite."""
    if not isinstance(reply, Reply):
        raise FederationError(f"client {client!r} answered with {type(reply).__name__}, not sums")
    if reply.round != round:
        raise FederationError(
            f"client {client!r} answered round {reply.round} instead of {round}: a late reply is never added"
        )
    if reply.sums.keys() != shapes.keys():
        raise FederationError(
            f"client {client!r} sent fields {sorted(reply.sums)}; asked were {sorted(shapes)}"
        )
    for name, shape in shapes.items():
        value = np.asarray(reply.sums[name])
        if value.shape != shape:
            raise FederationError(
                f"client {client!r} sent {name} of shape {value.shape}; asked was {shape}"
            )
        if not np.isfinite(value).all():
            raise FederationError(
                f"client {client!r} sent {name} with values that are not finite: check its features"
            )
    return reply


def add_up(replies: Iterable[Reply]) -> Reply:
    """The sum of replies, rounded once, so that their order does not matter; new arrays, whose layout is not
    that of the first reply.

    >>> add_up([Reply(1, {"n": np.array(2.0)}), Reply(1, {"n": np.array(3.0)})]).sums["n"]
    array(5.)
    """
    first, *rest = replies
    as_array = np.asarray if rest else np.array  # the sum of one is a copy
    total: dict[str, Any] = {k: as_array(v, np.float64, order="C") for k, v in first.sums.items()}
    lost: dict[str, Any] = {}
    for reply in rest:
        if (reply.round, reply.sums.keys()) != (first.round, total.keys()):
            return first + reply  # which says what does not fit
        for name, value in reply.sums.items():
            total[name], error = _two_sum(total[name], value)
            lost[name] = lost.get(name, 0.0) + error
    return Reply(first.round, {k: np.asarray(v + lost.get(k, 0.0)) for k, v in total.items()})


def _two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, Any]:
    """The sum, and what rounding took away, exactly (Knuth); 0 where that is nothing, as in sums on a grid."""
    total = np.add(a, b, order="C")
    back = total - a
    if np.array_equal(back, b) and np.array_equal(total - b, a):
        return total, 0.0
    return total, (a - (total - back)) + (b - back)


def together(answers: Mapping[str, Any], who: str = "") -> Any:
    """One answer for all of these, which are of one kind.  who: gives it, where it bears a name.

    >>> together({"a": Reply(1, {}), "b": Reply(1, {})})
    Reply(round=1, sums={})
    """
    replies = [answers[key] for key in sorted(answers)]
    if all(isinstance(answer, Masked) for answer in replies):
        (round,) = {answer.round for answer in replies}
        return Masked(round, who, reduce(add, (answer.values for answer in replies)), "")
    if all(isinstance(answer, Offer) for answer in replies):
        (session,) = {answer.session for answer in replies}
        return Agreement(session, tuple(replies))
    if all(isinstance(answer, Reply) for answer in replies):
        return add_up(replies)
    if all(isinstance(answer, SummaryStatistics) for answer in replies):
        return merge(answers)
    if all(isinstance(answer, Candidates) for answer in replies):
        return reduce(add, replies)
    kinds = sorted({type(answer).__name__ for answer in replies})
    raise FederationError(f"a relay cannot add up {', '.join(kinds)}: ask such clients directly")


def check_candidates(offered: object, client: str, width: int) -> Candidates:
    """The candidates, if they are rows of the agreed width with a priority each."""
    if not isinstance(offered, Candidates):
        raise FederationError(
            f"client {client!r} answered with {type(offered).__name__}, not candidates"
        )
    size = len(offered.priorities)
    if offered.priorities.shape != (size,) or offered.rows.shape != (size, width):
        raise FederationError(
            f"client {client!r} offered rows of shape {offered.rows.shape}; asked was ({size}, {width})"
        )
    if not (np.isfinite(offered.rows).all() and np.isfinite(offered.priorities).all()):
        raise FederationError(
            f"client {client!r} offered rows with values that are not finite: check its features"
        )
    return offered


Message = (
    Broadcast
    | Reply
    | Candidates
    | SummaryStatistics
    | Invitation
    | Offer
    | Agreement
    | Masked
    | KeyList
)


def pack(message: Message) -> bytes:
    """The wire form of a message: named arrays behind a header of JSON.

    >>> unpack(pack(Reply(3, {"n": np.array(2.0)})))
    Reply(round=3, sums={'n': array(2.)})
    """
    from safetensors.numpy import save

    header, arrays = _pieces(message)
    text = json.dumps({"format": FORMAT, **header}, allow_nan=False)
    number = _number(header["kind"])
    # a fresh C-ordered copy each: the bytes must not depend on how an array came about
    return save(
        {k: np.array(v, dtype=_narrow(k, v) or number, order="C") for k, v in arrays.items()},
        {"agnosticfair": text},
    )


def _number(kind: object) -> type:
    """What a message's arrays consist of: masked ones of integers modulo 2^64, all others of float64."""
    return np.uint64 if kind == "masked" else np.float64


def _narrow(name: str, value: np.ndarray) -> np.dtype[Any] | None:
    """The kind of number that an array has kept: estimates and trees may be packed small."""
    is_narrow = name.startswith(("task.estimates.", "request.trees.")) and value.dtype in NARROW
    return value.dtype if is_narrow else None


def unpack(content: bytes, who: str = "a client") -> Message:
    """The message in these bytes, which are not trusted; ``who`` sent them."""
    from safetensors import SafetensorError

    try:
        return _read(content)
    except FederationError as error:
        raise FederationError(f"{error} (from {who})") from None
    except (SettingsError, ModelError) as error:
        raise FederationError(f"the message of {who} asks for what is not there: {error}") from None
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = str(error) if type(error) is ValueError else type(error).__name__
        raise FederationError(
            f"the message of {who} is damaged ({why}): check that its version is the same"
        ) from None


_KINDS: dict[str, type[Any]] = {
    "reply": Reply,
    "candidates": Candidates,
    "offer": Offer,
    "invitation": Invitation,
    "agreement": Agreement,
    "key list": KeyList,
    "masked": Masked,
}
"""Messages that are packed field by field."""


def _pieces(message: Message) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if isinstance(message, SummaryStatistics):
        return {"kind": "statistics", "statistics": message.to_json()}, {}
    if isinstance(message, Broadcast):
        task, request = message.task, message.request
        pieces = {"task": taken_apart(task), "request": taken_apart(request)}
        header: dict[str, Any] = {piece: plain for piece, (plain, _) in pieces.items()}
        header |= {"kind": "broadcast", "round": message.round, "id": task.id}
        header |= {"step": step_of(request), "session": message.session}
        return header, {
            f"{piece}.{k}": v for piece, (_, arrays) in pieces.items() for k, v in arrays.items()
        }
    for kind, record in _KINDS.items():
        if type(message) is record:
            plain, arrays = taken_apart(message)
            return {"kind": kind, "record": plain}, arrays
    raise FederationError(f"{type(message).__name__} is no message: send one of this module's")


def _opened(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays of a message of this format, of the kind of number that it is to have."""
    from safetensors.numpy import load

    if len(content) > MAX_BYTES:
        raise ValueError(f"{len(content)} bytes, more than {MAX_BYTES}")
    # fresh copies: aligned and writable, as the arrays of this process are
    arrays = {name: np.array(value) for name, value in load(content).items()}
    size = int.from_bytes(content[:8], "little")
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["agnosticfair"])
    if not isinstance(header, dict) or header["format"] != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    number = np.dtype(_number(header["kind"]))
    for name, value in arrays.items():
        if value.dtype != (_narrow(name, value) or number):
            raise ValueError(f"{name} is {value.dtype}, not {number}")
    return header, arrays


def _read(content: bytes) -> Message:
    header, arrays = _opened(content)
    match header:
        case {"kind": "statistics", "statistics": statistics} if not arrays:
            return SummaryStatistics.from_json(statistics)
        case {"kind": "broadcast", "round": int(round), "id": str(), "session": str(session)}:
            return Broadcast(round, *_request(header, arrays), session)
        case {"kind": str(kind), "record": record} if kind in _KINDS:
            return _checked(put_together(_KINDS[kind], record, arrays))
    raise ValueError("it has no kind, or not the entries of its kind")


def key_list(entry: object) -> KeyList:
    """A list of keys from its plain form, in a file; what is none raises ``ValueError``."""
    return _checked(put_together(KeyList, entry, {}))


def _checked(message: Any) -> Any:
    """The message, if its keys and signatures are such: ``ValueError`` for what is none."""
    match message:
        case Offer():
            hexadecimal(message.public, 32)
            hexadecimal(message.signature, 64)
            hexadecimal(message.rows, 16 if message.rows else 0)
        case Agreement():
            for offer in message.offers:
                _checked(offer)
        case Invitation():
            for public in message.sites.values():
                hexadecimal(public, 32)
            hexadecimal(message.coordinator, 32 if message.coordinator else 0)
        case KeyList():
            for public in message.sites.values():
                hexadecimal(public, 32)
            hexadecimal(message.signature, 64)
        case Masked():
            hexadecimal(message.proof, len(message.proof) // 2)
            if message.values.ndim != 1:
                raise ValueError("masked values are no vector")
    return message


def hexadecimal(text: object, size: int) -> str:
    """The text, if it stands for so many bytes in hexadecimal.

    >>> hexadecimal("00ff", 2)
    '00ff'
    """
    if (
        not isinstance(text, str)
        or len(text) != 2 * size
        or not set(text) <= set("0123456789abcdef")
    ):
        raise ValueError(f"a key or signature is not {size} bytes in hexadecimal")
    return text


def _request(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> tuple[Task, Any]:
    """The task and the request of a broadcast, each field of the type that its record says."""
    pieces: dict[str, dict[str, np.ndarray]] = {"task": {}, "request": {}}
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise ValueError(f"{name} is not finite")
        piece, _, inner = name.partition(".")
        pieces[piece][inner] = value
    step = header["step"]
    if step not in REQUESTS:
        raise FederationError(f"no step {step!r} is known here; there are: {', '.join(REQUESTS)}")
    task = put_together(Task, header["task"], pieces["task"])
    if task.id != header["id"]:
        raise ValueError("its task is not what its id says")
    return task, put_together(REQUESTS[step], header["request"], pieces["request"])


# The grid that a reply's numbers lie on: multiples of a power of two that the task settles. Sums over n rows of values
# up to 2^SPARE_BITS in absolute value are then integers below 2^53 in units of the grid. A float64 adds them up
# exactly, whoever adds in whatever order, and modulo 2^64 they can be masked (``protocol.secure``)
# without a bit being lost.

SPARE_BITS = 3
"""Bits of a row's value above one."""

WEIGHT_BITS = 10
"""Bits above one of a model's weight, where local models are averaged."""

MIN_BITS = 14
"""A coarser grid than 2^-14 would show in the model; it holds 2^36 rows."""


def base_bits(n: int) -> int:
    """Bits after the point that n rows' sums keep; refused where n is so large that too few are left.

    >>> base_bits(48_842)
    34
    """
    bits = 53 - SPARE_BITS - int(n).bit_length()
    if bits < MIN_BITS:
        raise SettingsError(
            f"sums over {n} rows would not fit in 64 bits on a grid of 2^-{MIN_BITS}: take fewer rows"
        )
    return bits


def bits(field: str, task: Task) -> Any:
    """Bits after the point of a field: one number, or one for each of the last axes' columns.

    A step that is asked before the rows are counted sends counts, and weights on the grid of features.
    """
    if not task.n:
        return FEATURE_BITS
    if field == "w":  # a sum over sites, not over rows
        return 53 - WEIGHT_BITS - len(task.clients).bit_length()
    base = base_bits(task.n)
    if task.encoding.scale or field not in _OF_FEATURES:
        return base
    return base - _OF_FEATURES[field](exponents(task.encoding))


_OF_FEATURES = {
    "J_1": lambda e: e,
    "J_L": lambda e: e,
    "J_g": lambda e: e,
    "phi_C": lambda e: e,
    "head_gradient": lambda e: e,
    "head_hessian": lambda e: (e[:, None] + e)[np.tril_indices(len(e))],
    "H": lambda e: e[:, None] + e,
    "total": lambda e: e[:-1],
    "x": lambda e: e[:-1],
    "x_squares": lambda e: 2 * e[:-1],
}
"""Fields whose last axes are the features: what scales them where the encoding does not."""


def on_grid(reply: Reply, task: Task) -> Reply:
    """The reply with every number on its field's grid; what is there already keeps its bits.

    >>> on_grid(Reply(0, {"n": np.array(0.1)}), UNCOUNTED).sums["n"] * 2**20
    np.float64(104858.0)
    """
    sums = {name: rounded(value, bits(name, task)) for name, value in reply.sums.items()}
    return replace(reply, sums=sums)


def rounded(value: np.ndarray, bits: Any) -> np.ndarray:
    """The nearest multiples of 2^-bits; new arrays, of the same layout."""
    unit = np.ldexp(1.0, bits)
    scaled = np.asarray(value * unit)
    np.rint(scaled, scaled)
    scaled /= unit
    return scaled
