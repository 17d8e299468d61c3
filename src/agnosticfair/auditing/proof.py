"""A certificate that travels: the sums it rests on, a seal over all of it, and the check that needs neither rows
nor model.

Whoever reads one computes every bound anew from the counts (``verify``), which takes seconds; the digest finds a
changed digit, and the issuer's signature (Ed25519, extra 'secure') one that was changed with its digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import combinations, pairwise
from math import comb, prod
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.parts import Asked, Found, records, upper_of, worst_of
from agnosticfair.data.encoding import shown
from agnosticfair.errors import DataError, SettingsError, needing
from agnosticfair.mathematics import confidence, reweighed
from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.parts import Axis, part_name, sizes_of, starts_of
from agnosticfair.mathematics.parts import read as sums_at

PURPOSE = b"agnosticfair-certificate-1"
SIGNING = "a signature needs the package 'cryptography'"
SEALS = ("digest", "signature")
CLOSE = 1e-9
"""Two computations of one bound may differ by rounding."""


def sums_of(found: Found, axes: Sequence[Axis], depth: int, ask: Asked) -> dict[str, Any]:
    """The counts that a certificate over parts rests on, as JSON; and for a monitor all pairs of values'."""
    return {
        "pairs": _pairs(sizes_of(axes), ask).tolist(),
        "parts": [[list(value) for value in part] for part in found.parts],
        "counts": found.counts.tolist(),
        "axes": [[axis.name, list(axis.values), [float(e) for e in axis.edges]] for axis in axes],
        "depth": depth,
        "least": found.least,
    }


def _pairs(sizes: Sequence[int], ask: Asked) -> np.ndarray:
    """Rows of every pair of values, (I, I), the single values on the diagonal."""
    ones = [(axis, value) for axis, size in enumerate(sizes) for value in range(size)]
    places = [
        (i, j) for j in range(len(ones)) for i in range(j + 1) if i == j or ones[i][0] < ones[j][0]
    ]
    found = np.zeros((len(ones), len(ones)), int)
    if places:
        parts = [(ones[i],) if i == j else (ones[i], ones[j]) for i, j in places]
        rows, columns = np.array(places).T
        found[rows, columns] = found[columns, rows] = ask(parts).sum(axis=(1, 2, 3))
    return found


def axes_of(sums: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The columns that name a certificate's parts, with their values and edges."""
    return tuple(Axis(name, tuple(values), tuple(edges)) for name, values, edges in sums["axes"])


def canonical(told: Mapping[str, Any]) -> bytes:
    """The bytes that are sealed: all but the seals, keys sorted."""
    bare = {key: value for key, value in told.items() if key not in SEALS}
    return json.dumps(bare, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sealed(told: Mapping[str, Any], secret: bytes | None = None) -> dict[str, Any]:
    """The certificate with its digest and, with the issuer's secret key, a signature."""
    bare = {key: value for key, value in told.items() if key not in SEALS}
    content = canonical(bare)
    made = {**bare, "digest": hashlib.sha256(content).hexdigest()}
    if secret is None:
        return made
    key = _private(secret)
    signed = {"public_key": key.public_key().public_bytes_raw().hex()}
    return {**made, "signature": {**signed, "value": key.sign(PURPOSE + content).hex()}}


def verify(told: Any, public: str | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a certificate as JSON, a sentence each; none where it holds.

    public: the issuer's public key, 64 hexadecimal digits; a certificate not signed with it is refused.
    """
    if not isinstance(told, Mapping) or not str(told.get("format", "")).startswith(
        "agnosticfair-certificate"
    ):
        return ("this is no certificate: give the certificate.json that 'audit' wrote",)
    try:
        return (*_seals(told, public), *_recomputed(told))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        return (f"its sums cannot be read ({type(error).__name__}): it was changed or cut",)


def _seals(told: Mapping[str, Any], public: str | None) -> Iterator[str]:
    content = canonical(told)
    if told.get("digest") != hashlib.sha256(content).hexdigest():
        yield "its digest is not that of its content: something was changed"
    signature = told.get("signature")
    if signature is None:
        if public is not None:
            yield "it is not signed, and a signature by that key was asked for"
        return
    if public is not None and signature["public_key"] != public.lower():
        yield f"it is signed with another key, {signature['public_key'][:16]}…"
    if not _signed(signature, content):
        yield "its signature is not over this content: something was changed"


def _recomputed(told: Mapping[str, Any]) -> Iterator[str]:
    """The sums against each other, and every bound against the one that follows from them."""
    sums, notion = told.get("sums"), told["notion"]
    if notion not in NOTIONS:
        raise ValueError(notion)
    uppers = []
    if told["kernels"] is not None:
        uppers.append(_kernels(told))
        if not _same(told["kernels"]["upper"], uppers[-1]):
            yield "the bound over kernels is not the one that its sums give"
        yield from _cells_hold(told)
    if sums is not None:
        uppers += yield from _over_parts(told, sums, notion)
    if not uppers:
        yield "it carries no sums, so nothing in it can be checked: audit rows held out from the fit"
    elif not _same(told["upper"], max(uppers)):
        yield f"upper is {told['upper']} where its sums give {max(uppers):.6f}"


def _over_parts(
    told: Mapping[str, Any], sums: Mapping[str, Any], notion: str
) -> Generator[str, None, list[float]]:
    """What is wrong with the parts and their mixtures; the bounds that their sums give."""
    groups = tuple(told["groups"])
    found = _found(sums, len(groups))
    yield from _consistent(found, told)
    if not _pairs_hold(np.array(sums["pairs"]), found, sizes_of(axes_of(sums))):
        yield "the rows of pairs of values do not add up to those of its parts"
    made = records(found, groups, notion, told["confidence"], told["precision"], told["share"])
    for said, true in zip(told["parts"], made, strict=True):
        wrong = [key for key, value in asdict(true).items() if not _same(said[key], value)]
        if wrong:
            yield f"part {true.name!r} says another {wrong[0]} than its sums"
    uppers = [upper_of(made)]
    if told["mixtures"] is not None:
        asked = (told["confidence"], told["precision"], told["share"], told["floor"])
        uppers.append(mixtures_of(found, notion, *asked, sums.get("duals")).value)
        if not _same(told["mixtures"], uppers[-1]):
            yield "the bound over mixtures is not the one that its sums give"
    worst = worst_of(made)
    if worst is not None and not told["worst_difference"] >= worst.difference - CLOSE:
        yield f"worst_difference is {told['worst_difference']} where part {worst.name!r} shows {worst.difference:.6f}"
    return uppers


def _cells_hold(told: Mapping[str, Any]) -> Iterator[str]:
    """Whether the sums of kernels in [0, 1] are no more than rows, of which there are as many as is said."""
    psi = np.array(told["kernels"]["psi"], float)
    rows = psi[..., -1]
    if rows.shape != (len(told["groups"]), 2, 2) or not (psi >= 0).all():
        raise ValueError("psi")
    if rows.sum() != told["n"]:
        yield f"n is {told['n']} where the kernels' sums have {rows.sum():g} rows"
    if (psi > rows[..., None] + CLOSE * told["n"]).any():
        yield "a kernel has more than one in a row"
    if told["sums"] is not None and (rows != np.array(told["sums"]["counts"][0])).any():
        yield "the kernels' sums are of other rows than the parts'"


def _found(sums: Mapping[str, Any], groups: int) -> Found:
    counts = np.array(sums["counts"])
    axes = axes_of(sums)
    sizes, deep = sizes_of(axes), range(sums["depth"] + 1)
    if counts.dtype.kind != "i" or counts.min() < 0 or counts.shape[1:] != (groups, 2, 2):
        raise ValueError("counts")
    parts = tuple(tuple((int(a), int(v)) for a, v in part) for part in sums["parts"])
    if parts[0] != () or len({*parts}) < len(parts) or len(parts) != len(counts):
        raise ValueError("parts")
    for part in parts:
        if any(not 0 <= v < sizes[a] for a, v in part) or len({a for a, _ in part}) < len(part):
            raise ValueError("parts")
    names = tuple(part_name(axes, part) for part in parts)
    candidates = sum(prod(some) for d in deep for some in combinations(sizes, d))
    sets = sum(comb(len(sizes), d) for d in deep)
    return Found(parts, names, counts, candidates, sets, float(sums["least"]))


def _consistent(found: Found, told: Mapping[str, Any]) -> Iterator[str]:
    """No part has more rows than what it is made of, and the parts of one set of columns no more than everybody."""
    at = dict(zip(found.parts, found.counts, strict=True))
    if int(found.counts[0].sum()) != told["n"]:
        yield f"n is {told['n']} where its sums have {int(found.counts[0].sum())} rows"
    totals: dict[tuple[int, ...], np.ndarray] = {}
    for part, counts in at.items():
        axes = tuple(a for a, _ in part)
        totals[axes] = totals.get(axes, 0) + counts
        for less in (part[:k] + part[k + 1 :] for k in range(len(part))):
            if less in at and (counts > at[less]).any():
                yield f"part {found.names[found.parts.index(part)]!r} has more rows than what it is a part of"
    if any((total > at[()]).any() for total in totals.values()):
        yield "parts that exclude each other have more rows than everybody"


def _pairs_hold(pairs: np.ndarray, found: Found, sizes: Sequence[int]) -> bool:
    """Whether the rows of all pairs of values, (I, I), fit each other and the parts: every row has one value of
    every column."""
    starts = starts_of(sizes)
    if pairs.shape != (starts[-1], starts[-1]) or (pairs != pairs.T).any():
        return False
    single = np.diag(pairs)
    for a, b in pairwise(starts):
        own = pairs[a:b, a:b]
        if (pairs[:, a:b].sum(axis=1) != single).any() or (own != np.diag(single[a:b])).any():
            return False
    shallow = [part for part in found.parts if 0 < len(part) <= 2]
    counts = [found.counts[found.parts.index(part)].sum() for part in shallow]
    return not shallow or bool((sums_at(pairs, sizes, shallow) == counts).all())


def mixtures_of(
    found: Found,
    notion: str,
    level: float,
    precision: float,
    share: float,
    floor: float,
    duals: Sequence[Any] | None = None,
) -> reweighed.Proved:
    """The bound over mixtures of the estimable parts: looked for, or shown by duals."""
    delta = share * (1 - level)
    able = found.levels(notion, precision, delta)[1]
    if not able.any():
        return reweighed.Proved(1.0, ())
    there = confidence.reached(found.sample(notion, precision), delta)
    left = 1 - confidence.COUNTS - reweighed.SUPPORT * confidence.ONE
    return reweighed.mixtures(found.counts[there], left * delta, notion, floor, duals=duals)


def _kernels(told: Mapping[str, Any]) -> float:
    psi = np.array(told["kernels"]["psi"], float)
    bound = told["bound"]
    delta = told["share"] * (1 - told["confidence"])
    asked = (float(told["n"]), delta, told["notion"], bound, told["floor"])
    return reweighed.reweighings(psi[..., :-1], *asked, duals=told["kernels"].get("duals")).value


def _same(said: Any, true: Any) -> bool:
    """Whether what JSON says is what was computed, numbers to rounding and None for what is not finite."""
    if isinstance(true, Mapping):
        return (
            isinstance(said, Mapping)
            and {*said} == {*true}
            and all(_same(said[k], true[k]) for k in true)
        )
    if isinstance(true, tuple | list):
        return isinstance(said, list) and len(said) == len(true) and all(map(_same, said, true))
    if isinstance(true, bool | str | int):
        return type(said) is type(true) and said == true
    if not np.isfinite(true):
        return said is None
    return isinstance(said, int | float) and abs(said - true) <= CLOSE


def read(path: Path) -> Any:
    """A certificate's file as JSON, or the sentence that says why it is none."""
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise DataError(
            f"{str(path)!r} is not JSON: give the certificate.json that 'audit' wrote"
        ) from None


def new_key(path: Path) -> str:
    """Write a fresh secret key, readable by its owner alone; its public half, in hexadecimal."""
    secret = os.urandom(32)
    try:
        with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(secret.hex() + "\n")
    except OSError as error:
        raise SettingsError(
            f"cannot write a key to {str(path)!r}: {error.strerror}; name another file"
        ) from None
    return _private(secret).public_key().public_bytes_raw().hex()


def read_key(path: Path) -> bytes:
    """A secret key from its file."""
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError, UnicodeDecodeError):
        secret = b""
    if len(secret) != 32:
        raise SettingsError(
            f"{str(path)!r} holds no secret key of 64 hexadecimal digits: make one by 'agnosticfair verify --new-key "
            f"{shown([path.name])}'"
        )
    return secret


def _private(secret: bytes) -> Any:
    with needing("secure", SIGNING):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    return Ed25519PrivateKey.from_private_bytes(secret)


def _signed(signature: Mapping[str, Any], content: bytes) -> bool:
    with needing("secure", SIGNING):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(signature["public_key"]))
        key.verify(bytes.fromhex(signature["value"]), PURPOSE + content)
    except (InvalidSignature, ValueError, TypeError, KeyError):
        return False
    return {*signature} == {"public_key", "value"}
