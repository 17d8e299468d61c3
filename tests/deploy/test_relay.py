"""Relays over real processes: fifteen sites below three of them, under masks, to the bits of one process."""

import signal

import pyarrow as pa
import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from deployed import Deployed, free_ports, rows_by_site, started_for, wait, write_files

from agnosticfair.data.files import Roles, read_clients
from agnosticfair.data.schema import load_schema
from agnosticfair.deploy import admin
from agnosticfair.federation import fit
from agnosticfair.methods import method

RELAYS = ("r0", "r1", "r2")


def agreed(rows, folder, call):
    files = [str(path) for path in write_files(rows, folder).values()]
    named = ("--target", "income", "--sensitive-features", "sex", "--out", folder / "schema.json")
    code, _, err = call("schema", *files, *named)
    assert code == 0, err
    return folder / "schema.json"


@pytest.fixture
def fifteen(adult):
    """Rows of fifteen sites, five below each relay."""
    rows = pa.concat_tables(rows_by_site(adult).values())
    names, size = [f"s{k}@{relay}" for relay in RELAYS for k in range(5)], len(rows) // 15
    return {name: rows.slice(k * size, size) for k, name in enumerate(names)}


@pytest.mark.slow
def test_three_relays_of_five_have_the_bits_of_one_process(fifteen, tmp_path, call):
    schema = agreed(fifteen, tmp_path, call)
    port = free_ports(4)
    places = ",".join(f"{relay}=127.0.0.1:{port + k}" for k, relay in enumerate(RELAYS, 1))
    more = ("--relays", places, "--schema", schema)
    bank = Deployed(tmp_path / "bank", fifteen, *more, "--port", port)
    try:
        bank.start(*RELAYS, *fifteen)
        bank.prepare()
        run = bank.run()
        wait(lambda: bank.round() >= 1 or run.poll(), "the first round", pause=0.02)
        bank.stop("r1", signal.SIGKILL)  # a relay, and a site below another
        bank.stop("s2@r2", signal.SIGKILL)
        bank.start("r1", "s2@r2")
        bank.ends(run)
        tables = read_clients(bank.files.values(), Roles("income", ("sex",)))
        here = fit(tables, method("fairfl", max_rounds=3), schema=load_schema(schema))
        model = bank.folder / "results" / "model.safetensors"
        assert model.read_bytes() == here.model.to_bytes()
        history = bank.result("history.json")
        assert {entry["site"] for entry in history["traffic"]} == {*RELAYS}
        assert {*history["sites"]["r0"]["sites"]} == {f"s{k}@r0" for k in range(5)}
        assert admin.status(bank.folder / "relays" / "r0")["alarms"] == []
        assert any(event.get("step") == "sums" for event in bank.trail("r0"))
        # one site's rows change: the run is refused with its name
        bank.prepare()
        run = bank.run()
        wait(lambda: bank.round() >= 1 or run.poll(), "the first round", pause=0.02)
        text = bank.files["s0@r0"].read_text()
        bank.files["s0@r0"].write_text(text.replace(">50K", "<=50K", 1))
        told = " ".join(bank.ends(run, code=2).split())
        assert "'s0@r0'" in told
    finally:
        bank.close()
    assert not started_for(bank.folder)
