"""The fitted classifier: weights, the encoding they belong to, and where they came from.

A model file is a safetensors file: one array, ``w``, or the arrays of a rule, behind a header of JSON. Reading it runs
no code; a network is then built from this package's own table of names. The header holds the SHA-256 of the whole
file (with zeros in its own place), so that a file with a flipped byte is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

import agnosticfair
from agnosticfair.data.encoding import Encoding, encode, shown
from agnosticfair.data.storage import Reading, TrainedOn, beside, read_beside, write_atomically
from agnosticfair.data.table import Column, Table
from agnosticfair.data.wire import texts
from agnosticfair.errors import DataError, ModelError
from agnosticfair.learners import decisions
from agnosticfair.learners.decisions import Decision, Explanation
from agnosticfair.learners.estimates import (
    Estimates,
    from_header,
    learned,
    learner_of,
    predict,
    strata,
    to_header,
)
from agnosticfair.learners.local import LOCAL
from agnosticfair.mathematics.linear import sigmoid
from agnosticfair.mathematics.subgroups import checked_subgroups

FORMAT = "agnosticfair-model-3"
_UNSEALED = "0" * 64
_TEXTS = ("positive", "negative", "outcome", "version")


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
    def sensitive_feature(self) -> str:
        """The sensitive features in one name."""
        return " & ".join(self.sensitive_features)

    @property
    def digest(self) -> str:
        """What tells one model from another: its weights and the encoding of its columns."""
        header = json.dumps([self.encoding.to_json(), self._rule()], sort_keys=True).encode()
        if self.rule is None:
            header = json.dumps(self.encoding.to_json(), sort_keys=True).encode()
        arrays = self._arrays()
        numbers = b"".join(np.ascontiguousarray(arrays[k]).tobytes() for k in sorted(arrays))
        return sha256(numbers + header).hexdigest()

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

        Returns
        -------
        Explanation
        """
        if self.rule is None or self.estimates is None:
            raise ModelError(
                f"a model of method {self.method.get('name')!r} has no rule to explain: train one with method 'rule'"
            )
        P = predict(self.estimates, self.encoding, self.estimates.folds, table, who)
        row_weights = decisions.weighing(self.rule, self.encoding, table, who)
        return decisions.explain(self.rule, self.estimates, P, row_weights)

    def _arrays(self) -> dict[str, np.ndarray]:
        """All arrays, by name."""
        arrays = {"w": self.w}
        if self.estimates is not None and self.rule is not None:
            arrays |= {f"estimates.{k}": v for k, v in self.estimates.arrays.items()}
            arrays["coefficients"] = self.rule.coefficients
            if self.rule.weights is not None:
                arrays["weights"] = self.rule.weights
            if self.rule.subgroups is not None:
                arrays["subgroups"] = np.asarray(self.rule.subgroups.values, float)
            if self.rule.kernels is not None and self.rule.kernels.centres is not None:
                arrays["centres"] = self.rule.kernels.centres
        return arrays

    def _rule(self) -> dict[str, Any] | None:
        """A rule as JSON has it, without its arrays."""
        if self.estimates is None or self.rule is None:
            return None
        axes = None if self.rule.subgroups is None else self.rule.subgroups.axes
        fields = {"error_costs": self.rule.error_costs, "shift": self.rule.shift, "axes": axes}
        if self.rule.kernels is not None:
            fields["kernels"] = decisions.to_header(self.rule.kernels)
        return {**fields, "estimates": to_header(self.estimates)}

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

        apart = ("w", "encoding", "estimates", "rule", "training")
        fields = {k: v for k, v in vars(self).items() if k not in apart}
        header = {"format": FORMAT, "encoding": self.encoding.to_json(), **fields}
        if self.rule is not None:
            header["rule"] = self._rule()
        about = {"agnosticfair": json.dumps(header, default=str), "sha256": _UNSEALED}
        arrays = {k: np.ascontiguousarray(v) for k, v in self._arrays().items()}
        return sealed(_ordered(save(arrays, about)))

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


def check_labels(model: Model, labels: Column, what: str) -> None:
    """Raise if a label is none of the model's.  what: names the column."""
    known = (model.negative, model.positive)
    strange = sorted({labels.categories[k] for k in np.unique(labels.codes)} - {*known})
    if strange and model.negative != f"not {model.positive}":
        raise DataError(
            f"{what} has the label {shown(strange)}, unknown to the model: write {shown(known)}"
        )


def load_model(path: str | Path) -> Model:
    """Read a model file; anything that is not one, or was changed since, is refused with a sentence.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Model

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
        model = _parse(json.loads(header), arrays.pop("w"), arrays)
        return replace(model, training=read_beside(Path(path), model.digest))
    except FileNotFoundError:
        raise ModelError(f"there is no model file {str(path)!r}: check the path") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{str(path)!r} is not a model of agnosticfair, or it is damaged ({type(error).__name__}): "
            "write it again with 'fit'"
        ) from None


def _parse(header: Any, w: np.ndarray, arrays: Mapping[str, np.ndarray]) -> Model:
    if header["format"] != FORMAT:
        raise ModelError(
            f"the model has format {header['format']!r} and this version reads {FORMAT!r}: train it again"
        )
    encoding = Encoding.from_json(header["encoding"])
    network = header.get("network")
    if network is not None:
        network = {"name": str(network["name"]), "hidden": tuple(map(int, network["hidden"]))}
    estimates, rule = _parse_rule(header.get("rule"), encoding, arrays)
    width = encoding.width + 1 if rule is None else 0
    fits = w.shape == (width,) if network is None else w.ndim == 1
    if not fits or w.dtype != np.float64 or not np.isfinite(w).all():
        raise ModelError(
            f"the model has weights of shape {w.shape} for {encoding.width} features: write it again with 'fit'"
        )
    if not all(isinstance(header[k], str) for k in _TEXTS) or not isinstance(
        header["method"], dict
    ):
        raise ValueError("header")
    return Model(
        w=w,
        encoding=encoding,
        method=header["method"],
        sensitive_features=texts(header["sensitive_features"], "sensitive_features"),
        groups=texts(header["groups"], "groups"),
        seed=int(header["seed"]),
        rows=int(header["rows"]),
        clients=int(header["clients"]),
        network=network,
        estimates=estimates,
        rule=rule,
        privacy=_privacy(header.get("privacy")),
        **{k: header[k] for k in _TEXTS},
    )


def _parse_rule(
    header: Any, encoding: Encoding, arrays: Mapping[str, np.ndarray]
) -> tuple[Estimates | None, Decision | None]:
    """A rule from its header and its arrays, which are not trusted; ValueError for what is none."""
    if header is None:
        if arrays:
            raise ValueError("arrays")
        return None, None
    estimate_arrays = {
        k.removeprefix("estimates."): v for k, v in arrays.items() if k.startswith("estimates.")
    }
    estimates = from_header(header["estimates"], estimate_arrays)
    if learned(estimates):
        learner_of(estimates.kind).check(estimate_arrays, encoding, len(learned(estimates)))
    A, axes, subgroups = arrays["coefficients"], header["axes"], arrays.get("subgroups")
    named = None if axes is None or subgroups is None else checked_subgroups(axes, subgroups)
    K, of_kernels = 1 if named is None else len(named.values) + 1, None
    if header.get("kernels") is not None and named is None:
        of_kernels = decisions.from_header(header["kernels"], arrays.get("centres"), encoding)
        K = of_kernels.size + 1
    fits = A.shape == (K, len(strata(estimates.heads))) and A.dtype == np.float64
    low, high = (float(v) for v in header["error_costs"])
    numbers = np.array([low, high, float(header["shift"])])
    expected = {"coefficients"} | ({"subgroups"} if named is not None else set())
    if of_kernels is not None and of_kernels.centres is not None:
        expected.add("centres")
    W = arrays.get("weights")
    if W is not None:
        expected.add("weights")
        fits = fits and W.shape == (K,) and W.dtype == np.float64 and bool(np.isfinite(W).all())
    strange = {k for k in arrays if not k.startswith("estimates.")} - expected
    if not fits or strange or not np.isfinite(A).all() or not np.isfinite(numbers).all():
        raise ValueError("the rule's coefficients")
    return estimates, Decision((low, high), A, float(header["shift"]), named, of_kernels, W)


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
