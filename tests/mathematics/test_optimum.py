from dataclasses import replace

import numpy as np
import pytest

from agnosticfair.mathematics.program import Optimum, cost_sentences, next_scale, scale_for

HALF = Optimum(0.1, 0.2, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, False, 3.0, 0.2)


def test_more_solved_programs_narrow_what_is_said():
    minimum, maximum = scale_for(0.8, HALF)
    scale = next_scale(HALF)
    assert minimum < scale < maximum
    closer = replace(HALF, further=((1.5, 0.15),))
    assert minimum <= scale_for(0.8, closer)[0] <= scale_for(0.8, closer)[1] < maximum
    assert scale_for(0.95, closer)[0] < next_scale(closer) < scale_for(0.95, closer)[1]
    assert next_scale(replace(HALF, further=((1.5, 0.15), (2.0, 0.18)))) is None
    assert next_scale(replace(HALF, utility=0.17)) is None


def test_where_nothing_is_lost_nothing_is_said_of_a_price():
    assert cost_sentences(replace(HALF, utility=0.199), 0.05) == ()
    assert np.isnan(replace(HALF, learner_utility=0.0).retained)


def test_a_high_price_says_which_limits_would_cost_less():
    (sentence,) = cost_sentences(HALF, 0.05)
    assert "50%" in sentence
    assert "95% would be left at a tau of at most 0.14" in sentence
    assert "80% at" in sentence


@pytest.mark.parametrize("retained", [0.9])
def test_between_the_shares_one_limit_is_named(retained):
    some = replace(HALF, utility=0.2 * retained, bound=0.2 * retained)
    (sentence,) = cost_sentences(some, 0.05)
    assert ("95% would" in sentence, "80%" in sentence) == (True, False)


def test_the_learners_own_rule_is_named():
    assert "own decisions" in cost_sentences(replace(HALF, unchanged=True, utility=0.2), 0.05)[0]
