"""What (epsilon, delta) a list of Gaussian noises amounts to, and the noise that a budget asks for.

The accounting is dp-accounting's, over Renyi divergences: a discrete Gaussian's are at most those of the
Gaussian of the same multiplier, so the sum over steps bounds both. Shares of several sites add up to almost
a discrete Gaussian: at scales above 10^3 units the difference (Kairouz, Liu and Steinke, 2021) is below
exp(-10^6), and the scales here are above 10^8.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from agnosticfair.errors import SettingsError, needing


def check_budget(epsilon: float, delta: float) -> None:
    """Raise unless epsilon is positive and delta a small probability.

    >>> check_budget(3.0, 1e-5)
    """
    if not (isfinite(epsilon) and epsilon > 0):
        raise SettingsError(f"epsilon is {epsilon:g}: give a positive number, 1 to 10 is usual")
    if not 0 < delta < 0.01:
        raise SettingsError(
            f"delta is {delta:g}: give a probability well under one over the number of rows, 1e-5 say"
        )


def spent(multipliers: Sequence[float], delta: float) -> float:
    """Epsilon of steps with these noise multipliers, one after the other."""
    if not multipliers:
        return 0.0
    events, rdp = _library()
    accountant = rdp.RdpAccountant()
    for z in multipliers:
        accountant.compose(events.GaussianDpEvent(z))
    return float(accountant.get_epsilon(delta))


def multiplier(epsilon: float, delta: float) -> float:
    """The least noise multiplier of one Gaussian that costs at most epsilon.

    >>> round(multiplier(3.0, 1e-5), 2)
    1.49
    """
    check_budget(epsilon, delta)
    low, high = 1e-3, 1e6
    for _ in range(80):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if spent([middle], delta) > epsilon else (low, middle)
    return high


def _library() -> tuple:
    with needing("dp", "differential privacy needs more packages"):
        import dp_accounting
        from dp_accounting import rdp
    return dp_accounting, rdp
