"""The benchmark in words: verdicts, a written report and README's table.

All of it is made from the results; nothing is typed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from agnosticfair.report.tables import Grid
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.report.bench_numbers import (
    COUNTED,
    MAIN_LIMIT,
    NEAR,
    OURS,
    Json,
    aggregate,
    by_data,
    is_constant,
    verdict,
)
from agnosticfair_research.report.static import static

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
    name, sees = line["entrant"], "yes" if line["sees"] else "no"
    if not line["seeds"]:
        return [name, sees, f"no result: {line['why']}", *[""] * (len(HEADER) - 3)]
    constant = " (constant)" if is_constant(line) else ""
    spread = line["spread"]["p90"]
    return [
        name,
        sees,
        _sure(line, "accuracy"),
        _sure(line, "balanced"),
        _sure(line, "positives") + constant,
        _sure(line, "test"),
        f"{line['mean']:.3f} ± {line['error']:.3f}",
        f"{line['p90']:.3f}" + (f" ({spread:.3f})" if line["seeds"] > 1 else ""),
        _sure(line, "max"),
        f"{line['beyond']:.0f} of {line['count']:.0f}",
        f"{line['kept'] * line['seeds']:.0f} of {line['seeds']}",
        f"{line['sceptic_p90']:.3f} / {line['sceptic_max']:.3f}",
        f"{line['ratio']:.1f}",
    ]


def _stressed(line: Json) -> list[str]:
    """The cells in Markdown, our default's name in bold."""
    name, *rest = _cells(line)
    return [f"**{name}**" if name == OURS else name, *rest]


def _sure(line: Json, name: str) -> str:
    return f"{line[name]:.3f} ± {line[f'{name}_error']:.3f}"


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
    """For a terminal: whoever has no result stands beneath, for a reason in a cell would widen its column."""
    there = [tuple(_cells(line)) for line in lines if line["seeds"]]
    told = [f"{x['entrant']}: no result: {x['why']}" for x in lines if not x["seeds"]]
    return Grid(f"{dataset}, {split}, limit {limit:g}", "\n".join(told), HEADER, there)


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
    """The report of a run: request, protocol, verdict, where we lose, every cell with a paragraph per data set, what
    was changed after results were seen, entrants."""
    return _report(results, _every_cell)


def overview(results: Mapping[str, Any]) -> str:
    """The same with one table for each split in the place of every cell."""
    return _report(results, _at_a_glance)


def _report(results: Mapping[str, Any], cells: Callable[[Json], list[str]]) -> str:
    summary = results if "lines" in results else aggregate(results)
    assert isinstance(summary, dict)
    subgroups = [static("benchmark.md"), _provenance(summary), _verdicts(summary), _losses(summary)]
    subgroups += [*cells(summary), static("benchmark_changes.md"), _entrants(summary)]
    return "\n".join(subgroups).rstrip() + "\n"


def _every_cell(summary: Json) -> list[str]:
    subgroups = ["## Every cell\n"]
    for split in _splits(summary):
        for data, limits in by_data(summary, split).items():
            about = f"{DATASETS[data].note}." if split == "shift" else "At random, 70/30."
            subgroups += [f"### {data}, {split}\n", f"{about} {paragraph(limits)}\n"]
            for limit, those in limits.items():
                subgroups += [f"Limit {limit:g}:\n", table(HEADER, map(_stressed, those)) + "\n"]
    return subgroups


def _at_a_glance(summary: Json) -> list[str]:
    """Every entrant on every data set, at the main limit."""
    subgroups = [
        f"## At limit {MAIN_LIMIT:g}\n",
        "Test accuracy, then RD p90 / max over all deployments. \\*: constant. Other limits, errors and every other "
        "number: `benchmark.json`.\n",
    ]
    for split in _splits(summary):
        found = {
            data: limits.get(MAIN_LIMIT, ()) for data, limits in by_data(summary, split).items()
        }
        names = dict.fromkeys(line["entrant"] for lines in found.values() for line in lines)
        by = {(line["entrant"], d): line for d, lines in found.items() for line in lines}
        rows = [(name, *(_short(by.get((name, data))) for data in found)) for name in names]
        subgroups += [table((split, *found), rows) + "\n"]
    return subgroups


def _short(line: Json | None) -> str:
    return _brief(line) + (" \\*" if line and line["seeds"] and is_constant(line) else "")


def _splits(summary: Json) -> list[str]:
    return [*dict.fromkeys(line["split"] for line in summary["lines"])]


def _provenance(summary: Json) -> str:
    seeds = summary["seeds"]
    kind = "reported" if seeds and min(seeds) >= 20 else "development"
    state = {True: "without local changes", False: "with local changes", None: "as stated"}
    commit = f"commit `{summary['commit'][:12]}`" if summary["commit"] else "an unknown commit"
    absent = "".join(f" Not here, so left out: {name}." for name in summary["absent"])
    return (
        f"Results of {commit} ({state[summary['clean']]}), {kind} {span(seeds)}, means over the seeds; ± is the mean "
        f"standard error of one seed's number, in brackets the deviation over seeds.{_fewer(summary)}{absent}\n"
    )


def _fewer(summary: Json) -> str:
    """Which splits and entrants were run on fewer seeds, or on fewer data sets, than the rest."""
    told = []
    for split in _splits(summary):
        ran: dict[str, dict[str, tuple[int, ...]]] = {}
        for line in summary["lines"]:
            if line["split"] == split and line["seeds"]:
                own = tuple(sorted(seed for seed, _ in line["each"]))
                ran.setdefault(line["entrant"], {})[line["dataset"]] = own
        data = {*by_data(summary, split)}
        usual = max((own for by in ran.values() for own in by.values()), key=len, default=())
        if len(usual) < len(summary["seeds"]):
            told.append(f"split {split} has {span(usual)}")
        for name, by in ran.items():
            alike = {*by} == data and len({*by.values()}) == 1
            had = {own: [d for d in by if by[d] == own] for own in by.values()}
            subgroups = [
                span(own) + ("" if alike else f" on {', '.join(d)}") for own, d in had.items()
            ]
            if not alike or usual not in had:
                told.append(f"{name} ({split}) has {' and '.join(subgroups)}")
    return f" Fewer were run of some: {'; '.join(told)}." if told else ""


def span(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> span([20, 21, 22, 30]), span([3])
    ('seeds 20 to 22 and 30', 'seed 3')
    """
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    told = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return f"seed{'s' * (len(seeds) > 1)} {' and '.join(told)}" if told else "no seed"


def _judged(summary: Json, split: str = "shift") -> Iterator[tuple[str, float, Json]]:
    """The verdict of every data set and limit."""
    for data, limits in by_data(summary, split).items():
        for limit, those in limits.items():
            yield data, limit, verdict(those)


def _counts(summary: Json, name: str, split: str = "shift") -> dict[float, int]:
    """On how many data sets a verdict says ``name``, by limit."""
    judged = [*_judged(summary, split)]
    return {limit: sum(v[name] for _, at, v in judged if at == limit) for limit in _limits(summary)}


def _reached(summary: Json, split: str = "shift", name: str = "won") -> str:
    data, counts = len(by_data(summary, split)), _counts(summary, name, split)
    return ", ".join(f"{n} of {data} at {limit:g}" for limit, n in counts.items())


def _met(summary: Json, name: str) -> str:
    met = [f"{limit:g}" for limit, n in _counts(summary, name).items() if n >= BAR]
    return f"met at {_listed(met)}" if met else "missed at every limit"


BAR = 4  # data sets of six on which our default was to win
MEANINGS = {
    "won": "of all entrants that do not see the attribute and are not constant",
    "alike": f"of those whose accuracy is within {NEAR:g} of the best, too: giving up accuracy lowers RD by itself",
    "ahead": "of itself and the methods of others: our other methods are left out",
    "unbeaten": "or is not told apart from it: nobody of *alike* is lower in p90 or max by over two standard errors of "
    "the seeds' differences",
}


def _absent(summary: Json) -> bool:
    """Whether our default is in no line."""
    return not any(line["entrant"] == OURS and line["seeds"] for line in summary["lines"])


def _verdicts(summary: Json) -> str:
    if _absent(summary):
        return f"## Verdict\n\n{bar(summary)}\n"
    count, heads = len(by_data(summary)), [f"at {limit:g}" for limit in _limits(summary)]
    counted = [
        (f"*{name}*", meaning, *(f"{n} of {count}" for n in _counts(summary, name).values()))
        for name, meaning in MEANINGS.items()
    ]
    header = ["data", "limit", OURS, "most accurate that keeps it", "lowest p90", "lowest max"]
    header += [*COUNTED, "lower beyond error"]
    return (
        f"## Verdict\n\n{bar(summary)}\n\n"
        f"{table(('', 'our default has the lowest p90 and max', *heads), counted)}\n\n"
        f"Throughout, its accuracy is within {NEAR:g} of the best that keeps the limit. Every cell (accuracy, then RD "
        "p90 / max over all deployments; an entrant with fewer seeds is compared on these):\n\n"
        f"{table(header, map(_judgement, _judged(summary)))}\n"
    )


def bar(summary: Json) -> str:
    """What our default was to reach, and whether it does."""
    if _absent(summary):
        return f"Our default (`{OURS}`) has not been run here: nothing is said of it."
    beside = "".join(
        f" On the split at random, beside the bar and among {_listed(there)} alone: {_reached(summary, split)}."
        for split in _splits(summary)
        if split != "shift"
        for there in [sorted({x["entrant"] for x in summary["lines"] if x["split"] == split})]
    )
    return (
        f"The bar, set beforehand: on at least {BAR} of six data sets, under their own shift, our default (`{OURS}`) "
        "has both the lowest p90 and the lowest max of all entrants that do not see the attribute, at an accuracy "
        f"within {NEAR:g} of the best of them that keeps the limit. **It is {_met(summary, 'won')}: "
        f"{_reached(summary)}.** Among itself and the methods of others, without our other methods, it is "
        f"{_met(summary, 'ahead')}: "
        f"{_reached(summary, name='ahead')}.{beside}"
    )


def _judgement(judged: tuple[str, float, Json]) -> tuple[str, ...]:
    data, limit, v = judged
    lowest = [v["lowest"].get(name, "") for name in ("p90", "max")]
    kept = f"{v['best']['entrant']} {_brief(v['best'])}" if v["best"] else "nobody"
    said = ["yes" if v[name] else "no" for name in COUNTED]
    return (data, f"{limit:g}", _brief(v["own"]), kept, *lowest, *said, ", ".join(v["beaten"]))


def _limits(summary: Json) -> list[float]:
    return sorted({line["limit"] for line in summary["lines"]})


def _brief(line: Json | None) -> str:
    if line is None or not line["seeds"]:
        return "none"
    return f"{line['accuracy']:.3f}, {line['p90']:.3f} / {line['max']:.3f}"


def _losses(summary: Json) -> str:
    """Every data set and limit where our default does not win, and why not; those with one reason together."""
    if _absent(summary):
        return "## Where we lose\n\nNot known: our default has not been run here.\n"
    lost = [(data, limit, v) for data, limit, v in _judged(summary) if not v["won"]]
    if not lost:
        return "## Where we lose\n\nNowhere in this run.\n"
    reasons: dict[tuple[str, str], list[str]] = {}
    for data, limit, v in lost:
        reasons.setdefault((data, _why(v)), []).append(f"{limit:g}")
    found = [
        f"- {data}, limit{'s' * (len(at) > 1)} {', '.join(at)}: {why}"
        for (data, why), at in reasons.items()
    ]
    every = len([*_judged(summary)])
    return (
        f"## Where we lose\n\n{common([v for *_, v in lost], every)}\n\n" + "\n".join(found) + "\n"
    )


def common(lost: Sequence[Json], every: int) -> str:
    """What the cells that our default does not win have in common."""
    there = [v for v in lost if v["own"] is not None and not is_constant(v["own"])]
    near = [v for v in there if v["near"]]
    reasons = {
        "our default is constant, or gave no result": len(lost) - len(there),
        "only other methods of ours are lower": sum(v["ahead"] for v in near),
        "a method of others is lower": sum(not v["ahead"] for v in near),
        f"our default is over {NEAR:g} less accurate than the best": len(there) - len(near),
    }
    told = "; in ".join(f"{n} {why}" for why, n in reasons.items() if n)
    costs = [cost for v in there for cost in v["lower"].values()]
    less = [cost for cost in costs if cost >= SAME]
    bought = (
        f" Lower differences are paid for in accuracy: of {len(costs)} times that an entrant is lower in p90 or max "
        f"there, it is less accurate {len(less)} times, by {100 * sum(less) / len(less):.1f} points on average."
        if len(less) > len(costs) / 2
        else ""
    )
    unbeaten = sum(v["unbeaten"] for v in lost) or "none"
    return (
        f"In {len(lost)} of {every} cells: in {told}.{bought} In {unbeaten} of the {len(lost)} nobody as accurate is "
        "lower beyond the error of the seeds."
    )


def _why(v: Json) -> str:
    own, best = v["own"], v["best"]
    if own is None:
        return "our default gave no result."
    told = ["our default is constant"] if is_constant(own) else []
    lower = sorted(v["lower"].items(), key=lambda item: item[1])
    if lower and not is_constant(own):
        told.append(f"lower: {_listed([f'{name} ({_priced(cost)})' for name, cost in lower])}")
    if best is None:
        told.append("nobody keeps the limit on the training rows")
    elif not v["near"]:
        told.append(f"{best['entrant']} keeps the limit and is {_priced(-v['behind'])}")
    return "; ".join(told) + "."


SAME = 0.0005  # accuracy that rounds to nothing


def _priced(cost: float) -> str:
    """An accuracy that is lost, in words.

    >>> _priced(0.012), _priced(-0.0001)
    ('1.2 points less accurate', 'as accurate')
    """
    if abs(cost) < SAME:
        return "as accurate"
    return f"{100 * abs(cost):.1f} points {'less' if cost > 0 else 'more'} accurate"


def _listed(words: Sequence[str]) -> str:
    """Words as a sentence lists them.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


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
    over = f"{own['beyond']:.0f} of {own['count']:.0f} deployments are over the limit beyond error"
    if plain is not None:
        said[0] += f", where {plain['entrant']} has {plain['accuracy']:.3f} and {_both(plain)}"
        over += f", with {plain['entrant']} {plain['beyond']:.0f}"
    said.append(over)
    if is_constant(own):
        alike = max(own["positives"], 1 - own["positives"])
        said.append(f"It decides {alike:.1%} of the rows alike, so that all this is worth nothing")
    else:
        said += _bought(own, there.get("fairfl"))
    return ". ".join([*said, _standing(limits)]) + "."


def _bought(own: Json, fair: Json | None) -> list[str]:
    """What robustness is worth against fairness under training weights, and against the sceptic."""
    said = []
    if fair is not None:
        gain = 1 - own["p90"] / fair["p90"] if fair["p90"] > 0 else 0.0
        price = _priced(fair["accuracy"] - own["accuracy"])
        said.append(
            f"Robustness takes {gain:.0%} off the p90 of fairness under training weights (`fairfl`), and is {price}"
            if gain > 0.1
            else f"Robustness buys little here: `fairfl` has p90 {fair['p90']:.3f}, and our default is {price}"
        )
    works = own["p90"] < own["sceptic_p90"]
    said.append(
        "The sceptic, who moves `fairfl`'s threshold to the same accuracy on training rows, has "
        f"{_both(own, 'sceptic_')}: "
        + ("more than other positives is at work" if works else "no worse than our default")
    )
    return said


def _standing(limits: Mapping[float, Sequence[Json]]) -> str:
    """At which limits our default wins, as the verdict says it."""
    won: dict[bool, list[str]] = {True: [], False: []}
    for limit, lines in limits.items():
        won[verdict(lines)["won"]].append(f"{limit:g}")
    told = [
        f"{word} at {_listed(won[by])}" for word, by in (("won", True), ("lost", False)) if won[by]
    ]
    return ", ".join(told).capitalize()


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
            "`agnosticfair-research bench --entrants rule,mine.py --seeds 0-4`.\n"
        )
    )
