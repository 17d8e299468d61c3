"""Networks: the local solver against the exact one, its subgroups against references, and what it refuses."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from helpers import Requests, dealt, small_table

pytest.importorskip("torch", reason="needs agnosticfair[torch]")

import torch

from agnosticfair import federation, networks
from agnosticfair.auditing.audit import audit_clients
from agnosticfair.client import networks as steps
from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.data.encoding import encode
from agnosticfair.errors import AgnosticFairError, FederationError, ModelError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.mathematics.basis import by_client, gaussian, support
from agnosticfair.mathematics.basis import width as basis_width
from agnosticfair.mathematics.fairness import Surrogate, surrogate_values
from agnosticfair.mathematics.linear import log_loss_derivatives
from agnosticfair.mathematics.metrics import METRICS
from agnosticfair.mathematics.scoring import accuracy
from agnosticfair.methods import METHODS, Network, method
from agnosticfair.model import load_model
from agnosticfair.protocol.engines.seam import InProcess
from agnosticfair.protocol.messages import add_up, pack, unpack
from agnosticfair.protocol.requests import Sums
from agnosticfair.server import checkpoints, saddle

ROWS = small_table(400, 2)
TABLES = dealt(ROWS, 3)
LINEAR = Network("linear", rate=0.01)
QUICK = Network("mlp", (4,), steps=3, batch=64)


def quick(name="agnosticfair", **changes):
    changes = {"kernels": 20 if name == "agnosticfair" else None, "max_rounds": 5, **changes}
    return method(name, network=QUICK, **{k: v for k, v in changes.items() if v is not None})


def by_job(table):
    """Clients that differ as much as they can: one value of the feature each."""
    job = table.categorical["job"].codes
    return {f"c{k}": table.take(job == k) for k in range(3)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("fl", {}),
        ("fairfl", {"tau": 0.005}),
        ("agnosticfair", {"tau": 0.66, "metric": "bounded_group_loss"}),
        ("afl", {}),
    ],
)
def test_a_linear_network_reaches_the_exact_objective(name, changes):
    """Of a limit on groups' losses, which both solvers hold; on decisions the linear one is another program."""
    tables = by_job(small_table(500, 3))
    exact = fit(tables, method(name, **changes), positive="yes")
    own = {"max_rounds": 100, "ridge": METHODS[name].ridge}
    chosen_method = method(exact.method, network=LINEAR, **own)
    chosen_method = replace(chosen_method, basis=exact.method.basis, fairness=exact.method.fairness)
    result = fit(tables, chosen_method, positive="yes")
    best = min(result.history, key=lambda entry: entry["merit"])  # with what the constraint lacks
    loss = exact.history[-1]["loss"]
    assert best["merit"] == pytest.approx(loss, rel=0.01)
    assert result.worst_surrogate <= changes.get("tau", 1.0) + 2e-3
    d = result.model.decision(ROWS)
    assert np.corrcoef(d, exact.model.decision(ROWS))[0, 1] > 0.95


@pytest.mark.slow
def test_drift_is_corrected():
    """Clients that differ, many local steps: with the correction the federated optimum, without it not."""
    rows = small_table(500, 3)
    y, rng = rows.labels("yes") > 0, np.random.default_rng(0)
    first = np.where(rng.uniform(size=len(y)) < 0.9, y, ~y)
    tables = {"a": rows.take(first), "b": rows.take(~first)}
    exact = fit(tables, "fl", positive="yes").history[-1]["loss"]
    net = replace(LINEAR, steps=60, batch=None, rate=0.05)
    chosen_method = method("fl", network=net, max_rounds=48, ridge=1e-5)
    corrected = fit(tables, chosen_method, positive="yes").history[11]["loss"]

    class Forgetful(Requests):
        def exchange(self, step, payload, keys, deadline):
            if step == "train":
                payload = replace(payload, request=replace(payload.request, before=None))
            return super().exchange(step, payload, keys, deadline)

    plain = fit(Forgetful(tables), chosen_method, positive="yes").history[11]["loss"]
    assert corrected - exact < 1e-4 < 1e-3 < plain - exact


def test_one_full_batch_step_of_many_clients_is_that_of_one():
    net = Network("mlp", (5,), steps=1, batch=None, rate=0.02)
    chosen_method = method("agnosticfair", network=net, kernels=20, max_rounds=5, tau=0.02)
    chosen_method = method(chosen_method, split=False)  # one problem, however the rows lie
    tables = by_job(ROWS)
    request = broadcast(chosen_method, tables, number=4)
    assert request.request.before is not None
    assert request.request.rate > 0
    split = add_up([answer(Client(k, t), "train", request) for k, t in tables.items()]).sums
    pooled = answer(Client("c0", ROWS), "train", request).sums
    moved = pooled["moved"] / pooled["mass"]
    assert np.abs(moved).max() > 1e-4
    np.testing.assert_allclose(split["moved"] / split["mass"], moved, rtol=1e-2, atol=1e-6)
    for name in ("loss", "psi_L", "psi_g", "psi_hat", "gradient"):
        np.testing.assert_allclose(split[name], pooled[name], rtol=1e-4, atol=1e-3, err_msg=name)


def broadcast(made, tables=TABLES, number=2):
    engine = Requests(tables)
    fit(engine, made, positive="yes")
    return engine.request["train"][number]


@pytest.mark.parametrize("kind", ["sigmoid", "loss"])
def test_sums_and_gradient_of_a_linear_network_are_the_formulas(kind):
    metric = "bounded_group_loss" if kind == "loss" else "demographic_parity"
    chosen_method = method(
        "agnosticfair", network=Network("linear", steps=2), kernels=20, max_rounds=3
    )
    chosen_method = method(chosen_method, metric=metric, tau=0.3)
    request = broadcast(chosen_method, {"a": ROWS})
    C = np.random.default_rng(0).normal(size=request.request.C.shape)
    request = replace(request, request=replace(request.request, C=C))
    client = Client("a", ROWS)
    found = answer(client, "train", request).sums
    rows, w = client.prepare(request.task), request.request.w
    d = rows.X.shape[1] - 1
    X = (rows.X[:, :-1] - w[:d]) / w[d : 2 * d]
    out = X @ w[2 * d : 3 * d] + w[-1]
    gradient, _ = log_loss_derivatives(out, rows.y)
    surrogate, alpha = request.request.surrogate, request.request.alpha
    g_gradient = gradient if kind == "loss" else surrogate_values(surrogate, out)[1]
    at_zero = Sums(surrogate, 0.1, np.zeros(d + 1), alpha, C)
    linear = answer(client, "sums", replace(request, request=at_zero))
    np.testing.assert_allclose(found["psi_theta"], linear.sums["psi_theta"], rtol=1e-3)
    fair = (
        steps.kernels(client, request.task, chosen_method.fairness.basis)(slice(None))
        .T.double()
        .numpy()
    )
    a = 0.9 + 0.1 * fair @ alpha
    c = np.einsum("im,im->i", fair, C[rows.s, :-1]) + C[rows.s, -1]
    weights = a * gradient + c * g_gradient
    expected = np.concatenate([np.zeros(2 * d), weights @ X, [weights.sum()]])
    np.testing.assert_allclose(found["gradient"], expected, rtol=2e-3, atol=2e-3)
    hat = (out > 0) != (rows.y > 0) if kind == "loss" else out > 0
    by_stratum = [hat[rows.s == j].sum() for j in range(2)]
    np.testing.assert_allclose(found["psi_hat"][:, -1], by_stratum)


def test_the_gradient_of_a_network_is_the_gradient_of_its_objective():
    request = broadcast(quick())
    client = Client("c000", TABLES["c000"])
    gradient = answer(client, "train", request).sums["gradient"]
    rng, w, surrogate = np.random.default_rng(1), request.request.w, request.request.surrogate
    net = steps.network_at(client, request.task, "cpu", w)
    held = steps.row_sums_at(client, request.task, net, request.request.share, request.request)
    frozen = np.r_[np.zeros(10), np.ones(len(w) - 10)]

    def value(at):
        net.load(at)
        with torch.no_grad():
            loss, g = steps.values(net.logits(held.z), held, surrogate)
            return float(held.a @ loss + held.c @ g)

    for _ in range(3):
        p = rng.normal(size=len(w)) * frozen
        difference = (value(w + 3e-3 * p) - value(w - 3e-3 * p)) / 6e-3
        assert gradient @ p == pytest.approx(difference, rel=2e-2, abs=2e-2)


@pytest.mark.parametrize("kind", ["sigmoid", "loss"])
def test_gradients_are_those_of_autograd(kind):
    surrogate, rng = Surrogate(kind, 0.7), np.random.default_rng(0)
    d, y, a, c = (torch.from_numpy(rng.normal(size=50)).float() for _ in range(4))
    held = steps.RowSums(d, (y > 0).float(), d, a, c)
    d.requires_grad_(True)
    loss, g = steps.values(d, held, surrogate)
    (held.a @ loss + held.c @ g).backward()
    torch.testing.assert_close(steps.gradients(d.detach(), held, surrogate), d.grad)


def test_an_answer_is_a_function_of_rows_and_request():
    request = broadcast(quick(), number=3)
    fresh, used = Client("c000", TABLES["c000"]), Client("c000", TABLES["c000"])
    for number in (1, 2):
        answer(used, "train", broadcast(quick(), number=number))
    one, two, again = (answer(client, "train", request) for client in (fresh, used, used))
    for name, value in one.sums.items():
        assert value.tobytes() == two.sums[name].tobytes() == again.sums[name].tobytes(), name


class Wire(InProcess):
    """Every message goes through its wire form."""

    def exchange(self, step, payload, keys, deadline):
        payload = payload if payload is None else unpack(pack(payload))
        answers = super().exchange(step, payload, keys, deadline)
        return {key: unpack(pack(reply)) for key, reply in answers.items()}


@pytest.mark.parametrize("name", ["agnosticfair", "fl", "afl"])
def test_over_the_wire_the_model_is_the_same_bit_for_bit(name):
    fitted = quick(name, max_rounds=4)
    here = fit(TABLES, fitted, positive="yes")
    wired = fit(Wire(federation.in_process(TABLES).handlers), fitted, positive="yes")
    assert wired.model.w.tobytes() == here.model.w.tobytes()
    assert wired.history == here.history


def test_same_seed_same_model_another_seed_another():
    one, two, other = (fit(TABLES, quick(), positive="yes", seed=s).model.w for s in (1, 1, 2))
    assert one.tobytes() == two.tobytes() != other.tobytes()


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_every_metric_is_held_for_decisions_or_losses(metric):
    tau = 0.66 if metric == "bounded_group_loss" else 0.1
    fitted = quick(metric=metric, tau=tau, trust=0.2, max_rounds=3)
    result = fit(TABLES, fitted, positive="yes")
    assert result.rounds == 3
    assert 0 <= result.trained_difference <= 1
    assert np.isfinite(result.worst_surrogate)


def test_a_networks_values_leave_alone_what_was_asked_for():
    chosen_method = method("agnosticfair", network="mlp", metric="bounded_group_loss", tau=0.5)
    assert (
        chosen_method.fairness.nominal == np.inf
    )  # 0.01 is a bound on a difference, not on a loss
    chosen_method = method(
        "agnosticfair", network="mlp", metric="bounded_group_loss", tau=0.5, nominal=0.4
    )
    assert chosen_method.fairness.nominal == 0.4
    chosen_method = quick(basis=by_client(), kernels=None, tau=0.1)
    assert chosen_method.fairness.basis == chosen_method.basis == by_client()
    assert fit(TABLES, chosen_method, positive="yes").rounds == 5
    assert quick(basis=gaussian(7, 0.5), kernels=None).fairness.basis == gaussian(7, 0.5)


@pytest.mark.slow
def test_decisions_are_held_to_tau():
    chosen_method = method(
        "agnosticfair", network=Network("mlp", (8,), steps=15), kernels=50, max_rounds=60
    )
    rows = small_table(800, 5)
    age = rows.numeric["age"] + 1.5 * rows.sensitive_features["sex"].codes
    rows = replace(rows, numeric={**rows.numeric, "age": age})
    free = fit(dealt(rows, 2), method(chosen_method, tau=0.9, nominal=0.9), positive="yes")
    fitted = fit(dealt(rows, 2), method(chosen_method, tau=0.08, nominal=0.05), positive="yes")
    assert free.trained_difference > 0.15
    assert fitted.trained_difference <= 0.08 + 0.03
    assert accuracy(rows.labels("yes"), fitted.model.predict(rows)) > 0.6


def test_the_best_iterate_is_kept():
    result = fit(TABLES, quick(max_rounds=12, tau=0.05), positive="yes")
    best = min(result.history, key=lambda entry: entry["merit"])
    y, d = ROWS.labels("yes"), result.model.decision(ROWS)
    assert accuracy(y, d > 0) == pytest.approx(best["accuracy"], abs=0.005)
    assert result.worst_surrogate == best["worst"]


@pytest.mark.parametrize(
    ("net", "rounds"), [(QUICK, 2), (Network("mlp", (4,), steps=1, rate=1e-6), 40)]
)
def test_what_was_hardly_trained_is_not_called_converged(net, rounds):
    assert (
        fit(TABLES, method("fl", network=net, max_rounds=rounds), positive="yes").outcome
        == "rounds"
    )
    if rounds > saddle.PATIENCE:
        good = method("fl", network=replace(net, rate=0.1), max_rounds=rounds)
        assert fit(TABLES, good, positive="yes").converged


def test_a_network_is_saved_and_read_without_running_code(tmp_path):
    result = fit(TABLES, quick(), positive="yes")
    result.model.save(tmp_path / "m.safetensors")
    loaded = load_model(tmp_path / "m.safetensors")
    assert loaded.network == {"name": "mlp", "hidden": (4,)}
    np.testing.assert_array_equal(loaded.decision(ROWS), result.model.decision(ROWS))
    wrong = replace(loaded, w=loaded.w[:-1])
    with pytest.raises(ModelError, match="weights came"):
        wrong.decision(ROWS)


def test_the_certificate_is_of_the_networks_decisions():
    result = fit(TABLES, quick(tau=0.1, bound=5.0), positive="yes", seed=3)
    basis, bound = result.method.fairness.basis, result.method.fairness.bound
    send = {"basis": basis, "bound": bound, "floor": 0.05, "seed": 3, "held_out": False}
    made = audit_clients(result.model, TABLES, **send).kernels
    assert made.worst_difference == pytest.approx(result.trained_difference, abs=1e-3)


@pytest.mark.parametrize("split", [False, True])
def test_products_of_cuts_are_means_over_rows(split):
    engine = Requests(TABLES)
    fit(engine, quick(kernels=6, split=split), positive="yes")
    request = engine.request["moments"][0]
    basis, keys = request.task.fair_basis, request.task.clients
    F = basis_width(basis, keys)
    pool = np.random.default_rng(0).normal(size=(3, 2, F + 1))
    clients = [Client(key, table) for key, table in TABLES.items()]
    gram = sum(answer(client, "moments", request).sums["gram"] for client in clients)
    weights = []  # of every row by every cut
    for client in clients:
        s, columns = client.prepare(request.task).s, support(basis, client.key, keys)
        K = steps.kernels(client, request.task, basis)(slice(None)).double().numpy()
        weights.append(np.einsum("kim,mi->ki", pool[:, s, columns], K) + pool[:, s, -1])
    W = np.concatenate(weights, axis=1)
    np.testing.assert_allclose(saddle.products(pool, gram), W @ W.T, rtol=1e-4)


@pytest.mark.slow
def test_a_merit_that_creeps_is_not_stale():
    net = Network("mlp", (8,), steps=2, rate=3e-4)
    history = fit(TABLES, method("fl", network=net, max_rounds=160), positive="yes").history
    merits = [entry["merit"] for entry in history]
    assert max(a - b for a, b in pairwise(merits[2:])) < 1e-3  # it creeps
    assert history[38]["rate"] == net.rate


@pytest.mark.slow
def test_a_constraint_that_swings_has_not_converged(monkeypatch):
    last, ended = [], saddle._ended
    monkeypatch.setattr(saddle, "_ended", lambda state: last.append(state) or ended(state))
    made = replace(quick("fl", max_rounds=60), tolerance=1e-2)
    net = Network("mlp", (8,), steps=10, rate=0.01)
    assert fit(TABLES, replace(made, network=net), positive="yes").outcome == "converged"
    state = last[-1]
    swinging = [{**e, "worst": 0.2 * (k % 2)} for k, e in enumerate(state.history)]
    assert ended(state).outcome == "converged"
    assert ended(replace(state, history=tuple(swinging))).outcome == "rounds"


def test_a_method_that_is_given_keeps_its_own_values():
    method_here = method("agnosticfair", bound=2.0, nominal=0.2, max_rounds=7)
    chosen_method = method(method_here, network=QUICK)
    assert (chosen_method.bound, chosen_method.fairness.nominal, chosen_method.max_rounds) == (
        2.0,
        0.2,
        7,
    )
    assert chosen_method.ridge == method("agnosticfair", network=QUICK).ridge
    of_tau = method(method("agnosticfair", tau=0.3), network=QUICK)
    assert of_tau == method("agnosticfair", tau=0.3, network=QUICK)


def test_an_own_network_by_its_name():
    name = networks.register("wide", lambda d: torch.nn.Linear(d, 1, bias=False))
    fitted = quick("fl")
    result = fit(TABLES, replace(fitted, network=Network(name, steps=2)), positive="yes")
    d = encode(result.model.encoding, ROWS).shape[1]
    assert result.model.w.shape == (3 * d,)


def test_a_network_takes_numpys_numbers():
    one, two, rate = np.int64(4), np.int64(2), np.float64(0.01)
    net = Network(hidden=[one], steps=two, batch=np.int64(64), rate=rate)
    assert net == Network(hidden=(4,), steps=2, batch=64, rate=0.01)
    fit(
        Wire(federation.in_process(TABLES).handlers),
        method("fl", network=net, max_rounds=2),
        positive="yes",
    )


def test_frozen_weights_stay_and_tied_ones_stay_tied():
    def odd(d):
        net = torch.nn.Sequential(*(torch.nn.Linear(d, d) for _ in range(3)), torch.nn.Linear(d, 1))
        net[0].requires_grad_(False)
        net[2].weight = net[1].weight
        return net

    net = Network(networks.register("odd", odd), steps=5, rate=0.02)
    result = fit(TABLES, method("fl", network=net, max_rounds=4, ridge=0.1), positive="yes")
    start, d = networks.initial(net.name, (), 5, 0)[0], 5
    moved = (result.model.w != start)[2 * d :]
    assert len(moved) == 2 * d * d + 3 * d + d + 1
    assert not moved[: d * d + d].any()
    assert moved[d * d + d :].all()


def test_dropout_is_drawn_by_the_request_and_off_where_sums_are_made():
    dropped = networks.register(
        "dropped",
        lambda d: torch.nn.Sequential(
            torch.nn.Linear(d, 9), torch.nn.Dropout(), torch.nn.Linear(9, 1)
        ),
    )
    made = replace(quick("fl", max_rounds=3), network=Network(dropped, steps=5, rate=0.01))
    first = fit(TABLES, made, positive="yes")
    torch.rand(1)
    fit(TABLES, replace(quick("fl"), network=Network(dropped, steps=2)), positive="yes")
    assert fit(TABLES, made, positive="yes").history == first.history
    dry = networks.register(
        "dropped", lambda d: torch.nn.Sequential(torch.nn.Linear(d, 9), torch.nn.Linear(9, 1))
    )
    plain = fit(TABLES, replace(made, network=Network(dry, steps=5, rate=0.01)), positive="yes")
    assert not np.allclose(plain.model.w, first.model.w, atol=1e-4)


def test_the_estimator_takes_a_name_a_network_or_a_function():
    pytest.importorskip("sklearn")
    from agnosticfair import AgnosticFairClassifier

    rng = np.random.default_rng(0)
    X, s = rng.normal(size=(300, 3)) * [1, 5, 50], rng.integers(0, 2, 300)
    y = X[:, 0] ** 2 + 0.3 * s > 1
    how = {"kernels": 10, "max_rounds": 30}
    for model in (Network("mlp", (8,), rate=0.02), tiny):
        fair = AgnosticFairClassifier(method("agnosticfair", **how), network=model, tau=0.3).fit(
            X, y, sensitive_features=s
        )
        assert fair.predict_proba(X).shape == (300, 2)
        assert (fair.predict(X) == y).mean() > 0.7
        assert not hasattr(fair, "coef_")
        assert 0 <= fair.certificate_.worst_difference <= 1
    line = AgnosticFairClassifier("fl").fit(X, y)
    assert (line.predict(X) == y).mean() < 0.7
    assert line.coef_.shape == (1, 3)


def tiny(d):
    return torch.nn.Sequential(torch.nn.Linear(d, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


class Doubled(torch.nn.Sequential):
    def __init__(self, d):
        super().__init__(torch.nn.Linear(d, 1).double())

    def forward(self, x):
        return super().forward(x.double())


class Logarithm(torch.nn.Module):
    def forward(self, x):
        return (x - 100).log()


def registered(module):
    networks.register("bad", module)
    return replace(quick("fl"), network=Network("bad"))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: registered(lambda d: torch.nn.Linear(d, 3)), "3 outputs.*row"),
        (
            lambda: registered(
                lambda d: torch.nn.Sequential(torch.nn.BatchNorm1d(d), torch.nn.Linear(d, 1))
            ),
            "buffers .*take LayerNorm",
        ),
        (lambda: registered(lambda d: None), "'bad'.*5 features"),
        (lambda: registered(lambda d: torch.nn.LSTM(d, 1)), "'tuple'.*object"),
        (lambda: registered(Doubled), "'0.weight'.*torch"),
        (
            lambda: registered(lambda d: torch.nn.Linear(d, 1).requires_grad_(False)),
            "weights to train",
        ),
        (
            lambda: registered(lambda d: torch.nn.Sequential(torch.nn.Linear(d, 1), Logarithm())),
            "round 1.*module",
        ),
        (
            lambda: networks.register("mlp", tiny),
            "'mlp'.*already",
        ),
        (
            lambda: method("fl", network="resnet"),
            "'resnet'.*mlp",
        ),
        (
            lambda: method("fl", network=Network(device="cuda")),
            "CUDA.*'cpu'",
        ),
        (lambda: method("fl", network=Network(device="tpu")), "unknown device 'tpu'"),
        (
            lambda: method("fl", network=Network(rate=1e38), max_rounds=5),
            "round 2.*lower",
        ),
        (lambda: method("fl", network=Network(steps=0)), "steps is 0"),
        (lambda: method("fedavg", network="mlp"), "'fedavg'.*train"),
        (lambda: method("rule", network="mlp"), "'rule'.*train"),
    ],
)
def test_what_cannot_be_trained_is_refused_with_a_sentence(made, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(AgnosticFairError, match=said):
        fit(TABLES, made(), positive="yes")


def test_a_device_without_room_gets_smaller_chunks_and_then_a_sentence(monkeypatch):
    request, client = broadcast(quick()), Client("c000", TABLES["c000"])
    whole = answer(client, "train", request).sums
    request = replace(request, request=replace(request.request, batch=8))
    inner, maximum, stack = steps.gradients, [100], torch.stack

    def crowded(d, held, surrogate):
        if len(held.y) > maximum[0]:
            raise torch.cuda.OutOfMemoryError
        return inner(d, held, surrogate)

    def stacked(subgroups):
        if len(subgroups[0]) > 40:  # after the gradients were made
            raise torch.cuda.OutOfMemoryError
        return stack(subgroups)

    monkeypatch.setattr(steps, "gradients", crowded)
    monkeypatch.setattr(torch, "stack", stacked)
    monkeypatch.setattr(steps, "MIN_CHUNK", 16)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    subgroups = answer(client, "train", request).sums
    np.testing.assert_allclose(subgroups["gradient"], whole["gradient"], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(subgroups["psi_g"], whole["psi_g"], rtol=1e-4)
    with pytest.raises(SettingsError, match="smaller batch"):
        answer(client, "train", replace(request, request=replace(request.request, batch=None)))
    maximum[0] = 0
    with pytest.raises(SettingsError, match=r"16 rows.*smaller"):
        answer(client, "train", request)


def test_a_device_that_is_full_before_its_first_use_is_said(monkeypatch):
    def full(*one_request):
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(networks.Flat, "load", full)
    with pytest.raises(AgnosticFairError, match="room for"):
        fit(TABLES, quick(), positive="yes")


def test_killed_and_resumed_is_the_same_bit_for_bit(tmp_path):
    fitted = quick()
    whole = fit(TABLES, fitted, positive="yes")

    class Killed(Exception):
        pass

    def kill(entry):
        if entry["round"] in (1, 3):
            raise Killed

    for _ in range(2):
        with pytest.raises(Killed):
            fit(TABLES, fitted, positive="yes", checkpoint=tmp_path, on_round=kill)
    result = fit(TABLES, fitted, positive="yes", checkpoint=tmp_path)
    assert result.model.w.tobytes() == whole.model.w.tobytes()
    assert result.history == whole.history
    assert (tmp_path / checkpoints.FILE).is_file()


def test_a_client_that_sends_other_weights_is_refused():
    class Short(Requests):
        def exchange(self, step, payload, keys, deadline):
            answers = super().exchange(step, payload, keys, deadline)
            if step == "train":
                first = next(iter(answers))
                sums = {**answers[first].sums, "moved": answers[first].sums["moved"][:-1]}
                answers = {**answers, first: replace(answers[first], sums=sums)}
            return answers

    with pytest.raises(FederationError, match="sent moved"):
        fit(Short(TABLES), quick(), positive="yes")


def test_the_command_line_trains_and_uses_a_network(tmp_path, capsys, monkeypatch):
    from agnosticfair.cli import main

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    for key, table in TABLES.items():
        columns = {**table.numeric, "job": table.categorical["job"].values()}
        columns |= {"y": table.target.values(), "sex": table.sensitive_features["sex"].values()}
        lines = [
            ",".join(columns),
            *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
        ]
        (tmp_path / f"{key}.csv").write_text("\n".join(lines) + "\n")
    files = [str(tmp_path / f"{key}.csv") for key in TABLES]
    out, told = str(tmp_path / "m.safetensors"), str(tmp_path / "p.csv")
    request = [
        "--target",
        "y",
        "--sensitive-features",
        "sex",
        "--network",
        "mlp",
        "--max-rounds",
        "2",
    ]

    def run(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        assert ended.value.code == code

    run("fit", *files, *request, "--out", out)
    assert load_model(out).network == {"name": "mlp", "hidden": (32,)}
    run("predict", out, files[0], "--out", told)
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + len(TABLES["c000"])
    assert "Written" in capsys.readouterr().out
    run("fit", *files, *request, "--device", "cuda", "--out", out, code=2)
    assert "device 'cpu'" in capsys.readouterr().err


def test_kernels_split_by_client_are_weighed_apart():
    from agnosticfair.mathematics.basis import design, gaussian, support, width

    basis, X, b = replace(gaussian(2), split=True), np.zeros((3, 1)), np.array([[0.0], [1.0]])
    assert width(basis, ("a", "b")) == 4
    K = design(basis, X, b, "b", ("a", "b"))
    assert not K[:, :2].any()
    np.testing.assert_array_equal(
        K[:, support(basis, "b", ("a", "b"))], design(gaussian(2), X, b, "", ())
    )
    with pytest.raises(SettingsError, match="cannot be split"):
        replace(basis, kind="constant")
