"""Tables 1, 2 and 3 of the paper as data, to be printed beside what is measured here."""

from __future__ import annotations

from dataclasses import dataclass

from agnosticfair.methods import Method
from agnosticfair.server.plan import centres_kind


@dataclass(frozen=True)
class Reported:
    """One line of a table: means over the paper's 20 runs. None where the paper gives no number."""

    train_accuracy: float | None
    test_accuracy: float
    test_risk_difference: float
    client_risk_differences: tuple[float, ...] = ()


PAPER: dict[tuple[str, str, str], Reported] = {
    # Table 1, and Table 2 for the risk differences of the two client groups
    ("adult", "shift", "fl"): Reported(0.7500, 0.7998, 0.1477),
    ("adult", "shift", "agnosticfair"): Reported(0.7413, 0.7626, 0.0196, (0.0208, 0.0177)),
    ("adult", "shift", "agnosticfair-a"): Reported(0.7820, 0.8294, 0.1306),
    ("adult", "shift", "agnosticfair-b"): Reported(None, 0.7885, 0.0673, (0.0450, 0.0795)),
    ("adult", "shift", "fairfl"): Reported(0.7537, 0.7534, 0.0852),
    ("adult", "shift", "afl"): Reported(0.7761, 0.7774, 0.1150),
    ("dutch", "shift", "fl"): Reported(0.8133, 0.7951, 0.1945),
    ("dutch", "shift", "agnosticfair"): Reported(0.7478, 0.7205, 0.0371),
    ("dutch", "shift", "agnosticfair-a"): Reported(0.8259, 0.8162, 0.2154),
    ("dutch", "shift", "fairfl"): Reported(0.6899, 0.7011, 0.0961),
    ("dutch", "shift", "afl"): Reported(0.8170, 0.7738, 0.1238),
    # Table 3
    ("adult", "iid", "fl"): Reported(0.8129, 0.8130, 0.1490),
    ("adult", "iid", "agnosticfair"): Reported(0.7938, 0.7749, 0.0299),
    ("adult", "iid", "agnosticfair-a"): Reported(0.8083, 0.8111, 0.1515),
    ("adult", "iid", "fairfl"): Reported(0.7731, 0.7723, 0.0235),
    ("adult", "iid", "afl"): Reported(0.7774, 0.7785, 0.1484),
    ("dutch", "iid", "fl"): Reported(0.8116, 0.8096, 0.1698),
    ("dutch", "iid", "agnosticfair"): Reported(0.7338, 0.7322, 0.0270),
    ("dutch", "iid", "agnosticfair-a"): Reported(0.8135, 0.8089, 0.1526),
    ("dutch", "iid", "fairfl"): Reported(0.7564, 0.7346, 0.0325),
    ("dutch", "iid", "afl"): Reported(0.7925, 0.7892, 0.1547),
}

DATASETS = tuple(dict.fromkeys(name for name, _, _ in PAPER))
"""The data sets it measures on."""

SAME = {"agnosticfair-printed": "agnosticfair", "fedavg": "fl"}
"""Our methods that are another reading of one in the paper: Algorithm 2, and Algorithm 1 as FL."""


def reported(dataset: str, setting: str, method: str) -> Reported | None:
    """What the paper says of a method under the name it has there, None where it says nothing.

    >>> reported("adult", "shift", "agnosticfair-printed").test_accuracy
    0.7626
    """
    return PAPER.get((dataset, setting, SAME.get(method, method)))


def as_printed(method: Method) -> dict[str, str]:
    """What a method must change to have its kernels around training rows, as the paper has them.

    >>> from agnosticfair.methods import METHODS
    >>> as_printed(METHODS["agnosticfair"]), as_printed(METHODS["fairfl"])
    ({'centres': 'rows'}, {})
    """
    return {} if centres_kind(method) is None else {"centres": "rows"}
