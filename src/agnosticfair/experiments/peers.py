"""The entrants of other libraries that ``shifts`` shows beside our methods.

An optional extra (``pip install 'agnosticfair[peers]'``); nothing here is imported before it is used.
"""

from __future__ import annotations

import warnings
from time import perf_counter

from agnosticfair.data.splits import Split
from agnosticfair.errors import SettingsError, SolverError
from agnosticfair.experiments.deployments import Decider
from agnosticfair.experiments.entrants import ENTRANTS, Train

ASKED = 0.01
"""The difference that peers are asked for."""

NAMES = ("fairlearn-eg", "fairlearn-threshold", "declearn-fairgrad")
PEERS = {name: ENTRANTS[name] for name in NAMES}


def fit_peer(name: str, split: Split, positive: str, sensitive_feature: str, seed: int) -> Decider:
    """Fit a peer to the training rows of a split; the time is that of its own fit alone."""
    if name not in PEERS:
        raise SettingsError(f"no peer {name!r}; there are: {', '.join(PEERS)}")
    if not PEERS[name].installed:
        needed = " and ".join(PEERS[name].packages)
        raise SettingsError(f"{name} needs {needed}: pip install 'agnosticfair[peers]'")
    train = Train(split.train, positive, sensitive_feature, seed)
    train.encoded  # noqa: B018 (its time is not the peer's)
    begin = perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what another library says to its own authors
            decide = PEERS[name].fit(train, ASKED)
    except Exception as error:  # another's failure is a row of the table, not the end of the suite
        raise SolverError(f"{name} failed: {error}") from error
    return Decider(decide, DONE, 0, perf_counter() - begin)


DONE = "done"
"""How a peer's fit ends: it has an outcome of its own, or none."""
