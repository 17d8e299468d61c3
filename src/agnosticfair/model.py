"""The fitted classifier: weights, the encoding they belong to, and where they came from.

A model file is a safetensors file: one array, ``w``, behind a header of JSON. Reading it runs no
code; a network is then built from this package's own table of names. The header holds the SHA-256 of the whole
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
from agnosticfair.data.storage import write_atomically
from agnosticfair.data.table import Column, Table
from agnosticfair.data.trained import Reading, TrainedOn, beside, read_beside
from agnosticfair.data.wire import texts
from agnosticfair.errors import DataError, ModelError
from agnosticfair.mathematics.linear import sigmoid

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
        The recipe's values.
    seed, rows, clients, outcome
        The fit's.
    network : mapping or None
        Its name and widths, where it is one.
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
        told = json.dumps(self.encoding.to_json(), sort_keys=True).encode()
        return sha256(np.ascontiguousarray(self.w).tobytes() + told).hexdigest()

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
        from safetensors.numpy import save

        fields = {k: v for k, v in vars(self).items() if k not in ("w", "encoding", "training")}
        header = {"format": FORMAT, "encoding": self.encoding.to_json(), **fields}
        about = {"agnosticfair": json.dumps(header, default=str), "sha256": _UNSEALED}
        return sealed(_ordered(save({"w": self.w}, about)))

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
            if header is None or names != ["w"]:
                raise ModelError(
                    f"{str(path)!r} is not a model of agnosticfair: name a file written by 'fit'"
                )
            w = file.get_tensor("w")
        _check_seal(path, about.get("sha256", ""))
        found = _parse(json.loads(header), w)
        return replace(found, training=read_beside(Path(path), found.digest))
    except FileNotFoundError:
        raise ModelError(f"there is no model file {str(path)!r}: check the path") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(
            f"{str(path)!r} is not a model of agnosticfair, or it is damaged ({type(error).__name__}): "
            "write it again with 'fit'"
        ) from None


def _parse(header: Any, w: np.ndarray) -> Model:
    if header["format"] != FORMAT:
        raise ModelError(
            f"the model has format {header['format']!r} and this version reads {FORMAT!r}: train it again"
        )
    encoding = Encoding.from_json(header["encoding"])
    network = header.get("network")
    if network is not None:
        network = {"name": str(network["name"]), "hidden": tuple(map(int, network["hidden"]))}
    fits = w.shape == (encoding.width + 1,) if network is None else w.ndim == 1
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
        privacy=_privacy(header.get("privacy")),
        **{k: header[k] for k in _TEXTS},
    )


def _privacy(value: Any) -> dict[str, Any] | None:
    """What a model says of its privacy, if it says something readable."""
    if value is None:
        return None
    texts = ("unit", "worst_part")
    told = {k: str(v) if k in texts else float(v) for k, v in dict(value).items()}
    return {**told, "unit": str(value["unit"])}
