"""Check a certificate without rows or model: everything that it prints is computed anew from its own sums.

A certificate that passes is consistent: its numbers follow from its sums, and no subgroup that the sums show is left
out. Whether the sums are those of real rows only the issuer's signature, or the rows themselves, can tell.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import combinations, pairwise
from math import comb, inf, prod
from typing import Any

import numpy as np

from agnosticfair.auditing.bounds import ABOVE_ONE, from_sums
from agnosticfair.auditing.certificate import FORMAT, Certificate, limit_sentence
from agnosticfair.auditing.parts import Found, Subpopulations, thin_of
from agnosticfair.auditing.proof import PURPOSE, SEALS, SIGNING, axes_of, canonical
from agnosticfair.auditing.repeats import CLUSTERED, REPEATED, SHARED, UNTOLD, WEIGHTED
from agnosticfair.auditing.request import AuditRequest
from agnosticfair.errors import AgnosticFairError, needing
from agnosticfair.mathematics.basis import Basis
from agnosticfair.mathematics.parts import check_depth, part_name, sizes_of, starts_of
from agnosticfair.mathematics.parts import read as sums_at

CLOSE = 1e-9
"""Two computations of one number may differ by rounding."""

LARGEST_LEAST = 0.5
"""A certificate over subgroups that hold more than half of the rows leaves out nearly all of them."""

ABOUT = (
    "format",
    "issuer",
    "run",
    "asked",
    "method",
    "sensitive_feature",
    "command",
    "versions",
    "data",
    "limit",
    "kept",
    "says",
    "others",
    *SEALS,
)
"""Fields beside those of the certificate itself."""

PROPERTIES = ("groups", "difference", "worst_difference")
"""What a certificate computes of its own fields, and its file has, too."""

SUMS = (
    "pairs",
    "parts",
    "counts",
    "axes",
    "depth",
    "least",
    "model",
    "rows",
    "duals",
    "psi",
    "kernel_duals",
)


def verify(told: Any, public: str | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a certificate as JSON, a sentence each; none where it is consistent.

    public: the issuer's public key, 64 hexadecimal digits; a certificate not signed with it is refused.
    """
    if not isinstance(told, Mapping) or told.get("format") != FORMAT:
        return ("this is no certificate: give the certificate.json that 'audit' wrote",)
    try:
        return (*_seals(told, public), *_fields_known(told), *_recomputed(told))
    except (
        *(KeyError, TypeError, ValueError, IndexError),
        *(OverflowError, AttributeError, RecursionError),
    ) as error:
        return (f"its sums cannot be read ({type(error).__name__}): it was changed or cut",)
    except AgnosticFairError as error:
        return (f"no audit gives such a certificate ({error})",)


def unchecked(told: Mapping[str, Any]) -> tuple[str, ...]:
    """What a certificate says that its sums cannot show, in words."""
    found = ["which rows were audited"] if told.get("data") else []
    found += ["its method, command and versions"] if told.get("command") else []
    found += ["what it says of other sensitive features"] if told.get("others") else []
    if told["kernels"] is not None and "psi" not in told["sums"]:
        found.append("the worst case over kernels")
    return tuple(found)


def scope(told: Mapping[str, Any]) -> str:
    """What the certificate is about, in words: which subgroups, and how small they may be."""
    sums = told["sums"]
    names = ", ".join(name for name, _, _ in sums["axes"]) or "no column"
    deep = f"of up to {sums['depth']} value{'s' * (sums['depth'] != 1)} of {names}"
    what = [
        f"{len(told['parts']):,} parts ({deep}, with at least {100 * sums['least']:g}% of the rows)"
    ]
    what += ["all their mixtures"] * (told["mixtures"] is not None)
    if told["kernels"] is not None:
        what.append(f"every reweighting by {len(told['kernels']['alpha']):,} kernels")
    return " and ".join(what)


def _seals(told: Mapping[str, Any], public: str | None) -> Iterator[str]:
    content = canonical(told)
    if told.get("digest") != hashlib.sha256(content).hexdigest():
        yield "its digest is not that of its content: something was changed"
    signature = told.get("signature")
    if signature is None:
        if told.get("issuer") is not None:
            yield "it names its issuer and is not signed: the signature was taken off"
        if public is not None:
            yield "it is not signed, and a signature by that key was asked for"
        return
    if public is not None and signature["public_key"] != public.lower():
        yield f"it is signed with another key, {signature['public_key'][:16]}…"
    if signature["public_key"] != told.get("issuer"):
        yield "it is signed with another key than its issuer's"
    if not _signed(signature, content):
        yield "its signature is not over this content: something was changed"


def _fields_known(told: Mapping[str, Any]) -> Iterator[str]:
    known = {*ABOUT, *PROPERTIES, *(one.name for one in fields(Certificate))}
    for name in sorted({*told} - known):
        yield f"it has a field {name!r}, which no certificate has"
    for name in sorted({*(told["sums"] or {})} - {*SUMS}):
        yield f"its sums have a field {name!r}, which no certificate has"


def _recomputed(told: Mapping[str, Any]) -> Iterator[str]:
    """The sums against each other, and everything printed against what follows from them."""
    if told["sums"] is None:
        yield "it carries no sums, so nothing in it can be checked: audit rows held out from the fit"
        return
    apart = {"duals": "mixtures", "psi": "kernels", "kernel_duals": "kernels"}
    if alone := [key for key in apart if key in told["sums"] and told[apart[key]] is None]:
        yield f"its sums have {alone[0]!r}, and it says nothing of {apart[alone[0]]}"
        return
    found = _found(told["sums"], len(told["groups"]))
    yield from _sums_hold(told, found)
    true = _rebuilt(told, found)
    yield from _printed(told, true)
    yield from _notes_hold(told, true)
    yield from _limit_holds(told, true)
    if isinstance(told.get("asked"), Mapping):
        yield from _request_holds(told, told["asked"])


def _request_holds(told: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[str]:
    """Whether it is the certificate of the audit that it says was asked for."""
    names = asked["sensitive_features"]
    compared = [" & ".join(names)] if asked["intersections"] else names
    printed = {k: told[k] for k in ("precision", "notion", "floor")}
    printed |= {k: told["sums"][k] for k in ("depth", "least")}
    printed["mixtures"] = told["mixtures"] is not None
    wrong = [name for name, value in printed.items() if asked[name] != value]
    if not same(told["confidence"], 1 - (1 - asked["confidence"]) / len(compared)):
        wrong.append("confidence")
    if (asked["kernels"] is None) != (told["kernels"] is None):
        wrong.append("kernels")
    if asked["columns"] is not None and {*asked["columns"]} != {
        a for a, *_ in told["sums"]["axes"]
    }:
        wrong.append("columns")
    clustered = any(re.fullmatch(CLUSTERED, note) for note in told["notes"])
    if clustered != (asked["cluster"] is not None):
        wrong.append("cluster")
    if told["sensitive_feature"] not in compared:
        wrong.append("sensitive_feature")
    rows = sum(entry["rows"] for entry in told["data"].values())
    if asked["cluster"] is None and rows != told["n"]:
        wrong.append("data")
    if wrong:
        yield f"{wrong[0]} is not what was asked for"


def _rebuilt(told: Mapping[str, Any], found: Found) -> Certificate:
    """The certificate that the sums give."""
    kernels = told["kernels"]
    basis, bound = None, inf
    if kernels is not None:
        basis = Basis(**kernels["basis"])
        bound = inf if kernels["bound"] is None else kernels["bound"]
    request = AuditRequest(
        parts=Subpopulations(least=found.least),
        confidence=told["confidence"],
        precision=told["precision"],
        mixtures=told["mixtures"] is not None,
        notion=told["notion"],
        floor=told["floor"],
        basis=basis,
        bound=bound,
    )
    labelled = told["accuracy"] is not None or bool(found.counts[0][:, 1].any())
    return from_sums(request, found, tuple(told["groups"]), labelled, dict(told["sums"]))


def _printed(told: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Every number that is printed against the one that the sums give."""
    made = true.to_json()
    if len(told["parts"]) != len(true.parts):
        yield f"it has {len(told['parts'])} parts where its sums give {len(true.parts)}"
    for said, part in zip(told["parts"], made["parts"], strict=False):
        wrong = [key for key in {*said, *part} if not same(said.get(key), part.get(key))]
        if wrong:
            yield f"part {part['name']!r} says another {min(wrong)} than its sums"
    for name in sorted({*made} - {"format", "parts", "sums", "kernels", "notes"}):
        if not same(told[name], made[name]):
            yield f"{name} is {str(told[name])[:60]} where its sums give {str(made[name])[:60]}"
    if told["kernels"] is not None and "psi" in told["sums"]:
        yield from _over_kernels(told, made)


SEARCHED = ("alpha", "alpha_accuracy", "worst_difference", "worst_accuracy", "tolerance", "pair")


def _over_kernels(told: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[str]:
    """What holds over kernels; what was searched for, to its tolerance."""
    said, true = told["kernels"], made["kernels"]
    wrong = [k for k in {*said, *true} - {*SEARCHED} if not same(said.get(k), true.get(k))]
    if wrong:
        yield f"of kernels it says another {min(wrong)} than its sums"
    slack = CLOSE + true["tolerance"] + max(float(said["tolerance"]), 0.0)
    gap = abs(said["worst_difference"] - true["worst_difference"])
    if not gap <= slack or not said["tolerance"] <= 1 or not {*said["pair"]} <= {*told["groups"]}:
        yield f"the worst case over kernels is not the one that its sums give, {true['worst_difference']:.6f}"
    least, wanted = said["worst_accuracy"], true["worst_accuracy"]
    if (least is None) != (wanted is None) or (wanted is not None and abs(least - wanted) > 1e-6):
        yield f"the accuracy over kernels is {least} where its sums give {wanted}"
    psi, rows = np.array(told["sums"]["psi"], float), np.array(told["sums"]["counts"][0])
    if said["basis"]["kind"] != "by_client" and said["basis"]["kernels"] != psi.shape[-1] - 1:
        yield f"it names {said['basis']['kernels']} kernels, and its sums are of {psi.shape[-1] - 1}"
    if psi.shape[:-1] != rows.shape or (psi[..., -1] != rows).any():
        yield "the kernels' sums are of other rows than the parts'"
    elif not (psi >= 0).all() or (psi > rows[..., None] + CLOSE * told["n"]).any():
        yield "a kernel has less than nothing, or more than one, in a row"
    total, bound = psi.sum(axis=(0, 1, 2))[:-1], inf if said["bound"] is None else said["bound"]
    for name in ("alpha", "alpha_accuracy") if wanted is not None else ("alpha",):
        alpha = np.array(said[name], float)
        inside = ((alpha >= -1e-6) & (alpha <= bound + 1e-6)).all()
        if not inside or abs(alpha @ total / told["n"] - 1) > 1e-4:
            yield "its worst reweighting is not in the set"


def _notes_hold(told: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether the notes are those that the sums give, besides those about the rows themselves."""
    notes = [*told["notes"]]
    for note in true.notes:
        if note not in notes:
            yield f"it leaves out the note {note!r}"
    about_rows = (*map(re.escape, (WEIGHTED, UNTOLD, ABOVE_ONE)), SHARED, REPEATED, CLUSTERED)
    limit = told.get("says") if told.get("limit") is not None else None
    for note in notes:
        known = note in true.notes or note == limit
        if not known and not any(re.fullmatch(one, note) for one in about_rows):
            yield f"its sums give no note {str(note)[:60]!r}"
        for form in (CLUSTERED, REPEATED):
            counted = re.fullmatch(form, note)
            if counted and int(counted["n"].replace(",", "")) != told["n"]:
                yield f"its note {note[:60]!r} is of other rows"


def _limit_holds(told: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether what is said of a limit follows from the bound."""
    if told.get("limit") is None:
        if told.get("kept") is not None:
            yield "it keeps a limit and names none"
        shown = replace(true, notes=tuple(told["notes"]))
        if told.get("says") is not None and told["kernels"] is None and told["says"] != str(shown):
            yield "what it says is not what its sums give"
        return
    if told["kept"] and not true.upper <= told["limit"]:
        yield f"it says that the limit {told['limit']:g} is kept where its sums give {true.upper:.6f}"
    if told["says"] != limit_sentence(told["limit"], told["kept"], true):
        yield "what it says of the limit is not what its sums give"


def _sums_hold(told: Mapping[str, Any], found: Found) -> Iterator[str]:
    """Whether the counts fit each other, and none that they show is left out."""
    sums = told["sums"]
    if not 0 < found.least <= LARGEST_LEAST:
        yield f"least is {found.least:g}: it leaves out nearly every part"
    if int(found.counts[0].sum()) != told["n"]:
        yield f"n is {told['n']} where its sums have {int(found.counts[0].sum())} rows"
    kinds = 1 + (told["mixtures"] is not None) + (told["kernels"] is not None)
    delta = (1 - told["confidence"]) / kinds
    thin = thin_of(found.least, found.counts[0], found.candidates, delta)
    pairs, sizes = np.array(sums["pairs"]), sizes_of(axes_of(sums))
    if not _pairs_hold(pairs, found, sizes):
        yield "the rows of pairs of values do not add up to those of its parts"
        return
    yield from _complete(sums, found, pairs, sizes, thin)
    yield from _nested(found, sizes, sums["depth"], thin)


def _complete(
    sums: Mapping[str, Any], found: Found, pairs: np.ndarray, sizes: Sequence[int], thin: int
) -> Iterator[str]:
    """Every value, and every pair of values, that has rows enough must be there; and nothing that has not."""
    axes, there, starts = axes_of(sums), {*found.parts}, starts_of(sizes)
    ones = [(a, v) for a, size in enumerate(sizes) for v in range(size)]
    kept = [one for one in ones if pairs[starts[one[0]] + one[1], starts[one[0]] + one[1]] >= thin]
    must = [(one,) for one in kept] if sums["depth"] >= 1 else []
    if sums["depth"] >= 2:
        for a, b in combinations(kept, 2):
            if a[0] != b[0] and pairs[starts[a[0]] + a[1], starts[b[0]] + b[1]] >= thin:
                must.append((a, b))  # type: ignore[arg-type]
    gone = [part for part in must if part not in there]
    if gone:
        yield f"part {part_name(axes, gone[0])!r} is left out, and its sums show it"
    few = [
        name
        for name, part, rows in zip(found.names, found.parts, found.total, strict=True)
        if part and (rows < thin or len(part) > sums["depth"])
    ]
    if few:
        yield f"part {few[0]!r} has fewer rows, or more values, than the audit looked at"


def _nested(found: Found, sizes: Sequence[int], depth: int, thin: int) -> Iterator[str]:
    """The parts of a part by one more column have its rows, but for values that have too few to be listed."""
    at = {frozenset(part): k for k, part in enumerate(found.parts)}
    for part, k in at.items():
        for a, size in enumerate(sizes):
            if len(part) >= depth or any(a == own for own, _ in part):
                continue
            inside = [at[key] for v in range(size) if (key := part | {(a, v)}) in at]
            left = found.counts[k] - found.counts[inside].sum(axis=0)
            if (left < 0).any() or left.sum() > (size - len(inside)) * (thin - 1):
                yield f"the parts of {found.names[k]!r} by another column have not its rows"
                return


def _found(sums: Mapping[str, Any], groups: int) -> Found:
    counts = np.array(sums["counts"])
    check_depth(sums["depth"])
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


def _pairs_hold(pairs: np.ndarray, found: Found, sizes: Sequence[int]) -> bool:
    """Whether the rows of all pairs of values, (I, I), fit each other and the parts: every row has one value of
    every column."""
    starts = starts_of(sizes)
    if pairs.shape != (starts[-1], starts[-1]) or (pairs != pairs.T).any():
        return not len(sizes)
    single = np.diag(pairs)
    for a, b in pairwise(starts):
        own = pairs[a:b, a:b]
        if (pairs[:, a:b].sum(axis=1) != single).any() or (own != np.diag(single[a:b])).any():
            return False
        if single[a:b].sum() != found.counts[0].sum():
            return False
    shallow = [part for part in found.parts if 0 < len(part) <= 2]
    counts = [found.counts[found.parts.index(part)].sum() for part in shallow]
    return not shallow or bool((sums_at(pairs, sizes, shallow) == counts).all())


def same(said: Any, true: Any) -> bool:
    """Whether what JSON says is what was computed, numbers to rounding and None for what is not finite."""
    if isinstance(true, Mapping):
        return (
            isinstance(said, Mapping)
            and {*said} == {*true}
            and all(same(said[k], true[k]) for k in true)
        )
    if isinstance(true, tuple | list):
        return isinstance(said, list) and len(said) == len(true) and all(map(same, said, true))
    if true is None:
        return said is None
    if isinstance(true, str):
        return isinstance(said, str) and said == str(true)
    if isinstance(true, bool | int):
        return type(said) is type(true) and said == true
    if not np.isfinite(true):
        return said is None
    return type(said) in (int, float) and abs(said - true) <= CLOSE


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
