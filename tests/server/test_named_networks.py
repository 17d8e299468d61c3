"""Networks over named parts: sums against brute force, gradients against differences, each reading and notion."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

pytest.importorskip("torch", reason="needs agnosticfair[torch]")

from agnosticfair import federation
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.axes import codes_of
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import subpopulations
from agnosticfair.mathematics.parts import memberships
from agnosticfair.methods import Network, method
from agnosticfair.protocol.engines.in_process import InProcess
from agnosticfair.protocol.messages import add_up, pack, unpack
from agnosticfair.server import saddle

ROWS = small_table(400, 5)
QUICK = Network("mlp", (4,), steps=3, batch=64, rate=0.01)
READINGS = {
    "each": {"spread": None},
    "mixture": {"spread": None, "each": False, "bound": 3.0},
    "spread": {"spread": 0.3},
}


def made(reading="spread", network=QUICK, **changes):
    own = {"basis": subpopulations(least=0.1), "floor": 0.1, "tau": 0.1, "max_rounds": 5}
    return method("agnosticfair-named", network=network, **{**own, **READINGS[reading], **changes})


class Rounds:
    """An engine that remembers the questions of training."""

    def __init__(self, tables):
        self.inner, self.asked = federation.in_process(tables), []

    def clients(self):
        return self.inner.clients()

    def exchange(self, step, payload, keys, deadline):
        if step == "train":
            self.asked.append(payload)
        return self.inner.exchange(step, payload, keys, deadline)


def questions(recipe, tables):
    engine = Rounds(tables)
    fit(engine, recipe, positive="yes")
    return engine.asked


def weighed(client, asked):
    """K with the uniform weights last, (n, F + 1), in the order of the rows."""
    rows, (axes, parts) = client.prepare(asked.task), asked.task.named.agreed
    return rows, memberships(codes_of(client.rows, axes)[rows.order], [*parts, ()])


def test_sums_are_those_of_the_parts_members():
    asked = questions(made("each", replace(QUICK, steps=30), tau=0.02), {"one": ROWS})[4]
    client = Client("one", ROWS)
    found = answer(client, "train", asked).sums
    rows, K = weighed(client, asked)
    w, d = asked.asked.w, rows.X.shape[1] - 1
    assert len(asked.asked.pool) > 1
    pooled = np.stack(
        [np.einsum("im,im->i", K, cut[rows.s]) for cut in asked.asked.pool]
    )  # what every cut weighs a row by
    np.testing.assert_allclose(found["Q"], pooled @ pooled.T, rtol=1e-4, atol=1e-8)
    from agnosticfair.networks import flat

    net = flat("mlp", (4,), d, w, "cpu")
    decided = net.logits(net.inputs(rows.X[:, :-1])).detach().numpy() > 0
    for j in range(asked.task.cells):
        inside = K[rows.s == j]
        np.testing.assert_array_equal(found["psi_theta"][j], inside.sum(axis=0))
        np.testing.assert_array_equal(found["psi_hat"][j], decided[rows.s == j] @ inside)


def test_sums_of_many_clients_are_those_of_one():
    asked = questions(made("each", replace(QUICK, batch=None, steps=30), tau=0.02), dealt(ROWS, 3))[
        4
    ]
    small = 0.1 * asked.asked.scale  # no weight at the most that a step may move it
    asked = replace(asked, asked=replace(asked.asked, steps=1, scale=small))
    split = add_up([answer(Client(k, t), "train", asked) for k, t in dealt(ROWS, 3).items()]).sums
    pooled = answer(Client("c000", ROWS), "train", asked).sums
    for name in ("psi_theta", "psi_hat"):
        np.testing.assert_array_equal(split[name], pooled[name])
    for name in ("loss", "psi_g", "gradient", "Q"):
        np.testing.assert_allclose(split[name], pooled[name], rtol=1e-4, atol=1e-3, err_msg=name)
    moved = pooled["moved"] / pooled["mass"]
    assert np.abs(moved).max() > 1e-4
    np.testing.assert_allclose(split["moved"] / split["mass"], moved, rtol=1e-2, atol=1e-5)


@pytest.mark.parametrize("notion", ["demographic_parity", "equalized_odds", "bounded_group_loss"])
def test_what_is_charged_has_the_gradient_that_clients_follow(notion, monkeypatch):
    """The gradient of sum a l + c g, with the server's C at w, is that of n (loss + charge) at w."""
    states, step = [], saddle.step
    monkeypatch.setattr(saddle, "step", lambda s, r: states.append(s) or step(s, r))
    tau = 0.4 if notion == "bounded_group_loss" else 0.05
    recipe = made(
        network=replace(QUICK, decisions=False), notion=notion, tau=tau, spread=2.0, max_rounds=3
    )
    asked, rng = questions(recipe, {"one": ROWS})[-1], np.random.default_rng(1)
    free = np.r_[np.zeros(10), np.ones(len(asked.asked.w) - 10)]  # inputs' centre and scale stay
    w = asked.asked.w + 0.7 * free * rng.normal(size=len(free))
    state, client = replace(states[-1], w=w), Client("one", ROWS)

    def sums(w, C=asked.asked.C):
        made_at = replace(asked.asked, w=w, C=C, before=None, rate=0.0)
        return answer(client, "train", replace(asked, asked=made_at)).sums

    def objective(w):
        found = sums(w)
        return float(found["loss"]) + state.game.n * saddle.charged(state, found).value

    charge = saddle.charged(state, sums(w))
    assert charge.value > 0.01
    C = state.game.n * charge.weights(state.game.compared.parts)
    gradient = sums(w, C)["gradient"]
    for _ in range(3):
        p = rng.normal(size=len(w)) * free
        slope = (objective(w + 2e-3 * p) - objective(w - 2e-3 * p)) / 4e-3
        assert gradient @ p == pytest.approx(slope, rel=3e-2, abs=3e-2)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(
    "notion", ["demographic_parity", "equal_opportunity", "equalized_odds", "bounded_group_loss"]
)
def test_every_reading_and_notion_has_its_parts_named(reading, notion):
    tau = 0.66 if notion == "bounded_group_loss" else 0.2
    result = fit(dealt(ROWS, 2), made(reading, notion=notion, tau=tau), positive="yes")
    assert result.rounds == 5
    assert np.isfinite(result.worst_difference)
    assert result.worst_parts
    assert result.bytes_per_round < 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_decisions_over_named_parts_come_near_the_exact_solver(reading):
    """A linear network by local steps, and the exact solver, on the same problem: the same loss and limit."""
    rows = small_table(800, 5)
    linear = method(made(reading, network=None), ridge=1e-5, max_rounds=40, tau=0.15)
    linear = replace(linear, network=None)
    exact = fit(dealt(rows, 2), linear, positive="yes")
    net = Network("linear", (), steps=20, batch=None, rate=0.02)
    result = fit(dealt(rows, 2), replace(linear, network=net, max_rounds=160), positive="yes")
    best = min(result.history, key=lambda entry: entry["merit"])
    assert best["loss"] == pytest.approx(exact.history[-1]["loss"], rel=0.03)
    if reading != "spread":
        assert exact.worst_difference <= 0.152
        assert result.worst_difference <= 0.15 + 0.01


class Wire(InProcess):
    """Every message goes through its wire form."""

    def exchange(self, step, payload, keys, deadline):
        payload = payload if payload is None else unpack(pack(payload))
        found = super().exchange(step, payload, keys, deadline)
        return {key: unpack(pack(reply)) for key, reply in found.items()}


@pytest.mark.parametrize("reading", READINGS)
def test_over_the_wire_the_network_is_the_same_bit_for_bit(reading):
    recipe, tables = made(reading, replace(QUICK, steps=30), tau=0.02), dealt(ROWS, 2)
    here = fit(tables, recipe, positive="yes")
    wired = fit(Wire(federation.in_process(tables).handlers), recipe, positive="yes")
    assert wired.model.w.tobytes() == here.model.w.tobytes()
    assert wired.history == here.history


def test_masked_sums_give_the_same_network():
    recipe = made("each", max_rounds=4)
    plain = fit(dealt(ROWS, 2), recipe, positive="yes")
    masked = fit(dealt(ROWS, 2), recipe, positive="yes", secure=True)
    np.testing.assert_array_equal(plain.model.w, masked.model.w)


@pytest.mark.parametrize("network", [QUICK, None])
def test_a_fit_over_named_parts_goes_on_from_its_checkpoint(network, tmp_path):
    recipe = made("each", network=network, max_rounds=6)
    whole = fit(dealt(ROWS, 2), recipe, positive="yes")
    seen = []

    def stop(entry):
        seen.append(entry)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(dealt(ROWS, 2), recipe, positive="yes", checkpoint=tmp_path, on_round=stop)
    again = fit(dealt(ROWS, 2), recipe, positive="yes", checkpoint=tmp_path)
    assert [event["event"] for event in again.events] == ["resumed"]
    np.testing.assert_array_equal(whole.model.w, again.model.w)


def test_a_network_over_named_parts_has_values_of_its_own():
    deep = method("agnosticfair-named", network="mlp")
    assert (deep.ridge, deep.bands, deep.fairness.surrogate.temperature) == (5e-3, 0, 1.0)
    own = method(method("agnosticfair-named", ridge=1e-4, bands=3), network="mlp")
    assert (own.ridge, own.bands) == (1e-4, 3)


def test_what_a_site_would_send_is_told():
    from agnosticfair.data.census import take_census
    from agnosticfair.server.reveals import explain

    census = take_census(ROWS, "one")
    trained = [m for m in explain(made("each"), census, ("a", "b"), 0.5) if m.step == "train"]
    assert trained[0].fields["pool"].startswith(f"{saddle.MOST_POOL} x 2")
    assert trained[1].fields["Q"] == f"{saddle.MOST_POOL} x {saddle.MOST_POOL}"


def test_a_network_that_gives_one_answer_says_so():
    net = replace(QUICK, rate=0.05, steps=20)
    result = fit(dealt(ROWS, 2), made("spread", net, tau=0.001, max_rounds=12), positive="yes")
    positive = float((result.model.decision(ROWS) > 0).mean())
    assert result.history[-1]["positive"] == pytest.approx(positive, abs=0.01)
    assert result.nearly_constant == (result.collapsed is not None)
