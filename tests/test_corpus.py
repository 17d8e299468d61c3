"""Command lines as people type them, on files as people have them: what each ends with, and what it says.

Every bad one ends with code 2 and one sentence, and writes nothing; every good one with what was asked for.
"""

import random
import shutil
from itertools import product
from pathlib import Path

import pytest
from helpers import refused

ROLES = "--target income --sensitive-features sex"
ROWS = 60


def people(n=ROWS, seed=0, header=True, separator=",", **columns):
    """A file with an age, a job, a group and a label; a column is changed by a function of row and value."""
    draw = random.Random(seed)
    lines = []
    names = ["age", "pay", "job", "sex", "income", *(k for k in columns if k not in NAMES)]
    for i in range(n):
        row = {"age": draw.randint(18, 80), "pay": round(draw.uniform(1, 9), 2)}
        row |= {"job": draw.choice(["cook", "clerk", "carter"]), "sex": draw.choice("FM")}
        row["income"] = "yes" if row["age"] + 9 * row["pay"] + draw.gauss(0, 9) > 95 else "no"
        row |= {k: of(i, row.get(k)) for k, of in columns.items()}
        lines.append(separator.join(str(row[name]) for name in names))
    return "\n".join(([separator.join(names)] if header else []) + lines) + "\n"


NAMES = ("age", "pay", "job", "sex", "income")
GOOD = people()
FILES = {"a.csv": GOOD, "b.csv": people(seed=1)}


def const(value):
    return lambda i, v: value


def at(place, value):
    return lambda i, v: value if i == place else v


# --- files that cannot be used, and the words that say why ---

BAD_FILES = {
    "empty": ("", "is empty"),
    "header only": ("age,pay,job,sex,income\n", "has no rows"),
    "no header": (people(header=False), "no column"),
    "ragged": (GOOD + "1,2,3\n", "Expected 5 columns, got 3"),
    "two ages": (GOOD.replace("pay", "age", 1), "2 columns named 'age'"),
    "100,000 columns": (",".join(f"c{k}" for k in range(100_000)) + "\n", "keep at most"),
    "a long cell": (people(job=at(3, "x" * 200_000)) + "1,2\n", "Expected 5 columns, got 2"),
    "unnamed": (GOOD.replace("pay", "", 1), "without a name"),
    "binary": (b"\x00\x01\x02\xff" * 99, "cannot be read"),
    "zip": (b"PK\x03\x04\x00" * 99, "cannot be read"),
    "old age": (people(age=at(7, "old")), "1 text among 59 numbers, the first in row 8"),
    "no label": (people(income=at(3, "")), "missing in 1 row"),
    "? label": (people(income=at(3, "?")), "missing in 1 row"),
    "no group": (people(sex=at(3, "")), "missing in 1 row"),
    "infinite": (people(age=at(3, "inf")), "'age'"),
    "huge": (people(age=at(3, "1e300")), "'age'"),
    "dates": (people(day=lambda i, v: f"{i % 28 + 1}/12/2020"), "write 2026-12-31"),
    "named months": (people(day=lambda i, v: f"{i % 28 + 1} Dec 2020"), "write 2026-12-31"),
    "colons": (people(separator=":"), "name its separator by --separator"),
    "times": (people(hour=lambda i, v: f"{i % 24:02}:00:00"), "neither numbers nor text"),
    "empty column": (people(note=const("")), "'note'"),
    "german": (people(separator=";").replace("income", "einkommen"), "no column 'income'"),
    "capitals": (GOOD.replace("income", "Income"), "did you mean 'Income'?"),
}
TRAINING_ONLY = {
    "constants": (
        people(age=const(1), pay=const(2), job=const("k")),
        "every feature has one value",
    ),
    "one label": (people(income=const("no")), "label"),
    "one group": (people(sex=const("F")), "'sex'"),
    "three labels": (people(income=lambda i, v: "abc"[i % 3]), "3 labels"),
    "Yes and yes": (people(income=lambda i, v: v.title() if i % 2 else v), "in case alone"),
    "f and F": (people(sex=lambda i, v: v.lower() if i % 2 else v), "'F' and 'f', which differ"),
    "quantity": (people(income=lambda i, v: i + 0.5), "a quantity and not a label"),
    "400 groups": (
        people(900, sex=lambda i, v: f"g{i % 400}"),
        "groups, more than 50: cut its numbers",
    ),
}
COMMANDS = {
    "fit": f"fit bad.csv {ROLES}",
    "two": f"fit a.csv bad.csv {ROLES}",
    "tune": f"tune bad.csv {ROLES} --taus 0.1,0.2 --jobs 1",
    "predict": "predict m.safetensors bad.csv",
    "evaluate": "evaluate m.safetensors bad.csv --target income",
}
GAPS = {
    "gap in age": (people(age=at(7, "")), "missing"),
    "NA in age": (people(age=at(7, "NA")), "missing"),
    "? in age": (people(age=at(7, "?")), "missing"),
    "nan in age": (people(age=at(7, "nan")), "missing"),
    "null in pay": (people(pay=at(3, "null")), "missing"),
}  # numbers that only learners with bins have a place for
LABELS = {"no label", "? label", "no group", "german", "capitals"}  # predict needs none of these


def bad_files():
    for (name, (content, words)), (kind, line) in product(BAD_FILES.items(), COMMANDS.items()):
        if kind in ("predict", "evaluate") and name in (
            "dates",
            "named months",
            "times",
            "empty column",
        ):
            continue  # a model reads its own columns alone
        if kind == "predict" and name in LABELS:
            continue
        said = {
            ("two", "german"): "bad.csv",
            ("evaluate", "capitals"): "no column 'income'",
            ("predict", "old age"): "'age'",
            ("evaluate", "old age"): "'age'",
        }.get((kind, name), words)
        yield pytest.param({"bad.csv": content}, line, said, id=f"{kind}: {name}")
    for (name, (content, words)), kind in product(GAPS.items(), COMMANDS):
        line = COMMANDS[kind] + (" --method fairfl" if kind in ("fit", "two", "tune") else "")
        yield pytest.param({"bad.csv": content}, line, words, id=f"{kind}: {name}")
    content, words = GAPS["gap in age"]  # found in another process
    line = COMMANDS["tune"].replace("--jobs 1", "--jobs 2 --method fairfl")
    yield pytest.param({"bad.csv": content}, line, words, id="tune, two processes: gap in age")
    for name, (content, words) in TRAINING_ONLY.items():
        for kind in ("fit", "tune"):
            yield pytest.param({"bad.csv": content}, COMMANDS[kind], words, id=f"{kind}: {name}")


# --- settings that make no sense ---

BAD_VALUES = {
    "fit a.csv ROLES": {
        "--tau": ("-1", "0", "nan", "x"),
        "--bound": ("-1", "0", "nan", "x"),
        "--max-rounds": ("0", "-3", "x", "1.5"),
        "--seed": ("-1", "x", "0.5"),
        "--method": ("fll", "", "FL2"),
        "--metric": ("fair", ""),
        "--network": ("cnn", "resnet"),
        "--positive": ("maybe", "Yes", ""),
        "--target": ("incom", "age "),
        "--drop": ("nosuch", "income", "sex"),
        "--numeric": ("nosuch", "job", "sex"),
        "--categorical": ("nosuch", "income"),
        "--client-column": ("nosuch", "sex"),
        "--separator": ("", ",,", "§"),
        "--encoding": ("utf-99", "klingon"),
        "--out": ("no/such/m.safetensors", "a.csv", "."),
        "--run": ("a.csv", "a.csv/run", "/proc/x/run"),
        "--checkpoint": ("a.csv", "a.csv/state"),
        "--test": ("nosuch.csv",),
        "--schema": ("nosuch.json", "a.csv"),
    },
    "tune a.csv ROLES": {
        "--taus": ("0.1", "x,y", "0.1,0.1", "-0.1,0.1", ""),
        "--tau": ("0.3", "x"),
        "--folds": ("1", "0", "-1", "1000", "x"),
        "--seed": ("-1", "x"),
        "--method": ("fl", "fll"),
        "--metric": ("fair",),
        "--bound": ("-1", "x"),
        "--jobs": ("0", "-1", "x"),
        "--separator": (",,",),
        "--encoding": ("klingon",),
        "--out": ("a.csv", "a.csv/x"),
    },
    "audit b.csv ROLES --model m.safetensors": {
        "--separator": (",,",),
        "--encoding": ("klingon",),
        "--sensitive-features": ("sex", "nosuch"),
        "--threshold": ("nan", "2"),
        "--confidence": ("0", "1", "x"),
        "--depth": ("0", "4"),
        "--tolerance": ("0", "x"),
        "--out": ("a.csv", "a.csv/x"),
    },
    "predict m.safetensors a.csv": {
        "--out": ("no/such/p.csv", "a.csv", "m.safetensors", "."),
        "--keep": ("nosuch",),
        "--separator": (",,",),
        "--encoding": ("klingon",),
    },
    "evaluate m.safetensors a.csv --target income": {
        "--target": ("incom", ""),
        "--sensitive-features": ("nosuch",),
        "--metric": ("fair", ""),
        "--client-column": ("nosuch",),
        "--separator": (",,",),
        "--encoding": ("klingon",),
    },
    "export m.safetensors": {"--onnx": ("nosuch/x.onnx", "m.safetensors", ".")},
    "report run": {"--out": ("nosuch/r.html", "a.csv")},
    "data adult": {"--out": ("a.csv", "."), "--sites": ("-1", "0", "x"), "--seed": ("x",)},
}
LINES = {
    "": "Usage",
    "fti a.csv": "No such command 'fti'",
    "fit": "Missing argument",
    "fit a.csv": "Missing option",
    f"fit nosuch.csv {ROLES}": "'nosuch.csv' is not in '.'",
    f"fit a.xlsx {ROLES}": "neither .csv nor .parquet",
    f"fit a.csv a.csv {ROLES}": "named 2 times",
    f"fit . {ROLES}": "name CSV files one by one",
    f"fit a.csv codes.csv {ROLES}": "'F', 'M' at client 'a' and 'female', 'male' at client 'codes'",
    "monitor x.joblib --certificate a.csv --rows a.csv": "agnosticfair.MonitoredClassifier",
    "predict m.safetensors cooks.csv": "'butler'",
    f"fit a.csv b.csv {ROLES} --client-column job": "2 files and a client column",
    f"fit a.csv {ROLES} --numeric age --drop age": "two purposes",
    f"fit a.csv {ROLES} --sensitive-features sex": "two purposes",
    f"fit a.csv {ROLES} --sensitve sex": "No such option",
    f"fit a.csv {ROLES} --method fl --tau 0.1": "fl",
    f"fit a.csv {ROLES} --method fairfl --max-rounds 1 --strict": "did not converge",
    f"fit c.csv {ROLES}": "c.csv",
    "predict nosuch.safetensors a.csv": "no model file 'nosuch.safetensors'",
    "predict a.csv a.csv": "not a model of agnosticfair",
    "predict flipped.safetensors a.csv": "checksum differs",
    "predict m.safetensors": "Missing argument",
    "predict m.safetensors nosuch.csv": "'nosuch.csv'",
    "evaluate m.safetensors a.csv": "Missing option",
    "evaluate m.safetensors a.csv a.csv --target income": "'a.csv' is named 2 times",
    "export m.safetensors": "Missing option",
    "report nosuch": "'nosuch'",
    "report a.csv": "'a.csv'",
    "report empty": "'empty'",
    "data nosuch": "'nosuch'",
    "audit a.csv --target income": "Missing option",
    f"audit a.csv {ROLES}": "--model",
    f"audit a.csv {ROLES} --predictions nosuch": "'nosuch'",
    f"audit a.csv {ROLES} --predictions job": "'job'",
    f"audit a.csv {ROLES} --model a.csv": "not a model",
    f"audit a.csv {ROLES} --model nosuch.onnx": "no model file 'nosuch.onnx'",
    f"audit a.csv {ROLES} --model x.joblib": "--trust-code",
    f"audit a.csv {ROLES} --model x.joblib --trust-code": "cannot be read",
    f"audit a.csv {ROLES} --model x.onnx": "is no ONNX model",
    f"audit a.csv {ROLES} --model m.safetensors --drop age": "--drop",
    f"audit nosuch.csv {ROLES} --model m.safetensors": "'nosuch.csv'",
    f"audit b.csv {ROLES} --model m.safetensors --metric fair": "fair",
    "verify nosuch.json": "nosuch.json",
    "verify a.csv": "a.csv",
    "schema nosuch.csv --target income --sensitive-features sex": "nosuch.csv",
    "methods --jsn": "No such option",
    "predict m.safetensors a.csv --keep": "see 'agnosticfair predict --help'",
    f"fit a.csv {ROLES} --tau": "see 'agnosticfair fit --help'",
    f"tune a.csv {ROLES} --taus": "see 'agnosticfair tune --help'",
    "--nosuch": "see 'agnosticfair --help'",
}


def bad_lines():
    for line, options in BAD_VALUES.items():
        for option, values in options.items():
            for value in values:
                request = [*line.replace("ROLES", ROLES).split(), option, value]
                yield pytest.param(request, "", id=f"{line.split()[0]} {option} {value!r}")
    for line, words in LINES.items():
        yield pytest.param(line.split(), words, id=line or "nothing")


# --- files and lines that are good, and what they end with ---


def good_files():
    for separator, encoding in product(",;\t|", ("utf-8", "utf-8-sig", "latin-1", "utf-16")):
        text = people(separator=separator, job=lambda i, v: ["Köchin", "Säger"][i % 2])
        yield f"{separator!r} {encoding}", text.encode(encoding), "Categorical: job."
    for name, column, words in (
        (
            "percent",
            {"share": lambda i, v: f"{i % 7}%"},
            "share: numeric, numbers written with '%'",
        ),
        ("money", {"x": lambda i, v: f"${i}.50"}, "x: numeric, numbers written with '%', ',' or a"),
        ("trailing separator", {"": lambda i, v: ""}, "Numeric: age, pay."),
        ("row index of pandas", {"": lambda i, v: i}, "Numeric: age, pay."),
        ("slashed dates", {"day": lambda i, v: f"2020/01/{i % 28 + 1:02}"}, "day: numeric, a date"),
        ("german thousands", {"x": lambda i, v: f'"{i % 9 + 1}.045,50"'}, "x: numeric, numbers"),
        ("thousands", {"x": lambda i, v: f'"{i % 9 + 1},045"'}, "x: numeric, numbers written with"),
        (
            "dates",
            {"day": lambda i, v: f"2020-01-{i % 28 + 1:02}"},
            "day: numeric, a date, as days since",
        ),
        ("identifier", {"name": lambda i, v: f"n{i}"}, "name: dropped, an identifier: 60 of 60"),
        ("customer id", {"id": lambda i, v: 7 * i % 61}, "id: dropped, an identifier"),
        ("row number", {"row": lambda i, v: i}, "row: dropped, an identifier: it numbers the rows"),
        ("gaps in text", {"job": at(3, "")}, "job: categorical, 4 values, '?' (missing) in 1 row."),
        ("? in text", {"job": at(3, "?")}, "job: categorical, 4 values, '?' (missing) in 1 row."),
        (
            "NA in text",
            {"job": at(3, "N/A")},
            "job: categorical, 4 values, '?' (missing) in 1 row.",
        ),
        ("constant", {"x": const(3)}, "x: numeric, one value, which tells nothing."),
        ("constant text", {"x": const("k")}, "x: categorical, one value, which tells nothing."),
        ("denormal", {"x": lambda i, v: f"{i}e-320"}, "converged"),
        ("blanks", {"sex": lambda i, v: f" {v} "}, "converged"),
        ("booleans", {"x": lambda i, v: i % 2 == 0}, "Categorical: job, x."),
        (
            "1 and 0",
            {"income": lambda i, v: int(v == "yes")},
            "'1' is the positive one (the larger",
        ),
        ("true", {"income": lambda i, v: v == "yes"}, "'True' is the positive one (it says yes"),
        (
            "approved",
            {"income": lambda i, v: {"yes": "approved", "no": "denied"}[v]},
            "'approved' is the positive one (it says yes",
        ),
        ("bad", {"income": lambda i, v: {"yes": "ok", "no": "bad"}[v]}, "the other says no"),
        (
            "A and B",
            {"income": lambda i, v: {"yes": "B", "no": "A"}[v]},
            "the last in sorted order",
        ),
        (">", {"income": lambda i, v: {"yes": ">5", "no": "<=5"}[v]}, "it begins with '>'"),
    ):
        yield name, people(**column), words


GOOD_LINES = {
    f"fit a.csv b.csv {ROLES} --method fl": "fl converged",
    f"fit a.csv b.csv {ROLES} --method fl --test b.csv": "Held-out rows",
    f"fit a.csv {ROLES} --method fairfl --tau 0.2": "true-positive rate",
    f"fit a.csv {ROLES} --method fairfl --max-rounds 1": "did not converge (outcome 'rounds') after 1 round in",
    f"fit a.csv {ROLES} --method fl --positive no": "'no' is the positive one (as asked)",
    f"fit a.csv {ROLES} --method fl --drop pay": "pay: dropped, as asked.",
    f"fit a.csv {ROLES} --method fl --categorical age": "Categorical: age, job.",
    f"fit x/a.csv y/a.csv {ROLES} --method fl": "y-a",
    f"fit a.csv {ROLES} --method fl --out m.pkl": "'m.pkl' holds safetensors whatever its ending",
    f"fit three.csv {ROLES} --method fl --positive a": "all but 'a' were taken together",
    f"fit rare.csv {ROLES} --method fl": "decides nearly everybody",
    f"fit a.csv {ROLES} --method fl --separator , --encoding utf-8": "converged",
    f"fit one.csv {ROLES} --method fl --client-column job": "carter",
    "predict m.safetensors a.csv": "rows are 'yes'",
    "predict m.safetensors far.csv": "Warning: column 'pay' has 1 value far outside",
    f"fit few.csv {ROLES} --method fl": "member_id: dropped, an identifier",
    f"fit a.csv {ROLES} --limit 0.001; 3": "cannot be claimed",
    f"audit same.csv {ROLES} --predictions score": "check which label is positive",
    "predict m.safetensors a.csv --keep sex": "rows are 'yes'",
    "evaluate m.safetensors a.csv --target income": "majority",
    "evaluate m.safetensors a.csv b.csv --target income --metric equal_opportunity": "equal opportunity",
    "evaluate m.safetensors a.csv --target income --sensitive-features job": "carter",
    f"audit b.csv {ROLES} --sensitive-features job --model m.safetensors": "true-positive rates: carter",
    f"audit b.csv {ROLES} --model m.safetensors --kernels 9": "a constant decision",
    "export m.safetensors --onnx y.onnx": "inputs age",
    "data adult --out o --sites 5": "held-out.csv",
    "methods": "agnosticfair",
    "--version": "agnosticfair",
    "--help": "Train and use",
    "fit --help": "Example: agnosticfair fit",
}


def good():
    for name, content, words in good_files():
        line = f"fit good.csv {ROLES} --method fl"
        yield pytest.param({"good.csv": content}, line, words, id=f"file: {name}")
    for line, words in GOOD_LINES.items():
        yield pytest.param({}, line, words, id=line)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    from agnosticfair.data.files import Roles, read_clients
    from agnosticfair.federation import fit

    folder = tmp_path_factory.mktemp("trained")
    (folder / "t.csv").write_text(people(seed=2))
    clients = read_clients([folder / "t.csv"], Roles("income", ("sex",)))
    return fit(clients, "fl", sensitive_features="sex").model.to_bytes()


@pytest.fixture(scope="module")
def around(tmp_path_factory, trained):
    """A folder with good files, a model, a changed one and an empty folder."""
    middle = len(trained) - 20
    flipped = bytes([*trained[:middle], trained[middle] ^ 1, *trained[middle + 1 :]])
    folder = tmp_path_factory.mktemp("around")
    for inner in ("x", "y", "empty", "c.csv"):
        (folder / inner).mkdir()
    files = {
        **FILES,
        "x/a.csv": GOOD,
        "y/a.csv": FILES["b.csv"],
        "three.csv": people(income=lambda i, v: "abc"[i % 3]),
        "rare.csv": people(200, income=lambda i, v: "yes" if i in (1, 2) else "no"),
        "one.csv": people(200),
        "codes.csv": people(sex=lambda i, v: {"F": "female", "M": "male"}[v]),
        "cooks.csv": people(job=at(3, "butler")),
        "far.csv": people(pay=at(3, "1e6")),
        "few.csv": people(20, member_id=lambda i, v: f"m{i}"),
        "same.csv": people(score=const(0.9)),
        "m.safetensors": trained,
        "x.joblib": b"no model",
        "x.onnx": b"no model",
        "flipped.safetensors": flipped,
    }
    for name, content in files.items():
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch, around):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(around, tmp_path, dirs_exist_ok=True)


def write(files):
    for name, content in files.items():
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize(("files", "line", "words"), [*bad_files()])
def test_a_bad_file_is_one_sentence(call, place, files, line, words):
    write(files)
    assert words in refused(call, *line.split())


@pytest.mark.parametrize(("one_request", "words"), [*bad_lines()])
def test_a_bad_line_is_one_sentence(call, place, one_request, words):
    if not one_request:
        code, out, err = call()
        assert (code, words in out + err) == (2, True)
        return
    assert words in refused(call, *one_request)


@pytest.mark.parametrize(("files", "line", "words"), [*good()])
def test_a_good_line_does_what_is_asked(call, place, files, line, words):
    write(files)
    line, _, ends = line.partition("; ")
    code, out, err = call(*line.split())
    assert code == int(ends or 0), err
    assert words in " ".join(out.split()) or words in out


def test_a_model_stays_where_rows_held_out_do_not_fit(call, place):
    code, _, err = call(
        *f"fit a.csv {ROLES} --method fl --test cooks.csv --out t.safetensors".split()
    )
    assert (code, "'butler'" in err, "'t.safetensors' is written" in err) == (2, True, True)
    assert Path("t-card.html").exists()


def test_the_corpus_is_large():
    assert sum(1 for _ in (*bad_files(), *bad_lines(), *good())) >= 300
