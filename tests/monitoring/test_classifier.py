"""Anybody's classifier that predicts and records."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from agnosticfair import AgnosticFairClassifier, MonitoredClassifier, audit
from agnosticfair.errors import DataError, ModelError

pd = pytest.importorskip("pandas")


def people(n, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {"job": rng.choice(["clerk", "nurse", "smith"], n), "age": rng.integers(2, 7, n)}
    )
    sex = rng.choice(["F", "M"], n)
    y = np.where(rng.random(n) < 0.3 + 0.3 * (X["age"] > 4), "yes", "no")
    return X, sex, y


@pytest.mark.parametrize("own", [True, False])
def test_predictions_are_the_estimators_and_are_counted(own, tmp_path):
    X, sex, y = people(1500, 0)
    made = (
        AgnosticFairClassifier("fl")
        if own
        else make_pipeline(OneHotEncoder(), LogisticRegression())
    )
    made.fit(X, y, **({"sensitive_features": sex} if own else {}))
    held, groups, labels = people(3000, 1)
    certificate = audit(made, held, labels, sensitive_features=groups)
    watched = MonitoredClassifier(made, certificate, state=tmp_path / "state.json")
    new, who, true = people(500, 2)
    decided = watched.predict(new, sensitive_features=who)
    np.testing.assert_array_equal(decided, made.predict(new))
    verdict = watched.verdict_
    assert (verdict.rows, verdict.grouped, verdict.where) == (500, 500, "inside")
    rates = {rate.group: rate.rate for rate in verdict.overall.rates}
    assert rates == {g: (decided[who == g] == "yes").mean() for g in ("F", "M")}
    watched.record(new, decided, sensitive_features=who, y=true)  # labels that came late
    assert (
        MonitoredClassifier(made, certificate, state=tmp_path / "state.json").verdict_.rows == 500
    )
    with pytest.raises(DataError, match="very content"):
        watched.predict(new, sensitive_features=who)


def test_what_cannot_be_wrapped_is_refused():
    with pytest.raises(ModelError, match="fit it first"):
        MonitoredClassifier(LogisticRegression(), {})
