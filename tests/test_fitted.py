"""What a fit says of itself: a limit that is exceeded, and what one costs."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair import audit
from agnosticfair.data.table import Column
from agnosticfair.errors import SettingsError
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.tuning import Frontier


def test_a_limit_that_is_exceeded_says_so_with_the_part():
    made = replace(
        fit(dealt(small_table(60, 1), 2), "fl"),
        worst_difference=0.3,
        worst_parts=(("job = a_b", 0.3), ("everybody", 0.1)),
    )
    assert made.exceeds is None, "no limit"
    bound, price = (
        replace(made, method=method(name, tau=0.1)) for name in ("fairfl", "agnosticfair-named")
    )
    assert (
        bound.exceeds
        == "Decisions on the training rows differ by up to 0.300 (job = a_b), above tau 0.1."
    )
    assert price.exceeds.endswith("no bound, which a limit (--limit) asks for.")
    assert replace(price, worst_difference=0.1005).exceeds is None, "decisions are steps"
    assert replace(price, worst_difference=np.nan).exceeds is None
    assert (
        "kept by nearly one answer"
        in replace(price, worst_difference=0.1, nearly_constant=True).collapsed
    )
    both = replace(price, nearly_constant=True).collapsed
    assert "exceeded all the same" in both
    assert "kept" not in both


def test_a_frame_without_pandas_is_a_sentence(monkeypatch):
    free = fit(dealt(small_table(60, 1), 2), "fl")
    certificate = audit(
        np.arange(40) % 2, np.eye(40), np.arange(40) % 2, sensitive_features=[0, 1] * 20
    )
    path = Frontier((), 0, "demographic_parity", 2, {}, float)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for made in (free, certificate, path):
        with pytest.raises(SettingsError, match=r"'pandas': pip install 'agnosticfair\[audit\]'"):
            made.to_frame()


def test_a_limit_that_costs_accuracy_says_so():
    made = fit(dealt(small_table(400, 1), 2), "fl")
    assert made.costs is None, "no limit"
    strict = replace(made, method=method("fairfl"), history=({"accuracy": 0.9}, {"accuracy": 0.8}))
    assert "90.0% of the training rows, the model is on 80.0%; tune shows" in strict.costs
    parts = replace(strict, method=method("agnosticfair-named"))
    assert "80.0%; a limit on everybody alone (fairfl) costs less" in parts.costs
    little = replace(strict, history=({"accuracy": 0.9}, {"accuracy": 0.895}))
    assert little.costs is None


def test_a_fit_without_parts_shows_its_rounds():
    made = fit(dealt(small_table(200, 1), 2), method("fl", max_rounds=2))
    assert "did not converge after 2 rounds" in made._repr_html_()
    assert "tau</td><td>none" in made._repr_html_()
    assert len(made.plot().axes) == 1


def test_parts_that_lack_a_group_are_told():
    rows = small_table(400, 5)
    s = rows.sensitive_features["sex"].codes
    job = Column.of(np.where(s == 0, "only one sex", "both"))
    made = fit({"one": replace(rows, categorical={"job": job})}, "agnosticfair-named")
    assert made.uncompared.startswith(
        "Not compared, for a group is absent there or below its floor: 'job"
    )
    assert fit({"one": rows}, "fairfl").uncompared is None
