"""The model card says what was measured and certified, in both forms, and shows names as text only."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from math import nan

import numpy as np
import pytest
from helpers import dealt, small_table
from markdown_it import MarkdownIt

from agnosticfair.auditing.certificate import upper
from agnosticfair.auditing.fits import certificates
from agnosticfair.data.table import Column
from agnosticfair.federation import fit
from agnosticfair.mathematics import scoring
from agnosticfair.methods import Network, method
from agnosticfair.report.card import card
from agnosticfair.report.page import card_html as html
from agnosticfair.report.page import card_markdown as markdown

CLIENTS = dealt(small_table(400, 2), 2)
FITTED = fit(CLIENTS, "agnosticfair", positive="yes")
CERTIFIED = certificates(FITTED, CLIENTS)[0]
SECTIONS = card(FITTED, CLIENTS, CERTIFIED, "loan")


class Texts(HTMLParser):
    """The tags of a page, and what a reader sees of it."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.seen = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, attributes))

    def handle_data(self, data):
        self.seen.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.seen).split())


def section(title):
    return next(s for s in SECTIONS if s.title == title)


def test_it_has_the_sections_of_a_model_card():
    wanted = ["Intended use", "Training data", "Measured, by sex", "Certificate, by sex"]
    assert [s.title for s in SECTIONS][1:] == [*wanted, "Limits", "How it was made"]
    assert SECTIONS[0].title == "Model card: loan by agnosticfair"


def test_it_begins_with_the_verdict_of_the_page():
    def said(**certified):
        shown = card(FITTED, CLIENTS, certified, "loan")[0].glance
        return shown and (shown.state, shown.answer)

    def of(difference, high=nan):
        subgroup = replace(sex.subgroups[0], difference=difference, high=high, estimable=True)
        return replace(sex, subgroups=(subgroup,), upper=high)

    sex = CERTIFIED["sex"]
    state, text = said(sex=of(0.01, 0.04))
    assert state == "kept"
    assert "0.05 was asked for" in text
    broken = of(0.2)
    assert said(sex=broken)[1].startswith("Broken: risk difference 0.2000 on the training rows")
    assert said(sex=sex, race=broken, job="too few")[0] == "broken", "the worst feature's"
    assert said(sex=of(0.01, 0.3))[0] == "unknown"
    assert said(sex=sex)[0] == "unknown", "nothing is certified on the rows of a fit"
    assert said(sex="no rows") is None
    sections = card(FITTED, CLIENTS, {"sex": of(0.01, 0.04)}, "loan")
    assert "✓ Kept: " in markdown(sections)
    assert 'class="verdict kept"' in html(sections)


def test_a_limit_that_is_not_claimed_is_not_said_to_be_kept():
    sex = CERTIFIED["sex"]
    one = replace(sex.subgroups[0], difference=0.01, low=0.0, high=0.04, estimable=True)
    for bound, notes, state in (
        (0.04, ("The limit 0.2 is not claimed: decisions are nearly all alike.",), "unknown"),
        (0.2, ("Keeps the limit 0.2.",), "kept"),
    ):
        certificate = replace(sex, subgroups=(one,), upper=bound, notes=notes)
        shown = card(FITTED, CLIENTS, {"sex": certificate}, "loan", 0.2)[0].glance
        assert shown.state == state
        assert ("not claimed" in shown.answer) == (state == "unknown")
        # other bounds are of a model that these rows have chosen
        assert ("0.0400" in shown.tiles[1][2]) == (state == "unknown")


def test_it_says_what_training_was_about():
    def said(**changes):
        made = replace(FITTED, method=replace(FITTED.method, **changes))
        return markdown(card(made, CLIENTS, CERTIFIED, "loan"))

    for page in (said(), said(network=Network())):
        assert "Training aimed at 0.05 for the decisions themselves" in page
        assert "mean log loss" not in page


@pytest.mark.parametrize(
    ("name", "one_request"),
    [("fedavg", "not asked to treat"), ("agnosticfair-printed", "asked to give")],
)
def test_a_penalty_of_local_steps_asks_for_fairness_too(name, one_request):
    fitted = fit(CLIENTS, method(name, max_rounds=2), positive="yes")
    assert f"and was {one_request}" in markdown(card(fitted, CLIENTS, CERTIFIED, "loan"))


def test_a_limit_in_every_subgroup_is_measured_on_the_rows_of_the_fit():
    fitted = fit(CLIENTS, positive="yes", method=method("rule", learner="linear", tau=0.05))
    made, reasons = certificates(fitted, CLIENTS)
    assert not reasons
    page = markdown(card(fitted, CLIENTS, made, "loan"))
    assert "tau is 0.05. The largest difference between two groups" in page
    assert "Measured on the rows of the fit, and not certified" in page
    assert "However the training rows are reweighted" not in page


def test_its_numbers_are_the_measured_ones():
    y = np.concatenate([t.labels("yes") for t in CLIENTS.values()])
    y_hat = np.concatenate([FITTED.model.predict(t) for t in CLIENTS.values()])
    s = np.concatenate([t.sensitive_features["sex"].codes for t in CLIENTS.values()])
    told = section("Measured, by sex")
    assert f"is {scoring.risk_difference(y_hat, s):.4f}" in told.says[0]
    lines = {line[0]: line[1:] for line in told.lines[1:]}
    rates = scoring.positive_rates(y_hat, s), scoring.positive_rates(y_hat, s, y)
    for j in range(2):
        rows, labelled, decided, right, true, false = lines[f"g{j}"]
        assert rows == f"{(s == j).sum()}"
        assert labelled == f"{y[s == j].mean():.1%}"
        assert (decided, true) == tuple(f"{rate[j]:.1%}" for rate in rates)
        assert right == f"{(y == y_hat)[s == j].mean():.1%}"
        assert false == f"{scoring.positive_rates(y_hat, s, 1.0 - y)[j]:.1%}"
    made, told = CERTIFIED["sex"], section("Certificate, by sex").says
    assert f"up to {made.worst_difference:.4f}" in told[0]
    assert f"by {made.kernels.about}, the risk difference is at most" in told[0]
    assert upper(made.kernels.worst_difference) in told[0]
    assert ("fairness.tau", "0.05") in section("How it was made").lines


def test_both_forms_say_the_same():
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown(SECTIONS))
    one, two = Texts(rendered).text, Texts(re.sub("(?s)<head>.*</head>", "", html(SECTIONS))).text
    assert one == two


def test_names_are_shown_as_text_and_never_run():
    evil = "<script>alert(1)</script>|[x](y)_*\n#"
    groups = Column(small_table(400, 2).sensitive_features["sex"].codes, (evil, "b"))
    table = replace(small_table(400, 2), sensitive_features={evil: groups})
    table = replace(table, numeric={evil: table.numeric["age"]})
    fitted = fit(dealt(table, 2), "fairfl", positive="yes")
    sections = card(fitted, dealt(table, 2), {evil: "no certificate"}, evil)
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown(sections))
    for page in (Texts(html(sections)), Texts(rendered)):
        assert not {"script", "a", "em"} & {tag for tag, _ in page.tags}
        assert "<script>alert(1)</script>|[x](y)_* #" in page.text
    assert [len(row) for row in sections[3].lines] == [7] * 4
    strata = [tag for tag, _ in Texts(rendered).tags if tag in ("td", "th")]
    assert len(strata) == sum(len(line) for s in sections for line in s.lines)


def test_the_page_asks_for_nothing():
    assert not re.search(r"https?:|src=|href=|url\(", html(SECTIONS))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"outcome": "rounds"}, "without reaching its own stopping rule"),
        ({"under_floor": ("g7",)}, "too small to be compared in any reweighting: 'g7'"),
        ({"events": ({"event": "dropped", "client": "north"},)}, "event dropped, client north"),
    ],
)
def test_weak_spots_are_named(changes, says):
    sections = card(replace(FITTED, **changes), CLIENTS, CERTIFIED)
    assert any(says in point for point in sections[5].points)


def test_rows_that_were_shown_and_small_groups_are_named():
    said = "training rows, without label and group, were shown"
    assert not any(said in point for point in SECTIONS[5].points)
    shown = replace(FITTED, method=method(FITTED.method, centres="rows"))
    assert any(said in point for point in card(shown, CLIENTS, CERTIFIED)[5].points)
    few = dealt(small_table(150, 2), 2)
    sections = card(fit(few, "fl", positive="yes"), few, {"sex": "it was not asked for"})
    assert any("fewer than 100 rows" in point for point in sections[5].points)
    assert "does not constrain" in sections[5].points[0]
    assert not any("were shown" in point for point in sections[5].points)
    assert sections[4].says == ("There is none: it was not asked for",)


@pytest.mark.parametrize("intersections", [False, True])
def test_several_features_have_a_section_each_or_one_of_their_intersections(intersections):
    table = small_table(600, 2)
    old = Column.of(np.where(table.numeric["age"] > 0, "old", "young"))
    table = replace(table, sensitive_features={**table.sensitive_features, "one_bin": old})
    clients = dealt(table, 2)
    chosen_method = method("fairfl", intersections=intersections, metric="equal_opportunity")
    fitted = fit(clients, chosen_method, positive="yes", sensitive_features=("sex", "one_bin"))
    made, reasons = certificates(fitted, clients)
    names = ["sex & one_bin"] if intersections else ["sex", "one_bin"]
    assert (list(made), reasons) == (names, {})
    assert {one.metric for one in made.values()} == {"equal_opportunity"}
    sections = {s.title: s for s in card(fitted, clients, made)}
    assert [t for t in sections if t.startswith("Measured")] == [f"Measured, by {n}" for n in names]
    groups = [line[0] for line in sections[f"Measured, by {names[0]}"].lines[1:]]
    wanted = [f"g{j} & {b}" for j in range(2) for b in ("old", "young")]
    assert groups == [*(wanted if intersections else ["g0", "g1"]), "all rows"]


def test_a_certificate_that_cannot_be_had_is_a_sentence():
    alone = {
        key: table.take(table.sensitive_features["sex"].codes == 0)
        for key, table in CLIENTS.items()
    }
    made, reasons = certificates(FITTED, alone)
    assert made == {}
    assert "one group" in reasons["sex"]


def test_the_card_is_accessible(accessible):
    accessible(html(SECTIONS))
