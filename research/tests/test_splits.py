import numpy as np
import pytest
from helpers import adult_split
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.data.datasets import client_names
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import SettingsError
from agnosticfair_research.datasets import DATASETS
from agnosticfair_research.splits import dirichlet, iid, shift

ADULT = DATASETS["adult"]


def table(n, seed=0):
    rng = np.random.default_rng(seed)
    work = Column(rng.integers(0, 2, n), ("Private", "State-gov"))
    sex = Column(rng.integers(0, 2, n), ("Female", "Male"))
    return Table({"row": np.arange(float(n))}, {"workclass": work}, sex, {"sex": sex})


SPLITS = {
    "shift": lambda rows, p, seed: shift(rows, ADULT, p, seed),
    "iid": iid,
    "dirichlet": lambda rows, p, seed: dirichlet(rows, p, 2.0, seed),
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
@given(n=st.integers(400, 600), p=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_every_row_lands_in_exactly_one_place(split, n, p, seed):
    done = split(table(n), p, seed)
    places = [*done.train.values(), done.test]
    rows = np.concatenate([place.numeric["row"] for place in places])
    assert sorted(rows) == list(range(n))
    assert len(done.train) == p
    assert list(done.train) == sorted(done.train)
    assert min(map(len, done.train.values())) > 0
    assert done.test_piece.shape == (len(done.test),)
    assert set(done.test_piece.tolist()) <= set(range(len(done.pieces)))


@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_seed_decides(split):
    one, same, other = (split(table(500), 4, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.test.numeric["row"], same.test.numeric["row"])
    np.testing.assert_array_equal(one.test_piece, same.test_piece)
    assert not np.array_equal(one.test.numeric["row"], other.test.numeric["row"])
    for name, rows in one.train.items():
        np.testing.assert_array_equal(rows.numeric["row"], same.train[name].numeric["row"])


def test_client_names_sort_as_numbers():
    for p in (1, 9, 10, 101):
        assert sorted(client_names(p)) == list(client_names(p))
    assert client_names(10)[0] == "client-01"


@pytest.mark.parametrize("clients", [1, 2, 7])
def test_the_product_s_tests_split_adult_the_same_way(adult, clients):
    ours, theirs = shift(adult, ADULT, clients), adult_split(adult, clients)
    for one, other in zip(ours.train.values(), theirs.train.values(), strict=True):
        np.testing.assert_array_equal(one.numeric["fnlwgt"], other.numeric["fnlwgt"])
    np.testing.assert_array_equal(ours.test.numeric["fnlwgt"], theirs.test.numeric["fnlwgt"])
    np.testing.assert_array_equal(ours.test_piece, theirs.test_piece)


def test_adult_shift_is_that_of_the_paper(adult):
    split = shift(adult, ADULT)
    assert split.pieces == ("Private", "not Private")
    assert {name: len(rows) for name, rows in split.train.items()} == {
        "client-1": 26_646,  # 80% of 33,307
        "client-2": 2_383,  # 20% of 11,915
    }
    assert set(split.train["client-1"].column("workclass").values()) == {"Private"}
    assert "Private" not in split.train["client-2"].column("workclass").values()
    private = split.test.column("workclass").values() == "Private"
    np.testing.assert_array_equal(split.test_piece == 0, private)
    y, s = split.test.labels(">50K"), split.test.sensitive_features["sex"].codes
    assert 1 - y.mean() == pytest.approx(0.7187, abs=0.004)
    assert y[s == 1].mean() - y[s == 0].mean() == pytest.approx(0.210, abs=0.012)


def test_dutch_shift_is_that_of_the_paper(dutch):
    split = shift(dutch, DATASETS["dutch"])
    assert split.pieces == ("1122", "not 1122")
    assert [len(rows) for rows in split.train.values()] == [20_980, 13_678]
    assert len(split.test) == 60_420 - 20_980 - 13_678


@pytest.mark.parametrize("name", ["oulad", "bank", "law", "compas"])
def test_what_is_held_back_trains_nobody(name, load):
    known, rows = DATASETS[name], load(name)
    column = known.shift.column
    for clients in (None, 1, 3):
        split = shift(rows, known, clients, seed=1)
        trained = {v for t in split.train.values() for v in t.column(column).values()}
        held_back = split.test.take(split.test_piece == 1).column(column).values()
        assert trained
        assert not trained & {*held_back}
        left_out = (rows.column(column).aligned(known.shift.left_out) >= 0).sum()
        assert len(split.test) + sum(map(len, split.train.values())) == len(rows) - left_out
        seen = split.test_piece == 0
        assert seen.sum() == pytest.approx(0.25 * sum(map(len, split.train.values())), abs=1)
    assert trained == {*known.shift.values} or len({*held_back}) == known.shift.drawn


def test_regions_are_sites_and_the_seed_holds_some_back(load):
    rows = load("oulad")
    one, same, other = (shift(rows, DATASETS["oulad"], None, seed) for seed in (1, 1, 2))
    assert set(one.train) == set(same.train) != set(other.train)
    assert len(one.train) == 13 - 4
    for name, those in one.train.items():
        assert set(those.column("region").values()) == {name}


def test_four_regions_of_the_census_train_and_the_four_others_are_held_back(load):
    rows = load("govcensus")
    split = shift(rows, DATASETS["govcensus"], None, seed=0)
    held_back = {*split.test.take(split.test_piece == 1).column("economic_region").values()}
    assert len(split.train) == len(held_back) == 4
    assert not held_back & {*split.train, "Abroad"}
    trained, seen = sum(map(len, split.train.values())), (split.test_piece == 0).sum()
    assert 2 * trained == pytest.approx(seen, abs=2)


@pytest.mark.parametrize(("p", "first"), [(2, 1), (3, 2), (5, 3), (50, 25)])
def test_shift_shares_each_group_evenly(adult, p, first):
    clients = list(shift(adult, ADULT, p).train.values())
    for group, private in ((clients[:first], True), (clients[first:], False)):
        sizes = [len(rows) for rows in group]
        assert max(sizes) - min(sizes) <= 1
        for rows in group:
            assert ((rows.column("workclass").values() == "Private") == private).all()


def test_shift_holds_out_the_same_rows_for_any_number_of_clients(adult):
    one, many = shift(adult, ADULT, 1, seed=3), shift(adult, ADULT, 7, seed=3)
    np.testing.assert_array_equal(one.test.numeric["fnlwgt"], many.test.numeric["fnlwgt"])
    assert len(one.train["client-1"]) == 26_646 + 2_383


@pytest.mark.parametrize("p", [1, 2, 7])
def test_iid_deals_evenly(p):
    split = iid(table(503), p)
    sizes = [len(rows) for rows in split.train.values()]
    assert sum(sizes) == 402
    assert max(sizes) - min(sizes) <= 1
    local = np.bincount(split.test_piece, minlength=p)
    assert local.max() - local.min() <= 1
    assert split.pieces == tuple(split.train)


def test_dirichlet_gives_train_and_test_the_same_proportions(adult):
    split = dirichlet(adult, clients=5, concentration=0.5, seed=1)
    assert len(split.test) == round(0.4 * len(adult))
    for subgroup, rows in enumerate(split.train.values()):
        local = split.test.take(split.test_piece == subgroup)
        assert len(rows) >= 10
        assert len(local) / len(rows) == pytest.approx(2 / 3, rel=0.1)
        male = [t.sensitive_features["sex"].codes.mean() for t in (rows, local)]
        assert male[0] == pytest.approx(male[1], abs=0.02)


def test_small_concentration_makes_clients_differ(adult):
    def spread(concentration):
        train = dirichlet(adult, 5, concentration, seed=0).train.values()
        return np.std([rows.sensitive_features["sex"].codes.mean() for rows in train])

    assert spread(0.5) > 5 * spread(1000.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda t: shift(t, ADULT, 1000), "1000 clients.*too"),
        (lambda t: iid(t, 401), "401 clients.*most 400"),
        (lambda t: dirichlet(t, 31), "31 clients.*most 30"),
        (lambda t: iid(t, 0), "0 clients.*federation"),
        (lambda t: shift(t, ADULT, 0), "0 clients.*federation"),
        (lambda t: dirichlet(t, -1), "-1 clients.*federation"),
        (lambda t: dirichlet(t, 2, 0.0), "0.0 should.*above 0"),
        (lambda t: dirichlet(t, 2, float("nan")), "concentration.*above 0"),
        (lambda t: dirichlet(t, 9, 1e-9), "concentration 1e-09.*lower"),
    ],
)
def test_settings_that_make_no_sense(make, message):
    n = 500
    with pytest.raises(SettingsError, match=message):
        make(table(n))
