"""The named set from census to model: sums against brute force, any split alike, and what is refused."""

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.axes import codes_of
from agnosticfair.data.census import merge, take_census
from agnosticfair.data.datasets import load_dataset
from agnosticfair.data.encoding import encode
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import SettingsError
from agnosticfair.estimator.classifier import AgnosticFairClassifier
from agnosticfair.federation import fit, in_process, summaries
from agnosticfair.mathematics.basis import gaussian, subpopulations
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.parts import members
from agnosticfair.mathematics.sums import row_values
from agnosticfair.methods import Fairness, Method, method
from agnosticfair.protocol.faults import Asker
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import PartSums
from agnosticfair.server import deciding, limited, named
from agnosticfair.server import plan as server
from agnosticfair.server.reveals import explain

ROWS = small_table(400, 5)
NOTIONS = ("demographic_parity", "equal_opportunity", "equalized_odds", "bounded_group_loss")


def planned(tables, recipe):

    engine = in_process(tables)
    asker = Asker(engine, engine.clients())
    census = merge(summaries(asker))
    plan = server.plan(recipe, census, asker.keys, positive="yes")
    return named.agreed(plan, census, asker.total)


def named_method(**changes):
    return method("agnosticfair-named", **changes)


def question(plan, slopes, seed=0):
    rng = np.random.default_rng(seed)
    C = rng.normal(size=(plan.task.cells, plan.kernels[1] + 1))
    w = rng.normal(size=plan.features + 1)
    return PartSums(Surrogate("sigmoid", 0.5), 1.0, w, np.ones(1), C, np.asarray(slopes, float))


def sums(plan, tables, asked):
    replies = [
        answer(Client(k, t), "part_sums", Broadcast(1, plan.task, asked)) for k, t in tables.items()
    ]
    return {name: sum(r.sums[name] for r in replies) for name in replies[0].sums}


def test_sums_over_parts_are_those_of_their_members():
    plan = planned({"one": ROWS}, named_method())
    asked = question(plan, [3, 0])
    found = sums(plan, {"one": ROWS}, asked)
    client = Client("one", ROWS)
    rows, (axes, parts) = client.prepare(plan.task), plan.task.named.agreed
    codes = codes_of(ROWS, axes)[rows.order]
    v = row_values(rows.X @ asked.w, rows.y, asked.surrogate)
    for m, part in enumerate([*parts, ()]):
        for j in range(plan.task.cells):
            own = members(codes, part) & (rows.s == j)
            assert found["psi_theta"][j, m] == own.sum()
            assert found["psi_hat"][j, m] == v.hat[own].sum()
            np.testing.assert_allclose(found["psi_g"][j, m], v.g[own].sum(), atol=1e-6)
    for row, m in enumerate([3, 0]):
        own = members(codes, parts[m]) & (rows.s == 1)
        np.testing.assert_allclose(found["J_g"][1, row], v.g_slope[own] @ rows.X[own], atol=1e-6)
    c = np.array([asked.C[j, -1] for j in rows.s])
    for m, part in enumerate(parts):
        c += members(codes, part) * asked.C[rows.s, m]
    H = rows.X.T @ (rows.X * (v.curve + c * v.g_curve)[:, None])
    np.testing.assert_allclose(found["H"], H, atol=1e-3)


def test_sums_have_the_same_bits_for_any_split():
    plan = planned({"one": ROWS}, named_method())
    asked = question(plan, range(plan.kernels[1]))
    one = sums(plan, {"one": ROWS}, asked)
    for k in (2, 5):
        many = sums(plan, dict(zip(range(k), dealt(ROWS, k).values(), strict=True)), asked)
        for name, value in one.items():
            np.testing.assert_array_equal(value, many[name], err_msg=name)


def test_a_fit_is_the_same_for_any_split():
    one, five = (fit(t, named_method(), positive="yes") for t in ({"one": ROWS}, dealt(ROWS, 5)))
    np.testing.assert_array_equal(one.model.w, five.model.w)
    assert one.converged
    assert five.bytes_per_round < 1 << 20


@pytest.mark.parametrize("notion", NOTIONS)
@pytest.mark.parametrize("spread", [None, 0.3])
def test_every_notion_and_reading_ends_as_it_says(notion, spread):
    tau = 0.65 if notion == "bounded_group_loss" else 0.25
    asked = named_method(
        notion=notion, spread=spread, tau=tau, floor=0.1, basis=subpopulations(least=0.2)
    )
    result = fit(dealt(ROWS, 2), asked, positive="yes")
    if result.converged and spread is None:
        assert result.worst_difference <= tau + 0.002
    assert result.outcome in ("converged", "rounds")


def test_every_mixture_of_parts_is_within_tau():
    fairness = Fairness(0.2, Surrogate("sigmoid", 0.5), subpopulations(least=0.2), 2.0, floor=0.1)
    result = fit({"one": ROWS}, Method("mixed", fairness=fairness), positive="yes")
    assert result.converged
    assert result.worst_difference <= 0.2 + 0.002


def charged_at(plan, w):
    """A state at w whose differences are charged for, and its sums. Decisions, which are charged for, too, lend no
    slope: the sigmoid's stand for them here."""
    state, every = deciding.init(plan, server.Beginning()), np.arange(plan.kernels[1])
    here = replace(state, w=w, limited=True, slopes=every)
    asked = PartSums(Surrogate("sigmoid", 0.5), 1.0, w, np.ones(1), state.game.C, every * 1.0)
    found = deciding.received(here, Reply(1, sums(plan, {"one": ROWS}, asked)))
    return here, {**found, "psi_hat": found["psi_g"]}


def test_the_price_has_the_gradient_it_says():
    plan = planned({"one": ROWS}, named_method(tau=0.05, spread=0.7))
    w = np.random.default_rng(3).normal(size=plan.features + 1)
    found = limited.penalty(*charged_at(plan, w))
    assert found.value > 0
    for k in range(len(w)):
        step = np.zeros_like(w)
        step[k] = 1e-4
        above, below = (
            limited.charge(*charged_at(plan, w + sign * step)).value for sign in (1, -1)
        )
        assert abs((above - below) / 2e-4 - found.slope[k]) < 1e-4 * (1 + abs(found.slope[k]))


def test_the_price_after_a_step_is_a_quadratic_of_the_step():
    """Parts that a step brings over the limit are in it, and those that it brings under are not."""
    plan = planned({"one": ROWS}, named_method(tau=0.05, spread=0.7))
    rng = np.random.default_rng(3)
    state, sums_ = charged_at(plan, rng.normal(size=plan.features + 1))
    before = limited.penalty(state, sums_)
    changed = False
    for size in (0.01, 0.1, 1.0, 5.0):
        p = size * rng.normal(size=len(state.w))
        moved = limited.charge(state, sums_, sums_["J_g"] @ p)
        after = limited.penalty(state, sums_, (p, moved))
        np.testing.assert_allclose(
            after.value + after.slope @ p + p @ after.curve @ p / 2, moved.value, rtol=1e-9
        )
        changed |= not np.array_equal(after.over, before.over)
    assert changed


@pytest.mark.parametrize("notion", NOTIONS)
def test_a_round_of_adult_takes_less_than_a_megabyte(notion):
    """As many parts as its columns can name, and as many slopes of them as may be asked for."""
    census = take_census(load_dataset("adult"), "all")
    made = named_method(notion=notion, tau=0.5)
    told = [m for m in explain(made, census, ("one", "two"), 0.5) if m.step == "part_sums"]
    assert 500_000 < max(m.size for m in told) < 1_000_000


def test_slopes_are_asked_for_as_far_as_a_reply_has_room(monkeypatch):
    """The worst parts' first, and the fit goes on with what is known of the others."""
    plan = planned(dealt(ROWS, 2), named_method(tau=0.1, spread=0.3))
    three = question(plan, range(3))
    room = 8 * sum(map(prod, three.shapes(plan.task).values()))
    monkeypatch.setattr(deciding, "MOST_BYTES", room)
    assert deciding.most_slopes(three.C, len(three.w)) == 3
    sizes, step = [], deciding.step

    def told(state, reply):
        sizes.append(8 * sum(np.size(v) for v in reply.sums.values()))
        return step(state, reply)

    monkeypatch.setattr(deciding, "step", told)
    result = fit(dealt(ROWS, 2), named_method(tau=0.1, spread=0.3), positive="yes")
    assert result.converged
    assert max(sizes) == room


def test_one_number_goes_from_lax_to_strict():
    """The price grows as tau falls, and what is charged for begins at half of it; a bound on a loss is its own."""
    plan = planned({"one": ROWS}, named_method(tau=0.05, spread=0.3))

    def charges(**changes):
        made = replace(plan, method=method(plan.method, **changes))
        return limited.charges(deciding.init(made, server.Beginning()), 3)

    prices, begin = charges()
    np.testing.assert_allclose(prices, [0.3, 0.3, limited.WHOLE])
    np.testing.assert_allclose(begin, [0.025, 0.025, 0.0])
    np.testing.assert_allclose(charges(tau=0.2)[0], prices / 8)
    np.testing.assert_allclose(charges(notion="bounded_group_loss", tau=0.6)[1], 0.6)


def test_parts_are_named_and_of_three_values():
    asked = named_method(basis=subpopulations(depth=3, least=0.01), network="linear")
    plan = planned(dealt(ROWS, 2), asked)
    names = named.part_names(plan)
    assert len(set(names)) == len(names) == plan.kernels[1]
    assert any(name.count(" and ") == 2 for name in names)


def test_sites_are_a_column():
    plan = planned(dealt(ROWS, 2), named_method(basis=subpopulations(columns=("site",), depth=1)))
    assert all(name.startswith("site = ") for name in named.part_names(plan))


def test_columns_that_are_no_features_name_parts():
    town = Column(np.random.default_rng(1).integers(0, 3, len(ROWS)).astype(np.int32), tuple("xyz"))
    rows = replace(ROWS, other={"town": town})
    asked = named_method(basis=subpopulations(columns=("*", "town"), least=0.05))
    one, three = (fit(t, asked, positive="yes") for t in ({"one": rows}, dealt(rows, 3)))
    np.testing.assert_array_equal(one.model.w, three.model.w)
    masked = fit(dealt(rows, 3), asked, positive="yes", secure=True)
    np.testing.assert_array_equal(one.model.w, masked.model.w)
    assert all("town" not in name for name in one.model.encoding.names)
    names = named.part_names(planned({"one": rows}, asked))
    assert "town = x" in names
    assert any(name.startswith("age ") for name in names)
    assert not any(
        "town" in name for name in named.part_names(planned({"one": rows}, named_method()))
    )


def test_a_column_that_one_client_lacks_names_no_part():
    town = Column(np.zeros(len(ROWS), np.int32), ("x",))
    tables = {"a": replace(ROWS, other={"town": town}), "b": ROWS}
    asked = named_method(basis=subpopulations(columns=("*", "town")))
    with pytest.raises(
        SettingsError, match="no column 'town' of at most 200 values to name parts by"
    ):
        fit(tables, asked, positive="yes")


def test_a_draw_from_the_ranges_lies_in_the_bands_of_its_numbers():
    plan = planned({"one": ROWS}, named_method())
    drawn = server.ranges_draw(replace(plan, method=Method("audit", basis=gaussian(20, 1.0))), 0)
    encoding = plan.task.encoding
    assert drawn.shape == (20, encoding.width)
    numeric = {
        name: low + drawn[:, j] * (high - low)
        for j, (name, low, high) in enumerate(encoding.numeric)
    }
    job = Column(drawn[:, 2:5].argmax(axis=1).astype(np.int32), ("a", "b", "c"))
    rows = Table(numeric, {"job": job}, None, {})
    np.testing.assert_allclose(encode(encoding, rows), drawn, atol=2**-20)


@pytest.mark.parametrize(
    ("basis", "says"),
    [
        ({"columns": ("hair",)}, "no column 'hair' of at most 200 values to name parts by"),
        ({"depth": 4}, "depth 4 is not 1, 2 or 3"),
        ({"least": 0.999}, "least 0.999 leaves no part"),
        ({"least": -1.0}, "least is -1.0"),
        ({"bands": 0}, "bands is 0"),
    ],
)
def test_a_set_that_cannot_be_is_refused(basis, says):
    with pytest.raises(SettingsError, match=says):
        fit({"one": ROWS}, named_method(basis=subpopulations(**basis)), positive="yes")


def test_a_column_of_a_thousand_values_names_no_part():
    ids = replace(ROWS, categorical={**ROWS.categorical, "id": Column.of(range(len(ROWS)))})
    made = fit({"one": ids}, named_method(), positive="yes")
    assert "id" not in [axis.name for axis in made.named.agreed[0]]
    with pytest.raises(SettingsError, match=f"column 'id' has {len(ROWS)} values"):
        fit({"one": ids}, named_method(parts_by=("id",)), positive="yes")


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan")])
def test_a_limit_that_says_nothing_is_refused(tau):
    with pytest.raises(SettingsError, match="tau is"):
        named_method(tau=tau)


def test_spread_is_a_price_over_named_parts():
    with pytest.raises(SettingsError, match="spread 1 is a price on each of named parts"):
        method("fairfl", spread=1.0)
    fairness = Fairness(0.1, basis=subpopulations(), each=True)
    recipe = Method("x", basis=gaussian(5), fairness=fairness)
    with pytest.raises(SettingsError, match="kernels for the loss"):
        fit({"one": ROWS}, recipe, positive="yes")


def test_an_infinite_price_is_a_limit_on_each_part_or_every_mixture():
    own = {"tau": 0.25, "floor": 0.1, "basis": subpopulations(least=0.2)}
    assert named_method(spread=float("inf")) == named_method(spread=None)
    each, mixed = (named_method(spread=np.inf, each=each, **own).fairness for each in (True, False))
    assert (each.spread, each.each, mixed.spread, mixed.each) == (None, True, None, False)
    with pytest.raises(SettingsError, match="limit every mixture of parts spread inf, too"):
        named_method(each=False)
    X = np.stack([*ROWS.numeric.values()], axis=1)
    sex = ROWS.sensitive_features["sex"].values()
    made = AgnosticFairClassifier(spread=np.inf, **own)
    made.fit(X, ROWS.labels("yes"), sensitive_features=sex)
    assert made.fit_.method.fairness.spread is None


def test_prices_stop_to_grow_where_decisions_are_too_coarse():
    plans = (planned({"one": ROWS}, named_method(tau=tau)) for tau in (1e-3, 1e-12))
    one, two = (limited.charges(deciding.init(plan, server.Beginning()), 3) for plan in plans)
    np.testing.assert_array_equal(one[0], two[0])
    assert (two[1] < one[1])[:-1].all()


def test_a_group_that_a_part_lacks_is_not_compared():
    s = ROWS.sensitive_features["sex"].codes
    job = Column.of(np.where(s == 0, "only one sex", "both"))
    rows = replace(ROWS, categorical={**ROWS.categorical, "job": job})
    result = fit({"one": rows}, named_method(spread=None, tau=0.5, floor=0.1), positive="yes")
    assert np.isfinite(result.worst_difference)
    assert "job = only one sex" in result.not_compared
    assert result.worst_parts[0][1] == max(d for _, d in result.worst_parts)


def test_the_worst_part_is_that_of_the_decisions():
    result = fit({"one": ROWS}, named_method(floor=0.0), positive="yes")
    (axes, parts), s = result.named.agreed, ROWS.sensitive_features["sex"].codes
    codes, decided = codes_of(ROWS, axes), result.model.predict(ROWS) > 0
    rates = [[decided[members(codes, p) & (s == g)] for g in (0, 1)] for p in parts]
    found = [abs(a.mean() - b.mean()) for a, b in rates if len(a) and len(b)]
    assert result.worst_parts[0][1] == pytest.approx(max(found))


def test_the_estimator_takes_the_named_set():
    X = np.stack([*ROWS.numeric.values()], axis=1)
    s, y = ROWS.sensitive_features["sex"].values(), ROWS.labels("yes")
    fair = AgnosticFairClassifier("agnosticfair-named", spread=0.5).fit(X, y, sensitive_features=s)
    assert fair.converged_
    assert np.isfinite(fair.certificate_.worst_difference)
    name, worst = fair.worst_parts_[0]
    assert name.startswith("x")
    assert worst == fair.fit_.worst_parts[0][1]


def people(n=600):
    """A frame with a number, a text, a column that is no feature, and groups and labels beside it."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    age, job = rng.uniform(20, 60, n), rng.choice(["a", "b", "c"], n)
    s = rng.integers(0, 2, n)
    y = age + 20 * s + 10 * rng.normal(size=n) > 50
    return pd.DataFrame({"age": age, "job": job, "town": rng.choice(["x", "y"], n)}), y, s


def inside(X, name):
    """The rows of a part by its name."""
    rows = np.ones(len(X), bool)
    for one in name.split(" and "):
        column, value = one.split(" = ")
        if column != "age":
            rows &= X[column] == value
        elif value.endswith(" or more"):
            rows &= X["age"] >= float(value.split(" ")[0])
        else:
            low, _, high = value.removeprefix("under ").rpartition(" to ")
            rows &= (X["age"] >= float(low or -np.inf)) & (X["age"] < float(high))
    return rows


def test_the_estimator_names_parts_in_the_columns_names_and_units():
    X, y, s = people()
    fair = AgnosticFairClassifier(tau=0.1, parts_by="town").fit(X, y, sensitive_features=s)
    assert fair.fit_.method.name == "agnosticfair-named"
    assert fair.coef_.shape == (1, 4)  # age and three jobs: town is no feature
    named_, decided = dict(fair.worst_parts_), fair.predict(X)
    assert {name.split(" = ")[0] for name in named_} <= {"age", "job", "town"}
    for name, worst in named_.items():
        rows = inside(X, name)
        rates = [decided[rows & (s == g)].mean() for g in (0, 1)]
        assert worst == pytest.approx(abs(rates[1] - rates[0]))
    assert np.isfinite(fair.certificate_.worst_difference)
    other = X.assign(town=X["town"].where(np.arange(len(X)) % 2 == 0, "elsewhere"))
    assert np.isfinite(fair.audit(other, y, sensitive_features=s).worst_difference)
    np.testing.assert_array_equal(fair.predict(other), decided)


@pytest.mark.parametrize(
    ("columns", "starts"),
    [(("job",), ("job",)), (("site",), ("site",)), (("age", "sex"), ("age", "sex"))],
)
def test_the_estimator_takes_columns_by_their_names(columns, starts):
    X, y, s = people(300)
    fair = AgnosticFairClassifier(basis=subpopulations(columns, depth=1), parts_by=["town"])
    owners = np.where(np.arange(300) % 2 == 0, "north", "south")
    fair.fit(X, y, sensitive_features={"sex": s}, clients=owners)
    assert {name.split(" = ")[0] for name, _ in fair.worst_parts_} <= {*starts, "town"}
    assert {axis.name.removeprefix("column ") for axis in fair.fit_.named.agreed[0]} <= {
        *starts,
        "town",
        "x0",
    }
    assert np.isfinite(fair.certificate_.worst_difference)


def test_columns_that_cannot_name_parts_are_refused_by_the_estimator():
    X, y, s = people(200)
    for made, says in (
        (
            {"basis": subpopulations(("hair",))},
            "no column 'hair' to name parts by; there are 'age'",
        ),
        ({"method": "fairfl", "parts_by": "town"}, "parts_by has no meaning"),
        (
            {"parts_by": "sex", "sensitive_columns": "sex"},
            "is among sensitive_columns and parts_by",
        ),
    ):
        with pytest.raises(SettingsError, match=says):
            AgnosticFairClassifier(**made).fit(X, y, sensitive_features=s)
