"""The rule's program against linear programs over decisions, finite differences and brute force."""

import clarabel
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics import multipliers, program
from agnosticfair.mathematics.ambiguity import Ambiguity
from agnosticfair.mathematics.fairness import worst_pair
from agnosticfair.mathematics.multipliers import (
    At,
    Mixtures,
    RateLimits,
    WorstUtility,
    coordinates,
    curvatures,
    objective,
)
from agnosticfair.mathematics.program import optimum, scale_for
from agnosticfair.mathematics.quadratic import kinked
from agnosticfair.mathematics.scores import Dense, Estimated, Points, evaluate, utility

BITS, FINE = 34, (0.3, 0.1, 0.03, 0.01, 0.003, 0.001)


def drawn(seed, n=60, K=3, groups=2):
    """Rows, weight functions (the last overall), labels: small and discrete."""
    rng = np.random.default_rng(seed)
    eta = rng.integers(0, 1 << 20, n) / (1 << 20)
    shares = rng.dirichlet(np.ones(groups), n).T
    b = np.column_stack([rng.random((n, K)) < 0.5, np.ones(n)]).astype(float)
    pi = np.rint(shares * (1 << 20)) / (1 << 20)
    return Estimated(utility(eta), pi), Dense(b), rng.integers(0, 2, n)


def solved(rows, b, y, limits):
    state = program.init(limits, len(y), len(rows.pi))
    while state.stage != "done":
        points = program.request(state)
        state = program.step(state, evaluate(rows, b, y, points, len(y), BITS))
        assert state.round <= limits.max_rounds
    return state


def constraints(rows, b, limits):
    """Every comparison as a row of coefficients of d, with its limit."""
    n, found = len(rows.c), []
    for k, tau in enumerate(limits.tau):
        for j, other in limits.pairs:
            own = [b.b[:, k] * rows.pi[p] for p in (j, other)]
            if min(v.sum() for v in own) >= limits.min_people and np.isfinite(tau):
                found.append((own[0] / own[0].sum() - own[1] / own[1].sum(), tau))
    a, tau = np.array([v for v, _ in found]), np.array([t for _, t in found])
    a, tau = np.vstack([a, -a]), np.append(tau, tau)
    if limits.positive_rate is not None:
        low, high = limits.positive_rate
        a = np.vstack([a, np.full(n, 1 / n), np.full(n, -1 / n)])
        tau = np.append(tau, [high, -low])
    return a, tau


def best(rows, b, limits):
    a, tau = constraints(rows, b, limits)
    lp = linprog(-rows.c / len(rows.c), A_ub=a, b_ub=tau, bounds=(0, 1))
    assert lp.status == 0
    return -lp.fun


PAIRS = {2: ((0, 1),), 3: ((0, 1), (0, 2), (1, 2)), 4: ((0, 1), (2, 3))}


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from((2, 3, 4)),
    st.sampled_from((0.0, 0.02, 0.1)),
    st.sampled_from((None, (0.1, 0.2), (0.7, 0.9), (0.4, 0.4))),
)
def test_no_rule_is_better_than_the_bound_which_the_linear_program_reaches(seed, groups, tau, rate):
    rows, b, y = drawn(seed, groups=groups)
    limits = RateLimits(
        np.array([tau, tau, tau, tau / 4]), PAIRS[groups], positive_rate=rate, path=FINE
    )
    limits = RateLimits(**{**vars(limits), "tolerance": 2e-3, "max_rounds": 150})
    state = solved(rows, b, y, limits)
    said, reached = optimum(state), best(rows, b, limits)
    assert reached <= said.bound + 1e-9
    assert said.bound <= reached + 3e-3
    assert said.gap >= 0
    assert said.bound - said.utility <= said.gap + 1e-9
    if state.here is not None and not said.unchanged:
        assert said.smoothed_excess <= 4e-3


@pytest.mark.parametrize("worst", [None, WorstUtility(0.8, (1.0, 1.0))])
def test_gradient_and_hessian_are_those_of_finite_differences(worst):
    rows, b, y = drawn(1, n=400, groups=3)
    limits = RateLimits(
        np.full(4, 0.05), PAIRS[3], spend=0.3, positive_rate=(0.2, 0.4), worst=worst
    )
    W = None if worst is None else np.eye(4)[-1:]
    first = Points(np.zeros((1, 4, 3)), np.zeros(1), np.ones(1), None, True, W)
    masses = evaluate(rows, b, y, first, 400, BITS)
    at = coordinates(masses, 400, limits)
    rng = np.random.default_rng(0)
    x, which = rng.normal(size=at.size) * 0.05, at.ordered(np.arange(at.size))
    x[at.rates : -1] = [0.1, 0.2, 0.3, 0.4] if worst else []

    def value(z, directions=None):
        W = None if worst is None else at.weights(z)[None]
        points = Points(at.coefficients(z)[None], z[-1:], np.array([0.1]), directions, W=W)
        sums = evaluate(rows, b, y, points, 400, BITS)
        return objective(at, 400, z, 0.1, sums, 0), sums

    here, sums = value(x, at.directions(which))
    model = program.model_of(at, which, 0.1, 400, sums)
    small, eye = 1e-4, np.eye(at.size)
    gradients = [
        (value(x + small * e)[0].value - value(x - small * e)[0].value) / (2 * small) for e in eye
    ]
    assert np.isfinite(at.curvature[: at.rates]).all()
    finite = np.where(np.isfinite(at.curvature), at.curvature, 1e9)
    kinks = np.clip(finite * x, -at.down, at.up)
    assert (np.abs(kinks[: at.rates]) < at.up[: at.rates]).any()
    np.testing.assert_allclose(here.gradient + kinks, gradients, atol=1e-5)
    H = [
        (value(x + small * e)[0].gradient - value(x - small * e)[0].gradient) / (2 * small)
        for e in eye
    ]
    expected = np.array(H)[np.ix_(which, which)]
    np.testing.assert_allclose(model.H, expected, atol=0.02 * np.abs(expected).max())
    assert (model.diagonal[which] >= 0.99 * np.diag(model.H)).all()


def test_sums_are_the_same_bits_for_any_split_of_the_rows():
    rows, b, y = drawn(2, n=300)
    limits = RateLimits(np.full(4, 0.05), PAIRS[2])
    state = program.init(limits, 300, 2)
    for _ in range(3):
        points = program.request(state)
        whole = evaluate(rows, b, y, points, 300, BITS)
        order = np.random.default_rng(state.round).permutation(300)
        subgroups = []
        for own in np.split(order, [17, 120, 121]):
            some = Estimated(rows.c[own], rows.pi[:, own])
            subgroups.append(evaluate(some, Dense(b.b[own]), y[own], points, 300, BITS))
        for name, value in whole.items():
            np.testing.assert_array_equal(sum(subgroup[name] for subgroup in subgroups), value)
        state = program.step(state, whole)


def test_a_row_that_weighs_two_is_the_row_twice():
    rows, b, y = drawn(3, n=50)
    points = Points(np.full((1, 4, 2), 0.1), np.zeros(1), np.array([0.1]), None, True)
    weights = np.where(np.arange(50) < 10, 2.0, 1.0)
    twice = np.append(np.arange(50), np.arange(10))
    one = evaluate(Estimated(rows.c, rows.pi, weights), b, y, points, 60, BITS)
    many = Estimated(rows.c[twice], rows.pi[:, twice])
    two = evaluate(many, Dense(b.b[twice]), y[twice], points, 60, BITS)
    for name, value in one.items():
        np.testing.assert_array_equal(value, two[name])


def test_the_learner_s_own_rule_stays_where_it_keeps_the_limits():
    rows, b, y = drawn(4)
    state = solved(rows, b, y, RateLimits(np.full(4, 0.9), PAIRS[2]))
    said = optimum(state)
    assert said.unchanged
    assert state.round == 1
    assert said.utility == said.learner_utility == said.bound
    assert said.retained == 1.0
    assert said.gap == 0.0


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000), st.sampled_from((2, 3)), st.sampled_from((0.02, 0.1)), st.floats(1, 60)
)
def test_charged_differences_are_those_of_a_quadratic_program(seed, groups, tau, spend):
    rows, b, y = drawn(seed, groups=groups)
    tau = np.array([tau, tau, tau, tau / 2])
    more = {"path": FINE, "tolerance": 1e-3, "max_rounds": 150}
    limits = RateLimits(tau, PAIRS[groups], spend=spend, **more)
    state = solved(rows, b, y, limits)
    at, said = state.at, optimum(state)
    if said.unchanged:
        return
    a, maximum = constraints(rows, b, limits)
    own, n = a[: at.rates], len(y)
    weight = sparse.csc_matrix(own.T @ np.diag(1 / at.curvature[: at.rates]) @ own)
    A = sparse.csc_matrix(np.vstack([a, np.eye(n), -np.eye(n)]))
    maximum = np.concatenate([maximum, np.ones(n), np.zeros(n)])
    quiet = clarabel.DefaultSettings()
    quiet.verbose = False
    cones = [clarabel.NonnegativeConeT(len(maximum))]
    qp = clarabel.DefaultSolver(weight, -rows.c / n, A, maximum, cones, quiet).solve()
    dual = state.hard.smooth + at.penalty(state.hard.x)
    assert -qp.obj_val <= dual + 1e-6
    assert dual <= -qp.obj_val + 3e-3
    assert said.gap >= 0
    assert best(rows, b, limits) <= said.bound + 1e-9
    assert said.smoothed_excess <= 4e-3
    r = own @ np.array(qp.x)
    np.testing.assert_allclose(at.charged(state.here.differences), at.charged(r), atol=3e-3)


def test_larger_subgroups_are_charged_more_and_what_is_no_limit_is_not():
    limits, tau = RateLimits(np.zeros(0), PAIRS[2], spend=0.3), np.array([0.1, 0.1, 1.0, 0.001])
    some = curvatures(np.array([400.0, 100.0, 900.0, 400.0]), tau, limits)
    shares = np.array([2, 1, 2]) / np.mean([2, 1, 2]) / 600
    np.testing.assert_allclose(some[[0, 1, 3]], [0.01, 0.01, 0.0025] / (0.6 * shares))
    assert np.isinf(some[2])
    many = curvatures(np.ones(1000), np.full(1000, 0.1), limits)
    np.testing.assert_allclose((0.1**2 / (2 * many)).sum(), 0.3)


@pytest.mark.parametrize("spend", [0.0, 20.0])
@pytest.mark.parametrize("room", [3, 5])
def test_more_multipliers_than_a_message_has_room_for_take_turns(monkeypatch, spend, room):
    monkeypatch.setattr(program, "MAX_ACTIVE", room)
    rows, b, y = drawn(11, n=400, K=9)
    limits = RateLimits(np.full(10, 0.01), PAIRS[2], spend=spend, max_rounds=200)
    state = solved(rows, b, y, limits)
    assert (state.here.x != 0).sum() > room
    assert multipliers.unsettled(state.at, state.here) <= limits.tolerance


@pytest.mark.parametrize("rate", [(0.6, 0.4), (-0.1, 0.5), (0.5, 1.5)])
def test_a_positive_rate_that_no_rule_has_is_refused(rate):
    with pytest.raises(SettingsError, match="positive_rate"):
        program.init(RateLimits(np.zeros(1), PAIRS[2], positive_rate=rate), 10, 2)


def test_limits_that_leave_no_rule_are_proved_to():
    rows, b, y = drawn(6)
    state = solved(rows, b, y, RateLimits(np.full(4, 0.05), PAIRS[2]))
    away = np.zeros(state.at.size)
    hard = At(**{**vars(state.hard), "x": away, "smooth": -1.0})
    with pytest.raises(SettingsError, match="rule keeps"):
        optimum(program.State(**{**vars(state), "hard": hard, "bound": np.inf}))


@pytest.mark.parametrize("bound", [None, 1.5])
def test_every_mixture_keeps_its_limit(bound):
    rows, b, y = drawn(7, n=200, K=4)
    tau = np.full(5, np.inf)
    mixtures = Mixtures(0.01, bound, 0.05)
    limits = RateLimits(tau, PAIRS[2], mixtures=mixtures, path=FINE, max_rounds=150)
    state = solved(rows, b, y, limits)
    assert state.round < 100
    at, here = state.at, state.here
    A = Ambiguity(state.members[:-1] / 200, 1.0, bound)
    both = [(0, 1), (1, 0)]
    worst = worst_pair(A, here.decided[:, :-1], at.mass.T[:, :-1], both, 0.05).worst
    assert 0.009 < worst.value <= 0.01 + 2e-3
    each = RateLimits(np.array([*[0.01] * 4, np.inf]), PAIRS[2], path=FINE, max_rounds=150)
    if bound is None:  # then a mixture is worst at single weight functions, or between them
        assert optimum(state).bound <= optimum(solved(rows, b, y, each)).bound + 2e-3


@pytest.mark.parametrize("trust", [0.0, 0.4])
@pytest.mark.parametrize("bound", [None, 1.4])
@pytest.mark.parametrize("seed", [0, 1])
def test_mixtures_of_kernels_are_those_of_a_linear_program_over_many_mixtures(seed, bound, trust):
    rows, _, y = drawn(seed, n=120)
    rng = np.random.default_rng(seed)
    own = np.rint(np.exp(-((rng.random((120, 1)) - rng.random(3)) ** 2) * 20) * 2**14) / 2**14
    b, tau = Dense(np.column_stack([own, np.ones(120)])), 0.02
    limits = RateLimits(
        np.full(4, np.inf),
        PAIRS[2],
        mixtures=Mixtures(tau, bound, 0.05, trust),
        path=FINE,
        max_rounds=200,
    )
    said = optimum(solved(rows, b, y, limits))
    p, found = own.mean(axis=0), []
    for u in rng.dirichlet(np.full(3, 0.5), 4000):
        theta = trust + (1 - trust) * own @ (u / p)
        of = rows.pi * theta
        if (u / p <= (bound or np.inf)).all() and (of.mean(axis=1) >= 0.05).all():
            found.append(of[0] / of[0].sum() - of[1] / of[1].sum())
    a = np.array(found)
    lp = linprog(
        -rows.c / 120, A_ub=np.vstack([a, -a]), b_ub=np.full(2 * len(a), tau), bounds=(0, 1)
    )
    assert said.bound == pytest.approx(-lp.fun, abs=3e-3)
    assert said.smoothed_excess <= 2e-3


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from((0.02, 0.1, 1.0)),
    st.sampled_from((0.5, 0.99)),
    st.sampled_from(((1.0, 1.0), (1.0, 3.0))),
)
def test_the_worst_subgroup_has_the_utility_of_a_linear_program(seed, tau, share, error_costs):
    rows, b, y = drawn(seed, n=80)
    rng = np.random.default_rng(seed)
    eta = rng.integers(0, 1 << 20, 80) / (1 << 20)
    rows = Estimated(utility(eta, error_costs), rows.pi)
    limits = RateLimits(
        np.full(4, tau), PAIRS[2], worst=WorstUtility(share, error_costs), path=FINE, max_rounds=200
    )
    state = solved(rows, b, y, limits)
    said = optimum(state)
    a, maximum = constraints(rows, b, limits)
    p, own = b.b.mean(axis=0), error_costs[1] * eta
    # variables d and t, at least the loss of every subgroup
    losses = -(b.b * rows.c[:, None] / p / 80).T
    without = (b.b * own[:, None] / p / 80).sum(axis=0)
    A = np.block([[a, np.zeros((len(a), 1))], [losses, -np.ones((4, 1))]])
    cost = np.append((1 - share) * losses[-1], share)
    bounds = [(0, 1)] * 80 + [(None, None)]
    lp = linprog(cost, A_ub=A, b_ub=np.append(maximum, -without), bounds=bounds)
    reached = -lp.fun - (1 - share) * without[-1]
    assert reached <= said.bound + 1e-6
    assert said.bound <= reached + 4e-3 * max(error_costs)
    assert said.gap >= 0
    assert said.bound - said.utility <= said.gap + 1e-9


def test_larger_limits_retain_what_the_price_says():
    rows, b, y = drawn(8, n=500)
    tau = np.array([0.01, 0.01, 0.01, 0.01])
    first = optimum(solved(rows, b, y, RateLimits(tau, PAIRS[2], path=FINE)))
    share = (1 + first.retained) / 2
    minimum, maximum = scale_for(share, first)
    assert 1 < minimum <= maximum <= first.max_scale
    for scale, enough in ((0.98 * minimum, False), (maximum, True)):
        then = optimum(solved(rows, b, y, RateLimits(scale * tau, PAIRS[2], path=FINE)))
        reached = (then.bound - then.constant) / (then.learner_utility - then.constant)
        assert (reached >= share - 0.01) if enough else (reached <= share + 0.01)


def test_a_start_that_is_the_optimum_needs_few_rounds():
    rows, b, y = drawn(9, n=500)
    limits = RateLimits(np.full(4, 0.02), PAIRS[2])
    state = solved(rows, b, y, limits)
    again = program.init(limits, 500, 2, state.here.x)
    while again.stage != "done":
        points = program.request(again)
        again = program.step(again, evaluate(rows, b, y, points, 500, BITS))
    assert again.round <= 7 < state.round
    assert kinked(again.hard.x, again.at.up, again.at.down) == pytest.approx(
        kinked(state.hard.x, state.at.up, state.at.down), abs=1e-3
    )
