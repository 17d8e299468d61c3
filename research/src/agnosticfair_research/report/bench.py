"""The benchmark in words and tables, all made from its cells: nothing is typed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agnosticfair.report.words import Grid
from agnosticfair_research.benchmark import DEVELOPMENT, OURS
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.verdict import (
    BAR,
    MAIN_LIMIT,
    MORE,
    NEAR,
    Json,
    Judged,
    Pair,
    error,
    is_constant,
    judged,
    mean,
    reached,
)

HEADER = (
    "entrant",
    "sees it",
    "balanced",
    "accuracy",
    "positives",
    "overall",
    "mean",
    "p90",
    "max",
)


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    rows = [f"| {' | '.join(line)} |" for line in (header, *lines)]
    return "\n".join([rows[0], f"|{'---|' * len(header)}", *rows[1:]])


def span(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> span([20, 21, 22, 30]), span([3])
    ('seeds 20 to 22 and 30', 'seed 3')
    """
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    words = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return f"seed{'s' * (len(seeds) > 1)} {' and '.join(words)}" if words else "no seed"


def sections(summary: Json, projected: int = 20) -> dict[str, str]:
    """Every table in Markdown, by name."""
    lines = summary["lines"]
    texts = {"provenance": provenance(summary["provenance"])}
    for protocol in ("balanced", "rate"):
        verdicts = judged(lines, protocol)
        texts |= {
            f"verdict-{protocol}": verdict_sentence(verdicts),
            f"cells-{protocol}": verdict_table(verdicts),
            f"grid-{protocol}": verdict_grid(verdicts),
            f"main-{protocol}": overview(lines, protocol),
            f"tables-{protocol}": every_table(lines, protocol),
        }
    return texts | {
        "promises": promise_table(summary["promises"]),
        "cost": cost_table(summary["cost"], projected),
        "entrants": entrants(lines),
    }


def provenance(about: Json) -> str:
    """Which seeds, of which code."""
    seeds = sorted({seed for each in about["seeds"].values() for seed in each})
    kind = "development" if {*seeds} <= {*DEVELOPMENT} else "reported"
    commits, clean = about["commits"], "without" if about["clean"] else "some with"
    words = [
        f"**{kind.capitalize()} {span(seeds)}**, {about['cells']} cells, code of commit"
        f"{'s' * (len(commits) > 1)} {', '.join(f'`{c}`' for c in commits)} ({clean} local changes)."
    ]
    fewer = [
        f"{d} {span(of_it)}" for d, of_it in about["seeds"].items() if of_it and of_it != seeds
    ]
    absent = [d for d, of_it in about["seeds"].items() if not of_it]
    words += [f"Of some only: {'; '.join(fewer)}."] if fewer else []
    words += [f"Not run: {', '.join(absent)}."] if absent else []
    words += [f"{about['failed']} cells gave no result."] if about["failed"] else []
    return " ".join(words)


def verdict_sentence(cells: Sequence[Judged]) -> str:
    """Whether the bar is met, and where."""
    if not cells:
        return "Not run."
    by, lax = reached(cells), reached(cells, empty=True)
    all_there = all(count == len(DATASETS) for _, count in by.values())
    reachable = all(n + len(DATASETS) - count >= BAR for n, count in by.values())
    word = "open, as not all data sets were run" if reachable and not all_there else "missed"
    word = "met" if all(n >= BAR for n, _ in by.values()) else word
    said = f"The verdict is **{word}: {_counts(by)}** (bar: {BAR} of 7)."
    if lax != by:
        said += f" Were a data set on which nobody can be compared counted as met: {_counts(lax)}."
    return said


def _counts(by: Mapping[float, tuple[int, int]]) -> str:
    return ", ".join(f"{met} of {count} at {limit:g}" for limit, (met, count) in by.items())


def verdict_table(cells: Sequence[Judged]) -> str:
    """Every cell: our default, then each method that it is compared with."""
    header = ("data", "limit", f"`{OURS}`: balanced, p90 / max", "verdict", "compared with")
    return table(header, [_verdict_line(cell) for cell in cells])


def verdict_grid(cells: Sequence[Judged]) -> str:
    """Met or missed, and to whom, a line for each data set and a column for each limit."""
    limits = sorted({cell.limit for cell in cells})
    words = {(c.dataset, c.limit): "**met**" if c.met else c.why for c in cells}
    data = dict.fromkeys(cell.dataset for cell in cells)
    lines = [(name, *(words.get((name, limit), "none") for limit in limits)) for name in data]
    return table(("data", *(f"limit {limit:g}" for limit in limits)), lines)


def _verdict_line(cell: Judged) -> tuple[str, ...]:
    word = "met" if cell.met else f"missed: {cell.why}"
    pairs = "; ".join(map(_pair, cell.pairs))
    return (cell.dataset, f"{cell.limit:g}", _brief(cell.ours), word, pairs)


def _pair(pair: Pair) -> str:
    numbers = f"{100 * pair.more:+.1f}, {pair.p90:+.3f} / {pair.max:+.3f}"
    return f"{pair.rival} at {pair.request:g} {pair.outcome} ({numbers})"


def _brief(line: Json | None) -> str:
    if line is None or not line["seeds"]:
        return "none"
    constant = " \\*" if is_constant(line) else ""
    return (
        f"{mean(line, 'balanced'):.3f}, {mean(line, 'p90'):.3f} / {mean(line, 'max'):.3f}{constant}"
    )


def overview(lines: Sequence[Json], protocol: str, limit: float = MAIN_LIMIT) -> str:
    """Every entrant on every data set at one limit."""
    chosen = [x for x in lines if (x["protocol"], x.get("limit")) == (protocol, limit)]
    data = [name for name in DATASETS if any(line["dataset"] == name for line in chosen)]
    by = {(line["entrant"], line["dataset"]): line for line in chosen}
    names = dict.fromkeys(line["entrant"] for line in chosen)
    rows = [(_name(name, chosen), *(_brief(by.get((name, d))) for d in data)) for name in names]
    return table(("entrant", *data), rows)


def _name(name: str, lines: Sequence[Json]) -> str:
    about = next(line for line in lines if line["entrant"] == name)
    word = "ours" if about["ours"] else "sees it" if about["sees"] else ""
    return f"**{name}**" if name == OURS else f"{name} ({word})" if word else name


def every_table(lines: Sequence[Json], protocol: str) -> str:
    """A table for each data set at MAIN_LIMIT, every number with its standard error over seeds."""
    texts = []
    for grid in grids([x for x in lines if x.get("limit") == MAIN_LIMIT], protocol):
        texts += [f"**{grid.title}.**", grid.note, table(grid.header, grid.lines)]
    return "\n\n".join(filter(None, texts))


def grids(lines: Sequence[Json], protocol: str = "balanced") -> list[Grid]:
    """A table for each data set and limit."""
    chosen = [x for x in lines if x["protocol"] == protocol and "limit" in x]
    keys = dict.fromkeys((x["dataset"], x["limit"]) for x in chosen)
    return [_grid(lines, protocol, data, limit) for data, limit in keys]


def _grid(lines: Sequence[Json], protocol: str, data: str, limit: float) -> Grid:
    at = (protocol, data, limit)
    chosen = [x for x in lines if (x["protocol"], x["dataset"], x.get("limit")) == at]
    failed = [f"{x['entrant']}: no result: {x['why']}" for x in chosen if not x["seeds"]]
    rows = [_line(line) for line in chosen if line["seeds"]]
    return Grid(f"{data}, {protocol}, limit {limit:g}", "\n".join(failed), HEADER, rows)


def _line(line: Json) -> tuple[str, ...]:
    constant = " (constant)" if is_constant(line) else ""
    name = line["entrant"] + ("" if mean(line, "kept") > 0.5 else " †")
    numbers = [_sure(line, k) for k in ("balanced", "accuracy", "positives", "overall")]
    numbers[2] += constant
    numbers += [_sure(line, k) for k in ("mean", "p90", "max")]
    return (name, "yes" if line["sees"] else "no", *numbers)


def _sure(line: Json, name: str) -> str:
    spread = error(line, name)
    return f"{mean(line, name):.3f}" + (f" ± {spread:.3f}" if np.isfinite(spread) else "")


def promise_table(promises: Sequence[Json]) -> str:
    """What was certified and what happened, over seeds and natural deployments."""
    header = (
        *("data", "limit", "deployments", "certified", "happened", "beyond it"),
        *(
            "subgroups beyond theirs",
            "mix changed (row)",
            "outside (row)",
            "broken (row)",
            "warned",
        ),
    )
    lines = [
        (
            row["dataset"],
            f"{row['limit']:g}",
            f"{row['deployments']}",
            f"{row['promised']:.3f}",
            f"{row['happened']:.3f}",
            f"{row['beyond']}",
            f"{row['broken']} of {row['subgroups']}",
            *(_when(row, name) for name in ("changed", "outside", "alarmed")),
            f"{row['warned']} of {row['hidden']}",
        )
        for row in promises
    ]
    return table(header, lines)


def _when(row: Mapping[str, Any], name: str) -> str:
    at = row[f"{name}_row"]
    return f"{row[name]}" + ("" if at is None else f" ({at:,.0f})")


def cost_table(costs: Sequence[Json], projected: int) -> str:
    """Processor seconds of a seed by protocol, our default's share of it, and data set; and of so many seeds."""
    data = [name for name in DATASETS if any(c["dataset"] == name for c in costs)]

    def line(text: str, of: Iterable[Json]) -> tuple[str, ...]:
        seconds = dict.fromkeys(data, 0.0)
        for cost in of:
            seconds[cost["dataset"]] += cost["seconds"]
        return text, *(f"{s:.0f}" for s in seconds.values()), f"{sum(seconds.values()):.0f}"

    lines = []
    for protocol in dict.fromkeys(c["protocol"] for c in costs):
        chosen = [c for c in costs if c["protocol"] == protocol]
        lines.append(line(protocol, chosen))
        if protocol != "promise":
            lines.append(line(f"- of it `{OURS}`", [c for c in chosen if c["entrant"] == OURS]))
    lines.append(line("a seed", costs))
    return f"{table(('s', *data, 'all'), lines)}\n\n{projection(costs, projected)}"


def projection(costs: Sequence[Json], seeds: int = 20) -> str:
    """What so many seeds of these cells cost."""
    hours = seeds * sum(cost["seconds"] for cost in costs) / 3600
    return f"{seeds} seeds of these: {hours:.1f} hours of one core, {hours / 2:.1f} on two."


def entrants(lines: Sequence[Json]) -> str:
    """What each entrant is."""
    seen = {line["entrant"]: line for line in lines}
    words = [
        f"- `{name}`: {line['note']}{'; sees the attribute' if line['sees'] else ''}; "
        f"{'pooled rows' if line['pooled'] else 'federated'}; {'ours' if line['ours'] else 'of others'}."
        for name, line in seen.items()
    ]
    return "\n".join(words)


def document(summary: Json) -> str:
    """The page of a run."""
    texts = sections(summary)
    near = f"{100 * NEAR:g} point or one standard error, {100 * MORE:g} points"
    return "\n\n".join(
        [
            "# Benchmark",
            texts["provenance"],
            f"## Verdict\n\n{texts['verdict-balanced']} Like accuracy: {near}. In brackets: balanced accuracy of ours "
            "less theirs in points, then their p90 / max less ours.",
            texts["cells-balanced"],
            f"## At a fixed rate of positives\n\n{texts['verdict-rate']}",
            texts["cells-rate"],
            f"## Promises under shift\n\n{texts['promises']}",
            f"## Every entrant at limit {MAIN_LIMIT:g}\n\n† no setting keeps the limit on training rows.",
            texts["tables-balanced"],
            texts["tables-rate"],
            f"## Cost\n\n{texts['cost']}",
            f"## Entrants\n\n{texts['entrants']}\n",
        ]
    )
