"""The deployed app: a run's configuration becomes the method that was asked for."""

import pytest

from agnosticfair.cli import main
from agnosticfair.flower.site import site_of
from agnosticfair.methods import method


def test_a_notion_can_be_deployed(tmp_path):
    pytest.importorskip("flwr", reason="needs agnosticfair[flower]")
    from agnosticfair.flower.apps import method_of
    from agnosticfair.flower.folder import read_config

    columns = ("--target", "y", "--sensitive-features", "sex", "--sensitive-features", "race")
    asked = ("--notion", "equalized_odds", "--intersections", "--tau", "0.07")
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "deploy",
                "init",
                str(tmp_path / "bank"),
                "--sites",
                "a=a.csv,b=b.csv",
                *columns,
                *asked,
            ]
        )
    assert ended.value.code == 0
    fairness = method_of(read_config(tmp_path / "bank")).fairness
    told = (fairness.notion, fairness.intersections, fairness.tau)
    assert told == ("equalized_odds", True, 0.07)


def test_columns_that_name_parts_reach_every_site(tmp_path, call):
    pytest.importorskip("flwr", reason="needs agnosticfair[flower]")
    from agnosticfair.flower.apps import method_of
    from agnosticfair.flower.folder import read_config
    from agnosticfair.flower.node import read_site

    asked = ("--target", "y", "--sensitive-features", "sex", "--sites", "a=a.csv,b=b.csv")
    parts = ("--parts-by", "town,site", "--depth", "3", "--least", "0.02")
    code, _, err = call("deploy", "init", tmp_path / "bank", *asked, *parts)
    assert code == 0, err
    recipe = method_of(read_config(tmp_path / "bank"))
    assert recipe == method(
        "auto", parts_by=("town", "site"), depth=3, least=0.02, learner="linear"
    )
    assert recipe.fairness.basis.columns == ("*", "town", "site")
    told = read_site(tmp_path / "bank" / "sites" / "a.toml")
    assert "town" in repr(told)
    code, _, err = call("deploy", "init", tmp_path / "mixed", *asked, "--no-each")
    assert code == 0, err
    assert not method_of(read_config(tmp_path / "mixed")).fairness.each

    site = {"site": "a", "file": "a.csv", "target": "y", "sensitive-features": "sex"}
    assert site_of({**site, "parts": "town"}).roles.parts == ("town",)
