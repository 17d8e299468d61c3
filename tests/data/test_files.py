import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agnosticfair.data.columns import Roles, described
from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.files import read_clients, read_rows, read_table
from agnosticfair.data.reading import Dialect
from agnosticfair.data.summary import encoding_of, merge, summary_statistics
from agnosticfair.errors import DataError, SettingsError

ROLES = Roles("income", ("sex",))
CSV = """age,job,zip,sex,income,site
31,clerk,01234,F,no,north
42.5,cook,10115,M,yes,south
23,clerk,01234,M,no,north
"""


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.csv"):
        path = tmp_path / name
        if isinstance(content, dict):
            pq.write_table(pa.table(content), path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def test_kinds_are_told_apart(write):
    table = read_table(write(CSV), Roles("income", ("sex",), "site"))
    assert {k: v.tolist() for k, v in table.numeric.items()} == {
        "age": [31, 42.5, 23],
        "zip": [1234, 10115, 1234],
    }
    assert table.categorical["job"].values().tolist() == ["clerk", "cook", "clerk"]
    assert table.sensitive_features["sex"].categories == ("F", "M")
    assert table.target.values().tolist() == ["no", "yes", "no"]
    assert table.other["site"].categories == ("north", "south")


def test_overrides(write):
    roles = Roles("income", ("sex",), categorical=("zip",), numeric=("age",), drop=("site",))
    table = read_table(write(CSV), roles)
    assert table.categorical["zip"].categories == ("01234", "10115")
    assert set(table.numeric) == {"age"}
    assert not table.other


def test_parquet_kinds(write):
    path = write(
        {
            "i": pa.array([1, 2], pa.int8()),
            "f": pa.array([1.5, 2.5], pa.float32()),
            "big": pa.array([2**60 + 1, 0]),
            "d": pa.array(["1.5", "2"]).cast(pa.decimal128(5, 2)),
            "s": ["a", "b"],
            "l": pa.array(["a", "b"], pa.large_string()),
            "b": [True, False],
            "c": pa.array(["u", "v"]).dictionary_encode(),
            "__index_level_0__": [5, 6],
            "sex": [0, 1],
            "income": [0.0, 1.0],
        },
        "a.parquet",
    )
    table = read_table(path, ROLES)
    assert set(table.numeric) == {"i", "f", "big", "d"}
    assert set(table.categorical) == {"s", "l", "b", "c"}
    assert table.categorical["b"].values().tolist() == ["True", "False"]
    assert table.target.categories == ("0", "1")
    assert table.sensitive_features["sex"].categories == ("0", "1")


def test_booleans_stay_as_written(write):
    table = read_table(write("x,sex,income\ntrue,F,True\nfalse,M,False\n"), ROLES)
    assert table.categorical["x"].categories == ("false", "true")
    assert table.target.categories == ("False", "True")


def test_quotes_line_breaks_and_byte_order_mark(write):
    table = read_table(write('\ufeffx,sex,income\n"a, b\nc",F,1\n"""q""",M,0\n'), ROLES)
    assert table.categorical["x"].values().tolist() == ["a, b\nc", '"q"']


TEXTS = st.text(st.characters(min_codepoint=97, max_codepoint=104), min_size=1, max_size=3)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(-1e9, 1e9), TEXTS), min_size=1, max_size=20))
def test_csv_and_parquet_read_the_same(tmp_path_factory, rows):
    x, c = (list(values) for values in zip(*rows, strict=True))
    data = pa.table({"x": x, "c": c, "sex": c, "income": c})
    folder = tmp_path_factory.mktemp("same")
    pq.write_table(data, folder / "a.parquet")
    lines = [f"{a!r},{b},{b},{b}" for a, b in zip(x, c, strict=True)]
    (folder / "a.csv").write_text("x,c,sex,income\n" + "\n".join(lines) + "\n")
    one, two = (read_table(folder / f"a.{kind}", ROLES) for kind in ("csv", "parquet"))
    np.testing.assert_array_equal(one.numeric["x"], two.numeric["x"])
    assert one.categorical["c"].values().tolist() == two.categorical["c"].values().tolist() == c


def test_one_file_with_a_client_column(write):
    clients = read_clients([write(CSV)], Roles("income", ("sex",), "site"))
    assert {name: len(table) for name, table in clients.items()} == {"north": 2, "south": 1}
    assert clients["south"].numeric["age"].tolist() == [42.5]


def test_one_file_per_client(write):
    paths = [
        write("age,job,sex,income\n31,cook,F,no\n", "south.csv"),
        write("job,age,sex,income\nclerk,42.5,M,yes\n", "north.csv"),
        write({"age": [7], "job": ["cook"], "sex": ["M"], "income": ["no"]}, "east.parquet"),
    ]
    clients = read_clients(paths, ROLES)
    assert list(clients) == ["east", "north", "south"]
    total = merge({name: summary_statistics(table, name) for name, table in clients.items()})
    assert encoding_of(total) == Encoding((("age", 7.0, 42.5),), (("job", ("clerk", "cook")),))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("age,job,sex,income\nold,cook,F,no\n", "'age'.*'b.csv'.*'a.csv'"),
        ("age,job,sex,income\n3,7,F,no\n", "'job'.*'b.csv'.*'a.csv'"),
        ("age,sex,income\n3,F,no\n", "'b.csv'.*'job'"),
        ("age,job,sex,income,z\n3,a,F,no,1\n", "'a.csv'.*'z'"),
    ],
)
def test_clients_that_differ_are_named(write, second, message):
    paths = [write("age,job,sex,income\n31,cook,F,no\n"), write(second, "b.csv")]
    with pytest.raises(DataError, match=message):
        read_clients(paths, ROLES)


def test_clients_need_distinct_names_and_a_clear_layout(write, tmp_path):
    (tmp_path / "deep").mkdir()
    paths = [write(CSV), write(CSV, "deep/a.csv")]
    assert [name.partition("-")[2] for name in read_clients(paths, ROLES)] == ["a", "a"]
    with pytest.raises(DataError, match="named 2 times"):
        read_clients([paths[1], paths[1]], ROLES)
    with pytest.raises(SettingsError, match=r"2 files.*'site'"):
        read_clients(paths, Roles("income", ("sex",), "site"))
    with pytest.raises(SettingsError, match="no files"):
        read_clients([], ROLES)


def test_a_column_has_one_role():
    with pytest.raises(SettingsError, match=r"'sex'.*purposes"):
        Roles("income", ("sex",), categorical=("sex",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "'a.csv'.*empty"),
        ("age,sex,income\n", "'a.csv'.*rows"),
        ("age,sex,income\n1,F,no\n2,SECRET\n", r"3 columns.*got 2"),
        ("age,age,sex,income\n1,1,F,no\n", "'a.csv'.*2 columns.*'age'"),
        (",age,sex,income\n7,1,F,no\n", "'a.csv'.*without"),
        ("age,sx,income\n1,F,no\n", "'sex'.*'sx'.*'age'"),
        ("age,gender,income\n1,F,no\n", "'sex'.*'age'.*'gender'"),
        ("age,sex,income\n1,F,\n", "'income'.*'a.csv'.*1 row"),
        ("age,sex,income\n1,,no\n", "'sex'.*'a.csv'.*1 row"),
        ("age,sex,income\n,F,no\n", "'age'.*'a.csv'.*1 row"),
        ("d,sex,income\n10:11:12,F,no\n", "'d'.*neither"),
        ("d,sex,income\n31/12/2020,F,no\n", "'d'.*write 2026-12-31"),
        ("age,sex,income\n1,?,no\n", "'sex'.*1 row.*NA"),
        ("job,sex,income\nNA,F,no\n,M,yes\n", "'job'.*2 rows"),
        ("age,sex,income\n1,F,no\n2,F,no\nSECRET,M,yes\n", "1 text.*2 numbers.*row 3"),
        (b"age,sex,income\n1,F\x00,no\n", "cannot be read"),
        (b"PAR1\x00\x01\x02\xff" * 9, "cannot be read|has no column"),
        (
            "name,sex,income\n" + "\n".join(f"n{i % 1001},F,no" for i in range(2002)),
            "1001 different texts",
        ),
        (",".join(f"c{i}" for i in range(10_001)) + "\n", "10001 columns.*most 10000"),
    ],
)
def test_bad_csv_ends_in_one_sentence(write, content, message):
    with pytest.raises(DataError, match=message) as error:
        read_table(write(content), ROLES)
    assert "SECR" not in str(error.value)


def test_many_categories_when_insisted_on(write):
    rows = "\n".join(f"n{i},F,no" for i in range(1001))
    table = read_table(
        write("id,sex,income\n" + rows), Roles("income", ("sex",), categorical=("id",))
    )
    assert len(table.categorical["id"].categories) == 1001


def test_override_that_does_not_fit_names_the_row(write):
    path = write("age,sex,income\n1,F,no\n2,F,no\nSECRET,M,yes\n")
    with pytest.raises(DataError, match=r"'age'.*'a.csv'.*row 3") as error:
        read_table(path, Roles("income", ("sex",), numeric=("age",)))
    assert "SECRET" not in str(error.value)


def test_bad_parquet_ends_in_one_sentence(write):
    good = write({"x": [1.0] * 99, "sex": ["F"] * 99, "income": ["no"] * 99}, "a.parquet")
    assert len(read_table(good, ROLES)) == 99
    content = good.read_bytes()
    for damaged in (content[:-20], content[:50], b"not parquet at all"):
        with pytest.raises(DataError, match=r"'b.parquet'.*cannot"):
            read_table(write(damaged, "b.parquet"), ROLES)
    with pytest.raises(DataError, match=r"'v'.*nor"):
        read_table(write({"v": [[1]], "sex": ["F"], "income": ["no"]}, "c.parquet"), ROLES)
    roles = Roles("income", ("sex",), categorical=("v",))
    with pytest.raises(DataError, match="read as text"):
        read_table(write({"v": [{"a": 1}], "sex": ["F"], "income": ["no"]}, "d.parquet"), roles)


def test_any_flipped_byte_is_read_or_refused(write):
    path = write({"x": [1.0, 2.0], "sex": ["F", "M"], "income": ["no", "yes"]}, "a.parquet")
    content = path.read_bytes()
    refused = 0
    for place in range(0, len(content), 5):
        flipped = bytes([*content[:place], content[place] ^ 0xFF, *content[place + 1 :]])
        try:
            read_table(write(flipped, "b.parquet"), ROLES)
        except DataError:  # and nothing else
            refused += 1
    assert refused > 10


def test_absent_files_and_foreign_endings(tmp_path):
    with pytest.raises(DataError, match=r"'a.csv'.*'.*'"):
        read_table(tmp_path / "a.csv", ROLES)
    with pytest.raises(DataError, match=r"'a.xlsx'.*neither"):
        read_table(tmp_path / "a.xlsx", ROLES)
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"file.*'folder.csv'"):
        read_table(tmp_path / "folder.csv", ROLES)


def test_who_is_named(tmp_path):
    with pytest.raises(DataError, match=r"client.*'north'"):
        read_table(tmp_path / "a.csv", ROLES, who="client 'north'")


ENCODING = Encoding((("age", 20.0, 40.0),), (("zip", ("01234", "10115")),))


def test_rows_to_predict_on(write):
    rows = read_rows(write(CSV), ENCODING)
    np.testing.assert_allclose(
        encode(ENCODING, rows), [[0.55, 1, 0], [1.125, 0, 1], [0.15, 1, 0]], atol=2**-21
    )
    assert rows.target is None
    assert not rows.sensitive_features


def test_rows_to_predict_on_may_have_labels_and_groups(write):
    path = write(CSV)
    rows = read_rows(
        path, ENCODING, target="income", sensitive_features=["sex", "race"], client="site"
    )
    assert rows.target.values().tolist() == ["no", "yes", "no"]
    assert set(rows.sensitive_features) == {"sex"}
    assert set(rows.other) == {"site"}
    assert read_rows(path, ENCODING, target="label").target is None


def test_rows_to_predict_on_must_fit(write):
    with pytest.raises(DataError, match="no column 'zip'"):
        read_rows(write("age\n1\n"), ENCODING)
    with pytest.raises(DataError, match=r"'age'.*'b.csv'.*row 2"):
        read_rows(write("age,zip\n1,01234\nx,01234\n", "b.csv"), ENCODING)
    with pytest.raises(DataError, match=r"'zip'.*'c.csv'.*1 row"):
        read_rows(write("age,zip\n1,\n", "c.csv"), ENCODING)
    rows = read_rows(write("age,zip\n1,\n2,01234\n", "d.csv"), ENCODING)
    with pytest.raises(DataError, match=r"'zip'.*'\?'"):
        encode(ENCODING, rows)


PEOPLE = "age;job;sex;income\n31;Köchin;F;no\n42,5;clerk;M;yes\n28;cook;F;no\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separator_and_encoding_are_found(write, encoding, separator):
    path = write(PEOPLE.replace(";", separator).replace("42,5", "42").encode(encoding))
    table = read_table(path, ROLES)
    assert table.numeric["age"].tolist() == [31, 42, 28]
    assert table.categorical["job"].values().tolist() == ["Köchin", "clerk", "cook"]
    table_here = read_table(path, ROLES, dialect=Dialect(separator, encoding))
    assert table_here.categorical["job"].values().tolist() == ["Köchin", "clerk", "cook"]


def test_semicolons_go_with_decimal_commas(write):
    path = write(PEOPLE)
    assert read_table(path, ROLES).numeric["age"].tolist() == [31, 42.5, 28]
    rows = read_rows(path, Encoding((("age", 20.0, 40.0),), ()))
    assert rows.numeric["age"].tolist() == [31, 42.5, 28]


def test_a_dialect_that_does_not_fit(write):
    with pytest.raises(DataError, match="read as utf-8"):
        read_table(write(PEOPLE.encode("latin-1")), ROLES, dialect=Dialect(encoding="utf-8"))
    with pytest.raises(DataError, match="no column 'income'"):
        read_table(write(PEOPLE.replace(",", ".")), ROLES, dialect=Dialect(","))
    with pytest.raises(SettingsError, match=r"'utf-99'.*unknown"):
        Dialect(encoding="utf-99")
    with pytest.raises(SettingsError, match=r"', '.*character"):
        Dialect(", ")


def test_a_stratum_longer_than_the_csv_module_reads_hides_no_column(write):
    long = "x" * 200_000
    table = read_table(write(f"job;sex;income\n{long};01;1\ncook;2;0\ncook;2;0\n"), ROLES)
    assert table.categorical["job"].categories == ("cook", long)
    assert table.sensitive_features["sex"].categories == ("01", "2"), "a group is a text"


def test_texts_that_are_numbers_and_dates(write):
    path = write(
        'price,share,day, job ,sex,income\n"1,045",45%,1970-01-02, ? ,F,no\n'
        '12,5.5 %,1970-01-11,clerk , M,yes\n"1,000,000",-1%,1969-12-31,cook,F,no\n'
    )
    table = read_table(path, ROLES)
    assert table.numeric["price"].tolist() == [1045, 12, 1_000_000]
    assert table.numeric["share"].tolist() == [45, 5.5, -1]
    assert table.numeric["day"].tolist() == [1, 10, -1]
    assert table.categorical["job"].values().tolist() == ["?", "clerk", "cook"]
    assert table.sensitive_features["sex"].categories == ("F", "M")
    told = described(table)
    assert told["day"] == "numeric, a date, as days since 1970-01-01"
    assert told["share"] == "numeric, numbers written with '%', ',' or a currency"
    assert told["job"] == "categorical, 3 values, '?' (missing) in 1 row"
    new = read_rows(path, Encoding((("price", 0.0, 1.0), ("day", 0.0, 1.0)), ()))
    assert new.numeric["price"].tolist() == [1045, 12, 1_000_000]
    assert new.numeric["day"].tolist() == [1, 10, -1]


def people(rows, **columns):
    named = {
        **columns,
        "x": lambda i: i % 7,
        "sex": lambda i: "FM"[i % 2],
        "income": lambda i: i % 3,
    }
    lines = [",".join(str(of(i)) for of in named.values()) for i in range(rows)]
    return ",".join(named) + "\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("code", lambda i: f"n{i:03}"),
        ("row", lambda i: i + 1),
        ("customer_id", lambda i: 7 * i % 1009),
        ("userID", lambda i: 7 * i % 1009),
    ],
)
def test_identifiers_are_left_out(write, name, of):
    table = read_table(write(people(60, **{name: of})), ROLES)
    assert set(table.kinds) == {"x"}
    assert table.how[name].startswith("dropped, an identifier")
    table_here = read_table(
        write(people(60, **{name: of})), Roles("income", ("sex",), categorical=(name,))
    )
    assert name in table_here.categorical
    few = read_table(write(people(30, **{name: of})), ROLES)
    assert (name in few.kinds) == (name in ("code", "row")), "fewer rows, if it is called one"
    assert name in read_table(write(people(4, **{name: of})), ROLES).kinds


def test_numbers_that_differ_are_no_identifiers(write):
    table = read_table(write(people(60, balance=lambda i: 7 * i % 1009)), ROLES)
    assert "balance" in table.numeric


def test_an_identifier_at_one_client_is_left_out_at_all(write):
    paths = [
        write(people(60, code=lambda i: f"n{i:03}"), "big.csv"),
        write(people(9, code=lambda i: f"n{i:03}"), "small.csv"),
    ]
    clients = read_clients(paths, ROLES)
    assert [set(table.kinds) for table in clients.values()] == [{"x"}, {"x"}]
    assert "at another client" in clients["small"].how["code"]


def test_rows_to_predict_may_lie_in_arrow(tmp_path):
    rows = pa.table({"age": [30.0, 41.0], "job": ["cook", "clerk"]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    with pa.ipc.new_file(tmp_path / "rows.arrow", rows.schema) as file:
        file.write_table(rows)
    encoding = Encoding((("age", 20.0, 50.0),), (("job", ("clerk", "cook")),))
    one, two = (read_rows(tmp_path / f"rows.{end}", encoding) for end in ("arrow", "parquet"))
    np.testing.assert_array_equal(encode(encoding, one), encode(encoding, two))
