"""Axes agreed without pooling: the same from any split, and codes that say what the table says."""

import json
from dataclasses import replace

import numpy as np
import pytest

from agnosticfair.data.axes import (
    axes_of,
    bin_axis,
    codes_of,
    edges_at_quantiles,
    edges_of,
    histogram,
    round_cuts,
    shortest,
)
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import SummaryStatistics, merge, summary_statistics
from agnosticfair.data.table import DATED, Column, Table
from agnosticfair.errors import DataError, SettingsError


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return Table(
        {
            "age": rng.integers(17, 90, n).astype(float),
            "gain": np.where(rng.random(n) < 0.9, 0.0, 5000.0),
        },
        {"job": Column.of(rng.choice(["a", "b", "c"], n))},
        Column.of(rng.choice(["no", "yes"], n)),
        {"sex": Column.of(rng.choice(["F", "M"], n))},
        {"town": Column.of(rng.choice(["x", "y"], n))},
    )


def agreed(tables, **settings):
    statistics = merge({k: summary_statistics(t, k) for k, t in tables.items()})
    counts = {
        name: sum(histogram(t.numeric[name], *statistics.numeric[name]) for t in tables.values())
        for name in statistics.numeric
    }
    return axes_of(statistics, counts, clients=tuple(tables), **settings)


def test_axes_are_the_same_for_any_split():
    whole = table()
    subgroups = {"north": whole.take(np.arange(100)), "south": whole.take(np.arange(100, 400))}
    assert agreed({"all": whole}) == agreed(subgroups)
    assert [(axis.name, len(axis.values)) for axis in agreed(subgroups)] == [
        ("age", 4),
        ("gain", 2),
        ("job", 3),
    ]


def test_a_subgroup_of_a_column_of_dates_is_named_by_dates_and_has_the_same_rows():
    days = table().numeric["age"] + 20_000
    rows = replace(table(), numeric={"day": days}, how={"day": DATED})
    plain = replace(rows, how={})
    subgroups = {"north": rows.take(np.arange(100)), "south": rows.take(np.arange(100, 400))}
    (axis, _), (numbers, _) = agreed(subgroups), agreed({"all": plain})
    assert axis.values[0].startswith("before 2024-")
    assert axis.values[-1].endswith(" or later")
    assert len(axis.values) == len(numbers.values) == 4
    np.testing.assert_array_equal(codes_of(rows, (axis,)), codes_of(rows, (numbers,)))
    (own, _) = agreed({**subgroups, "south": plain.take(np.arange(100, 400))})
    assert own.values[0].startswith("under 20"), (
        "where a site has plain numbers, so has the subgroup"
    )
    statistics = summary_statistics(rows, "all")
    assert SummaryStatistics.from_json(json.loads(json.dumps(statistics.to_json()))).dates == (
        "day",
    )
    assert schema_of(statistics, "y").outline().dates == ("day",)
    assert "dates" not in summary_statistics(plain, "all").to_json()


def test_dates_with_a_time_keep_it():
    rows = replace(
        table(), numeric={"day": np.linspace(20_000.25, 20_001.75, 400)}, how={"day": DATED}
    )
    assert agreed({"all": rows})[0].values[0] == "before 2024-10-04 14:59"


def test_bins_hold_about_equal_shares():
    ages = table(5000).numeric["age"]
    for rule in (edges_at_quantiles, edges_of):
        edges = rule(round_cuts(17.0, 89.0), histogram(ages, 17.0, 89.0), 4)
        shares = np.bincount(np.searchsorted(edges, ages, "right")) / len(ages)
        assert len(edges) == 3
        assert abs(shares - 0.25).max() < 0.03
        assert rule(round_cuts(0.0, 1.0), histogram(np.zeros(9), 0.0, 1.0), 4) == ()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [1e-9, 1.0, 97.6553, 1e12])
def test_edges_are_numbers_that_people_write(seed, scale):
    r = np.random.default_rng(seed)
    values = scale * np.where(r.random(2000) < 0.6, 0.0, np.exp(r.normal(size=2000)))
    low, high = float(values.min()), float(values.max())
    cuts = round_cuts(low, high)
    counts = histogram(values, low, high)
    width = (cuts[-1] - cuts[0]) / len(np.unique(cuts))
    assert 250 < len(np.unique(cuts)) < 1024
    for edge in edges_of(cuts, counts, 32):
        digits = len(f"{edge:.15g}".split("e")[0].replace(".", "").strip("0"))
        assert digits <= 2 + np.ceil(np.log10(edge / width))
    assert edges_of(cuts, counts, 32)[0] == edges_at_quantiles(cuts, counts, 4)[0], "at the spike"


def test_an_edge_at_a_spike_leaves_the_same_rows_on_each_side():
    gain = np.concatenate([np.zeros(900), np.arange(114.0, 99999.0, 999.0)])
    edges = edges_of(round_cuts(0.0, 99999.0), histogram(gain, 0.0, 99999.0), 4)
    assert edges[0] == 100.0
    assert ((gain >= edges[0]) == (gain > 0)).all()
    ages = np.arange(17.0, 91.0)
    every = edges_of(round_cuts(17.0, 90.0), histogram(ages, 17.0, 90.0), 99, 1)
    assert every == tuple(ages[1:]), "whole numbers stay whole"


@pytest.mark.parametrize(
    ("low", "high", "number"),
    [(97.6553, 114.0, 100.0), (-30.0, -25.0, -30.0), (0.3, 0.3, 0.3), (-2.0, 0.0, 0.0), (99.1, 101.0, 100.0)],
)  # fmt: skip
def test_the_shortest_number_between_two(low, high, number):
    assert shortest(low, high) == number


def test_codes_say_what_the_table_says():
    rows = table()
    axes = agreed(
        {"north": rows}, columns=("age", "job", "town", "site"), others={"town": ("x", "y")}
    )
    assert [axis.name for axis in axes] == ["age", "job", "town"], "one site subgroups nobody"
    codes = codes_of(rows, axes)
    job = np.array(axes[1].values, object)[codes[:, 1]]
    np.testing.assert_array_equal(job, rows.categorical["job"].values())
    assert ((rows.numeric["age"] < axes[0].edges[0]) == (codes[:, 0] == 0)).all()


def test_site_is_a_column():
    axes = agreed({"north": table(), "south": table(seed=1)}, columns=("site",))
    assert axes[0].values == ("north", "south")
    assert (codes_of(table(), axes, client="south") == 1).all()


def test_what_names_no_subgroup_is_said():
    with pytest.raises(SettingsError, match=r"'hair'.*200 values"):
        agreed({"north": table()}, columns=("hair",))
    many = table()
    ids = Column.of(f"row {i}" for i in range(400))
    many = Table(many.numeric, {"id": ids}, many.target, many.sensitive_features)
    with pytest.raises(SettingsError, match=r"'id'.*400 values.*200"):
        agreed({"north": many}, columns=("id",))
    axes = agreed({"north": many})
    assert "id" not in [axis.name for axis in axes], "not meant unless it is named"
    with pytest.raises(DataError, match=r"numbers.*'weight'"):
        codes_of(many, (bin_axis("weight", (3.0,)),), "client 'north'")
