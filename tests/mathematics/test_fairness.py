"""Fairness metrics in training: cells, subgroups and cuts; any number of groups and sensitive features."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from helpers import dealt, small_table
from hypothesis import given
from hypothesis import strategies as st

from agnosticfair import AgnosticFairClassifier
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.ambiguity import Ambiguity
from agnosticfair.mathematics.fairness import (
    comparisons,
    rate_cut,
    worst_pair,
    worst_rate_cuts,
)
from agnosticfair.mathematics.linear import log_loss
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.mathematics.ratios import worst_difference, worst_ratio
from agnosticfair.methods import method

SMALL = {"kernels": 12, "bound": 8.0}
ROWS = small_table(500, 2)


def two_features(n: int = 500, rare: int = 0) -> Table:
    """Sex and a race of three groups, the last one with ``rare`` rows if any."""
    table = small_table(n, 3)
    race = np.random.default_rng(1).integers(0, 2 if rare else 3, n)
    race[:rare] = 2
    age = table.numeric["age"] + 0.8 * table.sensitive_features["sex"].codes
    table = replace(table, numeric={**table.numeric, "age": age})
    sensitive = {**table.sensitive_features, "race": Column(race.astype(np.int32), ("a", "b", "c"))}
    return replace(table, sensitive_features=sensitive)


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_every_metric_holds_over_the_set_and_does_not_depend_on_the_split(metric):
    tau = 0.75 if metric == "bounded_group_loss" else 0.05
    chosen_method = method("agnosticfair", metric=metric, tau=tau, **SMALL)
    one, many = (fit(dealt(ROWS, k), chosen_method, positive="yes") for k in (1, 4))
    assert one.converged
    assert one.history[-1]["worst"] <= tau + 0.002
    np.testing.assert_allclose(one.model.w, many.model.w, atol=1e-4)


@pytest.mark.parametrize("metric", ["equal_opportunity", "equalized_odds"])
def test_under_uniform_weights_the_decisions_rates_of_each_label_agree(metric):
    """With a constant basis the constraint is on plain means, which anybody can compute."""
    chosen_method = method("fairfl", metric=metric, tau=0.01)
    fitted, free = (
        fit({"a": ROWS}, chosen_method, positive="yes"),
        fit({"a": ROWS}, "fl", positive="yes"),
    )
    y, s = ROWS.labels("yes"), ROWS.sensitive_features["sex"].codes
    labels = [label for chosen in METRICS[metric].labels for label in chosen]

    def spread(model):
        g = (model.decision(ROWS) > 0).astype(float)
        return max(
            abs(np.diff(scoring.positive_rates(g, s, (y == label).astype(float)))[0])
            for label in labels
        )

    assert spread(fitted.model) <= 0.01 + 0.002
    assert spread(free.model) > 0.02


def test_bounded_group_loss_bounds_the_loss_of_every_group():
    y, s = ROWS.labels("yes"), ROWS.sensitive_features["sex"].codes

    def losses(model):
        return scoring.positive_rates(log_loss(model.decision(ROWS), y), s)

    free = losses(fit({"a": ROWS}, "fl", positive="yes").model)
    between = (free.max() + free.mean()) / 2
    fitted = fit({"a": ROWS}, method("fairfl", metric="bounded_group_loss", tau=between))
    assert losses(fitted.model).max() <= between + 1e-5 < free.max()


def test_sensitive_features_are_protected_each_by_itself_or_in_their_intersections():
    table = two_features()
    names, s = ("race", "sex"), table.sensitive_features["sex"].codes
    race = table.sensitive_features["race"].codes

    def spread(model, codes):
        rates = scoring.positive_rates((model.decision(table) > 0).astype(float), codes)
        return rates.max() - rates.min()

    each = fit({"a": table}, method("fairfl", tau=0.05), sensitive_features=names, positive="yes")
    cross = fit(
        {"a": table},
        method("fairfl", tau=0.05, intersections=True),
        sensitive_features=names,
        positive="yes",
    )
    only = fit({"a": table}, method("fairfl", tau=0.05), sensitive_features="race", positive="yes")
    for made in (each, cross):
        assert made.converged
        assert spread(made.model, s) <= 0.05 + 0.002
        assert spread(made.model, race) <= 0.05 + 0.002
    assert spread(cross.model, race * 2 + s) <= 0.05 + 0.002
    assert spread(only.model, s) > 0.05 + 1e-4
    assert each.model.sensitive_feature == "race & sex"


def test_a_group_under_the_floor_is_named_and_not_compared():
    table = two_features(rare=4)
    chosen_method = method("agnosticfair", tau=0.05, floor=0.1, **SMALL)
    fitted = fit({"a": table}, chosen_method, sensitive_features=("race", "sex"), positive="yes")
    assert fitted.under_floor == ("race c",)
    with pytest.raises(SettingsError, match=r"floor 0\.9.*high"):
        fit(
            {"a": table},
            replace_floor(chosen_method, 0.9),
            sensitive_features="sex",
            positive="yes",
        )
    X = np.column_stack([*table.numeric.values()])
    groups = {k: c.values() for k, c in table.sensitive_features.items()}
    fair = AgnosticFairClassifier(chosen_method)
    fair.fit(X, table.target.values(), sensitive_features=groups)
    assert fair.under_floor_ == ("race c",)
    assert fair.certificate_["race"].kernels.under_floor == ("c",)
    assert {*fair.certificate_} == {"race", "sex"}


def replace_floor(method, floor):
    return replace(method, fairness=replace(method.fairness, floor=floor))


def test_subgroups_are_the_unions_their_names_say():
    comparisons_here = comparisons(
        [("race", ("a", "b", "c")), ("sex", ("F", "M"))], "equalized_odds"
    )
    assert comparisons_here.members.shape == (2 * (3 + 2), 3 * 2 * 2)
    assert comparisons_here.names[:2] == ("race a with label 0", "race b with label 0")
    assert len(comparisons_here.pairs) == 2 * (3 * 2 + 2)
    # cells: race slowest, then sex, then the label
    assert np.flatnonzero(
        comparisons_here.members[comparisons_here.names.index("sex M with label 1")]
    ).tolist() == [3, 7, 11]
    cross = comparisons([("race", ("a", "b")), ("sex", ("F", "M"))], intersections=True)
    np.testing.assert_array_equal(cross.members, np.eye(4))
    assert cross.pairs == tuple(permutations(range(4), 2))


@given(st.integers(0, 2**32 - 1), st.integers(3, 5))
@pytest.mark.slow
def test_with_many_groups_no_pair_worse_than_the_target_is_skipped(seed, groups):
    rng = np.random.default_rng(seed)
    psi_theta = rng.uniform(1.0, 5.0, (groups, 6))
    psi_g = psi_theta * rng.uniform(0, 1, (groups, 6))
    A = Ambiguity(psi_theta.sum(axis=0), psi_theta.sum(), 2.0)
    pairs = tuple(permutations(range(groups), 2))
    cuts = worst_rate_cuts(A, psi_g, psi_theta, pairs, 0.05, 1e-4, 0.3)
    alone = max(
        np.einsum(
            "kgm,gm->k", worst_rate_cuts(A, psi_g, psi_theta, [pair], 0.05, 1e-4, 0.3), psi_g
        ).max(initial=0.0)
        for pair in pairs
    )
    together = np.einsum("kgm,gm->k", cuts, psi_g).max(initial=0.0)
    assert together == pytest.approx(alone, abs=1e-9) or max(alone, together) <= 0.3 + 1e-9


def test_a_rate_by_itself_is_a_cut():
    psi_theta = np.array([[4.0, 2.0], [1.0, 1.0]])
    C = rate_cut(np.array([0.5, 1.0]), psi_theta, 0)
    assert (C * np.array([[2.0, 1.0], [9.0, 9.0]])).sum() == pytest.approx((1 + 1) / (2 + 2))


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(SettingsError, match="sensitive feature"):
        fit({"a": two_features()}, "agnosticfair-printed", sensitive_features=("race", "sex"))
    with pytest.raises(SettingsError, match=r"feature.*'age'"):
        fit({"a": two_features()}, "fairfl", sensitive_features=("race", "age"))


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_the_gap_of_a_metric_is_fairlearns(metric):
    fairlearn = pytest.importorskip("fairlearn.metrics")
    rng = np.random.default_rng(3)
    y, p, s = rng.integers(0, 2, 300), rng.integers(0, 2, 300), rng.integers(0, 4, 300)
    w = rng.uniform(size=300)
    theirs = {
        "demographic_parity": fairlearn.demographic_parity_difference,
        "equalized_odds": fairlearn.equalized_odds_difference,
        "equal_opportunity": fairlearn.equal_opportunity_difference,
    }
    if metric in theirs:
        expected = theirs[metric](y, p, sensitive_features=s, sample_weight=w)
    elif not METRICS[metric].bounds:
        inside = [np.isin(y, labels) for labels in METRICS[metric].labels]
        expected = max(
            fairlearn.demographic_parity_difference(
                y[rows], p[rows], sensitive_features=s[rows], sample_weight=w[rows]
            )
            for rows in inside
        )
    else:
        from sklearn.metrics import zero_one_loss

        frame = fairlearn.MetricFrame(
            metrics=zero_one_loss,
            y_true=y,
            y_pred=p,
            sensitive_features=s,
            sample_params={"sample_weight": w},
        )
        expected = frame.group_max()
    assert scoring.gap(metric, y, p, s, w) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 10_000), st.booleans())
def test_the_worst_pair_is_that_of_all_pairs_tried(seed, alone):
    rng = np.random.default_rng(seed)
    P, M = 4, 3
    theta = rng.uniform(0.1, 1.0, size=(P, M))
    psi = theta * rng.uniform(size=(P, M))
    A = Ambiguity(theta.sum(axis=0), float(theta.sum()), 2.0)
    pairs = [(j, None) for j in range(P)] if alone else [*permutations(range(P), 2)]
    worst_pair_here = worst_pair(A, psi, theta, pairs, 0.05)
    tried = [
        worst_ratio(A, psi[j], theta[j], 0.05).value
        if k is None
        else worst_difference(A, psi[[k, j]], theta[[k, j]], 0.05).value
        for j, k in pairs
    ]
    assert worst_pair_here.worst.value == pytest.approx(max(tried), abs=2e-4)
    j, k = worst_pair_here.pair
    rates = (psi @ worst_pair_here.worst.alpha) / (theta @ worst_pair_here.worst.alpha)
    shown = rates[j] - (0.0 if k is None else rates[k])
    assert shown == pytest.approx(worst_pair_here.worst.value, abs=2e-4)
    assert worst_pair_here.reachable == {0, 1, 2, 3}


def test_subgroups_that_never_reach_the_floor_are_no_worst_pair():
    theta = np.array([[1.0, 1.0], [0.01, 0.01], [1.0, 1.0]])
    A = Ambiguity(theta.sum(axis=0), float(theta.sum()), 2.0)
    worst_pair_here = worst_pair(A, 0.5 * theta, theta, [(0, 1), (1, 0), (0, 2)], 0.1)
    assert worst_pair_here.reachable == {0, 2}
    assert worst_pair(A, 0.5 * theta, theta, [(0, 1)], 0.1) is None
