"""What users hand over - arrays, frames, tables, models, labels of any kind - as plain arrays.

A model of somebody else comes from its file: a scikit-learn classifier in a pickle, or an ONNX graph. It sees the rows
as pandas reads them, with the texts and the sensitive columns it was fitted on. A pickle runs code when it is read, so
that it is read only where a user says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, time, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data.encoding import FEATURE_BITS, Encoding, encode, shown
from agnosticfair.data.reading import Dialect, called, detected_dialect
from agnosticfair.data.summary import (
    SummaryStatistics,
    encoding_of,
    number_in,
    positive_label,
    summary_statistics,
)
from agnosticfair.data.table import DATED, Column, Table
from agnosticfair.errors import DataError, ModelError, SettingsError, needing
from agnosticfair.mathematics.linear import on_grid, units
from agnosticfair.model import Model, check_labels

MISSING = {"None", "nan", "NaN", "<NA>", "NaT"}
NUMBERS = "biuf"
BITS = {"0", "1", "False", "True"}


@dataclass(frozen=True)
class KernelInputs:
    """x in the units of the kernels: ``at(rows)`` is (k, d); low + span * x is in the user's units."""

    names: tuple[str, ...]
    low: np.ndarray
    span: np.ndarray
    n: int
    at: Callable[[slice], np.ndarray]


def features(X: Any, encoding: Encoding | None = None) -> KernelInputs:
    """The features of a table, encoded, or of rows of numbers, (n, d), scaled to [0, 1] by their range.

    Rows of numbers are not copied.  encoding: a table's, by default the one it would agree on alone.

    >>> features(np.array([[2.0], [3.0], [6.0]])).at(slice(0, 2))
    array([[0.  ],
           [0.25]])
    """
    if isinstance(X, Table):
        # not every table has a target
        unlabelled = replace(X, target=Column(np.zeros(len(X), np.int32), ("",)))
        encoding = encoding or encoding_of(summary_statistics(unlabelled, "X"))
        encoded = encode(encoding, X, who="X")
        ends = [(low, high - low) for _, low, high in encoding.numeric if encoding.scale]
        ends += [(0.0, 1.0)] * (encoding.width - len(ends))
        low, span = np.array(ends).reshape(-1, 2).T
        return KernelInputs(encoding.names, low, span, len(X), encoded.__getitem__)
    if encoding is not None:
        raise DataError(
            f"the model reads a Table, not {type(X).__name__}: read the rows with 'read_rows'"
        )
    names = getattr(X, "columns", ())
    if any(np.asarray(X[name]).dtype.kind not in NUMBERS for name in names):
        return features(table_of(X))
    values, names = _numbers(X)
    low, high = values.min(axis=0).astype(float), values.max(axis=0).astype(float)
    for name, *ends in zip(names, low, high, strict=True):
        _check_finite(ends, name)
    low, span = units(low, high)

    def at(rows: slice) -> np.ndarray:  # on the grid other units give the same numbers
        return on_grid((values[rows] - low) / span, FEATURE_BITS)

    return KernelInputs(names, low, span, len(values), at)


def _check_finite(values: Any, name: str) -> np.ndarray:
    """The numbers of a column, (n,), all of which are finite."""
    numbers = np.asarray(values, float)
    if not np.isfinite(numbers).all():
        raise DataError(f"column {name!r} of X has values that are not finite: fill or drop them")
    return numbers


def table_of(X: Any) -> Table:
    """Rows and columns as a table: numbers as they are, dates in days, everything else as categories by their names.

    >>> table_of(np.array([[1.0, 2.0]])).kinds
    {'0': 'numeric', '1': 'numeric'}
    """
    if not hasattr(X, "columns"):
        values, names = _numbers(X)
        columns = {name: _check_finite(values[:, k], name) for k, name in enumerate(names)}
        return Table(columns, {}, None, {})
    numeric: dict[str, np.ndarray] = {}
    categorical: dict[str, Column] = {}
    dates: list[str] = []
    for name in X.columns:
        values = typed(X[name], f"column {str(name)!r} of X")
        if values.dtype.kind in NUMBERS and values.dtype.kind != "b":
            numeric[str(name)] = _check_finite(values, str(name))
        elif values.dtype.kind == "M":
            numeric[str(name)] = days(values)
            dates.append(str(name))
        else:
            categorical[str(name)] = Column.of(map(name_of, values))
    return Table(numeric, categorical, None, {}, how=dict.fromkeys(dates, DATED))


def as_frame(X: Any) -> Any:
    """A frame whose columns can be looked at: a lazy one is collected, a table of Arrow becomes a pandas frame."""
    kind = type(X).__module__.partition(".")[0], type(X).__name__
    if kind == ("polars", "LazyFrame"):
        return X.collect()
    if kind in (("pyarrow", "Table"), ("pyarrow", "RecordBatch")):
        with needing("audit", "a table of Arrow is read by the package 'pandas'"):
            return X.to_pandas()
    return X


def typed(values: Any, what: str) -> np.ndarray:
    """The values of a column as numbers, times without a zone (UTC), or texts; timedeltas are days.

    >>> typed([date(1970, 1, 2), None], "a column").astype(str).tolist()
    ['1970-01-02T00:00:00.000000', 'NaT']
    >>> typed(np.array([36], "m8[h]"), "a column")
    array([1.5])
    """
    array = np.asarray(values)
    if array.dtype.kind == "O":
        array = _of_objects(array, what)
    if array.dtype.kind in "cV" or array.ndim != 1:
        raise DataError(f"{what} holds {array.dtype} values: take their parts apart, or drop it")
    if array.dtype.kind == "m":
        return np.where(np.isnat(array), np.nan, array / np.timedelta64(1, "D"))
    return array


def _of_objects(array: np.ndarray, what: str) -> np.ndarray:
    """Times and timedeltas that stand among objects; others as they are, unless they are no single values."""
    there = [value for value in array.tolist() if name_of(value) != "nan"]
    kinds = {type(value).__name__ for value in there}
    if any(
        isinstance(value, list | tuple | dict | set | np.ndarray | complex | time)
        for value in there
    ):
        raise DataError(
            f"{what} holds {shown(sorted(kinds))} values: give one number, date or text per row, or drop it"
        )
    if there and kinds == {"Period"}:
        return np.array([getattr(v, "start_time", None) for v in array], "M8[us]")
    if there and all(isinstance(value, date) for value in there):
        return np.array(
            [_without_zone(v) if name_of(v) != "nan" else None for v in array], "M8[us]"
        )
    if there and all(isinstance(value, timedelta) for value in there):
        return np.array([v if name_of(v) != "nan" else None for v in array], "m8[us]")
    return array


def _without_zone(value: Any) -> Any:
    zoned = getattr(value, "tzinfo", None) is not None
    return value.astimezone(UTC).replace(tzinfo=None) if zoned else value


def days(values: np.ndarray) -> np.ndarray:
    """Dates as days since 1970, (n,); NaN where they are missing.

    >>> days(np.array(["1970-01-02T12:00"], "M8[us]"))
    array([1.5])
    """
    numbers = values.astype("datetime64[us]").astype(float) / 86_400e6
    return np.where(np.isnat(values), np.nan, numbers)


def _numbers(X: Any) -> tuple[np.ndarray, tuple[str, ...]]:
    """X as an array of numbers, (n, d), not copied where it is one; and the names of its columns."""
    columns = getattr(X, "columns", None)
    values = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X)
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(
            f"X has shape {values.shape}: give rows and columns, (n, d), at least one each"
        )
    names = tuple(map(str, range(values.shape[1]) if columns is None else columns))
    if values.dtype.kind in NUMBERS:
        return values, names
    numbers = np.empty(values.shape)
    for k, name in enumerate(names):
        try:
            numbers[:, k] = values[:, k].astype(float)
        except (TypeError, ValueError):
            raise DataError(
                f"column {name!r} of X is not numbers: encode it (one column per category), fill what "
                "is missing, or give a Table"
            ) from None
    return numbers, names


def column(values: Any, what: str, n: int) -> np.ndarray:
    """Values as an array (n,), or the sentence that says why they are not."""
    array = np.asarray(values)
    array = array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array
    if array.ndim != 1:
        raise DataError(f"{what} has shape {array.shape}: give one value per row")
    if len(array) != n:
        raise DataError(f"{what} has {len(array)} values and X {n} rows: give one value per row")
    return array


def name_of(value: Any) -> str:
    """A label or group as text; 1.0 and 1 are the same, and so are all ways to say 'missing'.

    >>> name_of(1.0), name_of("1"), name_of(True), name_of(None)
    ('1', '1', 'True', 'nan')
    """
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "nan" if not isinstance(value, str) and str(value) in MISSING else str(value)


def codes(values: Any, what: str, n: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Values of any kind as codes (n,) into their names, which are sorted.

    >>> codes(["b", "a", "b"], "y", 3)
    (array([1, 0, 1]), ('a', 'b'))
    """
    array = column(values, what, n)
    if array.dtype.kind in NUMBERS + "U":
        distinct, place = np.unique(array, return_inverse=True)
        names = [name_of(value) for value in distinct.tolist()]
    else:
        texts = [name_of(value) for value in array]
        names = sorted({*texts})
        place = np.array([*map({name: k for k, name in enumerate(names)}.__getitem__, texts)])
    if "nan" in names:
        raise DataError(f"{what} has missing values: fill them or drop these rows")
    return place, tuple(names)


def positive_of(names: Iterable[str], positive: object) -> str:
    """The label that counts as 1: the one named, 1 of 0 and 1, else as ``positive_label`` has it."""
    if positive is None and {*names} <= {"0", "1"}:
        return "1"
    wanted = None if positive is None else name_of(positive)
    return positive_label(SummaryStatistics(0, dict.fromkeys(names, 1), {}, {}, {}), wanted)


def labels_and_decisions(
    predictions: Any, X: Any, y: Any, n: int, *, positive: object = None, threshold: float = 0.5
) -> tuple[np.ndarray | None, np.ndarray]:
    """Which rows have the positive label (None without labels), and which are decided positively.

    predictions: decisions, probabilities or labels, (n,), or what predicts them of X.  Values that are all
    labels are labels; other numbers are decisions or probabilities.  Two columns are the probabilities of the
    labels in sorted order, as scikit-learn has them.
    """
    if y is None and isinstance(X, Table) and X.target is not None:
        y = X.target.values()
    y_codes, y_names = (None, ()) if y is None else codes(y, "y", n)
    if isinstance(predictions, Model):
        check_labels(predictions, y_names)
        decided, positive = predictions.predict(X) > 0, predictions.positive
    else:
        classes = [*map(name_of, np.asarray(getattr(predictions, "classes_", ())).tolist())]
        if {*classes} <= BITS:  # of a model that was fitted on y == a label
            classes = [] if y_names else classes
        names, guessed = {*y_names, *classes}, positive is None
        if names or positive is not None:
            positive = positive_of(sorted(names) or [name_of(positive)], positive)
        raw = predictions.predict(X) if hasattr(predictions, "predict") else predictions
        raw = predictions(X) if callable(raw) else raw
        values = _of_two(raw, classes or sorted(names), positive)
        if guessed and not classes and values is raw:
            _check_unambiguous(raw, names, positive)
        decided = _decided(column(values, "predictions", n), names, positive, threshold)
    if y_codes is None:
        return None, decided
    return np.array([name == positive for name in y_names])[y_codes], decided


def _check_unambiguous(raw: Any, labels: set[str], positive: Any) -> None:
    """Raise where numbers may be the probabilities of either label: of the one that says yes, or of the last."""
    values, last = np.asarray(raw), max(labels, default=None)
    if values.dtype.kind not in NUMBERS or positive == last or last is None:
        return
    if all(number_in(label) is not None for label in labels):
        return
    raise DataError(
        f"the predictions are numbers, and may be of the label {positive!r}, which says yes, or of {last!r}, the last "
        "one: name it by positive (--positive)"
    )


def _of_two(raw: Any, classes: Sequence[str], positive: Any) -> Any:
    """Probabilities of two classes, (n, 2), as those of the positive one; anything else as it is."""
    values = np.asarray(raw)
    if values.ndim != 2 or values.shape[1] != 2 or values.dtype.kind not in NUMBERS:
        return raw
    if not np.allclose(values.sum(axis=1), 1.0, atol=1e-3):
        raise DataError(
            "predictions have two columns whose rows do not add up to 1: give probabilities of two classes, "
            "or one value per row"
        )
    return values[:, classes.index(positive) if positive in classes else 1]


def _decided(values: np.ndarray, labels: set[str], positive: Any, threshold: float) -> np.ndarray:
    if values.dtype.kind == "O":
        with suppress(TypeError, ValueError):
            values = values.astype(float)
    if values.dtype.kind not in NUMBERS:
        place, names = codes(values, "predictions", len(values))
        unknown = {*names} - labels if labels or positive is None else ()
        if strange := sorted(unknown):
            raise DataError(
                f"predictions have the value {shown(strange)}, which y has not: give the labels of y, "
                "0 and 1, or probabilities"
            )
        return np.array([name == positive for name in names])[place]
    if values.dtype.kind == "b" and labels and labels <= {"False", "True"}:
        return values == (positive == "True")
    read = [number_in(label) for label in labels]
    numbers = [value for value in read if value is not None and np.isfinite(value)]
    if numbers and len(numbers) == len(labels) and np.isin(values, numbers).all():
        return values == float(positive)
    outside = values[~((values >= 0) & (values <= 1))]  # NaN among them
    if len(outside):
        raise DataError(
            f"{len(outside)} predictions are outside [0, 1], the first is {outside[0]:g}: give 0 and 1, "
            "probabilities, or the labels of y"
        )
    return values > threshold


PICKLES = (".joblib", ".pkl", ".pickle")
ONNX = ".onnx"
EXTRA = "audit"
TENSORS = {"double": np.float64, "float": np.float32, "int64": np.int64, "int32": np.int32}


def is_foreign(path: Path) -> bool:
    """Whether a file is, by its ending and its first bytes, no model of ours.

    >>> is_foreign(Path("classifier.onnx")), is_foreign(Path("model.safetensors"))
    (True, False)
    """
    if path.suffix.lower() not in (*PICKLES, ONNX):
        return False
    if not path.is_file():
        return True
    with path.open("rb") as file:
        # a safetensors file: a length, then JSON, whatever its ending says
        return file.read(9)[8:] != b"{"


def load_foreign(path: Path, trust_code: bool = False) -> Any:
    """What predicts: a classifier by joblib, or a session over an ONNX graph.

    trust_code: a pickle may run its code.
    """
    if not path.is_file():
        raise ModelError(f"there is no model file {str(path)!r}: check the path")
    if path.suffix.lower() == ONNX:
        return _session(path)
    if not trust_code:
        raise SettingsError(
            f"{path.name!r} is a pickle, and reading one runs the code of whoever wrote it: allow that by "
            "--trust-code, or give its predictions by --predictions"
        )
    with needing(EXTRA, "pickles are read by the package 'joblib'"):
        import joblib
    try:
        model = joblib.load(path)
    except Exception as error:  # whatever the code in it does
        raise ModelError(
            f"{path.name!r} cannot be read ({_message(error)}): write it anew"
        ) from None
    if not hasattr(model, "predict"):
        raise ModelError(
            f"{path.name!r} holds a {type(model).__name__}, which does not predict: save the classifier"
        )
    return model


def read_frame(path: Path, dialect: Dialect) -> Any:
    """The rows of a file as pandas reads them; separator and encoding as given or detected."""
    with needing(EXTRA, "another's model reads rows by the package 'pandas'"):
        import pandas as pd
    if path.suffix.lower() == ".parquet":
        return pd.read_parquet(path)
    written = detected_dialect(path, dialect, called(path))
    return pd.read_csv(path, sep=written.separator, encoding=written.encoding)


def predictions_of(model: Any, frame: Any, target: str, *, threshold: float = 0.5) -> np.ndarray:
    """What a model decides on every row: labels, 0 and 1, or probabilities, (n,) or (n, 2).

    A threshold other than a half is for probabilities, which a classifier is then asked for: one column of a
    model of 0 and 1, two in the order of its labels of another.
    """
    if hasattr(model, "get_inputs"):
        return _run(model, frame, target)
    wanted = getattr(model, "feature_names_in_", None)
    _check_there(() if wanted is None else wanted, frame)
    rows = frame.drop(columns=target) if wanted is None else frame[list(wanted)]
    if threshold != 0.5 and not hasattr(model, "predict_proba"):
        raise SettingsError(f"threshold {threshold:g} needs probabilities, and the model has none")
    predict = model.predict if threshold == 0.5 else model.predict_proba
    predictions = _answered(predict, rows)
    of_bits = predictions.ndim == 2 and np.asarray(model.classes_).dtype.kind in NUMBERS
    return predictions[:, 1] if of_bits else predictions


def _session(path: Path) -> Any:
    with needing(EXTRA, "ONNX files are run by the package 'onnxruntime'"):
        import onnxruntime
    onnxruntime.set_default_logger_severity(4)  # what is wrong is raised, too
    try:
        return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError(
            f"{path.name!r} is no ONNX model ({_message(error)}): write it anew"
        ) from None


def _run(session: Any, frame: Any, target: str) -> np.ndarray:
    """The first output for inputs that are columns, or for one that is all columns but the target."""
    inputs = session.get_inputs()
    if len(inputs) == 1 and inputs[0].name not in frame.columns:
        fed = {inputs[0].name: _tensor(inputs[0], frame.drop(columns=target))}
    else:
        _check_there([one.name for one in inputs], frame)
        fed = {one.name: _tensor(one, frame[one.name]) for one in inputs}
    return _answered(lambda feed: session.run(None, feed)[0], fed)


def _check_there(wanted: Iterable[str], frame: Any) -> None:
    if absent := [name for name in wanted if name not in frame.columns]:
        raise DataError(f"the model reads the column {shown(absent)}, which is not there: add it")


def _answered(predict: Callable[[Any], Any], rows: Any) -> np.ndarray:
    try:
        return np.asarray(predict(rows))
    except Exception as error:  # whatever the code in it does
        raise DataError(
            f"the model cannot decide on these rows ({_message(error)}): give the columns that it was fitted on"
        ) from None


def _tensor(one: Any, values: Any) -> np.ndarray:
    """Columns as an input wants them: texts or numbers, (n,), (n, 1) or (n, d)."""
    kind = one.type.removeprefix("tensor(").removesuffix(")")
    try:
        if kind == "string":
            texts = values.fillna("?").astype(str).to_numpy(dtype=object)
        else:
            texts = values.to_numpy(dtype=TENSORS[kind])
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"the model's input {one.name!r} is {kind}, and the columns given to it are not: convert them"
        ) from None
    return texts[:, None] if texts.ndim < len(one.shape) else texts


def _message(error: Exception) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    return text if len(text) <= 160 else f"{text[:159]}…"
