"""Write research/docs/benchmark.json and benchmark.md from a benchmark's results.

    python benchmarks/write_benchmark.py bench/results.json ...

Several results are of the same code: other seeds, splits or entrants, no cell twice.
Without results it writes the text again from benchmark.json, or with --check compares it. Results
of a stated commit are checked against that commit of this repository: code that differs is refused.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

from agnosticfair_research.kept import source_of
from agnosticfair_research.report.bench_numbers import aggregate

from agnosticfair_research.benchmark import key_of
from agnosticfair_research.report.bench import overview

ROOT = Path(__file__).resolve().parents[1]
SUMMARY, REPORT = ROOT / "research/docs/benchmark.json", ROOT / "research/docs/benchmark.md"


def _by_line(summary: dict) -> str:
    """JSON with a line for each of the summary's."""
    *head, (name, lines) = summary.items()
    each = ",\n".join(json.dumps(line) for line in lines)
    return f"{json.dumps(dict(head))[:-1]}, {json.dumps(name)}: [\n{each}\n]}}\n"


def joined(every: list[dict]) -> dict:
    """Several results of the same code as one; what cannot be joined ends in a sentence."""
    first = every[0]
    keys = Counter(key_of(cell) for results in every for cell in results["cells"])
    twice = [key for key, count in keys.items() if count > 1]
    if any(results["source"] != first["source"] for results in every):
        sys.exit("the results are of different code: give those of one commit")
    if any(results["clean"] != first["clean"] for results in every):
        sys.exit("some of the results are of code with local changes: give those of one commit")
    if twice:
        sys.exit(f"{len(twice)} cells stand in two of the results ({twice[0]}): give each once")
    limits = {
        tuple(row["limit"] for row in cell["rows"])
        for results in every
        for cell in results["cells"]
        if cell["rows"]
    }
    if len(limits) > 1:
        sys.exit(f"the results are at different limits ({limits}): leave those of --quick out")
    absent = {name: why for results in every for name, why in results["absent"].items()}
    cells = [cell for results in every for cell in results["cells"]]
    present = {cell["dataset"] for cell in cells}
    absent = {name: why for name, why in absent.items() if name not in present}
    return first | {"cells": cells, "absent": absent}


def main(arguments: list[str]) -> None:
    from write_readme import write

    if arguments:
        results = joined([json.loads(Path(name).read_text()) for name in arguments])
        if results["clean"] is None and results["commit"]:
            results["clean"] = source_of(results["commit"], ROOT) == results["source"] or None
            if not results["clean"]:
                sys.exit(f"the code that ran is not that of commit {results['commit'][:12]}")
        SUMMARY.write_text(_by_line(aggregate(results)))
    write({REPORT: overview(json.loads(SUMMARY.read_text()))})


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if name != "--check"])
