"""What an audit finds, as a value: what was measured, what holds beyond the rows, and the counts that show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import ceil, floor, inf, isfinite, nan
from typing import Any

import numpy as np

from agnosticfair.auditing.subgroups import Rate, SubgroupRecord
from agnosticfair.data.encoding import shown
from agnosticfair.errors import needing
from agnosticfair.mathematics.ambiguity import Outcome
from agnosticfair.mathematics.basis import Basis
from agnosticfair.mathematics.metrics import METRICS

FORMAT = "agnosticfair-certificate-2"


@dataclass(frozen=True, eq=False)
class KernelBound:
    """What holds for every reweighting alpha of the rows in A = {0 <= alpha <= bound, mean weight 1}.

    No alpha shows more than ``worst_difference`` between two groups that each keep the share ``floor`` of the mass,
    to ``tolerance``; ``alpha`` and ``alpha_accuracy`` show the worst ones. ``upper`` bounds the difference over
    reweightings of the population; nan on the rows of the fit. ``pair`` has the group of the higher rate first;
    ``under_floor`` the groups that no alpha gives that share. ``centres`` are in the units of X. Bounds hold where
    ``outcome`` is FAILED, too.
    """

    basis: Basis
    bound: float
    worst_difference: float
    worst_accuracy: float
    pair: tuple[str, str]
    under_floor: tuple[str, ...]
    tolerance: float
    outcome: Outcome
    alpha: np.ndarray = field(repr=False)
    alpha_accuracy: np.ndarray = field(repr=False)
    upper: float = nan
    centres: np.ndarray | None = field(default=None, repr=False)

    @property
    def about(self) -> str:
        """The set in words."""
        return about(self.basis, self.bound)


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


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a model's decisions do in every named subgroup: on the rows, and in the population they were drawn from.

    Attributes
    ----------
    metric : str
        What is compared.
    confidence, precision, floor
        As in ``audit``.
    n : int
        Rows.
    accuracy : float
        On the rows; nan without labels.
    subgroups : tuple of SubgroupRecord
        Every subgroup, all rows first.
    upper : float
        The bound beyond the rows, over the whole set at ``confidence``; nan where the rows are those of the fit.
    mixtures, kernels : float or None, KernelBound or None
        The bound over mixtures of the estimable subgroups, and over reweightings by kernels, where they were requested.
    sums : mapping or None
        What ``verify`` computes all of it from.
    noisy : bool
        Whether the counts have the noise of differential privacy; ends of intervals are then about the rows of the fit.
    notes : tuple of str
        Where bounds do not hold; and which limit they keep, where one was requested.
    """

    metric: str
    confidence: float
    precision: float
    floor: float
    n: int
    accuracy: float
    subgroups: tuple[SubgroupRecord, ...] = field(repr=False)
    upper: float = nan
    mixtures: float | None = None
    kernels: KernelBound | None = None
    sums: Mapping[str, Any] | None = field(default=None, repr=False)
    noisy: bool = False
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain lists and finite numbers, None for others; without the kernels' centres, which may be rows."""
        bare = self
        if self.kernels is not None:
            bare = replace(self, kernels=replace(self.kernels, centres=None))
        measures = {
            name: getattr(self, name) for name in ("groups", "difference", "worst_difference")
        }
        return {"format": FORMAT, **plain({**asdict(bare), **measures})}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Certificate:
        """What ``to_json`` wrote; other fields are left.

        Parameters
        ----------
        content : mapping
            Read from the file of a certificate.
        """
        values = {one.name: content[one.name] for one in fields(cls)}
        kernels = values["kernels"]
        if kernels is not None:
            numbers = {k: np.array(kernels[k], float) for k in ("alpha", "alpha_accuracy")}
            bound = inf if kernels["bound"] is None else kernels["bound"]
            kernels = _numbers(kernels) | numbers | {"basis": Basis(**kernels["basis"])}
            kernels = KernelBound(**kernels | {"bound": bound, "pair": tuple(kernels["pair"])})
        subgroups = [
            SubgroupRecord(
                **_numbers(p) | {"rates": tuple(Rate(**_numbers(r)) for r in p["rates"])}
            )
            for p in values["subgroups"]
        ]
        return cls(**_numbers(values) | {"subgroups": tuple(subgroups), "kernels": kernels})

    @property
    def quantity(self) -> str:
        """What is compared between the groups, in words."""
        return METRICS[self.metric].quantity

    @property
    def held_out(self) -> bool:
        """Whether the rows were held out from the fit, so that something holds beyond them."""
        return isfinite(self.upper)

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups' names."""
        return tuple(rate.group for rate in self.subgroups[0].rates)

    @property
    def difference(self) -> float:
        """Of all rows, as measured."""
        return self.subgroups[0].difference

    @property
    def worst_difference(self) -> float:
        """The largest one measured in an estimable subgroup; of all rows where none is."""
        return (self.worst_subgroup or self.subgroups[0]).difference

    @property
    def pair(self) -> tuple[str, ...]:
        """The groups of the worst difference, the one of the higher rate first."""
        return (self.worst_subgroup or self.subgroups[0]).pair

    @property
    def worst_subgroup(self) -> SubgroupRecord | None:
        """The estimable subgroup of the largest measured difference."""
        able = [subgroup for subgroup in self.subgroups if subgroup.estimable]
        return max(able, key=lambda subgroup: subgroup.difference, default=None)

    @property
    def worst_first(self) -> list[SubgroupRecord]:
        """The estimable subgroups, the highest bound first; by what was measured where nothing is bounded."""
        able = [subgroup for subgroup in self.subgroups if subgroup.estimable]
        return sorted(able, key=lambda p: -p.high if isfinite(p.high) else -p.difference)

    def listed(self, count: int) -> list[SubgroupRecord]:
        """The first ``count`` of ``worst_first``: the largest measured difference is always among them.

        Parameters
        ----------
        count : int
            Lines of the table.

        Returns
        -------
        list of SubgroupRecord
        """
        some, worst = self.worst_first[:count], self.worst_subgroup
        if worst is not None and all(subgroup.name != worst.name for subgroup in some):
            some[-1] = worst
        return some

    @property
    def not_estimable(self) -> tuple[SubgroupRecord, ...]:
        """Subgroups with too few rows, the largest measured difference first."""
        return not_estimable(self.subgroups)

    @property
    def worst_ratio(self) -> tuple[float, float, str] | None:
        """The smallest impact ratio measured in an estimable subgroup, what none is below at ``confidence``, and where
        it was measured; None where no rate is positive."""
        able = [subgroup for subgroup in self.subgroups if subgroup.estimable]
        there = [subgroup for subgroup in able if isfinite(subgroup.ratio)]
        if not there:
            return None
        worst = min(there, key=lambda subgroup: subgroup.ratio)
        return worst.ratio, min(subgroup.ratio_low for subgroup in able), worst.name

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where the certificate says less than it seems to, a sentence each."""
        sentences = [*self.notes]
        if self.kernels is not None and self.kernels.under_floor:
            left = f"{100 * self.floor:g}% of the mass: {shown(self.kernels.under_floor)}."
            sentences.append(f"Left out of the reweightings, as it never has {left}")
        if self.kernels is not None and self.kernels.outcome != Outcome.OPTIMAL:
            gap = f"by up to {self.kernels.tolerance:.4f}"
            sentences.append(
                f"The search stopped early: the worst {self.quantity} may be less {gap}."
            )
        return tuple(sentences)

    def to_frame(self) -> Any:
        """The subgroups as a pandas frame, a line each."""
        with needing("audit", "a frame needs the package 'pandas'"):
            import pandas as pd

        lines = [{k: v for k, v in vars(p).items() if k != "rates"} for p in self.subgroups]
        return pd.DataFrame(lines).set_index("name")

    def plot(self) -> Any:
        """A figure: the forest of subgroups with their intervals."""
        from importlib import import_module

        # the report draws what this room finds, and is looked up only when somebody looks
        return import_module("agnosticfair.report.certificate").figure(self)

    def __str__(self) -> str:
        main = _certified(self) if self.held_out else _measured(self)
        return " ".join((main, *_over_kernels(self), *self.warnings))


MAY_BE_NONE = ("mixtures", "kernels", "sums", "centres")


def _numbers(content: Mapping[str, Any]) -> dict[str, Any]:
    """A record's fields from JSON: nan for numbers that are not there."""
    return {k: nan if v is None and k not in MAY_BE_NONE else v for k, v in content.items()}


def interval_text(subgroup: SubgroupRecord) -> str:
    """A subgroup's interval, or that there is none."""
    if not subgroup.estimable:
        return "not estimable: too few rows"
    if not isfinite(subgroup.high):
        return "none: measured only"
    return f"{lower(subgroup.low)} to {upper(subgroup.high)}"


def _certified(certificate: Certificate) -> str:
    """What is certified, and where the worst was measured."""
    accuracy = f"; accuracy {certificate.accuracy:.4f}" if isfinite(certificate.accuracy) else ""
    subgroup, overall = certificate.worst_subgroup, certificate.subgroups[0].difference
    if subgroup is None:
        return (
            f"Nothing is certified: no subgroup has rows enough for +-{certificate.precision:g} at "
            f"{certificate.confidence:.0%} "
            f"confidence (measured overall: {certificate.quantity} {overall:.4f}){accuracy}."
        )
    able = len(certificate.worst_first)
    what = f"for each of {able:,} subgroups" if able > 1 else _place(subgroup)
    what += " and all their mixtures" if certificate.mixtures is not None else ""
    if certificate.kernels is not None and isfinite(certificate.kernels.upper):
        what += f" and {certificate.kernels.about}"
    return (
        f"Certified with {certificate.confidence:.0%} confidence {what}: {certificate.quantity} at most "
        f"{upper(certificate.upper)} "
        f"(measured {subgroup.difference:.4f} {_where(subgroup)} on {subgroup.rows:,} rows"
        f"{f'; overall {overall:.4f}' if subgroup.depth else ''}){_ratio(certificate)}{accuracy}."
    )


def _where(subgroup: SubgroupRecord) -> str:
    """A subgroup and the two groups that are furthest apart in it."""
    pair = " and ".join(map(repr, dict.fromkeys(subgroup.pair)))
    between = "between" if len({*subgroup.pair}) > 1 else "for"
    return f"{_place(subgroup)}, {between} {pair}"


def _place(subgroup: SubgroupRecord) -> str:
    return f"where {subgroup.name}" if subgroup.depth else subgroup.name


def _ratio(certificate: Certificate) -> str:
    """The lowest rate over the highest, overall and in the worst subgroup, in words: for the four-fifths rule."""
    name_of_ratio = METRICS[certificate.metric].ratio
    if certificate.worst_ratio is None or not name_of_ratio:
        return ""
    measured, lowest, name = certificate.worst_ratio
    overall = certificate.subgroups[0]
    text = f"; {name_of_ratio} at least {lower(overall.ratio_low)} overall (measured {overall.ratio:.4f})"
    if name == overall.name:
        return text
    return f"{text}, {lower(lowest)} in any subgroup (measured {measured:.4f}, {name})"


def _measured(certificate: Certificate) -> str:
    """What subgroups show on the rows of the fit, beyond which nothing is bounded."""
    able, subgroup = certificate.worst_first, certificate.worst_subgroup or certificate.subgroups[0]
    few = any(isfinite(subgroup.difference) for subgroup in certificate.not_estimable)
    were = "was" if len(able) == 1 else "were"
    which = "with rows enough" if few else f"that {were} compared"
    bound = ""
    if certificate.noisy:
        maximum = max(p.high for p in certificate.subgroups)
        bound = f", under noise, at most {upper(maximum)} on these rows with {certificate.confidence:.0%} confidence"
        bound += f"; accuracy {certificate.accuracy:.4f}"
    return (
        f"Measured on the rows of the fit, and not certified: {certificate.quantity} up to "
        f"{subgroup.difference:.4f} in "
        f"{len(able):,} subgroup{'s' * (len(able) != 1)} {which} ({subgroup.name}, {subgroup.rows:,} rows){bound}; "
        f"audit rows "
        "held out for a bound."
    )


def _over_kernels(certificate: Certificate) -> tuple[str, ...]:
    """What holds over kernels, in a sentence."""
    kernels = certificate.kernels
    if kernels is None:
        return ()
    high, low = kernels.pair
    where = f"between {high!r} and {low!r}" if high != low else f"for {high!r}"
    text = (
        f"However these rows are reweighted by {kernels.about}, the {certificate.quantity} is at most "
        f"{upper(kernels.worst_difference)}, {where} while each keeps {100 * certificate.floor:g}% of the mass"
    )
    if isfinite(kernels.worst_accuracy):
        text += f"; accuracy at least {lower(kernels.worst_accuracy)}"
    if isfinite(kernels.upper):
        text += f"; with {certificate.confidence:.0%} confidence at most {upper(kernels.upper)} in the population"
    return (f"{text}.",)


def not_estimable(subgroups: Sequence[SubgroupRecord]) -> tuple[SubgroupRecord, ...]:
    """Subgroups with too few rows, the largest measured difference first."""
    few = [subgroup for subgroup in subgroups if not subgroup.estimable]
    return tuple(
        sorted(
            few, key=lambda subgroup: -subgroup.difference if isfinite(subgroup.difference) else 1.0
        )
    )


def limit_sentence(
    limit: float, holds: bool, certificate: Certificate, confidence: float | None = None
) -> str:
    """What may be said of a limit on the strength of one certificate.  confidence: the certificate's unless said."""
    level = f"{certificate.confidence if confidence is None else confidence:.0%} confidence"
    able = len(certificate.worst_first)
    if holds:
        what = "all other bounds and ratios would hold for a model that these rows have not chosen"
        where = (
            f"in each of {able:,} estimable subgroups"
            if able > 1
            else "in the one estimable subgroup"
        )
        return f"Keeps the limit {limit:g} with {level} {where}; {what}."
    if certificate.upper <= limit:
        why = "decisions are nearly all alike, or another sensitive feature is in the way"
        return f"The limit {limit:g} is not claimed: {why}."
    smallest = f"the smallest that can is {upper(certificate.upper)}"
    sentence = f"The limit {limit:g} cannot be claimed with {level}: {smallest}."
    return f"{sentence} In the way: {'; '.join(violations(limit, certificate)[:3])}."


def violations(limit: float, certificate: Certificate) -> tuple[str, ...]:
    """The subgroups above a limit, the worst first: for a measured difference, or for too few rows to know."""
    if not certificate.worst_first:
        return ("no subgroup has rows enough for the precision asked for",)
    return tuple(
        f"{subgroup.name} ({subgroup.rows:,} rows) shows {subgroup.difference:.4f}"
        + ("" if subgroup.difference > limit else ", with too few rows to know")
        for subgroup in certificate.worst_first
        if subgroup.high > limit and isfinite(subgroup.difference)
    )


def upper(value: float) -> str:
    """An upper bound as every front shows it, never below it; 'none' where there is none.

    >>> upper(0.23001), upper(0.23), upper(nan)
    ('0.2301', '0.2300', 'none')
    """
    return f"{ceil(value * 1e4 - 1e-6) / 1e4:.4f}" if isfinite(value) else "none"


def lower(value: float) -> str:
    """A lower bound as every front shows it, never above it; 'none' where there is none.

    >>> lower(0.61009)
    '0.6100'
    """
    return f"{floor(value * 1e4 + 1e-6) / 1e4:.4f}" if isfinite(value) else "none"


def plain(value: Any) -> Any:
    """As JSON has it: lists for arrays, None for what is not finite."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value
