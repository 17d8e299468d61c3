"""The verdict on cells whose outcome is known, and that everything shown is made of the cells."""

import pytest

from agnosticfair_research.report.bench import document, sections, verdict_sentence
from agnosticfair_research.verdict import Judged, aggregate, judged, reached, summary

NUMBERS = {"balanced_accuracy": 0.7, "accuracy": 0.8, "positive_rate": 0.3, "risk_difference": 0.02}


def cell(entrant, seed=0, data="adult", balanced=0.7, p90=0.1, top=0.2, positives=0.3, **about):
    """A cell with one limit."""
    head = {"note": "a note", "sees": False, "pooled": False, "ours": entrant == "rule"} | about
    test = NUMBERS | {"balanced_accuracy": balanced, "positive_rate": positives}
    differences = {"count": 3, "mean": 0.05, "p90": p90, "max": top}
    row = {"limit": 0.1, "request": 0.1, "kept": True}
    setting = {"request": 0.1, "test": test, "all": differences, "kinds": {"pair": p90}}
    place = {"dataset": data, "seed": seed, "protocol": "balanced", "entrant": entrant}
    return (
        {"commit": "abc", "clean": True, "seconds": 1.0}
        | place
        | head
        | {"rows": [row], "settings": [setting]}
    )


def verdict_of(*cells):
    (one,) = judged(aggregate(cells))
    return one


@pytest.mark.parametrize(
    ("rival", "met"),
    [
        ({"p90": 0.2, "top": 0.3}, True),  # as accurate, ours lower in both
        ({"p90": 0.2, "top": 0.1}, False),  # lower in one only
        ({"p90": 0.2, "top": 0.3, "balanced": 0.709}, True),  # within a point
        ({"p90": 0.1, "top": 0.1, "balanced": 0.67}, True),  # three points worse at the same p90
        ({"p90": 0.05, "top": 0.1, "balanced": 0.72}, False),  # better in everything
        ({"p90": 0.2, "top": 0.3, "balanced": 0.75}, False),  # elsewhere: nobody is left
        ({"p90": 0.05, "top": 0.1, "positives": 0.001}, False),  # constant: nobody is left
        ({"p90": 0.05, "top": 0.1, "sees": True}, False),  # not judged: nobody is left
        ({"p90": 0.05, "top": 0.1, "ours": True}, False),  # ours: nobody is left
    ],
)
def test_one_rival_decides(rival, met):
    assert verdict_of(cell("rule"), cell("other", **rival)).met == met


def test_one_lost_comparison_loses_the_cell():
    one = verdict_of(cell("rule"), cell("a", p90=0.2, top=0.3), cell("b", p90=0.05, top=0.3))
    assert (one.met, one.why) == (False, "to b")
    assert [pair.outcome for pair in one.pairs] == ["lower", "lost"]


def test_a_method_of_others_competes_with_every_setting_it_was_asked_for():
    rival = cell("other", p90=0.2, top=0.3)
    (lax,) = rival["settings"]
    fair = lax | {"request": 0.01, "all": lax["all"] | {"p90": 0.05}}
    rival["settings"].append(fair)  # it is not the one taken at the limit
    one = verdict_of(cell("rule"), rival)
    assert (one.met, one.why, one.pairs[0].request) == (False, "to other", 0.01)


def test_like_accuracy_is_one_standard_error_of_the_seeds_differences_where_that_is_more():
    ours = [cell("rule", seed) for seed in (0, 1)]
    near = [cell("other", k, balanced=b, p90=0.2, top=0.3) for k, b in enumerate((0.74, 0.7))]
    assert verdict_of(*ours, *near).met  # 2 points, with a standard error of 2
    far = [cell("other", k, balanced=0.72, p90=0.2, top=0.3) for k in (0, 1)]
    assert not verdict_of(*ours, *far).met


def test_rivals_are_compared_on_the_seeds_that_both_have():
    ours = [cell("rule", 0, p90=0.3), cell("rule", 1)]
    one = verdict_of(*ours, cell("other", 1, p90=0.2, top=0.3))
    assert one.pairs[0].p90 == pytest.approx(0.1)


def test_a_default_that_is_constant_or_absent_meets_nothing():
    rival = cell("other", p90=0.2, top=0.3)
    assert verdict_of(cell("rule", positives=0.995), rival).why == "our default is constant"
    assert verdict_of(rival).why == "no result of our default"


def test_data_sets_are_counted_by_limit():
    cells = [cell(e, data=d, p90=p) for d, q in (("adult", 0.2), ("bank", 0.05))
             for e, p in (("rule", 0.1), ("other", q))]  # fmt: skip
    for one in cells:
        one["settings"][0]["all"]["max"] = one["settings"][0]["all"]["p90"] + 0.1
    assert reached(judged(aggregate(cells))) == {0.1: (1, 2)}


def test_a_data_set_with_nobody_to_compare_with_is_met_in_the_lax_reading_only():
    cells = judged(aggregate([cell("rule"), cell("other", p90=0.2, top=0.3, balanced=0.75)]))
    assert (reached(cells), reached(cells, empty=True)) == ({0.1: (0, 1)}, {0.1: (1, 1)})
    lost = judged(aggregate([cell("rule"), cell("other", p90=0.05)]))
    assert reached(lost, empty=True) == {0.1: (0, 1)}


def test_the_page_shows_every_number_and_who_gave_none():
    failed = cell("other", 1) | {"rows": [], "settings": [], "why": "it broke"}
    cells = [cell("rule"), cell("other", p90=0.234, top=0.345), failed]
    text = document(summary(cells))
    assert "at 0.1" in text
    assert "0.234" in text
    assert "1 cells gave no result" in text
    assert "Development seeds 0 to 1" in text
    assert "two" in sections(summary(cells))["cost"]


@pytest.mark.parametrize(
    ("met", "missed", "word"), [(5, 2, "met"), (4, 3, "missed"), (3, 1, "open"), (1, 3, "missed")]
)
def test_the_sentence_says_what_data_sets_that_were_not_run_could_change(met, missed, word):
    cells = [Judged(str(k), 0.1, None, (), k < met, "") for k in range(met + missed)]
    assert f"The verdict is **{word}" in verdict_sentence(cells)
