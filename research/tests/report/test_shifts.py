"""The shift suite in tables and figures, from rows made by hand."""

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from rich.console import Console

from agnosticfair.report.figures import png
from agnosticfair.report.tables import terminal
from agnosticfair_research.deployments import KINDS
from agnosticfair_research.report.shifts import HEAD, PUBLISHED, figures, grids, summarise
from agnosticfair_research.report.tables import document, markdown
from agnosticfair_research.shifts import MOVED, PEERS


def row(method="fl", seed=0, **changes):
    """A row made by hand; ``spread`` scales its risk differences."""
    spread = changes.pop("spread", 0.1)
    places = [
        {"name": f"place {k}", "kind": kind, "risk_difference": spread * (k + 1) / 8}
        for k, kind in enumerate((*KINDS, *KINDS))
    ]
    made = {
        "dataset": "adult",
        "setting": "shift",
        "method": method,
        "seed": seed,
        "tau": 0.05,
        "kept": None,
        "frontier": False,
        "outcome": "converged",
        "outcomes": {"step kept": 7},
        "rounds": 7,
        "seconds": 0.5,
        "test_accuracy": 0.80 + spread / 10,
        "test_risk_difference": spread / 8,
        "test_balanced_accuracy": 0.7,
        "subgroup_risk_differences": [0.03, 0.02 + seed / 100],
        "mean_risk_difference": spread / 2,
        "p90_risk_difference": 0.8 * spread,
        "max_risk_difference": spread,
        "worst": "place 7",
        "mean_accuracy": 0.8,
        "min_accuracy": 0.6,
        "mean_balanced_accuracy": 0.65 + spread / 10,
        "mean_positive_rate": 0.1,
        "certified_risk_difference": 0.07,
        "certified": "optimal",
        "deployments": places,
    }
    assert {*changes} <= {*made}
    return made | changes


def suite():
    """Rows for all that the report can show."""
    names = ("fl", "fairfl", "agnosticfair", *MOVED, *PEERS)
    made = [row(m, k, spread=0.1 + 0.05 * i) for i, m in enumerate(names) for k in (0, 1)]
    made += [row("agnosticfair", tau=t, spread=t, frontier=True) for t in (0.1, 0.2)]
    made += [row("fairfl", tau=t, spread=2 * t, frontier=True) for t in (0.1, 0.2)]
    return made + [row("fairfl-moved", kept=k, spread=k, frontier=True) for k in (0.3, 0.6)]


def test_summaries_are_means_over_seeds_and_the_worst_group():
    (found,) = summarise([row(seed=0), row(seed=1, spread=0.3), row(seed=0, frontier=True)])
    assert found.seeds == 2
    assert found.numbers["max_risk_difference"].mean == pytest.approx(0.2)
    assert found.numbers["group_risk_difference"].mean == pytest.approx(0.03)
    assert found.worst == "place 7 (2 of 2)"
    assert found.outcome == "converged 2/2"


def test_a_fit_that_did_not_converge_is_shown_as_such():
    *_, ends = grids(summarise([row(), row(seed=1, outcome="rounds")]))
    assert ends.lines[0][-1] == "converged 1/2"


def test_tables_have_every_method_and_say_what_a_peer_needs():
    grids_here = grids(summarise(suite()))
    assert [grid.title.split(".")[0] for grid in grids_here] == [
        "Risk difference",
        "Accuracy",
        "Worst deployment",
    ]
    for grid in grids_here:
        assert {line[0] for line in grid.lines} == {r["method"] for r in suite()}
        bars = {line.count("|") for line in markdown(grid).splitlines() if line.startswith("|")}
        assert bars == {len(grid.header) + 1}
    assert "needs the sensitive feature when deciding" in grids_here[-1].note
    assert "expected rates" in grids_here[-1].note
    text = document(HEAD, grids_here, {"a.png": "A figure"}, "Made by hand.")
    assert "![A figure](a.png)" in text
    assert "no method saw" in text


def test_the_dirichlet_table_has_the_published_numbers():
    grids_here = grids(
        summarise([row(setting="dirichlet"), row("fairfl-tuned", setting="dirichlet")])
    )
    assert [line[0] for line in grids_here[0].lines] == [*PUBLISHED, "fl", "fairfl-tuned"]
    assert "0.8283" in grids_here[0].lines[4]


def test_a_terminal_of_80_characters_cuts_nothing():
    console = Console(width=80)
    long = [row(m, worst="marital-status = Married-civ-spouse") for m in ("fl", *MOVED)]
    for grid in grids(summarise(long), spread=False):
        with console.capture() as captured:
            console.print(terminal(grid))
        assert "…" not in captured.get()
        assert "fairfl-moved-balanced" in captured.get()


def test_each_setting_has_its_figures():
    made = [*suite(), row(setting="iid", dataset="dutch")]
    assert [*figures(made)] == [
        "deployments-adult-shift.png",
        "frontier-adult-shift.png",
        "deployments-dutch-iid.png",
    ]


def test_texts_in_figures_do_not_meet_and_are_large_enough():
    for name, (figure, _) in figures(suite()).items():
        assert png(figure).startswith(b"\x89PNG")
        assert figure.get_size_inches()[0] == 6.4
        texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
        assert min(t.get_fontsize() for t in texts) >= 10
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        words = [t for t in texts if not t.get_text().replace(".", "").isdigit()]
        boxes = [Text.get_window_extent(t, canvas.get_renderer()) for t in words]
        assert len(boxes) > 10
        assert not [1 for a, b in combinations(boxes, 2) if a.overlaps(b)], name
        assert all(figure.bbox.containsx(b.x0) and figure.bbox.containsx(b.x1) for b in boxes)


def test_the_frontier_joins_the_path_of_thresholds_to_fairfl():
    figure, _ = figures(suite())["frontier-adult-shift.png"]
    axes = figure.axes[0]
    path = axes.lines[[line.get_color() for line in axes.lines].index("#CC79A7")]
    fair = next(r for r in suite() if r["method"] == "fairfl" and not r["frontier"])
    assert path.get_xdata()[-1] == pytest.approx(fair["max_risk_difference"])
    assert len(path.get_xdata()) == 3
