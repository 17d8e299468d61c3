import shutil
from pathlib import Path

import pooch
import pytest

from agnosticfair.data import datasets, dutch
from agnosticfair.data.census import encoding_of, take_census
from agnosticfair.data.encoding import encode
from agnosticfair.errors import DataError, SettingsError


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    """No folder named, nothing in the cache, no network."""
    monkeypatch.delenv(dutch.VARIABLE, raising=False)
    monkeypatch.setattr(dutch, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(pooch, "retrieve", lambda *a, **k: pytest.fail("tried to download"))
    return tmp_path


def test_shape_of_the_paper(dutch):
    census = take_census(dutch, "dutch")
    assert census.n == 60_420
    assert census.labels == {"2_1": 28_763, "5_4_9": 31_657}
    assert census.groups == {"sex": {"female": 30_273, "male": 30_147}}
    assert dutch.sensitive_features["sex"].categories == ("female", "male")
    assert dutch.target.categories == ("5_4_9", "2_1")
    encoding = encoding_of(census)
    X = encode(encoding, dutch)
    assert X.shape == (60_420, 35)
    assert (X.min(), X.max()) == (0, 1)
    assert not any(name.startswith(("sex", "household_position")) for name in encoding.names)


def test_first_row_is_that_of_the_file(dutch):
    # 1,6,1131,112,1,1,1,5,111,135,1,2_1
    assert dutch.sensitive_features["sex"].values()[0] == "male"
    assert dutch.numeric["age"][0] == 6
    assert dutch.numeric["edu_level"][0] == 5
    assert dutch.column("household_position").values()[0] == "1131"
    assert dutch.column("cur_eco_activity").values()[0] == "135"
    assert dutch.target.values()[0] == "2_1"


def test_named_folder_comes_first(empty_home, dutch_folder, monkeypatch):
    monkeypatch.setenv(dutch.VARIABLE, str(empty_home / "nowhere"))
    assert len(dutch.load_dutch(dutch_folder)) == 60_420
    with pytest.raises(DataError, match=r"nowhere.*the folder in \$AGNOSTICFAIR_DATA"):
        dutch.load_dutch()


def test_both_places_in_a_folder_and_the_cache(empty_home, dutch_folder, monkeypatch):
    original = dutch.find_dutch(dutch_folder)
    for place in ("flat", "deep/dutch", "cache"):
        (empty_home / place).mkdir(parents=True)
        shutil.copy(original, empty_home / place / dutch.NAME)
    monkeypatch.setenv(dutch.VARIABLE, str(empty_home / "flat"))
    assert len(dutch.load_dutch()) == 60_420
    assert len(dutch.load_dutch(empty_home / "deep")) == 60_420
    monkeypatch.setenv(dutch.VARIABLE, "")
    assert len(dutch.load_dutch()) == 60_420


def test_absent_from_the_named_folder(empty_home):
    with pytest.raises(DataError, match=f"no {dutch.NAME} in .*, the folder named: download it"):
        dutch.load_dutch(empty_home)


def test_altered_file(empty_home):
    (empty_home / dutch.NAME).write_text("@data\n1,2\n")
    with pytest.raises(DataError, match=r"not the known file: its SHA-256 is .* delete it"):
        dutch.load_dutch(empty_home)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (ConnectionError("no route"), "the download of https://.* failed: try again later"),
        (ValueError("hash"), "the download of https://.* came altered: .*AGNOSTICFAIR_DATA"),
    ],
)
def test_bad_download(empty_home, monkeypatch, problem, message):
    def retrieve(*args, **kwargs):
        raise problem

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    with pytest.raises(DataError, match=message):
        dutch.load_dutch()


def test_altered_download_leaves_nothing(empty_home, monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv(dutch.VARIABLE, raising=False)
    monkeypatch.setattr(dutch, "cache_folder", lambda: empty_home / "cache")

    def altered(url, output_file, pooch, **kwargs):
        Path(output_file).write_bytes(b"altered")

    monkeypatch.setattr("pooch.core.choose_downloader", lambda *a, **k: altered)
    with pytest.raises(DataError, match="came altered"):
        dutch.load_dutch()
    assert not list((empty_home / "cache").iterdir())


def test_download_is_kept(empty_home, dutch_folder, monkeypatch):
    calls = []

    def retrieve(url, known_hash, fname, path):
        calls.append((url, known_hash))
        path.mkdir()
        return shutil.copy(dutch.find_dutch(dutch_folder), path / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert len(dutch.load_dutch()) == len(dutch.load_dutch()) == 60_420
    assert calls == [(dutch.URL, f"sha256:{dutch.SHA256}")]


def test_registry(adult, dutch_folder):
    assert datasets.load_dataset("adult") is adult
    assert len(datasets.load_dataset("dutch", dutch_folder)) == 60_420
    for name, known in datasets.DATASETS.items():
        table = datasets.load_dataset(name, dutch_folder)
        assert known.name == name
        assert known.positive in table.target.categories
        assert known.sensitive_features in table.sensitive_features
        assert known.shift_value in table.column(known.shift_column).categories
    with pytest.raises(SettingsError, match="no data set 'iris'; there are: adult, dutch"):
        datasets.load_dataset("iris")
