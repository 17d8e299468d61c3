"""What a page says of a certificate: its bounds, the subgroups they are of, and the set they hold over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from agnosticfair.auditing.certificate import Certificate, plain
from agnosticfair.auditing.subgroups import SubgroupRecord
from agnosticfair.mathematics import metrics

MAX_SUBGROUPS, MAX_FEW = 20, 6
"""Subgroups that a page draws: estimable ones, and others."""

Json = dict[str, Any]


def reached(certificate: Mapping[str, Any]) -> Json:
    """The bound of a certificate as JSON, and the subgroups it is of; nothing is certified on the rows of a fit."""
    if "subgroups" not in certificate:
        return {"certified": None}
    parsed = Certificate.from_json(certificate)
    subgroups = subgroups_of(parsed)
    return {
        "certified": parsed.upper if subgroups["certified"] else None,
        "subgroups": subgroups,
        "sentence": certificate.get("sentence"),
        "confidence": parsed.confidence,
    }


def subgroups_of(certificate: Certificate) -> Json:
    """The worst subgroups that are certified (or only measured, on the rows of a fit), those with too few rows, and how
    many there are of each."""
    keys = ("name", "rows", "difference", "low", "high", "ratio", "ratio_low", "pair")

    def told(some: Sequence[SubgroupRecord]) -> list[Json]:
        return [plain({key: getattr(subgroup, key) for key in keys}) for subgroup in some]

    able = certificate.worst_first
    few = [subgroup for subgroup in certificate.not_estimable if isfinite(subgroup.difference)]
    certified = certificate.held_out and bool(able)
    rows = "too few rows" if certificate.held_out else "the rows of the fit"
    ratio = certificate.worst_ratio
    return plain(
        {
            "certified": certified,
            "why": f"Measured on {rows}, and not certified.",
            "estimable": told(certificate.listed(MAX_SUBGROUPS)),
            "few": told(few[:MAX_FEW]),
            "counts": [len(able), len(certificate.not_estimable)],
            "upper": certificate.upper if certified else None,
            "confidence": certificate.confidence,
            "precision": certificate.precision,
            "overall": told(certificate.subgroups[:1])[0],
            "ratio": ratio and dict(zip(("measured", "low", "name"), ratio, strict=True)),
        }
    )


def certified(certificate: Mapping[str, Any]) -> Json:
    """The set of a certificate in words, and what it compares."""
    if "subgroups" not in certificate:
        return {"set": None, "no_set": certificate.get("sentence") or "There is no certificate."}
    parsed = Certificate.from_json(certificate)
    metric, subgroups = asdict(metrics.metric_of(parsed.metric)), subgroups_of(parsed)
    if not subgroups["certified"]:
        return {
            "set": None,
            "no_set": f"Nothing is certified here. {subgroups['why']}",
            "metric": metric,
        }
    mixed = " and every mixture of them" if parsed.mixtures is not None else ""
    mixed += (
        f" and every reweighting by {parsed.kernels.about}" if parsed.kernels is not None else ""
    )
    level = f"{100 * parsed.confidence:g}% confidence, all at once"
    words = f"each of {subgroups['counts'][0]:,} subgroups{mixed}, with {level}"
    return {"set": words, "metric": metric}
