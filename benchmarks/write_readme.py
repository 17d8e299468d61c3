"""Write what README and docs/index.md say of their first picture, from the frontier that drew it.

agnosticfair data adult --out adult
agnosticfair tune adult/site-*.csv --target income --sensitive-features sex
cp tune/frontier.json docs/figures/tune-adult.json && cp tune/frontier.png docs/figures/tune-adult.png
python benchmarks/write_readme.py
"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).resolve().parents[1]
FRONTIER = ROOT / "docs/figures/tune-adult.json"
PAGES = (ROOT / "README.md", ROOT / "docs/index.md")
BEGIN, END = "<!-- begin: first result -->\n", "<!-- end: first result -->\n"


def said(found: dict) -> str:
    """The result in words."""
    knee, beside = found["points"][found["knee"]], found["references"]
    whole, free = beside["fairfl"], beside["fl"]
    text = (
        f"**Fair on the whole is not fair.** On rows that no model saw, training that equalises everybody's rates "
        f"(`fairfl`) leaves men and women {whole['measured']:.2f} apart as a whole, and {whole['worst']:.2f} in the "
        f"worst part of the people that one can name; a model that never heard of fairness (`fl`) has"
        f" {free['worst']:.2f}. `agnosticfair` looks at every such part: {knee['worst']:.2f} at the knee, right on "
        f"{knee['accuracy']:.1%} instead of {free['accuracy']:.1%}. Every point of the line is a model; the command "
        "saves the knee's, with a model card."
    )
    return fill(text, 118, break_on_hyphens=False) + "\n"


def written(page: str, text: str) -> str:
    """A page with the text between its two marks."""
    head, rest = page.split(BEGIN)
    return f"{head}{BEGIN}{text}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    told = said(json.loads(FRONTIER.read_text()))
    for page in PAGES:
        page.write_text(written(page.read_text(), told))
