"""A model of somebody else, from its file: a scikit-learn classifier in a pickle, or an ONNX graph.

It sees the rows as pandas reads them, with the texts and the sensitive columns it was fitted on. A pickle runs
code when it is read, so that it is read only where a user says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.inputs import NUMBERS
from agnosticfair.data.encoding import shown
from agnosticfair.data.reading import Dialect, called, detected_dialect
from agnosticfair.errors import DataError, ModelError, SettingsError, needing

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
