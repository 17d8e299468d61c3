"""An audit of a privacy claim: how much privacy is lost at least, from runs with and without one row.

A claim says that an observer who sees one run cannot tell well whether a row took part. So somebody tries,
many times, with the row they would find easiest (a *canary*), and counts. For noise that is Gaussian the
best test's errors are known (Dong, Roth and Su, 2022): false alarms a and misses b of *any* test satisfy
Phi^-1(1 - a) - Phi^-1(b) <= mu = 1 / z. What is counted bounds mu, and with it epsilon, from below (Nasr et
al., 2023). A claim that lies under this bound is refuted.
"""

from __future__ import annotations

from math import exp, inf

import numpy as np


def min_mu(with_row: np.ndarray, without: np.ndarray, confidence: float = 0.95) -> float:
    """mu is at least this, at that confidence.  with_row, without: (runs,) a score for each run, higher where
    the row seems to be there. Half of the runs choose the threshold, the other half is counted, and both
    rates get an exact interval (Clopper-Pearson)."""
    from scipy.stats import beta, norm

    if min(len(with_row), len(without)) < 20:
        raise SystemExit("an audit of fewer than 20 runs each way says nothing: run it more often")
    half, rest = len(with_row) // 2, len(without) // 2
    cuts = np.quantile(
        np.concatenate([with_row[:half], without[:rest]]), np.linspace(0.02, 0.98, 97)
    )
    gains = [(with_row[:half] > c).mean() - (without[:rest] > c).mean() for c in cuts]
    cut, tail = cuts[int(np.argmax(gains))], (1 - confidence) / 2
    hits, runs = int((with_row[half:] > cut).sum()), len(with_row) - half
    alarms, quiet = int((without[rest:] > cut).sum()), len(without) - rest
    power = beta.ppf(tail, hits, runs - hits + 1) if hits else 0.0
    false = beta.ppf(1 - tail, alarms + 1, quiet - alarms) if alarms < quiet else 1.0
    if power <= 0.0 or false >= 1.0:
        return 0.0
    return max(0.0, float(norm.ppf(1 - false) - norm.ppf(1 - power)))


def epsilon_of(mu: float, delta: float) -> float:
    """The least epsilon at which noise of multiplier 1 / mu is (epsilon, delta)-private: the Gaussian's own.

    >>> round(epsilon_of(1.0, 1e-5), 2)
    4.38
    """
    from scipy.stats import norm

    if mu <= 0:
        return 0.0

    def lost(epsilon: float) -> float:
        far = norm.cdf(-epsilon / mu - mu / 2)
        return float(norm.cdf(-epsilon / mu + mu / 2) - (exp(epsilon) * far if far > 0 else 0.0))

    low, high = 0.0, 1.0
    while lost(high) > delta and high < 600:
        high *= 2
    if high >= 600:
        return inf
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if lost(middle) > delta else (low, middle)
    return high
