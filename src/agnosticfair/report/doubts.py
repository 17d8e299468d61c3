"""Where the claims of a page are weak, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate
from agnosticfair.data.decided import Decided
from agnosticfair.report.runs import Run, sensitive_feature_of

FEW_ROWS = 100
"""A group or a site of fewer test rows is warned of."""


def of_methods(methods: Sequence[Mapping[str, Any]]) -> list[str]:
    told = []
    for method in methods:
        outcome = str(method.get("outcome") or "")
        done, _, all_of = outcome.removeprefix("converged ").partition("/")
        if outcome.startswith("converged ") and all_of and done != all_of.partition(";")[0]:
            told.append(f"{method['name']} did not converge in every run ({outcome}).")
        elif "diverged" in outcome or "infeasible" in outcome or outcome.startswith("not "):
            told.append(f"{method['name']}: {outcome}.")
    if methods and max(m["seeds"] for m in methods) == 1:
        told.append("One run only: how much chance is in these numbers is not known.")
    return told


def of_rows(rows: Decided) -> list[str]:
    sizes = np.bincount(rows.s.codes, minlength=len(rows.s.categories))
    return [
        f"Group {name!r} has only {size} test rows: its rates are uncertain."
        for name, size in zip(rows.s.categories, sizes, strict=True)
        if size < FEW_ROWS
    ]


def of_fit(run: Run) -> list[str]:
    missing = [e for e in run.told["events"] if e["event"] in ("no answer", "restated")]
    said = (f"{k} {v}" for event in missing for k, v in event.items())
    told = [f"Replies were missing: {', '.join(said)}."] if missing else []
    others = run.certificate.get("others") or {}
    if others:
        told.append(f"The groups here are those of {sensitive_feature_of(run)!r}, the worst.")
    told += [f"By {name!r} it is: {says}" for name, says in others.items()]
    return told + of_certificate(run.certificate)


def of_certificate(certificate: Mapping[str, Any]) -> list[str]:
    if "parts" not in certificate:
        return [certificate.get("says") or "There is no certificate."]
    made = Certificate.from_json(certificate)
    few = [
        f"Group {rate.group!r} has only {rate.rows} rows in the certificate: its rates are uncertain."
        for rate in made.parts[0].rates
        if rate.rows < FEW_ROWS
    ]
    return [*made.warnings, *few]
