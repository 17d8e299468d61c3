"""Named parts under audit: what is counted, what is estimable, what the certificate says, and who may check it."""

import json
from dataclasses import replace
from itertools import combinations
from math import isnan

import numpy as np
import pytest
from helpers import dealt, held, script, small_table

import agnosticfair
from agnosticfair import audit, audit_clients
from agnosticfair.auditing import parts as named
from agnosticfair.data.axes import own_axes
from agnosticfair.errors import AgnosticFairError, DataError, SettingsError
from agnosticfair.mathematics.basis import gaussian, subpopulations
from agnosticfair.mathematics.notions import NOTIONS
from agnosticfair.mathematics.parts import members


def test_counts_are_those_of_the_rows_of_each_part():
    table, decided = held(600)
    asked = named.Subpopulations(depth=3, least=0.02)
    axes = own_axes(table, asked.columns, asked.bands)
    s, y = table.column("sex").codes, table.labels("yes").astype(int)
    cells = (s * 2 + y) * 2 + decided
    found = named.searched(axes, asked, named.own_counts(table, axes, cells, 2))
    Z = named.codes_of(table, axes)
    for part, counts in zip(found.parts, found.counts, strict=True):
        inside = members(Z, part)
        np.testing.assert_array_equal(counts.ravel(), np.bincount(cells[inside], minlength=8))
    sizes = [len(axis.values) for axis in axes]
    shown = {part for part, n in zip(found.parts, found.total, strict=True) if n >= 12}
    everything = sum(
        members(Z, tuple(zip(some, values, strict=True))).sum() >= 12
        for d in range(4)
        for some in combinations(range(3), d)
        for values in np.ndindex(*(sizes[a] for a in some))
    )
    assert len(shown) == everything


@pytest.mark.parametrize("notion", sorted(NOTIONS))
def test_a_certificate_names_its_worst_part_and_bounds_it(notion):
    table, decided = held()
    made = audit(decided, table, sensitive_features="sex", notion=notion, precision=0.2)
    able = [part for part in made.parts if part.estimable]
    assert made.upper == max(part.high for part in able) >= made.worst_difference
    assert (
        made.worst_difference == max(part.difference for part in able) == made.worst_part.difference
    )
    for part in made.parts:
        assert isnan(part.difference) or part.low <= part.difference <= part.high
        assert [rate.group for rate in part.rates] == ["g0", "g1"]
    if notion == "demographic_parity":
        assert made.worst_part.name.startswith("job = b") or "and job = b" in made.worst_part.name
        assert made.worst_part.name in str(made)
        assert made.parts[0].name == "everybody"
        assert made.parts[0].difference == pytest.approx(made.difference)


def test_a_part_with_few_rows_is_not_estimable_and_is_never_zero():
    table, decided = held(900)
    made = audit(decided, table, sensitive_features="sex", precision=0.15)
    few = [part for part in made.parts if not part.estimable]
    assert few
    assert all(part.high > part.difference for part in few if not isnan(part.difference))
    assert f"Not estimable for too few rows: {len(few):,} parts" in str(made)


def test_certified_is_never_below_measured_and_small_groups_are_named():
    """With five groups, one of them rare, the two numbers once compared different groups."""
    table, _ = held(5000, groups=4)
    s = table.column("sex").codes.copy()
    s[:20] = 4
    decided = np.random.default_rng(0).random(5000) < np.array([0.3, 0.35, 0.3, 0.3, 0.9])[s]
    names = np.array(["a", "b", "c", "d", "rare"])[s]
    made = audit(decided, table, sensitive_features=names)
    assert made.worst_difference <= made.upper < 0.4
    assert made.parts[0].left_out == ("rare",)
    assert "Compared with none, having too few rows: 'rare'" in str(made)


def test_columns_kernels_and_mixtures_may_be_asked_for():
    table, decided = held()
    ask = {"sensitive_features": "sex", "precision": 0.2}
    one = audit(decided, table, parts=("job",), **ask)
    assert {part.name for part in one.parts} == {"everybody", "job = a", "job = b", "job = c"}
    named_set = subpopulations(("job",), depth=1)
    assert repr(audit(decided, table, basis=named_set, **ask).parts[1].name) == repr("job = a")
    mixed = audit(decided, table, parts=("job",), mixtures=True, **ask)
    assert mixed.upper >= mixed.mixtures >= one.worst_difference
    assert "all their mixtures" in str(mixed)
    kernels = audit(decided, table, basis=gaussian(5, 1.0), **ask)
    assert kernels.upper >= kernels.kernels.upper >= kernels.kernels.worst_difference
    assert "in the population" in str(kernels)
    seen = audit(decided, table, held_out=False, **ask)
    assert isnan(seen.upper)


def test_text_columns_of_a_frame_name_parts():
    import pandas as pd

    table, decided = held()
    frame = pd.DataFrame({"job": table.column("job").values(), "age": table.numeric["age"]})
    made = audit(decided, frame, sensitive_features=table.column("sex").values(), precision=0.2)
    own = audit(decided, table, parts=("age", "job"), sensitive_features="sex", precision=0.2)
    assert {p.name: p.high for p in made.parts}["job = b"] == {p.name: p.high for p in own.parts}[
        "job = b"
    ]


# --- a certificate that travels ---


# --- rows by their content ---


# --- bad input ---


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        ({"confidence": 0.0}, "confidence is 0.0; it must be"),
        ({"confidence": 1}, "confidence is 1; it must be"),
        ({"precision": 0}, "precision is 0; it must be a positive number"),
        ({"parts": ("nosuch",)}, "no column 'nosuch' of at most 200 values to name parts by"),
        ({"parts": named.Subpopulations(least=0.5), "notion": "equality"}, "unknown notion"),
    ],
)
def test_bad_settings_are_named(ask, sentence):
    table, decided = held(300)
    with pytest.raises(AgnosticFairError, match=r"^[^\n]*$") as error:
        audit(decided, table, sensitive_features="sex", **ask)
    assert sentence in str(error.value)


def test_parts_need_no_floor():
    """Few rows have the label in a group: nothing is reweighed, so that no floor stands in the way."""
    table, decided = held(3000)
    rare = table.labels("yes") * (np.arange(len(table)) % 20 == 0)
    ask = {"sensitive_features": "sex", "notion": "equal_opportunity", "precision": 0.9}
    made = audit(decided, table, rare, **ask)
    assert made.parts[0].estimable
    assert made.difference == pytest.approx(made.parts[0].difference)
    with pytest.raises(SettingsError, match="is too high for group"):
        audit(decided, table, rare, basis=gaussian(4, 1.0), **ask)


def test_a_group_without_the_label_asked_for_is_named():
    table, decided = held(600)
    y = table.labels("yes") * (table.column("sex").codes == 0)
    with pytest.raises(SettingsError, match="group 'g1' has no"):
        audit(decided, table, y, sensitive_features="sex", notion="equal_opportunity")


def test_depth_over_three_is_refused():
    with pytest.raises(SettingsError, match="depth 4 is not 1, 2 or 3"):
        named.Subpopulations(depth=4)


def test_rows_of_the_fit_are_refused_where_they_are_known_again():
    table = small_table(400)
    model = agnosticfair.fit(
        {"a": table.take(np.arange(150)), "b": table.take(np.arange(150, 400))}, "fl"
    ).model
    with pytest.raises(DataError, match="the rows that the model was fitted on"):
        audit(model, table, sensitive_features="sex")
    assert isnan(audit(model, table, sensitive_features="sex", held_out=False).upper)
    assert audit(model, small_table(400, 5), sensitive_features="sex").upper > 0


def test_weights_are_left_out_and_it_is_said_which_bounds_do_not_hold():
    table, model = two_fits()
    weighted = replace(table, weights=np.full(len(table), 2.0))
    plain = audit(model, table, sensitive_features="sex", parts=("job",))
    for made in (
        audit(model, weighted, sensitive_features="sex", parts=("job",)),
        audit_clients(model, dealt(weighted, 2), parts=("job",)),
    ):
        assert any("no bound holds for weighted rows" in note for note in made.notes)
        assert (made.n, made.upper) == (plain.n, plain.upper)


# --- over clients ---


def two_fits():
    table = small_table(3000, 3)
    model = agnosticfair.fit({"all": small_table(300, 9)}, "fl").model
    return table, model


@pytest.mark.parametrize("clients", [1, 3])
def test_over_clients_the_parts_have_the_pooled_bits(clients):
    table, model = two_fits()
    ask = {"precision": 0.2, "parts": named.Subpopulations(depth=3, least=0.05), "mixtures": True}
    pooled = audit(model, table, sensitive_features="sex", **ask)
    spread = audit_clients(model, dealt(table, clients), **ask)
    assert repr(spread.parts) == repr(pooled.parts)  # nan is not nan
    assert (spread.upper, spread.mixtures) == (pooled.upper, pooled.mixtures)
    assert (spread.worst_difference, spread.pair) == (pooled.worst_difference, pooled.pair)
    alone = {key: value for key, value in pooled.sums.items() if key != "rows"}  # they stay apart
    assert json.dumps(spread.sums) == json.dumps(alone)


def test_the_same_rows_at_two_clients_are_refused():
    table, model = two_fits()
    with pytest.raises(DataError, match="clients 'a' and 'b' hold the same rows"):
        audit_clients(model, {"a": table, "b": table})
    some = {"a": table.take(np.arange(1700)), "b": table.take(np.arange(1300, 3000))}
    made = audit_clients(model, some)
    assert "Clients 'a' and 'b' have about" in made.notes[0]
    assert not any("in common" in note for note in audit_clients(model, dealt(table, 2)).notes)
    own = small_table(300, 9)
    with pytest.raises(DataError, match="the rows that the model was fitted on"):
        audit_clients(model, dealt(own, 2))


def test_a_notebook_shows_the_worst_parts_and_a_forest():
    table, decided = held(2000)
    made = audit(decided, table, sensitive_features="sex", precision=0.2)
    page = made._repr_html_()
    assert made.to_frame()["rows"].tolist() == [part.rows for part in made.parts]
    assert made.worst_part.name in page
    assert page.count("<tr>") > 3
    assert len(made.plot().axes[0].get_yticklabels()) >= sum(p.estimable for p in made.parts[:5])


@pytest.mark.parametrize("kind", ["ordinary", "extreme", "clustered"])
def test_differences_and_ratios_hold_jointly_on_three_populations(kind):
    populations = script("populations")
    found = np.array([populations.kept(kind, seed, 3000) for seed in range(25)])
    assert (found[:, 0] & found[:, 1]).sum() >= 24
    assert found[:, 2].min() >= 1


@pytest.mark.parametrize("n", [60, 300, 1000])
def test_everybody_is_certified_however_few_rows_there_are(n):
    table, decided = held(n)
    made = audit(decided, table, sensitive_features="sex")
    assert made.parts[0].estimable
    assert made.upper == made.parts[0].high < 1
    assert "Certified with 95% confidence for everybody: " in str(made)
    wider = audit(decided[: n // 2], table.take(np.arange(n // 2)), sensitive_features="sex")
    assert wider.parts[0].high - wider.parts[0].low > made.parts[0].high - made.parts[0].low
    if n == 1000:
        assert made.parts[0].high - made.parts[0].difference < 0.13
