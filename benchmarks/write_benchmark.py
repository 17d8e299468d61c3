"""Write the benchmark's page and the technical report from the cells of a run: no number there is typed.

    python benchmarks/write_benchmark.py bench/cells.jsonl
    python benchmarks/write_benchmark.py --paper results/results.json   # of agnosticfair-research reproduce
    python benchmarks/write_benchmark.py --check

Cells become research/report/results.json, the paper's runs research/report/printed.json; with those and published.json
(``benchmarks/published.py``) every table of the pages is written, between its two marks, and every figure drawn.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np

from agnosticfair.report.figures import png
from agnosticfair_research.paper import reported
from agnosticfair_research.report.bench import sections, table
from agnosticfair_research.report.bench_figures import figures
from agnosticfair_research.store import read
from agnosticfair_research.verdict import summary

ROOT = Path(__file__).resolve().parents[1] / "research"
REPORT = ROOT / "report"
RESULTS, PUBLISHED, PRINTED = (REPORT / f"{k}.json" for k in ("results", "published", "printed"))
PAGES = (ROOT / "docs/benchmark.md", REPORT / "report.md", REPORT / "paper.md")


def by_line(made: dict) -> str:
    """JSON with a line for each record of its lists."""
    texts = []
    for name, value in made.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
        texts.append(f"{json.dumps(name)}: {text}")
    return "{" + ",\n".join(texts) + "}\n"


def shown(values: list[float]) -> str:
    """Mean and standard deviation.

    >>> shown([0.1, 0.3])
    '0.200 ± 0.141'
    """
    spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


def published(content: dict) -> str:
    """Rivals beside what their papers have."""
    header = ("Adult, split", "entrant", "asked for", "published", "accuracy", "difference")
    lines = [
        (
            *(row["split"], row["entrant"], f"{row['limit']:g}", f"{row['published']:.3f}"),
            *(shown(row["accuracy"]), shown(row["difference"])),
        )
        for row in content["rows"]
    ]
    return table(header, lines)


def printed(content: dict) -> str:
    """The paper's methods beside the paper's numbers."""
    lines = []
    for row in content["rows"]:
        paper = reported(content["dataset"], content["setting"], row["method"])
        numbers = ("", "") if paper is None else (paper.test_accuracy, paper.test_risk_difference)
        both = ("test_accuracy", "test_risk_difference")
        cells = [c for k, p in zip(both, numbers, strict=True) for c in (shown(row[k]), f"{p}")]
        lines.append((f"`{row['method']}`", *cells))
    return table(("method", "test accuracy", "paper", "test difference", "paper"), lines)


def of_paper(results: dict) -> dict:
    """The rows of ``reproduce`` by method, for one data set and setting."""
    rows = [r for r in results["rows"] if (r["dataset"], r["setting"]) == ("adult", "shift")]
    keys = ("test_accuracy", "test_risk_difference")
    made = [
        {"method": name} | {k: [round(r[k], 4) for r in rows if r["method"] == name] for k in keys}
        for name in dict.fromkeys(r["method"] for r in rows)
    ]
    return {
        "dataset": "adult",
        "setting": "shift",
        "seeds": results["request"]["seeds"],
        "rows": made,
    }


def filled(page: str, texts: dict[str, str]) -> str:
    """The page with a text between the two marks of each name."""

    def between(match: re.Match[str]) -> str:
        return f"{match[1]}\n{texts[match[2]]}\n{match[3]}"

    pattern = r"(<!-- begin: ([\w-]+) -->)\n.*?\n?(<!-- end: \2 -->)"
    return re.sub(pattern, between, page, flags=re.DOTALL)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("cells", nargs="*", type=Path)
    words.add_argument("--paper", type=Path)
    words.add_argument("--check", action="store_true")
    request = words.parse_args()
    if request.cells:
        rows = [row for path in request.cells for row in read(path)]
        RESULTS.write_text(by_line(summary(rows)))
    if request.paper:
        PRINTED.write_text(by_line(of_paper(json.loads(request.paper.read_text()))))
    made = json.loads(RESULTS.read_text())
    texts = sections(made)
    texts |= {"published": published(json.loads(PUBLISHED.read_text()))}
    texts |= {"printed": printed(json.loads(PRINTED.read_text()))}
    pages = {page: filled(page.read_text(), texts) for page in PAGES}
    changed = [page for page, text in pages.items() if page.read_text() != text]
    if request.check:
        raise SystemExit(f"{', '.join(p.name for p in changed)} differs" if changed else 0)
    for page in changed:
        page.write_text(pages[page])
    (REPORT / "figures").mkdir(exist_ok=True)
    for name, figure in figures(made).items():
        (REPORT / "figures" / name).write_bytes(png(figure))


if __name__ == "__main__":
    main()
