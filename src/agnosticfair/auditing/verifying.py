"""Check a certificate without rows or model: everything that it prints is computed anew from its own sums.

A certificate that passes is consistent: its numbers follow from its sums, and no subgroup that the sums show is left
out. Whether the sums are those of real rows only the issuer's signature, or the rows themselves, can tell.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from itertools import combinations, pairwise
from math import comb, inf, isfinite, prod
from typing import Any

import numpy as np

from agnosticfair.auditing.beyond import (
    CLUSTERED,
    REPEATED,
    SHARED,
    UNTOLD,
    WEIGHTED,
    over_parts,
)
from agnosticfair.auditing.certificate import Certificate, Group, limit_sentence, plain
from agnosticfair.auditing.inputs import KernelInputs
from agnosticfair.auditing.parts import Found, Subpopulations, thin_of
from agnosticfair.auditing.proof import (
    PURPOSE,
    SEALS,
    SIGNING,
    axes_of,
    canonical,
    mixtures_of,
)
from agnosticfair.auditing.question import AuditQuestion, Wanted
from agnosticfair.auditing.worst import group_of, measured
from agnosticfair.errors import AgnosticFairError, needing
from agnosticfair.mathematics import reweighed
from agnosticfair.mathematics.basis import Basis, constant
from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.parts import part_name, sizes_of, starts_of
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

SUMS = ("pairs", "parts", "counts", "axes", "depth", "least", "model", "rows", "duals")


def verify(told: Any, public: str | None = None) -> tuple[str, ...]:
    """Everything that is wrong with a certificate as JSON, a sentence each; none where it is consistent.

    public: the issuer's public key, 64 hexadecimal digits; a certificate not signed with it is refused.
    """
    if not isinstance(told, Mapping) or not str(told.get("format", "")).startswith(
        "agnosticfair-certificate"
    ):
        return ("this is no certificate: give the certificate.json that 'audit' wrote",)
    try:
        return (*_seals(told, public), *_fields_known(told), *_recomputed(told))
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, AttributeError) as error:
        return (f"its sums cannot be read ({type(error).__name__}): it was changed or cut",)
    except AgnosticFairError as error:
        return (f"no audit gives such a certificate ({error})",)


def unchecked(told: Mapping[str, Any]) -> tuple[str, ...]:
    """What a certificate says that its sums cannot show, in words."""
    words = {"intervals": "intervals by resampling", "profile": "the profile of features"}
    words |= {"worst_rows": "the rows that weigh most", "data": "which rows were audited"}
    return tuple(text for key, text in words.items() if told.get(key))


def scope(told: Mapping[str, Any]) -> str:
    """What the certificate is about, in words: which subgroups, and how small they may be."""
    what = []
    if told["sums"] is not None:
        sums = told["sums"]
        names = ", ".join(name for name, _, _ in sums["axes"]) or "no column"
        deep = f"of up to {sums['depth']} value{'s' * (sums['depth'] != 1)} of {names}"
        what.append(
            f"{len(told['parts']):,} parts ({deep}, with at least {100 * sums['least']:g}% of the rows)"
        )
    what += ["all their mixtures"] * (told["mixtures"] is not None)
    if told["kernels"] is not None:
        what.append(f"every reweighing by {len(told['alpha_difference']):,} kernels")
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
    known = {*ABOUT, *(one.name for one in fields(Certificate))}
    for name in sorted({*told} - known):
        yield f"it has a field {name!r}, which no certificate has"
    for name in sorted({*(told["sums"] or {})} - {*SUMS}):
        yield f"its sums have a field {name!r}, which no certificate has"


def _recomputed(told: Mapping[str, Any]) -> Iterator[str]:
    """The sums against each other, and everything printed against what follows from them."""
    sums, kernels = told["sums"], told["kernels"]
    if sums is None and kernels is None:
        yield "it carries no sums, so nothing in it can be checked: audit rows held out from the fit"
        return
    found = None if sums is None else _found(sums, len(told["groups"]))
    if kernels is not None:
        yield from _cells_hold(told)
    if found is not None:
        yield from _sums_hold(told, found)
    true = _rebuilt(told, found)
    yield from _printed(told, true)
    yield from _notes_hold(told, true)
    yield from _limit_holds(told, true)


def _rebuilt(told: Mapping[str, Any], found: Found | None) -> Certificate:
    """The certificate that the sums give."""
    kernels, groups = told["kernels"], tuple(told["groups"])
    wanted = Wanted(
        None if found is None else Subpopulations(least=found.least),
        told["precision"],
        told["mixtures"] is not None,
        kernels is not None,
    )
    if kernels is None:
        assert found is not None
        basis, bound = constant(), inf
        psi = np.repeat(found.counts[0][..., None], 2, axis=-1).astype(float)
    else:
        basis, bound = Basis(**told["basis"]), inf if told["bound"] is None else told["bound"]
        psi = np.array(kernels["psi"], float)
    asked = AuditQuestion(basis, bound, told["floor"], 1e-4, 0, told["confidence"], told["notion"])
    width = psi.shape[-1]
    of_cells = {"psi": psi[None], "psi_x": np.zeros((width, 0)), "x_squares": np.zeros(0)}
    nothing = KernelInputs((), np.zeros(0), np.zeros(0))
    labelled = told["accuracy"] is not None
    made = measured(asked, of_cells, groups, nothing, labelled, lambda: None)
    made = replace(made, precision=wanted.precision, share=wanted.share)
    if kernels is not None:
        made = replace(made, kernels={}, upper=_kernels(told, wanted.share))
    if found is None:
        return made
    mixed = None
    if wanted.mixtures:
        how = (made.notion, made.confidence, made.precision, made.share, made.floor)
        mixed = mixtures_of(found, *how, told["sums"].get("duals")).value
    return over_parts(made, found, mixed)


EXACT = ("difference", "accuracy", "n", "under_floor", "share", "mixtures", "upper")


ALIKE = (
    "groups",
    "pair",
    "worst_difference",
    "worst_accuracy",
    "tolerance",
    "outcome",
    "basis",
    "bound",
    "alpha_difference",
    "alpha_accuracy",
)


def _printed(told: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Every number that is printed against the one that the sums give."""
    made = plain(asdict(replace(true, kernels=None, sums=None)))
    for name in EXACT:
        if not same(told[name], made[name]):
            yield f"{name} is {told[name]} where its sums give {made[name]}"
    if len(told["parts"]) != len(true.parts):
        yield f"it has {len(told['parts'])} parts where its sums give {len(true.parts)}"
    for said, part in zip(told["parts"], true.parts, strict=False):
        shown = asdict(part)
        wrong = [key for key, value in shown.items() if not same(said.get(key), value)]
        wrong += sorted({*said} - {*shown})
        if wrong:
            yield f"part {part.name!r} says another {wrong[0]} than its sums"
    if told["kernels"] is not None:
        yield from _over_kernels(told, true)
        return
    for name in ALIKE:
        if not same(told[name], made[name]):
            yield f"{name} is another one than its sums give"


def _over_kernels(told: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """What a search found over kernels, to its tolerance, and what its worst reweighing shows."""
    kernels = told["kernels"]
    if not same(kernels["upper"], _kernels(told, true.share)):
        yield "the bound over kernels is not the one that its sums give"
    if kernels["about"] != true.about or kernels["alpha"] != told["alpha_difference"]:
        yield "the set of kernels is another one than its sums are of"
    if {*kernels} != {"upper", "psi", "alpha", "about", "duals"}:
        yield "the bound over kernels has a field that no certificate has"
    slack = CLOSE + true.tolerance + max(float(told["tolerance"]), 0.0)
    gap = told["worst_difference"] - true.worst_difference
    if not abs(gap) <= slack or not told["tolerance"] <= 1:
        yield f"worst_difference is {told['worst_difference']} where its sums give {true.worst_difference:.6f}"
    said, least = told["worst_accuracy"], true.worst_accuracy
    if (said is None) != (not isfinite(least)) or (said is not None and abs(said - least) > 1e-6):
        yield f"worst_accuracy is {said} where its sums give {least:.6f}"
    psi, alpha = np.array(kernels["psi"], float), np.array(told["alpha_difference"], float)
    total = psi.sum(axis=(0, 1, 2))[:-1]
    bound = inf if told["bound"] is None else told["bound"]
    if (
        not ((alpha >= -1e-6) & (alpha <= bound + 1e-6)).all()
        or abs(alpha @ total / told["n"] - 1) > 1e-4
    ):
        yield "its worst reweighing is not in the set"
    if not any(same(told["groups"], groups) for groups in _groups(told, psi, alpha)):
        yield "groups are other ones than its sums give"
    if not {*told["pair"]} <= {*told["groups"]}:
        yield "pair names a group that is not there"


def _groups(
    told: Mapping[str, Any], psi: np.ndarray, alpha: np.ndarray
) -> Iterator[dict[str, Group]]:
    """The groups on the rows and under the worst reweighing, for each set of labels that the notion looks at."""
    for labels in NOTIONS[told["notion"]].labels:
        yield {
            name: asdict(group_of(psi[g], labels, alpha, told["n"], told["notion"]))  # type: ignore[misc]
            for g, name in enumerate(told["groups"])
        }


def _notes_hold(told: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether the notes are those that the sums give, besides those about the rows themselves."""
    notes = [*told["notes"]]
    for note in true.notes:
        if note not in notes:
            yield f"it leaves out the note {note!r}"
    about_rows = (re.escape(WEIGHTED), re.escape(UNTOLD), SHARED, REPEATED, CLUSTERED)
    limit = told.get("says") if told.get("limit") is not None else None
    for note in notes:
        known = note in true.notes or note == limit
        if not known and not any(re.fullmatch(one, note) for one in about_rows):
            yield f"its sums give no note {str(note)[:60]!r}"
    if told["intervals"] and not all(
        low <= high for low, high in map(tuple, told["intervals"].values())
    ):
        yield "an interval ends before it begins"


def _limit_holds(told: Mapping[str, Any], true: Certificate) -> Iterator[str]:
    """Whether what is said of a limit follows from the bound."""
    if told.get("limit") is None:
        if told.get("kept") is not None:
            yield "it keeps a limit and names none"
        shown = replace(true, notes=tuple(told["notes"]), profile=())
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


def _kernels(told: Mapping[str, Any], share: float) -> float:
    psi = np.array(told["kernels"]["psi"], float)
    delta = share * (1 - told["confidence"])
    asked = (float(told["n"]), delta, told["notion"], told["bound"], told["floor"])
    return reweighed.reweighings(psi[..., :-1], *asked, duals=told["kernels"].get("duals")).value


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
