"""Other libraries on the same rows: fairlearn's two mitigations, pooled, and declearn's FairGrad.

An optional extra (``pip install 'agnosticfair[peers]'``); nothing here is imported before it is used.
The pooled peers see all rows in one place, which no federated method does.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np

from agnosticfair.data.census import encoding_of, merge, take_census
from agnosticfair.data.encoding import Encoding, encode
from agnosticfair.data.splits import Split
from agnosticfair.data.table import Table
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.experiments.deployments import Decider
from agnosticfair.mathematics.linear import sigmoid

EPS = 0.01
"""Violation that ExponentiatedGradient is allowed."""

ROUNDS, BATCH, RATE, ETA = 200, 1024, 0.5, 0.1
"""FairGrad: an epoch of gradient steps a round; the weights' rate eta is a fifth of the model's."""


@dataclass(frozen=True)
class Rows:
    """Encoded rows. X: (n, d) without intercept.  y, s: (n,), label and group code."""

    X: np.ndarray
    y: np.ndarray
    s: np.ndarray


@dataclass(frozen=True)
class Peer:
    """fit: from the clients' rows and a seed to (Rows -> probabilities), outcome and rounds.
    note: what a reader of the table must know."""

    package: str
    note: str
    fit: Callable[[Sequence[Rows], int], tuple[Callable[[Rows], np.ndarray], str, int]]


def fit_peer(name: str, split: Split, positive: str, sensitive_feature: str, seed: int) -> Decider:
    """Fit a peer to the training rows of a split; the time is that of its own fit alone."""
    if name not in PEERS:
        raise SettingsError(f"no peer {name!r}; there are: {', '.join(PEERS)}")
    peer = PEERS[name]
    if not installed(name):
        raise SettingsError(f"{name} needs {peer.package}: pip install 'agnosticfair[peers]'")
    encoding = encoding_of(merge({k: take_census(t, who=k) for k, t in split.train.items()}))

    def rows(table: Table) -> Rows:
        return encoded(encoding, table, positive, sensitive_feature)

    clients = [rows(table) for table in split.train.values()]
    begin = perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what another library says to its own authors
            predict, outcome, rounds = peer.fit(clients, seed)
    except Exception as error:  # another's failure is a row of the table, not the end of the suite
        raise SolverError(f"{name} failed: {error}") from error
    seconds = perf_counter() - begin
    return Decider(lambda table: predict(rows(table)), outcome, rounds, seconds)


def encoded(encoding: Encoding, table: Table, positive: str, sensitive_feature: str) -> Rows:
    """A table as the arrays that the peers take."""
    s = table.column(sensitive_feature).codes
    return Rows(encode(encoding, table), table.labels(positive).astype(np.int64), s)


def pooled(clients: Sequence[Rows]) -> Rows:
    """All rows in one place."""
    return Rows(*(np.concatenate([getattr(c, name) for c in clients]) for name in ("X", "y", "s")))


def installed(name: str) -> bool:
    """Whether the package behind a peer can be imported."""
    needs = (PEERS[name].package, *(("websockets",) if "declearn" in name else ()))
    return all(find_spec(package) is not None for package in needs)


def exponentiated_gradient(
    clients: Sequence[Rows], seed: int
) -> tuple[Callable[[Rows], np.ndarray], str, int]:
    """fairlearn's reduction to weighted classification, eps 0.01."""
    from fairlearn.reductions import DemographicParity, ExponentiatedGradient

    rows = pooled(clients)
    learner = ExponentiatedGradient(_logistic(), DemographicParity(), eps=EPS)
    learner.fit(rows.X, rows.y, sensitive_features=rows.s)
    outcome = "converged" if learner.best_gap_ < learner.nu else "rounds"
    # _pmf_predict is the mixture's expected decision; predict would draw one of its models by lot
    return lambda given: learner._pmf_predict(given.X)[:, 1], outcome, learner.last_iter_ + 1


def threshold_optimizer(
    clients: Sequence[Rows], seed: int
) -> tuple[Callable[[Rows], np.ndarray], str, int]:
    """fairlearn's post-processing: a threshold per group, which asks for the group when deciding."""
    from fairlearn.postprocessing import ThresholdOptimizer

    rows = pooled(clients)
    learner = ThresholdOptimizer(
        estimator=_logistic(),
        constraints="demographic_parity",
        objective="accuracy_score",
        predict_method="predict_proba",
    )
    learner.fit(rows.X, rows.y, sensitive_features=rows.s)

    def predict(given: Rows) -> np.ndarray:
        return learner._pmf_predict(given.X, sensitive_features=given.s)[:, 1]

    return predict, "converged", 1


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(max_iter=1000)


def fairgrad(clients: Sequence[Rows], seed: int) -> tuple[Callable[[Rows], np.ndarray], str, int]:
    """declearn's FairGrad between a server and clients over websockets on this machine."""
    log = logging.getLogger("declearn")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # declearn warns of its own calls
            w = asyncio.run(_federation(clients, seed))
    finally:
        log.setLevel(before)
    return lambda given: (given.X @ w[:-1] + w[-1] > 0).astype(float), "all rounds run", ROUNDS


async def _federation(clients: Sequence[Rows], seed: int) -> np.ndarray:
    """Run declearn's own server and clients in one loop; w: (d + 1,), the intercept last."""
    from declearn.communication import build_client, build_server
    from declearn.fairness.core import FairnessInMemoryDataset
    from declearn.fairness.fairgrad import FairgradControllerServer
    from declearn.main import FederatedClient, FederatedServer
    from declearn.main.config import FLOptimConfig, FLRunConfig

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = _declearn_model().from_parameters(
        kind="classifier", loss="log_loss", penalty="l2", alpha=1e-5
    )
    fair = FairgradControllerServer("demographic_parity", eta=ETA, eps=0.0)
    optim = FLOptimConfig.from_params(client_opt=RATE, aggregator="sum", fairness=fair)
    # by default the server looks for replies once a second only
    network = build_server("websockets", "127.0.0.1", port, heartbeat=0.002)
    server = FederatedServer(model, network, optim)
    parties = [
        FederatedClient(
            build_client("websockets", f"ws://127.0.0.1:{port}", f"client-{k}"),
            FairnessInMemoryDataset(
                c.X, s_attr=c.s[:, None], target=c.y, expose_classes=True, seed=seed
            ),
            verbose=False,
        )
        for k, c in enumerate(clients)
    ]
    # no evaluation: it refuses the negative weights that FairGrad may come to
    config = FLRunConfig.from_params(
        rounds=ROUNDS,
        register={"min_clients": len(clients), "max_clients": len(clients), "timeout": 30},
        training={"batch_size": BATCH, "n_epoch": 1, "drop_remainder": False},
        evaluate={"batch_size": 8192, "frequency": ROUNDS + 1},
        fairness={"batch_size": 8192},
    )
    await asyncio.gather(server.async_run(config), *(party.async_run() for party in parties))
    found = server.model.get_weights().coefs
    return np.concatenate([found["coef"].ravel(), found["intercept"].ravel()])


@lru_cache(maxsize=1)
def _declearn_model() -> Any:
    """declearn's logistic regression with the gradient of a batch at once; its own takes row by row."""
    from declearn.model.sklearn import NumpyVector, SklearnSGDModel

    class LogisticModel(SklearnSGDModel):
        typekey = "agnosticfair-logistic"

        def compute_batch_gradients(self, batch: Any, max_norm: float | None = None) -> Any:
            X, y, weights = self._unpack_batch(batch)
            d = X @ self._model.coef_.ravel() + self._model.intercept_[0]
            slope = (sigmoid(d) - y) * (1.0 if weights is None else weights) / len(y)
            self._loss_history.append(float(np.logaddexp(0.0, d).mean() - (d * y).mean()))
            return NumpyVector({"coef": (slope @ X)[None], "intercept": slope.sum(keepdims=True)})

    return LogisticModel


PEERS = {
    "fairlearn-eg": Peer(
        "fairlearn",
        "pooled rows; decides by lot among its models: expected rates are shown",
        exponentiated_gradient,
    ),
    "fairlearn-threshold": Peer(
        "fairlearn",
        "pooled rows; needs the sensitive feature when deciding, and decides by lot",
        threshold_optimizer,
    ),
    "declearn-fairgrad": Peer("declearn", "federated; fair under training weights", fairgrad),
}
