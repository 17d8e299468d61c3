"""Sums over parts by the rows that they leave out are those over their own rows, to the last bit."""

import numpy as np
import pytest

from agnosticfair.client.sums.members import Members, fewest
from agnosticfair.mathematics.parts import all_places, members, named_parts

SIZES = (2, 3, 4)


@pytest.fixture(scope="module")
def drawn():
    """Rows of three axes of which the first two have a usual value, some with none; and their parts up to depth 3."""
    rng = np.random.default_rng(0)
    usual = rng.random((400, 3)) < (0.9, 0.7, 0.0)
    codes = np.where(usual, 1, np.column_stack([rng.integers(-1, size, 400) for size in SIZES]))
    return codes, named_parts(codes, SIZES, 0.001, 3)


def summed(codes, parts, without, asked):
    """What ``add_up`` finds of one value per row, and how many rows it looked at."""
    v, looked = np.random.default_rng(1).integers(-9, 9, len(codes)).astype(float), []

    def add(rows):
        looked.extend(map(len, rows))
        return np.array([*(v[own].sum() for own in rows), v.sum()])[:, None]

    found = Members(codes, all_places(SIZES, parts)).add_up(asked, without, add)[:, 0]
    return found, [*(v[members(codes, parts[m])].sum() for m in asked), v.sum()], sum(looked)


@pytest.mark.parametrize("alone", [False, True])
def test_fewer_rows_have_the_same_sums(drawn, alone):
    codes, parts = drawn
    parts = [part for part in parts if len(part) == 3] if alone else parts  # no wider part is known
    counts = np.array([*(members(codes, part).sum() for part in parts), len(codes)])
    without = fewest(all_places(SIZES, parts), counts)
    assert (without >= 0).any() != alone
    asked = [*range(len(parts)), 0]
    found, meant, looked = summed(codes, parts, without, asked)
    np.testing.assert_array_equal(found, meant)
    own, meant, all_rows = summed(codes, parts, np.full(len(parts), -1), asked)
    np.testing.assert_array_equal(own, meant)
    assert looked == all_rows if alone else looked < 0.7 * all_rows


def test_a_wider_part_that_nobody_asked_for_is_added_up_with_it(drawn):
    codes, parts = drawn
    at = all_places(SIZES, parts)
    pair = next(m for m, part in enumerate(parts) if part == ((0, 1), (1, 1)))
    without = np.full(len(parts), -1)
    without[pair] = 1
    without[at.wider[pair, 1]] = 0  # itself had from everybody
    found, meant, _ = summed(codes, parts, without, [pair])
    np.testing.assert_array_equal(found, meant)
