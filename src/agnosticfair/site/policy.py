"""A site's policy: which requests it answers, and which of its columns and values it shows. Its people write it in a
file, and no request changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agnosticfair.data.schema import Schema
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import FederationError

MIN_ROWS = 10
"""Rows that every group has, and every value that is shown, unless the site says otherwise."""

FOLDS = (2, 5)
"""Into how many folds rows may be dealt: halves for a limit, fifths for probabilities out of fold."""

MAX_FOLDS = 20
"""A fold of many would hold few rows."""


class Refused(FederationError):
    """A request that a site does not answer. The sentence is the same for every cause: a cause could tell of a row.

    detail: the cause, for the site's own log.
    """

    def __init__(self, site: str, detail: str = "") -> None:
        super().__init__(f"site {site!r} does not answer this request; its own log says why")
        self.site, self.detail = site, detail

    def __reduce__(self) -> tuple[type[Refused], tuple[str]]:
        """To another process it goes without its cause."""
        return type(self), (self.site,)


@dataclass(frozen=True)
class SitePolicy:
    """What a site answers, of all ``sites`` of its list; empty where it has none.

    masks, epsilon: whether its sums leave masked only, and with noise only (0 for none)
    schema: columns, ranges, categories, groups and bins that it signed off
    min_rows: of every group, in every fold, of every bin, and of every value that it names
    min_sites, may_drop: the fewest of a total; whether fewer than are on its list will do
    shows_rows: whether it offers rows as kernel centres
    shares_site_totals: whether totals may have a block of its own: by it the coordinator reads this site's sums
    shares_cluster_means: whether it adds up the rows nearest to centres that the coordinator names
    folds, fold_seed: the agreed numbers of folds, and the seed that deals rows to them; None for the first that comes
    site_rows: rows that it adds at most, where it is hidden as a whole; 0 where its rows are
    rehearsal: all sites are in this process, and the first task of a session is the agreed one

    >>> SitePolicy("north", masks=True).hidden
    True
    """

    site: str
    sites: tuple[str, ...] = ()
    masks: bool = False
    epsilon: float = 0.0
    schema: Schema | None = None
    min_rows: int = MIN_ROWS
    min_sites: int = 2
    may_drop: bool = False
    shows_rows: bool = False
    shares_site_totals: bool = False
    shares_cluster_means: bool = False
    folds: tuple[int, ...] = FOLDS
    fold_seed: int | None = 0
    site_rows: int = 0
    rehearsal: bool = False

    @property
    def hidden(self) -> bool:
        """Whether the coordinator is to see totals only."""
        return self.masks or self.epsilon > 0

    @property
    def open_steps(self) -> frozenset[str]:
        """The steps that are answered without masks."""
        outline = () if self.schema is not None else ("outline",)
        return frozenset((*outline, *(("centres",) if self.shows_rows else ())))


def words(policy: SitePolicy) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What a site answers and what it refuses, in sentences.

    >>> answered, refused = words(SitePolicy("north", ("north", "south"), masks=True))
    >>> refused[0]
    'A sum of its own in the open: every sum is masked, and only the total of all sites can be read.'
    """
    if not policy.hidden:
        return _in_the_open(policy)
    answered = [*_settled(policy), *_consents(policy, True)]
    refused = [
        "A sum of its own in the open: every sum is masked, and only the total of all sites can be read.",
        "A task that is not the one above, a request that it does not know, and a second request of a round.",
        *_consents(policy, False),
    ]
    if policy.epsilon:
        refused += ["Anything without noise, and anything beyond the budget."]
    else:
        refused += [
            f"Everything, where a label or a group has fewer than {policy.min_rows} rows; a group also in the half "
            "of a limit, and in the folds by which learners judge rows.",
            f"Local steps of a network over fewer than {policy.min_rows} rows.",
            "Bins of a number that the schema does not declare."
            if policy.schema is not None
            else f"Bins of a number that hold 1 to {policy.min_rows - 1} of its rows.",
        ]
    refused += [
        "Whatever is refused, the coordinator reads one and the same sentence; the cause is in this site's log."
    ]
    return tuple(answered), tuple(refused)


def _in_the_open(policy: SitePolicy) -> tuple[tuple[str, ...], tuple[str, ...]]:
    answered = [
        "Every request about sums, in the open: the coordinator reads this site's own sums."
    ]
    refused = [f"Everything, where a group has fewer than {policy.min_rows} rows."]
    rows = "Whole rows of features, as kernel centres."
    (answered if policy.shows_rows else refused).append(rows)
    return tuple(answered), tuple(refused)


def _settled(policy: SitePolicy) -> list[str]:
    """What the site builds the task from, in words."""
    who = f"all of {', '.join(policy.sites)}" if policy.sites else "the sites of a session"
    fewer = f", or {policy.min_sites} of them" if policy.may_drop else ""
    noise = f"sums with noise, within epsilon {policy.epsilon:g}, " if policy.epsilon else "sums, "
    sentences = [
        f"Masked {noise}which add up over {who}{fewer}."
        if policy.masks
        else f"{noise.capitalize()}of this site."
    ]
    schema = policy.schema
    if schema is None:
        shown = "the smallest and the largest of each number, and every category"
        sentences += [
            f"Which columns it has, with {shown} that {policy.min_rows} rows or more share."
        ]
    else:
        columns = ", ".join(sorted({*schema.numeric, *schema.categorical}))
        sentences += [f"Requests about the columns of the schema {schema.digest[:12]}: {columns}."]
        groups = "; ".join(f"{k}: {', '.join(v)}" for k, v in schema.sensitive_features.items())
        sentences += [f"By the groups {groups}; by labels {', '.join(schema.labels)}."]
        if schema.bins:
            cuts = "; ".join(
                f"{k} at {', '.join(f'{e:g}' for e in v)}" for k, v in schema.bins.items()
            )
            sentences += [f"In the bins {cuts}."]
    if not policy.epsilon:
        sentences += [
            "Under any model that the coordinator names: what totals show of a person is bounded by epsilon alone.",
            f"About all rows, or a fold of {' or '.join(map(str, policy.folds))}, dealt with seed {policy.fold_seed}.",
        ]
    return sentences


_MEANS = "Means of the rows nearest to centres that the coordinator names (shares-cluster-means)."


def _consents(policy: SitePolicy, consented: bool) -> list[str]:
    """What the site may consent to, and did, or did not."""
    if policy.epsilon:
        return []
    known = {
        "Whole rows of features, as kernel centres (shows-rows).": policy.shows_rows,
        "Totals with a block of its own, which show its sums: afl, localfair, kernels split by client, subgroups "
        "named 'site' (shares-site-totals).": policy.shares_site_totals,
        _MEANS: policy.shares_cluster_means,
    }
    return [sentence for sentence, consent in known.items() if consent == consented]


OTHER = "other"
"""The value that stands for all rare ones."""


def shown_rows(table: Table, columns: Sequence[str] = (), min_rows: int = 1) -> Table:
    """The rows with the listed features alone (all where none is listed), and values of fewer rows as 'other'.

    >>> rows = Table({}, {"job": Column.of(["a", "a", "b", "c"])}, None, {})
    >>> shown_rows(rows, (), 2).categorical["job"].categories
    ('a', 'other')
    """

    def listed(name: str) -> bool:
        return not columns or name in columns

    return replace(
        table,
        numeric={k: v for k, v in table.numeric.items() if listed(k)},
        categorical={k: joined(v, min_rows) for k, v in table.categorical.items() if listed(k)},
        other={k: joined(v, min_rows) for k, v in table.other.items() if listed(k)},
    )


def joined(column: Column, min_rows: int) -> Column:
    """The column whose values of fewer rows are one value, 'other'.

    >>> joined(Column.of(["a", "a", "b"]), 2).values().tolist()
    ['a', 'a', 'other']
    """
    counts = np.bincount(column.codes, minlength=len(column.categories))
    rare = (counts > 0) & (counts < min_rows)
    if not rare.any():
        return column
    texts = np.where(rare, OTHER, np.asarray(column.categories, object))
    return Column.of(texts[column.codes])
