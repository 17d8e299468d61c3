"""The fitted classifier: weights, the encoding they belong to, and where they came from.

A model file is a safetensors file: one array, ``w``, or the arrays of a rule, behind a header of JSON. Reading it runs
no code; a network is then built from this package's own table of names. The header holds the SHA-256 of the whole
file (with zeros in its own place), so that a file with a flipped byte is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import agnosticfair
from agnosticfair.data.encoding import Encoding, encode, shown
from agnosticfair.data.records import put_together, taken_apart
from agnosticfair.data.storage import Reading, TrainedOn, beside, read_beside, write_atomically
from agnosticfair.data.table import Table
from agnosticfair.data.wire import texts
from agnosticfair.errors import DataError, ModelError
from agnosticfair.learners import decisions
from agnosticfair.learners.decisions import Decision, Explanation
from agnosticfair.learners.estimates import (
    Estimates,
    check_estimates,
    predict,
    strata,
)
from agnosticfair.learners.local import LOCAL
from agnosticfair.mathematics.linear import sigmoid

FORMAT = "agnosticfair-model-4"
_UNSEALED = "0" * 64


@dataclass(frozen=True)
class Model:
    """A fitted classifier, with all that is needed to use it and to know where it came from.

    Attributes
    ----------
    w : (d + 1,) array
        The intercept last; of a network all weights in one vector, the inputs' centre and scale first.
    encoding : Encoding
        How a row becomes x.
    positive, negative : str
        The labels.
    sensitive_features, groups : tuple of str
        What the fit protected.
    method : mapping
        The method's values.
    seed, rows, clients, outcome
        The fit's.
    network : mapping or None
        Its name and widths, where it is one.
    estimates, rule : Estimates and Decision, or None
        Of a rule, whose ``w`` is empty: the learner of all rows, and how it decides.
    privacy : mapping or None
        Epsilon and delta that the fit spent, of whom, and what is certified under its noise.
    version : str
        Of the package that made it.
    training : TrainedOn or None
        By which rows of the fit are known again, where they were in reach. It is secret: no part of the model file,
        and kept beside it.
    """

    w: np.ndarray
    encoding: Encoding
    positive: str
    negative: str
    sensitive_features: tuple[str, ...]
    groups: tuple[str, ...]
    method: Mapping[str, Any]
    seed: int = 0
    rows: int = 0
    clients: int = 0
    outcome: str = ""
    network: Mapping[str, Any] | None = None
    estimates: Estimates | None = None
    rule: Decision | None = None
    privacy: Mapping[str, Any] | None = None
    version: str = field(default=agnosticfair.__version__)
    training: TrainedOn | None = field(default=None, compare=False, repr=False)

    @property
    def joined(self) -> bool:
        """Whether there were more than two labels: all but the positive one are one."""
        return self.negative == f"other than {self.positive}"

    @property
    def sensitive_feature(self) -> str:
        """The sensitive features in one name."""
        return " & ".join(self.sensitive_features)

    @property
    def digest(self) -> str:
        """What tells one model from another: its weights and the encoding of its columns."""
        plain, arrays = self._pieces
        about = {k: plain[k] for k in ("encoding", "estimates", "rule") if k in plain}
        numbers = b"".join(np.ascontiguousarray(arrays[k]).tobytes() for k in sorted(arrays))
        return sha256(numbers + json.dumps(about, sort_keys=True).encode()).hexdigest()

    @property
    def _pieces(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """What stands in a model file: plain values and arrays."""
        return taken_apart(replace(self, training=None))

    @property
    def further_columns(self) -> tuple[str, ...]:
        """The columns that decisions hang on beside the features; none without a rule."""
        if self.rule is None or self.estimates is None:
            return ()
        return decisions.further_columns(self.rule, self.estimates, self.encoding)

    def explain(self, table: Table, who: str = "the data") -> Explanation:
        """What every row's score is made of, where the model is a rule.

        Parameters
        ----------
        table, who : as in ``decision``
        """
        if self.rule is None or self.estimates is None:
            raise ModelError(
                f"a model of method {self.method.get('name')!r} has no rule to explain: train one with method 'rule'"
            )
        P = predict(self.estimates, self.encoding, self.estimates.folds, table, who)
        row_weights = decisions.weighing(self.rule, self.encoding, table, who)
        return decisions.explain(self.rule, self.estimates, P, row_weights)

    @property
    def reading(self) -> Reading:
        """How it reads a row and its label."""
        return Reading(self.encoding, self.positive)

    def decision(self, table: Table, who: str = "the data") -> np.ndarray:
        """Signed distances d_w(x), positive where the model says ``positive``.

        Parameters
        ----------
        table : Table
            Needs no label and no groups.
        who : str
            Names the rows in errors.

        Returns
        -------
        (n,) array
        """
        if self.rule is not None and self.estimates is not None:
            return decisions.scores(self.rule, self.estimates, self.encoding, table, who)
        return self.scores(encode(self.encoding, table, who))

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Signed distances of rows that are encoded already.

        Parameters
        ----------
        X : (n, d) array

        Returns
        -------
        (n,) array
        """
        if self.rule is not None:
            raise ModelError(
                "a rule decides from a table's columns, not from encoded rows: use decision(table)"
            )
        if self.network is None:
            return X @ self.w[:-1] + self.w[-1]
        from agnosticfair.networks import decide

        return decide(self.network["name"], self.network["hidden"], self.w, X)

    def probabilities(self, table: Table, who: str = "the data") -> np.ndarray:
        """Probability of the positive label.

        Parameters
        ----------
        table, who : as in ``decision``

        Returns
        -------
        (n,) array
            Between 0 and 1.
        """
        if self.estimates is not None:
            return predict(self.estimates, self.encoding, self.estimates.folds, table, who)[0]
        return sigmoid(self.decision(table, who))

    def predict(self, table: Table, who: str = "the data") -> np.ndarray:
        """Decisions.

        Parameters
        ----------
        table, who : as in ``decision``

        Returns
        -------
        (n,) array of int
            1 for the positive label, 0 for the other one.
        """
        return (self.decision(table, who) > 0).astype(np.int64)

    def to_bytes(self) -> bytes:
        """The model file: a function of the fit alone."""
        if self.estimates is not None and self.estimates.kind.startswith(LOCAL):
            raise ModelError(
                f"{self.estimates.kind!r} lives in this process, and a model file holds no code: write its "
                "probabilities into a column, and train with probability"
            )
        from safetensors.numpy import save

        plain, arrays = self._pieces
        header = json.dumps({"format": FORMAT, "model": plain}, default=str)
        arrays = {k: np.ascontiguousarray(v) for k, v in arrays.items()}
        return sealed(_ordered(save(arrays, {"agnosticfair": header, "sha256": _UNSEALED})))

    def save(self, path: str | Path) -> None:
        """Write the model file, whole or not at all; and beside it, readable by its owner alone, what knows the rows of
        the fit again (``model.trained-on.json``), which is not to be passed on with the model.

        Parameters
        ----------
        path : str or Path
        """
        try:
            write_atomically({Path(path): self.to_bytes()})
            if self.training is not None:
                text = self.training.to_json(self.digest)
                write_atomically({beside(Path(path)): f"{text}\n".encode()}, 0o600)
        except OSError as error:
            raise ModelError(f"cannot write the model to {str(path)!r}: {error.strerror}") from None


def _ordered(content: bytes) -> bytes:
    """A safetensors file with the entries of its header in their order, which the library leaves to chance."""
    end = 8 + int.from_bytes(content[:8], "little")
    header = json.dumps(json.loads(content[8:end]), sort_keys=True).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + content[end:]


def sealed(content: bytes) -> bytes:
    """A model file with its checksum in the place of the zeros."""
    return content.replace(_UNSEALED.encode(), sha256(content).hexdigest().encode(), 1)


def _check_seal(path: str | Path, seal: str) -> None:
    content = Path(path).read_bytes()
    if len(seal) != 64 or sealed(content.replace(seal.encode(), _UNSEALED.encode(), 1)) != content:
        raise ModelError(
            f"{str(path)!r} is not as it was written (its checksum differs): copy it again, or write "
            "it again with 'fit'"
        )


def check_labels(model: Model, labels: Iterable[str], what: str = "the target") -> None:
    """Raise if a label is none of the model's.  what: names the column."""
    known = (model.negative, model.positive)
    strange = sorted({*labels} - {*known})
    if strange and not model.joined:
        raise DataError(
            f"{what} has the label {shown(strange)}, unknown to the model: write {shown(known)}"
        )


def load_model(path: str | Path) -> Model:
    """Read a model file; anything that is not one, or was changed since, is refused with a sentence.

    Parameters
    ----------
    path : str or Path

    Examples
    --------
    >>> load_model("nowhere.safetensors")
    Traceback (most recent call last):
    agnosticfair.errors.ModelError: there is no model file 'nowhere.safetensors': check the path
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            about, names = file.metadata() or {}, list(file.keys())
            header = about.get("agnosticfair")
            if header is None or "w" not in names:
                raise ModelError(
                    f"{str(path)!r} is not a model of agnosticfair: name a file written by 'fit'"
                )
            arrays = {name: file.get_tensor(name) for name in names}
        _check_seal(path, about.get("sha256", ""))
        model = _parse(json.loads(header), arrays)
        return replace(model, training=read_beside(Path(path), model.digest))
    except FileNotFoundError:
        raise ModelError(f"there is no model file {str(path)!r}: check the path") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{str(path)!r} is not a model of agnosticfair, or it is damaged ({type(error).__name__}): "
            "write it again with 'fit'"
        ) from None


def _parse(header: Any, arrays: Mapping[str, np.ndarray]) -> Model:
    """The model of a file, which is not trusted: ValueError, KeyError or TypeError for what is none."""
    if header["format"] != FORMAT:
        raise ModelError(
            f"the model has format {header['format']!r} and this version reads {FORMAT!r}: train it again"
        )
    model = put_together(Model, header["model"], arrays)
    if model.network is not None:
        name, hidden = str(model.network["name"]), tuple(map(int, model.network["hidden"]))
        model = replace(model, network={"name": name, "hidden": hidden})
    w, width = model.w, model.encoding.width + 1 if model.rule is None else 0
    fits = w.shape == (width,) if model.network is None else w.ndim == 1
    if not fits or w.dtype != np.float64 or not np.isfinite(w).all():
        raise ModelError(
            f"the model has weights of shape {w.shape} for {model.encoding.width} features: write it again with 'fit'"
        )
    texts(model.sensitive_features, "sensitive_features")
    texts(model.groups, "groups")
    if (model.rule is None) != (model.estimates is None):
        raise ValueError("a rule without estimates, or estimates without a rule")
    if model.rule is not None and model.estimates is not None:
        check_estimates(model.estimates, model.encoding)
        strata_there = len(strata(model.estimates.heads))
        decisions.check_decision(model.rule, model.encoding, strata_there)
    return replace(model, privacy=_privacy(model.privacy))


def _privacy(value: Any) -> dict[str, Any] | None:
    """What a model says of its privacy, if it says something readable."""
    if value is None:
        return None
    fields = dict(value)
    subgroups = [
        [str(name), *map(float, numbers)] for name, *numbers in fields.pop("subgroups", ())
    ]
    values = {k: str(v) if k == "unit" else float(v) for k, v in fields.items()}
    return {**values, "unit": str(value["unit"]), "subgroups": subgroups}
