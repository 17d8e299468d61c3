"""Worst cases over A, against brute force that shares no line with what it tests."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.ambiguity import (
    Ambiguity,
    Outcome,
    check,
    worst_linear,
    worst_linear_subject_to,
)
from agnosticfair.mathematics.ratios import worst_difference, worst_differences, worst_ratio

few = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 2**32 - 1)


def instance(seed, M, groups=2, rest=False):
    """A random set and the sums (a, b): (groups, M) of its groups; `rest`: rows of no group."""
    rng = np.random.default_rng(seed)
    b = rng.gamma(0.7, size=(groups + rest, M)) * rng.gamma(1.0, size=M) * 50 + 0.1
    rates = rng.random((groups, M)) if rng.random() < 0.7 else rng.integers(0, 2, (groups, M))
    psi = b.sum(axis=0)
    n = psi.sum() * rng.uniform(0.2, 0.9)
    bound = n / psi.sum() * (1 + rng.gamma(1.0, 3.0))
    return Ambiguity(psi, n, bound if rng.random() < 0.8 else None), rates * b[:groups], b[:groups]


def cap(A):
    return A.n / A.psi_theta.min() if A.bound is None else A.bound


def inside(A, alpha, slack=1e-9):
    return (
        alpha.min() >= 0
        and (A.bound is None or alpha.max() <= A.bound * (1 + slack))
        and math.isclose(A.psi_theta @ alpha, A.n, rel_tol=slack)
    )


def faces(A, free):
    """Points of A with all but `free` kernels at a bound: (points, M), a grid on each face."""
    M = len(A.psi_theta)
    grid = np.linspace(0, 1, {1: 1, 2: 2001, 3: 61}[free])
    maximum = np.minimum(cap(A), A.n / A.psi_theta)
    found = []
    for chosen in itertools.combinations(range(M), min(free, M)):
        others = [m for m in range(M) if m not in chosen]
        for at in itertools.product([0.0, cap(A)], repeat=len(others)):
            inner = np.array(list(itertools.product(grid, repeat=len(chosen) - 1)))
            alpha = np.zeros((len(inner), M))
            alpha[:, others] = at
            alpha[:, chosen[1:]] = inner * maximum[list(chosen[1:])]
            last = (A.n - alpha @ A.psi_theta) / A.psi_theta[chosen[0]]
            fine = (last >= -1e-12) & (last <= cap(A) * (1 + 1e-12))
            alpha[:, chosen[0]] = last
            found.append(alpha[fine])
    return np.concatenate(found)


def samples(A, seed, count=200):
    """Random alphas of A: vertices filled in a random order, and mixtures of them."""
    rng = np.random.default_rng(seed)
    vertices = []
    for _ in range(20):
        alpha, left = np.zeros(len(A.psi_theta)), A.n
        for m in rng.permutation(len(alpha)):
            if A.psi_theta[m] > 0:
                alpha[m] = min(cap(A), left / A.psi_theta[m])
                left -= alpha[m] * A.psi_theta[m]
        vertices.append(alpha)
    mixed = rng.dirichlet(np.full(20, 0.2), size=count) @ vertices
    return np.concatenate([vertices, mixed])


def difference(alpha, a, b):
    rates = (alpha @ a.T) / (alpha @ b.T)
    return rates[..., 1] - rates[..., 0]


def keeping(alphas, b, minimum):
    return alphas[(alphas @ np.atleast_2d(b).T >= minimum).all(axis=1)]


# --- a linear form ---------------------------------------------------------------------------


@few
@given(seeds, st.integers(1, 5))
def test_linear_is_the_best_vertex(seed, M):
    A, a, b = instance(seed, M)
    c = a[0] - b[1] * 0.3
    worst = worst_linear(A, c)
    assert worst.outcome is Outcome.OPTIMAL
    assert inside(A, worst.alpha)
    assert worst.value == pytest.approx(c @ worst.alpha)
    assert worst.value == pytest.approx((faces(A, 1) @ c).max(), abs=1e-9 * A.n)


def by_program(A, c):
    return worst_linear_subject_to(A, c, A_ub=np.zeros((1, len(c))), b_ub=[0.0])


@few
@given(seeds, st.integers(1, 40))
def test_linear_equals_the_linear_program(seed, M):
    A, a, _ = instance(seed, M)
    assert worst_linear(A, a[0]).value == pytest.approx(by_program(A, a[0]).value)


@few
@given(seeds, st.integers(2, 20))
def test_program_under_constraints_is_optimal_and_keeps_them(seed, M):
    A, a, b = instance(seed, M, rest=True)
    known = samples(A, seed, 1)[-1]  # makes both constraints possible
    more = {"A_ub": b[:2], "b_ub": b[:2] @ known * 1.01}
    worst = worst_linear_subject_to(A, a[1], **more)
    assert worst.outcome is Outcome.OPTIMAL
    assert inside(A, worst.alpha)
    assert (b[:2] @ worst.alpha <= more["b_ub"] * (1 + 1e-9)).all()
    assert worst.value >= a[1] @ known * (1 - 1e-9)
    assert worst.tolerance <= 1e-9 * A.n
    plain = linprog(-a[1], **more, A_eq=[A.psi_theta], b_eq=[A.n], bounds=(0, A.bound))
    assert worst.value == pytest.approx(-plain.fun, rel=1e-6, abs=1e-6)


def test_ties_go_to_the_first_kernel():
    worst = worst_linear(Ambiguity(np.ones(4), 2, bound=0.75), np.ones(4))
    np.testing.assert_allclose(worst.alpha, [0.75, 0.75, 0.5, 0.0])


def test_a_row_of_zeros_is_a_constraint_like_any_other():
    A = Ambiguity(np.ones(2), 2)
    zeros = [[0.0, 0.0]]
    assert worst_linear_subject_to(A, [1.0, 2.0], A_ub=zeros, b_ub=[0.0]).value == 4.0
    none = worst_linear_subject_to(A, [1.0, 2.0], A_ub=zeros, b_ub=[-1.0])
    assert none.outcome is Outcome.INFEASIBLE


def test_constraints_that_cannot_hold_are_an_outcome():
    A = Ambiguity(np.ones(3), 3, bound=2.0)
    worst = worst_linear_subject_to(A, np.ones(3), A_ub=[[1.0, 1, 1]], b_ub=[2.0])
    assert worst.outcome is Outcome.INFEASIBLE
    assert math.isnan(worst.value)
    assert np.isnan(worst.alpha).all()


# --- a ratio ---------------------------------------------------------------------------------


def ratio_by_vertices(A, a, b, minimum):
    """Best ratio over the vertices of A cut by b . alpha >= minimum: a ratio has it at one."""
    alphas = list(keeping(faces(A, 1), b, minimum * (1 - 1e-12)))
    M = len(A.psi_theta)
    for i, j in itertools.combinations(range(M), 2):
        others = [m for m in range(M) if m not in (i, j)]
        for at in itertools.product([0.0, cap(A)], repeat=M - 2):
            alpha = np.zeros(M)
            alpha[others] = at
            rows = np.array([A.psi_theta[[i, j]], b[[i, j]]])
            if abs(np.linalg.det(rows)) > 1e-9:
                rest = [A.n - A.psi_theta @ alpha, minimum - b @ alpha]
                alpha[[i, j]] = np.linalg.solve(rows, rest)
                if alpha.min() >= -1e-12 and alpha.max() <= cap(A) * (1 + 1e-12):
                    alphas.append(alpha)
    return max((a @ alpha) / (b @ alpha) for alpha in alphas)


@few
@given(seeds, st.integers(1, 5), st.floats(0.02, 0.98))
def test_ratio_is_the_best_vertex(seed, M, height):
    A, a, b = instance(seed, M)
    low, high = -worst_linear(A, -b[0]).value / A.n, worst_linear(A, b[0]).value / A.n
    floor = low * 0.8 + height * (high - low * 0.8)
    worst = worst_ratio(A, a[0], b[0], floor)
    assert worst.outcome is Outcome.OPTIMAL
    assert inside(A, worst.alpha)
    assert b[0] @ worst.alpha >= floor * A.n * (1 - 1e-9)
    assert 0 <= worst.tolerance < 1e-9
    shown = (a[0] @ worst.alpha) / (b[0] @ worst.alpha)
    assert worst.value - worst.tolerance == pytest.approx(shown, abs=1e-12)
    expected = ratio_by_vertices(A, a[0], b[0], floor * A.n)
    assert worst.value == pytest.approx(expected, abs=1e-8)


@few
@given(seeds, st.integers(1, 60), st.floats(0.02, 0.9))
def test_no_alpha_shows_a_larger_ratio(seed, M, floor):
    A, a, b = instance(seed, M)
    worst = worst_ratio(A, a[1], b[1], floor)
    alphas = keeping(samples(A, seed), b[1], floor * A.n)
    if worst.outcome is Outcome.INFEASIBLE:
        assert len(alphas) == 0
    assert ((alphas @ a[1]) / (alphas @ b[1]) <= worst.value + 1e-12).all()


def test_a_ratio_may_be_negative():
    A = Ambiguity(np.array([1.0, 1.0]), 2)
    worst = worst_ratio(A, [-3.0, -1.0], [1.0, 0.5], floor=0.1)
    assert worst.value == pytest.approx(-2.0)


# --- a difference of ratios ------------------------------------------------------------------


@few
@given(seeds, st.integers(1, 5), st.booleans(), st.sampled_from([0.01, 0.1, 0.3]))
@example(268435457, 2, True, 0.01)  # a smooth maximum: bounds of first order leave too much open
def test_difference_is_the_best_of_all_faces(seed, M, rest, floor):
    # at fixed group masses it is linear, so the best alpha has at most two (three with a
    # third group) kernels strictly between their bounds: a grid on those faces is exhaustive
    A, a, b = instance(seed, M, rest=rest)
    grid = keeping(faces(A, 3 if rest else 2), b, floor * A.n)
    worst = worst_difference(A, a, b, floor, tolerance=1e-6)
    if worst.outcome is Outcome.INFEASIBLE:
        assert len(grid) == 0
        return
    assert worst.outcome is Outcome.OPTIMAL
    assert inside(A, worst.alpha)
    assert (b @ worst.alpha >= floor * A.n * (1 - 1e-9)).all()
    assert worst.tolerance <= 1e-6
    assert worst.value - worst.tolerance == pytest.approx(difference(worst.alpha, a, b), abs=1e-12)
    assert (difference(grid, a, b) <= worst.value + 1e-12).all()


def difference_by_programs(A, a, b, floor):
    """Best over b[0].z = q with b[1].z = 1, each a linear program in (z, s); q from two grids."""
    M, p = len(A.psi_theta), A.psi_theta / A.n
    a, b = a / A.n, b / A.n

    def at(q):
        lp = linprog(
            np.append(a[0] / q - a[1], 0.0),
            A_ub=np.vstack([np.hstack([np.eye(M), np.full((M, 1), -cap(A))]), np.eye(M + 1)[-1]]),
            b_ub=np.append(np.zeros(M), min(1.0, q) / floor),
            A_eq=[np.append(b[1], 0.0), np.append(b[0], 0.0), np.append(p, -1.0)],
            b_eq=[1.0, q, 0.0],
        )
        return -lp.fun if lp.status == 0 else -np.inf

    coarse = np.geomspace(0.03, 30, 100)
    best = np.argmax([at(q) for q in coarse])
    return max(at(q) for q in np.linspace(coarse[best - 1], coarse[best + 1], 101))


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_difference_is_the_best_of_a_grid_of_programs(seed, rest):
    A, a, b = instance(seed + 7, 30, rest=rest)
    expected = difference_by_programs(A, a, b, 0.05)
    worst = worst_difference(A, a, b, 0.05, tolerance=1e-6)
    assert expected - 1e-8 <= worst.value <= expected + 1e-3


@few
@given(seeds, st.integers(1, 80), st.booleans(), st.floats(0.01, 0.4))
def test_no_alpha_shows_a_larger_difference(seed, M, rest, floor):
    A, a, b = instance(seed, M, rest=rest)
    worst = worst_difference(A, a, b, floor)
    alphas = keeping(samples(A, seed), b, floor * A.n)
    if worst.outcome is Outcome.INFEASIBLE:
        assert len(alphas) == 0
        return
    assert worst.outcome is Outcome.OPTIMAL
    assert (difference(alphas, a, b) <= worst.value + 1e-12).all()
    assert inside(A, worst.alpha)
    assert difference(worst.alpha, a, b) >= worst.value - 1e-4 - 1e-12


@few
@given(seeds, st.integers(2, 40), st.booleans(), st.floats(1.0, 3.0))
def test_worst_grows_with_the_bound_and_falls_with_the_floor(seed, M, rest, factor):
    A, a, b = instance(seed, M, rest=rest)
    wider = Ambiguity(A.psi_theta, A.n, cap(A) * factor)
    for solve in (
        lambda A, floor: worst_difference(A, a, b, floor, tolerance=1e-6),
        lambda A, floor: worst_ratio(A, a[1], b[1], floor),
    ):
        here, there, below = solve(A, 0.1), solve(wider, 0.1), solve(A, 0.1 / factor)
        assume(here.outcome is Outcome.OPTIMAL)
        assert there.value >= here.value - here.tolerance - 1e-12
        assert below.value >= here.value - here.tolerance - 1e-12
    assert worst_linear(wider, a[1]).value >= worst_linear(A, a[1]).value * (1 - 1e-12)


@few
@given(seeds, st.integers(1, 30), st.booleans(), st.sampled_from([1e-6, 1e-2, 1e5]))
def test_only_relative_masses_matter(seed, M, rest, factor):
    # n and all sums times a factor; and kernels (columns) in other units with alpha to match
    A, a, b = instance(seed, M, rest=rest)
    B = Ambiguity(A.psi_theta * factor, A.n * factor, A.bound)
    here = worst_difference(A, a, b, 0.1, tolerance=1e-6)
    there = worst_difference(B, a * factor, b * factor, 0.1, tolerance=1e-6)
    assert here.outcome is there.outcome
    if here.outcome is Outcome.OPTIMAL:
        assert there.value == pytest.approx(here.value, abs=2e-6)
    assert worst_linear(B, a[0] * factor).value == pytest.approx(
        worst_linear(A, a[0]).value * factor
    )


@few
@given(seeds, st.integers(2, 60), st.booleans(), st.sampled_from([1e-3, 1e-5]))
def test_the_alphas_met_are_attained_best_first_and_near_the_certificate(seed, M, rest, tolerance):
    A, a, b = instance(seed, M, rest=rest)
    worst = worst_difference(A, a, b, 0.05, tolerance=1e-6)
    alphas, values = worst_differences(A, a, b, 0.05, tolerance)
    if worst.outcome is Outcome.INFEASIBLE:
        assert len(values) == 0
        return
    assert alphas.shape == (len(values), M)
    assert (np.diff(values) <= 0).all()
    assert all(inside(A, alpha) for alpha in alphas)
    assert (alphas @ b.T >= 0.05 * A.n * (1 - 1e-9)).all()
    np.testing.assert_allclose(difference(alphas, a, b), values, atol=1e-12)
    assert worst.value - 1e-3 - 1e-6 <= values[0] <= worst.value + 1e-12


@few
@given(seeds, st.integers(2, 60), st.floats(-1, 1))
def test_a_target_is_passed_if_anything_passes_it(seed, M, target):
    A, a, b = instance(seed, M)
    worst = worst_difference(A, a, b, 0.05, tolerance=1e-6)
    assume(worst.outcome is Outcome.OPTIMAL)
    assume(abs(worst.value - target) > 1e-3)
    _, values = worst_differences(A, a, b, 0.05, 1e-4, target)
    assert (values[0] > target) == (worst.value > target)


def adult_like(seed, M=200, n=2000):
    """Gaussian kernels on one-hot-ish rows, two groups (about a third and two thirds)."""
    rng = np.random.default_rng(seed)
    latent = rng.normal(size=(n, 1))
    X = np.hstack(
        [np.eye(k)[rng.integers(0, k, n)] for k in (2, 3, 5, 7, 8)] + [rng.random((n, 3))]
    )
    X[:, :5] = (X[:, :5] + 0.3 * latent > 0.5) * 1.0
    s = (X @ rng.normal(size=X.shape[1]) * 0.5 + 0.75 + rng.logistic(size=n) > 0).astype(int)
    g = 1 / (1 + np.exp(-3 * (X @ rng.normal(size=X.shape[1]) * 0.5 + 0.4 * s - 0.5)))
    centres = X[rng.choice(n, M, replace=False)]
    K = np.exp(-0.5 * ((X[:, None] - centres) ** 2).sum(axis=2))
    b = np.array([K[s == j].sum(axis=0) for j in (0, 1)])
    a = np.array([(K * g[:, None])[s == j].sum(axis=0) for j in (0, 1)])
    return Ambiguity(K.sum(axis=0), n, bound=5.0), a, b


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("sign", [1, -1])
def test_realistic_instances(seed, sign):
    A, a, b = adult_like(seed)
    a, b = a[::sign], b[::sign]
    worst = worst_difference(A, a, b, floor=0.05, tolerance=1e-6)
    assert worst.outcome is Outcome.OPTIMAL
    assert (difference(samples(A, seed), a, b) < worst.value).all()
    met = worst_differences(A, a, b, floor=0.05)[1]
    assert worst.value - 1e-3 - 1e-6 <= met[0] <= worst.value
    local = worst_differences(A, a, b, floor=0.05, tolerance=1e-6)[1]
    assert worst.value - 1e-5 <= local[0] <= worst.value


# --- edges -----------------------------------------------------------------------------------


@few
@given(seeds, st.integers(1, 30))
def test_a_bound_just_large_enough_leaves_one_alpha(seed, M):
    A, a, b = instance(seed, M)
    A = check(Ambiguity(A.psi_theta, A.n, bound=A.n / A.psi_theta.sum()))
    only = np.full(M, A.bound)
    for worst in (
        worst_linear(A, a[0]),
        by_program(A, a[0]),
        worst_ratio(A, a[0], b[0], 1e-5),
        worst_difference(A, a, b, 1e-5),
    ):
        assert worst.outcome is Outcome.OPTIMAL
        np.testing.assert_allclose(worst.alpha, only, rtol=1e-9)
    assert worst_difference(A, a, b, 1e-5).value == pytest.approx(difference(only, a, b), abs=1e-9)


def test_one_kernel_has_one_alpha():
    A, a, b = Ambiguity(np.array([4.0]), 8), np.array([[1.0], [2.0]]), np.array([[2.0], [2.0]])
    assert worst_linear(A, [3.0]).alpha == pytest.approx([2.0])
    assert worst_ratio(A, a[1], b[1], 0.1).value == pytest.approx(1.0)
    assert worst_difference(A, a, b, 0.1).value == pytest.approx(0.5)


@few
@given(seeds, st.integers(1, 20), st.booleans())
def test_kernels_without_mass_change_nothing(seed, M, rest):
    A, a, b = instance(seed, M, rest=rest)
    at = np.random.default_rng(seed).integers(0, M + 1, 3)
    wider = Ambiguity(np.insert(A.psi_theta, at, 0.0), A.n, A.bound)
    a_, b_ = np.insert(a, at, 0.0, axis=1), np.insert(b, at, 0.0, axis=1)
    pairs = [
        (worst_linear(A, a[0]), worst_linear(wider, a_[0])),
        (by_program(A, a[0]), by_program(wider, a_[0])),
        (worst_ratio(A, a[0], b[0], 0.1), worst_ratio(wider, a_[0], b_[0], 0.1)),
        (worst_difference(A, a, b, 0.1), worst_difference(wider, a_, b_, 0.1)),
    ]
    for here, there in pairs:
        assert here.outcome is there.outcome
        if here.outcome is Outcome.OPTIMAL:
            assert there.value == pytest.approx(here.value, abs=1e-4)
            assert (there.alpha[wider.psi_theta == 0] == 0).all()


def test_groups_spread_alike_have_one_share():
    # b[1] / psi_theta is the same for all kernels: every alpha has the same group masses
    psi = np.array([1.0, 2.0, 3.0, 4.0])
    b, rates = (
        np.array([0.25 * psi, 0.75 * psi]),
        np.array([[0.1, 0.9, 0.5, 0.2], [0.8, 0.2, 0.6, 0]]),
    )
    A = Ambiguity(psi, 10, bound=2.0)
    linear = worst_linear(A, (rates[1] - rates[0]) * psi).value / 10
    assert worst_difference(A, rates * b, b, 0.1).value == pytest.approx(linear, abs=1e-9)


def test_an_empty_set_is_an_outcome():
    A, a, b = instance(3, 6)
    A = Ambiguity(A.psi_theta, A.n, bound=0.9 * A.n / A.psi_theta.sum())
    for worst in (
        worst_linear(A, a[0]),
        by_program(A, a[0]),
        worst_ratio(A, a[0], b[0], 0.1),
        worst_difference(A, a, b, 0.1),
    ):
        assert worst.outcome is Outcome.INFEASIBLE
        assert math.isnan(worst.value)


def test_a_floor_out_of_reach_is_an_outcome():
    A, a, b = instance(5, 6, rest=True)
    assert worst_ratio(A, a[0], b[0], 0.999).outcome is Outcome.INFEASIBLE
    assert worst_difference(A, a, b, 0.51).outcome is Outcome.INFEASIBLE
    assert len(worst_differences(A, a, b, 0.51)[1]) == 0
    b[0] = 0.0
    assert worst_difference(A, 0 * a, b, 0.1).outcome is Outcome.INFEASIBLE


def test_floors_possible_one_by_one_but_not_together_are_an_outcome():
    # group 0 lives on the first kernel, group 1 on the second, most mass is elsewhere
    b = np.array([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0]])
    A = Ambiguity(np.ones(3), 3)
    assert worst_difference(A, b, b, 0.25).outcome is Outcome.OPTIMAL
    assert worst_difference(A, b, b, 0.26).outcome is Outcome.INFEASIBLE
    with pytest.raises(SettingsError, match=r"0.26 cannot.*2 groups"):
        check(A, b, floor=0.26)


def test_without_a_floor_a_group_must_keep_some_mass_by_itself():
    A, b = Ambiguity(np.ones(2), 2, bound=1.5), np.array([[0.5, 0.5], [0.5, 0.5]])
    assert worst_difference(A, b * [[0.1, 0.5], [0.5, 0.9]], b, 0.0).outcome is Outcome.OPTIMAL
    with pytest.raises(SettingsError, match=r"0 lets.*lose"):
        worst_difference(Ambiguity(np.ones(2), 2), np.eye(2), np.eye(2), 0.0)
    with pytest.raises(SettingsError, match=r"0 lets.*lose"):
        worst_ratio(Ambiguity(np.ones(2), 2), [1.0, 0.0], [1.0, 0.0], 0.0)


@pytest.mark.parametrize(
    ("A", "kwargs", "sentence"),
    [
        (
            Ambiguity(np.full(4, 1.55), 1.0, bound=0.1),
            {},
            "least 0.162",
        ),
        (Ambiguity(np.zeros(2), 5.0), {}, "no kernel reaches any row"),
        (Ambiguity(np.array([1.0, -1.0]), 5.0), {}, "non-negative"),
        (Ambiguity(np.array([1.0, np.nan]), 5.0), {}, "non-negative"),
        (
            Ambiguity(np.ones(2), 2.0),
            {"b": [[1.0, 1.0], [0.0, 0.0]], "names": ["M", "F"]},
            "group 'F'",
        ),
        (
            Ambiguity(np.ones(2), 2.0),
            {"b": [[0.8, 0.7], [0.2, 0.3]], "names": ["M", "F"], "floor": 0.4},
            "group 'F'",
        ),
        (Ambiguity(np.ones(2), 2.0), {"b": np.eye(2), "floor": -1.0}, "floor -1"),
    ],
)
def test_check_says_what_is_wrong_and_what_to_do(A, kwargs, sentence):
    with pytest.raises(SettingsError) as error:
        check(A, **kwargs)
    assert sentence in str(error.value)


@few
@given(seeds, st.integers(1, 8))
def test_check_advises_a_bound_that_works(seed, M):
    A, _, b = instance(seed, M)
    with pytest.raises(SettingsError) as error:
        check(Ambiguity(A.psi_theta, A.n, bound=0.5 * A.n / A.psi_theta.sum()))
    advice = float(str(error.value).split("at least ")[1].split()[0])
    assert check(Ambiguity(A.psi_theta, A.n, advice), b).bound == advice
    assert advice <= 1.02 * A.n / A.psi_theta.sum()
