"""Subgroups under audit: what is counted, what is estimable, what the certificate says, and who may check it."""

import json
from dataclasses import replace
from itertools import combinations
from math import isnan

import numpy as np
import pytest
from helpers import dealt, held, script, small_table

import agnosticfair
from agnosticfair import audit, audit_clients
from agnosticfair.auditing import subgroups as named
from agnosticfair.data.axes import axes_of_table
from agnosticfair.errors import AgnosticFairError, DataError, SettingsError
from agnosticfair.mathematics.basis import gaussian, subgroups
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.mathematics.subgroups import members


def test_counts_are_those_of_the_rows_of_each_subgroup():
    table, decided = held(600)
    request = subgroups(depth=3, min_share=0.02)
    axes = axes_of_table(table, request.columns, request.bins)
    s, y = table.column("sex").codes, table.labels("yes").astype(int)
    strata = (s * 2 + y) * 2 + decided
    counted = named.searched(axes, request, named.table_counts(table, axes, strata, 2))
    Z = named.codes_of(table, axes)
    for subgroup, counts in zip(counted.subgroups, counted.counts, strict=True):
        inside = members(Z, subgroup)
        np.testing.assert_array_equal(counts.ravel(), np.bincount(strata[inside], minlength=8))
    sizes = [len(axis.values) for axis in axes]
    shown = {
        subgroup for subgroup, n in zip(counted.subgroups, counted.total, strict=True) if n >= 12
    }
    everything = sum(
        members(Z, tuple(zip(some, values, strict=True))).sum() >= 12
        for d in range(4)
        for some in combinations(range(3), d)
        for values in np.ndindex(*(sizes[a] for a in some))
    )
    assert len(shown) == everything


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_a_certificate_names_its_worst_subgroup_and_bounds_it(metric):
    table, decided = held()
    certificate = audit(decided, table, sensitive_features="sex", metric=metric, precision=0.2)
    able = [subgroup for subgroup in certificate.subgroups if subgroup.estimable]
    assert (
        certificate.upper == max(subgroup.high for subgroup in able) >= certificate.worst_difference
    )
    assert (
        certificate.worst_difference
        == max(subgroup.difference for subgroup in able)
        == certificate.worst_subgroup.difference
    )
    for subgroup in certificate.subgroups:
        assert isnan(subgroup.difference) or subgroup.low <= subgroup.difference <= subgroup.high
        assert [rate.group for rate in subgroup.rates] == ["g0", "g1"]
    if metric == "demographic_parity":
        assert (
            certificate.worst_subgroup.name.startswith("job = b")
            or "and job = b" in certificate.worst_subgroup.name
        )
        assert certificate.worst_subgroup.name in str(certificate)
        assert certificate.subgroups[0].name == "overall"
        assert certificate.subgroups[0].difference == pytest.approx(certificate.difference)


def test_a_subgroup_with_few_rows_is_not_estimable_and_is_never_zero():
    table, decided = held(900)
    certificate = audit(decided, table, sensitive_features="sex", precision=0.15)
    few = [subgroup for subgroup in certificate.subgroups if not subgroup.estimable]
    assert few
    assert all(
        subgroup.high > subgroup.difference for subgroup in few if not isnan(subgroup.difference)
    )
    assert f"{len(few):,} subgroups" in str(certificate)


def test_certified_is_never_below_measured_and_small_groups_are_named():
    """With five groups, one of them rare, the two numbers once compared different groups."""
    table, _ = held(5000, groups=4)
    s = table.column("sex").codes.copy()
    s[:20] = 4
    decided = np.random.default_rng(0).random(5000) < np.array([0.3, 0.35, 0.3, 0.3, 0.9])[s]
    names = np.array(["a", "b", "c", "d", "rare"])[s]
    certificate = audit(decided, table, sensitive_features=names)
    assert certificate.worst_difference <= certificate.upper < 0.4
    assert certificate.subgroups[0].left_out == ("rare",)
    assert "'rare'" in str(certificate)


def test_columns_kernels_and_mixtures_may_be_asked_for():
    table, decided = held()
    send = {"sensitive_features": "sex", "precision": 0.2}
    one = audit(decided, table, subgroups=("job",), **send)
    assert {subgroup.name for subgroup in one.subgroups} == {
        "overall",
        "job = a",
        "job = b",
        "job = c",
    }
    named_set = subgroups(("job",), depth=1)
    assert repr(audit(decided, table, basis=named_set, **send).subgroups[1].name) == repr("job = a")
    mixed = audit(decided, table, subgroups=("job",), mixtures=True, **send)
    assert mixed.upper >= mixed.mixtures >= one.worst_difference
    assert "all their mixtures" in str(mixed)
    kernels = audit(decided, table, basis=gaussian(5, 1.0), **send)
    assert kernels.upper >= kernels.kernels.upper >= kernels.kernels.worst_difference
    assert "in the population" in str(kernels)
    seen = audit(decided, table, held_out=False, **send)
    assert isnan(seen.upper)


def test_text_columns_of_a_frame_name_subgroups():
    import pandas as pd

    table, decided = held()
    frame = pd.DataFrame({"job": table.column("job").values(), "age": table.numeric["age"]})
    certificate_here = audit(
        decided, frame, sensitive_features=table.column("sex").values(), precision=0.2
    )
    certificate = audit(
        decided, table, subgroups=("age", "job"), sensitive_features="sex", precision=0.2
    )
    assert {p.name: p.high for p in certificate_here.subgroups}["job = b"] == {
        p.name: p.high for p in certificate.subgroups
    }["job = b"]


# --- a certificate that travels ---


# --- rows by their content ---


# --- bad input ---


@pytest.mark.parametrize(
    ("send", "sentence"),
    [
        ({"confidence": 0.0}, "is 0.0"),
        ({"confidence": 1}, "confidence is 1"),
        ({"precision": 0}, "precision is 0"),
        (
            {"subgroups": ("nosuch",)},
            "column 'nosuch'",
        ),
        ({"subgroups": subgroups(min_share=0.5), "metric": "equality"}, "unknown metric"),
    ],
)
def test_bad_settings_are_named(send, sentence):
    table, decided = held(300)
    with pytest.raises(AgnosticFairError, match=r"^[^\n]*$") as error:
        audit(decided, table, sensitive_features="sex", **send)
    assert sentence in str(error.value)


def test_subgroups_need_no_floor():
    """Few rows have the label in a group: nothing is reweighted, so that no floor stands in the way."""
    table, decided = held(3000)
    rare = table.labels("yes") * (np.arange(len(table)) % 20 == 0)
    send = {"sensitive_features": "sex", "metric": "equal_opportunity", "precision": 0.9}
    certificate = audit(decided, table, rare, **send)
    assert certificate.subgroups[0].estimable
    assert certificate.difference == pytest.approx(certificate.subgroups[0].difference)
    with pytest.raises(SettingsError, match="too high"):
        audit(decided, table, rare, basis=gaussian(4, 1.0), **send)


def test_a_group_without_the_label_asked_for_is_named():
    table, decided = held(600)
    y = table.labels("yes") * (table.column("sex").codes == 0)
    with pytest.raises(SettingsError, match=r"group.*'g1'"):
        audit(decided, table, y, sensitive_features="sex", metric="equal_opportunity")


def test_depth_over_three_is_refused():
    with pytest.raises(SettingsError, match="depth 4"):
        subgroups(depth=4)


def test_rows_of_the_fit_are_refused_where_they_are_known_again():
    table = small_table(400)
    model = agnosticfair.fit(
        {"a": table.take(np.arange(150)), "b": table.take(np.arange(150, 400))}, "fl"
    ).model
    with pytest.raises(DataError, match="model was fitted"):
        audit(model, table, sensitive_features="sex")
    assert isnan(audit(model, table, sensitive_features="sex", held_out=False).upper)
    assert audit(model, small_table(400, 5), sensitive_features="sex").upper > 0


def test_weights_are_left_out_and_it_is_said_which_bounds_do_not_hold():
    table, model = two_fits()
    weighted = replace(table, weights=np.full(len(table), 2.0))
    plain = audit(model, table, sensitive_features="sex", subgroups=("job",))
    for made in (
        audit(model, weighted, sensitive_features="sex", subgroups=("job",)),
        audit_clients(model, dealt(weighted, 2), subgroups=("job",)),
    ):
        assert any("bound holds" in note for note in made.notes)
        assert (made.n, made.upper) == (plain.n, plain.upper)


# --- over clients ---


def two_fits():
    table = small_table(3000, 3)
    model = agnosticfair.fit({"all": small_table(300, 9)}, "fl").model
    return table, model


@pytest.mark.parametrize("clients", [1, 3])
def test_over_clients_the_subgroups_have_the_pooled_bits(clients):
    table, model = two_fits()
    send = {
        "precision": 0.2,
        "subgroups": subgroups(depth=3, min_share=0.05),
        "mixtures": True,
    }
    pooled = audit(model, table, sensitive_features="sex", **send)
    spread = audit_clients(model, dealt(table, clients), **send)
    assert repr(spread.subgroups) == repr(pooled.subgroups)  # nan is not nan
    assert (spread.upper, spread.mixtures) == (pooled.upper, pooled.mixtures)
    assert (spread.worst_difference, spread.pair) == (pooled.worst_difference, pooled.pair)
    alone = {key: value for key, value in pooled.sums.items() if key != "rows"}  # they stay apart
    assert json.dumps(spread.sums) == json.dumps(alone)


def test_the_same_rows_at_two_clients_are_refused():
    table, model = two_fits()
    with pytest.raises(DataError, match=r"'a'.*'b'"):
        audit_clients(model, {"a": table, "b": table})
    some = {"a": table.take(np.arange(1700)), "b": table.take(np.arange(1300, 3000))}
    certificate = audit_clients(model, some)
    assert "Clients 'a'" in certificate.notes[0]
    assert not any("in common" in note for note in audit_clients(model, dealt(table, 2)).notes)
    table_here = small_table(300, 9)
    with pytest.raises(DataError, match="model was fitted"):
        audit_clients(model, dealt(table_here, 2))


def test_a_frame_has_all_subgroups_and_a_figure_the_worst():
    table, decided = held(2000)
    certificate = audit(decided, table, sensitive_features="sex", precision=0.2)
    assert certificate.to_frame()["rows"].tolist() == [
        subgroup.rows for subgroup in certificate.subgroups
    ]
    assert len(certificate.plot().axes[0].get_yticklabels()) >= sum(
        p.estimable for p in certificate.subgroups[:5]
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ordinary", "extreme", "clustered"])
def test_differences_and_ratios_hold_jointly_on_three_populations(kind):
    populations = script("populations")
    values = np.array([populations.kept(kind, seed, 3000) for seed in range(25)])
    assert (values[:, 0] & values[:, 1]).sum() >= 24
    assert values[:, 2].min() >= 1


@pytest.mark.parametrize("n", [60, 300, 1000])
def test_overall_is_certified_however_few_rows_there_are(n):
    table, decided = held(n)
    certificate = audit(decided, table, sensitive_features="sex")
    assert certificate.subgroups[0].estimable
    assert certificate.upper == certificate.subgroups[0].high < 1
    assert "Certified with 95% confidence overall: " in str(certificate)
    wider = audit(decided[: n // 2], table.take(np.arange(n // 2)), sensitive_features="sex")
    assert (
        wider.subgroups[0].high - wider.subgroups[0].low
        > certificate.subgroups[0].high - certificate.subgroups[0].low
    )
    if n == 1000:
        assert certificate.subgroups[0].high - certificate.subgroups[0].difference < 0.13
