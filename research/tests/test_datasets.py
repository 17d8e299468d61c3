import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pooch
import pytest
from helpers import small_table

from agnosticfair.data import datasets as product
from agnosticfair.data.encoding import encode
from agnosticfair.data.summary import encoding_of, summary_statistics
from agnosticfair.data.table import concatenate
from agnosticfair.errors import DataError, SettingsError
from agnosticfair_research import datasets, sources

DUTCH = datasets.dataset("dutch").source


def load_dutch(folder=None):
    return datasets.load_dataset("dutch", folder)


@pytest.fixture
def empty_home(tmp_path, monkeypatch):
    """No folder named, nothing in the cache, no network."""
    monkeypatch.delenv(sources.VARIABLE, raising=False)
    monkeypatch.setattr(sources, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(pooch, "retrieve", lambda *a, **k: pytest.fail("tried to download"))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "labels", "women", "width", "absent"),
    [
        ("adult", {"<=50K": 34_014, ">50K": 11_208}, 14_695, 40, "sex"),
        ("dutch", {"5_4_9": 31_657, "2_1": 28_763}, 30_273, 35, ("sex", "household_position")),
    ],
)
def test_shape_of_the_paper(request, name, labels, women, width, absent):
    table = request.getfixturevalue(name)
    statistics, n = summary_statistics(table, name), sum(labels.values())
    assert statistics.n == len(table) == n
    assert statistics.labels == labels
    assert table.target.categories == tuple(labels)
    (female, male), counts = table.sensitive_features["sex"].categories, statistics.groups["sex"]
    assert (female.lower(), male.lower()) == ("female", "male")
    assert counts == {female: women, male: n - women}
    encoding = encoding_of(statistics)
    X = encode(encoding, table)
    assert X.shape == (n, width) == (n, len(set(encoding.names)))
    assert (X.min(), X.max()) == (0, 1)
    assert not any(feature.startswith(absent) for feature in encoding.names)


def test_first_row_is_that_of_the_file(dutch):
    # 1,6,1131,112,1,1,1,5,111,135,1,2_1
    assert dutch.sensitive_features["sex"].values()[0] == "male"
    assert dutch.numeric["age"][0] == 6
    assert dutch.numeric["edu_level"][0] == 5
    assert dutch.column("household_position").values()[0] == "1131"
    assert dutch.column("cur_eco_activity").values()[0] == "135"
    assert dutch.target.values()[0] == "2_1"


def test_named_folder_comes_first(empty_home, dutch_folder, monkeypatch):
    monkeypatch.setenv(sources.VARIABLE, str(empty_home / "nowhere"))
    assert len(load_dutch(dutch_folder)) == 60_420
    with pytest.raises(DataError, match=r"nowhere.*AGNOSTICFAIR_DATA"):
        load_dutch()


def test_both_places_in_a_folder_and_the_cache(empty_home, dutch_folder, monkeypatch):
    original = sources.find(DUTCH, dutch_folder)
    for place in ("flat", "deep/dutch", "cache"):
        (empty_home / place).mkdir(parents=True)
        shutil.copy(original, empty_home / place / DUTCH.file)
    monkeypatch.setenv(sources.VARIABLE, str(empty_home / "flat"))
    assert len(load_dutch()) == 60_420
    assert len(load_dutch(empty_home / "deep")) == 60_420
    monkeypatch.setenv(sources.VARIABLE, "")
    assert len(load_dutch()) == 60_420


def test_absent_from_the_named_folder(empty_home):
    with pytest.raises(DataError, match=f"{DUTCH.file}.*download"):
        load_dutch(empty_home)


def test_altered_file(empty_home):
    (empty_home / DUTCH.file).write_text("@data\n1,2\n")
    with pytest.raises(DataError, match=r"SHA.*delete"):
        load_dutch(empty_home)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (ConnectionError("no route"), "try again later"),
        (ValueError("hash"), "download.*AGNOSTICFAIR_DATA"),
    ],
)
def test_bad_download(empty_home, monkeypatch, problem, message):
    def retrieve(*args, **kwargs):
        raise problem

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    with pytest.raises(DataError, match=message):
        load_dutch()


def test_altered_download_leaves_nothing(empty_home, monkeypatch):
    monkeypatch.undo()
    monkeypatch.delenv(sources.VARIABLE, raising=False)
    monkeypatch.setattr(sources, "cache_folder", lambda: empty_home / "cache")

    def altered(url, output_file, pooch, **kwargs):
        Path(output_file).write_bytes(b"altered")

    monkeypatch.setattr("pooch.core.choose_downloader", lambda *a, **k: altered)
    with pytest.raises(DataError, match="came altered"):
        load_dutch()
    assert not list((empty_home / "cache").iterdir())


def test_download_is_kept(empty_home, dutch_folder, monkeypatch):
    calls = []

    def retrieve(url, known_hash, fname, path):
        calls.append((url, known_hash))
        path.mkdir()
        return shutil.copy(sources.find(DUTCH, dutch_folder), path / fname)

    monkeypatch.setattr(pooch, "retrieve", retrieve)
    assert len(load_dutch()) == len(load_dutch()) == 60_420
    assert calls == [(DUTCH.url, f"sha256:{DUTCH.sha256}")]


@pytest.mark.parametrize("name", datasets.DATASETS)
def test_a_record_describes_its_file(name, load):
    known, table = datasets.dataset(name), load(name)
    assert known.name == name
    assert known.positive in table.target.categories
    assert set(table.sensitive_features) == {known.sensitive_features, *known.also}
    assert len(table.sensitive_features[known.sensitive_features].categories) == 2
    seen = table.column(known.shift.column)
    assert set(known.shift.values) < set(seen.categories)
    assert known.shift.drawn < len(seen.categories)
    assert bool(known.shift.drawn) != bool(known.shift.values)
    if known.sites:
        assert known.sites in table.other
    home = Path(product.__file__).parent / "files" if name == "adult" else sources.SHIPPED
    shipped = home / f"{name}.parquet"
    assert shipped.is_file() == (known.licence == "CC BY 4.0") == (known.source is None)
    assert not shipped.is_file() or shipped.stat().st_size < 2**20


@pytest.mark.parametrize(
    ("name", "labels", "groups"),
    [
        ("oulad", {"Fail": 6_907, "Pass": 14_655}, {"F": 9_994, "M": 11_568}),
        ("bank", {"no": 35_337, "yes": 4_667}, {"married": 27_214, "single": 12_790}),
        ("law", {"fail": 2_293, "pass": 18_505}, {"Non-White": 3_307, "White": 17_491}),
        ("compas", {"no": 3_363, "yes": 2_809}, {"African-American": 3_175, "other": 2_997}),
        ("govcensus", {"no": 109_549, "yes": 94_760}, {"female": 110_856, "male": 93_453}),
    ],
)
def test_shapes(name, labels, groups, load):
    statistics = summary_statistics(load(name), name)
    assert statistics.labels == labels
    assert statistics.groups[datasets.dataset(name).sensitive_features] == groups


@pytest.mark.parametrize("name", ["oulad", "bank"])
def test_every_shipped_value_is_that_of_the_original_file(name, shared):
    with (shared / name / f"{name}.csv").open() as file:
        columns = dict(zip(next(rows := csv.reader(file)), zip(*rows, strict=True), strict=True))
    table = datasets.load_dataset(name)
    for column in set(columns) - {"duration"}:
        if column in table.numeric:
            assert table.numeric[column].tolist() == [float(v) for v in columns[column]]
        elif column == datasets.dataset(name).target:
            assert table.target.values().tolist() == list(columns[column])
        else:
            assert table.column(column).values().tolist() == list(columns[column])
    kept = {*table.numeric, *table.categorical, *table.other, *table.sensitive_features}
    assert "duration" not in kept, "not known before the call"
    assert set(columns) - kept - {"duration"} == {datasets.dataset(name).target}


def test_quarters_of_the_bank_follow_its_months_in_order():
    table = datasets.load_dataset("bank")
    months = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
    within = [months.index(m) // 3 + 1 for m in table.column("month").values()]
    quarters = table.column("quarter").values().tolist()
    assert quarters == sorted(quarters)
    assert [int(q[-1]) for q in quarters] == within
    assert (quarters[0], quarters[-1]) == ("2008 Q2", "2010 Q4")


def test_a_quoted_file_with_more_columns_is_read_the_same(load, folder_of):
    """The public COMPAS file has names and dates of birth; only the record's columns are read."""
    known, short = datasets.dataset("compas"), load("compas")
    body = sources.content(known.source, sources.find(known.source, folder_of("compas"))).decode()
    lines = [f'"a ""b"", c",{line}' for line in body.splitlines()]
    lines[0] = '"name",' + ",".join(f'"{name}"' for name in body.splitlines()[0].split(","))
    table = datasets._parsed("\n".join(lines).encode(), known.numeric)
    quarter = datasets._column(known, table, "quarter")
    assert quarter.values().tolist() == short.column("quarter").values().tolist()
    for name in known.numeric:
        assert datasets.to_numbers(table[name]).tolist() == short.numeric[name].tolist()


def test_codes_of_many_values_are_read_at_their_second_level_and_the_salary_is_dropped(load):
    rows = load("govcensus")
    first = [rows.column(k).values()[0] for k in ("occupation_group", "industry_sector", "race")]
    assert first == ["13", "92", "black"]
    assert len(rows.categorical["occupation_group"].categories) == 23
    assert len(rows.categorical["industry_sector"].categories) == 26
    assert rows.target.values()[:3].tolist() == ["no", "no", "yes"]
    columns = {*rows.numeric, *rows.categorical, *rows.other, *rows.sensitive_features}
    assert not columns & {"salary", "occupation", "industry"}


def test_what_cannot_be_downloaded_says_what_to_make_it_from(empty_home):
    for folder, place in ((None, "cannot be downloaded"), (empty_home, "the folder named")):
        with pytest.raises(DataError, match=f"{place}.*gov_census"):
            datasets.load_dataset("govcensus", folder)


def test_unknown_name(adult):
    assert datasets.load_dataset("adult") is adult
    with pytest.raises(SettingsError, match=r"'iris'.*dutch"):
        datasets.load_dataset("iris")


def test_a_fingerprint_is_of_values_not_of_codes():
    table = small_table()
    job = table.categorical["job"]
    turned = replace(job, codes=2 - job.codes, categories=job.categories[::-1])
    assert datasets.fingerprint(
        replace(table, categorical={"job": turned})
    ) == datasets.fingerprint(table)
    assert datasets.fingerprint(
        replace(table, numeric={**table.numeric, "age": table.numeric["hours"]})
    ) != (datasets.fingerprint(table))
    assert datasets.fingerprint(concatenate([table.take([0, 1]), table.take([2])])) == (
        datasets.fingerprint(table.take([0, 1, 2]))
    )
