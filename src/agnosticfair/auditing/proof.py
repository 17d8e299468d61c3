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
from dataclasses import fields, replace
from itertools import combinations, pairwise
from math import comb, inf, prod
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import FORMAT, Certificate, limit_sentence
from agnosticfair.auditing.certify import ABOVE_ONE, AuditRequest, from_sums
from agnosticfair.auditing.repeats import CLUSTERED, REPEATED, SHARED, UNTOLD, WEIGHTED
from agnosticfair.auditing.subgroups import CountedSubgroups, axes_of, thin_of
from agnosticfair.data.encoding import shown
from agnosticfair.errors import AgnosticFairError, DataError, SettingsError, needing
from agnosticfair.mathematics.basis import Basis, subgroups
from agnosticfair.mathematics.subgroups import check_depth, sizes_of, starts_of, subgroup_name
from agnosticfair.mathematics.subgroups import read as sums_at

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
        return json.loads(content.decode())
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

ABOUT = (
    "format",
    "issuer",
    "run",
    "request",
    "method",
    "sensitive_feature",
    "command",
    "versions",
    "data",
    "limit",
    "kept",
    "sentence",
    "others",
    *SEALS,
)
"""Fields beside those of the certificate itself."""

PROPERTIES = ("groups", "difference", "worst_difference")
"""What a certificate computes of its own fields, and its file has, too."""

SUMS = (
    "pairs",
    "subgroups",
    "counts",
    "axes",
    "depth",
    "min_share",
    "model",
    "rows",
    "duals",
    "psi",
    "kernel_duals",
)


def verify(claims: Any, public: str | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a certificate as JSON, a sentence each; none where it is consistent.

    public: the issuer's public key, 64 hexadecimal digits; a certificate not signed with it is refused.
    """
    if not isinstance(claims, Mapping) or claims.get("format") != FORMAT:
        return ("this is no certificate: give the certificate.json that 'audit' wrote",)
    try:
        return (*_seals(claims, public), *_fields_known(claims), *_recomputed(claims))
    except (
        *(KeyError, TypeError, ValueError, IndexError),
        *(OverflowError, AttributeError, RecursionError),
    ) as error:
        return (f"its sums cannot be read ({type(error).__name__}): it was changed or cut",)
    except AgnosticFairError as error:
        return (f"no audit gives such a certificate ({error})",)


def unchecked(claims: Mapping[str, Any]) -> tuple[str, ...]:
    """What a certificate says that its sums cannot show, in words."""
    sentences = ["which rows were audited"] if claims.get("data") else []
    sentences += ["its method, command and versions"] if claims.get("command") else []
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


def _fields_known(claims: Mapping[str, Any]) -> Iterator[str]:
    known = {*ABOUT, *PROPERTIES, *(one.name for one in fields(Certificate))}
    for name in sorted({*claims} - known):
        yield f"it has a field {name!r}, which no certificate has"
    for name in sorted({*(claims["sums"] or {})} - {*SUMS}):
        yield f"its sums have a field {name!r}, which no certificate has"


def _recomputed(claims: Mapping[str, Any]) -> Iterator[str]:
    """The sums against each other, and everything printed against what follows from them."""
    if claims["sums"] is None:
        yield "it carries no sums, so nothing in it can be checked: audit rows held out from the fit"
        return
    apart = {"duals": "mixtures", "psi": "kernels", "kernel_duals": "kernels"}
    if alone := [key for key in apart if key in claims["sums"] and claims[apart[key]] is None]:
        yield f"its sums have {alone[0]!r}, and it says nothing of {apart[alone[0]]}"
        return
    counted = _counted_of(claims["sums"], len(claims["groups"]))
    yield from _sums_hold(claims, counted)
    true = _rebuilt(claims, counted)
    yield from _printed(claims, true)
    yield from _notes_hold(claims, true)
    yield from _limit_holds(claims, true)
    if isinstance(claims.get("request"), Mapping):
        yield from _request_holds(claims, claims["request"])


def _request_holds(claims: Mapping[str, Any], requested: Mapping[str, Any]) -> Iterator[str]:
    """Whether it is the certificate of the audit that it says was asked for."""
    names = requested["sensitive_features"]
    compared = [" & ".join(names)] if requested["intersections"] else names
    printed = {k: claims[k] for k in ("precision", "metric", "floor")}
    printed |= {k: claims["sums"][k] for k in ("depth", "min_share")}
    printed["mixtures"] = claims["mixtures"] is not None
    wrong = [name for name, value in printed.items() if requested[name] != value]
    if not same(claims["confidence"], 1 - (1 - requested["confidence"]) / len(compared)):
        wrong.append("confidence")
    if (requested["kernels"] is None) != (claims["kernels"] is None):
        wrong.append("kernels")
    if requested["columns"] is not None and {*requested["columns"]} != {
        a for a, *_ in claims["sums"]["axes"]
    }:
        wrong.append("columns")
    clustered = any(re.fullmatch(CLUSTERED, note) for note in claims["notes"])
    if clustered != (requested["cluster"] is not None):
        wrong.append("cluster")
    if claims["sensitive_feature"] not in compared:
        wrong.append("sensitive_feature")
    rows = sum(entry["rows"] for entry in claims["data"].values())
    if requested["cluster"] is None and rows != claims["n"]:
        wrong.append("data")
    if wrong:
        yield f"{wrong[0]} is not what was asked for"


def _rebuilt(claims: Mapping[str, Any], counted: CountedSubgroups) -> Certificate:
    """The certificate that the sums give."""
    kernels = claims["kernels"]
    basis, bound = None, inf
    if kernels is not None:
        basis = Basis(**kernels["basis"])
        bound = inf if kernels["bound"] is None else kernels["bound"]
    request = AuditRequest(
        subgroups=subgroups(min_share=counted.min_share),
        confidence=claims["confidence"],
        precision=claims["precision"],
        mixtures=claims["mixtures"] is not None,
        metric=claims["metric"],
        floor=claims["floor"],
        basis=basis,
        bound=bound,
    )
    labelled = claims["accuracy"] is not None or bool(counted.counts[0][:, 1].any())
    return from_sums(request, counted, tuple(claims["groups"]), labelled, dict(claims["sums"]))


def _printed(claims: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Every number that is printed against the one that the sums give."""
    recomputed = true.to_json()
    if len(claims["subgroups"]) != len(true.subgroups):
        yield f"it has {len(claims['subgroups'])} subgroups where its sums give {len(true.subgroups)}"
    for claim, subgroup in zip(claims["subgroups"], recomputed["subgroups"], strict=False):
        wrong = [key for key in {*claim, *subgroup} if not same(claim.get(key), subgroup.get(key))]
        if wrong:
            yield f"subgroup {subgroup['name']!r} says another {min(wrong)} than its sums"
    for name in sorted({*recomputed} - {"format", "subgroups", "sums", "kernels", "notes"}):
        if not same(claims[name], recomputed[name]):
            yield f"{name} is {str(claims[name])[:60]} where its sums give {str(recomputed[name])[:60]}"
    if claims["kernels"] is not None and "psi" in claims["sums"]:
        yield from _over_kernels(claims, recomputed)


SEARCHED = ("alpha", "alpha_accuracy", "worst_difference", "worst_accuracy", "tolerance", "pair")


def _over_kernels(claims: Mapping[str, Any], recomputed: Mapping[str, Any]) -> Iterator[str]:
    """What holds over kernels; what was searched for, to its tolerance."""
    claim, true = claims["kernels"], recomputed["kernels"]
    wrong = [k for k in {*claim, *true} - {*SEARCHED} if not same(claim.get(k), true.get(k))]
    if wrong:
        yield f"of kernels it says another {min(wrong)} than its sums"
    slack = CLOSE + true["tolerance"] + max(float(claim["tolerance"]), 0.0)
    gap = abs(claim["worst_difference"] - true["worst_difference"])
    if (
        not gap <= slack
        or not claim["tolerance"] <= 1
        or not {*claim["pair"]} <= {*claims["groups"]}
    ):
        yield f"the worst case over kernels is not the one that its sums give, {true['worst_difference']:.6f}"
    minimum, wanted = claim["worst_accuracy"], true["worst_accuracy"]
    if (minimum is None) != (wanted is None) or (
        wanted is not None and abs(minimum - wanted) > 1e-6
    ):
        yield f"the accuracy over kernels is {minimum} where its sums give {wanted}"
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
    about_rows = (*map(re.escape, (WEIGHTED, UNTOLD, ABOVE_ONE)), SHARED, REPEATED, CLUSTERED)
    limit = claims.get("sentence") if claims.get("limit") is not None else None
    for note in notes:
        known = note in true.notes or note == limit
        if not known and not any(re.fullmatch(one, note) for one in about_rows):
            yield f"its sums give no note {str(note)[:60]!r}"
        for form in (CLUSTERED, REPEATED):
            counted = re.fullmatch(form, note)
            if counted and int(counted["n"].replace(",", "")) != claims["n"]:
                yield f"its note {note[:60]!r} is of other rows"


def _limit_holds(claims: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether what is said of a limit follows from the bound."""
    if claims.get("limit") is None:
        if claims.get("kept") is not None:
            yield "it keeps a limit and names none"
        shown = replace(true, notes=tuple(claims["notes"]))
        if (
            claims.get("sentence") is not None
            and claims["kernels"] is None
            and claims["sentence"] != str(shown)
        ):
            yield "what it says is not what its sums give"
        return
    if claims["kept"] and not true.upper <= claims["limit"]:
        yield f"it says that the limit {claims['limit']:g} is kept where its sums give {true.upper:.6f}"
    if claims["sentence"] != limit_sentence(claims["limit"], claims["kept"], true):
        yield "what it says of the limit is not what its sums give"


def _sums_hold(claims: Mapping[str, Any], counted: CountedSubgroups) -> Iterator[str]:
    """Whether the counts fit each other, and none that they show is left out."""
    sums = claims["sums"]
    if not 0 < counted.min_share <= LARGEST_MIN_SHARE:
        yield f"min_share is {counted.min_share:g}: it leaves out nearly every subgroup"
    if int(counted.counts[0].sum()) != claims["n"]:
        yield f"n is {claims['n']} where its sums have {int(counted.counts[0].sum())} rows"
    kinds = 1 + (claims["mixtures"] is not None) + (claims["kernels"] is not None)
    delta = (1 - claims["confidence"]) / kinds
    thin = thin_of(counted.min_share, counted.counts[0], counted.candidates, delta)
    pairs, sizes = np.array(sums["pairs"]), sizes_of(axes_of(sums))
    if not _pairs_hold(pairs, counted, sizes):
        yield "the rows of pairs of values do not add up to those of its subgroups"
        return
    yield from _complete(sums, counted, pairs, sizes, thin)
    yield from _nested(counted, sizes, sums["depth"], thin)


def _complete(
    sums: Mapping[str, Any],
    counted: CountedSubgroups,
    pairs: np.ndarray,
    sizes: Sequence[int],
    thin: int,
) -> Iterator[str]:
    """Every value, and every pair of values, that has rows enough must be there; and nothing that has not."""
    axes, there, starts = axes_of(sums), {*counted.subgroups}, starts_of(sizes)
    ones = [(a, v) for a, size in enumerate(sizes) for v in range(size)]
    large = [one for one in ones if pairs[starts[one[0]] + one[1], starts[one[0]] + one[1]] >= thin]
    must = [(one,) for one in large] if sums["depth"] >= 1 else []
    if sums["depth"] >= 2:
        for a, b in combinations(large, 2):
            if a[0] != b[0] and pairs[starts[a[0]] + a[1], starts[b[0]] + b[1]] >= thin:
                must.append((a, b))  # type: ignore[arg-type]
    gone = [subgroup for subgroup in must if subgroup not in there]
    if gone:
        yield f"subgroup {subgroup_name(axes, gone[0])!r} is left out, and its sums show it"
    few = [
        name
        for name, subgroup, rows in zip(
            counted.names, counted.subgroups, counted.total, strict=True
        )
        if subgroup and (rows < thin or len(subgroup) > sums["depth"])
    ]
    if few:
        yield f"subgroup {few[0]!r} has fewer rows, or more values, than the audit looked at"


def _nested(
    counted: CountedSubgroups, sizes: Sequence[int], depth: int, thin: int
) -> Iterator[str]:
    """The subgroups of a subgroup by one more column have its rows, but for values that have too few to be listed."""
    at = {frozenset(subgroup): k for k, subgroup in enumerate(counted.subgroups)}
    for subgroup, k in at.items():
        for a, size in enumerate(sizes):
            if len(subgroup) >= depth or any(a == used_axis for used_axis, _ in subgroup):
                continue
            inside = [at[key] for v in range(size) if (key := subgroup | {(a, v)}) in at]
            left = counted.counts[k] - counted.counts[inside].sum(axis=0)
            if (left < 0).any() or left.sum() > (size - len(inside)) * (thin - 1):
                yield f"the subgroups of {counted.names[k]!r} by another column have not its rows"
                return


def _counted_of(sums: Mapping[str, Any], groups: int) -> CountedSubgroups:
    counts = np.array(sums["counts"])
    check_depth(sums["depth"])
    axes = axes_of(sums)
    sizes, deep = sizes_of(axes), range(sums["depth"] + 1)
    if counts.dtype.kind != "i" or counts.min() < 0 or counts.shape[1:] != (groups, 2, 2):
        raise ValueError("counts")
    every = tuple(tuple((int(a), int(v)) for a, v in subgroup) for subgroup in sums["subgroups"])
    if every[0] != () or len({*every}) < len(every) or len(every) != len(counts):
        raise ValueError("subgroups")
    for subgroup in every:
        if any(not 0 <= v < sizes[a] for a, v in subgroup) or len({a for a, _ in subgroup}) < len(
            subgroup
        ):
            raise ValueError("subgroups")
    names = tuple(subgroup_name(axes, subgroup) for subgroup in every)
    candidates = sum(prod(some) for d in deep for some in combinations(sizes, d))
    sets = sum(comb(len(sizes), d) for d in deep)
    return CountedSubgroups(every, names, counts, candidates, sets, float(sums["min_share"]))


def _pairs_hold(pairs: np.ndarray, counted: CountedSubgroups, sizes: Sequence[int]) -> bool:
    """Whether the rows of all pairs of values, (I, I), fit each other and the subgroups: every row has one value of
    every column."""
    starts = starts_of(sizes)
    if pairs.shape != (starts[-1], starts[-1]) or (pairs != pairs.T).any():
        return not len(sizes)
    single = np.diag(pairs)
    for a, b in pairwise(starts):
        block = pairs[a:b, a:b]
        if (pairs[:, a:b].sum(axis=1) != single).any() or (block != np.diag(single[a:b])).any():
            return False
        if single[a:b].sum() != counted.counts[0].sum():
            return False
    shallow = [subgroup for subgroup in counted.subgroups if 0 < len(subgroup) <= 2]
    counts = [counted.counts[counted.subgroups.index(subgroup)].sum() for subgroup in shallow]
    return not shallow or bool((sums_at(pairs, sizes, shallow) == counts).all())


def same(claim: Any, true: Any) -> bool:
    """Whether what JSON says is what was computed, numbers to rounding and None for what is not finite."""
    if isinstance(true, Mapping):
        return (
            isinstance(claim, Mapping)
            and {*claim} == {*true}
            and all(same(claim[k], true[k]) for k in true)
        )
    if isinstance(true, tuple | list):
        return isinstance(claim, list) and len(claim) == len(true) and all(map(same, claim, true))
    if true is None:
        return claim is None
    if isinstance(true, str):
        return isinstance(claim, str) and claim == str(true)
    if isinstance(true, bool | int):
        return type(claim) is type(true) and claim == true
    if not np.isfinite(true):
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
