"""The page of a monitor: a verdict, a timeline with intervals, the mix against training, the worst subgroups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

import agnosticfair
from agnosticfair.auditing.certificate import lower, upper
from agnosticfair.data.encoding import shown
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair.monitoring.verdict import Verdict

MAX_SUBGROUPS = 25
MAX_VALUES = 10  # whose shares moved most
MARKS = {"broken": "✗ broken", "kept": "✓ kept", "not yet known": "? not yet known"}
PLACES = {"inside": "✓ inside", "edge": "? at the edge", "outside": "✗ outside"}


def page_data(monitor: Monitor, verdict: Verdict) -> dict[str, Any]:
    """All that the page shows: counts and names, and no rows."""
    state, content = monitor.state, verdict.to_json()
    time_of_state = datetime.fromtimestamp(state.last, UTC).strftime("%Y-%m-%d %H:%M UTC")
    strange = [f"Values of {k} never seen: {shown(v)}." for k, v in verdict.strange.items()]
    texts = [content["because"], last_batch(state.timeline), _mixture(verdict), *strange]
    return {
        **content,
        "version": agnosticfair.__version__,
        "confidence": monitor.confidence,
        "subgroups": content["subgroups"][:MAX_SUBGROUPS],
        "tiles": _tiles(content, verdict),
        "texts": [text for text in (*texts, *content["advice"]) if text],
        "groups": _groups(content["overall"]["rates"]),
        "lines": _subgroups(content["subgroups"][:MAX_SUBGROUPS]),
        "timeline": [*state.timeline],
        "mix": _mix(monitor),
        "made": f"After the batch of {time_of_state}" if state.last else "Before the first batch",
    }


def _tiles(content: Mapping[str, Any], verdict: Verdict) -> list[tuple[str, str, str, str]]:
    """Label, value, text and kind of what is seen first."""
    count = Counter(p.verdict for p in (verdict.overall, *verdict.subgroups))
    total, limit = count.total(), upper(verdict.limit)
    where = f"{total} subgroup{'s' * (total != 1)}"
    states = ", ".join(f"{count[k]} {k}" for k in ("kept", "broken", "not yet known"))
    decisions = f"each against its own limit, at most {limit}, in {where}: {states}"
    mix = "the mix has changed" if content["changed"] else "no change of the mix is shown"
    place = f"{verdict.distance:.4f} from the nearest mix in the certified set; {mix}"
    known = f"groups known of {content['grouped']:,}; {content['undecided']:,} with a value the model does not know"
    return [
        ("Decisions", MARKS[verdict.decisions], decisions, _kind(verdict.decisions == "broken")),
        ("Where we are", PLACES[verdict.where], place, _kind(verdict.where == "outside")),
        ("Rows", f"{verdict.rows:,}", known, ""),
    ]


def _kind(alarm: bool) -> str:
    return "corner" if alarm else "certified"


def _groups(rates: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    names = (
        f"{r['group']}, of the {r['label']} label" if r["label"] else r["group"] for r in rates
    )
    strata = (
        (f"{r['rows']:,}", _fixed(r["rate"]), lower(r["low"]), upper(r["high"])) for r in rates
    )
    head = ("group", "rows", "rate", "at least", "at most")
    return [head, *((name, *line) for name, line in zip(names, strata, strict=True))]


def _subgroups(subgroups: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    bounds, shares = ("at least", "at most"), ("share before", "share now")
    head = ("subgroup", "rows", "rates", "difference", *bounds, *shares, "limit", "verdict")
    return [
        head,
        *(
            (
                p["name"],
                f"{p['rows']:,}",
                ", ".join(f"{r['group']} {_percent(r['rate'])}" for r in p["rates"]),
                _fixed(p["difference"]),
                lower(p["low"]),
                upper(p["high"]),
                *(_percent(p[k]) for k in ("share_before", "share")),
                upper(p["limit"]),
                MARKS[p["verdict"]],
            )
            for p in subgroups
        ),
    ]


def _fixed(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _mixture(verdict: Verdict) -> str:
    """The nearest mixture in the set, in words."""
    if not verdict.nearest:
        return ""
    heavy = "; ".join(f"{name} {weight:.0%}" for name, weight in verdict.nearest.items())
    return f"The nearest mixture in the set weighs most: {heavy}."


def last_batch(timeline: tuple[Mapping[str, Any], ...]) -> str:
    """What the last batch shows by itself."""
    last = timeline[-1].get("batch") if timeline else None
    if not last:
        return ""
    where = "at the edge of" if last["where"] == "edge" else last["where"]
    place = f"{last['rows']:,} rows, is {where} the set"
    if last["difference"] is None:
        return f"The last batch alone, {place}; its groups are not known."
    ends = f"{lower(last['low'])} to {upper(last['high'])}"
    return f"The last batch alone, {place}, with a difference of {last['difference']:.4f} ({ends}, for one look at it)."


def _mix(monitor: Monitor) -> list[dict[str, Any]]:
    """The values whose shares moved most, then and now."""
    baseline, state = monitor.baseline, monitor.state
    before, now = baseline.values / baseline.n, state.values / max(state.rows, 1)
    names = baseline.value_names
    order = np.argsort(-np.abs(now - before), kind="stable")[:MAX_VALUES]
    return [{"name": names[k], "before": float(before[k]), "now": float(now[k])} for k in order]
