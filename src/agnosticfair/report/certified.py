"""What a page says of a certificate: its bounds, the subgroups they are of, and the set they hold over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from agnosticfair.auditing.certificate import Certificate, plain
from agnosticfair.auditing.parts import PartRecord
from agnosticfair.mathematics import notions

MOST_PARTS, MOST_FEW = 20, 6
"""Named parts that a page draws: estimable ones, and others."""

Json = dict[str, Any]


def reached(certificate: Mapping[str, Any]) -> Json:
    """The bound of a certificate as JSON, and the subgroups it is of; nothing is certified on the rows of a fit."""
    if "parts" not in certificate:
        return {"certified": None}
    made = Certificate.from_json(certificate)
    parts = parts_of(made)
    return {
        "certified": made.upper if parts["certified"] else None,
        "parts": parts,
        "says": certificate.get("says"),
        "confidence": made.confidence,
    }


def parts_of(made: Certificate) -> Json:
    """The worst subgroups that are certified (or only measured, on the rows of a fit), those with too few rows, and how
    many there are of each."""
    keys = ("name", "rows", "difference", "low", "high", "ratio", "ratio_low", "pair")

    def told(some: Sequence[PartRecord]) -> list[Json]:
        return [plain({key: getattr(part, key) for key in keys}) for part in some]

    able = made.worst_first
    few = [part for part in made.not_estimable if isfinite(part.difference)]
    certified = made.held_out and bool(able)
    rows = "too few rows" if made.held_out else "the rows of the fit"
    ratio = made.worst_ratio
    return plain(
        {
            "certified": certified,
            "why": f"Measured on {rows}, and not certified.",
            "estimable": told(able[:MOST_PARTS]),
            "few": told(few[:MOST_FEW]),
            "counts": [len(able), len(made.not_estimable)],
            "upper": made.upper if certified else None,
            "confidence": made.confidence,
            "precision": made.precision,
            "overall": told(made.parts[:1])[0],
            "ratio": ratio and dict(zip(("measured", "low", "name"), ratio, strict=True)),
        }
    )


def certified(certificate: Mapping[str, Any]) -> Json:
    """The set of a certificate in words, and what it compares."""
    if "parts" not in certificate:
        return {"set": None, "no_set": certificate.get("says") or "There is no certificate."}
    made = Certificate.from_json(certificate)
    notion, parts = asdict(notions.notion_of(made.notion)), parts_of(made)
    if not parts["certified"]:
        return {
            "set": None,
            "no_set": f"Nothing is certified here. {parts['why']}",
            "notion": notion,
        }
    mixed = " and every mixture of them" if made.mixtures is not None else ""
    mixed += f" and every reweighting by {made.kernels.about}" if made.kernels is not None else ""
    level = f"{100 * made.confidence:g}% confidence, all at once"
    words = f"each of {parts['counts'][0]:,} named parts of the population{mixed}, with {level}"
    return {"set": words, "notion": notion}
