"""One self-contained HTML file: the static page with its data put in as JSON, as text and never as code.

The page's own policy forbids every request and every script but those whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import date
from typing import Any

import agnosticfair
from agnosticfair.data.decided import Decided
from agnosticfair.report.runs import Run
from agnosticfair.report.static import static
from agnosticfair.report.studies import studies
from agnosticfair.report.words import headline, sentences, verdict

LIBRARY = "chart.umd.min.js"


def data(
    runs: Sequence[Run], tested: Decided | None = None, mix: Sequence[str] = ()
) -> dict[str, Any]:
    """All that the page shows."""
    made = studies(runs, tested, mix)
    for study in made:
        study |= {"headline": headline(study), "sentences": sentences(study)}
        study["verdict"] = verdict(study)
    title = made[0]["title"] if len(made) == 1 else f"{len(made)} studies"
    about = {"version": agnosticfair.__version__, "title": title, "made": date.today().isoformat()}
    return {**about, "studies": made, "live": False}


def html(content: dict[str, Any], script: str = "page.js") -> str:
    """The page that shows this content; a live one may ask its own server for news."""
    texts = {name: static(name) for name in ("page.html", "page.css")}
    library = static(LIBRARY).partition("//# sourceMappingURL")[0]
    more = static("rule.js") if script == "page.js" else ""
    scripts = [library, static("common.js") + more + static(script)]
    policy = (
        f"default-src 'none'; script-src {' '.join(map(script_hash, scripts))}; "
        f"style-src {script_hash(texts['page.css'])}; img-src data:; "
        f"connect-src {chr(39)}{'self' if content['live'] else 'none'}{chr(39)}; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {
        "POLICY": policy,
        "STYLE": texts["page.css"],
        "DATA": as_text(content),
        "LIBRARY": scripts[0],
        "SCRIPT": scripts[1],
    }
    first, *rest = texts["page.html"].split("{{")  # one pass: what is put in is not looked at again
    return first + "".join(parts[name] + after for name, after in (r.split("}}", 1) for r in rest))


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
