"""Numbers in the documents come from what was measured, by the scripts of benchmarks/: never typed."""

import json

from helpers import script


def test_what_is_said_of_privacy_comes_from_what_was_measured():
    privacy = script("write_privacy")
    content, page = json.loads(privacy.FILE.read_text()), privacy.PAGE.read_text()
    assert privacy.written(page, content) == page
    stated, halved = (entry["min_share"] for entry in content["audit"]["found"])
    assert stated < content["audit"]["found"][0]["claimed"] < halved


def test_what_is_said_of_the_first_picture_and_of_times_comes_from_what_was_measured():
    readme = script("write_readme")
    told = readme.said(json.loads(readme.FRONTIER.read_text()))
    for page in readme.PAGES:
        assert readme.written(page.read_text(), "first result", told) == page.read_text()
    timed, page = readme.timed(readme.SPEED.read_text()), readme.PAGES[0].read_text()
    assert readme.written(page, "time", timed) == page
