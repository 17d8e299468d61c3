"""A fit in a notebook: its table, its figure and its rounds as a frame."""

from helpers import dealt, small_table

from agnosticfair.federation import fit
from agnosticfair.methods import method


def test_a_rule_shows_how_it_ended_and_where_it_had_to_act():
    fitted = fit(dealt(small_table(400, 1), 2), method("rule", learner="linear", tau=0.02))
    page = fitted._repr_html_()
    assert f"after {fitted.rounds} rounds" in page
    assert fitted.multipliers[0].subgroup in page
    assert fitted.statements[0] in page
    assert "never the feature itself" in page
    price, shift = fitted.plot().axes
    assert "limit costs" in price.get_xlabel()
    assert "shift of the threshold" in shift.get_xlabel()
    frame = fitted.to_frame()
    assert len(frame) == fitted.rounds
    assert frame["loss"].iloc[-1] == fitted.history[-1]["loss"]


def test_a_rule_that_had_to_act_nowhere_shows_its_rounds():
    fitted = fit(dealt(small_table(400, 1), 2), method("rule", learner="linear", tau=1.0))
    assert fitted.multipliers == ()
    assert "learner&#x27;s own decisions" in fitted._repr_html_()
    assert fitted.plot().axes[0].get_ylabel() == "loss" or fitted.trained_subgroups


def test_a_fit_over_kernels_shows_its_rounds():
    fitted = fit(dealt(small_table(400, 1), 2), "fairfl")
    assert len(fitted.plot().axes) == 2, "losses, differences"
