"""Write docs/benchmark.json, docs/benchmark.md and README's table from a benchmark's results.

    python benchmarks/write_benchmark.py bench/results.json ...

Several results are of the same code: other seeds, splits or entrants.
Without results it writes the two texts again from docs/benchmark.json. Results of a stated commit are checked
against that commit of this repository: code that differs is refused.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from agnosticfair.experiments.kept import source_of
from agnosticfair.report.bench import document, readme
from agnosticfair.report.bench_numbers import aggregate

ROOT = Path(__file__).resolve().parents[1]
SUMMARY, REPORT, README = (
    ROOT / "docs/benchmark.json",
    ROOT / "docs/benchmark.md",
    ROOT / "README.md",
)
BEGIN, END = "<!-- begin: benchmark table -->\n", "<!-- end: benchmark table -->\n"


def with_table(text: str, table: str) -> str:
    """README with the table between its two marks."""
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}{table}{END}{tail}"


def _by_line(summary: dict) -> str:
    """JSON with a line for each of the summary's."""
    *head, (name, lines) = summary.items()
    each = ",\n".join(json.dumps(line) for line in lines)
    return f"{json.dumps(dict(head))[:-1]}, {json.dumps(name)}: [\n{each}\n]}}\n"


def main(arguments: list[str]) -> None:
    summary = json.loads(SUMMARY.read_text()) if not arguments else None
    if summary is None:
        results, *others = (json.loads(Path(name).read_text()) for name in arguments)
        for other in others:
            if other["source"] != results["source"]:
                sys.exit("the results are of different code: give those of one commit")
            results["cells"] += other["cells"]
        if results["clean"] is None and results["commit"]:
            results["clean"] = source_of(results["commit"], ROOT) == results["source"] or None
            if not results["clean"]:
                sys.exit(f"the code that ran is not that of commit {results['commit'][:12]}")
        summary = aggregate(results)
        SUMMARY.write_text(_by_line(summary))
    REPORT.write_text(document(summary))
    README.write_text(with_table(README.read_text(), readme(summary)))


if __name__ == "__main__":
    main(sys.argv[1:])
