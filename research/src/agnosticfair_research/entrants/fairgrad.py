"""declearn's FairGrad: weights of groups that follow their loss, over a real federation on this machine."""

from __future__ import annotations

import asyncio
import logging
import socket
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from agnosticfair.mathematics.linear import sigmoid
from agnosticfair_research.entrants.entrant import Coded, Decide, Entrant, Train, linear_decision

ROUNDS, BATCH, RATE, ETA = 200, 1024, 0.5, 0.1
"""An epoch of gradient steps a round; the weights' rate eta is a fifth of the model's."""


def fairgrad(train: Train, limit: float) -> Decide:
    """A server and clients over websockets on this machine, and no slack: the least difference it can."""
    log = logging.getLogger("declearn")
    before = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # declearn warns of its own calls
            w = asyncio.run(_federation(train.encoded, train.seed))
    finally:
        log.setLevel(before)
    return linear_decision(train, w)


async def _federation(clients: Sequence[Coded], seed: int) -> np.ndarray:
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
            gradient = (sigmoid(d) - y) * (1.0 if weights is None else weights) / len(y)
            self._loss_history.append(float(np.logaddexp(0.0, d).mean() - (d * y).mean()))
            return NumpyVector(
                {"coef": (gradient @ X)[None], "intercept": gradient.sum(keepdims=True)}
            )

    return LogisticModel


FAIRGRAD = Entrant(
    "declearn-fairgrad",
    fairgrad,
    "fair under training weights",
    asks=False,
    packages=("declearn", "websockets"),
)
