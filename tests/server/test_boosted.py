"""Trees over clients: the same bits pooled, over any split, masked, resumed; and what the requests carry."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table, streamed

from agnosticfair import load_dataset
from agnosticfair.data import files, stream
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import coordinator_for, fit, in_process, statistics_of_all, summaries
from agnosticfair.learners.estimates import heads
from agnosticfair.learners.estimates import predict as heads_by
from agnosticfair.learners.trees import predict
from agnosticfair.mathematics.boosting import Boosting
from agnosticfair.methods import method
from agnosticfair.privacy.fit import private_method
from agnosticfair.protocol.faults import policy
from agnosticfair.protocol.messages import Broadcast, pack, unpack
from agnosticfair.server import boosted, checkpoints, solvers
from agnosticfair.server.plan import Beginning, plan

SMALL = Boosting(trees=5, depth=3)


def split_up(table, clients, seed=0):
    owner = np.random.default_rng(seed).permutation(np.arange(len(table)) % clients)
    return {f"site {k}": table.take(np.flatnonzero(owner == k)) for k in range(clients)}


def begun(tables, secure=False, settings=SMALL, folds=2):
    coordinator = coordinator_for(in_process(tables), policy("stop"), None, secure)
    statistics = statistics_of_all(coordinator, summaries(coordinator))
    one_plan = plan(method("rule", learner="trees"), statistics, coordinator.keys)
    return (
        coordinator,
        one_plan,
        boosted.begun(one_plan, heads(one_plan.task.sensitive_features), 0, folds, settings),
    )


def grown(tables, secure=False, settings=SMALL, folds=2, wire=False):
    coordinator, made, state = begun(tables, secure, settings, folds)
    while state.outcome == "running":
        request = Broadcast(state.round + 1, made.task, boosted.request(state))
        request = unpack(pack(request)) if wire else request
        state = boosted.step(state, coordinator.total(request))
    return boosted.estimates_of(state, made), made, state


@pytest.fixture(scope="module")
def adult():
    return load_dataset("adult").take(np.arange(1500))


@pytest.fixture(scope="module")
def pooled(adult):
    return grown({"all": adult})[0].arrays


def same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert np.array_equal(one[name], other[name]), name


@pytest.mark.parametrize("clients", [2, 10, pytest.param(200, marks=pytest.mark.slow)])
def test_any_split_gives_the_same_trees(adult, pooled, clients):
    same(grown(split_up(adult, clients))[0].arrays, pooled)


def test_masked_sums_give_the_same_trees(adult, pooled):
    same(grown(split_up(adult, 3), secure=True)[0].arrays, pooled)


def test_requests_survive_the_wire(adult, pooled):
    same(grown(split_up(adult, 2), wire=True)[0].arrays, pooled)


def test_clients_need_no_memory(adult, pooled):
    """Each request goes to clients that know nothing but their rows."""
    tables = split_up(adult, 2)
    coordinator, made, state = begun(tables)
    while state.outcome == "running":
        request = Broadcast(state.round + 1, made.task, boosted.request(state))
        coordinator = coordinator_for(in_process(tables), policy("stop"), None, False, None)
        state = boosted.step(state, coordinator.total(request))
    same(boosted.estimates_of(state, made).arrays, pooled)


def test_a_checkpoint_in_the_middle_of_a_tree_changes_nothing(adult, pooled, tmp_path):
    coordinator, made, state = begun({"all": adult})
    while state.outcome == "running":
        if state.round % 5 == 4:
            solver_state = solvers.SolverState(made, state, "trees")
            checkpoints.save(tmp_path / str(state.round), {}, solver_state, [])
            state = checkpoints.load(tmp_path / str(state.round), {})[0].inner
        request = Broadcast(state.round + 1, made.task, boosted.request(state))
        state = boosted.step(state, coordinator.total(request))
    same(boosted.estimates_of(state, made).arrays, pooled)


def test_a_row_that_weighs_two_is_the_row_twice():
    r = np.random.default_rng(0)
    x, w = r.normal(size=400).round(1), r.integers(1, 3, 400)
    y = Column.of(np.where(x + r.normal(size=400) > 0, "yes", "no"))
    sex = Column.of(np.where(r.random(400) < 0.5, "F", "M"))
    settings = Boosting(trees=4, depth=2, min_rows=1, min_bin=1)
    rows = Table({"x": x}, {}, y, {"sex": sex})
    twice = rows.take(np.repeat(np.arange(400), w))
    one = grown({"a": replace(rows, weights=w.astype(float))}, settings=settings, folds=0)[0]
    two = grown({"a": twice}, settings=settings, folds=0)[0]
    p, q = (predict(e.arrays, grown_encoding(rows), 0, rows, "the data") for e in (one, two))
    assert np.array_equal(p, q)


def grown_encoding(table):
    return begun({"a": table})[1].task.encoding


def test_early_stopping_takes_the_best_count_out_of_fold(adult):
    estimates, made, state = grown({"all": adult}, settings=Boosting(trees=60, depth=4, patience=3))
    for loss, forest in zip(state.growth.loss, state.growth.done[-2:], strict=True):
        assert len(loss) == len(forest) + 1
        assert len(loss) - 1 - int(np.argmin(loss)) == 3
    from agnosticfair.learners.trees import forests_of

    _, forests = forests_of(estimates.arrays, made.task.encoding, 2)
    assert [len(f) for f in forests] == [int(np.argmin(loss)) for loss in state.growth.loss]


def test_trees_beat_the_base_rate_on_rows_that_no_model_saw():
    table = load_dataset("adult").take(np.arange(4000))
    train, test = table.take(np.arange(3000)), table.take(np.arange(3000, 4000))
    estimates, made, _ = grown({"all": train}, settings=Boosting(trees=30, depth=4))
    p = predict(estimates.arrays, made.task.encoding, 2, test, "the data")[0]
    y = test.labels(made.task.positive) > 0
    assert ((p > 0.5) == y).mean() > 0.83


def test_a_damaged_request_is_refused_in_a_sentence(adult):
    coordinator, made, state = begun({"all": adult})
    while state.growth is None:
        request = Broadcast(state.round + 1, made.task, boosted.request(state))
        state = boosted.step(state, coordinator.total(request))
    request = boosted.request(state)
    shorter = replace(request.trees, done=request.trees.done[:-3])
    for wrong in ({"count": np.array([[99.0, 0.0]])}, {"trees": shorter}):
        with pytest.raises(Exception, match="trees is damaged"):
            coordinator.total(Broadcast(9, made.task, replace(request, **wrong)))


def test_streamed_rows_give_the_same_trees(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "STREAMED", 0)
    monkeypatch.setattr(stream, "BATCH", 64)
    clients = dealt(small_table(600), 2)
    expected = grown(clients)[0].arrays
    same(grown(streamed(clients, tmp_path))[0].arrays, expected)


def test_rows_that_are_nearly_all_alike_need_no_folds():
    n = 300
    y = Column.of(np.where(np.arange(n) % 3 == 0, "yes", "no"))
    sex = Column.of(np.where(np.arange(n) % 2 == 0, "F", "M"))
    table = Table({"x": np.where(np.arange(n) == 0, 2.0, 1.0)}, {}, y, {"sex": sex})
    estimates, made, _ = grown({"a": table, "b": table}, folds=5)
    assert estimates.folds == 0
    p = predict(estimates.arrays, made.task.encoding, 0, table, "the data")
    assert np.allclose(p[0], 1 / 3, atol=0.01)


def test_noise_is_refused_with_a_reason():
    with pytest.raises(SettingsError, match="trees are not grown under noise"):
        private_method(method("rule", learner="trees"))


def test_fl_learns_by_trees_alone(adult):
    fitted = fit(split_up(adult, 2), method("fl", learner="trees"))
    assert fitted.model.estimates.kind == "trees"
    assert fitted.model.estimates.folds == 0


def test_a_monotone_column_moves_the_label_one_way_and_groups_freely(adult):
    bound_method = method("rule", learner="trees", monotone="age=-1")
    signed = boosted.init(replace(begun({"all": adult})[1], method=bound_method), Beginning())
    settings = replace(SMALL, trees=10, monotone=signed.settings.monotone)
    free = grown({"all": adult}, settings=replace(SMALL, trees=10))
    bound = grown({"all": adult}, settings=settings)
    rows = adult.take(np.arange(200))
    path = []
    for estimates, made, _ in (free, bound):
        ages = [
            replace(rows, numeric={**rows.numeric, "age": np.full(200, a)}) for a in range(17, 90)
        ]
        p = np.array([heads_by(estimates, made.task.encoding, 0, own) for own in ages])
        path.append(np.diff(p, axis=0).max(axis=(0, 2)))
    assert path[0][0] > 0
    assert path[1][0] <= 0
    assert path[1][1] > 0  # the group's head knows no sign
    same(grown(split_up(adult, 3), settings=settings)[0].arrays, bound[0].arrays)


def test_monotone_is_refused_where_it_has_no_meaning(adult):
    for learner in ("additive", "linear", "auto"):
        with pytest.raises(SettingsError, match=f"{learner!r}.*'trees'"):
            method("fl", learner=learner, monotone={"age": 1})
    for wrong in ({"age": 2}, "age", "age=up", {"age": 0}):
        with pytest.raises(SettingsError, match="monotone is"):
            method("fl", learner="trees", monotone=wrong)
    for name in ("occupation", "nobody"):
        with pytest.raises(SettingsError, match=f"{name!r}.*'age'"):
            fit({"all": adult}, method("fl", learner="trees", monotone={name: 1}))


def test_ten_thousand_categories_share_a_byte():
    r = np.random.default_rng(0)
    job, sex = r.integers(0, 10_000, 20_000), r.integers(0, 2, 20_000)
    job[:6000] = job[:6000] % 300  # some are frequent, and tell
    y = (job < 150) ^ (r.random(20_000) < 0.2)
    rows = Table(
        {}, {"job": Column.of([f"{k:05d}" for k in job])}, Column.of(np.where(y, "yes", "no")),
        {"sex": Column.of(np.where(sex, "F", "M"))},
    )  # fmt: skip
    made = [grown(split_up(rows, k), folds=0)[0] for k in (1, 3)]
    same(made[0].arrays, made[1].arrays)
    p = predict(made[0].arrays, grown_encoding(rows), 0, rows, "the data")[0]
    assert np.log(np.where(y, p, 1 - p)).mean() > np.log([y.mean(), 1 - y.mean()]) @ [
        y.mean(),
        1 - y.mean(),
    ]


def test_infinite_numbers_are_refused_by_name(adult):
    age = np.array(adult.numeric["age"])
    age[3] = np.inf
    with pytest.raises(FederationError, match=r"'age'.*row 4"):
        fit(
            {"all": replace(adult, numeric={**adult.numeric, "age": age})},
            method("fl", learner="trees"),
        )
