"""A certificate to look at: tables for the terminal, and one figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from agnosticfair.auditing.certificate import Certificate, lower, plain, upper
from agnosticfair.auditing.subgroups import SubgroupRecord, rows_needed
from agnosticfair.mathematics import metrics
from agnosticfair.mathematics.metrics import METRICS, PARITY
from agnosticfair.report.figures import BLUE, RED, canvas, tidy
from agnosticfair.report.words import Grid

MAX_SUBGROUPS = 20  # of a table or a page, of the estimable ones
MAX_FEW = 6  # of the others

Json = dict[str, Any]


def grids(certificate: Certificate) -> list[Grid]:
    """What is certified, the worst estimable subgroups with their intervals, what is not estimable, and the groups'
    impact ratios."""
    few = [_few(certificate)] if certificate.not_estimable else []
    return [_headline(certificate), _able(certificate), *few, _groups(certificate)]


def _headline(certificate: Certificate) -> Grid:
    worst = certificate.worst_subgroup
    lines = [
        (
            certificate.quantity,
            _rate(certificate.worst_difference),
            upper(certificate.upper),
            worst.name if worst else "",
        ),
        (
            f"{certificate.quantity}, overall",
            _rate(certificate.subgroups[0].difference),
            upper(certificate.subgroups[0].high),
            "",
        ),
    ]
    ratio = METRICS[certificate.metric].ratio
    if certificate.worst_ratio is not None and isfinite(certificate.upper) and ratio:
        measured, lowest, name = certificate.worst_ratio
        overall = certificate.subgroups[0]
        low = f"at least {lower(overall.ratio_low)}"
        rule = "four-fifths rule: 0.8" if ratio == PARITY.ratio else ""
        lines.append((f"{ratio}, overall", _rate(overall.ratio), low, rule))
        lines.append((ratio, f"{measured:.4f}", f"at least {lower(lowest)}", name))
    if certificate.kernels is not None:
        worst_case, bound = (
            upper(certificate.kernels.worst_difference),
            upper(certificate.kernels.upper),
        )
        lines.append(
            (f"{certificate.quantity}, reweighted", worst_case, bound, certificate.kernels.about)
        )
    if isfinite(certificate.accuracy):
        lines.append(("accuracy", f"{certificate.accuracy:.4f}", "", ""))
    head = ("", "measured", f"at most ({certificate.confidence:.0%})", "worst where")
    return Grid(f"Certificate on {certificate.n:,} rows", "", head, lines)


def _able(certificate: Certificate) -> Grid:
    able = certificate.worst_first
    head = ("subgroup", "rows", certificate.quantity, "low", "high", "ratio", "its low")
    lines = [
        (
            p.name,
            f"{p.rows:,}",
            f"{p.difference:.4f}",
            lower(p.low),
            upper(p.high),
            _rate(p.ratio),
            lower(p.ratio_low),
        )
        for p in certificate.listed(MAX_SUBGROUPS)
    ]
    shown = f"{len(able):,} subgroups, the {min(len(able), MAX_SUBGROUPS)} of the highest bound"
    note = f"{shown if len(able) > 1 else 'One subgroup alone has rows enough'}; all ends hold at once."
    title = f"Certified with {certificate.confidence:.0%} confidence"
    if not isfinite(certificate.upper):
        title, note = (
            "Subgroups, measured",
            "On the rows of the fit: nothing is bounded beyond them.",
        )
    return Grid(title, note, head, lines)


def _few(certificate: Certificate) -> Grid:
    few = certificate.not_estimable
    rows = [(p.name, f"{p.rows:,}", _rate(p.difference)) for p in few[:MAX_FEW]]
    note = f"Too few rows for +-{certificate.precision:g}: measured, not certified, and not counted as 0."
    return Grid(
        f"Not estimable: {len(few):,} subgroups", note, ("subgroup", "rows", "measured"), rows
    )


def _groups(certificate: Certificate) -> Grid:
    overall = certificate.subgroups[0]
    rates = [
        (
            r.group,
            f"{r.rows:,}",
            _rate(r.rate),
            _rate(r.impact),
            "" if r.compared else "too few rows",
        )
        for r in overall.rates
    ]
    note = f"Rates, and each group's share of the highest one; lowest ratio {_rate(overall.ratio)}"
    if isfinite(overall.ratio_low):
        note += (
            f", with {certificate.confidence:.0%} confidence at least {lower(overall.ratio_low)}"
        )
    four_fifths = METRICS[certificate.metric].ratio == PARITY.ratio
    note += " (four-fifths rule: 0.8)." if four_fifths else "."
    return Grid("Groups", note, ("group", "rows", "rate", "ratio", ""), rates)


def figure(certificate: Certificate) -> Figure:
    """The subgroups of the highest bounds, each with its interval; then those that are not estimable, as measured."""
    able = certificate.listed(MAX_SUBGROUPS)
    certified = isfinite(certificate.upper)
    few = [p for p in certificate.not_estimable if isfinite(p.difference)][:5]
    shown = [*able, *few]
    drawn = canvas(10.5, 1.6 + 0.34 * max(len(shown), 2))
    axes = drawn.subplots()
    for place, subgroup in zip(range(len(shown))[::-1], shown, strict=True):
        if subgroup.estimable:
            if certified:
                axes.plot(
                    (subgroup.low, subgroup.high),
                    (place, place),
                    color=BLUE,
                    lw=2,
                    marker="|",
                    ms=8,
                )
            axes.plot(subgroup.difference, place, "o", color=BLUE, ms=5)
        else:
            axes.plot(subgroup.difference, place, "o", color="#777777", mfc="white", ms=6)
    level = f"{certificate.confidence:.0%}"
    if certified:
        _draw_upper(axes, certificate.upper)
    names = [_short(p.name) + f" ({p.rows:,})" for p in shown]
    axes.set_yticks(range(len(shown))[::-1], names, fontsize=9, parse_math=False)
    right = [*(p.difference for p in shown), *(p.high for p in able), certificate.upper, 0.05]
    maximum = max(v for v in right if isfinite(v))
    axes.set(xlim=(-0.01, min(1.02, 1.06 * maximum)), ylim=(-0.7, len(shown) - 0.3))
    bars = (
        f"bars: {level} intervals, all at once"
        if certified
        else "dots: measured on the rows of the fit"
    )
    axes.set_xlabel(
        f"{certificate.quantity}\n{bars}; hollow: not estimable, measured only", fontsize=9
    )
    axes.set_title("Subgroups (rows)", fontsize=11, loc="left", pad=16)
    tidy(axes, "x")
    return drawn


def _draw_upper(axes: Axes, bound: float) -> None:
    """The line that no estimable subgroup is above."""
    axes.axvline(bound, color=RED, lw=1.4, ls="--")
    axes.annotate(
        f"certified at most {upper(bound)}",
        (bound, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if bound > 0.6 else 4, 3),
        textcoords="offset points",
        ha="right" if bound > 0.6 else "left",
        fontsize=9,
        color=RED,
    )


def _short(name: str, limit: int = 44) -> str:
    """A name on one line or, where it is long, each value of it on a line of its own."""
    lines = [name] if len(name) <= limit else name.split(" and ")
    return " and\n".join(line if len(line) <= limit else f"{line[: limit - 1]}…" for line in lines)


def _rate(value: float) -> str:
    return f"{value:.4f}" if isfinite(value) else "none"


def reached(certificate: Mapping[str, Any], tau: float | None = None) -> Json:
    """The bound of a certificate as JSON, and the subgroups it is of; nothing is certified on the rows of a fit, of
    which it says how many subgroups are over tau by more than two standard errors."""
    if "subgroups" not in certificate:
        return {"certified": None}
    parsed = Certificate.from_json(certificate)
    subgroups, kept = subgroups_of(parsed), certificate.get("kept")
    compares = not METRICS[parsed.metric].bounds
    if tau is not None and compares and not parsed.held_out:
        subgroups |= _beyond_rows(parsed, tau)
    if kept:  # other bounds are of a model that these rows have chosen
        subgroups = _without_ends(subgroups)
    unclaimed = kept is False and parsed.upper <= certificate["limit"]
    return {
        "certified": parsed.upper if subgroups["certified"] else None,
        "unclaimed": certificate["sentence"] if unclaimed else None,
        "subgroups": subgroups,
        "sentence": certificate.get("sentence"),
        "confidence": parsed.confidence,
    }


def subgroups_of(certificate: Certificate) -> Json:
    """The worst subgroups that are certified (or only measured, on the rows of a fit), those with too few rows, and how
    many there are of each; and the one that surely differs most, whatever its rows."""
    keys = ("name", "rows", "difference", "low", "high", "ratio", "ratio_low", "pair")

    def entries_of(some: Sequence[SubgroupRecord]) -> list[Json]:
        return [plain({key: getattr(subgroup, key) for key in keys}) for subgroup in some]

    able = certificate.worst_first
    few = [subgroup for subgroup in certificate.not_estimable if isfinite(subgroup.difference)]
    certified = certificate.held_out and bool(able)
    rows = "too few rows" if certificate.held_out else "the rows of the fit"
    ratio = certificate.worst_ratio
    surest = max(certificate.subgroups, key=lambda p: p.low if isfinite(p.low) else -1.0)
    return plain(
        {
            "certified": certified,
            "why": f"Measured on {rows}, and not certified.",
            "estimable": entries_of(certificate.listed(MAX_SUBGROUPS)),
            "few": entries_of(few[:MAX_FEW]),
            "counts": [len(able), len(certificate.not_estimable)],
            "upper": certificate.upper if certified else None,
            "confidence": certificate.confidence,
            "precision": certificate.precision,
            "overall": entries_of(certificate.subgroups[:1])[0],
            "surest": entries_of([surest])[0] if certified and isfinite(surest.low) else None,
            "ratio": ratio and dict(zip(("measured", "low", "name"), ratio, strict=True)),
        }
    )


def _beyond_rows(certificate: Certificate, tau: float) -> Json:
    """over: in how many subgroups the counted difference is over tau by more than chance.  needed: about the rows that
    tell the difference overall, and in half of the subgroups, to +- precision."""
    able, over, smallest = certificate.worst_first, 0, []
    for subgroup in (certificate.subgroups[0], *able):
        rates = [rate for rate in subgroup.rates if rate.rows and isfinite(rate.rate)]
        error = sum(rate.rate * (1 - rate.rate) / rate.rows for rate in rates) ** 0.5
        over += subgroup.difference > tau + 2 * error
        one, other = sorted((rate.rows / certificate.n for rate in rates), reverse=True)[:2]
        smallest.append((1 / one + 1 / other, one, other))
    sure = certificate.precision, certificate.confidence
    needed = [rows_needed(*smallest[0][1:], *sure)]
    if able:
        needed.append(rows_needed(*sorted(smallest[1:])[len(able) // 2][1:], *sure, len(able)))
    return {"over": over, "needed": needed}


def _without_ends(subgroups: Json) -> Json:
    """``subgroups_of`` as measured: without the ends of intervals."""
    ends = {"low": None, "high": None, "ratio_low": None}
    measured = [subgroup | ends for subgroup in subgroups["estimable"]]
    overall = subgroups["overall"] | ends
    return subgroups | {"estimable": measured, "overall": overall, "surest": None}


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
    if parsed.kernels is not None and isfinite(parsed.kernels.upper):
        mixed += f" and every reweighting by {parsed.kernels.about}"
    level = f"{100 * parsed.confidence:g}% confidence, all at once"
    able = subgroups["counts"][0]
    which = f"each of {able:,} subgroups" if able > 1 else subgroups["estimable"][0]["name"]
    return {"set": f"{which}{mixed}, with {level}", "metric": metric}
