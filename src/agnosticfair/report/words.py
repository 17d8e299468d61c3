"""The decision at a glance, in sentences that need no statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agnosticfair.auditing.certificate import upper

Json = Mapping[str, Any]


def points(value: float) -> str:
    """
    >>> points(0.0217)
    '2.2 percentage points'
    """
    return f"{100 * value:.1f} percentage points"


def headline(study: Json) -> str:
    """The method that the page speaks of first: of the smallest certified difference, or measured one."""
    for key in ("certified", "worst", "difference"):
        there = [m for m in study["methods"] if (m.get(key) or {}).get("mean") is not None]
        if there:
            return min(there, key=lambda m: m[key]["mean"])["name"]
    return study["methods"][0]["name"]


def sentences(study: Json) -> list[str]:
    """What was measured, what is certified over which set, and where that ends."""
    methods = {m["name"]: m for m in study["methods"]}
    first = methods[headline(study)]
    told = [_measured(study, first), _certified(study, first)]
    if len(methods) > 1:
        told.append(_compared(study, methods))
    return [text for text in (*told, _corner(study, first["name"])) if text]


def _measured(study: Json, method: Json) -> str:
    right, gap = ((method.get(k) or {}).get("mean") for k in ("accuracy", "difference"))
    if right is None or "rows" not in study:
        return ""
    text = f"On {study['rows']:,} {study['rows_are']} {method['name']} decides {100 * right:.1f} of 100 rightly"
    if gap is None:
        return f"{text}."
    if study["notion"] != "demographic_parity":
        return f"{text}; {study['quantity']}: {points(gap)}{_over(method)}."
    groups = _rates(study, method["name"])
    told = f" It decides positively for {groups}." if groups else ""
    return f"{text}.{told} Between the groups that is a difference of {points(gap)}{_over(method)}."


def _rates(study: Json, name: str) -> str:
    """The positive rates of the groups, if all rows were of one seed."""
    there = [c for c in study["clients"] if c["method"] == name and c["client"] == "all rows"]
    several = any(m["seeds"] > 1 for m in study["methods"])
    if not there or several:
        return ""
    rates = [(g, v["rate"]) for g, v in there[0]["groups"].items() if v["rate"] is not None]
    return " and ".join(f"{100 * rate:.1f}% of {group}" for group, rate in rates)


def _over(method: Json) -> str:
    return f", on average over {method['seeds']} runs" if method["seeds"] > 1 else ""


def _certified(study: Json, method: Json) -> str:
    found = (method.get("certified") or {}).get("mean")
    if study["kind"] == "running":
        return ""
    if found is None:
        return "Nothing is certified here: these numbers hold for these rows only."
    most = f"{upper(100 * found, 1)} percentage points"
    return (
        f"Certified: however the rows are reweighed within the set named below, the "
        f"{study['quantity']} stays at or below {most}{_over(method)}. "
        "About any other deployment the certificate says nothing."
    )


def _compared(study: Json, methods: Mapping[str, Json]) -> str:
    there = {k: m for k, m in methods.items() if (m["accuracy"] or {}).get("mean") is not None}
    if not there:
        return ""
    best = max(there.values(), key=lambda m: m["accuracy"]["mean"])
    right, gap = best["accuracy"]["mean"], best["difference"]["mean"]
    bound = (best.get("certified") or {}).get("mean")
    text = (
        f"Of {len(methods)} methods {best['name']} is the most accurate: {100 * right:.1f} of 100"
    )
    if gap is not None:
        text += f", {study['quantity']} {points(gap)}"
    return f"{text}{'' if bound is None else f', certified within {upper(100 * bound, 1)}'}."


def _corner(study: Json, name: str) -> str:
    found = (study.get("explorer") or {}).get("corners", {}).get(name)
    if not found:
        return ""
    columns = zip(study["explorer"]["columns"], found["only"], strict=True)
    parts = [f"{c['name']} {c['values'][k]}" for c, k in columns if k is not None]
    where = f"with {' and '.join(parts)}" if parts else "taken together"
    several = any(m["seeds"] > 1 for m in study["methods"])
    rows = f"{found['rows']:,} test rows{' of the first run' if several else ''}"
    return (
        f"A part of the rows can differ from the whole: among the {rows} {where}, {name} "
        f"has a {study['quantity']} of {points(found['difference'])}, the most of {found['tried']} parts "
        f"with at least {study['explorer']['least_rows']} rows."
    )
