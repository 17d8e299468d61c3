"""Keys in files, and a site that outlives its process between two questions."""

from functools import partial

import numpy as np
import pytest
from helpers import dealt, small_table

from agnosticfair.client.client import Client
from agnosticfair.client.steps import answer
from agnosticfair.errors import FederationError, SettingsError
from agnosticfair.federation import fit
from agnosticfair.flower.masking import LIST, masked_site, masking_files, read_list, read_secret
from agnosticfair.protocol.engines.in_process import InProcess

TABLES = dealt(small_table(300, 4), 2)


def written(folder):
    for name, text in masking_files(TABLES).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    return folder


def anew(folder, key, step, payload):
    """The site as a new process has it: nothing but its files."""
    held = partial(answer, Client(key, TABLES[key]))
    return masked_site(folder / f"{key}.mask", folder / LIST, key, held)(step, payload)


def test_a_site_that_is_started_anew_for_every_question_answers_the_same(tmp_path):
    folder = written(tmp_path)
    engine = InProcess({key: partial(anew, folder, key) for key in TABLES})
    secure = fit(engine, "fairfl", positive="yes", secure=read_list(folder / LIST))
    plain = fit(TABLES, "fairfl", positive="yes")
    np.testing.assert_array_equal(secure.model.w, plain.model.w)
    assert secure.history == plain.history
    for kept in folder.glob("*.sessions"):
        assert kept.stat().st_mode & 0o077 == 0


def test_bad_files_are_sentences(tmp_path):
    folder = written(tmp_path)
    first = sorted(TABLES)[0]
    (folder / f"{first}.mask").chmod(0o644)
    with pytest.raises(SettingsError, match="can be read by others"):
        read_secret(folder / f"{first}.mask", first)
    (folder / f"{first}.mask").chmod(0o600)
    (folder / f"{first}.mask").write_text("no key")
    with pytest.raises(SettingsError, match="not 64 hexadecimal digits"):
        read_secret(folder / f"{first}.mask", first)
    with pytest.raises(SettingsError, match="cannot read the secret key"):
        read_secret(folder / "none.mask", first)
    with pytest.raises(SettingsError, match="cannot read the list of keys"):
        read_list(folder / "none.json")
    (folder / LIST).write_text("[1]")
    with pytest.raises(SettingsError, match="does not map sites to public keys"):
        read_list(folder / LIST)


def test_a_key_that_is_not_on_the_list_is_refused(tmp_path):
    folder = written(tmp_path)
    first, second = sorted(TABLES)
    with pytest.raises(FederationError, match="is not on the list with the key that it holds"):
        masked_site(folder / f"{first}.mask", folder / LIST, second, answer)
