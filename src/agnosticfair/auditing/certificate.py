"""What an audit finds, as a value: the bounds, the set they hold over, and where they are reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from html import escape
from math import ceil, floor, isfinite, nan
from typing import Any

import numpy as np

from agnosticfair.auditing.parts import PartRecord, worst_of
from agnosticfair.data.encoding import shown
from agnosticfair.errors import needing
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.basis import Basis
from agnosticfair.mathematics.notions import NOTIONS

FORMAT = "agnosticfair-certificate-1"


@dataclass(frozen=True)
class Group:
    """A group on the rows as they are, and on the worst deployment: share of the mass, and rate."""

    rows: int
    share: float
    rate: float
    worst_share: float
    worst_rate: float


@dataclass(frozen=True)
class Tilt:
    """A feature's mean over the rows, and on the worst deployment; ``shift``: by how many standard
    deviations that one is higher."""

    feature: str
    mean: float
    worst_mean: float
    shift: float


@dataclass(frozen=True, eq=False)
class Certificate:
    """What holds for every reweighing alpha of the rows in A = {0 <= alpha <= bound, mean weight 1}.

    Attributes
    ----------
    worst_difference : float
        No alpha shows more between two groups that each keep the share ``floor`` of the mass, and alpha_difference
        shows at least that less ``tolerance``.
    worst_accuracy : float
        No alpha shows less, and alpha_accuracy shows it.
    difference, accuracy : float
        Measured on the rows as they are, a weighting that need not lie in A. Without labels accuracies are nan.
    pair : tuple of str
        The two groups, the one of the higher rate first (a notion that bounds: twice the group of the highest error
        rate, and that rate instead of a difference).
    intervals, confidence, resamples : mapping, float, int
        See ``audit``.
    tolerance, outcome : float, Outcome
        FAILED: the tolerance asked for was not reached; the bounds hold all the same.
    notion, basis, bound, floor
        What was asked for.
    n : int
        Rows.
    groups : mapping of str to Group
    under_floor : tuple of str
        Groups that have the share ``floor`` under no alpha; they are compared with none.
    alpha_difference, alpha_accuracy : (M,) array
        The worst reweighings.
    profile : tuple of Tilt
        The features, the most shifted first.
    worst_rows, worst_weights : (k,) array or None
        The rows weighed most by alpha_difference, and their weights, mean one over all rows; None where rows stay
        with clients.
    centres : (M, d) array or None
        To give to another audit.
    parts : tuple of PartRecord
        What holds for every named part, where the set is made of them; worst_difference and pair are then those of
        the worst estimable one.
    upper : float
        The bound beyond the rows, over the whole set at ``confidence``; nan where the rows are those of the fit.
    precision : float
        Parts known no better than +- this are not estimable.
    share : float
        Of 1 - confidence that each kind of bound has.
    mixtures, kernels : float or None, mapping or None
        The bounds that ``upper`` is the largest of, besides the parts'.
    sums : mapping or None
        What ``verify`` computes all of it from.
    notes : tuple of str
        Where bounds do not hold; and which limit they keep, where one was asked for.
    """

    worst_difference: float
    worst_accuracy: float
    difference: float
    accuracy: float
    pair: tuple[str, str]
    intervals: Mapping[str, tuple[float, float]]
    confidence: float
    resamples: int
    tolerance: float
    outcome: Outcome
    notion: str
    basis: Basis
    bound: float
    floor: float
    n: int
    groups: Mapping[str, Group]
    under_floor: tuple[str, ...]
    alpha_difference: np.ndarray = field(repr=False)
    alpha_accuracy: np.ndarray = field(repr=False)
    profile: tuple[Tilt, ...] = field(repr=False)
    worst_rows: np.ndarray | None = field(default=None, repr=False)
    worst_weights: np.ndarray | None = field(default=None, repr=False)
    centres: np.ndarray | None = field(default=None, repr=False)
    parts: tuple[PartRecord, ...] = field(default=(), repr=False)
    upper: float = nan
    precision: float = 0.1
    share: float = 1.0
    mixtures: float | None = None
    kernels: Mapping[str, Any] | None = field(default=None, repr=False)
    sums: Mapping[str, Any] | None = field(default=None, repr=False)
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain lists and finite numbers, None for others; without the centres, which are rows."""
        return {"format": FORMAT, **plain(asdict(replace(self, centres=None)))}

    @property
    def quantity(self) -> str:
        """What is compared between the groups, in words."""
        return NOTIONS[self.notion].quantity

    @property
    def about(self) -> str:
        """The set that the certificate holds over, in words."""
        return about(self.basis, self.bound)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where the certificate says less than it seems to, a sentence each."""
        return warnings({**vars(self), "outcome": str(self.outcome)})

    @property
    def worst_part(self) -> PartRecord | None:
        """The estimable part of the largest measured difference."""
        return worst_of(self.parts)

    @property
    def worst_ratio(self) -> tuple[float, float, str] | None:
        """The smallest impact ratio measured in an estimable part, what none is below at ``confidence``, and where it
        was measured; None where no rate is positive."""
        able = [part for part in self.parts if part.estimable]
        there = [part for part in able if isfinite(part.ratio)]
        if not there:
            return None
        worst = min(there, key=lambda part: part.ratio)
        return worst.ratio, min(part.ratio_low for part in able), worst.name

    def to_frame(self) -> Any:
        """The parts as a pandas frame, a line each; without parts the groups."""
        with needing("audit", "a frame needs the package 'pandas'"):
            import pandas as pd

        if self.parts:
            kept = [{k: v for k, v in vars(p).items() if k != "rates"} for p in self.parts]
            return pd.DataFrame(kept).set_index("name")
        return pd.DataFrame({name: vars(group) for name, group in self.groups.items()}).T

    def plot(self) -> Any:
        """A figure: the forest of parts with their intervals, or measured against certified over kernels."""
        from importlib import import_module

        # the report draws what this room finds, and is looked up only when somebody looks
        return import_module("agnosticfair.report.certificate").figure(self)

    def _repr_html_(self) -> str:
        """For notebooks: the sentence, and the worst estimable parts."""
        able = worst_first(self.parts)[:10]
        few = not_estimable(self.parts)
        left = f"{len(few):,} more parts are not estimable: too few rows." if few else ""
        rows = "".join(
            f"<tr><td>{escape(p.name)}</td><td>{p.rows:,}</td><td>{p.difference:.3f}</td>"
            f"<td>{f'{p.low:.3f} to {upper(p.high, 3)}' if isfinite(p.high) else 'measured only'}</td></tr>"
            for p in able
        )
        head = f"<tr><th>part</th><th>rows</th><th>{self.quantity}</th><th>{self.confidence:.0%}</th></tr>"
        table = f"<table>{head}{rows}</table><p>{left}</p>" if rows else ""
        return f"<p>{escape(str(self))}</p>{table}"

    def __str__(self) -> str:
        if self.parts and (isfinite(self.upper) or self.basis.kind == "constant"):
            return in_parts(self)
        return " ".join((self._over_kernels(), *only_measured(self)))

    def _over_kernels(self) -> str:
        worst, (high, low) = upper(self.worst_difference), self.pair
        where = f"between {high!r} and {low!r}" if high != low else f"for {high!r}"
        text = (
            f"Certified over A ({self.about}): {self.quantity} at most {worst} "
            f"(measured {self.difference:.4f}), {where} while each keeps "
            f"{100 * self.floor:g}% of the mass"
        )
        if isfinite(self.accuracy):
            least = lower(self.worst_accuracy)
            text += f"; accuracy at least {least} (measured {self.accuracy:.4f})"
        if isfinite(self.upper):
            text += f"; with {self.confidence:.0%} confidence at most {upper(self.upper)} in the population"
        return " ".join((f"{text}.", *self.warnings))


def in_parts(made: Certificate) -> str:
    """What is certified, what was only measured and what is not estimable, in two or three sentences."""
    if not isfinite(made.upper):
        return " ".join((*only_measured(made), *made.warnings))
    able = [part for part in made.parts if part.estimable]
    accuracy = f"; accuracy {made.accuracy:.4f}" if isfinite(made.accuracy) else ""
    if made.worst_part is None:
        text = (
            f"Nothing is certified: no part has rows enough for +-{made.precision:g} at {made.confidence:.0%} "
            f"confidence "
            f"(measured for everybody: {made.quantity} {made.parts[0].difference:.4f}){accuracy}."
        )
        return " ".join((text, *made.warnings))
    part = made.worst_part
    pair = " and ".join(map(repr, dict.fromkeys(part.pair)))
    what = f"each of {len(able):,} parts" + (
        " and all their mixtures" if made.mixtures is not None else ""
    )
    what += f" and {made.about}" if made.kernels is not None else ""
    text = (
        f"Certified with {made.confidence:.0%} confidence for {what}: {made.quantity} at most {upper(made.upper)} "
        f"(measured {part.difference:.4f} {'for' if not part.depth else 'where'} {part.name}, "
        f"{'between' if len({*part.pair}) > 1 else 'for'} {pair} on {part.rows:,} rows; "
        f"everybody {made.parts[0].difference:.4f}){_ratio(made)}{accuracy}."
    )
    return " ".join((text, *made.warnings))


def _ratio(made: Certificate) -> str:
    """The impact ratio of the worst part, for the four-fifths rule, in words."""
    if made.worst_ratio is None or NOTIONS[made.notion].bounds:
        return ""
    measured, least, name = made.worst_ratio
    return f"; impact ratio at least {lower(least)} (measured {measured:.4f}, {name})"


def limit_sentence(
    limit: float, kept: bool, made: Certificate, confidence: float | None = None
) -> str:
    """What may be said of a limit on the strength of one certificate.  confidence: the certificate's unless said."""
    level = f"{made.confidence if confidence is None else confidence:.0%} confidence"
    able = [part for part in made.parts if part.estimable]
    if kept:
        what = "smaller bounds of single parts would hold for a model that was not chosen by them"
        return f"Keeps the limit {limit:g} with {level} in each of {len(able):,} estimable parts; {what}."
    if made.upper <= limit:
        why = "decisions are nearly all alike, or another sensitive feature is in the way"
        return f"The limit {limit:g} is not claimed: {why}."
    least = f"the smallest that can is {upper(made.upper)}"
    said = f"The limit {limit:g} cannot be claimed with {level}: {least}."
    return f"{said} In the way: {'; '.join(in_the_way(limit, made)[:3])}."


def in_the_way(limit: float, made: Certificate) -> tuple[str, ...]:
    """The parts above a limit, the worst first: for a measured difference, or for too few rows to know."""
    able = [part for part in made.parts if part.estimable]
    if not able:
        return ("no part has rows enough for the precision asked for",)
    return tuple(
        f"{part.name} ({part.rows:,} rows) shows {part.difference:.3f}"
        + ("" if part.difference > limit else ", with too few rows to know")
        for part in sorted(able, key=lambda part: -part.high)
        if part.high > limit and isfinite(part.difference)
    )


def worst_first(parts: Sequence[PartRecord]) -> list[PartRecord]:
    """The estimable parts, the highest bound first; by what was measured where nothing is bounded."""
    able = [part for part in parts if part.estimable]
    return sorted(able, key=lambda p: -p.high if isfinite(p.high) else -p.difference)


def only_measured(made: Certificate) -> tuple[str, ...]:
    """What parts show on the rows of the fit, where nothing is bounded beyond them: a sentence, or none."""
    if not made.parts or isfinite(made.upper):
        return ()
    able = [part for part in made.parts if part.estimable]
    part = made.worst_part or made.parts[0]
    few = any(isfinite(part.difference) for part in not_estimable(made.parts))
    were = "was" if len(able) == 1 else "were"
    which = "with rows enough" if few else f"that {were} compared"
    return (
        f"Measured on the rows of the fit, and not certified: {made.quantity} up to {part.difference:.4f} in "
        f"{len(able):,} part{'s' * (len(able) != 1)} {which} ({part.name}, {part.rows:,} rows); audit rows "
        "held out for a bound.",
    )


def not_estimable(parts: Sequence[PartRecord]) -> tuple[PartRecord, ...]:
    """Parts with too few rows, the largest measured difference first."""
    few = [part for part in parts if not part.estimable]
    return tuple(
        sorted(few, key=lambda part: -part.difference if isfinite(part.difference) else 1.0)
    )


def about(basis: Basis, bound: float) -> str:
    """Kernels and bound of a set A in words."""
    kernels = {
        "constant": "uniform weights",
        "by_client": "mixtures of the clients",
        "function": f"{basis.kernels} kernels of a function",
    }
    many = f"{basis.kernels} gaussian kernels of width {basis.sigma:.3g}"
    limit = f"bound {bound:g}" if isfinite(bound) else "no bound"
    return f"{kernels.get(basis.kind, many)}, {limit}"


def warnings(made: Mapping[str, Any]) -> tuple[str, ...]:
    """The same of a certificate as JSON."""
    told = [*made.get("notes", ())]
    named = made.get("parts") and isfinite(made.get("upper") or nan)
    if made["under_floor"] and not named:
        share = f"{100 * made['floor']:g}%"
        told.append(f"Left out, as it never has {share} of the mass: {shown(made['under_floor'])}.")
    if made["outcome"] != Outcome.OPTIMAL:
        gap = f"by up to {made['tolerance']:.4f}"
        what = NOTIONS[made["notion"]].quantity
        told.append(f"The search stopped early: the worst {what} may be less {gap}.")
    return tuple(told)


def upper(value: float, digits: int = 4) -> str:
    """An upper bound in so many digits, never below it.

    >>> upper(0.23001), upper(0.23), upper(0.23001, 2)
    ('0.2301', '0.2300', '0.24')
    """
    return f"{ceil(value * 10**digits - 1e-6) / 10**digits:.{digits}f}"


def lower(value: float, digits: int = 4) -> str:
    """A lower bound in so many digits, never above it.

    >>> lower(0.61009)
    '0.6100'
    """
    return f"{floor(value * 10**digits + 1e-6) / 10**digits:.{digits}f}"


def plain(value: Any) -> Any:
    """As JSON has it: lists for arrays, None for what is not finite."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value
