"""A fit in a notebook: its table, its figure and its rounds as a frame."""

from helpers import dealt, small_table

from agnosticfair.federation import fit
from agnosticfair.methods import method


def test_a_rule_shows_how_it_ended_and_where_it_had_to_act():
    made = fit(dealt(small_table(400, 1), 2), method("rule", learner="linear", tau=0.02))
    page = made._repr_html_()
    assert f"after {made.rounds} rounds" in page
    assert made.multipliers[0].subgroup in page
    assert made.statements[0] in page
    assert "never the feature itself" in page
    price, shift = made.plot().axes
    assert "limit costs" in price.get_xlabel()
    assert "shift of the threshold" in shift.get_xlabel()
    frame = made.to_frame()
    assert len(frame) == made.rounds
    assert frame["loss"].iloc[-1] == made.history[-1]["loss"]


def test_a_rule_that_had_to_act_nowhere_shows_its_rounds():
    made = fit(dealt(small_table(400, 1), 2), method("rule", learner="linear", tau=1.0))
    assert made.multipliers == ()
    assert "learner&#x27;s own decisions" in made._repr_html_()
    assert made.plot().axes[0].get_ylabel() == "loss" or made.trained_parts


def test_a_fit_over_kernels_shows_its_rounds():
    made = fit(dealt(small_table(400, 1), 2), "fairfl")
    assert len(made.plot().axes) == 2, "losses, differences"
