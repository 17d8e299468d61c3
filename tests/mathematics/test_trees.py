"""What forests predict, against rows that walk from node to node; and how they are packed."""

import numpy as np
import pytest

from agnosticfair.mathematics.trees import (
    LEAF,
    MAX_CODES,
    Bins,
    Forest,
    empty,
    is_categorical,
    joined,
    margins,
    number_codes,
    pack,
    unpack,
)

BINS = Bins((6, 5, 9), 2)


def drawn(seed, trees=4, depth=4):
    """A forest with all kinds of nodes."""
    r, shape = np.random.default_rng(seed), (trees, 2**depth - 1)
    column = r.integers(0, 3, shape).astype(np.uint16)
    column[r.random(shape) < 0.2] = LEAF
    sets = r.integers(0, 256, (int(is_categorical(column, BINS).sum()), MAX_CODES // 8)).astype(
        np.uint8
    )
    threshold = r.integers(0, 5, shape).astype(np.uint8)
    missing = r.integers(0, 2, shape).astype(np.uint8)
    value = r.normal(size=(trees, 2**depth)).astype(np.float32)
    return Forest(column, threshold, missing, sets, value, 0.25)


def walked(forest, codes):
    """The margin of one row, node by node."""
    total, rank = forest.start, 0
    for t in range(len(forest)):
        node = 0
        ranks = np.cumsum(is_categorical(forest.column[t], BINS)) - 1 + rank
        while node < forest.column.shape[1]:
            c, right = forest.column[t, node], False
            if c != LEAF and c >= BINS.numeric:
                bit = codes[c]
                right = not forest.sets[ranks[node]][bit // 8] >> (bit % 8) & 1
            elif c != LEAF and codes[c] == 0:
                right = bool(forest.missing_right[t, node])
            elif c != LEAF:
                right = codes[c] > forest.threshold[t, node]
            node = 2 * node + 1 + right
        total = total + float(forest.value[t, node - forest.column.shape[1]])
        rank += int(is_categorical(forest.column[t], BINS).sum())
    return total


@pytest.mark.parametrize("depth", [1, 4, 7])
@pytest.mark.parametrize("seed", range(3))
def test_margins_are_those_of_rows_that_walk(seed, depth, monkeypatch):
    monkeypatch.setattr("agnosticfair.mathematics.trees.CHUNK", 64)
    forest, r = drawn(seed, depth=depth), np.random.default_rng(seed)
    columns = np.stack([r.integers(0, size, 150) for size in BINS.sizes]).astype(np.uint8)
    expected = [walked(forest, columns[:, i].tolist()) for i in range(150)]
    assert np.array_equal(margins(forest, BINS, columns), expected)


def test_a_forest_of_leaves_adds_them():
    forest = empty(3, 0.5, trees=2)
    forest.value[:, 0] = 1.0
    assert margins(forest, BINS, np.ones((3, 2), np.uint8)).tolist() == [2.5, 2.5]


def test_packed_forests_come_back():
    forests = [drawn(0), empty(2, 1.5), drawn(1, trees=1, depth=2)]
    for one, other in zip(forests, unpack(pack(forests, BINS), BINS), strict=True):
        assert one.start == other.start
        for name in ("column", "threshold", "missing_right", "value"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        codes = slice(max(BINS.sizes[BINS.numeric :]))  # of others no bit travels
        sets = (np.unpackbits(f.sets, axis=1, bitorder="little")[:, codes] for f in (one, other))
        assert np.array_equal(*sets)


def test_the_first_trees_and_the_rest_are_the_forest():
    forest = drawn(2)
    first = forest.first(3, BINS)
    last = Forest(
        forest.column[3:], forest.threshold[3:], forest.missing_right[3:],
        forest.sets[len(first.sets) :], forest.value[3:],
    )  # fmt: skip
    columns = np.random.default_rng(0).integers(0, 5, (3, 40)).astype(np.uint8)
    both = joined(first, last)
    assert np.array_equal(margins(both, BINS, columns), margins(forest, BINS, columns))


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda b: b[:10], "end too early"),
        (lambda b: b[:-1], "end before"),
        (lambda b: np.concatenate([b[:4], [9], b[5:]]), "depth 9"),
        (lambda b: np.concatenate([b[:20], [7, 0], b[22:]]), "not there|not a set"),
        (lambda b: np.concatenate([b[:12], [0, 0, 0, 0, 0, 0, 240, 127], b[20:]]), "finite"),
    ],
)
def test_what_is_no_forest_is_refused(spoil, sentence):
    with pytest.raises(ValueError, match=sentence):
        unpack(spoil(pack([drawn(0)], BINS)).astype(np.uint8), BINS)


def test_other_numbers_than_bytes_are_refused():
    content = pack([drawn(0)], BINS)
    for wrong in (content.astype(float), content[None]):
        with pytest.raises(ValueError, match="bytes"):
            unpack(wrong, BINS)


def test_bins_fit_in_a_byte():
    with pytest.raises(ValueError, match="256 codes"):
        Bins((257,), 1)


def test_infinities_lie_in_the_outer_bins_and_nan_in_its_own():
    values = np.array([-np.inf, np.inf, np.nan, 0.0, -0.0])
    assert number_codes(values, np.array([0.0, 1.0])).tolist() == [1, 3, 0, 2, 2]
    assert number_codes(values, np.zeros(0)).tolist() == [1, 1, 0, 1, 1]
