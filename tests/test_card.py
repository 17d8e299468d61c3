"""The model card says what was measured and certified, in both forms, and shows names as text only."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from helpers import dealt, small_table
from markdown_it import MarkdownIt

from agnosticfair import audit_clients, metrics
from agnosticfair.certificate import upper
from agnosticfair.data.table import Column
from agnosticfair.federation import fit
from agnosticfair.report.card import card, html, markdown

CLIENTS = dealt(small_table(400, 2), 2)
FITTED = fit(CLIENTS, "agnosticfair", positive="yes")
CERTIFICATE = audit_clients(FITTED.model, CLIENTS, bootstrap=0)
SECTIONS = card(FITTED, CLIENTS, CERTIFICATE, "loan")


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
    wanted = ["Intended use", "Training data", "Measured, by group", "Certificate", "Limits"]
    assert [s.title for s in SECTIONS][1:] == [*wanted, "How it was made"]
    assert SECTIONS[0].title == "Model card: loan by agnosticfair"


def test_its_numbers_are_the_measured_ones():
    y = np.concatenate([t.labels("yes") for t in CLIENTS.values()])
    y_hat = np.concatenate([FITTED.model.predict(t) for t in CLIENTS.values()])
    s = np.concatenate([t.sensitive["sex"].codes for t in CLIENTS.values()])
    told = section("Measured, by group")
    assert f"is {metrics.risk_difference(y_hat, s):.4f}" in told.says[0]
    lines = {line[0]: line[1:] for line in told.lines[1:]}
    rates = metrics.positive_rates(y_hat, s), metrics.true_positive_rates(y, y_hat, s)
    for j in range(2):
        rows, labelled, decided, right, true, false = lines[f"g{j}"]
        assert rows == f"{(s == j).sum()}"
        assert labelled == f"{y[s == j].mean():.1%}"
        assert (decided, true) == tuple(f"{rate[j]:.1%}" for rate in rates)
        assert right == f"{(y == y_hat)[s == j].mean():.1%}"
        assert false == f"{metrics.false_positive_rates(y, y_hat, s)[j]:.1%}"
    worst = upper(CERTIFICATE.worst_risk_difference)
    assert f"at most {worst}" in section("Certificate").says[0]
    assert any(CERTIFICATE.about in text for text in section("Certificate").says)
    assert ("fairness.tau", "0.05") in section("How it was made").lines


def test_both_forms_say_the_same():
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown(SECTIONS))
    one, two = Texts(rendered).text, Texts(re.sub("(?s)<head>.*</head>", "", html(SECTIONS))).text
    assert one == two


def test_names_are_shown_as_text_and_never_run():
    evil = "<script>alert(1)</script>|[x](y)_*\n#"
    groups = Column(small_table(400, 2).sensitive["sex"].codes, (evil, "b"))
    table = replace(small_table(400, 2), sensitive={evil: groups})
    table = replace(table, numeric={evil: table.numeric["age"]})
    fitted = fit(dealt(table, 2), "fairfl", positive="yes")
    sections = card(fitted, dealt(table, 2), "no certificate", evil)
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(markdown(sections))
    for page in (Texts(html(sections)), Texts(rendered)):
        assert not {"script", "a", "em"} & {tag for tag, _ in page.tags}
        assert "<script>alert(1)</script>|[x](y)_* #" in page.text
    assert [len(row) for row in sections[3].lines] == [7] * 4
    cells = [tag for tag, _ in Texts(rendered).tags if tag in ("td", "th")]
    assert len(cells) == sum(len(line) for s in sections for line in s.lines)


def test_the_page_asks_for_nothing():
    assert not re.search(r"https?:|src=|href=|url\(", html(SECTIONS))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"outcome": "rounds"}, "without reaching its own stopping rule"),
        ({"under_floor": ("g7",)}, "too small to be compared in any reweighing: 'g7'"),
        ({"events": ({"event": "dropped", "client": "north"},)}, "event dropped, client north"),
    ],
)
def test_weak_spots_are_named(changes, says):
    told = card(replace(FITTED, **changes), CLIENTS, CERTIFICATE)
    assert any(says in point for point in told[5].points)


def test_rows_that_were_shown_and_small_groups_are_named():
    assert any(
        "training rows, without label and group, were shown" in p for p in SECTIONS[5].points
    )
    few = dealt(small_table(150, 2), 2)
    told = card(fit(few, "fl", positive="yes"), few, "it was not asked for")
    assert any("fewer than 100 rows" in point for point in told[5].points)
    assert "does not constrain" in told[5].points[0]
    assert not any("were shown" in point for point in told[5].points)
    assert told[4].says == ("There is none: it was not asked for",)
