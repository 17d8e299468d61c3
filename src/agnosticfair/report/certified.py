"""What a page says of a certificate: its bounds, where they are reached, and the set they hold over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from agnosticfair.auditing.certificate import about
from agnosticfair.mathematics import notions
from agnosticfair.mathematics.basis import Basis

MOST_PARTS, MOST_FEW = 20, 6
"""Named parts that a page draws: estimable ones, and others."""

Json = dict[str, Any]


def reached(certificate: Mapping[str, Any]) -> Json:
    """The bounds of a certificate, and where they are reached."""
    if "worst_difference" not in certificate:
        return {"certified": None}
    intervals = certificate.get("intervals") or {}
    parts = parts_of(certificate)
    beyond = parts is not None and parts["certified"]
    kernels = certificate["basis"]["kind"] != "constant"
    bound = certificate["upper"] if beyond else certificate["worst_difference"] if kernels else None
    return {
        "certified": bound,
        "parts": parts,
        "says": certificate.get("says"),
        "certified_interval": None if beyond else intervals.get("worst_difference"),
        "certified_accuracy": certificate.get("worst_accuracy"),
        "interval": intervals.get("difference"),
        "confidence": certificate.get("confidence"),
        "worst_alpha": certificate["alpha_difference"],
        "worst_profile": certificate["profile"],
        "worst_groups": certificate["groups"],
    }


def parts_of(certificate: Mapping[str, Any]) -> Json | None:
    """The named parts of a certificate: the worst that are certified (or only measured, on the rows of a fit), those
    with too few rows, and how many there are of each."""
    parts = certificate.get("parts") or ()
    if not parts:
        return None
    keys = ("name", "rows", "difference", "low", "high", "ratio", "ratio_low", "pair")

    def told(some: Sequence[Mapping[str, Any]]) -> list[Json]:
        return [{key: part[key] for key in keys} for part in some]

    able = [part for part in parts if part["estimable"]]
    few = [part for part in parts if not part["estimable"] and part["difference"] is not None]
    held_out = certificate.get("upper") is not None
    certified, by = held_out and bool(able), "high" if held_out else "difference"
    able.sort(key=lambda part: -part[by])
    few.sort(key=lambda part: -part["difference"])
    return {
        "certified": certified,
        "why": f"Measured on {'too few rows' if held_out else 'the rows of the fit'}, and not certified.",
        "estimable": told(able[:MOST_PARTS]),
        "few": told(few[:MOST_FEW]),
        "counts": [len(able), len(parts) - len(able)],
        "upper": certificate.get("upper") if certified else None,
        "mixtures": certificate.get("mixtures"),
        "confidence": certificate.get("confidence"),
        "precision": certificate.get("precision"),
        "ratio": _ratio(able),
        "overall": told(parts[:1])[0],
    }


def _ratio(able: Sequence[Mapping[str, Any]]) -> Json | None:
    """The smallest impact ratio of an estimable part, measured, and the least that any may have."""
    there = [part for part in able if part["ratio"] is not None]
    if not there:
        return None
    worst = min(there, key=lambda part: part["ratio"])
    low = [part["ratio_low"] for part in able]
    least = None if None in low else min(low)
    return {"measured": worst["ratio"], "low": least, "name": worst["name"]}


def certified(certificate: Mapping[str, Any], rows: str) -> Json:
    """The set of a certificate in words, and what it compares."""
    if "worst_difference" not in certificate:
        return {"set": None, "no_set": certificate.get("says") or "There is no certificate."}
    notion = asdict(notions.notion_of(certificate["notion"]))
    if certificate["basis"]["kind"] == "constant":
        parts = parts_of(certificate)
        if parts is None or not parts["certified"]:
            why = parts["why"] if parts else "No part was looked at."
            return {"set": None, "no_set": f"Nothing is certified here. {why}", "notion": notion}
        mixed = " and every mixture of them" if certificate.get("mixtures") is not None else ""
        level = f"{100 * certificate['confidence']:g}% confidence, all at once"
        words = f"each of {parts['counts'][0]:,} named parts of the population{mixed}, with {level}"
        return {"set": words, "notion": notion}
    basis, bound = Basis(**certificate["basis"]), certificate["bound"]
    words = set_in_words(
        basis, float("inf") if bound is None else bound, certificate["floor"], rows
    )
    return {"set": words, "notion": notion}


def set_in_words(basis: Basis, bound: float, floor: float, rows: str) -> str:
    return (
        f"every reweighing of the {rows} by {about(basis, bound)}, in which the compared groups "
        f"each keep {100 * floor:g}% of the mass"
    )
