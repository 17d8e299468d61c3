"""Figures: which are drawn, and that every text in them can be read."""

from itertools import combinations

import pytest
from helpers import row
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from agnosticfair.methods import METHODS
from agnosticfair.report.figures import png
from agnosticfair_research.report.figures import KINDS, figures, kind
from agnosticfair_research.report.tables import summarise


def table_rows(crowd=0.01, **changes):
    """Every method, two seeds each, the points ``crowd`` apart."""
    return [
        row(
            method,
            seed,
            test_accuracy=0.76 + crowd * (k % 4) + 0.002 * seed,
            test_risk_difference=0.01 + crowd * k + 0.003 * seed,
            **changes,
        )
        for k, method in enumerate(METHODS)
        for seed in (0, 1)
    ]


def curve_rows(fall=0.01):
    return [
        row(method, setting="clients", clients=p, test_accuracy=0.80 - fall * k)
        for method in ("agnosticfair", "agnosticfair-printed", "localfair")
        for k, p in enumerate((2, 10, 50))
    ]


def draw(rows):
    return {name: figure for name, (figure, _) in figures(summarise(rows)).items()}


def test_each_setting_has_its_figures():
    rows = table_rows() + table_rows(setting="iid", dataset="dutch") + curve_rows()
    assert [*draw(rows)] == [
        "compare-adult-shift.png",
        "figure-2-adult.png",
        "compare-dutch-iid.png",
        "figure-3-adult.png",
    ]


def test_methods_without_a_measure_are_left_out():
    assert draw([row(test_accuracy=None)]) == {}


def test_every_method_has_a_kind_and_each_kind_its_own_shape_and_colour():
    assert {kind(name) for name in METHODS} <= {*KINDS}
    assert kind("somebody else's") == "other"
    colours, shapes = zip(*KINDS.values(), strict=True)
    assert len({*colours}) == len({*shapes}) == len(KINDS)


@pytest.mark.parametrize("crowd", [0.02, 0.005, 0.0])
def test_texts_do_not_meet_and_are_large_enough(crowd):
    for figure in draw(table_rows(crowd) + curve_rows(crowd)).values():
        png(figure)
        texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
        assert min(t.get_fontsize() for t in texts) >= 10
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        drawn = canvas.get_renderer()
        boxes = [Text.get_window_extent(t, drawn) for t in texts if t.get_gid()]
        assert not [1 for a, b in combinations(boxes, 2) if a.overlaps(b)]
        assert all(figure.bbox.containsx(b.x0) and figure.bbox.containsx(b.x1) for b in boxes)


def test_labels_name_every_method():
    for name, figure in draw(table_rows()).items():
        shown = {t.get_text() for t in figure.findobj(Text)}
        assert {*METHODS} <= shown, name


def test_a_figure_is_a_png_of_a_phone_s_width_and_the_same_each_time():
    one, two = (draw(curve_rows())["figure-3-adult.png"] for _ in range(2))
    assert png(one) == png(two)
    assert png(one).startswith(b"\x89PNG")
    assert one.get_size_inches()[0] == 6.4
