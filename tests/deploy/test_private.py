"""Differential privacy over real processes: the budget is spent at the sites, once, though one is killed."""

import json
import signal

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")
pytest.importorskip("opendp", reason="needs agnosticfair[dp]")

from deployed import SITES, deployed, rows_by_site, wait, write_files

from agnosticfair.data.files import Roles, read_clients
from agnosticfair.data.schema import schema_of
from agnosticfair.data.summary import merge, summary_statistics
from agnosticfair.model import load_model
from agnosticfair.privacy.fit import Budget
from agnosticfair.privacy.ledger import ledger_folder, spent

pytestmark = pytest.mark.slow


def agreed(rows, folder):
    """A schema of all sites' files."""
    tables = read_clients(write_files(rows, folder).values(), Roles("income", ("sex",)))
    statistics = merge({key: summary_statistics(table, key) for key, table in tables.items()})
    path = folder / "agreed.json"
    path.write_text(json.dumps(schema_of(statistics, "income").to_json()))
    return path


def test_a_private_run_of_real_sites_spends_each_budget_once_though_one_is_killed(adult, tmp_path):
    rows = {key: table.slice(0, 4000) for key, table in rows_by_site(adult).items()}
    more = ("--schema", agreed(rows, tmp_path), "--epsilon", "20", "--positive", ">50K")
    with deployed(tmp_path, rows, *more) as bank:
        bank.prepare()
        run = bank.run()
        wait(lambda: bank.round() >= 2, "the second round", pause=0.02)
        bank.stop("north", signal.SIGKILL)
        bank.start("north")
        bank.ends(run)
        told = bank.result("certificate.json")
        model = load_model(bank.folder / "results" / "model.safetensors")
        ledgers = [json.loads(path.read_text()) for path in ledger_folder().glob("*.json")]
        rounds = bank.result("history.json")["rounds"]
    expected = Budget(20.0).multipliers(rounds)
    assert len(ledgers) == len(SITES)
    for ledger in ledgers:
        assert len(ledger["multipliers"]) == 3 + rounds
        assert spent(ledger["multipliers"], 1e-5) == pytest.approx(20.0, rel=1e-6)
        assert {round(z, 9) for z in ledger["multipliers"]} == {
            round(z, 9) for z in expected.values()
        }
    assert model.privacy["epsilon"] == pytest.approx(20.0, rel=1e-6)
    assert "delta 1e-05" in " ".join(told["notes"])
    assert told["subgroups"][0]["high"] >= told["worst_difference"]
    assert told["accuracy"] > 0.7
