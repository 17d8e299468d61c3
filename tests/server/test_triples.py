"""Parts of three values: those near the limit join a fit in its midst, and a last look leaves none over tau."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table, streamed

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data import files
from agnosticfair.data.axes import codes_of
from agnosticfair.data.census import take_census
from agnosticfair.data.table import Column, Table
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import subpopulations
from agnosticfair.mathematics.parts import members, named_parts, sizes_of
from agnosticfair.methods import method
from agnosticfair.protocol.messages import Reply
from agnosticfair.server import deciding, triples
from agnosticfair.server.reveals import explain

ROWS = small_table(1500, 5)
READINGS = {
    "spread": {"tau": 0.1},
    "each": {"tau": 0.2, "spread": None},
    "mixture": {"tau": 0.4, "spread": None, "each": False, "bound": 3.0, "max_rounds": 12},
    "equalized odds": {"tau": 0.15, "notion": "equalized_odds"},
    "bounded loss": {"tau": 0.6, "notion": "bounded_group_loss"},
}


def made(reading="spread", **changes):
    own = {"basis": subpopulations(depth=3, least=0.01), "floor": 0.1, **READINGS[reading]}
    return method("agnosticfair-named", **own | changes)


def parts_of(fitted):
    return fitted.named.agreed[1]


def deep(fitted):
    return [part for part in parts_of(fitted) if len(part) == 3]


def rates(table, fitted, part):
    """The groups' shares of positive decisions in a part, of those that have the share floor of it."""
    inside = members(codes_of(table, fitted.named.agreed[0]), part)
    p, s = fitted.model.predict(table), table.sensitive_features["sex"].codes
    of_groups = [p[inside & (s == j)] for j in range(2)]
    floor = fitted.method.fairness.floor * inside.sum()
    return [float(own.mean()) for own in of_groups if len(own) >= max(floor, 1)]


def difference(table, fitted, part):
    found = rates(table, fitted, part)
    return abs(found[0] - found[1]) if len(found) == 2 else 0.0


@pytest.fixture
def looks(monkeypatch):
    """What every look began with, asked for, and made of the answer."""
    seen, own = [], triples.onward

    def onward(state, asked, total):
        seen.append((state, asked, own(state, asked, total)))
        return seen[-1][-1]

    monkeypatch.setattr(triples, "onward", onward)
    return seen


def test_the_parts_that_join_are_those_of_enough_rows_near_the_limit(looks):
    recipe = made("each", basis=subpopulations(depth=3, least=0.02))
    fitted = fit(dealt(ROWS, 3), recipe, positive="yes")
    before, asked, after = looks[0]
    axes, parts = asked.task.named.agreed
    codes = codes_of(ROWS, axes)
    every = {part for part in named_parts(codes, sizes_of(axes), 0.02, 3) if len(part) == 3}
    assert every < {*parts}  # of too few rows, some
    now = replace(fitted, model=replace(fitted.model, w=before.inner.here.w))
    near = [p for p in parts if p in every and difference(ROWS, now, p) > 0.9 * 0.2]
    assert len(every) > len(near) > 0
    assert after.plan.task.named.agreed[1][-len(near) :] == near
    assert before.plan.task.named.agreed[1] == after.plan.task.named.agreed[1][: -len(near)]


@pytest.mark.parametrize("reading", ["each", "spread"])
def test_no_part_of_three_values_is_left_over_tau_at_the_end(reading):
    fitted = fit({"one": ROWS}, made(reading), positive="yes")
    assert fitted.converged
    axes, compared = fitted.named.agreed
    every = named_parts(codes_of(ROWS, axes), sizes_of(axes), 0.01, 3)
    tau = fitted.method.fairness.tau + 0.002
    over = [part for part in every if difference(ROWS, fitted, part) > tau]
    assert {*over} <= ({*compared} if reading == "spread" else set())
    assert len(compared) < len(every)


@pytest.mark.parametrize("reading", READINGS)
def test_parts_of_three_values_are_the_same_for_any_split(reading):
    one, three, masked = (
        fit(rows, made(reading), positive="yes", secure=secure)
        for rows, secure in (
            ({"one": ROWS}, False),
            (dealt(ROWS, 3), False),
            (dealt(ROWS, 3), True),
        )
    )
    assert deep(one)
    assert parts_of(one) == parts_of(three) == parts_of(masked)
    np.testing.assert_array_equal(one.model.w, three.model.w)
    np.testing.assert_array_equal(one.model.w, masked.model.w)


def test_streams_find_the_same_parts(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STREAMED", 0)
    clients = dealt(ROWS, 2)
    here, there = (fit(rows, made()) for rows in (clients, streamed(clients, tmp_path)))
    assert parts_of(here) == parts_of(there)
    np.testing.assert_array_equal(here.model.w, there.model.w)


def hidden(n=1200, seed=0):
    """Rows of three columns that tell nothing of sex by one or two: of those with a = b = c = 1 it goes with ``hint``,
    and so does the label."""
    rng = np.random.default_rng(seed)
    a, b, c = (rng.integers(0, 2, n) for _ in range(3))
    s, noise = rng.integers(0, 2, n), rng.uniform(size=n)
    inside = (a & b & c) == 1
    hint = np.where(inside, s, rng.integers(0, 2, n))
    y = (inside & (hint + 0.6 * noise > 0.5)) | (rng.uniform(size=n) < 0.01)
    named = {"a": a, "b": b, "c": c, "hint": hint}
    return Table(
        numeric={"noise": noise},
        categorical={k: Column(v.astype(np.int32), ("0", "1")) for k, v in named.items()},
        target=Column(y.astype(np.int32), ("no", "yes")),
        sensitive_features={"sex": Column(s.astype(np.int32), ("F", "M"))},
    )


def test_a_part_of_three_values_that_differs_though_its_pairs_keep_tau():
    rows, worst = hidden(), ((0, 1), (1, 1), (2, 1))
    own = {"tau": 0.5, "spread": None, "floor": 0.05, "bands": 4}
    two, three = (
        fit({"one": rows}, method("agnosticfair-named", basis=basis, **own))
        for basis in (subpopulations(["a", "b", "c"], depth, 0.05) for depth in (2, 3))
    )
    assert two.converged
    assert two.worst_difference <= 0.502
    assert difference(rows, two, worst) > 0.7
    assert three.converged
    assert worst in deep(three)
    assert difference(rows, three, worst) <= 0.502


def test_where_a_reply_has_no_room_those_beneath_the_nearest_pairs_are_asked_for(
    looks, monkeypatch
):
    every = fit({"one": ROWS}, made("each"), positive="yes")
    first = len(looks[0][1].task.named.parts)
    looks.clear()
    monkeypatch.setattr(triples, "most_parts", lambda G, D: 30)
    fit({"one": ROWS}, made("each"), positive="yes")
    before, asked, after = looks[0]
    assert first > 30 == len(asked.task.named.parts)
    pairs = dict(zip(before.plan.task.named.agreed[1], deciding.by_part(before.inner), strict=True))
    nearest = max((p for p in pairs if len(p) == 2), key=pairs.get)
    shown = asked.task.named.agreed[1]
    assert {p for p in triples._left(before.plan) if {*nearest} <= {*p}} <= {*shown}
    assert after.plan.kernels[1] <= max(30 // 2, before.plan.kernels[1] + 1)
    assert deep(every)


def test_a_fit_that_has_no_round_left_for_parts_over_tau_has_not_converged(looks):
    fit({"one": ROWS}, made("each"))
    state, asked, joined = looks[0]
    client = Client("one", ROWS)
    total = Reply(1, answer(client, "part_sums", asked).sums)
    over = replace(state, inner=replace(state.inner, outcome="converged"))
    short = replace(over.plan, method=replace(over.plan.method, max_rounds=over.inner.round))
    assert joined.inner.outcome == "running"
    assert triples.onward(over, asked, total).inner.outcome == "running"
    assert triples.onward(replace(over, plan=short), asked, total).inner.outcome == "rounds"


def test_an_interrupted_fit_finds_the_same_parts(tmp_path):
    whole = fit({"one": ROWS}, made())

    class Stopped(Exception):
        pass

    for last in range(1, whole.rounds + 1):

        def stop(entry, last=last):
            if entry["round"] == last:
                raise Stopped

        with pytest.raises(Stopped):
            fit({"one": ROWS}, made(), on_round=stop, checkpoint=tmp_path)
    resumed = fit({"one": ROWS}, made(), checkpoint=tmp_path)
    np.testing.assert_array_equal(resumed.model.w, whole.model.w)
    assert parts_of(resumed) == parts_of(whole)


@pytest.mark.parametrize("reading", ["spread", "each"])
def test_a_fit_over_three_values_is_where_another_begins(reading):
    first = fit({"one": ROWS}, made(reading, interactions=3))
    again = fit({"one": ROWS}, made(reading, interactions=3), start=first.start)
    assert deep(first)
    assert deep(again)
    assert again.outcome == "converged"


def test_messages_of_the_look_are_explained():
    found = explain(made(), take_census(ROWS, "all"), ("north", "south"), 0.5)
    asked, answer = (m for m in found if m.step == "part_sums" and "among" in m.rounds)
    assert asked.fields["task.named.parts"] == "48 x 3 x 2"
    assert answer.size < 1 << 20
    last = [m for m in found if m.step == "part_sums"][-1]
    assert last.size < 1 << 20
