"""Every entrant learns, and those that are asked for a small difference decide so on their training rows."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from agnosticfair.experiments.entrants import ENTRANTS, Rows, Train
from agnosticfair.experiments.entrants.averaging import gap
from agnosticfair.experiments.entrants.fairfed import reweighed
from agnosticfair.experiments.entrants.logofair import _bisected
from agnosticfair.methods import METHODS

SLOW = (
    "agnosticfair-mlp",
    "declearn-fairgrad",
    "fairgbm",
)  # the last fails with a recent scikit-learn
CHEAP = [name for name in ENTRANTS if name not in SLOW]


@pytest.fixture(scope="module")
def train(adult):
    rows = adult.take(np.random.default_rng(0).choice(len(adult), 3000, replace=False))
    half = np.arange(3000) < 2000
    return Train({"north": rows.take(half), "south": rows.take(~half)}, ">50K", "sex", 0)


@pytest.mark.parametrize("name", CHEAP)
def test_an_entrant_learns_and_only_some_see_the_group(name, train):
    entrant = ENTRANTS[name]
    if entrant.ours and name not in METHODS:
        pytest.skip(f"{name} is no method yet")
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


def test_reweighing_makes_label_and_group_independent():
    rng = np.random.default_rng(0)
    s = rng.integers(0, 2, 500)
    y = (rng.uniform(size=500) < 0.2 + 0.5 * s).astype(int)
    w = reweighed(Rows(np.zeros((500, 1)), y, s))
    rates = [np.average(y[s == g], weights=w[s == g]) for g in (0, 1)]
    assert rates[0] == pytest.approx(rates[1])
    assert w.sum() == pytest.approx(500)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_bisection_ends_at_the_limit(sign):
    found = _bisected(lambda lam: sign * (0.5 - sign * lam), 0.1)
    assert found == pytest.approx(0.4 * sign, abs=1e-6)
    assert _bisected(lambda lam: 0.05, 0.1) == 0.0
