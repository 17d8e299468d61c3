"""Rows that come in batches from Parquet and Arrow files: the same rows, and a sentence where they are not."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agnosticfair.data import columns as data_columns
from agnosticfair.data import files, stream
from agnosticfair.data.files import Roles, read_source, read_sources
from agnosticfair.data.rows import Fold
from agnosticfair.data.summary import summary_statistics
from agnosticfair.errors import DataError

ROLES = Roles("income", ("sex",))


def columns(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "age": rng.integers(17, 90, n),
        "pay": rng.normal(size=n).astype(np.float32),
        "job": pa.array(rng.choice(["clerk", "cook", "carter"], n)),
        "sex": pa.array(rng.choice(["F", "M"], n)).dictionary_encode(),
        "income": rng.integers(0, 2, n).astype(np.int8),
        "note": pa.array(["x"] * n),
    }


def write(path, **changes):
    path.parent.mkdir(exist_ok=True)
    table = pa.table({**columns(), **changes})
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=300)
    else:
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=450)


@pytest.fixture
def folder(tmp_path):
    for k, ending in enumerate(("parquet", "parquet", "arrow")):
        write(tmp_path / "north" / f"{k}.{ending}", age=np.arange(1000) + 1000 * k + 17)
    (tmp_path / "north" / "_SUCCESS").touch()
    return tmp_path / "north"


@pytest.fixture
def streams(monkeypatch):
    monkeypatch.setattr(files, "STREAMED", 0)
    monkeypatch.setattr(stream, "BATCH", 128)


def test_a_folder_is_read_whole_where_it_is_small(folder):
    table = read_source(folder, Roles("income", ("sex",), drop=("note",)))
    assert not table.streamed
    assert table.numeric["age"].tolist() == [*range(17, 3017)]
    assert set(table.categorical) == {"job"}


@pytest.mark.parametrize("threads", [1, 3])
def test_a_stream_has_the_same_rows_in_the_same_order(folder, streams, threads):
    source = read_source(folder, ROLES)
    assert source.streamed
    assert len(source) == 3000
    ages = source.added_up(lambda table: table.numeric["age"].tolist(), threads)
    assert ages == [*range(17, 3017)]
    assert max(source.added_up(lambda table: [len(table)])) <= 128


def test_more_batches_at_a_time_are_the_same_rows_and_folds(folder, streams):
    """Of equal rows, too, which are dealt to folds by how many came before."""
    alike = {"pay": np.zeros(1000, np.float32), "income": np.ones(1000, np.int8)}
    texts = {"job": pa.array(["cook"] * 1000), "sex": pa.array(["F"] * 1000).dictionary_encode()}
    write(folder / "alike.parquet", age=np.full(1000, 40), **alike, **texts)
    every = read_source(folder, ROLES)
    for source in (every, stream.of_fold(every, Fold(0)), stream.of_fold(every, Fold(1))):
        once, thrice = (
            source.added_up(lambda table: table.numeric["age"].tolist(), 1, times)
            for times in (1, 3)
        )
        assert once == thrice
    assert 128 < max(every.added_up(lambda table: [len(table)], 1, 3)) <= 384


def test_the_statistics_of_batches_adds_up_to_that_of_all_rows(folder, streams, monkeypatch):
    streamed = read_source(folder, ROLES).added_up(
        lambda table: summary_statistics(table, "north"), 2
    )
    monkeypatch.setattr(files, "STREAMED", 1 << 30)
    assert streamed == summary_statistics(read_source(folder, ROLES), "north")


def test_one_file_streams_as_well(tmp_path, streams):
    write(tmp_path / "a.parquet")
    source = read_source(tmp_path / "a.parquet", ROLES)
    job = source.added_up(lambda table: table.categorical["job"].values().tolist(), 2)
    assert job == columns()["job"].to_pylist()


def test_folders_and_files_are_clients_side_by_side(folder, tmp_path, streams):
    write(tmp_path / "south.parquet")
    assert {*read_sources([folder, tmp_path / "south.parquet"], ROLES)} == {"north", "south"}
    write(tmp_path / "west.parquet", job=np.arange(1000))
    with pytest.raises(DataError, match=r"'job'.*'west.parquet'"):
        read_sources([folder, tmp_path / "west.parquet"], ROLES)


def spoil_cut(folder):
    path = folder / "1.parquet"
    path.write_bytes(path.read_bytes()[:-100])


def spoil_pages(folder):
    path = folder / "1.parquet"
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    path.write_bytes(bytes(content))


def spoil_nothing_in_it(folder):
    (folder / "1.parquet").write_bytes(b"")


def spoil_kind(folder):
    write(folder / "1.parquet", age=pa.array(["old"] * 1000))


def spoil_column(folder):
    pq.write_table(pa.table(columns()).drop_columns("pay"), folder / "1.parquet")


def spoil_label(folder):
    pq.write_table(pa.table(columns()).drop_columns("income"), folder / "1.parquet")


def spoil_gap(folder):
    write(folder / "1.parquet", income=pa.array([None, *["no"] * 999]))


def spoil_key(folder):
    write(folder / "1.parquet", job=pa.array([f"key {k}" for k in range(1000)]))


def spoil_arrow(folder):
    path = folder / "2.arrow"
    path.write_bytes(path.read_bytes()[:-300])


def spoil_other_file(folder):
    (folder / "readme.txt").write_text("rows")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (spoil_cut, r"'1.parquet'.*short"),
        (spoil_pages, r"'1.parquet'.*cannot"),
        (spoil_nothing_in_it, r"'1.parquet'.*empty"),
        (spoil_kind, r"'age'.*'1.parquet'.*'0.parquet'"),
        (spoil_column, r"'1.parquet'.*'pay'"),
        (spoil_label, r"'1.parquet'.*'income'"),
        (spoil_gap, r"'income'.*'1.parquet'.*1 row"),
        (spoil_arrow, r"'2.arrow'.*cannot"),
        (spoil_other_file, r"folder.*'readme.txt'"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_folder_is_said_with_the_files_name(folder, streams, spoil, sentence):
    spoil(folder)
    with pytest.raises(DataError, match=sentence):
        read_source(folder, ROLES).added_up(len, 2)


def test_a_key_among_the_texts_is_noticed(folder, streams, monkeypatch):
    monkeypatch.setattr(stream, "BATCH", 1 << 14)
    monkeypatch.setattr(data_columns, "MAX_CATEGORIES", 200)
    spoil_key(folder)
    with pytest.raises(DataError, match=r"'job'.*'1.parquet'.*300 different"):
        read_source(folder, ROLES).added_up(len)


def test_an_empty_folder(tmp_path):
    with pytest.raises(DataError, match="empty folder"):
        read_source(tmp_path, ROLES)


def test_a_bad_row_is_told_by_its_place(tmp_path):
    age = [str(k) for k in range(1000)]
    age[650] = "old"
    write(tmp_path / "a.parquet", age=pa.array(age))
    roles = Roles("income", ("sex",), numeric=("age",))
    with pytest.raises(DataError, match=r"'a\.parquet'.*600 rows.*row 51"):
        read_source(tmp_path / "a.parquet", roles)
