"""Write the tables of research/docs/blind.md from what the benchmarks left: no number there is typed.

    python benchmarks/write_blind.py --commit HASH decisions.jsonl limit.jsonl

Each file is that of the benchmark of its name, on seeds that nobody had looked at; tables whose file is not given stay.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path

import numpy as np

from agnosticfair_research.report.bench import table

DOCUMENT = Path(__file__).resolve().parents[1] / "research/docs/blind.md"


def seeds_of(rows: Sequence[dict]) -> str:
    ordered = sorted({row["seed"] for row in rows})
    return f"{ordered[0]} to {ordered[-1]}"


def matching(rows: Iterable[dict], **wanted: object) -> list[dict]:
    return [row for row in rows if all(row.get(k) == v for k, v in wanted.items())]


def values(rows: Iterable[dict], key: str) -> list:
    """Every value of a key, in the order they come."""
    return [*dict.fromkeys(row[key] for row in rows if key in row)]


def decisions(rows: Sequence[dict]) -> str:
    """How many fits converged, by method and metric and by data set, and the peer."""
    fits = [r for r in rows if r["method"] != "peer" and "error" not in r]
    peers = [r for r in rows if r["method"] == "peer" and "error" not in r]
    lines = []
    for name, metric in product(
        sorted(values(fits, "method"), reverse=True), values(fits, "metric")
    ):
        own = matching(fits, method=name, metric=metric)
        ended = matching(own, outcome="converged")
        over = sum(r["decided"] > r["limit"] + 0.002 for r in ended)
        rest = [r["decided"] - r["limit"] for r in own if r["outcome"] != "converged"]
        excess = f"{max(rest):.3f}" if rest else ""
        rounds = np.mean([r["rounds"] for r in own])
        lines.append(
            (
                f"`{name}`, {metric}",
                f"{len(ended)} of {len(own)}",
                str(over),
                f"{rounds:.1f}",
                excess,
            )
        )
    header = ("method, metric", "converged", "over", "rounds, mean", "largest excess of others")
    told = [table(header, sorted(lines, key=lambda line: line[0].startswith("`a")))]
    if peers:
        told.append(
            "`fairfl` held to the difference that fairlearn's ExponentiatedGradient ended with on the training "
            "rows; test rows:\n"
        )
        lines = [
            _peer(data, matching(peers, dataset=data)) for data in sorted(values(peers, "dataset"))
        ]
        told.append(table(("data", "accuracy less its, mean (least)", "its time / ours"), lines))
    return "\n\n".join(text.rstrip("\n") for text in told)


def _peer(data: str, rows: Sequence[dict]) -> tuple[str, str, str]:
    less = [r["accuracy"] - r["peer_accuracy"] for r in rows]
    faster = np.median([r["peer_seconds"] / r["seconds"] for r in rows])
    return data, f"{np.mean(less):+.4f} ({min(less):+.4f})", f"{faster:.1f}"


def limit(rows: Sequence[dict]) -> str:
    """Which limits are claimed, and kept on fresh rows."""
    lines = []
    for data, setting, request in sorted({(r["dataset"], r["setting"], r["limit"]) for r in rows}):
        own = matching(rows, dataset=data, setting=setting, limit=request)
        said = matching(own, claimed=True)
        some = said or own
        means = [
            np.mean([r[k] for r in some]) for k in ("upper", "fresh_worst", "accuracy", "positive")
        ]
        kept = f"{np.mean([r['kept'] for r in said]):.2f}" if said else "-"
        shown = [f"{v:.3f}" for v in means]
        lines.append(
            (f"{data}, {setting}", f"{request:.2f}", f"{len(said)}/{len(own)}", kept, *shown)
        )
    header = (
        "data, setting",
        "limit",
        "claimed",
        "kept of these",
        "upper",
        "fresh worst",
        "accuracy",
        "positive rate",
    )
    return table(header, lines)


TABLES: dict[str, Callable[[Sequence[dict]], str]] = {
    "decisions": decisions,
    "limit": limit,
}


def placed(text: str, name: str, content: str) -> str:
    """The text with other content between a table's two marks."""
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
    head, rest = text.split(begin)
    return f"{head}{begin}{content}\n{end}{rest.split(end)[1]}"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--commit", required=True)
    words.add_argument("files", nargs="+", type=Path)
    request = words.parse_args()
    text = DOCUMENT.read_text()
    for path in request.files:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        about = f"`{path.stem}.py`, seeds {seeds_of(rows)}, at `{request.commit[:7]}`:"
        text = placed(text, path.stem, f"{about}\n\n{TABLES[path.stem](rows)}")
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    main()
