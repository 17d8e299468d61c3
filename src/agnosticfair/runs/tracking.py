"""Tracking: a fit told as it happens, to MLflow or to any function of one's own.

A tracker is a function ``track(kind, values)``.  It is called with

- ``'parameters'``: the method, the seed and the data's size, as texts by name, before the first round;
- ``'round'``: each round's record, as ``on_round`` of ``federation.fit`` gets it;
- ``'results'``: what the fit and its certificate came to, as numbers by name;
- ``'files'``: contents (bytes) by file name: the model, its card and its certificate.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any

from agnosticfair.auditing.certificate import Certificate
from agnosticfair.errors import SettingsError, needing
from agnosticfair.federation import Fit
from agnosticfair.methods import Method
from agnosticfair.runs.provenance import without_password

Track = Callable[[str, Mapping[str, Any]], None]
EXPERIMENT = "agnosticfair"


def parameters(method: Method, **others: object) -> dict[str, str]:
    """The method's values under dotted names, and whatever else is to be told.

    >>> parameters(Method("fl"), seed=3)["basis.kind"], parameters(Method("fl"), seed=3)["seed"]
    ('constant', '3')
    """
    return {name: str(value) for name, value in _flat({**asdict(method), **others})}


def results(fitted: Fit, certificates: Mapping[str, Certificate] | None = None) -> dict[str, float]:
    """What a fit came to, as numbers: those that have no meaning for this method are left out.

    certificates: by the sensitive feature that each is about.
    """
    names = ("rounds", "converged", "seconds", "worst_surrogate", "trained_difference")
    values: dict[str, Any] = {name: getattr(fitted, name) for name in names}
    names_of_certificate = ("accuracy", "difference", "worst_difference", "upper")
    for sensitive_feature, certificate in (certificates or {}).items():
        values[f"certificate.{sensitive_feature}"] = {
            name: getattr(certificate, name) for name in names_of_certificate
        }
    return numbers(values)


def numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among some values, under dotted names.

    >>> numbers({"loss": 0.5, "lp": "optimal", "kept": True, "worst": float("nan")})
    {'loss': 0.5, 'kept': 1.0}
    """
    flat = {k: v for k, v in _flat(values) if isinstance(v, int | float)}
    return {name: float(value) for name, value in flat.items() if isfinite(value)}


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", v) for inner, v in _flat(value))
        else:
            yield name, value


def tracker(where: str | None) -> AbstractContextManager[Track]:
    """The tracker that a command line names as ``mlflow:URI``; one that forgets everything for None."""
    if where is None:
        return nullcontext(lambda kind, values: None)
    what, _, uri = where.partition(":")
    if what != "mlflow" or not uri:
        raise SettingsError(
            f"unknown tracker {where!r}: write mlflow:URI, mlflow:sqlite:///runs.db say"
        )
    return mlflow_run(uri)


@contextmanager
def mlflow_run(uri: str, name: str | None = None) -> Iterator[Track]:
    """A tracker that writes one run to MLflow (extra ``mlflow``); a fit that fails is marked as such.

    uri: where MLflow keeps runs, ``sqlite:///runs.db`` or a server's address.  name: the run's.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # nobody but the store hears of a fit
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    with needing("mlflow", "tracking needs MLflow"):
        from mlflow.entities import Metric, Param
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    _check_store(uri)
    try:
        client = MlflowClient(tracking_uri=uri)
        known = client.get_experiment_by_name(EXPERIMENT)
        place = known.experiment_id if known else client.create_experiment(EXPERIMENT)
        run = client.create_run(place, run_name=name).info.run_id
    except (MlflowException, ImportError) as error:
        raise _refused(error) from None

    def track(kind: str, values: Mapping[str, Any]) -> None:
        if kind == "parameters":
            client.log_batch(run, params=[Param(_legal(k), v) for k, v in values.items()])
        elif kind == "files":
            with TemporaryDirectory() as folder:
                for file, content in values.items():
                    (Path(folder) / file).write_bytes(content)
                client.log_artifacts(run, folder)
        else:
            now, step = int(1000 * time()), int(values.get("round", 0))
            scalars = {_legal(k): v for k, v in numbers(values).items() if k != "round"}
            # a store that fails for a while costs some rounds' records, not the fit
            with suppress(MlflowException) if kind == "round" else nullcontext():
                client.log_batch(run, [Metric(k, v, now, step) for k, v in scalars.items()])

    try:
        yield track
    except MlflowException as error:
        raise _refused(error) from None
    except BaseException:
        client.set_terminated(run, "FAILED")
        raise
    client.set_terminated(run, "FINISHED")


def _check_store(uri: str) -> None:
    """Say at once that a store of SQLite cannot be written: MLflow would try for minutes."""
    kind, _, place = uri.partition(":///")
    if kind != "sqlite":
        return
    import sqlite3

    file = place.partition("?")[0]
    try:
        with closing(sqlite3.connect(file)) as store:
            store.execute("BEGIN IMMEDIATE")
            store.rollback()
    except sqlite3.Error as error:
        raise SettingsError(
            f"MLflow's store {file!r} cannot be written ({error}): name another, sqlite:///runs.db say"
        ) from None


def _legal(name: str) -> str:
    """The name with what MLflow does not take replaced.

    >>> _legal("certificate.sex & race.accuracy")
    'certificate.sex _ race.accuracy'
    """
    return re.sub(r"[^\w. /:-]", "_", name)


def _refused(error: Exception) -> SettingsError:
    """MLflow's own first sentence, without the password that an address may hold."""
    sentence = str(error).partition("\n")[0].partition(". ")[0].strip()
    hidden = without_password(sentence)
    return SettingsError(f"MLflow refused: {hidden}; name another store, sqlite:///runs.db say")
