"""The deployed app: a run's configuration becomes the method that was asked for."""

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from agnosticfair.cli import main
from agnosticfair.deploy.site import site_of
from agnosticfair.methods import method


def test_a_metric_can_be_deployed(tmp_path):
    from agnosticfair.deploy.coordinator import method_of
    from agnosticfair.deploy.folder import read_config

    columns = ("--target", "y", "--sensitive-features", "sex", "--sensitive-features", "race")
    request = ("--metric", "equalized_odds", "--intersections", "--tau", "0.07")
    with pytest.raises(SystemExit) as ended:
        main(
            [
                "deploy",
                "init",
                str(tmp_path / "bank"),
                "--sites",
                "a=a.csv,b=b.csv",
                *columns,
                *request,
            ]
        )
    assert ended.value.code == 0
    fairness = method_of(read_config(tmp_path / "bank")).fairness
    told = (fairness.metric, fairness.intersections, fairness.tau)
    assert told == ("equalized_odds", True, 0.07)


def test_columns_that_name_subgroups_reach_every_site(tmp_path, call):
    from agnosticfair.deploy.coordinator import method_of
    from agnosticfair.deploy.folder import read_config
    from agnosticfair.deploy.node import read_site

    request = ("--target", "y", "--sensitive-features", "sex", "--sites", "a=a.csv,b=b.csv")
    subgroups = ("--subgroups-by", "town,site", "--depth", "3", "--min-share", "0.02")
    code, _, err = call("deploy", "init", tmp_path / "bank", *request, *subgroups)
    assert code == 0, err
    chosen_method = method_of(read_config(tmp_path / "bank"))
    assert chosen_method == method(
        "auto", subgroups_by=("town", "site"), depth=3, min_share=0.02, learner="linear"
    )
    assert chosen_method.fairness.basis.columns == ("*", "town", "site")
    joined = read_site(tmp_path / "bank" / "sites" / "a.toml")
    assert "town" in repr(joined)
    code, _, err = call("deploy", "init", tmp_path / "mixed", *request, "--no-each")
    assert code == 0, err
    assert not method_of(read_config(tmp_path / "mixed")).fairness.each

    site = {"site": "a", "file": "a.csv", "target": "y", "sensitive-features": "sex"}
    assert site_of({**site, "subgroups": "town"}).roles.subgroups == ("town",)
