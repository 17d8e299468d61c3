"""Requests and the steps that answer them."""

import pytest

from agnosticfair.client.steps import STEPS
from agnosticfair.protocol import requests


@pytest.mark.parametrize("one_request", [*requests.REQUESTS.values()], ids=lambda q: q.step)
def test_every_request_is_answered_by_a_step(one_request):
    assert one_request.step in STEPS
    assert {*STEPS} == {*requests.REQUESTS, "statistics", "outline"}
