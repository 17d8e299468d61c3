"""Axes agreed without pooling: the same from any split, and codes that say what the table says."""

import json
from dataclasses import replace

import numpy as np
import pytest

from agnosticfair.data.axes import axes_of, bin_axis, codes_of, edges_of, histogram
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
    assert agreed({"all": rows})[0].values[0] == "before 2024-10-04 15:00"


def test_bins_hold_about_equal_shares():
    ages = table(5000).numeric["age"]
    edges = edges_of(histogram(ages, 17.0, 89.0), 17.0, 89.0, 4)
    shares = np.bincount(np.searchsorted(edges, ages, "right")) / len(ages)
    assert len(edges) == 3
    assert abs(shares - 0.25).max() < 0.03
    assert edges_of(histogram(np.zeros(9), 0.0, 1.0), 0.0, 1.0, 4) == ()


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
