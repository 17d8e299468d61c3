"""One site: what it is willing to answer, and what is told of its errors."""

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from agnosticfair.deploy.site import reason, respond, site_of
from agnosticfair.errors import DataError, FederationError, SettingsError
from agnosticfair.protocol.messages import Reply, pack

SITE = {"site": "north", "file": "a.csv", "target": "y", "sensitive-features": "sex"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"colour": "red"}, "file has 'colour'"),
        ({"site": ""}, "lacks 'site'"),
        ({"allow": "statistics,shell"}, "allows 'shell'"),
        ({"min-rows": 0}, "min-rows is 0"),
        ({"min-rows": True}, "min-rows is True"),
        ({"drop": "sex"}, "'sex'.*purposes"),
    ],
)
def test_settings_of_a_site_that_make_no_sense_are_refused(changes, said):
    with pytest.raises(SettingsError, match=said):
        site_of({**SITE, **changes})


def test_a_site_takes_requests_only():
    with pytest.raises(FederationError, match="request came"):
        respond(SITE, "sums", pack(Reply(1, {})))
    with pytest.raises(FederationError, match="server is damaged"):
        respond(SITE, "sums", b"junk")


def test_what_is_told_of_an_error():
    assert reason(DataError("a sentence")) == "a sentence"
    assert "17" not in reason(ValueError("row 17"))
