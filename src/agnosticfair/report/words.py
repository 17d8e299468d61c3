"""The decision at a glance, in sentences that need no statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agnosticfair.auditing.certificate import upper
from agnosticfair.mathematics.notions import PARITY

Json = Mapping[str, Any]


def headline(study: Json) -> str:
    """The method that the page speaks of first: of the smallest certified difference, or measured one."""
    for key in ("certified", "worst", "difference"):
        there = [m for m in study["methods"] if (m.get(key) or {}).get("mean") is not None]
        if there:
            return min(there, key=lambda m: m[key]["mean"])["name"]
    return study["methods"][0]["name"]


def verdict(study: Json) -> dict[str, str]:
    """Whether the method spoken of first keeps the limit: certified, broken on the rows, or not known."""
    method = next(m for m in study["methods"] if m["name"] == headline(study))
    limit, what = study.get("limit"), study["notion"]["quantity"]
    measured = (method.get("difference") or {}).get("mean")
    bound = (method.get("certified") or {}).get("mean")
    if limit is None or study["kind"] == "running" or measured is None:
        return {}
    over = f"measured {measured:.3f} on the {study['rows_are']}"
    if measured > limit:
        return {"state": "does not keep", "text": f"Does not keep {limit:g}: {what} {over}."}
    parts = (method.get("parts") or {}).get("estimable")
    if bound is None and parts and parts[0]["difference"] > limit:
        worst = f"{parts[0]['difference']:.3f} where {parts[0]['name']}"
        if method.get("rule"):  # estimates keep it, and counts differ by chance
            return {
                "state": "not known",
                "text": f"Not known whether it keeps {limit:g} in every subgroup elsewhere: by its estimates it does; "
                f"counted on the {study['rows_are']}, chance included, the {what} is up to {worst}; {over}. Audit rows "
                "held out.",
            }
        return {
            "state": "does not keep",
            "text": f"Does not keep {limit:g} in every named part: {what} {worst}, measured; {over}.",
        }
    if bound is not None and bound <= limit:
        return {
            "state": "keeps",
            "text": f"Keeps {limit:g}: {what} certified at most {upper(bound, 3)} over the set below, {over}.",
        }
    why = "nothing is certified" if bound is None else f"certified only up to {upper(bound, 3)}"
    return {
        "state": "not known",
        "text": f"Not known whether it keeps {limit:g} elsewhere: {over}, but {why}.",
    }


def direction(study: Json) -> str:
    """Who is favoured, and what the labels themselves say."""
    facts, told = study.get("facts") or {}, []
    name = headline(study)
    there = [c for c in study["clients"] if c["method"] == name and c["client"] == "all rows"]
    groups = there[0]["groups"] if there else {}
    rates = {g: v["rate"] for g, v in groups.items() if v["rate"] is not None}
    if len(rates) > 1:
        most, least = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
        told.append(
            f"Favoured: {most} ({rates[most]:.3f} decided positively) over {least} ({rates[least]:.3f})."
        )
    if facts.get("base_rate") is not None:
        told.append(f"Labelled positive: {facts['base_rate']:.3f} of the {study['rows_are']}.")
    if facts.get("label_difference") is not None:
        told.append(f"The labels' own difference: {facts['label_difference']:.3f}.")
    return " ".join(told)


def sentences(study: Json) -> list[str]:
    """What was measured, what is certified over which set, and where that ends."""
    methods = {m["name"]: m for m in study["methods"]}
    first = methods[headline(study)]
    told = [
        direction(study),
        _measured(study, first),
        _certified(study, first),
    ]
    if len(methods) > 1:
        told.append(_compared(study, methods))
    return [text for text in (*told, _corner(study, first["name"])) if text]


def _measured(study: Json, method: Json) -> str:
    right, gap = ((method.get(k) or {}).get("mean") for k in ("accuracy", "difference"))
    if right is None or "rows" not in study:
        return ""
    text = f"On {study['rows']:,} {study['rows_are']} {method['name']} is right for {right:.3f} of them"
    if gap is None:
        return f"{text}."
    if study["notion"]["name"] != PARITY.name:
        return f"{text}; {study['notion']['quantity']}: {gap:.3f}{_over(method)}."
    return f"{text}; between the groups' rates of positive decisions lies {gap:.3f}{_over(method)}."


def _over(method: Json) -> str:
    return f", on average over {method['seeds']} runs" if method["seeds"] > 1 else ""


def _certified(study: Json, method: Json) -> str:
    found = (method.get("certified") or {}).get("mean")
    if study["kind"] == "running":
        return ""
    if in_its_words(method):
        return str(method["says"])
    if found is None:
        return "Nothing is certified here: these numbers hold for these rows only."
    return (
        f"Certified: however the rows are reweighed within the set named below, the "
        f"{study['notion']['quantity']} stays at or below {upper(found, 3)}{_over(method)}. "
        "About any other deployment the certificate says nothing."
    )


def in_its_words(method: Json) -> bool:
    """Whether the certificate's own sentence is shown: that of one run."""
    return bool(method.get("says")) and method.get("seeds", 1) == 1


def _compared(study: Json, methods: Mapping[str, Json]) -> str:
    there = {k: m for k, m in methods.items() if (m["accuracy"] or {}).get("mean") is not None}
    if not there:
        return ""
    best = max(there.values(), key=lambda m: m["accuracy"]["mean"])
    right, gap = best["accuracy"]["mean"], best["difference"]["mean"]
    bound = (best.get("certified") or {}).get("mean")
    text = f"Of {len(methods)} methods {best['name']} is the most accurate: {right:.3f}"
    if gap is not None:
        text += f", {study['notion']['quantity']} {gap:.3f}"
    return f"{text}{'' if bound is None else f', certified within {upper(bound, 3)}'}."


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
        f"has a {study['notion']['quantity']} of {found['difference']:.3f}, the most of {found['tried']} parts "
        f"with at least {study['explorer']['least_rows']} rows."
        + why_above(next(m for m in study["methods"] if m["name"] == name), found["difference"])
    )


def why_above(method: Json, difference: float) -> str:
    """Why a part may show more than what is certified, where it does."""
    bound = (method.get("certified") or {}).get("mean")
    if bound is None or difference <= bound:
        return ""
    parts = method.get("parts")
    why = (
        "this part has too few rows to be among the estimable ones, or is cut otherwise"
        if parts and parts["certified"]
        else "the certificate is over reweighings that do not single this part out"
    )
    return f" That is above the certified {upper(bound, 3)}: {why}. It is measured, not certified."
