"""Pages from templates, each one file: text is escaped, data goes in as JSON, and a page asks nothing of the network.

A page's own policy forbids every request and every script but those whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from html import escape
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

import agnosticfair
from agnosticfair.data.storage import Decided
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
