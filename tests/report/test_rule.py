"""A rule on its card and its page: sentences, tables and pictures."""

import re

import pytest
from helpers import dealt, small_table

from agnosticfair.auditing.fits import certificates
from agnosticfair.federation import fit
from agnosticfair.methods import method
from agnosticfair.report import card, rule
from agnosticfair.report.figures import png
from agnosticfair.report.page import card_html, card_markdown
from agnosticfair.runs.ruled import about

ROWS = small_table(600, 1)
ROWS.numeric["age"][:] += 1.5 * ROWS.sensitive_features["sex"].codes
CLIENTS = dealt(ROWS, 2)


@pytest.fixture(scope="module", params=["additive", "trees"])
def fitted(request):
    return fit(CLIENTS, method("rule", tau=0.02, min_people=5, learner=request.param))


def test_a_card_says_how_the_rule_decides_and_draws_it(fitted):
    sections = card.card(fitted, CLIENTS, certificates(fitted, CLIENTS)[0], "loan")
    titles = [section.title for section in sections]
    wanted = ["How it decides", rule.ACTED, "Do the estimates agree with the rows?"]
    assert titles[3:7] == [*wanted, "What the estimates hang on"]
    text, page = card_markdown(sections), card_html(sections)
    assert "never the feature itself" in text
    assert fitted.statements[-1].split(";")[0] in text
    assert f"{0.01 * fitted.multipliers[0].shadow_price:.5f}" in text
    assert "data:image/png" not in text
    assert len(re.findall('src="data:image/png;base64,', page)) == 2
    assert all('alt=""' not in tag for tag in re.findall("<img[^>]*>", page))


def test_pictures_are_figures_with_their_texts(fitted):
    told = about(fitted, [*CLIENTS.values()])
    for title, text, figure in rule.pictures(told, "yes"):
        assert title
        assert text.endswith(".")
        assert png(figure)[:4] == b"\x89PNG"


def test_a_rule_that_acted_nowhere_says_so():
    free = fit(CLIENTS, method("rule", tau=1.0, learner="linear"))
    told = about(free)
    assert rule.acted_words(told).startswith("The rule had to act nowhere")
    assert rule.acted_lines(told) == ()
    plain = fit(CLIENTS, method("fl", learner="linear"))
    sections = card.card(plain, CLIENTS, {}, "loan")
    assert rule.ACTED not in [section.title for section in sections]
