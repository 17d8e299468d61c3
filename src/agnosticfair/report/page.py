"""Pages from templates, each one file: text is escaped, data goes in as JSON, and a page asks nothing of the network.

A page's own policy forbids every request and every script but those whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

import agnosticfair
from agnosticfair.auditing.certificate import lower, upper
from agnosticfair.data.encoding import shown
from agnosticfair.data.storage import Decided
from agnosticfair.monitoring.monitor import Monitor
from agnosticfair.monitoring.verdict import Verdict
from agnosticfair.report.studies import Run, studies
from agnosticfair.report.words import Glance, glance, headline, sentences

LIBRARY = "chart.umd.min.js"
SCRIPTS = {"report": ("common.js", "page.js"), "monitor": ("common.js", "monitor.js")}
TEMPLATES = Environment(
    loader=PackageLoader("agnosticfair.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["base64"] = lambda content: base64.b64encode(content).decode()


def _static(name: str) -> str:
    return (files(__package__) / "static" / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Section:
    """A section of a card: the first screen, paragraphs, points of a list, a table whose first line is its header, and
    pictures (title, alternative text, PNG), which are in the page alone."""

    title: str
    says: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    glance: Glance | None = None
    pictures: tuple[tuple[str, str, bytes], ...] = ()


def card_html(sections: Sequence[Section]) -> str:
    """A card as one page."""
    return _render("card", title=sections[0].title, sections=sections, kind="model-card")


def card_markdown(sections: Sequence[Section]) -> str:
    """The card as Markdown; texts are escaped, so that none of them can be markup or HTML."""
    blocks = []
    for level, section in zip(["#", *["##"] * len(sections)], sections, strict=False):
        blocks.append(f"{level} {_plain(section.title)}")
        if (shown := section.glance) is not None:
            blocks.append(f"**{_plain(f'{shown.sign} {shown.answer}')}**")
            blocks.append("\n".join(f"- {_plain(' '.join(tile))}" for tile in shown.tiles))
        blocks += map(_plain, section.says)
        if section.points:
            blocks.append("\n".join(f"- {_plain(point)}" for point in section.points))
        if section.lines:
            rows = [f"| {' | '.join(map(_plain, line))} |" for line in section.lines]
            rule = f"|---|{'---:|' * (len(section.lines[0]) - 1)}"
            blocks.append("\n".join([rows[0], rule, *rows[1:]]))
    return "\n\n".join(blocks) + "\n"


def card_files(sections: Sequence[Section], stem: str) -> dict[str, bytes]:
    """A model's card, in both forms, by file name."""
    texts = {"md": card_markdown(sections), "html": card_html(sections)}
    return {f"{stem}-card.{kind}": text.encode() for kind, text in texts.items()}


def page_data(
    runs: Sequence[Run], tested: Decided | None = None, mix: Sequence[str] = ()
) -> dict[str, Any]:
    all_studies = studies(runs, tested, mix)
    for study in all_studies:
        study |= {"headline": headline(study), "sentences": sentences(study)}
        study["glance"] = asdict(shown := glance(study)) | {"sign": shown.sign}
    one = len(all_studies) == 1
    title = all_studies[0]["title"] if one else f"{len(all_studies)} studies"
    about = {"version": agnosticfair.__version__, "title": title, "made": date.today().isoformat()}
    return {**about, "studies": all_studies}


def report_page(content: dict[str, Any]) -> str:
    data = (study.get("provenance", {}).get("data") or {} for study in content["studies"])
    sources = [content.get("made"), *(study.get("source") for study in content["studies"])]
    sources += [name for names in data for name in names]
    return _render(
        "report",
        content,
        title=f"{content['title']}: agnosticfair report",
        heading=content["title"],
        sources=list(dict.fromkeys(name for name in sources if name)),
    )


def monitor_page(content: dict[str, Any]) -> str:
    return _render("monitor", content, title="agnosticfair monitor")


def _render(template: str, content: dict[str, Any] | None = None, **values: Any) -> str:
    """The page of a template.  content: what its scripts draw, if it has any."""
    style, scripts = _static("page.css"), []
    if content is not None:
        library = _static(LIBRARY).partition("//# sourceMappingURL")[0]
        scripts = [library, "".join(map(_static, SCRIPTS[template]))]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(script_hash, scripts)) or chr(39) + 'none' + chr(39)}; "
        f"style-src {script_hash(style)}; img-src data:; connect-src 'none'; "
        "base-uri 'none'; form-action 'none'"
    )
    data = "" if content is None else as_text(content)
    common = {"policy": policy, "style": style, "scripts": scripts, "data": data, "kind": ""}
    context = {**(content or {}), **common, **values}
    return TEMPLATES.get_template(f"{template}.html").render(context)


def as_text(content: Any) -> str:
    """JSON that cannot end the element it stands in, nor begin another.

    >>> as_text({"name": "</script><b>"})
    '{"name":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, default=float)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def script_hash(text: str) -> str:
    """How a page's policy names a script or a style that it allows."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _plain(text: str) -> str:
    r"""The text for Markdown: on one line, its marks escaped, with entities for HTML and a table's bars.

    >>> print(_plain("a_b <i> | *c*"))
    a\_b &lt;i&gt; &#124; \*c\*
    """
    marked = re.sub(r"([\\`*_\[\]#~])", r"\\\1", " ".join(text.split()))
    return escape(marked, quote=False).replace("|", "&#124;")


MAX_SUBGROUPS = 25
MAX_VALUES = 10  # whose shares moved most
MARKS = {"broken": "✗ broken", "kept": "✓ kept", "not yet known": "? not yet known"}
PLACES = {"inside": "✓ inside", "edge": "? at the edge", "outside": "✗ outside"}


def monitor_data(monitor: Monitor, verdict: Verdict) -> dict[str, Any]:
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
