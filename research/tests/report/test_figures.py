"""Figures: which are drawn, and that every text in them can be read."""

from itertools import combinations

from helpers import row
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from agnosticfair.methods import METHODS
from agnosticfair.report.figures import png
from agnosticfair_research.report.figures import KINDS, _shades, figures, kind
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


def test_texts_are_large_enough_and_inside():
    for figure in draw(table_rows() + curve_rows()).values():
        png(figure)
        texts = [t for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
        assert min(t.get_fontsize() for t in texts) >= 10
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        drawn = canvas.get_renderer()
        boxes = [
            t.get_window_extent(drawn) for a in figure.axes for t in a.get_legend().get_texts()
        ]
        assert not [1 for a, b in combinations(boxes, 2) if a.overlaps(b)]
        assert all(figure.bbox.containsx(b.x0) and figure.bbox.containsx(b.x1) for b in boxes)


def test_methods_of_a_figure_differ_in_shape_or_colour():
    marks = draw(table_rows())["compare-adult-shift.png"].axes[0].get_legend().legend_handles
    assert len(marks) > len(METHODS)
    chosen = summarise(table_rows())
    looks = {(kind(s.method), shade) for s, shade in zip(chosen, _shades(chosen), strict=True)}
    assert len(looks) == len(chosen)


def test_labels_name_every_method():
    for name, figure in draw(table_rows()).items():
        shown = {t.get_text() for t in figure.findobj(Text)}
        assert {*METHODS} <= shown, name


def test_a_figure_is_a_png_of_a_phone_s_width_and_the_same_each_time():
    one, two = (draw(curve_rows())["figure-3-adult.png"] for _ in range(2))
    assert png(one) == png(two)
    assert png(one).startswith(b"\x89PNG")
    assert one.get_size_inches()[0] == 6.4
