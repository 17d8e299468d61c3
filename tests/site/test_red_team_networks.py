"""A lying coordinator asks for local steps of a network: batches that it knows, or of one row; numbers that overflow at
one row only; arrays that are short for one group only."""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from helpers import dealt, small_table
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs agnosticfair[torch]")

from agnosticfair.client.client import Client
from agnosticfair.client.networks import batches
from agnosticfair.client.steps import answer
from agnosticfair.data.schema import applied, schema_of
from agnosticfair.data.summary import summary_statistics
from agnosticfair.errors import FederationError
from agnosticfair.federation import in_process
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.methods import method
from agnosticfair.protocol.faults import Coordinator
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import (
    Architecture,
    Average,
    Moments,
    Trained,
    TrainNetwork,
)
from agnosticfair.server import plan as server
from agnosticfair.site.guard import guarded, rehearsed
from agnosticfair.site.policy import SitePolicy

ROWS = small_table(240, 5)
SITES = ("north", "south")
SCHEMA = schema_of(summary_statistics(ROWS, "all"), "y")
PLAN = server.plan(method("fairfl"), summary_statistics(ROWS, "all"), SITES, positive="yes")
TASK = replace(PLAN.task, network=Architecture("linear", ()))
d = TASK.encoding.width
SIZE = 3 * d + 1


def weights(w=0.0):
    """Of a linear network: inputs as they are, then w for every feature and the intercept."""
    return np.concatenate([np.zeros(d), np.ones(d), np.full(d + 1, w)])


def step_of(batch=None, w=None, **changes):
    """One local step from w on."""
    at = {"w": weights() if w is None else w, "alpha": np.ones(1), "C": np.zeros((2, 2))}
    ones, none = np.ones(SIZE), np.zeros(SIZE)
    steps = {"steps": 1, "batch": batch, "momentum": 0.0, "device": "cpu", "before": None}
    request = {"share": 0.0, "seed": 0, "rate": 1e-3, "ridge": none, "scale": ones, **steps, **at}
    return TrainNetwork(Surrogate("sigmoid", 1.0), **{**request, **changes})


def refusal(key="north"):
    return f"site {key!r} does not answer this request; its own log says why"


def site_of(rows, **policy):
    held = partial(answer, Client("north", applied(SCHEMA, rows, "north")))
    own = {"masks": True, "schema": SCHEMA, "min_rows": 1, **policy}
    return guarded(SitePolicy("north", SITES, **own), held)


def verdict(site, one_request, task=TASK):
    """What the coordinator can see of an answer under masks."""
    try:
        found = site(one_request.step, Broadcast(1, task, one_request))
    except FederationError as error:
        return str(error)
    return {name: np.shape(value) for name, value in found.sums.items()}


def as_it_was_drawn(key, seed, number, n, size):
    """The batch of a step as the coordinator could compute it from what it sends."""
    digest = hashlib.sha256(key.encode()).digest()
    rng = np.random.default_rng([seed, number, *digest])
    rng.integers(2**31)  # of dropout
    return next(batches(n, size, 1, rng))


@pytest.mark.slow
def test_batches_that_the_coordinator_knows_are_solved_for_the_rows():
    """Sums over known batches of many rounds are linear equations, one unknown row for each: all rows, in the clear,
    out of masked totals, with the site of each, but for one
    shift between the sites. Batches now hang on the rows, which the coordinator does not know."""
    tables = dealt(ROWS, 2)
    engine, roster = rehearsed(in_process(tables), schema=SCHEMA)
    coordinator, task = Coordinator(engine, engine.clients(), secure=roster), TASK
    sizes = {key: len(rows) for key, rows in tables.items()}
    task, first = (
        replace(task, clients=coordinator.keys),
        dict(zip(sizes, (0, sizes[coordinator.keys[0]]), strict=True)),
    )
    A, b = [], []
    for number in range(1, len(ROWS) + 60):
        size = 12 + number % 3
        total = coordinator.total(Broadcast(number, task, step_of(size))).sums["moved"]
        known = np.zeros(len(ROWS))
        for key, n in sizes.items():
            known[first[key] + as_it_was_drawn(key, 0, number, n, size)] = n / size
        A.append(known)
        b.append(-total[-d - 1 :] / 1e-3)
    rows, *_ = np.linalg.lstsq(np.array(A), np.array(b), rcond=None)
    read = 2 * np.abs(rows[:, :2])  # of each row half of its features, with the sign of its label
    X = np.vstack([Client(k, t).prepare(task).X[:, :2] for k, t in tables.items()])
    assert np.mean(np.abs(read - np.abs(X)).max(axis=1) < 0.05) < 0.2


@pytest.mark.parametrize("batch", [1, 9])
def test_a_step_of_one_row_is_that_row(batch):
    assert verdict(site_of(ROWS, min_rows=10), step_of(batch)) == refusal()
    assert isinstance(verdict(site_of(ROWS, min_rows=10), step_of(10)), dict)


@pytest.mark.parametrize("n", range(20, 100, 3))
def test_no_pass_leaves_a_few_rows_out(n):
    """The step over all rows less the steps of a pass would be the rows that are left out."""
    drawn = [*batches(n, 20, n // 20, np.random.default_rng(0))]
    if drawn[0] is not None:
        assert min(map(len, drawn)) >= 20
        assert n - len(np.concatenate(drawn)) not in range(1, 10)


def test_an_array_that_is_short_fails_where_a_site_has_the_last_group():
    sex = ROWS.sensitive_features["sex"].codes
    without = ROWS.take(sex == 0)
    short = np.zeros((1, 2))
    before = Trained(weights(), np.ones(1), short, np.zeros(SIZE))
    for request in (step_of(C=short), step_of(before=before), step_of(alpha=np.ones(2))):
        assert {verdict(site_of(rows), request) for rows in (ROWS, without)} == {refusal()}


@pytest.mark.parametrize("steps", [1, 2])
def test_numbers_that_overflow_at_one_row_tell_nothing(steps):
    """'Is anybody here older than ...', at one site: a network's logits were infinite there, and it refused."""
    age = ROWS.numeric["age"]
    oldest = int(np.argmax(age))
    low, high = np.partition(age, -2)[-2:]
    at = [name for name, *_ in TASK.encoding.numeric].index("age")
    w = weights()
    middle = (
        (low + high) / 2
        if not TASK.encoding.scale
        else 0.5 * (1 + (low - age.min()) / (high - age.min()))
    )
    w[at], w[d + at], w[2 * d + at] = (
        middle,
        1e-30,
        3e38,
    )  # far above the middle, beyond what a float32 holds
    request = step_of(w=w, steps=steps)
    rest = ROWS.take(np.arange(len(ROWS)) != oldest)
    one, other = (verdict(site_of(rows), request) for rows in (ROWS, rest))
    assert one == other
    assert isinstance(one, dict)


def test_a_network_or_steps_that_fill_the_memory_come_to_no_row():
    def looked(step, one_request):
        pytest.fail(f"step {step!r} came to the rows")

    site = guarded(SitePolicy("north", SITES, masks=True, schema=SCHEMA, min_rows=1), looked)
    for hidden in ((10**9, 10**9), (0,), (-5, 3)):
        task = replace(TASK, network=Architecture("mlp", hidden))
        assert verdict(site, step_of(), task) == refusal()
    assert verdict(site, step_of(steps=10**9)) == refusal()


numbers = st.sampled_from([0.0, 1.0, -3.0, 1e-9, 1e9, 3e38, 1e300])
shapes = st.sampled_from([(2, 2), (2, 2), (1, 2), (4, 2)])


@st.composite
def requests(draw):
    """Requests of local training whose fields are of the right types, and hostile."""
    w, C = weights(draw(numbers)), np.full(draw(shapes), draw(numbers))
    w[:d], w[d : 2 * d] = draw(numbers), draw(st.sampled_from([1.0, 1e-30, 0.0]))
    linear = replace(TASK, network=None)
    steps, rate, alpha = draw(st.sampled_from([1, 3])), draw(numbers), np.full(1, draw(numbers))
    before = draw(st.sampled_from([None, Trained(w, alpha, C, np.full(SIZE, draw(numbers)))]))
    own = {
        "steps": steps,
        "rate": rate,
        "penalty": abs(draw(numbers)),
        "tau": 0.1,
        "n": draw(numbers),
    }
    own |= {"s_bar": draw(numbers), "alpha": alpha}
    v = np.full(d + 1, draw(numbers))
    return draw(
        st.sampled_from(
            [
                (
                    TASK,
                    step_of(draw(st.sampled_from([None, 1, 50])), w, C=C, rate=rate, before=before),
                ),
                (TASK, Moments()),
                (linear, Average(**own, ridge=0.0, w=v, phi_C=v)),
                (linear, Average(**{**own, "steps": None}, ridge=abs(rate), w=v, phi_C=v)),
            ]
        )
    )


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(requests(), st.integers(0, len(ROWS) - 1))
def test_whatever_training_is_asked_for_the_verdict_does_not_hang_on_a_row(request, row):
    task, broadcast = request
    rest = ROWS.take(np.arange(len(ROWS)) != row)
    one, other = (verdict(site_of(rows, min_rows=10), broadcast, task) for rows in (ROWS, rest))
    assert one == other
