"""Sections of a card, and how they are written: as Markdown, and as one page that asks for nothing from elsewhere."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from agnosticfair.report.static import static

SIGNS = {"does not keep": "✗", "not known": "?", "keeps": "✓"}
"""What a verdict may be, the worst first, and its sign."""


@dataclass(frozen=True)
class Section:
    """Paragraphs, then points of a list, then a table whose first line is its header; before them a verdict, its state
    and its text, where there is one; after them pictures, a PNG each with its title and alternative text, which are in
    the page alone."""

    title: str
    says: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    lines: tuple[tuple[str, ...], ...] = ()
    verdict: tuple[str, str] | None = None
    pictures: tuple[tuple[str, str, bytes], ...] = ()


def markdown(sections: Sequence[Section]) -> str:
    """The card as Markdown; texts are escaped, so that none of them can be markup or HTML."""
    parts = []
    for level, section in zip(["#", *["##"] * len(sections)], sections, strict=False):
        parts.append(f"{level} {_plain(section.title)}")
        if section.verdict is not None:
            state, text = section.verdict
            parts.append(f"**{SIGNS[state]} {_plain(text)}**")
        parts += map(_plain, section.says)
        if section.points:
            parts.append("\n".join(f"- {_plain(point)}" for point in section.points))
        if section.lines:
            rows = [f"| {' | '.join(map(_plain, line))} |" for line in section.lines]
            rule = f"|---|{'---:|' * (len(section.lines[0]) - 1)}"
            parts.append("\n".join([rows[0], rule, *rows[1:]]))
    return "\n\n".join(parts) + "\n"


def html(sections: Sequence[Section]) -> str:
    """The card as one page that asks for nothing from elsewhere."""
    first, *rest = sections
    parts = [f"<header><h1>{escape(first.title)}</h1></header>"]
    parts += ["<main id='main'>", f"<section>{_body(first)}</section>"]
    parts += [
        f"<section><h2 class='part'>{escape(section.title)}</h2>{_body(section)}</section>"
        for section in rest
    ]
    meta = "<meta name='viewport' content='width=device-width, initial-scale=1'>"
    head = f"<meta charset='utf-8'>{meta}<title>{escape(first.title)}</title>"
    body = "\n".join(parts)
    return (
        f"<!doctype html>\n<html lang='en'><head>{head}\n<style>{static('page.css')}</style></head>\n"
        f"<body class='model-card'>\n{body}\n</main></body></html>\n"
    )


def _body(section: Section) -> str:
    told = ""
    if section.verdict is not None:
        state, text = section.verdict
        sign = f"<span class='sign' aria-hidden='true'>{SIGNS[state]}</span>"
        told = f"<p class='verdict {state.replace(' ', '-')}'>{sign}<span>{escape(text)}</span></p>"
    says = told + "".join(f"<p>{escape(text)}</p>" for text in section.says)
    points = "".join(f"<li>{escape(point)}</li>" for point in section.points)
    points = f"<ul>{points}</ul>" if points else ""
    drawn = "".join(_picture(*picture) for picture in section.pictures)
    return says + points + (_table(section.title, section.lines) if section.lines else "") + drawn


def _picture(title: str, alternative: str, content: bytes) -> str:
    """A picture within the page."""
    inside = b64encode(content).decode()
    image = f"<img alt='{escape(alternative)}' src='data:image/png;base64,{inside}'>"
    return f"<figure><figcaption>{escape(title)}</figcaption>{image}</figure>"


def _table(title: str, lines: Sequence[Sequence[str]]) -> str:
    """A table that the page's style folds into blocks where there is no room."""
    header, *rest = lines
    kinds = ("", *["n"] * (len(header) - 1))
    top = "".join(
        f"<th role='columnheader' scope='col' class='{kind}'>{escape(text)}</th>"
        for kind, text in zip(kinds, header, strict=True)
    )
    rows = []
    for first, *cells in rest:
        inner = "".join(
            f"<td role='cell' class='n' data-label='{escape(label)}'>{escape(text)}</td>"
            for label, text in zip(header[1:], cells, strict=True)
        )
        rows.append(
            f"<tr role='row'><th role='rowheader' scope='row'>{escape(first)}</th>{inner}</tr>"
        )
    size = "wide" if len(header) > 6 else "middling" if len(header) > 3 else "settings"
    return (
        f"<div class='scroll' tabindex='0' role='group' aria-label='{escape(title)}'>"
        f"<table role='table' class='{size}'><thead role='rowgroup'><tr role='row'>{top}</tr></thead>"
        f"<tbody role='rowgroup'>{''.join(rows)}</tbody></table></div>"
    )


def _plain(text: str) -> str:
    r"""The text for Markdown: on one line, its marks escaped, with entities for HTML and a table's bars.

    >>> print(_plain("a_b <i> | *c*"))
    a\_b &lt;i&gt; &#124; \*c\*
    """
    marked = re.sub(r"([\\`*_\[\]#~])", r"\\\1", " ".join(text.split()))
    return escape(marked, quote=False).replace("|", "&#124;")
