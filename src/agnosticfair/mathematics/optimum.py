"""What can be said of a solved program: how far the rule is from the best one, from its limits, and what they cost.

For any multipliers x the dual is an upper bound: no rule that decides from the same estimates and keeps the limits has
more utility than E[max(score, 0)] + sum tau |x|.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import inf, nan

import numpy as np

from agnosticfair.errors import SettingsError
from agnosticfair.mathematics.lasso import kinked
from agnosticfair.mathematics.multipliers import At
from agnosticfair.mathematics.program import State, dual_bound, worst_mixture

SHARES = (0.95, 0.8)
"""Of the utility gained over one answer: below these the price of the limit is stated."""


@dataclass(frozen=True)
class Optimum:
    """How good the rule is, in units of mean utility.

    Parameters
    ----------
    utility, learner_utility, constant : float
        Of the rule, of the learner's own decisions, and of the better of two constant answers.
    bound : float
        No rule that keeps the limits has more.
    gap : float
        No rule that differs nowhere more than this one, or than the limits, has more than ``utility + gap``, less what
        differences within the limits are charged.
    spend : float
        What those of this rule are.
    excess, smoothed_excess : float
        By how much the rule, and its smoothed form, are above a limit at most; negative below all.
    people : float
        The same of the rule, times the expected people of the smaller group: few where the excess is one row's.
    positive : float
        The share of positive decisions.
    unchanged : bool
        The learner's own decisions keep all limits, and are the rule.
    max_scale : float
        RateLimits so many times as large would bind nothing.
    gradient : float
        How fast ``bound`` grows with limits scaled by a number, at 1.
    further : tuple of (float, float)
        Utilities of rules with limits so many times as large.
    """

    utility: float
    learner_utility: float
    constant: float
    bound: float
    gap: float
    spend: float
    excess: float
    smoothed_excess: float
    people: float
    positive: float
    unchanged: bool
    max_scale: float
    gradient: float
    further: tuple[tuple[float, float], ...] = ()

    @property
    def retained(self) -> float:
        """The share of the learner's gain over one answer that is left; nan where it has none."""
        gained = self.learner_utility - self.constant
        return (self.utility - self.constant) / gained if gained > 1e-9 else nan


def optimum(state: State) -> Optimum:
    """The statement of a program that is done, or on its way; raises where its limits leave no rule."""
    at, learner_point = state.at, state.learner_point
    assert at is not None
    assert learner_point is not None
    hard = state.hard or learner_point
    x, r = hard.x, hard.differences
    R, reached = at.rates, np.full(at.size, nan)
    reached[:R] = np.abs(r)
    up, down = (np.fmax(limit, reached) for limit in (at.up, at.down))
    up[-1], down[-1] = max(at.up[-1], hard.positive), max(at.down[-1], -hard.positive)
    bound = min(state.bound, dual_bound(at, hard))
    if bound < lowest(state) - 1e-9:
        raise SettingsError("no rule keeps all limits at once: raise tau, or widen positive_rate")
    unchanged = bool((x == at.zero()).all())
    spend = 0.0 if unchanged else at.charged(r)
    finite = at.up[:R] > 0
    scales = np.abs(at.differences(learner_point.decided))[finite] / at.up[:R][finite]
    smoothed = hard if state.hard is None or state.here is None else state.here
    return Optimum(
        hard.utility,
        learner_point.utility,
        constant(state),
        bound,
        max(hard.smooth + kinked(x, up, down, at.curvature) + spend - hard.utility, 0.0),
        spend,
        excess(state, hard),
        excess(state, smoothed),
        people(state, hard),
        hard.positive,
        unchanged,
        float(scales.max(initial=0.0)) if finite.all() else inf,
        float(np.abs(x[:R]) @ at.up[:R]),
    )


def constant(state: State) -> float:
    """The utility of the better of two constant answers."""
    at = state.at
    assert at is not None
    if at.worst is None:
        return max(0.0, float(state.totals[0]))
    answers = [at.worst.losses(d * at.worths, at.worths) for d in (0.0, 1.0)]
    share = at.worst.share
    return max(-(1 - share) * float(v[-1]) - share * float(v.max()) for v in answers)


def lowest(state: State) -> float:
    """No decisions have less utility."""
    worst = state.limits.worst
    return float(state.totals[2]) if worst is None else -max(worst.error_costs)


def excess(state: State, point: At) -> float:
    """The largest difference above its limit, or share of positive decisions outside its bounds."""
    at = state.at
    assert at is not None
    over = np.append(
        np.abs(point.differences) - at.up[: at.rates],
        [point.positive - at.up[-1], -point.positive - at.down[-1]],
    )
    mixtures = state.limits.mixtures
    if mixtures is not None:
        over = np.append(over, worst_mixture(state, point) - mixtures.tau)
    return float(over.max())


def people(state: State, point: At) -> float:
    """The largest difference above its limit, in expected people of the smaller group; 0 where there is none."""
    at = state.at
    assert at is not None
    E = len(at.k)
    over = np.abs(point.differences[:E]) - at.up[:E]
    smaller = np.minimum(at.mass[at.k, at.j], at.mass[at.k, at.other]) * state.n
    return float((over * smaller).max(initial=0.0))


def scale_for(share: float, optimum: Optimum) -> tuple[float, float]:
    """By what the limits would have to be multiplied, at least and at most, for a rule that retains this share.

    The best utility is concave in the scale: the tangent is not exceeded, and chords between solved programs are
    reached, by a rule that is charged only if they are close.

    >>> half = Optimum(0.1, 0.2, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, False, 3.0, 0.2)
    >>> [round(v, 3) for v in scale_for(0.8, half)]
    [1.3, 2.2]
    """
    target = optimum.constant + share * (optimum.learner_utility - optimum.constant)
    known = sorted(
        [(1.0, optimum.utility), *optimum.further, (optimum.max_scale, optimum.learner_utility)]
    )
    upper = known[-1][0]
    for (a, low), (b, high) in pairwise(known):
        if low < target <= high:
            upper = a + (b - a) * (target - low) / (high - low)
            break
    lower = 1 + (target - optimum.bound) / optimum.gradient if optimum.gradient > 0 else 0.0
    return min(max(lower, 0.0), upper), upper


def next_scale(optimum: Optimum) -> float | None:
    """Limits so many times as large are worth a program of their own, to say what they cost; None where there is
    nothing more to say, or where the rule retains the lower share."""
    if not optimum.retained < SHARES[-1] or len(optimum.further) >= len(SHARES):
        return None
    lower, upper = scale_for(SHARES[-1 - len(optimum.further)], optimum)
    if not np.isfinite(upper):
        return None
    return float(np.sqrt(max(lower, 1.0) * upper))


def cost_sentences(optimum: Optimum, tau: float) -> tuple[str, ...]:
    """What the limit tau costs, in sentences; none where the rule retains nearly all.

    >>> cost_sentences(Optimum(0.2, 0.2, 0.0, 0.2, 0.0, 0.0, -0.1, -0.1, 0.0, 0.5, True, 0.5, 0.0), 0.05)
    ("The rule is the learner's own decisions: they differ nowhere by more than the limit.",)
    """
    if optimum.unchanged:
        return (
            "The rule is the learner's own decisions: they differ nowhere by more than the limit.",
        )
    if not optimum.retained < SHARES[0]:
        return ()
    first = (
        f"The limit {tau:g} leaves {max(optimum.retained, 0.0):.0%} of what the learner gains over one answer to "
        "everybody."
    )
    words = [first]
    for share in SHARES:
        if optimum.retained < share:
            _, upper = scale_for(share, optimum)
            words.append(
                f"{share:.0%} would be left at a tau of at most {_shown(min(tau * upper, 1.0))}."
            )
    return tuple(words)


def optimality(optimum: Optimum, accuracy: bool = False) -> str:
    """How far the rule is from the best one, in a sentence.  accuracy: both errors cost 1, so that utility counts
    right answers.

    >>> optimality(Optimum(0.2, 0.3, 0.0, 0.2004, 0.0006, 0.0, 0.002, 0.0, 0.4, 0.5, False, 0.5, 0.0))
    'No rule that decides from these estimates and keeps the limits has more utility than this one by more than \
0.0004; its decisions exceed a limit by at most 0.002, and by at most 0.4 expected people.'
    """
    more = max(optimum.bound - optimum.utility, 1e-4)
    better = "is right more often than this one" if accuracy else "has more utility than this one"
    statement = "its decisions exceed no limit, by the same estimates"
    if optimum.excess > 0:
        statement = (
            f"its decisions exceed a limit by at most {optimum.excess:.2g}, and by at most "
            f"{optimum.people:.2g} expected "
            "people"
        )
    first = f"No rule that decides from these estimates and keeps the limits {better} by more than {more:.2g}"
    if optimum.spend:
        first += f", none that is charged alike for differences within them by more than {max(optimum.gap, 1e-4):.2g}"
    return f"{first}; {statement}."


def _shown(tau: float) -> str:
    """To two figures, upwards."""
    unit = 10.0 ** (np.floor(np.log10(tau)) - 1)
    return f"{np.ceil(round(tau / unit, 6)) * unit:.3g}"
