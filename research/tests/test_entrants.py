"""Every entrant learns, and those that are asked for a small difference decide so on their training rows."""

import sys
import warnings
from dataclasses import replace
from subprocess import Popen

import numpy as np
import pytest
from agnosticfair_research.entrants.fairfed import reweighting
from agnosticfair_research.entrants.logofair import _bisected

from agnosticfair.methods import Network
from agnosticfair_research import apart
from agnosticfair_research.benchmark import Cell, run_cell
from agnosticfair_research.entrants import ENTRANTS, Coded, Train
from agnosticfair_research.entrants.averaging import gap
from agnosticfair_research.entrants.ours import _network
from agnosticfair_research.splits import dirichlet

QUICK = ("fl", "fairfl", "rule-additive", "fedfb", "logofair")
LEFT_OUT = ("agnosticfair-mlp", "declearn-fairgrad", "fairgbm")  # too slow for any suite
NAMES = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow)
    for name in ENTRANTS
    if name not in LEFT_OUT
]


@pytest.fixture(scope="module")
def train(adult):
    rows = adult.take(np.random.default_rng(0).choice(len(adult), 3000, replace=False))
    half = np.arange(3000) < 2000
    return Train({"north": rows.take(half), "south": rows.take(~half)}, ">50K", "sex", 0)


@pytest.mark.parametrize("name", NAMES)
def test_an_entrant_learns_and_only_some_see_the_group(name, train):
    entrant = ENTRANTS[name]
    if not entrant.installed:
        pytest.skip(f"{entrant.packages} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what another library says to its own authors
        decide = entrant.fit(train, 0.05)
    p = np.concatenate([decide(table) for table in train.clients.values()])
    y, s = train.pooled.y, train.pooled.s
    assert -1e-9 <= p.min() < p.max() <= 1 + 1e-9
    assert (1 - np.abs(y - p)).mean() > 0.73
    if name not in ("fl", "boosted-tree"):
        assert abs(gap(p, s)) < 0.75 * gap(y, s)
    table = train.clients["south"]
    sex = table.column("sex")
    swapped = replace(table, sensitive_features={"sex": replace(sex, codes=1 - sex.codes)})
    assert (decide(table) != decide(swapped)).any() == entrant.sees


@pytest.mark.parametrize(("gpu", "device"), [(True, "cuda"), (False, "cpu")])
def test_the_network_is_trained_on_a_gpu_where_there_is_one(gpu, device, monkeypatch):
    monkeypatch.setattr(pytest.importorskip("torch").cuda, "is_available", lambda: gpu)
    assert _network() == Network("mlp", device=device)


def test_reweighting_makes_label_and_group_independent():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, 500)
    y = (rng.uniform(size=500) < 0.2 + 0.5 * s).astype(int)
    w = reweighting(Coded(np.zeros((500, 1)), y, s))
    rates = [np.average(y[s == g], weights=w[s == g]) for g in (0, 1)]
    assert rates[0] == pytest.approx(rates[1])
    assert w.sum() == pytest.approx(500)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bisection_ends_at_the_limit(sign):
    found = _bisected(lambda lam: sign * (0.5 - sign * lam), 0.1)
    assert found == pytest.approx(0.4 * sign, abs=1e-6)
    assert _bisected(lambda lam: 0.05, 0.1) == 0.0


@pytest.mark.slow
def test_logofair_is_as_published(adult):
    """Adult, five clients, Dirichlet 0.5: accuracy 0.825 and a global gap of 0.0115."""
    split = dirichlet(adult, 5, 0.5, 0, "sex")
    decide = ENTRANTS["logofair"].fit(Train(split.train, ">50K", "sex", 0), 0.01)
    d, y = decide(split.test), split.test.labels(">50K")
    assert (d == y).mean() == pytest.approx(0.825, abs=0.01)
    assert abs(gap(d, split.test.column("sex").codes)) < 0.02


def environment(folder, name, script):
    """An environment for an entrant whose interpreter is a script of the shell."""
    python = folder / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


def cell_of(name):
    return Cell("adult", "shift", 0, name, (0.1,), (0.05,))


@pytest.mark.slow
def test_an_entrant_runs_in_its_own_environment(tmp_path, monkeypatch):
    if ENTRANTS["oxonfair"].installed:
        pytest.skip("oxonfair is installed here")
    monkeypatch.setenv("AGNOSTICFAIR_PEERS", str(tmp_path))
    environment(tmp_path, "oxonfair", f'exec {sys.executable} "$@"')
    # the same interpreter, so nothing is installed there either: said by that process, which looks no further
    assert run_cell(cell_of("oxonfair"))["why"] == "oxonfair is not installed"
    assert apart.run_apart(cell_of("nobody"), apart.interpreter("oxonfair"))["why"].startswith(
        "in its own process: KeyError: 'nobody'"
    )


def test_a_broken_environment_is_a_row_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setenv("AGNOSTICFAIR_PEERS", str(tmp_path))
    assert apart.interpreter("fairgbm") is None
    environment(tmp_path, "fairgbm", "echo no such library >&2; exit 3")
    row = run_cell(cell_of("fairgbm"))
    assert row["why"] == "in its own process: no such library"
    assert row["rows"] == []


def test_an_environment_that_ends_before_it_is_asked_is_a_row_too(tmp_path, monkeypatch):
    def ended(*words, **given):
        made = Popen(*words, **given)
        made.wait()
        return made

    monkeypatch.setenv("AGNOSTICFAIR_PEERS", str(tmp_path))
    monkeypatch.setattr(apart, "Popen", ended)
    environment(tmp_path, "fairgbm", "echo no such library >&2; exit 3")
    assert run_cell(cell_of("fairgbm"))["why"] == "in its own process: no such library"
