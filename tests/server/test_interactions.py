"""Interactions: pairs of values that a fit over named parts makes features of, the steepest first."""

import numpy as np
import pytest
from helpers import dealt, small_table, streamed

from agnosticfair.client.client import Client
from agnosticfair.client.sums.pairs import pair_slopes
from agnosticfair.data import files
from agnosticfair.data.axes import codes_of
from agnosticfair.data.census import take_census
from agnosticfair.data.encoding import encode
from agnosticfair.errors import SettingsError
from agnosticfair.estimator.classifier import AgnosticFairClassifier
from agnosticfair.federation import FitRequest, _begun, _plan, asking, fit, in_process
from agnosticfair.mathematics.basis import gaussian
from agnosticfair.mathematics.parts import memberships
from agnosticfair.methods import interacts, method
from agnosticfair.protocol.faults import policy
from agnosticfair.server import interactions
from agnosticfair.server.reveals import explain

ROWS = small_table(400, 5)


def made(**changes):
    return method("agnosticfair-named", **{"interactions": 6, "bands": 4, "tau": 0.05} | changes)


def planned(rows, recipe):
    """The plan and the state before the first round."""
    asker = asking(in_process({"one": rows}), policy("stop"), None, False, None)
    run = FitRequest(recipe, "sex", "yes", 0, True, None, None, None)
    return _begun(asker, run, _plan(asker, run, asker.ask("census", None, lambda a, key: a)["one"]))


def test_slopes_of_pairs_are_those_of_the_objective():
    state = planned(ROWS, made())
    task, rng = state.plan.task, np.random.default_rng(0)
    axes, parts = task.named.agreed
    C = rng.normal(size=state.inner.game.C.shape)
    w = rng.normal(size=task.encoding.width + 1)
    asked = interactions.PairSlopes(interactions.Surrogate("sigmoid", 0.7), w, C)
    found = pair_slopes(Client("one", ROWS), interactions.Broadcast(1, task, asked)).sums
    X, y, s = encode(task.encoding, ROWS), ROWS.labels("yes"), ROWS.sensitive_features["sex"].codes
    inside = memberships(codes_of(ROWS, axes), parts)
    c = (np.hstack([inside, np.ones((len(X), 1))]) * C[s]).sum(axis=1)

    def objective(d):
        return np.logaddexp(0, -np.where(y > 0, d, -d)).sum() + c @ (1 / (1 + np.exp(-d / 0.7)))

    first, d, e = len(task.encoding.numeric), X @ w[:-1] + w[-1], 1e-5
    for i, j in ((0, 0), (0, 4), (2, 8), (5, 9)):
        z = X[:, first + i] * X[:, first + j]
        slope = (objective(d + e * z) - objective(d - e * z)) / (2 * e)
        np.testing.assert_allclose(found["slope"][i, j], slope, atol=1e-3)
        p = 1 / (1 + np.exp(-d))
        np.testing.assert_allclose(found["curve"][i, j], z @ (p * (1 - p)), atol=1e-3)
        assert found["counts"][i, j] == z.sum()


def test_gains_are_those_of_least_squares_beside_the_two_values():
    rng = np.random.default_rng(1)
    Z, h, v = rng.random((200, 2)) < 0.4, rng.uniform(0.1, 0.25, 200), rng.normal(size=200)
    gain = interactions.gains(Z.T @ (v[:, None] * Z), Z.T @ (h[:, None] * Z))[0, 1]

    def least(A):  # of v.Ap + p'A'HAp / 2
        return -(v @ A) @ np.linalg.solve(A.T @ (h[:, None] * A), v @ A) / 2

    both = np.column_stack([Z, Z.all(axis=1)]).astype(float)
    np.testing.assert_allclose(gain / 2, least(both[:, :2]) - least(both))


def test_a_pair_that_is_one_of_its_values_gains_nothing():
    one = np.ones((2, 2))
    assert interactions.gains(one, one)[0, 1] == 0


@pytest.mark.parametrize(
    "changes", [{}, {"notion": "equalized_odds"}, {"spread": None, "tau": 0.2}]
)
def test_interactions_are_the_same_for_any_split(changes):
    one, three = (fit(t, made(**changes), positive="yes") for t in ({"one": ROWS}, dealt(ROWS, 3)))
    masked = fit(dealt(ROWS, 3), made(**changes), positive="yes", secure=True)
    assert len(one.model.encoding.products) == 6 == one.method.interactions
    np.testing.assert_array_equal(one.model.w, three.model.w)
    np.testing.assert_array_equal(one.model.w, masked.model.w)
    assert one.model.encoding == masked.model.encoding


def test_a_fit_with_interactions_falls_below_one_without():
    with_, without = (fit({"one": ROWS}, made(interactions=k)) for k in (6, 0))
    assert with_.outcome == without.outcome == "converged"
    assert with_.history[-1]["loss"] < without.history[-1]["loss"] - 1e-3
    assert [e["round"] for e in with_.history] == list(range(1, with_.rounds + 1))


def test_an_interrupted_fit_finds_the_same_interactions(tmp_path):
    whole = fit({"one": ROWS}, made())
    asked = {"checkpoint": tmp_path}

    class Stopped(Exception):
        pass

    for last in range(1, whole.rounds + 1):  # stopped after every round

        def stop(entry, last=last):
            if entry["round"] == last:
                raise Stopped

        with pytest.raises(Stopped):
            fit({"one": ROWS}, made(), on_round=stop, **asked)
    resumed = fit({"one": ROWS}, made(), **asked)
    np.testing.assert_array_equal(resumed.model.w, whole.model.w)
    assert resumed.model.encoding == whole.model.encoding


def test_there_are_no_more_interactions_than_pairs_with_enough_rows():
    few = fit({"one": ROWS}, made(interactions=500, least=0.08))
    X, products = encode(few.model.encoding, ROWS), few.model.encoding.products
    assert 0 < few.method.interactions == len(products) < 60
    assert (X[:, -len(products) :].mean(axis=0) >= 0.08).all()
    assert fit({"one": ROWS}, made(least=0.3, bands=2)).outcome == "converged"


def test_no_round_is_left_for_interactions_of_a_fit_that_ends_before():
    short = fit({"one": ROWS}, made(max_rounds=3))
    assert (short.rounds, short.outcome) == (3, "rounds")
    assert not short.model.encoding.products


def test_a_fit_with_interactions_is_where_another_begins():
    first = fit({"one": ROWS}, made())
    again = fit({"one": ROWS}, made(), start=first.start)
    assert again.outcome == "converged"
    assert len(again.model.encoding.products) == 6
    assert fit({"one": ROWS}, made(interactions=0), start=first.start).converged


def test_only_linear_models_over_named_parts_have_interactions():
    assert interacts(made())
    assert not interacts(made(network="mlp", interactions=0))
    assert method(made(spread=None), basis=gaussian(5)).interactions == 0
    assert method(made(), products=0.1).interactions == 0
    for recipe in (method("fairfl", interactions=3), made(network="mlp"), made(products=0.1)):
        with pytest.raises(SettingsError, match="interactions are found by linear models over"):
            fit({"one": ROWS}, recipe)
    X = np.stack([*ROWS.numeric.values()], axis=1)
    with pytest.raises(SettingsError, match="coef_ has one weight a column"):
        AgnosticFairClassifier(interactions=3).fit(X, ROWS.labels("yes"))


def test_messages_of_interactions_are_explained():
    census = take_census(ROWS, "all")
    found = explain(made(), census, ("north", "south"), 0.5)
    _, answer = (m for m in found if m.step == "pair_slopes")
    assert answer.fields == dict.fromkeys(("slope", "curve", "counts"), "11 x 11")
    assert all("nobody has said" not in words for words in answer.reveals.values())
    rounds = [m for m in found if m.step == "part_sums"]
    assert rounds[0].fields["w"] == "20"  # 2 numbers, 11 values, 6 interactions, 1


def test_streams_find_the_same_interactions(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STREAMED", 0)
    clients = dealt(ROWS, 2)
    here, there = (fit(rows, made()) for rows in (clients, streamed(clients, tmp_path)))
    assert here.model.encoding == there.model.encoding
    np.testing.assert_array_equal(here.model.w, there.model.w)
