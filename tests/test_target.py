"""A known target: weights towards it, and a set that shrinks around them."""

import numpy as np
import pandas as pd
import pytest
from helpers import small_table

from agnosticfair import AgnosticFairClassifier, method, target_weights
from agnosticfair.auditing.fits import kernels_on
from agnosticfair.data.encoding import encode
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.federation import fit

SMALL = {"kernels": 12, "bound": 20.0, "tau": 0.05}


@pytest.fixture(scope="module")
def rows():
    table = small_table(500, 1)
    X = encode(fit({"a": table}, "fl").model.encoding, table)
    return X, table.target.values(), table.sensitive_features["sex"].values()


def test_weights_bring_the_means_of_the_target(rows):
    X, _, _ = rows
    target = X[X[:, 0] > np.quantile(X[:, 0], 0.4)]
    w = target_weights(X, target)
    assert w.mean() == pytest.approx(1.0)
    assert w.min() >= 0
    before, after = (
        np.abs(m - target.mean(axis=0)).max() for m in (X.mean(axis=0), w @ X / len(X))
    )
    assert after < before / 2
    assert target_weights(X, target, max_weight=1.5).max() <= 1.5 + 1e-6
    same = target_weights(X, X)
    assert np.abs(same @ X / len(X) - X.mean(axis=0)).max() < 0.02


def test_full_trust_is_the_fair_fit_under_the_weights_alone(rows):
    X, y, s = rows
    w = target_weights(X, X[:250])
    send = {"sensitive_features": s, "sample_weight": w}
    one = AgnosticFairClassifier(
        method("agnosticfair", **SMALL, trust=1.0, share=0.0, nominal=0.05)
    ).fit(X, y, **send)
    two = AgnosticFairClassifier("fairfl", tau=0.05).fit(X, y, **send)
    np.testing.assert_allclose(one.decision_function(X), two.decision_function(X), atol=1e-3)


def test_the_more_is_known_the_smaller_the_set(rows):
    X, y, s = rows
    w, worst = target_weights(X, X[:250]), []
    for trust in (0.0, 0.5, 0.9):
        fair = AgnosticFairClassifier(method("agnosticfair", **SMALL, trust=trust))
        fair.fit(X, y, sensitive_features=s, sample_weight=w)
        assert fair.converged_
        assert fair.history_[-1]["worst"] <= 0.05 + 0.002
        free = AgnosticFairClassifier("fl").fit(X, y)
        over = kernels_on(fair.fit_.method.fairness, X, fair.fit_.centres, weights=w)
        certificate = free.audit(X, y, sensitive_features=s, **over)
        worst.append(certificate.kernels.worst_difference)
        assert fair.certificate_.worst_difference >= 0
    assert worst[0] > worst[1] > worst[2]


def test_bad_targets_are_named(rows):
    X, _, _ = rows
    with pytest.raises(DataError, match=r"target.*2 columns"):
        target_weights(X, X[:, :2])
    frame = pd.DataFrame(X, columns=[*"abcde"])
    with pytest.raises(DataError, match=r"'b'.*'a'"):
        target_weights(frame, frame[[*"bacde"]])
    with pytest.raises(SettingsError, match="max_weight"):
        target_weights(X, X, max_weight=0.5)
    with pytest.raises(SettingsError, match="trust is 2"):
        AgnosticFairClassifier(method("agnosticfair", trust=2.0)).fit(
            *rows[:2], sensitive_features=rows[2]
        )
