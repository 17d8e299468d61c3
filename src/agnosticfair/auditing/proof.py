"""A certificate that travels: the sums it rests on, and a seal over all of it.

Whoever reads one computes all of it anew from the counts (``verifying``), which takes seconds; the digest finds a
changed digit, and the issuer's signature (Ed25519, extra 'secure') one that was changed with its digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.request import AuditRequest
from agnosticfair.auditing.subgroups import Count, CountedSubgroups
from agnosticfair.data.encoding import shown
from agnosticfair.data.rows import row_hashes
from agnosticfair.data.table import Table
from agnosticfair.errors import DataError, SettingsError, needing
from agnosticfair.mathematics import confidence
from agnosticfair.mathematics.subgroups import Axis, sizes_of

PURPOSE = b"agnosticfair-certificate-1"
SIGNING = "a signature needs the package 'cryptography'"
MAX_BYTES = 100_000_000
"""Of a certificate's file; more are not read."""

SEALS = ("digest", "signature")


def sums_of(
    counted: CountedSubgroups, axes: Sequence[Axis], depth: int, count: Count
) -> dict[str, Any]:
    """The counts that a certificate over subgroups rests on, as JSON; and for a monitor all pairs of values'."""
    return {
        "pairs": _pairs(sizes_of(axes), count).tolist(),
        "subgroups": [[list(value) for value in subgroup] for subgroup in counted.subgroups],
        "counts": counted.counts.tolist(),
        "axes": [[axis.name, list(axis.values), [float(e) for e in axis.edges]] for axis in axes],
        "depth": depth,
        "min_share": counted.min_share,
    }


def _pairs(sizes: Sequence[int], count: Count) -> np.ndarray:
    """Rows of every pair of values, (I, I), the single values on the diagonal."""
    ones = [(axis, value) for axis, size in enumerate(sizes) for value in range(size)]
    places = [
        (i, j) for j in range(len(ones)) for i in range(j + 1) if i == j or ones[i][0] < ones[j][0]
    ]
    pair_counts = np.zeros((len(ones), len(ones)), int)
    if places:
        subgroups = [(ones[i],) if i == j else (ones[i], ones[j]) for i, j in places]
        rows, columns = np.array(places).T
        pair_counts[rows, columns] = pair_counts[columns, rows] = count(subgroups).sum(
            axis=(1, 2, 3)
        )
    return pair_counts


def axes_of(sums: Mapping[str, Any]) -> tuple[Axis, ...]:
    """The columns that name a certificate's subgroups, with their values and edges."""
    return tuple(Axis(name, tuple(values), tuple(edges)) for name, values, edges in sums["axes"])


def canonical(certificate: Mapping[str, Any]) -> bytes:
    """The bytes that are sealed: all but the seals, keys sorted."""
    bare = {key: value for key, value in certificate.items() if key not in SEALS}
    return json.dumps(bare, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sealed(certificate: Mapping[str, Any], secret: bytes | None = None) -> dict[str, Any]:
    """The certificate with its digest and, with the issuer's secret key, a signature."""
    bare = {key: value for key, value in certificate.items() if key not in (*SEALS, "issuer")}
    key = None if secret is None else _private(secret)
    if key is not None:
        bare["issuer"] = key.public_key().public_bytes_raw().hex()
    content = canonical(bare)
    seal = {**bare, "digest": hashlib.sha256(content).hexdigest()}
    if key is None:
        return seal
    value = key.sign(PURPOSE + content).hex()
    return {**seal, "signature": {"public_key": bare["issuer"], "value": value}}


def rows_digest(table: Table, strata: np.ndarray) -> str:
    """Of the audited rows with their group, label and decision, in any order.

    It is no secret and has no key: whoever holds all of the rows can tell that these were audited. Whoever lacks one
    of them and can guess it can test the guess, as the counts beside it allow, too.

    >>> from agnosticfair.data.table import Column
    >>> one, strata = Table({}, {"job": Column.of("abb")}, None, {}), np.array([0, 1, 1])
    >>> rows_digest(one, strata) == rows_digest(one.take([2, 0, 1]), strata[[2, 0, 1]])
    True
    """
    bare = replace(table, target=None, sensitive_features={}, other={}, weights=None)
    numbers = {**bare.numeric, "": np.asarray(strata, float)}
    bare = replace(bare, numeric=numbers)
    ordered = bare.take(np.argsort(row_hashes(bare), kind="stable"))
    digest = hashlib.sha256(f"{len(bare)} rows\n".encode())
    for name, values in sorted(ordered.numeric.items()):
        digest.update(f"numeric {name}\n".encode() + values.astype("<f8").tobytes())
    for name, column in sorted(ordered.categorical.items()):
        order = tuple(sorted(column.categories))
        digest.update(f"categorical {name} {json.dumps(order)}\n".encode())
        digest.update(column.aligned(order).astype("<i8").tobytes())
    return digest.hexdigest()


def mixtures_of(
    counted: CountedSubgroups, request: AuditRequest, duals: Sequence[Any] | None = None
) -> confidence.Proved:
    """The bound over mixtures of the estimable subgroups: looked for, or shown by duals."""
    metric, precision = request.metric, request.precision
    delta = request.share * (1 - request.confidence)
    able = counted.levels(metric, precision, delta)[1]
    if not able.any():
        return confidence.Proved(1.0, ())
    there = confidence.reached(counted.sample(metric, precision), delta)
    left = 1 - confidence.COUNTS - confidence.SUPPORT * confidence.ONE
    return confidence.mixtures(
        counted.counts[there], left * delta, metric, request.floor, duals=duals
    )


def read(path: Path) -> Any:
    """A certificate's file as JSON, or the sentence that says why it is none."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DataError(
                f"{str(path)!r} has more than {MAX_BYTES:,} bytes, and no certificate has: give the certificate.json "
                "that 'audit' wrote"
            )
        return json.loads(content.decode())
    except OSError as error:
        raise DataError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except DataError:
        raise
    except (
        ValueError,
        RecursionError,
    ):  # no JSON, or nested too deeply, or a number of thousands of digits
        raise DataError(
            f"{str(path)!r} is not JSON: give the certificate.json that 'audit' wrote"
        ) from None


def new_key(path: Path) -> str:
    """Write a fresh secret key, readable by its owner alone; its public half, in hexadecimal."""
    secret = os.urandom(32)
    try:
        with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(secret.hex() + "\n")
    except OSError as error:
        raise SettingsError(
            f"cannot write a key to {str(path)!r}: {error.strerror}; name another file"
        ) from None
    return _private(secret).public_key().public_bytes_raw().hex()


def read_key(path: Path) -> bytes:
    """A secret key from its file."""
    try:
        secret = bytes.fromhex(path.read_text().strip())
    except (OSError, ValueError, UnicodeDecodeError):
        secret = b""
    if len(secret) != 32:
        raise SettingsError(
            f"{str(path)!r} holds no secret key of 64 hexadecimal digits: make one by 'agnosticfair verify --new-key "
            f"{shown([path.name])}'"
        )
    return secret


def _private(secret: bytes) -> Any:
    with needing("secure", SIGNING):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    return Ed25519PrivateKey.from_private_bytes(secret)
