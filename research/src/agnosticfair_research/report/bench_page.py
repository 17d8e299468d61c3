"""The benchmark as one self-contained page: a sortable table, a frontier per data set, deployments as dots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from agnosticfair.report.page import script_hash
from agnosticfair_research.deployments import KINDS
from agnosticfair_research.report.bench import bar, paragraph, span
from agnosticfair_research.report.bench_numbers import (
    MAIN_LIMIT,
    OURS,
    Json,
    aggregate,
    by_data,
    is_constant,
)
from agnosticfair_research.report.static import static

COLOURS = (
    *("#0B7A4B", "#D55E00", "#0072B2", "#CC79A7", "#B8860B", "#757575", "#56B4E9", "#A5683A"),
    *("#9467BD", "#E377C2", "#2F9E8F", "#17BECF", "#BCBD22", "#FF7F0E"),
)
OF_KIND = dict(
    zip(
        KINDS,
        ("#D62728", "#9467BD", "#0072B2", "#56B4E9", "#999999", "#0B7A4B", "#E69F00"),
        strict=True,
    )
)
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 460, 330, 62, 14, 40

COLUMNS = {
    "entrant": "entrant",
    "limit": "limit",
    "sees": "sees attribute",
    "accuracy": "accuracy",
    "balanced": "balanced",
    "positives": "positives",
    "test": "RD test",
    "mean": "RD mean",
    "p90": "RD p90",
    "max": "RD max",
    "beyond": "beyond error",
    "kept": "limit kept",
    "sceptic_p90": "sceptic p90",
    "sceptic_max": "sceptic max",
    "ratio": "time",
    "seeds": "seeds",
}


def page(results: Mapping[str, Any]) -> str:
    """The page; it makes no request, and its policy allows only its own script and style."""
    summary = aggregate(results)
    names = [*dict.fromkeys(line["entrant"] for line in summary["lines"])]
    colours = {name: COLOURS[k % len(COLOURS)] for k, name in enumerate(names)}
    script, style = static("bench.js"), static("bench.css")
    policy = f"default-src 'none'; script-src {script_hash(script)}; style-src {script_hash(style)}"
    sections = [
        _section(data, split, limits, _dots(results, data, split), colours)
        for split in dict.fromkeys(line["split"] for line in summary["lines"])
        for data, limits in by_data(summary, split).items()
    ]
    commit = (summary["commit"] or "unknown")[:12]
    links = " · ".join(
        f'<a href="#{data}-{split}">{data}, {split}</a>'
        for split in dict.fromkeys(line["split"] for line in summary["lines"])
        for data in by_data(summary, split)
    )
    reached = escape(bar(summary).replace("`", "").replace("**", ""))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>agnosticfair benchmark</title><style>{style}</style></head><body><main>"
        "<h1>Fairness where nobody trained, chosen blind</h1>"
        f"<p>{reached}</p><nav>{links}</nav>"
        f"<p>Commit {escape(commit)}, {span(summary['seeds'])}. Every setting was chosen on training rows by one rule; "
        "RD is the risk difference between the two groups, over deployments that nobody saw. "
        "<em>Beyond error</em>: deployments over the limit by more than two standard errors. "
        "<em>Sceptic</em>: fairfl with its threshold moved to the same training accuracy. "
        "<em>Time</em>: multiples of a plain logistic regression. Click a heading to sort.</p>"
        f"{''.join(sections)}</main><script>{script}</script></body></html>"
    )


def _section(
    data: str,
    split: str,
    limits: Mapping[float, Sequence[Json]],
    dots: Mapping[str, Json],
    colours: Mapping[str, str],
) -> str:
    lines = [line for those in limits.values() for line in those]
    words = escape(paragraph(limits).replace("`", ""))
    return (
        f'<section><h2 id="{data}-{split}">{escape(data)}, {escape(split)}</h2><p>{words}</p>'
        f'<div class="row">{_frontier(lines, colours)}{_strips(dots)}</div>{_table(lines)}</section>'
    )


def _table(lines: Iterable[Json]) -> str:
    head = "".join(
        f'<th scope="col"{" class=text" if k == "entrant" else ""}><button type="button">{name}</button></th>'
        for k, name in COLUMNS.items()
    )
    body = "".join(_row(line) for line in lines)
    table = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="sortable">{table}</table></div>'


def _row(line: Json) -> str:
    kind = "ours" if line["entrant"] == OURS else "sees" if line["sees"] else ""
    if not line["seeds"]:
        why = escape(f"no result: {line['why']}")
        rest = len(COLUMNS) - 3
        first = f'<td>{escape(line["entrant"])}</td><td>{line["limit"]:g}</td><td class="text">{why}</td>'
        return f'<tr class="{kind}">{first}{"<td></td>" * rest}</tr>'
    shown = []
    for key in COLUMNS:
        value = line[key]
        if key in ("entrant", "sees"):
            text = value if key == "entrant" else "yes" if value else "no"
            shown.append(f"<td>{escape(text)}</td>")
        else:
            digits = {
                "limit": "g",
                "seeds": "g",
                "beyond": ".0f",
                "ratio": ".1f",
                "kept": ".0%",
            }.get(key, ".3f")
            more = f' title="± {line[f"{key}_error"]:.3f}"' if f"{key}_error" in line else ""
            extra = f" of {line['count']:.0f}" if key == "beyond" else ""
            extra = " (constant)" if key == "positives" and is_constant(line) else extra
            shown.append(f'<td data-value="{value}"{more}>{value:{digits}}{extra}</td>')
    return f'<tr class="{kind}">{"".join(shown)}</tr>'


def _scale(
    values: Sequence[float], low: float, high: float, pad: float = 0.06
) -> tuple[float, float]:
    """Factor and offset that take values into [low, high], with some room."""
    a, b = min(values), max(values)
    room = pad * (b - a) or 0.01
    a, b = a - room, b + room
    factor = (high - low) / (b - a)
    return factor, low - factor * a


def _ticks(values: Sequence[float]) -> list[float]:
    a, b = min(values), max(values)
    step = next(
        s
        for s in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
        if (b - a) / s <= 6 or s == 0.5
    )
    return [float(t) for t in np.arange(np.ceil(a / step) * step, b + 1e-9, step)]


def _axes(x: Sequence[float], y: Sequence[float], x_name: str, y_name: str) -> tuple[str, Any, Any]:
    """The frame as SVG, and how values go into it."""
    fx, ox = _scale(x, LEFT, WIDTH - 8)
    fy, oy = _scale(y, HEIGHT - BOTTOM, TOP)
    lines = [
        f'<line x1="{fx * t + ox:.1f}" x2="{fx * t + ox:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="grid"/>'
        f'<text x="{fx * t + ox:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{t:.3g}</text>'
        for t in _ticks(x)
    ]
    lines += [
        f'<line x1="{LEFT}" x2="{WIDTH - 8}" y1="{fy * t + oy:.1f}" y2="{fy * t + oy:.1f}" class="grid"/>'
        f'<text x="{LEFT - 6}" y="{fy * t + oy + 4:.1f}" text-anchor="end">{t:.3g}</text>'
        for t in _ticks(y)
    ]
    lines.append(
        f'<text x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{x_name}</text>'
    )
    lines.append(
        f'<text x="14" y="{(TOP + HEIGHT - BOTTOM) / 2}" text-anchor="middle" '
        f'transform="rotate(-90 14 {(TOP + HEIGHT - BOTTOM) / 2})">{y_name}</text>'
    )
    return "".join(lines), lambda v: fx * v + ox, lambda v: fy * v + oy


def _frontier(lines: Sequence[Json], colours: Mapping[str, str]) -> str:
    there = [line for line in lines if line["seeds"]]
    if not there:
        return ""
    frame, at_x, at_y = _axes(
        [line["p90"] for line in there],
        [line["accuracy"] for line in there],
        "RD, 90th percentile over deployments",
        "accuracy, test set",
    )
    marks, key = [], []
    for name in dict.fromkeys(line["entrant"] for line in there):
        ordered = sorted(
            (line for line in there if line["entrant"] == name), key=lambda line: line["limit"]
        )
        points = [(at_x(line["p90"]), at_y(line["accuracy"])) for line in ordered]
        colour = colours[name]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        marks.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        )
        for (x, y), line in zip(points, ordered, strict=True):
            words = f"{name}, limit {line['limit']:g}: accuracy {line['accuracy']:.3f}, p90 {line['p90']:.3f}"
            size = 6 if name == OURS else 4
            marks.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {_filled(colour, line["sees"])}>'
                f"<title>{escape(words)}</title></circle>"
            )
        key.append(f"<li>{_swatch(colour, ordered[0]['sees'])} {escape(name)}</li>")
    return (
        f'<figure class="frontier"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Frontier">'
        f"{frame}{''.join(marks)}</svg>"
        f'<ul class="key">{"".join(key)}</ul>'
        "<figcaption>Up and to the left is better. A point per limit; hollow: sees the attribute when deciding."
        "</figcaption></figure>"
    )


def _filled(colour: str, hollow: bool) -> str:
    inside = 'class="hollow"' if hollow else f'fill="{colour}"'
    return f'{inside} stroke="{colour}" stroke-width="1.6"'


def _swatch(colour: str, hollow: bool = False) -> str:
    circle = f'<circle cx="5.5" cy="5.5" r="4" {_filled(colour, hollow)}/>'
    return f'<svg width="11" height="11" aria-hidden="true">{circle}</svg>'


def _dots(results: Mapping[str, Any], data: str, split: str) -> dict[str, Json]:
    """Of the first seed, at the main limit: entrant -> its row."""
    cells = [
        c for c in results["cells"] if (c["dataset"], c["split"]) == (data, split) and c["rows"]
    ]
    first = min((cell["seed"] for cell in cells), default=0)
    found = {}
    for cell in cells:
        if cell["seed"] == first:
            by = {row["limit"]: row for row in cell["rows"]}
            found[cell["entrant"]] = by.get(MAIN_LIMIT, cell["rows"][0])
    return {name: row for name, row in found.items() if row["deployments"]}


STEP, BESIDE, ACROSS = 30, 132, 560  # of the dots: height of a line, room for names, width
RARE = {
    "test set": 9.0,
    "natural": 6.0,
}  # kinds that are drawn larger than a dot's 3.4, over the others


def _strips(rows: Mapping[str, Json]) -> str:
    """A line of dots per entrant, one a deployment, coloured by kind."""
    if not rows:
        return ""
    height = TOP + STEP * len(rows) + BOTTOM
    maximum = max(max(row["deployments"]) for row in rows.values())
    factor = (ACROSS - BESIDE - 10) / max(maximum, 0.01)
    marks = [
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}" class="grid"/>'
        f'<text x="{x:.1f}" y="{height - BOTTOM + 15}" text-anchor="middle">{t:.1f}</text>'
        for t in np.arange(0, maximum + 1e-9, 0.1)
        for x in (BESIDE + factor * t,)
    ]
    for k, (name, row) in enumerate(rows.items()):
        marks += _strip(name, row, TOP + STEP * (k + 0.5), factor)
    marks.append(
        f'<text x="{(BESIDE + ACROSS) / 2}" y="{height - 6}" text-anchor="middle">'
        "risk difference of each deployment</text>"
    )
    there = {kind for row in rows.values() for kind in row["kinds"]}
    key = "".join(f"<li>{_swatch(OF_KIND[kind])} {kind}</li>" for kind in KINDS if kind in there)
    return (
        f'<figure class="dots"><div class="scroll" tabindex="0" role="region" aria-label="Deployments as dots">'
        f'<svg width="{ACROSS}" height="{height}" role="img" aria-label="Deployments">{"".join(marks)}</svg></div>'
        f'<ul class="key">{key}</ul>'
        f"<figcaption>A dot per deployment, first seed, limit {MAIN_LIMIT:g}.</figcaption></figure>"
    )


def _strip(name: str, row: Json, middle: float, factor: float) -> list[str]:
    """One entrant's dots: a path for each kind, the rare ones on top."""
    kinds = [kind for kind, told in row["kinds"].items() for _ in range(told["count"])]
    jitter = np.random.default_rng(len(kinds)).uniform(-0.36, 0.36, len(kinds)) * STEP
    paths: dict[str, list[str]] = {}
    for rd, kind, up in zip(row["deployments"], kinds, jitter, strict=True):
        place = f"M{BESIDE + factor * rd:.1f} {middle + (0 if kind == KINDS[0] else up):.1f}h0"
        paths.setdefault(kind, []).append(place)
    worst = f"<title>{escape(name)}, worst: {escape(row['worst'])}</title>"
    label = f'<text x="{BESIDE - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(name)}{worst}</text>'
    return [label] + [
        f'<path d="{"".join(paths[kind])}" class="dot" stroke="{OF_KIND[kind]}" '
        f'stroke-width="{RARE.get(kind, 3.4)}" stroke-opacity="{1 if kind in RARE else 0.6}"/>'
        for kind in reversed(KINDS)
        if kind in paths
    ]
