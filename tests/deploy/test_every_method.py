"""Every method over real sites with secure sums: model, history and certificate of the in-process fit, to the last bit.

It takes minutes, so it runs only where AGNOSTICFAIR_EVERY is set; CI has some of these fits (test_end_to_end), and all
of them over an engine that passes bytes (protocol/engines/test_remote).
"""

import json
import os

import pytest

pytest.importorskip("cryptography", reason="needs agnosticfair[secure]")

from deployed import SITES, Deployed, here, rows_by_site, site_rows, write_files

from agnosticfair.auditing.fits import as_content, certificates
from agnosticfair.methods import METHODS
from agnosticfair.threads import one_thread

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("AGNOSTICFAIR_EVERY" not in os.environ, reason="set AGNOSTICFAIR_EVERY"),
]


@pytest.fixture(scope="module")
def rows(adult):
    return {key: table.slice(0, 1500) for key, table in rows_by_site(adult).items()}


@pytest.fixture(scope="module")
def bank(rows, tmp_path_factory):
    deployed = Deployed(tmp_path_factory.mktemp("every") / "bank", rows)
    deployed.consent()
    try:
        deployed.start(*SITES)
        yield deployed
    finally:
        deployed.close()


@pytest.mark.parametrize(
    ("name", "network"),
    [
        *((name, "") for name in sorted(METHODS)),
        *((m.name, "mlp") for m in METHODS.values() if m.averaging is None and m.rule is None),
    ],
)
def test_a_masked_deployment_is_the_fit_in_one_process(name, network, bank, rows):
    bank.prepare(method=f'"{name}"', network=f'"{network}"', certify="true", **{"max-rounds": 2})
    files = write_files(rows, bank.folder.parent).values()
    bank.ends(bank.run())
    expected = here(files, name, network=network or None, max_rounds=2)
    assert bank.weights() == expected.model.w.tobytes()
    history = bank.result("history.json")
    assert history["history"] == json.loads(json.dumps(list(expected.history)))
    steps = {entry["step"] for entry in history["traffic"]}
    assert {"keys", "agree"} <= steps
    assert not steps & {"statistics", "centres"}
    with one_thread():
        tables = site_rows(files)
        certificate = as_content(*certificates(expected, tables))
    found = bank.result("certificate.json")
    assert {key: found[key] for key in certificate} == json.loads(json.dumps(certificate))
