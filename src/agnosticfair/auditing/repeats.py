"""Rows that a bound does not hold for: those of the fit, those that two clients share, and those that repeat each other
or stand for one person."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf, lgamma
from typing import Any

import numpy as np

from agnosticfair.auditing.inputs import codes
from agnosticfair.data.rows import digest_of, in_common, row_hashes, sketch_of
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError
from agnosticfair.model import Model

UNTOLD = (
    "Whether these are rows of the fit nobody can tell: what knows them again (NAME.trained-on.json) is not beside the \
model. The bounds hold for rows held out from the fit."
)
"""Of a model of ours that came alone."""

FOREIGN = (
    "Whether the model was fitted or chosen on these rows cannot be told from its decisions: the bounds hold only if \
it was not."
)
"""Of decisions that somebody else made."""

WEIGHTED = (
    "The rows' weights are left out: what is measured and bounded counts every row once, and no bound holds for \
weighted rows."
)

SHARED = (
    "Clients {one!r} and {other!r} have about {rows:,.0f} rows in common, more than chance makes equal: bounds \
hold only if these are different people."
)
REPEATED = (
    "{rows:,} of the {n:,} rows repeat another one, which is more than chance makes equal. Bounds hold only if these \
are different people: else name who they are by cluster (--cluster)."
)
CLUSTERED = "One row of each of {n:,} clusters among {rows:,} rows was audited: bounds count every cluster once."
"""Notes about the rows themselves, which no sums show."""

NAMES = ("one", "other")
NAME = r"'[^']*'|\"[^\"]*\""  # as a note has it
NUMBER = r"\d{1,3}(?:,\d{3})*"  # as a note has it

FEW_CLIENTS = 64
"""Up to so many, rows in common are looked for with a finer sketch."""

SURE = 1e-6
"""The probability under which a pattern of repeats is not put down to chance."""

SLACK = 3.0
"""Standard deviations that counts of repeats are given before they are held against each other."""


def repeated(hashes: np.ndarray) -> int:
    """How many rows repeat another one, where that is more than chance explains; 0 where it is not.

    hashes: (n,), of the rows' content.

    Of independent draws the number of different rows that come k times, N_k, is a mixture of Poisson counts: k! E[N_k]
    are moments of a measure, and so log-convex, m_k^2 <= m_(k-1) m_(k+1). People who stand on several lines each break
    that: there are many pairs, and fewer single rows, or fewer triples, than pairs by chance would bring along.

    >>> rng = np.random.default_rng(0)
    >>> repeated(rng.integers(0, 3000, 2000)), repeated(np.repeat(np.arange(500), 4))
    (0, 1500)
    """
    from scipy.stats import poisson

    times = np.unique(hashes, return_counts=True)[1]
    repeats = np.bincount(times, minlength=times.max() + 2)
    for k in np.flatnonzero(repeats[2:]) + 2:
        here = repeats[k] - SLACK * np.sqrt(repeats[k])
        if here <= 0:
            continue
        for beside, across in ((k - 1, k + 1), (k + 1, k - 1)):
            there = repeats[across] + SLACK * np.sqrt(repeats[across] + 1)
            scale = 2 * lgamma(k + 1) - lgamma(across + 1) - lgamma(beside + 1)
            expected = np.exp(scale) * here**2 / there if there > 0 else inf
            if poisson.cdf(repeats[beside], expected) < SURE:
                return int(len(hashes) - len(times))
    return 0


def about_rows(table: Table, strata: np.ndarray) -> tuple[str, ...]:
    """The note on rows of a table that repeat each other.  strata: (n,), of group, label and decision."""
    bare = replace(table, target=None, sensitive_features={}, weights=None)
    return note_of(row_hashes(replace(bare, numeric={**bare.numeric, "": strata.astype(float)})))


def note_of(hashes: np.ndarray) -> tuple[str, ...]:
    """The note of a certificate about repeats, where there are any beyond chance."""
    rows = repeated(hashes)
    if not rows:
        return ()
    return (REPEATED.format(rows=rows, n=len(hashes)),)


def in_form(note: str, form: str) -> int | None:
    """The rows ``n`` of a note of this form (0 where it names none); None of another note.

    >>> in_form(CLUSTERED.format(n=1250, rows=10000), CLUSTERED), in_form("Approved.", CLUSTERED)
    (1250, None)
    """
    texts = re.split(r"\{(\w+)[^}]*\}", form)
    texts[::2] = map(re.escape, texts[::2])
    texts[1::2] = [f"(?P<{name}>{NAME if name in NAMES else NUMBER})" for name in texts[1::2]]
    match = re.fullmatch("".join(texts), note)
    return match and int(match.groupdict().get("n", "0").replace(",", ""))


def one_of_each(clusters: Any, n: int, seed: int = 0) -> np.ndarray:
    """One row of each cluster, drawn at random: their places, (clusters,), in order.

    Clusters that were drawn independently give rows that are.

    >>> one_of_each(["a", "b", "a", "b"], 4).size
    2
    """
    owner, names = codes(clusters, "cluster", n)
    order = np.random.default_rng(seed).permutation(n)
    _, first = np.unique(owner[order], return_index=True)
    assert len(first) == len(names)
    return np.sort(order[first])


def one_of_each_note(clusters: int, rows: int) -> str:
    """What is said of one row of each cluster."""
    return CLUSTERED.format(n=clusters, rows=rows)


def check_held_out(model: Model | None, tables: Sequence[Table]) -> tuple[str, ...]:
    """Raise where rows of the fit are among these, as far as what is beside the model tells; a note where nobody can
    tell."""
    if model is None:
        return (FOREIGN,)
    if model.training is None:
        return (UNTOLD,) if tables else ()
    n = sum(map(len, tables))
    labelled = all(table.target is not None for table in tables)
    rows = model.training.among(model.reading, tables) if tables and labelled else 0.0
    if rows:
        which = "these are the" if rows >= n else f"about {rows:,.0f} of these {n:,} are"
        raise DataError(
            f"{which} rows that the model was fitted on, and say nothing beyond them: audit rows "
            "held out from the fit (in Python, held_out=False measures these and bounds nothing)"
        )
    return ()


def check_clients(model: Model, clients: Mapping[str, Any]) -> tuple[str, ...]:
    """Raise where clients hold rows of the fit, or two of them mostly the same rows; a note where they have fewer in
    common."""
    tables = {key: table for key, table in clients.items() if isinstance(table, Table)}
    keys, all_tables = [*tables], [*tables.values()]
    notes = [*check_held_out(model, all_tables)]
    if len(keys) < 2:
        return tuple(notes)
    buckets = 1 << (16 if len(keys) <= FEW_CLIENTS else 12)
    common = np.triu(in_common(np.stack([sketch_of([table], buckets) for table in all_tables])))
    digests = [digest_of([table]) for table in all_tables]
    for i, j in combinations(range(len(keys)), 2):
        rows = len(all_tables[i]) if digests[i] == digests[j] else common[i, j]
        if rows >= min(len(all_tables[i]), len(all_tables[j])) / 2:
            raise DataError(
                f"clients {keys[i]!r} and {keys[j]!r} hold the same rows, which would count twice: leave one out"
            )
        if rows:
            notes.append(SHARED.format(one=keys[i], other=keys[j], rows=rows))
    return tuple(notes)


def rows_digest(table: Table, strata: np.ndarray) -> str:
    """Of the audited rows with their group, label and decision, in any order.

    It is no secret and has no key: whoever holds all of the rows can tell that these were audited. Whoever lacks one
    of them and can guess it can test the guess, as the counts beside it allow, too.

    >>> from agnosticfair.data.table import Column
    >>> one, strata = Table({}, {"job": Column.of("abb")}, None, {}), np.array([0, 1, 1])
    >>> rows_digest(one, strata) == rows_digest(one.take([2, 0, 1]), strata[[2, 0, 1]])
    True
    """
    bare = replace(table, target=None, sensitive_features={}, other={}, weights=None)
    numbers = {**bare.numeric, "": np.asarray(strata, float)}
    bare = replace(bare, numeric=numbers)
    ordered = bare.take(np.argsort(row_hashes(bare), kind="stable"))
    digest = hashlib.sha256(f"{len(bare)} rows\n".encode())
    for name, values in sorted(ordered.numeric.items()):
        digest.update(f"numeric {name}\n".encode() + values.astype("<f8").tobytes())
    for name, column in sorted(ordered.categorical.items()):
        order = tuple(sorted(column.categories))
        digest.update(f"categorical {name} {json.dumps(order)}\n".encode())
        digest.update(column.aligned(order).astype("<i8").tobytes())
    return digest.hexdigest()
