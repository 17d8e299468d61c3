"""Kernels and clients as weight functions of a rule: the same numbers for a row, at a client as in a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from agnosticfair.data.encoding import FEATURE_BITS, Encoding, encode
from agnosticfair.data.table import Table
from agnosticfair.mathematics.basis import Basis, design, is_apart, is_centred, kernel_width, width
from agnosticfair.mathematics.linear import on_grid

KERNEL_BITS = 14
"""A weight is a multiple of 2^-14."""


@dataclass(frozen=True)
class Kernels:
    """Weight functions that are no subgroups.

    Parameters
    ----------
    basis : Basis
        Gaussians, or one for each client.
    clients : tuple of str
        Those of the fit.
    centres : (M, d) array or None
        Of the Gaussians, in the space of the columns without their bins.
    """

    basis: Basis
    clients: tuple[str, ...] = ()
    centres: np.ndarray | None = None

    @property
    def size(self) -> int:
        """How many there are."""
        return width(self.basis, self.clients)


def names_of(kernels: Kernels) -> tuple[str, ...]:
    """What each is called.

    >>> from agnosticfair.mathematics.basis import by_client, gaussian
    >>> names_of(Kernels(by_client(), ("a", "b"))), names_of(Kernels(gaussian(2)))
    (('client a', 'client b'), ('kernel 1', 'kernel 2'))
    """
    width = kernel_width(kernels.basis)
    numbers = [f"kernel {m}" for m in range(1, width + 1)]
    if not is_apart(kernels.basis):
        return tuple(numbers)
    of_each = numbers if is_centred(kernels.basis) else [""]
    return tuple(f"client {key} {name}".strip() for key in kernels.clients for name in of_each)


def plain(encoding: Encoding) -> Encoding:
    """The encoding without bins, in whose space the centres lie."""
    return replace(encoding, bins=())


def weights(
    kernels: Kernels, encoding: Encoding, table: Table, who: str = "the data", client: str = ""
) -> np.ndarray:
    """Every row's weights, (n, K), multiples of 2^-14; zeros at a client that was not in the fit.

    >>> from agnosticfair.mathematics.basis import by_client
    >>> rows = Table({"age": np.array([25.0])}, {}, None, {})
    >>> weights(Kernels(by_client(), ("a", "b")), Encoding((("age", 20.0, 40.0),), ()), rows, client="b")
    array([[0., 1.]])
    """
    if is_apart(kernels.basis) and client not in kernels.clients:
        return np.zeros((len(table), kernels.size))
    X = encode(plain(encoding), table, who)
    # on the features' grid products are exact, in whatever order they are added up
    centres = None if kernels.centres is None else on_grid(kernels.centres.copy(), FEATURE_BITS)
    return on_grid(design(kernels.basis, X, centres, client, kernels.clients), KERNEL_BITS)


def to_header(kernels: Kernels) -> dict[str, Any]:
    """All but the centres, as JSON has it.

    >>> from agnosticfair.mathematics.basis import by_client
    >>> from_header(to_header(Kernels(by_client(), ("a",))), None, Encoding((), ())).clients
    ('a',)
    """
    return {"basis": vars(kernels.basis), "clients": kernels.clients}


def from_header(
    header: Mapping[str, Any], centres: np.ndarray | None, encoding: Encoding
) -> Kernels:
    """The inverse of ``to_header``; what is read is not trusted: ValueError, KeyError or TypeError for what is none."""
    clients = tuple(header["clients"])
    if not all(isinstance(key, str) for key in clients):
        raise ValueError("clients")
    basis = Basis(**{f.name: header["basis"][f.name] for f in fields(Basis)})
    centred, there = is_centred(basis), centres is not None
    if basis.kind in ("function", "subgroups") or isinstance(basis.sigma, str) or centred != there:
        raise ValueError("kernels")
    if centres is not None:
        fits = centres.shape == (basis.kernels, plain(encoding).width)
        if not fits or centres.dtype != np.float64 or not np.isfinite(centres).all():
            raise ValueError("centres")
    return Kernels(basis, clients, centres)
