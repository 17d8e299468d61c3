"""What a model is watched against: named parts, their shares among the rows it was certified on, and the limit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate
from agnosticfair.data.axes import codes_of, own_axes
from agnosticfair.data.reading import MISSING
from agnosticfair.data.table import Column, Table, intersected
from agnosticfair.errors import DataError, ModelError, SettingsError
from agnosticfair.mathematics.notions import PARITY, notion_of
from agnosticfair.mathematics.parts import (
    Axis,
    Part,
    gram,
    named_parts,
    part_name,
    part_sums,
    sizes_of,
    starts_of,
)
from agnosticfair.model import Model
from agnosticfair.settings import POSITIVE, require

FORMAT = "agnosticfair-baseline-1"
EVERYBODY: Part = ()
DAMAGED = (
    "this is no baseline of agnosticfair, or it is damaged ({}): make it again from the rows the model was "
    "certified on"
)
HANDED = "sensitive_features"
"""The column of groups where no model names it."""
OTHER = "the model and the certificate do not belong together: give the certificate that was made of this model"


@dataclass(frozen=True)
class Baseline:
    """The rows a promise was made about, as counts.

    Attributes
    ----------
    axes, parts
        The named parts; the first one is everybody.
    counts : (I, I) array
        Rows of every pair of values.
    n : int
        Rows in all.
    sensitive_features, groups : tuple of str
        As the model has them.
    notion : str
        What is compared.
    limit : float
        What was certified of all parts together: no difference is to exceed it.
    limits : (P,) tuple or None
        What was certified of each part by itself; ``limit`` for all of them where None.
    bound : float
        Of mixtures of single values: no row weighs more.
    model : str
        Digest of the model; empty where decisions are handed over.
    part_rows : (P,) tuple
        Rows of every part.
    compared : (P, G) tuple or None
        The groups of each part that the promise is about; all of them where None.
    """

    axes: tuple[Axis, ...]
    parts: tuple[Part, ...]
    counts: np.ndarray
    n: int
    sensitive_features: tuple[str, ...]
    groups: tuple[str, ...]
    notion: str
    limit: float
    bound: float
    model: str
    part_rows: tuple[int, ...]
    compared: tuple[tuple[bool, ...], ...] | None = None
    limits: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        require(POSITIVE, limit=self.limit, bound=self.bound)
        for one in self.limits or ():
            require(POSITIVE, limit=one)
        notion_of(self.notion)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(part_name(self.axes, part) for part in self.parts)

    @property
    def values(self) -> np.ndarray:
        """Rows of each value of each axis, those of no agreed value last, axis by axis: (I + C,)."""
        here, starts = np.diag(self.counts), starts_of(sizes_of(self.axes))
        return np.r_[here, [self.n - here[a:b].sum() for a, b in pairwise(starts)]]

    @property
    def keep(self) -> np.ndarray:
        """Which groups of which parts the promise compares, (P, G)."""
        shape = (len(self.parts), len(self.groups))
        return np.ones(shape, bool) if self.compared is None else np.array(self.compared, bool)

    @property
    def part_limits(self) -> np.ndarray:
        """The limit of every part, (P,)."""
        return (
            np.full(len(self.parts), self.limit) if self.limits is None else np.array(self.limits)
        )

    @property
    def value_names(self) -> tuple[str, ...]:
        named = (f"{axis.name} = {value}" for axis in self.axes for value in axis.values)
        return (*named, *(f"a value of {axis.name} never seen" for axis in self.axes))

    @property
    def id(self) -> str:
        """A digest of all of it: only states of one baseline add up."""
        return hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The baseline as JSON can hold it."""
        axes = [[a.name, list(a.values), list(a.edges)] for a in self.axes]
        own = {k: v for k, v in vars(self).items() if k not in ("axes", "counts", "parts")}
        parts = [[list(one) for one in part] for part in self.parts]
        counts = np.asarray(self.counts).astype(int).tolist()
        return {"format": FORMAT, **own, "axes": axes, "parts": parts, "counts": counts}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Baseline:
        """Read what ``to_json`` wrote; anything else is refused.

        Parameters
        ----------
        content : mapping

        Returns
        -------
        Baseline
        """
        try:
            made = dict(content)
            if made.pop("format") != FORMAT:
                raise ValueError("format")
            axes = tuple(Axis(str(n), tuple(v), tuple(e)) for n, v, e in made.pop("axes"))
            parts = tuple(tuple((int(a), int(v)) for a, v in part) for part in made.pop("parts"))
            counts = np.array(made.pop("counts"), float)
            size = sum(sizes_of(axes))
            if counts.shape != (size, size) or parts[:1] != (EVERYBODY,):
                raise ValueError("counts")
            names, groups = tuple(made.pop("sensitive_features")), tuple(made.pop("groups"))
            compared = made.pop("compared", None)
            if compared is not None:
                compared = tuple(tuple(map(bool, part)) for part in compared)
                if {len(part) for part in compared} != {len(groups)} or len(compared) != len(parts):
                    raise ValueError("compared")
            rows = tuple(map(int, made.pop("part_rows")))
            limits = made.pop("limits", None)
            limits = None if limits is None else tuple(map(float, limits))
            if len(rows) != len(parts) or len(limits or rows) != len(parts):
                raise ValueError("rows")
            made |= {"part_rows": rows, "compared": compared, "limits": limits}
            return cls(axes, parts, counts, int(made.pop("n")), names, groups, **made)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ModelError(DAMAGED.format(type(error).__name__)) from None


def of_certificate(told: Mapping[str, Any], model: Model | None) -> Baseline:
    """The baseline that a certificate as JSON carries: the parts that it is about, those with rows enough, the
    rows of all pairs of values, and what it certifies."""
    sums, limit = told.get("sums") or {}, told.get("upper")
    if "axes" not in sums:
        raise ModelError(
            "this certificate is not over named parts, so there is no mix to compare with: audit again with parts"
        )
    if not isinstance(limit, int | float):
        raise ModelError(
            "this certificate bounds nothing beyond its rows: audit rows that the model was not fitted on"
        )
    if model is not None and sums.get("model", model.digest) != model.digest:
        raise ModelError(OTHER)
    try:
        groups, least = tuple(told["groups"]), float(sums["least"])
        parts, rows, compared, limits = _promised(told, groups)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise ModelError(DAMAGED.format(type(error).__name__)) from None
    return Baseline.from_json(
        {
            "format": FORMAT,
            "axes": sums["axes"],
            "parts": parts,
            "counts": sums["pairs"],
            "n": told["n"],
            "sensitive_features": (HANDED,) if model is None else model.sensitive_features,
            "groups": groups,
            "notion": told["notion"],
            "limit": limit,
            "bound": 1 / least,
            "model": "" if model is None else model.digest,
            "part_rows": rows,
            "compared": compared,
            "limits": limits,
        }
    )


def _promised(
    told: Mapping[str, Any], groups: Sequence[str]
) -> tuple[list[Any], list[int], list[list[bool]], list[float]]:
    """The parts of a certificate that were estimable, everybody first; their rows; which of their groups were
    compared; and each one's own bound."""
    axes = [Axis(str(n), tuple(v), tuple(e)) for n, v, e in told["sums"]["axes"]]
    named = {part_name(axes, tuple(map(tuple, p))): p for p in told["sums"]["parts"]}
    able = {p["name"]: p for p in told["parts"] if p["estimable"]}
    everybody = part_name(axes, EVERYBODY)
    parts: list[Any] = [list(EVERYBODY)]
    rows = [int(told["n"])]
    compared, limits = [[True] * len(groups)], [float(told["upper"])]
    for name, part in able.items():
        rated = {rate["group"]: bool(rate["compared"]) for rate in part["rates"]}
        own = [rated.get(group, False) for group in groups]
        if name == everybody:
            compared[0], limits[0] = own, float(part["high"])
        elif name in named:
            parts.append(named[name])
            rows.append(int(part["rows"]))
            compared.append(own)
            limits.append(float(part["high"]))
    return parts, rows, compared, limits


def as_baseline(given: Baseline | Certificate | Mapping[str, Any], model: Model | None) -> Baseline:
    """What is watched against, from a certificate, its JSON, or a baseline."""
    match given:
        case Baseline():
            return given
        case Certificate():
            return of_certificate(given.to_json(), model)
        case {"format": str(kind)} if kind == FORMAT:
            return Baseline.from_json(given)
        case Mapping():
            return of_certificate(given, model)
    raise ModelError(f"{type(given).__name__} is no certificate: give what 'audit' made")


def groups_of(table: Table, baseline: Baseline) -> np.ndarray:
    """Every row's group, (n,); the number of groups where it is not known."""
    column, unknown = _group_column(table, baseline), len(baseline.groups)
    if column is None:
        return np.full(len(table), unknown)
    codes = column.aligned(baseline.groups)
    return np.where(codes < 0, unknown, codes)


def strange_groups(table: Table, baseline: Baseline) -> dict[str, tuple[str, ...]]:
    """Groups that nothing was promised of, under their columns' name."""
    column = _group_column(table, baseline)
    there = set() if column is None else {column.categories[k] for k in np.unique(column.codes)}
    found = sorted(g for g in there - {*baseline.groups} if MISSING not in g.split(" & "))
    return {" and ".join(baseline.sensitive_features): tuple(found)} if found else {}


def _group_column(table: Table, baseline: Baseline) -> Column | None:
    names = baseline.sensitive_features
    if not names or any(name not in table.sensitive_features for name in names):
        return None
    columns = {name: table.sensitive_features[name] for name in names}
    return intersected(columns) if len(names) > 1 else columns[names[0]]


def baseline_of(
    model: Model,
    rows: Table,
    *,
    limit: float,
    notion: str = PARITY.name,
    columns: Sequence[str] | None = None,
    depth: int = 2,
    least: float = 0.01,
    bands: int = 4,
    bound: float | None = None,
) -> Baseline:
    """The baseline of rows at hand: the ones the certificate was made on.

    Parameters
    ----------
    model : Model
        Whose decisions were certified.
    rows : Table
    limit : float
        What was promised of the differences of every named part.
    notion : str
        A key of ``NOTIONS``.
    columns, depth, least, bands
        As in ``subpopulations``.
    bound : float, optional
        Of mixtures; 1 / least unless said, with which all weight may go to one part.

    Returns
    -------
    Baseline
        To make a ``Monitor`` of.

    Examples
    --------
    >>> import agnosticfair
    >>> held_out = agnosticfair.load_dataset("adult").take(np.arange(500))
    >>> model = agnosticfair.fit({"a": held_out}, "fl").model
    >>> baseline_of(model, held_out, limit=0.2, columns=["age"]).n
    500
    """
    if not len(rows):
        raise DataError(
            "there are no rows to make a baseline of: give those the model was certified on"
        )
    if not 0 < least < 1:
        raise SettingsError(f"least is {least!r}; it must be a share between 0 and 1")
    axes = own_axes(rows, columns, bands)
    codes = codes_of(rows, axes)
    found = named_parts(codes, sizes_of(axes), least, depth)
    ones = np.ones(len(rows))
    return Baseline(
        axes,
        (EVERYBODY, *found),
        gram(codes, sizes_of(axes), ones),
        len(rows),
        model.sensitive_features,
        model.groups,
        notion,
        limit,
        1 / least if bound is None else bound,
        model.digest,
        (len(rows), *part_sums(codes, found, ones).astype(int).tolist()),
    )
