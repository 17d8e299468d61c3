"""Trees that grow from sums: the same over any split, monotone where asked, exact siblings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.mathematics import growing
from agnosticfair.mathematics.boosting import Boosting, CodedRows, histogram, level_sums
from agnosticfair.mathematics.growing import advance, begin, current, result
from agnosticfair.mathematics.trees import LEAF, Bins, margins, pack

SETTINGS = Boosting(trees=4, depth=3, min_rows=5)


def drawn(seed=0, n=300, folds=2, sizes=(9, 7, 8), numeric=2, heads=1):
    r = np.random.default_rng(seed)
    columns = np.stack([r.integers(0, size, n) for size in sizes]).astype(np.uint8)
    z = columns[0] / 4 - 1 + (columns[-1] % 3 == 1) + 0.5 * (columns[1 % len(sizes)] == 0)
    target = np.stack([z + r.normal(size=n) > 0 for _ in range(heads)])
    fold = r.integers(0, max(folds, 1), n)
    bins, every = Bins(sizes, numeric), np.ones_like(target)
    return CodedRows(bins, columns.T.copy(), columns, target, every, fold, folds, None, 20), bins


def take(rows, own):
    return CodedRows(
        rows.bins, rows.codes[own], rows.columns[:, own], rows.target[:, own], rows.counts[:, own],
        rows.fold[own], rows.folds, rows.weights, rows.bits,
    )  # fmt: skip


def grown(subgroups, bins, settings=SETTINGS, forget=False):
    growth = begin(bins, settings, len(subgroups[0].target), subgroups[0].folds)
    while not growth.finished:
        forests = list(zip(growth.done, current(growth), strict=True))
        if forget:
            subgroups = [replace(rows, ways={}) for rows in subgroups]
        level = max(growth.level, 0)
        sums = [level_sums(rows, forests, level, growth.count) for rows in subgroups]
        growth = advance(growth, *(sum(own[k] for own in sums) for k in ("hist", "loss")))
    return growth


def bytes_of(growth):
    return pack(result(growth), growth.bins).tobytes()


@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(0, 3), st.booleans())
@settings(max_examples=25, deadline=None)
def test_any_split_of_rows_gives_the_same_trees(seed, subgroups, folds, forget):
    rows, bins = drawn(seed % 1000, folds=folds)
    owner = np.random.default_rng(seed).integers(0, subgroups, len(rows.fold))
    split = [take(rows, np.flatnonzero(owner == k)) for k in range(subgroups)]
    assert bytes_of(grown(split, bins, forget=forget)) == bytes_of(grown([rows], bins))


def test_rows_in_another_order_give_the_same_trees():
    rows, bins = drawn()
    assert bytes_of(grown([take(rows, np.argsort(rows.codes[:, 0]))], bins)) == bytes_of(
        grown([rows], bins)
    )


def test_a_sibling_is_the_parent_less_the_other_child():
    rows, bins = drawn(folds=0)
    growth = begin(bins, SETTINGS, 1, 0)
    checked = 0
    while not growth.finished:
        forests = list(zip(growth.done, current(growth), strict=True))
        sums = level_sums(rows, forests, max(growth.level, 0), growth.count)
        if growth.level > 0:
            siblings = growth.count ^ [0, 1]
            direct = level_sums(replace(rows, ways={}), forests, growth.level, siblings)["hist"]
            assert np.array_equal(direct, growth.parents - sums["hist"])
            checked += len(direct)
        growth = advance(growth, sums["hist"], sums["loss"])
    assert checked > 4


def test_the_smaller_child_is_counted():
    rows, bins = drawn(folds=0)
    growth = begin(bins, SETTINGS, 1, 0)
    while not growth.finished:
        forests = list(zip(growth.done, current(growth), strict=True))
        sums = level_sums(rows, forests, max(growth.level, 0), growth.count)
        if growth.level > 0:
            n = sums["hist"][:, : bins.sizes[0], 2].sum(axis=1)
            assert (2 * n <= growth.parents[:, : bins.sizes[0], 2].sum(axis=1)).all()
        growth = advance(growth, sums["hist"], sums["loss"])


@pytest.mark.parametrize("direction", [1, -1])
def test_a_monotone_column_is_monotone(direction):
    rows, bins = drawn(n=800, folds=0, sizes=(30, 7, 8))
    noisy = np.random.default_rng(1).random((1, 800)) < 0.5 + 0.4 * np.sin(rows.columns[0] / 3)
    rows = replace(rows, target=noisy)
    free, bound = (
        grown([rows], bins, Boosting(trees=20, depth=4, min_rows=5, monotone=m))
        for m in ((), (direction, 0, 0))
    )

    others = [(b, c) for b in range(1, 7) for c in range(8)]
    x = np.tile(np.arange(1, 30), len(others))
    grid = np.vstack([x, np.repeat(np.array(others).T, 29, axis=1)]).astype(np.uint8)

    def steps(growth):
        path = margins(result(growth)[0], bins, grid).reshape(len(others), 29)
        return np.diff(path, axis=1).ravel() * direction

    assert steps(free).min() < 0
    assert steps(bound).min() >= -1e-7
    assert steps(bound).max() > 0


def test_one_class_and_one_row_give_a_number():
    for n, positive in ((50, True), (50, False), (1, True)):
        rows, bins = drawn(n=n, folds=0)
        rows = replace(rows, target=np.full((1, n), positive))
        margin = margins(result(grown([rows], bins))[0], bins, rows.columns)
        assert np.isfinite(margin).all()
        assert ((margin > 0) == positive).all()


def test_all_missing_and_constant_columns_are_never_split_on():
    rows, bins = drawn(folds=0)
    columns = rows.columns.copy()
    columns[0], columns[1] = 0, 3
    rows = replace(rows, columns=columns, codes=columns.T.copy())
    used = result(grown([rows], bins))[0].column
    assert set(np.unique(used).tolist()) <= {2, LEAF}


def test_the_loss_out_of_fold_is_that_of_the_folds_models():
    rows, bins = drawn(folds=3)
    growth = grown([rows], bins, replace(SETTINGS, patience=2, trees=12))
    total = 0.0
    for f in range(3):
        own = rows.fold == f
        z, y = margins(growth.done[f], bins, rows.columns[:, own]), rows.target[0, own]
        total += float((np.logaddexp(0, z) - y * z).sum())
    assert growth.loss[0][-1] == pytest.approx(total, abs=300 * 2.0**-14)


def test_heads_stop_by_themselves():
    rows, bins = drawn(folds=2, heads=2, n=400)
    noise = np.random.default_rng(5).random(400) < 0.5
    rows = replace(rows, target=np.stack([rows.target[0], noise]))
    growth = grown([rows], bins, Boosting(trees=40, depth=3, min_rows=5, patience=3))
    counts = [growing.best_count(loss) for loss in growth.loss]
    assert counts[0] > counts[1]
    assert [len(f) for f in result(growth)] == counts * 3


def test_gain_is_counted_for_the_columns_that_matter():
    rows, bins = drawn(folds=0, n=1000)
    gain = grown([rows], bins).gain[0]
    assert gain.argmax() == 0
    assert (gain >= 0).all()


def test_a_request_out_of_order_is_answered_all_the_same():
    """A client that was ahead, or of another tree, begins anew from what the request says."""
    rows, bins = drawn(folds=0)
    growth, seen = begin(bins, SETTINGS, 1, 0), []
    while not growth.finished:
        forests = list(zip(growth.done, current(growth), strict=True))
        request = (forests, max(growth.level, 0), growth.count)
        sums = level_sums(rows, *request)
        seen.append((request, sums["hist"]))
        growth = advance(growth, sums["hist"], sums["loss"])
    for k in np.random.default_rng(0).permutation(len(seen)):
        request, hist = seen[k]
        copies = [(f, replace(t, column=t.column.copy())) for f, t in request[0]]
        assert np.array_equal(level_sums(rows, copies, *request[1:])["hist"], hist)


def test_histograms_count_every_training_row_once():
    rows, bins = drawn(folds=2)
    hist = histogram(
        rows.codes, np.where(rows.trains(0), 0, -1).astype(np.int16), rows.fold, rows.fold, 1, bins
    )
    assert hist[0, : bins.sizes[0], 2].sum() == (rows.fold != 0).sum()
