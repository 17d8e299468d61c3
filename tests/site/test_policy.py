"""A site's policy in words, from its one file; and what a site tells of its rows without a schema."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import small_table

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from agnosticfair.cli import main
from agnosticfair.data.files import Roles
from agnosticfair.data.schema import Schema
from agnosticfair.data.table import Column, Table
from agnosticfair.deploy.folder import Federation, write_folder
from agnosticfair.deploy.node import read_site
from agnosticfair.deploy.site import policy_of, site_of
from agnosticfair.site.policy import Refused, SitePolicy, joined, shown_rows, words

FILES = {"north": Path("north.csv"), "south": Path("south.csv")}
SCHEMA = Schema(
    "y", ("no", "yes"), {"sex": ("f", "m")}, {"age": (0.0, 9.0)}, {"job": ("a",)}, {"age": (5.0,)}
)


def written(folder, schema="", secure=True, **run):
    plan = Federation(
        FILES, Roles("y", ("sex",)), {"method": "fl", **run}, schema=schema, secure=secure
    )
    write_folder(folder, plan)
    return folder / "sites" / "north.toml"


def test_deploy_init_writes_no_more_consent_than_the_run_needs(tmp_path):
    for name, given in (("fl", 0), ("rule", 0), ("afl", 1), ("localfair", 1)):
        own = policy_of(site_of(read_site(written(tmp_path / name, method=name)).config))
        consents = (own.shows_rows, own.shares_site_totals, own.shares_cluster_means)
        assert consents == (False, bool(given), False)
        assert (own.min_rows, own.sites, own.masks) == (10, ("north", "south"), True)
    means = policy_of(site_of(read_site(written(tmp_path / "k", method="agnosticfair")).config))
    assert means.shares_cluster_means


def test_the_command_says_it_in_words(tmp_path, capsys):
    path = written(tmp_path / "bank", json.dumps(SCHEMA.to_json()), seed=7)
    with pytest.raises(SystemExit) as ended:
        main(["site", "policy", str(path)])
    said = capsys.readouterr().out
    assert ended.value.code == 0
    answered, _, refused = said.partition("It refuses:")
    assert f"the schema {SCHEMA.digest[:12]}: age, job" in answered
    assert "age at 5" in answered
    assert "dealt with seed 7" in answered
    assert "shares-site-totals" in refused
    assert "one and the same sentence" in refused


def test_what_is_answered_in_the_open_and_under_noise_is_said():
    answered, refused = words(SitePolicy("north"))
    assert "reads this site's own sums" in answered[0]
    assert "Whole rows" in refused[1]
    answered, refused = words(SitePolicy("north", ("north",), True, 3.0, SCHEMA))
    assert "with noise, within epsilon 3" in answered[0]
    assert not any("fewer than" in sentence for sentence in refused)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"folds": "2,500"}, "folds is '2,500'"),
        ({"fold-seed": -1}, "fold-seed is -1"),
        ({"shares-site-totals": "yes"}, "shares-site-totals is 'yes'"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(tmp_path, changes, said):
    from agnosticfair.errors import SettingsError

    config = read_site(written(tmp_path / "bank")).config
    with pytest.raises(SettingsError, match=said):
        site_of({**config, **changes})


def test_a_refusal_travels_without_its_cause():
    import pickle

    refused = Refused("north", "column 'job'")
    assert str(refused) == str(Refused("north", "another cause"))
    assert pickle.loads(pickle.dumps(refused)).detail == ""


def test_rare_values_are_one_value():
    column = Column.of(["a"] * 10 + ["b"] * 9 + ["other"] * 3)
    assert joined(column, 10).categories == ("a", "other")
    assert (joined(column, 10).values()[10:] == "other").all()
    assert joined(column, 3) is column
    table = small_table(50)
    assert shown_rows(table, (), 1).categorical["job"] is table.categorical["job"]
    none = Table({"age": np.arange(3.0)}, {}, None, {})
    assert {*shown_rows(none, ("job",)).numeric} == set()
