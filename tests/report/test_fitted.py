"""A fit in a notebook: its table, its figure and its rounds as a frame."""

from helpers import dealt, small_table

from agnosticfair.federation import fit


def test_a_fit_shows_how_it_ended_and_where_it_differs_most():
    made = fit(dealt(small_table(400, 1), 2), "agnosticfair-named")
    page = made._repr_html_()
    assert f"after {made.rounds} rounds" in page
    _, value = made.worst_parts[0]
    assert f"{value:.3f}" in page
    assert len(made.plot().axes) == 3, "parts, losses, differences"
    frame = made.to_frame()
    assert len(frame) == made.rounds
    assert frame["loss"].iloc[-1] == made.history[-1]["loss"]
