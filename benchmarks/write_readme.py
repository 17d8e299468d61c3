"""Write what README and docs/index.md say of their first picture, from the frontier that drew it, and README's times.

agnosticfair data adult --out adult
agnosticfair tune adult/site-*.csv --target income --sensitive-features sex
cp tune/frontier.json docs/figures/tune-adult.json && cp tune/frontier.png docs/figures/tune-adult.png
python benchmarks/fit_vs_fairlearn.py --methods rule > docs/figures/speed.txt  # on an idle machine
python benchmarks/write_readme.py  # --check: compare, and write nothing
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from textwrap import fill

ROOT = Path(__file__).resolve().parents[1]
FRONTIER = ROOT / "docs/figures/tune-adult.json"
PAGES = (ROOT / "README.md", ROOT / "docs/index.md")
SPEED = ROOT / "docs/figures/speed.txt"


def result(found: dict) -> str:
    """The result in words."""
    knee, beside = found["points"][found["knee"]], found["references"]
    whole, free = beside["fairfl"], beside["fl"]
    text = (
        f"**Fair overall is not fair.** On held-out rows, a model that equalises overall rates (`fairfl`) decides "
        f"positively for men and women {whole['measured']:.2f} apart overall, and {whole['worst']:.2f} apart in the "
        f"worst subgroup; a model without any limit (`fl`) {free['worst']:.2f}. Limiting every subgroup brings the "
        f"worst to {knee['worst']:.2f} at the knee, and is right on {knee['accuracy']:.1%} of the rows instead of "
        f"{free['accuracy']:.1%}. Every point of the line is a model; the command saves the knee's, with a model card."
    )
    return fill(text, 118, break_on_hyphens=False) + "\n"


def timed(lines: str) -> str:
    """What a default fit takes, in words, from what ``fit_vs_fairlearn.py`` printed."""
    alike = re.findall(r"LogisticRegression, .* (\d) BLAS threads: (\S+)", lines)
    threads = " and ".join(f"{ratio} (threads: {count})" for count, ratio in alike)
    subgroups, slower = re.findall(r"(\d+) subgroups.*ExponentiatedGradient (\S+) of it", lines)[0]
    text = (
        f"Time: the rule over {subgroups} subgroups of Adult (additive learner, label and group in five folds) takes "
        f"{threads} times scikit-learn's `LogisticRegression` of the label alone; fairlearn's ExponentiatedGradient "
        f"takes {float(slower):.1f} times the rule's (`benchmarks/fit_vs_fairlearn.py`, two cores)."
    )
    return fill(text, 118, break_on_hyphens=False) + "\n"


def written(page: str, name: str, text: str) -> str:
    """A page with the text between the two marks of that name."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
    head, rest = page.split(begin)
    return f"{head}{begin}{text}{end}{rest.split(end)[1]}"


def write(pages: dict[Path, str]) -> None:
    """Write the pages; with --check, only say which are not as they would be written, and fail."""
    changed = [page for page, text in pages.items() if page.read_text() != text]
    if "--check" in sys.argv:
        sys.exit(f"written anew, {', '.join(p.name for p in changed)} differs" if changed else 0)
    for page in changed:
        page.write_text(pages[page])


if __name__ == "__main__":
    first = result(json.loads(FRONTIER.read_text()))
    texts = {page: written(page.read_text(), "first result", first) for page in PAGES}
    texts[PAGES[0]] = written(texts[PAGES[0]], "time", timed(SPEED.read_text()))
    write(texts)
