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
from collections.abc import Iterator, Mapping
from itertools import combinations_with_replacement, pairwise
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import FORMAT, Certificate, limit_sentence
from agnosticfair.auditing.certify import ABOVE_ONE, AuditRequest, from_sums
from agnosticfair.auditing.repeats import (
    CLUSTERED,
    FOREIGN,
    REPEATED,
    SHARED,
    UNTOLD,
    WEIGHTED,
    in_form,
)
from agnosticfair.auditing.subgroups import CountedSubgroups, thin_of
from agnosticfair.data.encoding import shown
from agnosticfair.errors import AgnosticFairError, DataError, SettingsError, needing
from agnosticfair.mathematics.basis import Basis, subgroups
from agnosticfair.mathematics.subgroups import (
    Subgroup,
    places,
    sizes_of,
    starts_of,
    subgroup_name,
)

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


CLOSE = 1e-9
"""Two computations of one number may differ by rounding."""

LARGEST_MIN_SHARE = 0.5
"""A certificate over subgroups that hold more than half of the rows leaves out nearly all of them."""

ABOUT = {
    *("issuer", "run", "request", "method", "sensitive_feature", "command", "versions", "data"),
    *("limit", "kept", "sentence", "others", *SEALS),
}
"""Fields beside those of the certificate itself."""

IDENTITY = ("model", "rows")
"""Digests among the sums, of what was audited."""

REQUEST = {
    *("target", "sensitive_features", "predictions", "numeric", "categorical", "drop", "positive"),
    *("threshold", "metric", "intersections", "columns", "depth", "min_share", "bins", "limit"),
    *(
        "confidence",
        "precision",
        "mixtures",
        "kernels",
        "bound",
        "sigma",
        "floor",
        "seed",
        "cluster",
    ),
}
"""What the certificate of the command carries of its request, so that whoever has the rows can make it again."""


def verify(claims: Any, public: str | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a certificate as JSON, a sentence each; none where it is consistent.

    public: the issuer's public key, 64 hexadecimal digits; a certificate not signed with it is refused.
    """
    if not isinstance(claims, Mapping) or claims.get("format") != FORMAT:
        return ("this is no certificate: give the certificate.json that 'audit' wrote",)
    try:
        return (*_seals(claims, public), *_recomputed(claims))
    except (
        *(KeyError, TypeError, ValueError, IndexError),
        *(ArithmeticError, AttributeError, RecursionError),
    ) as error:
        return (f"its sums cannot be read ({type(error).__name__}): it was changed or cut",)
    except AgnosticFairError as error:
        return (f"no audit gives such a certificate ({error})",)


def unchecked(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """What a certificate says that its sums cannot show, in words."""
    sentences = ["whether these were held out from the fit"]
    if any(claims.get(name) for name in ("method", "command", "versions", "run", "request")):
        sentences.append("its method, command, versions and request")
    if claims["sums"]["depth"] > 2:
        sentences.append("whether small subgroups of three values are left out")
    sentences += ["what it says of other sensitive features"] if claims.get("others") else []
    if claims["kernels"] is not None and "psi" not in claims["sums"]:
        sentences.append("the worst case over kernels")
    return tuple(sentences)


def scope(claims: Mapping[str, Any]) -> str:
    """What the certificate is about, in words: which subgroups, and how small they may be."""
    sums = claims["sums"]
    names = ", ".join(name for name, _, _ in sums["axes"]) or "no column"
    deep = f"of up to {sums['depth']} value{'s' * (sums['depth'] != 1)} of {names}"
    what = [
        f"{len(claims['subgroups']):,} subgroups ({deep}, with at least {100 * sums['min_share']:g}% of the rows)"
    ]
    what += ["all their mixtures"] * (claims["mixtures"] is not None)
    if claims["kernels"] is not None:
        what.append(f"every reweighting by {len(claims['kernels']['alpha']):,} kernels")
    return " and ".join(what)


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
    if claims["sums"] is None:
        yield "it carries no sums, so nothing in it can be checked: audit rows held out from the fit"
        return
    counted = CountedSubgroups.from_json(claims["sums"])
    yield from _written(claims["sums"], counted)
    request = _request(claims, counted)
    yield from _sums_hold(claims, counted)
    true = _rebuilt(claims, counted, request)
    expected = true.to_json()
    if claims["kernels"] is not None and "psi" in claims["sums"]:
        yield from _over_kernels(claims, expected["kernels"])
        expected["kernels"] |= {name: claims["kernels"][name] for name in SEARCHED}
    elif claims["kernels"] is not None:
        expected["kernels"] = claims["kernels"]  # on the rows alone: see ``unchecked``
    yield from _notes_hold(claims, true)
    expected["notes"] = claims["notes"]
    if claims.get("kept"):  # the limit is what is claimed: see ``_limit_holds``
        expected["upper"] = claims["limit"]
    for name in sorted({*claims["sums"]} ^ {*expected.pop("sums")}):
        yield f"its sums have, or lack, the field {name!r}"
    printed = {k: v for k, v in claims.items() if k not in ABOUT and k != "sums"}
    yield from differing(printed, expected)
    yield from _limit_holds(claims, true)
    if isinstance(claims.get("request"), Mapping):
        yield from _request_holds(claims, claims["request"], bool(counted.coarser))


def _request_holds(
    claims: Mapping[str, Any], requested: Mapping[str, Any], coarser: bool
) -> Iterator[str]:
    """Whether it is the certificate of the audit that it says was requested.  coarser: it has single values alone, for
    pairs would be too many."""
    if {*requested} != REQUEST or not requested["sensitive_features"]:
        yield "what it was asked for is no audit"
        return
    names = requested["sensitive_features"]
    compared = [" & ".join(names)] if requested["intersections"] else names
    printed = {k: claims[k] for k in ("precision", "metric", "floor")}
    printed["min_share"] = claims["sums"]["min_share"]
    printed["depth"] = requested["depth"] if coarser else claims["sums"]["depth"]
    printed["mixtures"] = claims["mixtures"] is not None
    wrong = [name for name, value in printed.items() if not _equal(requested[name], value)]
    kernels = claims["kernels"] or {"bound": requested["bound"], "basis": requested}
    wrong += ["sigma"] * (not _equal(requested["sigma"], kernels["basis"]["sigma"]))
    if requested["bound"] is not None and not _equal(requested["bound"], kernels["bound"]):
        wrong.append("bound")
    if any(len(edges) >= requested["bins"] for _, _, edges in claims["sums"]["axes"]):
        wrong.append("bins")
    if not _equal(claims["confidence"], 1 - (1 - requested["confidence"]) / len(compared)):
        wrong.append("confidence")
    if (requested["kernels"] is None) != (claims["kernels"] is None):
        wrong.append("kernels")
    if requested["columns"] is not None and {*requested["columns"]} != {
        a for a, *_ in claims["sums"]["axes"]
    }:
        wrong.append("columns")
    clustered = any(in_form(note, CLUSTERED) is not None for note in claims["notes"])
    if clustered != (requested["cluster"] is not None):
        wrong.append("cluster")
    if claims["sensitive_feature"] not in compared:
        wrong.append("sensitive_feature")
    (data,) = claims["data"].values()
    rows = data["rows"]
    if {*data} != {"rows"} or (requested["cluster"] is None and not _equal(rows, claims["n"])):
        wrong.append("data")
    if wrong:
        yield f"{wrong[0]} is not what was asked for"


def _written(sums: Mapping[str, Any], counted: CountedSubgroups) -> Iterator[str]:
    """Whether the sums are such as an audit writes: whole numbers as whole numbers, digests as digests."""
    for name, true in counted.to_json().items():
        if json.dumps(sums[name]) != json.dumps(true):
            yield f"its sums have {name!r} in another form than an audit writes"
    for name in IDENTITY:
        if name in sums and not re.fullmatch("[0-9a-f]{64}", sums[name]):
            yield f"its digest of the {name} is none"


def _request(claims: Mapping[str, Any], counted: CountedSubgroups) -> AuditRequest:
    """The request that such a certificate answers; an error where no audit takes it."""
    kernels, basis, bound = claims["kernels"], None, inf
    if kernels is not None:
        basis = Basis(**kernels["basis"])
        bound = inf if kernels["bound"] is None else kernels["bound"]
    return AuditRequest(
        subgroups=subgroups(min_share=counted.min_share),
        confidence=claims["confidence"],
        precision=claims["precision"],
        mixtures=claims["mixtures"] is not None,
        metric=claims["metric"],
        floor=claims["floor"],
        basis=basis,
        bound=bound,
    )


def _rebuilt(
    claims: Mapping[str, Any], counted: CountedSubgroups, request: AuditRequest
) -> Certificate:
    """The certificate that the sums give."""
    sums = claims["sums"]
    further = [*IDENTITY, *["duals"] * request.mixtures]
    further += ["psi", "kernel_duals"] * (request.basis is not None)
    labelled = claims["accuracy"] is not None or bool(counted.counts[0][:, 1].any())
    proofs = {name: sums[name] for name in further if name in sums}
    return from_sums(request, counted, tuple(claims["groups"]), labelled, proofs)


SEARCHED = ("alpha", "alpha_accuracy", "worst_difference", "worst_accuracy", "tolerance", "pair")
"""Of the worst case over kernels, what a search found: checked to its tolerance."""


def _over_kernels(claims: Mapping[str, Any], true: Mapping[str, Any]) -> Iterator[str]:
    """What was searched for over kernels, to its tolerance; and the kernels' sums against the counts."""
    claim = claims["kernels"]
    slack = CLOSE + true["tolerance"] + max(float(claim["tolerance"]), 0.0)
    near = abs(claim["worst_difference"] - true["worst_difference"]) <= slack
    if not near or not claim["tolerance"] <= 1 or not {*claim["pair"]} <= {*claims["groups"]}:
        yield f"the worst case over kernels is not the one that its sums give, {true['worst_difference']:.6f}"
    lowest, wanted = claim["worst_accuracy"], true["worst_accuracy"]
    if (lowest is None) != (wanted is None) or (wanted is not None and abs(lowest - wanted) > 1e-6):
        yield f"the accuracy over kernels is {lowest} where its sums give {wanted}"
    psi, rows = np.array(claims["sums"]["psi"], float), np.array(claims["sums"]["counts"][0])
    if claim["basis"]["kind"] != "by_client" and claim["basis"]["kernels"] != psi.shape[-1] - 1:
        yield f"it names {claim['basis']['kernels']} kernels, and its sums are of {psi.shape[-1] - 1}"
    if psi.shape[:-1] != rows.shape or (psi[..., -1] != rows).any():
        yield "the kernels' sums are of other rows than the subgroups'"
    elif not (psi >= 0).all() or (psi > rows[..., None] + CLOSE * claims["n"]).any():
        yield "a kernel has less than nothing, or more than one, in a row"
    total, bound = psi.sum(axis=(0, 1, 2))[:-1], inf if claim["bound"] is None else claim["bound"]
    for name in ("alpha", "alpha_accuracy") if wanted is not None else ("alpha",):
        alpha = np.array(claim[name], float)
        inside = ((alpha >= -1e-6) & (alpha <= bound + 1e-6)).all()
        if not inside or abs(alpha @ total / claims["n"] - 1) > 1e-4:
            yield "its worst reweighting is not in the set"


def _notes_hold(claims: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether the notes are those that the sums give, besides those about the rows themselves."""
    notes = [*claims["notes"]]
    for note in true.notes:
        if note not in notes:
            yield f"it leaves out the note {note!r}"
    if (FOREIGN in notes) == ("model" in claims["sums"]):
        yield "it says who made the decisions, and leaves out their model's digest or its own note"
    limit = claims.get("sentence") if claims.get("limit") is not None else None
    for note in notes:
        known = note in true.notes or note == limit
        if known or note in (WEIGHTED, UNTOLD, FOREIGN, ABOVE_ONE):
            continue
        rows = [in_form(note, form) for form in (SHARED, REPEATED, CLUSTERED)]
        if rows.count(None) == len(rows):
            yield f"its sums give no note {str(note)[:60]!r}"
        elif rows[0] is None and claims["n"] not in rows:
            yield f"its note {note[:60]!r} is of other rows"


def _limit_holds(claims: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether what is said of a limit follows from the bound."""
    if claims.get("limit") is None:
        if claims.get("kept") is not None:
            yield "it keeps a limit and names none"
        if "sentence" in claims and claims["sentence"] != str(Certificate.from_json(claims)):
            yield "what it says is not what its sums give"
        return
    if claims["kept"] and not true.upper <= claims["limit"]:
        yield f"it says that the limit {claims['limit']:g} is kept where its sums give {true.upper:.6f}"
    if claims["sentence"] != limit_sentence(claims["limit"], claims["kept"], true):
        yield "what it says of the limit is not what its sums give"


def _sums_hold(claims: Mapping[str, Any], counted: CountedSubgroups) -> Iterator[str]:
    """Whether the counts fit each other, and none that they show is left out."""
    if not 0 < counted.min_share <= LARGEST_MIN_SHARE:
        yield f"min_share is {counted.min_share:g}: it leaves out nearly every subgroup"
    kinds = 1 + (claims["mixtures"] is not None) + (claims["kernels"] is not None)
    delta = (1 - claims["confidence"]) / kinds
    thin = thin_of(counted.min_share, counted.counts[0], counted.candidates, delta)
    if counted.counts.shape[1] != len(claims["groups"]) or not _pairs_hold(counted):
        yield "the rows of pairs of values do not add up to those of its subgroups"
        return
    yield from _complete(counted, thin)
    yield from _nested(counted, thin)


def _complete(counted: CountedSubgroups, thin: int) -> Iterator[str]:
    """Every value, and every pair of values, that has rows enough must be there; and nothing that has not."""
    sizes, pairs = sizes_of(counted.axes), counted.pairs
    assert pairs is not None
    starts, there = starts_of(sizes), {*counted.subgroups}
    ones = [(a, v) for a, size in enumerate(sizes) for v in range(size)]
    both = (
        combinations_with_replacement(ones, 2)
        if counted.depth > 1
        else zip(ones, ones, strict=True)
    )
    for one, other in both:
        if (one[0] == other[0]) != (one == other):
            continue
        subgroup: Subgroup = (one,) if one == other else (one, other)
        i, j = starts[one[0]] + one[1], starts[other[0]] + other[1]
        rows = pairs[i] if pairs.ndim == 1 else pairs[i, j]
        if rows >= thin and subgroup not in there:
            name = subgroup_name(counted.axes, subgroup)
            yield f"subgroup {name!r} is left out, and its sums show it"
            return
    for k, subgroup in enumerate(counted.subgroups):
        if subgroup and (counted.total[k] < thin or len(subgroup) > counted.depth):
            name = counted.names[k]
            yield f"subgroup {name!r} has fewer rows, or more values, than the audit looked at"
            return


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
    pairs, sizes = counted.pairs, sizes_of(counted.axes)
    assert pairs is not None
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
    i, j = places(sizes, [counted.subgroups[k] for k in shallow])
    sums = pairs[i] if pairs.ndim == 1 else pairs[i, j]
    return bool((sums == counted.total[shallow]).all())


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
