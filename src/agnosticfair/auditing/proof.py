"""A certificate that travels: its seal, and its check without rows or model.

Everything that a certificate prints is computed anew from its own counts. One that passes is consistent: its numbers
follow from its sums, and no subgroup that the sums show is left out. Whether the sums are those of real rows only the
issuer's signature (Ed25519, extra 'secure') or the rows themselves can tell.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import FORMAT, Certificate, limit_sentence
from agnosticfair.auditing.certify import BOUND, TOLERANCE, AuditRequest, from_sums
from agnosticfair.auditing.repeats import (
    CLUSTERED,
    FOREIGN,
    REPEATED,
    SHARED,
    UNTOLD,
    WEIGHTED,
    in_form,
)
from agnosticfair.auditing.subgroups import CountedSubgroups, searched, thin_of
from agnosticfair.data.encoding import shown
from agnosticfair.errors import AgnosticFairError, DataError, SettingsError, existing, needing
from agnosticfair.mathematics.basis import Basis, subgroups
from agnosticfair.mathematics.subgroups import (
    Subgroup,
    places,
    sizes_of,
    starts_of,
    subgroup_name,
)
from agnosticfair.settings import CONFIDENCE, require

PURPOSE = b"agnosticfair-certificate-1"
SIGNING = "a signature needs the package 'cryptography'"
MAX_BYTES = 100_000_000
"""Of a certificate's file; more are not read."""

SEALS = ("digest", "signature")


def canonical(certificate: Mapping[str, Any]) -> bytes:
    """The bytes that are sealed: all but the seals, keys sorted."""
    bare = {key: value for key, value in certificate.items() if key not in SEALS}
    return json.dumps(bare, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sealed(certificate: Mapping[str, Any], secret: bytes | None = None) -> dict[str, Any]:
    """The certificate with its digest and, with the issuer's secret key, a signature."""
    bare = {key: value for key, value in certificate.items() if key not in (*SEALS, "issuer")}
    key = None if secret is None else _private(secret)
    if key is not None:
        bare["issuer"] = key.public_key().public_bytes_raw().hex()
    content = canonical(bare)
    seal = {**bare, "digest": hashlib.sha256(content).hexdigest()}
    if key is None:
        return seal
    value = key.sign(PURPOSE + content).hex()
    return {**seal, "signature": {"public_key": bare["issuer"], "value": value}}


def read(path: Path) -> Any:
    """A certificate's file as JSON, or the sentence that says why it is none."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DataError(
                f"{str(path)!r} has more than {MAX_BYTES:,} bytes, and no certificate has: give the certificate.json "
                "that 'audit' wrote"
            )
        return json.loads(content.decode(), object_pairs_hook=_each_once)
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except DataError:
        raise
    except (
        ValueError,
        RecursionError,
    ):  # no JSON, or nested too deeply, or a number of thousands of digits
        raise DataError(
            f"{str(path)!r} is not JSON: give the certificate.json that 'audit' wrote"
        ) from None


def _each_once(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; ValueError where a field is there twice, for other readers may take the other one."""
    if len({name for name, _ in fields}) < len(fields):
        raise ValueError("a field is there twice")
    return dict(fields)


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


CLOSE = 1e-9
"""Two computations of one number may differ by rounding."""

LARGEST_MIN_SHARE = 0.5
"""A certificate over subgroups that hold more than half of the rows leaves out nearly all of them."""

FREE = ("method", "sensitive_feature", "command", "versions", "run", "request", "data", "others")
"""What a file says besides the certificate, and no sums show."""

ABOUT = {"issuer", "limit", "kept", "sentence", *FREE, *SEALS}

IDENTITY = ("model", "rows")
"""Digests among the sums, of what was audited."""

REQUEST = {
    *("target", "sensitive_features", "intersections", "predictions", "positive", "threshold"),
    *("numeric", "categorical", "drop", "cluster", "seed"),
    *("columns", "depth", "min_share", "bins", "mixtures", "kernels", "sigma", "bound", "floor"),
    *("metric", "confidence", "precision", "limit"),
}
"""What the certificate of the command carries of its request, so that whoever has the rows can make it again."""


UNREADABLE = (
    *(KeyError, TypeError, ValueError, IndexError, MemoryError),
    *(ArithmeticError, AttributeError, RecursionError),
)


def verify(claims: Any, public: str | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a certificate as JSON, a sentence each; none where it is consistent.

    public: the issuer's public key, 64 hexadecimal digits; a certificate not signed with it is refused.
    """
    if not isinstance(claims, Mapping) or claims.get("format") != FORMAT:
        return ("this is no certificate: give the certificate.json that 'audit' wrote",)
    try:
        return (*_seals(claims, public), *_recomputed(claims))
    except AgnosticFairError as error:
        return (f"no audit gives such a certificate ({error})",)
    except UNREADABLE as error:
        return (f"its sums cannot be read ({type(error).__name__}): it was changed or cut",)


def unchecked(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """What a certificate says that its sums cannot show, in words."""
    sentences = ["whether these were held out from the fit and are different people"]
    sentences.append("what its columns, values and groups are called")
    if free := [name.replace("_", " ") for name in FREE if claims.get(name)]:
        sentences.append(f"its {', '.join(free)}")
    if claims["sums"]["depth"] > 2:
        sentences.append("whether small subgroups of three values are left out")
    if claims["kernels"] is not None:
        sentences.append("what its kernels are")
    if "rows" not in claims["sums"]:
        sentences.append("which rows these were, for it has no digest of them")
    return tuple(sentences)


def scope(claims: Mapping[str, Any]) -> str:
    """Which subgroups were looked at, in words."""
    sums = claims["sums"]
    names = ", ".join(name for name, _, _ in sums["axes"]) or "no column"
    deep = f"up to {sums['depth']} value{'s' * (sums['depth'] != 1)} of {names}"
    share = f"at least {100 * sums['min_share']:g}% of the rows"
    return f"{len(claims['subgroups']):,} subgroups of {deep}, with {share}"


def _seals(claims: Mapping[str, Any], public: str | None) -> Iterator[str]:
    content = canonical(claims)
    if claims.get("digest") != hashlib.sha256(content).hexdigest():
        yield "its digest is not that of its content: something was changed"
    signature = claims.get("signature")
    if signature is None:
        if claims.get("issuer") is not None:
            yield "it names its issuer and is not signed: the signature was taken off"
        if public is not None:
            yield "it is not signed, and a signature by that key was asked for"
        return
    if public is not None and signature["public_key"] != public.lower():
        yield f"it is signed with another key, {signature['public_key'][:16]}…"
    if signature["public_key"] != claims.get("issuer"):
        yield "it is signed with another key than its issuer's"
    if not _signed(signature, content):
        yield "its signature is not over this content: something was changed"


def _recomputed(claims: Mapping[str, Any]) -> Iterator[str]:
    """The sums against each other, and everything printed against what follows from them."""
    sums = claims["sums"]
    if sums is None:
        yield "it carries no sums, so nothing in it can be checked: audit rows held out from the fit"
        return
    counted = CountedSubgroups.from_json(sums)
    for name, true in counted.to_json().items():  # whole numbers as whole numbers
        if json.dumps(sums[name]) != json.dumps(true):
            yield f"its sums have {name!r} in another form than an audit writes"
    for name in IDENTITY:
        if name in sums and not re.fullmatch("[0-9a-f]{64}", sums[name]):
            yield f"its digest of the {name} is none"
    request = _request(claims, counted)
    if wrong := [*_sums_hold(claims, counted, request.delta)]:
        yield from wrong
        return
    further = (*IDENTITY, *["duals"] * request.mixtures)
    further += ("psi", "kernel_duals") * (request.basis is not None)
    labelled = claims["accuracy"] is not None or bool(counted.counts[0][:, 1].any())
    proofs = {name: sums[name] for name in further if name in sums}
    true = from_sums(request, counted, tuple(claims["groups"]), labelled, proofs)
    expected = true.to_json()
    if request.basis is not None:
        yield from _over_kernels(claims, expected["kernels"])
        expected["kernels"] |= {name: claims["kernels"][name] for name in SEARCHED}
    yield from _notes_hold(claims, true)
    expected["notes"] = claims["notes"]
    if claims.get("kept") is True:  # the limit is what is claimed: see ``_limit_holds``
        expected["upper"] = claims["limit"]
    for name in sorted({*sums} ^ {*expected.pop("sums")}):
        yield f"its sums have, or lack, the field {name!r}"
    printed = {k: v for k, v in claims.items() if k not in ABOUT and k != "sums"}
    yield from differing(printed, expected)
    yield from _limit_holds(claims, true)
    if "request" in claims:
        yield from _request_holds(claims, claims["request"], bool(counted.coarser))


def _request(claims: Mapping[str, Any], counted: CountedSubgroups) -> AuditRequest:
    """The request that such a certificate answers; an error where no audit takes it."""
    kernels, basis, bound = claims["kernels"], None, inf
    if kernels is not None:
        basis = Basis(**kernels["basis"])
        bound = inf if kernels["bound"] is None else kernels["bound"]
    return AuditRequest(
        subgroups=subgroups(depth=counted.depth, min_share=counted.min_share),
        confidence=claims["confidence"],
        precision=claims["precision"],
        mixtures=claims["mixtures"] is not None,
        metric=claims["metric"],
        floor=claims["floor"],
        basis=basis,
        bound=bound,
    )


def _request_holds(claims: Mapping[str, Any], requested: Any, coarser: bool) -> Iterator[str]:
    """Whether it is the certificate of the audit that it says was requested.  coarser: it has single values alone, for
    pairs would be too many."""
    if {*requested} != REQUEST or not requested["sensitive_features"]:
        yield "what it was asked for is no audit"
        return
    names, sums, kernels = requested["sensitive_features"], claims["sums"], claims["kernels"]
    compared = [" & ".join(names)] if requested["intersections"] else names
    answers = {k: claims[k] for k in ("precision", "metric", "floor")} | {
        "min_share": sums["min_share"],
        "depth": requested["depth"] if coarser else sums["depth"],
        "mixtures": claims["mixtures"] is not None,
        "confidence": 1 - len(compared) * (1 - claims["confidence"]),
    }
    if kernels is not None:
        answers["sigma"] = kernels["basis"]["sigma"]
    wrong = [name for name, value in answers.items() if not _equal(requested[name], value)]
    (data,) = claims["data"].values()
    clustered = any(in_form(note, CLUSTERED) is not None for note in claims["notes"])
    columns, bins, many = (requested[name] for name in ("columns", "bins", "kernels"))
    bound = BOUND if requested["bound"] is None else requested["bound"]
    holds = {
        "bins": all(len(edges) < bins for _, _, edges in sums["axes"]),
        "kernels": (many is None) == (kernels is None)
        and (many is None or kernels["basis"]["kernels"] <= many),
        "bound": kernels is None or _equal(bound, kernels["bound"]),
        "columns": columns is None or {*columns} == {name for name, *_ in sums["axes"]},
        "cluster": clustered == (requested["cluster"] is not None),
        "sensitive_feature": claims["sensitive_feature"] in compared,
        "data": {*data} == {"rows"}
        and (requested["cluster"] is not None or _equal(data["rows"], claims["n"])),
    }
    for name in (*wrong, *(name for name, there in holds.items() if not there)):
        yield f"{name} is not what was asked for"


SEARCHED = ("alpha", "alpha_accuracy", "worst_difference", "worst_accuracy", "tolerance", "pair")
"""Of the worst case over kernels, what a search found: checked to its tolerance."""


def _over_kernels(claims: Mapping[str, Any], true: Mapping[str, Any]) -> Iterator[str]:
    """What was searched for over kernels, to its tolerance; and the kernels' sums against the counts."""
    claim, basis = claims["kernels"], claims["kernels"]["basis"]
    slack = CLOSE + true["tolerance"] + float(claim["tolerance"])
    near = abs(claim["worst_difference"] - true["worst_difference"]) <= slack
    sure = 0 <= claim["tolerance"] <= max(TOLERANCE, true["tolerance"])
    if not near or not sure or not {*claim["pair"]} <= {*claims["groups"]}:
        yield f"the worst case over kernels is not the one that its sums give, {true['worst_difference']:.6f}"
    lowest, wanted = claim["worst_accuracy"], true["worst_accuracy"]
    if (lowest is None) != (wanted is None) or (wanted is not None and abs(lowest - wanted) > 1e-6):
        yield f"the accuracy over kernels is {lowest} where its sums give {wanted}"
    psi, rows = np.array(claims["sums"]["psi"], float), np.array(claims["sums"]["counts"][0])
    clients = basis["kind"] == "by_client"
    if basis["kind"] in ("constant", "subgroups"):
        yield f"no audit has kernels of the kind {basis['kind']!r}"
    if not clients and basis["kernels"] != psi.shape[-1] - 1:
        yield f"it names {basis['kernels']} kernels, and its sums are of {psi.shape[-1] - 1}"
    if psi.shape[:-1] != rows.shape or (psi[..., -1] != rows).any():
        yield "the kernels' sums are of other rows than the subgroups'"
    elif clients and (psi[..., :-1].sum(axis=-1) != rows).any():
        yield "the clients' rows do not add up to all"
    elif not (psi >= 0).all() or (
        true["upper"] is not None and (psi > rows[..., None] + CLOSE * claims["n"]).any()
    ):
        yield "a kernel has less than nothing, or more than one, in a row"
    total, bound = psi.sum(axis=(0, 1, 2))[:-1], inf if claim["bound"] is None else claim["bound"]
    for name in ("alpha", "alpha_accuracy") if wanted is not None else ("alpha",):
        alpha = np.array(claim[name], float)
        inside = ((alpha >= -1e-6) & (alpha <= bound + 1e-6)).all()
        if not inside or abs(alpha @ total / claims["n"] - 1) > 1e-4:
            yield "its worst reweighting is not in the set"


def _notes_hold(claims: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether the notes are those that the sums give, after those about the rows themselves, each once; and before
    all, where a limit is named, what is said of it."""
    notes, given = [*claims["notes"]], [*true.notes]
    for note in given:
        if note not in notes:
            yield f"it leaves out the note {note!r}"
    if claims.get("limit") is not None and notes.pop(0) != claims["sentence"]:
        yield "its notes do not begin with what it says of the limit"
    others = notes[: len(notes) - len(given)]
    if notes != [*others, *given] or len({*notes}) < len(notes):
        yield "its notes are not in the order, or as often, as an audit has them"
    if (FOREIGN in notes) == ("model" in claims["sums"]):
        yield "it says who made the decisions, and leaves out their model's digest or its own note"
    for note in others:
        rows = [in_form(note, form) for form in (SHARED, REPEATED, CLUSTERED)]
        if note in (WEIGHTED, UNTOLD, FOREIGN):
            continue
        if rows.count(None) == len(rows):
            yield f"its sums give no note {str(note)[:60]!r}"
        elif rows[0] is None and claims["n"] not in rows:
            yield f"its note {note[:60]!r} is of other rows"


def _limit_holds(claims: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether what is said of a limit follows from the bound."""
    limit, holds = claims.get("limit"), claims.get("kept")
    if limit is None:
        if holds is not None:
            yield "it keeps a limit and names none"
        if "sentence" in claims and claims["sentence"] != str(Certificate.from_json(claims)):
            yield "what it says is not what its sums give"
        return
    require(CONFIDENCE, limit=limit)
    if not isinstance(holds, bool):
        yield "whether its limit is kept is neither true nor false"
    if holds and not true.upper <= limit:
        yield f"it says that the limit {limit:g} is kept where its sums give {true.upper:.6f}"
    if claims["sentence"] != limit_sentence(limit, bool(holds), true):
        yield "what it says of the limit is not what its sums give"


def _sums_hold(claims: Mapping[str, Any], counted: CountedSubgroups, delta: float) -> Iterator[str]:
    """Whether the counts fit each other, and none that they show is left out: the audit's own search, asked of the
    file."""
    if not 0 < counted.min_share <= LARGEST_MIN_SHARE:
        yield f"min_share is {counted.min_share:g}: it leaves out nearly every subgroup"
    if counted.counts.shape[1] != len(claims["groups"]) or not _pairs_hold(counted):
        yield "the rows of pairs of values do not add up to those of its subgroups"
        return
    known = dict(zip(counted.subgroups, counted.counts, strict=True))
    shape = subgroups(depth=counted.depth, min_share=counted.min_share)
    again = searched(counted.axes, shape, lambda some: _rows_of(counted, known, some), delta)
    if again.subgroups != counted.subgroups:
        lost = [one for one in again.subgroups if one not in known]
        name = subgroup_name(counted.axes, lost[0]) if lost else ""
        yield (
            f"subgroup {name!r} is left out, and its sums show it"
            if lost
            else "it lists a subgroup that the audit does not look at, or lists them in another order"
        )
        return
    thin = thin_of(counted.min_share, counted.counts[0], counted.candidates, delta)
    yield from _nested(counted, thin)


def _rows_of(
    counted: CountedSubgroups, known: Mapping[Subgroup, np.ndarray], some: Sequence[Subgroup]
) -> np.ndarray:
    """The counts of subgroups, (M, G, 2, 2), as the file has them; of those that it does not list no more than the rows
    that pairs of values have, in one cell."""
    sums = np.zeros((len(some), *counted.counts.shape[1:]), np.int64)
    single = np.array([0 < len(one) <= 2 for one in some], bool)
    few = [one for one, there in zip(some, single, strict=True) if there]
    sums[single, 0, 0, 0] = _rows_of_pairs(counted, few)
    for m, one in enumerate(some):
        if one in known:
            sums[m] = known[one]
    return sums


def _rows_of_pairs(counted: CountedSubgroups, some: Sequence[Subgroup]) -> np.ndarray:
    assert counted.pairs is not None
    i, j = places(sizes_of(counted.axes), some)
    return np.asarray(counted.pairs[i] if counted.pairs.ndim == 1 else counted.pairs[i, j])


def _nested(counted: CountedSubgroups, thin: int) -> Iterator[str]:
    """The subgroups of a subgroup by one more column have its rows, but for values that have too few to be listed."""
    at = {frozenset(subgroup): k for k, subgroup in enumerate(counted.subgroups)}
    for subgroup, k in at.items():
        for a, size in enumerate(sizes_of(counted.axes)):
            if len(subgroup) >= counted.depth or any(a == used_axis for used_axis, _ in subgroup):
                continue
            inside = [at[key] for v in range(size) if (key := subgroup | {(a, v)}) in at]
            left = counted.counts[k] - counted.counts[inside].sum(axis=0)
            if (left < 0).any() or left.sum() > (size - len(inside)) * (thin - 1):
                yield f"the subgroups of {counted.names[k]!r} by another column have not its rows"
                return


def _pairs_hold(counted: CountedSubgroups) -> bool:
    """Whether the rows of all pairs of values, (I, I), fit each other and the subgroups: every row has one value of
    every column."""
    pairs, sizes = existing(counted.pairs), sizes_of(counted.axes)
    single = pairs if pairs.ndim == 1 else np.diag(pairs)
    if (pairs != pairs.T).any() or (pairs < 0).any():
        return False
    for a, b in pairwise(starts_of(sizes)):
        if single[a:b].sum() != counted.total[0]:
            return False
        if pairs.ndim > 1 and (
            (pairs[:, a:b].sum(axis=1) != single).any()
            or (pairs[a:b, a:b] != np.diag(single[a:b])).any()
        ):
            return False
    shallow = [k for k, subgroup in enumerate(counted.subgroups) if 0 < len(subgroup) <= 2]
    rows = _rows_of_pairs(counted, [counted.subgroups[k] for k in shallow])
    return bool((rows == counted.total[shallow]).all())


def differing(claim: Any, true: Any, where: str = "") -> Iterator[str]:
    """Where JSON says something else than what was computed, a sentence each: numbers to rounding, and None for what
    is not finite."""
    if isinstance(true, Mapping) and isinstance(claim, Mapping):
        where = f"{where} {true['name']!r}" if "name" in true else where
        for key in sorted({*claim} ^ {*true}):
            yield f"{where} has, or lacks, the field {key!r}".strip()
        for key in sorted({*claim} & {*true}):
            yield from differing(claim[key], true[key], f"{where} {key}".strip())
    elif isinstance(true, tuple | list) and isinstance(claim, list):
        if len(claim) != len(true):
            yield f"{where} are {len(claim)} where its sums give {len(true)}"
        for one, other in zip(claim, true, strict=False):
            yield from differing(one, other, where)
    elif not _equal(claim, true):
        yield f"{where} is {str(claim)[:60]} where its sums give {str(true)[:60]}"


def _equal(claim: Any, true: Any) -> bool:
    if isinstance(true, str):
        return isinstance(claim, str) and claim == str(true)
    if not isinstance(true, float):
        return type(claim) is type(true) and claim == true
    if not isfinite(true):
        return claim is None
    return type(claim) in (int, float) and abs(claim - true) <= CLOSE


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
