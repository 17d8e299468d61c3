"""Questions and the steps that answer them."""

import pytest

from agnosticfair.client.steps import STEPS
from agnosticfair.protocol import questions


@pytest.mark.parametrize("question", [*questions.QUESTIONS.values()], ids=lambda q: q.step)
def test_every_question_is_answered_by_a_step(question):
    assert question.step in STEPS
    assert {*STEPS} == {*questions.QUESTIONS, "census", "outline"}
