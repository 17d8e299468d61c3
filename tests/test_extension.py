"""What CONTRIBUTING says, followed from outside: a basis, a step, a solver, a learner, an engine, a field of sums."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from helpers import TABLES, request_of, small_table

from agnosticfair.client import steps
from agnosticfair.client import sums as client_sums
from agnosticfair.client.client import Client
from agnosticfair.data.table import concatenate
from agnosticfair.errors import DataError, FederationError
from agnosticfair.federation import fit, in_process
from agnosticfair.learners.estimates import LEARNERS, Estimates, Learner, register_learner
from agnosticfair.learners.rule import NAMES
from agnosticfair.mathematics import basis as bases
from agnosticfair.mathematics import sums as stated
from agnosticfair.mathematics.basis import Basis, BasisKind
from agnosticfair.mathematics.linear import log_loss, log_loss_derivatives
from agnosticfair.methods import Method, method
from agnosticfair.model import load_model
from agnosticfair.privacy.messages import UNSAID, dry_run
from agnosticfair.protocol import requests
from agnosticfair.protocol.messages import Broadcast, Reply, pack, unpack
from agnosticfair.protocol.requests import Learn
from agnosticfair.server import solvers
from agnosticfair.server.plan import trained_heads
from agnosticfair.server.solvers import TRAINERS
from agnosticfair.site.checks import request_check


@pytest.fixture(autouse=True)
def forgotten():
    """What a test registers is forgotten after it."""
    tables = (bases.KINDS, requests.REQUESTS, requests.REVEALS, steps.STEPS, solvers.SOLVERS)
    tables += (LEARNERS, TRAINERS)
    before, names = [dict(table) for table in tables], [*NAMES]
    yield
    NAMES[:] = names
    for table, known in zip(tables, before, strict=True):
        table.clear()
        table.update(known)


# Add a kind of basis: one record.


def tilts(basis, X, centres):
    """K = (1, x_0, 1 - x_0): the adversary leans towards one end of the first feature."""
    return np.column_stack([np.ones(len(X)), X[:, 0], 1 - X[:, 0]])


def test_a_kind_of_basis_from_outside_is_fitted_to_any_spread_of_the_rows():
    bases.register(BasisKind("tilts", tilts, kernels=lambda basis: 3))
    chosen_method = method("agnosticfair", basis=Basis("tilts"), tau=0.03)
    fitted = fit(TABLES, chosen_method, positive="yes")
    pooled = fit({"all": small_table(300, 3)}, chosen_method, positive="yes")
    assert fitted.converged
    assert fitted.trained_difference <= 0.03 + 0.002
    assert len(fitted.alpha) == 3
    np.testing.assert_allclose(fitted.model.w, pooled.model.w, atol=1e-6)


# Add a step: a request, and the record of the function that answers it.


class Gradient:
    """The mean loss' gradient at w."""

    w: np.ndarray

    def shapes(self, task):
        return {"loss": (), "gradient": self.w.shape, "mass": ()}


def gradient(client, broadcast):
    rows = client.prepare(broadcast.task)
    d = rows.X @ broadcast.request.w
    gradient, _ = log_loss_derivatives(d, rows.y)
    loss = log_loss(d, rows.y).sum()
    sums = {"loss": np.array(loss), "gradient": gradient @ rows.X, "mass": np.array(float(len(d)))}
    return Reply(broadcast.round, sums)


def know_the_step():
    requests.request("gradient", gradient="how w would change: of one row, what it looks like")(
        Gradient
    )
    steps.register(steps.Step("gradient", gradient, by_batch=True))


def test_a_step_from_outside_is_asked_over_the_wire_and_answered():
    know_the_step()
    client = Client("a", small_table(50))
    task = request_of([client], method("fl")).task
    request = unpack(pack(Broadcast(1, task, Gradient(np.zeros(6)))))
    found = steps.answer(client, "gradient", request)
    assert found.sums["loss"] == pytest.approx(50 * np.log(2), abs=1e-6)
    assert {k: v.shape for k, v in found.sums.items()} == request.shapes


# Add a solver: an object, or a module, that meets ``solvers.Solver``, and a line in the table.


@dataclass(frozen=True)
class Descent:
    """The state of a gradient descent."""

    w: np.ndarray
    max_rounds: int
    alpha: np.ndarray
    round: int = 0
    outcome: str = "running"
    history: tuple = ()
    under_floor: tuple = ()


def begun(plan, beginning):
    return Descent(np.zeros(plan.features + 1), plan.method.max_rounds, np.ones(1))


def moved(state, reply):
    sums = reply.sums
    w = state.w - 1.0 * sums["gradient"] / sums["mass"]
    entry = {"round": reply.round, "loss": float(sums["loss"] / sums["mass"]), "worst": 0.0}
    outcome = "rounds" if reply.round >= state.max_rounds else "running"
    history = (*state.history, entry)
    return replace(state, w=w, round=reply.round, outcome=outcome, history=history)


DESCENT = SimpleNamespace(
    suits=lambda method: method.name == "descent",
    before=lambda plan: None,
    init=begun,
    request=lambda state: Gradient(state.w),
    step=moved,
    worst_cases=lambda state: (float("nan"), float("nan")),
    start_of=lambda state: None,
)


def test_a_solver_from_outside_is_fitted_and_resumed(tmp_path):
    know_the_step()
    request_check("gradient")(lambda by, broadcast: None)  # any w: it is a model
    solvers.register("descent", DESCENT)
    method = Method("descent", max_rounds=30)
    fitted = fit(TABLES, method, positive="yes")
    losses = [entry["loss"] for entry in fitted.history]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.05
    pooled = fit({"all": small_table(300, 3)}, method, positive="yes")
    np.testing.assert_allclose(fitted.model.w, pooled.model.w, atol=1e-6)
    secure = fit(TABLES, method, positive="yes", secure=True)
    assert secure.model.w.tobytes() == fitted.model.w.tobytes()

    class Killed(Exception):
        pass

    def kill(entry):
        if entry["round"] == 10:
            raise Killed

    with pytest.raises(Killed):
        fit(TABLES, method, positive="yes", checkpoint=tmp_path, on_round=kill)
    resumed = fit(TABLES, method, positive="yes", checkpoint=tmp_path)
    assert resumed.model.w.tobytes() == fitted.model.w.tobytes()
    assert fit(TABLES, "fl", positive="yes").converged  # others' methods are solved as before
    told = {m.step: m for m in dry_run(method, small_table(300), 2, positive="yes") if m.reveals}
    assert (
        told["gradient"].reveals["gradient"] == "how w would change: of one row, what it looks like"
    )
    assert UNSAID not in told["gradient"].reveals.values()


# Add a learner: what it predicts, and how it is trained, here by a request that is there.


@dataclass(frozen=True)
class Prior:
    """Every head's mean, of all rows and without each fold, (folds + 1, H)."""

    request: Learn
    p: np.ndarray | None = None
    round: int = 0
    outcome: str = "running"
    held_out: float = np.inf
    history: tuple = ()
    w: tuple = ()
    alpha: tuple = ()
    under_floor: tuple = ()


def before_the_prior(plan, beginning):
    heads, folds = trained_heads(plan, beginning.seed), plan.method.rule.folds
    w = np.zeros((folds + 1, len(heads), plan.features + 1))
    return Prior(Learn(heads, folds, beginning.seed, False, w))


def the_prior(state, reply):
    """At w = 0 the gradient of the intercept is half the rows less those of label 1."""
    sums = reply.sums
    p = 0.5 - sums["head_gradient"][..., -1] / sums["head_mass"]
    entry = {"round": reply.round, "loss": 0.0, "worst": 0.0}
    return replace(state, p=p, round=1, outcome="learned", held_out=0.7, history=(entry,))


def check_the_prior(arrays, encoding, heads):
    if {*arrays} != {"p"} or arrays["p"].shape != (1, heads):
        raise ValueError("means")


PRIOR = SimpleNamespace(
    init=before_the_prior,
    request=lambda state: state.request,
    step=the_prior,
    estimates_of=lambda state, plan: Estimates(
        "prior", state.request.heads, state.request.folds, state.request.seed, {"p": state.p}
    ),
)


def test_a_learner_from_outside_is_trained_by_sums_and_saved(tmp_path):
    pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
    register_learner(
        Learner(
            "prior",
            "the mean of every head",
            lambda arrays, encoding, index, table, who: np.repeat(
                arrays["p"][index][:, None], len(table), axis=1
            ),
            lambda arrays, folds: {"p": arrays["p"][folds:]},
            check_the_prior,
        )
    )
    TRAINERS["prior"] = PRIOR
    chosen = method("rule", learner="prior")
    fitted = fit(TABLES, chosen, positive="yes")
    pooled = fit({"all": concatenate(list(TABLES.values()))}, chosen, positive="yes")
    masked = fit(TABLES, chosen, positive="yes", secure=True)
    assert fitted.model.digest == pooled.model.digest == masked.model.digest
    fitted.model.save(tmp_path / "model")
    rows = TABLES["c000"]
    p = load_model(tmp_path / "model").probabilities(rows)
    labels = np.concatenate([table.labels("yes") for table in TABLES.values()])
    np.testing.assert_allclose(p, labels.mean(), atol=2**-20)


# Add an engine: who the clients are, and an answer, or a failure, from each. It is the one that CONTRIBUTING shows.


@pytest.fixture(scope="module")
def Threads():
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()
    block = page.partition("## Add an engine")[2].partition("```python\n")[2].partition("```")[0]
    names = {"__name__": "threads"}
    sys.modules["threads"] = ModuleType("threads")
    exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    return names["Threads"]


@pytest.mark.parametrize("name", ["fl", "fairfl", "rule"])
def test_an_engine_from_outside_gives_the_same_bits(name, Threads):
    engine = Threads(in_process(TABLES).handlers)
    one, two = (fit(clients, name, positive="yes") for clients in (engine, TABLES))
    assert one.model.digest == two.model.digest
    assert one.history == two.history


def test_an_engine_s_failures_name_the_client(Threads):
    handlers = dict(in_process(TABLES).handlers)

    def refuse(step, payload):
        raise DataError("no rows today")

    with pytest.raises(FederationError, match=r"'c001'.*today"):
        fit(Threads({**handlers, "c001": refuse}), "fl", positive="yes")


# Add a field to a round's sums: a name and a value in ``mathematics/sums.py``, read by a solver.


def test_a_field_of_a_round_s_sums_reaches_the_server(monkeypatch):
    *scalars, gradient = stated.OF_FAIR
    plain = stated.of_fair

    def of_fair(v):
        values, factor = plain(v)
        return (*values, v.right), factor

    for module in (stated, client_sums):
        monkeypatch.setattr(module, "OF_FAIR", (*scalars, "psi_right", gradient))
    for module in (stated, client_sums):
        monkeypatch.setattr(module, "of_fair", of_fair)
    monkeypatch.setitem(requests.REVEALS, "psi_right", "right decisions")  # from stated.REVEALS
    client, chosen_method = Client("a", small_table(300)), method("agnosticfair", kernels=5)
    told = {
        m.step: m.reveals
        for m in dry_run(chosen_method, small_table(300), 2, positive="yes")
        if m.reveals
    }
    assert told["sums"]["psi_right"] == "right decisions"
    request = request_of([client], chosen_method)
    assert request.shapes["psi_right"] == request.shapes["psi_g"]
    found = client_sums.sums(client, request).sums
    assert {k: np.shape(v) for k, v in found.items()} == request.shapes
    assert found["psi_right"][:, -1].sum() == found["correct"]
    assert found["psi_right"][:, :-1].sum() > 0
