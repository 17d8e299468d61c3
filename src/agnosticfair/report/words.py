"""What card, page and terminal say of a model, each sentence once: the verdict on the first screen, what was measured
and certified, where the claims are weak; and tables of texts, for Markdown and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from agnosticfair.auditing.certificate import Certificate, lower, upper
from agnosticfair.data.storage import Decided
from agnosticfair.fitted import TOLERANCE, Fit
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.metrics import METRICS, PARITY

if TYPE_CHECKING:
    from rich.console import Group

Json = Mapping[str, Any]
FEW_ROWS = 100
"""A group of fewer rows is warned of."""

FOUR_FIFTHS = 0.8
TRAINING = "training rows"
EXPECTED = 0.025
"""The share of subgroups whose counted difference may be over the limit by two standard errors, by chance."""

EVERY = "in every named subgroup"  # what a limit is about
OVERALL = "overall"
SET = "for every reweighting in its set"

SIGNS = {"broken": "✗", "unknown": "?", "kept": "✓", "": ""}
"""What a verdict may be, the worst first, and its sign."""


@dataclass(frozen=True)
class Glance:
    """The first screen: a state of SIGNS, the answer in a sentence, and tiles of a label, a value and a text."""

    state: str
    answer: str
    tiles: tuple[tuple[str, str, str], ...] = ()

    @property
    def sign(self) -> str:
        return SIGNS[self.state]


# --- the first screen ---


def scope_of(fairness: Json | None) -> str:
    """What a method's tau is about.  fairness: as JSON has it."""
    kind = ((fairness or {}).get("basis") or {}).get("kind")
    return {"subgroups": EVERY, "constant": OVERALL, None: EVERY}.get(kind, SET)


def headline(study: Json) -> str:
    """The method that the page speaks of first: of the smallest certified difference, or measured one."""
    for key in ("certified", "difference"):
        there = [m for m in study["methods"] if m.get(key) is not None]
        if there:
            return min(there, key=lambda m: m[key])["name"]
    return study["methods"][0]["name"]


def glance(study: Json) -> Glance:
    """What was asked, whether it is kept, the worst subgroup, the four-fifths rule and the price."""
    method = _first(study)
    if method.get("difference") is None:
        return Glance("", "")
    state, answer = verdict(study)
    warnings = (text[0].upper() + text[1:] for text in method.get("warnings") or ())
    answer = " ".join((answer, *warnings))
    tiles = [_limit_tile(study, method), _overall(study, method), _worst(study, method)]
    tiles += [_four_fifths(study, method), _price(study, method)]
    return Glance(state, answer, tuple(tile for tile in tiles if tile))


def verdict(study: Json) -> tuple[str, str]:
    """Whether the limit is kept: certified, broken on the rows, or not known; with its sentence."""
    method, limit, what = _first(study), study.get("limit"), study["metric"]["quantity"]
    measured, rows = method.get("difference"), study["rows_are"]
    bound = method.get("certified")
    if measured is None:
        return "", ""
    if method.get("unclaimed"):
        return "unknown", str(method["unclaimed"])
    subgroups = method.get("subgroups") or {}
    able = subgroups.get("estimable") or []
    worst = max(able, key=lambda subgroup: subgroup["difference"], default=None)
    highest = measured if worst is None else max(measured, worst["difference"])
    if limit is None:
        where = "" if bound is None else f"; certified at most {upper(bound)}"
        at_worst = f" overall, {highest:.4f} at worst" if able else ""
        return "", f"No limit was asked for: {what} {measured:.4f}{at_worst} on the {rows}{where}."
    if bound is None and study["rows_are"] == TRAINING and method.get("estimated") and subgroups:
        return _in_training(method, limit, what)
    surest = (subgroups.get("surest") or {}).get("low")
    over = highest > limit or (surest is not None and surest > limit)
    if over and bound is not None and (outcome := _beyond(study, subgroups, limit, what)):
        return outcome
    if measured > limit + (TOLERANCE if rows == TRAINING else 0.0):
        text = f"Broken: {what} {measured:.4f} on the {rows}, and {limit:g} was asked for."
        return "broken", text
    if worst is not None and worst["difference"] > limit:
        return _over(method, worst, limit, what)
    if bound is not None and bound <= limit:
        text = f"Kept: {what} certified at most {upper(bound)}, and {limit:g} was asked for."
        over_limit = [one for one in subgroups.get("few") or () if one["difference"] > limit]
        if over_limit:  # the largest is the first
            text += (
                f" Not claimed where rows are too few to know ({subgroups['counts'][1]:,} subgroups): {what} up to "
                f"{over_limit[0]['difference']:.4f} {_where(over_limit[0])} ({over_limit[0]['rows']:,} rows)."
            )
        return "kept", text
    if bound is None:
        few = "no subgroup has rows enough" if subgroups and not able else "nothing is certified"
        return "unknown", (
            f"Not known yet whether it keeps {limit:g}: {what} {highest:.4f} on the {rows}, but {few}. 'agnosticfair "
            "plan-audit' says how many rows held out would do."
        )
    return "unknown", (
        f"Not enough rows: {what} {highest:.4f} at worst keeps {limit:g}, but is certified only up to "
        f"{upper(bound)}.{_rows_that_would_do(study, able, limit)}"
    )


def _beyond(study: Json, subgroups: Json, limit: float, what: str) -> tuple[str, str] | None:
    """The verdict where measured differences are over a limit: whether some certified interval lies beyond it; None
    where there is none."""
    some = [*(subgroups.get("estimable") or ()), subgroups.get("overall") or {}]
    there = [one for one in some if one.get("low") is not None]
    if not there:
        return None
    surest = max([*there, subgroups.get("surest") or there[0]], key=lambda one: one["low"])
    if surest["low"] > limit:
        return "broken", (
            f"Broken: {what} {surest['difference']:.4f} {_where(surest)}, in the population at least "
            f"{lower(surest['low'])}, and {limit:g} was asked for."
        )
    worst = max(there, key=lambda one: one["difference"])
    rows = _rows_that_would_do(study, [worst], limit)
    return "unknown", (
        f"Not known: {what} {worst['difference']:.4f} {_where(worst)} is over {limit:g}, which was asked for, and may "
        f"be chance: in the population it lies between {lower(worst['low'])} and {upper(worst['high'])}.{rows}"
    )


def _in_training(method: Json, limit: float, what: str) -> tuple[str, str]:
    """The verdict of a rule on the rows that it was made of: tau limits its estimates there, and what is counted is
    over it by chance besides (by more than two standard errors: not by chance)."""
    estimated, subgroups = method["estimated"], method["subgroups"]
    worst, over, able = estimated["difference"], subgroups["over"], subgroups["counts"][0]
    if not estimated["kept"]:
        return "broken", (
            f"Broken in training: by the rule's estimates the {what} is up to {worst:.4f}, and {limit:g} was asked "
            "for: more rounds (--max-rounds) may lower it."
        )
    asked = (
        f"by the rule's estimates the {what} is at most {limit:g} {method.get('scope') or EVERY}"
    )
    if worst > limit + TOLERANCE:
        asked += f" ({worst:.4f} with decisions rounded to yes or no)"
    are = "is" if over < 2 else "are"
    counted = f"counted, {over or 'none'} of {able:,} subgroups {are} over it by more than chance"
    rows = [f"{_rounded(number):,}" for number in subgroups["needed"]]
    new = (
        f"New rows: nothing is certified yet; an audit of about {rows[0]} rows tells it overall to "
    )
    new += f"±{subgroups['precision']:g}"
    new += f", of {rows[1]} in half of the subgroups" if len(rows) > 1 else ""
    if over > EXPECTED * max(able, 1):
        return "unknown", f"Not known: {asked}; but {counted}. {new}."
    return "kept", f"Kept in training: {asked}; {counted}. {new}."


def _where(subgroup: Json) -> str:
    """A subgroup's place in a sentence.

    >>> _where({"name": "overall"}), _where({"name": "age = under 29"})
    ('overall', 'where age = under 29')
    """
    return subgroup["name"] if subgroup["name"] == "overall" else f"where {subgroup['name']}"


def _over(method: Json, worst: Json, limit: float, what: str) -> tuple[str, str]:
    """The verdict where a subgroup's measured difference is over the limit."""
    where = f"{worst['difference']:.4f} {_where(worst)}"
    scope = method.get("scope") or EVERY
    if scope == EVERY:
        return "broken", f"Broken: {what} {where}, and {limit:g} was asked for."
    return "broken", f"Broken in a subgroup ({limit:g} was asked for {scope}): {what} {where}."


def _rows_that_would_do(study: Json, able: Sequence[Json], limit: float) -> str:
    """How many rows like these would tell on which side of the limit they are, if every difference stays as measured:
    an interval shrinks with the root of the rows.

    >>> subgroup = {"difference": 0.05, "low": 0.0, "high": 0.25}
    >>> _rows_that_would_do({"rows": 1000}, [subgroup], 0.15)
    ' About 4,000 rows like these would do.'
    """
    bounded = [{**p, "low": p.get("low") or 0.0} for p in able if p.get("high") is not None]
    ends = [
        (p["difference"], p["high"] if p["difference"] < limit else p["low"])
        for p in bounded
        if p["low"] <= limit < p["high"] and p["difference"] != limit
    ]
    if not ends or not study.get("rows"):
        return ""
    more = max((end - value) / (limit - value) for value, end in ends) ** 2
    return f" About {_rounded(study['rows'] * more):,} rows like these would do."


def _rounded(rows: float) -> int:
    """Up to two digits."""
    digits = 10 ** max(0, len(str(ceil(rows))) - 2)
    return int(ceil(rows / digits - 1e-9) * digits)


def _first(study: Json) -> Json:
    name = headline(study)
    return next(m for m in study["methods"] if m["name"] == name)


def _limit_tile(study: Json, method: Json) -> tuple[str, str, str]:
    limit, what, subgroups = (
        study.get("limit"),
        study["metric"]["quantity"],
        method.get("subgroups") or {},
    )
    if limit is None:
        return "Asked", "no limit", "'audit --limit 0.1' asks for one, and gets an answer here"
    level = method.get("confidence")
    sure = f", with {level:.0%} confidence" if subgroups.get("certified") and level else ""
    return "Asked", f"≤ {limit:g}", f"{what} {method.get('scope') or EVERY}{sure}"


def _overall(study: Json, method: Json) -> tuple[str, str, str]:
    rows = f"{study['rows']:,} {study['rows_are']}" if "rows" in study else study["rows_are"]
    about = f"{study['metric']['quantity']}, measured on {rows}"
    if (overall := _of_overall(method)) is not None and overall.get("high") is not None:
        about += f"; certified at most {upper(overall['high'])}"
    return "Overall", f"{method['difference']:.4f}", about


def _of_overall(method: Json) -> Json | None:
    return (method.get("subgroups") or {}).get("overall")


def _worst(study: Json, method: Json) -> tuple[str, str, str] | None:
    """The subgroup that differs most, among those with rows enough; else among the others."""
    subgroups = method.get("subgroups") or {}
    able, few = subgroups.get("estimable") or [], subgroups.get("few") or []
    corner = (study.get("explorer") or {}).get("corners", {}).get(method["name"])
    if not able and not few:
        if not corner:
            return None
        return "Worst subgroup", f"{corner['difference']:.4f}", _corner_words(study, corner)
    subgroup = max(able or few, key=lambda subgroup: subgroup["difference"])
    about = f"{subgroup['name']} ({subgroup['rows']:,} rows)"
    if not able:
        about += ": too few to be certain"
    elif subgroup.get("high") is not None:
        about += f"; at most {upper(subgroup['high'])}"
    else:
        about += f", counted on the {study['rows_are']}, chance included"
    return "Worst subgroup", f"{subgroup['difference']:.4f}", about


def _four_fifths(study: Json, method: Json) -> tuple[str, str, str] | None:
    """Whether every group gets positive decisions at four fifths of the highest group's rate, overall; for other rates
    the lowest over the highest."""
    overall, rates = _of_overall(method) or {}, _rates(study, method["name"])
    words = METRICS[study["metric"]["name"]].ratio
    ratio, low = overall.get("ratio"), overall.get("ratio_low")
    if not words:
        return None
    selected = words == PARITY.ratio  # the rates of decisions are what is compared
    if selected and ratio is None and len(rates) > 1 and max(rates.values()) > 0:
        ratio = min(rates.values()) / max(rates.values())
    if ratio is None:
        return None
    about = f"{words} overall {ratio:.4f}"
    about += f" on the {study['rows_are']}"
    about += "" if low is None else f", in the population at least {lower(low)}"
    worst = (method.get("subgroups") or {}).get("ratio")
    if low is not None and worst and worst["measured"] < ratio:
        about += f"; {worst['measured']:.4f} where {worst['name']}"
    if not selected:
        return "Ratio", f"{ratio:.4f}", about
    met = "not met" if ratio < FOUR_FIFTHS else "met" if (low or 0) >= FOUR_FIFTHS else "unsure"
    return "Four-fifths rule", met, about


def _price(study: Json, method: Json) -> tuple[str, str, str] | None:
    right, majority = method.get("accuracy"), (study.get("facts") or {}).get("majority_rate")
    if right is None:
        return None
    about = "" if majority is None else f"; a constant decision: {majority:.4f}"
    return (
        "Accuracy",
        f"{right:.4f}",
        method.get("shadow_price") or f"share of right decisions{about}",
    )


# --- sentences ---


def direction(study: Json) -> str:
    """Who is favoured, and what the labels themselves say."""
    facts, sentences = study.get("facts") or {}, []
    rates = _rates(study, headline(study))
    if len(rates) > 1:
        highest, lowest = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
        sentences.append(
            f"Favoured: {highest} ({rates[highest]:.4f} decided positively) over {lowest} ({rates[lowest]:.4f})."
        )
    if facts.get("base_rate") is not None:
        sentences.append(f"Labelled positive: {facts['base_rate']:.4f} of the {study['rows_are']}.")
    if facts.get("label_difference") is not None:
        sentences.append(f"The labels' own difference: {facts['label_difference']:.4f}.")
    return " ".join(sentences)


def _rates(study: Json, name: str) -> dict[str, float]:
    for entry in study.get("clients") or ():
        if (entry["method"], entry["client"]) == (name, "all rows"):
            return {g: v["rate"] for g, v in entry["groups"].items() if v["rate"] is not None}
    return {}


def sentences(study: Json) -> list[str]:
    """Who is favoured, what is certified over which set, and where that ends."""
    method = _first(study)
    texts = [direction(study), _certified(study, method), _compared(study), _corner(study, method)]
    return [text for text in texts if text]


def _certified(study: Json, method: Json) -> str:
    """What is certified, but for what the page's list of warnings has."""
    nothing = "Nothing is certified here: these numbers hold for these rows only."
    sentence = str(method.get("sentence") or nothing)
    for warning in study.get("warnings") or ():
        sentence = sentence.replace(f" {warning}", "")
    return sentence


def _compared(study: Json) -> str:
    there = [m for m in study["methods"] if m.get("accuracy") is not None]
    if len(study["methods"]) < 2 or not there:
        return ""
    best = max(there, key=lambda m: m["accuracy"])
    text = f"Of {len(study['methods'])} methods {best['name']} is the most accurate: {best['accuracy']:.4f}"
    if best.get("difference") is not None:
        text += f", {study['metric']['quantity']} {best['difference']:.4f}"
    bound = best.get("certified")
    return f"{text}{'' if bound is None else f', certified within {upper(bound)}'}."


def _corner(study: Json, method: Json) -> str:
    corner = (study.get("explorer") or {}).get("corners", {}).get(method["name"])
    if not corner:
        return ""
    text = (
        f"A subgroup can differ from the whole: {_corner_words(study, corner)}, {method['name']} has a "
        f"{study['metric']['quantity']} of {corner['difference']:.4f}, the most of {corner['tried']} subgroups with at "
        f"least {study['explorer']['min_rows']} rows."
    )
    bound = method.get("certified")
    if bound is None or corner["difference"] <= bound:
        return text
    why = "this subgroup has too few rows to be among the estimable ones, or is cut otherwise"
    return (
        f"{text} That is above the certified {upper(bound)}: {why}. It is measured, not certified."
    )


def _corner_words(study: Json, corner: Json) -> str:
    columns = zip(study["explorer"]["columns"], corner["only"], strict=True)
    subgroups = [f"{c['name']} {c['values'][k]}" for c, k in columns if k is not None]
    where = f"with {' and '.join(subgroups)}" if subgroups else "taken together"
    return f"among the {corner['rows']:,} test rows {where}"


# --- what the rows themselves say ---


def of_decisions(rows: Decided, method: str) -> str:
    """A method's accuracy beside what it is to be read against, in a sentence.

    rows: with decisions, 0 or 1.
    """
    y, y_hat, names = rows.y, rows.decisions[method], rows.s.categories
    rates = scoring.positive_rates(y_hat, rows.s.codes, y, len(names))
    right, base = scoring.accuracy(y, y_hat), scoring.positive_rate(y)
    majority, positive = scoring.majority_rate(y), scoring.positive_rate(y_hat)
    shown = ", ".join(f"{name} {p:.4f}" for name, p in zip(names, rates.tolist(), strict=True))
    return (
        f"Right on {right:.4f} of the rows, a constant decision on {majority:.4f}; positive labels "
        f"{base:.4f}, positive decisions {positive:.4f}; true-positive rates: {shown}."
    )


CHECKS = "check which label is positive, and the threshold"
"""What to do about a model that may be anybody's."""


def poor(accuracy: float, majority: float, positive: float, remedy: str = CHECKS) -> list[str]:
    """Sentences of warning about a model that is hardly better than a constant decision.

    positive: its share of positive decisions.

    >>> poor(0.75, 0.76, 0.3, "try a larger tau")
    ['The model is right less often (0.7500) than a constant decision (0.7600): try a larger tau.']
    """
    sentences = []
    if accuracy < majority - 5e-4:
        sentences.append(
            f"The model is right less often ({accuracy:.4f}) than a constant decision ({majority:.4f}): {remedy}."
        )
    if scoring.nearly_constant(accuracy, majority, positive):
        answer = "positively" if positive > 0.5 else "negatively"
        sentences.append(
            f"The model decides nearly everybody ({max(positive, 1 - positive):.1%}) {answer}: equal, and hardly a "
            f"decision; {remedy}."
        )
    return sentences


def poor_fit(fitted: Fit, accuracy: float, majority: float, positive: float) -> list[str]:
    """The same of a fit, by what it knows of itself: where it says itself that it decides nearly everybody alike, with
    what would change that, nothing else is advised."""
    rule, optimum = fitted.method.rule, fitted.optimum
    if rule is not None and rule.costs is not None:  # then accuracy is not what is asked for
        return [] if fitted.collapsed is None else [fitted.collapsed]
    limited = fitted.method.fairness is not None and (optimum is None or not optimum.unchanged)
    remedy = "try a larger tau or method fl" if limited else "try more columns or another learner"
    sentences = poor(accuracy, majority, positive, remedy)
    if fitted.collapsed is None:
        return sentences
    return [*(text for text in sentences if "right less often" in text), fitted.collapsed]


# --- where the claims of a page are weak ---


def doubts_of_methods(methods: Sequence[Json]) -> list[str]:
    ended = {m["name"]: str(m.get("outcome") or "") for m in methods}
    return [f"{name}: {how}." for name, how in ended.items() if how.startswith("not ")]


def doubts_of_rows(rows: Decided) -> list[str]:
    sizes = np.bincount(rows.s.codes, minlength=len(rows.s.categories))
    return [
        f"Group {name!r} has only {size} test rows: its rates are uncertain."
        for name, size in zip(rows.s.categories, sizes, strict=True)
        if size < FEW_ROWS
    ]


def doubts_of_fit(events: Sequence[Json], certificate: Json, sensitive_feature: str) -> list[str]:
    missing = [e for e in events if e["event"] in ("no answer", "restated")]
    said = (f"{k} {v}" for event in missing for k, v in event.items())
    doubts = [f"Replies were missing: {', '.join(said)}."] if missing else []
    others = certificate.get("others") or {}
    if others:
        doubts.append(f"The groups here are those of {sensitive_feature!r}, the worst.")
    doubts += [f"By {name!r} it is: {says}" for name, says in others.items()]
    return doubts + doubts_of_certificate(certificate)


def doubts_of_certificate(certificate: Json) -> list[str]:
    if "subgroups" not in certificate:
        return [certificate.get("sentence") or "There is no certificate."]
    parsed = Certificate.from_json(certificate)
    few = [
        f"Group {rate.group!r} has only {rate.rows} rows in the certificate: its rates are uncertain."
        for rate in parsed.subgroups[0].rates
        if rate.rows < FEW_ROWS
    ]
    return [*parsed.warnings, *few]


@dataclass(frozen=True)
class Grid:
    """A table of texts; ``brief`` has the columns that a narrow terminal shows, () for all."""

    title: str
    note: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]
    brief: Sequence[int] = ()


def terminal(grid: Grid) -> Group:
    """The grid's brief columns; a terminal of 80 characters holds the paper's tables."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    style: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "pad_edge": False}
    table = Table(show_edge=False, show_header=any(grid.header), **style)
    brief = grid.brief or range(len(grid.header))
    for k in brief:
        number = any(line[k][:1].isdigit() for line in grid.lines)
        justify: Literal["right", "left"] = "right" if number else "left"
        table.add_column(Text(grid.header[k]), justify=justify, no_wrap=number or k == 0)
    for line in grid.lines:
        table.add_row(*(Text(line[k].replace(" ± ", "±")) for k in brief))
    around: list[Any] = [Text(grid.title, "bold"), table, Text(grid.note)]
    return Group(*(block for block in around if block))


def min_width(grid: Grid) -> int:
    """Characters that the table needs: names and numbers whole, of other texts the longest word."""
    total = 0
    for k in grid.brief or range(len(grid.header)):
        cells = [line[k].replace(" ± ", "±") for line in grid.lines]
        whole = k == 0 or any(cell[:1].isdigit() for cell in cells)
        words = [word for text in (grid.header[k], *cells) for word in text.split() or [""]]
        total += 2 + max(map(len, (grid.header[k], *cells) if whole else words))
    return total


def blocks(grid: Grid) -> Group:
    """The grid for a narrow terminal: for each line its name, and its values one beneath the other."""
    from rich.console import Group
    from rich.text import Text

    brief = [k for k in grid.brief or range(len(grid.header)) if k]
    wide = max((len(grid.header[k]) for k in brief), default=0)
    pieces: list[Any] = [Text(grid.title, "bold")] if grid.title else []
    for line in grid.lines:
        pieces.append(Text(line[0], "bold"))
        pieces += [Text(f"  {grid.header[k]:<{wide}}  {line[k]}") for k in brief if line[k]]
    return Group(*pieces, *([Text(grid.note)] if grid.note else []))
