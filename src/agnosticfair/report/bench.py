"""The benchmark in numbers and words: means over seeds, verdicts, a written report and README's table.

All of it is made from the results; nothing is typed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from agnosticfair.data.datasets import DATASETS
from agnosticfair.report.static import static
from agnosticfair.report.tables import Grid

Json = dict[str, Any]
OURS = "agnosticfair-named"
MAIN_LIMIT = 0.1
NEAR = 0.02  # accuracy that a verdict allows below the best that keeps the limit
CONSTANT = 0.01  # share of positives, or negatives, under which a classifier hardly decides
COUNTED = ("won", "alike", "ahead", "unbeaten")  # what a verdict may say for our default
KEPT = 0.5  # share of seeds in which the rule must find the limit kept, to count as keeping it

NUMBERS = {
    "accuracy": lambda row: row["test"]["accuracy"],
    "accuracy_error": lambda row: row["test"]["accuracy_error"],
    "balanced": lambda row: row["test"]["balanced_accuracy"],
    "positives": lambda row: row["test"]["positive_rate"],
    "test": lambda row: row["test"]["risk_difference"],
    "test_error": lambda row: row["test"]["risk_difference_error"],
    "mean": lambda row: row["all"]["mean"],
    "p90": lambda row: row["all"]["p90"],
    "max": lambda row: row["all"]["max"],
    "max_error": lambda row: row["worst_error"],
    "error": lambda row: row["all"]["error"],
    "beyond": lambda row: row["all"]["beyond"],
    "count": lambda row: row["all"]["count"],
    "kept": lambda row: float(row["kept"]),
    "cross_worst": lambda row: row["cross_worst"],
    "sceptic_accuracy": lambda row: row["sceptic"]["accuracy"],
    "sceptic_mean": lambda row: row["sceptic"]["mean"],
    "sceptic_p90": lambda row: row["sceptic"]["p90"],
    "sceptic_max": lambda row: row["sceptic"]["max"],
    "ratio": lambda row: row["ratio"],
}


def aggregate(results: Mapping[str, Any]) -> Json:
    """The results without single seeds and deployments: a line per data set, split, limit and entrant."""
    groups: dict[tuple[str, str, str], list[Json]] = {}
    for cell in results["cells"]:
        groups.setdefault((cell["dataset"], cell["split"], cell["entrant"]), []).append(cell)
    limits = sorted({row["limit"] for cell in results["cells"] for row in cell["rows"]})
    lines = [
        _line(limit, *key, those)
        for key, those in groups.items()
        for limit in limits or [MAIN_LIMIT]
    ]
    order = [*DATASETS]
    lines.sort(
        key=lambda line: (line["split"] != "shift", order.index(line["dataset"]), line["limit"])
    )
    head = {k: results[k] for k in ("commit", "clean", "source", "absent")}
    seeds = sorted({cell["seed"] for cell in results["cells"]})
    return {"format": "agnosticfair-bench-summary-1", **head, "seeds": seeds, "lines": lines}


def _line(limit: float, dataset: str, split: str, entrant: str, cells: Sequence[Json]) -> Json:
    rows = [
        row | {"seed": cell["seed"]}
        for cell in cells
        for row in cell["rows"]
        if row["limit"] == limit
    ]
    whys = [cell["why"] for cell in cells if "why" in cell]
    about = {k: cells[0][k] for k in ("note", "sees", "pooled", "ours")}
    head = {"dataset": dataset, "split": split, "entrant": entrant, "limit": limit, **about}
    head |= {"seeds": len(rows), "failed": len(whys), "why": whys[0] if whys else None}
    if not rows:
        return head
    values = {name: [get(row) for row in rows] for name, get in NUMBERS.items()}
    kinds = {
        kind: {
            k: _short(np.mean([r["kinds"][kind][k] for r in rows])) for k in ("mean", "p90", "max")
        }
        for kind in rows[0]["kinds"]
        if all(kind in row["kinds"] for row in rows)
    }
    worst = [row["worst"] for row in rows]
    return head | {
        **{name: _short(np.mean(found)) for name, found in values.items()},
        "spread": {
            k: _short(np.std(values[k], ddof=len(rows) > 1)) for k in ("accuracy", "p90", "max")
        },
        "each": [[row["seed"], [_short(row["all"][k]) for k in ("p90", "max")]] for row in rows],
        "kinds": kinds,
        "worst": max(worst, key=worst.count),
    }


def _short(value: Any) -> float:
    return float(f"{float(value):.5g}")


def verdict(lines: Iterable[Json]) -> Json:
    """How our default stands on one data set at one limit, among those that decide and do not see the attribute.

    best: the most accurate that keeps the limit.  lowest: whose p90 and max are lowest.  won: both are
    our default's, at an accuracy within two points of the best that keeps the limit.  alike: the same among those
    within two points of it, for whoever gives up more accuracy is lower by that.  ahead: the same among our default
    and the methods of others.  beaten: by whom among those alike, beyond error; unbeaten: by nobody, where our default
    decides, at that accuracy.
    """
    blind = [line for line in lines if line["seeds"] and not line["sees"]]
    own = next((line for line in blind if line["entrant"] == OURS), None)
    there = [line for line in blind if not is_constant(line)]
    keeping = [line for line in there if line["kept"] > KEPT]
    best = max(keeping, key=lambda line: line["accuracy"], default=None)
    near = own is not None and best is not None and own["accuracy"] >= best["accuracy"] - NEAR
    alike = [t for t in there if best is not None and t["accuracy"] >= best["accuracy"] - NEAR]
    others = [t for t in there if t is own or not t["ours"]]
    above = {t["entrant"]: _above(t, own or t) for t in there}
    means = {name: found.mean(axis=0) for name, found in above.items()}
    lowest = {
        k: min(means, key=lambda name: means[name][place])
        for place, k in enumerate(("p90", "max"))
        if means
    }

    def leads(among: Sequence[Json]) -> bool:
        return near and own in there and all((means[t["entrant"]] >= 0).all() for t in among)

    won = {"won": leads(there), "alike": leads(alike), "ahead": leads(others)}
    beaten = [t["entrant"] for t in alike if own is not None and _beyond(-above[t["entrant"]])]
    won["unbeaten"] = near and own in there and not beaten
    return {"own": own, "best": best, "lowest": lowest, "near": near, **won, "beaten": beaten}


def _above(line: Json, own: Json) -> np.ndarray:
    """By how much p90 and max are above our default's, (seeds, 2), on the seeds that both have."""
    theirs, ours = (dict(t["each"]) for t in (line, own))
    shared = sorted(theirs.keys() & ours.keys())
    return np.array([np.subtract(theirs[seed], ours[seed]) for seed in shared] or [[np.inf] * 2])


def _beyond(more: np.ndarray) -> bool:
    """Whether a mean over seeds, of (seeds, 2), is over two of its standard errors."""
    n = len(more)
    return n > 1 and bool((more.mean(axis=0) > 2 * more.std(axis=0, ddof=1) / np.sqrt(n)).any())


def is_constant(line: Json) -> bool:
    """Whether hardly any row of the test set is decided otherwise than the rest: fair, and of no use."""
    return not CONSTANT < line["positives"] < 1 - CONSTANT


def by_data(summary: Json, split: str = "shift") -> dict[str, dict[float, list[Json]]]:
    """The lines of a split: data set -> limit -> its entrants."""
    found: dict[str, dict[float, list[Json]]] = {}
    for line in summary["lines"]:
        if line["split"] == split:
            found.setdefault(line["dataset"], {}).setdefault(line["limit"], []).append(line)
    return found


HEADER = (
    *(
        "entrant",
        "sees it",
        "accuracy",
        "balanced",
        "positives",
        "RD test",
        "RD mean",
        "p90",
        "max",
    ),
    *("beyond", "kept", "sceptic p90 / max", "time"),
)


def _cells(line: Json) -> list[str]:
    name = f"**{line['entrant']}**" if line["entrant"] == OURS else line["entrant"]
    sees = "yes" if line["sees"] else "no"
    if not line["seeds"]:
        return [name, sees, f"no result: {line['why']}", *[""] * (len(HEADER) - 3)]
    return [
        name,
        sees,
        f"{line['accuracy']:.3f} ± {line['accuracy_error']:.3f}",
        f"{line['balanced']:.3f}",
        f"{line['positives']:.3f}" + (" (constant)" if is_constant(line) else ""),
        f"{line['test']:.3f} ± {line['test_error']:.3f}",
        f"{line['mean']:.3f} ± {line['error']:.3f}",
        f"{line['p90']:.3f}",
        f"{line['max']:.3f} ± {line['max_error']:.3f}",
        f"{line['beyond']:.0f} of {line['count']:.0f}",
        f"{line['kept'] * line['seeds']:.0f} of {line['seeds']}",
        f"{line['sceptic_p90']:.3f} / {line['sceptic_max']:.3f}",
        f"{line['ratio']:.1f}",
    ]


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table.

    >>> print(table(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    rows = [f"| {' | '.join(line)} |" for line in (header, *lines)]
    return "\n".join([rows[0], f"|{'---|' * len(header)}", *rows[1:]])


def _grid(dataset: str, split: str, limit: float, lines: Sequence[Json]) -> Grid:
    return Grid(
        f"{dataset}, {split}, limit {limit:g}", "", HEADER, [tuple(_cells(line)) for line in lines]
    )


def grids(results: Mapping[str, Any]) -> list[Grid]:
    """A table per data set and limit."""
    summary = aggregate(results)
    return [
        _grid(data, split, limit, lines)
        for split in dict.fromkeys(line["split"] for line in summary["lines"])
        for data, limits in by_data(summary, split).items()
        for limit, lines in limits.items()
    ]


def document(results: Mapping[str, Any]) -> str:
    """The written report: question, protocol, verdict, results, where we lose, a paragraph per data set."""
    summary = results if "lines" in results else aggregate(results)
    assert isinstance(summary, dict)
    parts = [static("benchmark.md"), _provenance(summary), _verdicts(summary), _losses(summary)]
    parts += ["## Every cell\n"]
    for split in dict.fromkeys(line["split"] for line in summary["lines"]):
        for data, limits in by_data(summary, split).items():
            about = f" {DATASETS[data].note}." if split == "shift" else " At random, 70/30."
            parts += [f"### {data}, {split}\n", f"{about.strip()} {paragraph(limits)}\n"]
            for limit, those in limits.items():
                parts += [f"Limit {limit:g}:\n", table(HEADER, map(_cells, those)) + "\n"]
    parts += [_entrants(summary)]
    return "\n".join(parts).rstrip() + "\n"


def _provenance(summary: Json) -> str:
    seeds = summary["seeds"]
    kind = "reported" if seeds and min(seeds) >= 20 else "development"
    state = {True: "without local changes", False: "with local changes", None: "as stated"}
    commit = f"commit `{summary['commit'][:12]}`" if summary["commit"] else "an unknown commit"
    absent = "".join(f" Not here, so left out: {name}." for name in summary["absent"])
    return (
        f"Results of {commit} ({state[summary['clean']]}), {kind} {_span(seeds)}, means over the seeds; ± is the mean "
        f"standard error of one seed's number.{absent}\n"
    )


def _span(seeds: Sequence[int]) -> str:
    if len(seeds) < 2:
        return f"seed {seeds[0]}" if seeds else "no seed"
    return f"seeds {seeds[0]} to {seeds[-1]}"


def _judged(summary: Json) -> Iterator[tuple[str, float, Json]]:
    """The verdict of every data set and limit."""
    for data, limits in by_data(summary).items():
        for limit, those in limits.items():
            yield data, limit, verdict(those)


def _verdicts(summary: Json) -> str:
    lines = []
    for data, limit, v in _judged(summary):
        best, lowest = v["best"], [v["lowest"].get(name, "") for name in ("p90", "max")]
        kept = f"{best['entrant']} {_brief(best)}" if best else "nobody"
        said = ["yes" if v[name] else "no" for name in COUNTED]
        numbers = (f"{limit:g}", _brief(v["own"]), kept, *lowest)
        lines.append((data, *numbers, *said, ", ".join(v["beaten"])))
    header = ["data", "limit", OURS, "most accurate that keeps it", "lowest p90", "lowest max"]
    header += [*COUNTED, "lower beyond error"]
    text = (
        "Among entrants that do not see the attribute and are not constant; accuracy, then RD p90 / max "
        "over all deployments. "
        "*Won*: our default has the lowest p90 and the lowest max at an accuracy within "
        f"{NEAR:g} of the best that keeps the limit. *Alike*: the same among those whose accuracy is within that, for "
        "whoever gives up more of it is lower by that alone. *Ahead*: the same among our default and the methods of "
        "others, our other recipes left out. *Lower beyond error*: those alike whose p90 or max is lower by over two "
        "standard errors of the seeds' differences; *unbeaten*, which is less than won: there are none. An entrant "
        "with fewer seeds is compared on these."
    )
    count, limits = len(by_data(summary)), _limits(summary)

    def told(name: str) -> str:
        place = header.index(name)
        won = [sum(x[1] == f"{limit:g}" and x[place] == "yes" for x in lines) for limit in limits]
        return ", ".join(
            f"{n} of {count} at {limit:g}" for n, limit in zip(won, limits, strict=True)
        )

    counts = " ".join(f"{name.capitalize()}: {told(name)}." for name in COUNTED)
    return f"## Verdict\n\n{text} {counts}\n\n{table(header, lines)}\n"


def _limits(summary: Json) -> list[float]:
    return sorted({line["limit"] for line in summary["lines"]})


def _brief(line: Json | None) -> str:
    if line is None or not line["seeds"]:
        return "none"
    return f"{line['accuracy']:.3f}, {line['p90']:.3f} / {line['max']:.3f}"


def _losses(summary: Json) -> str:
    """Every data set and limit where our default does not win, and why not."""
    found = [
        f"- {data}, limit {limit:g}: {_why(v)}"
        for data, limit, v in _judged(summary)
        if not v["won"]
    ]
    return "## Where we lose\n\n" + ("\n".join(found) if found else "Nowhere in this run.") + "\n"


def _why(v: Json) -> str:
    own, best = v["own"], v["best"]
    if own is None:
        return "our default gave no result."
    told = ["our default is constant"] if is_constant(own) else []
    told += [
        f"the lowest {k} is {name}'s" for k, name in v["lowest"].items() if name != own["entrant"]
    ]
    if best is None:
        told.append("nobody keeps the limit on the training rows")
    elif not v["near"]:
        gap = best["accuracy"] - own["accuracy"]
        told.append(
            f"{best['entrant']} keeps the limit and is {100 * gap:.1f} points more accurate"
        )
    return "; ".join(told) + "."


def paragraph(limits: Mapping[float, Sequence[Json]]) -> str:
    """What was found on one data set, in words."""
    limit = MAIN_LIMIT if MAIN_LIMIT in limits else min(limits)
    there = {line["entrant"]: line for line in limits[limit] if line["seeds"]}
    own, plain = there.get(OURS), there.get("fl") or there.get("boosted-tree")
    if own is None:
        return "Our default gave no result."
    said = [
        f"At limit {limit:g} our default has accuracy {own['accuracy']:.3f} and RD p90 / max {_both(own)} "
        f"(worst: {own['worst']})"
    ]
    if plain is not None:
        said[0] += f", where {plain['entrant']} has {plain['accuracy']:.3f} and {_both(plain)}"
    fair = there.get("fairfl")
    if fair is not None:
        gain = 1 - own["p90"] / fair["p90"] if fair["p90"] > 0 else 0.0
        cost = 100 * (fair["accuracy"] - own["accuracy"])
        if gain > 0.1:
            said.append(
                "Against fairness under training weights alone (`fairfl`) robustness takes "
                f"{100 * gain:.0f}% off the p90 for {cost:.1f} points of accuracy"
            )
        else:
            said.append(
                f"Robustness buys little here: `fairfl` has p90 {fair['p90']:.3f}, "
                f"{cost:+.1f} points more accurate"
            )
    works = own["p90"] < own["sceptic_p90"]
    said.append(
        "The sceptic, who moves `fairfl`'s threshold to the same accuracy on training rows, has "
        f"{_both(own, 'sceptic_')}: "
        + ("more than other positives is at work" if works else "no worse than our default")
    )
    return ". ".join(said) + "."


def _both(line: Json, whose: str = "") -> str:
    return f"{line[f'{whose}p90']:.3f} / {line[f'{whose}max']:.3f}"


def _entrants(summary: Json) -> str:
    seen = {line["entrant"]: line for line in summary["lines"]}
    told = [
        f"- `{name}`: {line['note']}; {'pooled rows' if line['pooled'] else 'federated'}."
        for name, line in seen.items()
    ]
    return (
        "## Entrants\n\n"
        + "\n".join(told)
        + (
            "\n\nAn entrant is one file with `fit(train, limit) -> decide`, like "
            "`examples/entrant.py`. Name yours: "
            "`agnosticfair bench --entrants agnosticfair-named,mine.py --seeds 0-4`.\n"
        )
    )


def readme(summary: Json) -> str:
    """README's table: our default, the best of the others that do not see the attribute, and fairlearn's."""
    limit, lines = MAIN_LIMIT, []
    for data, limits in by_data(summary).items():
        there = [line for line in limits.get(limit, ()) if line["seeds"] and not line["sees"]]
        by = {line["entrant"]: line for line in there}
        lines.append(
            (
                data,
                *(
                    _brief(by.get(name))
                    for name in (OURS, "fairfl", "fairlearn-eg", "boosted-tree")
                ),
            )
        )
    header = ("data", f"`{OURS}`", "`fairfl`", "fairlearn's EG", "boosted tree")
    seeds = summary["seeds"]
    return (
        table(header, lines)
        + f"\n\nTest accuracy, then RD p90 / max over all deployments, at limit {limit:g}, "
        f"settings chosen on training rows; {_span(seeds)}, commit `{(summary['commit'] or 'unknown')[:12]}`.\n"
    )
