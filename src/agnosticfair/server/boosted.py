"""Boosted trees from clients' histograms: bins first, then a level of all trees that grow in each message.

Trees of every head and fold grow together. The server sees totals, chooses the splits (``mathematics.boosting``), and
sends the trees back. The same totals, pooled, split or masked, give the same trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agnosticfair.data.axes import (
    PASSES,
    Binning,
    agreed,
    declared,
    equal_fine_bins,
    refined,
)
from agnosticfair.data.encoding import Encoding, shown
from agnosticfair.errors import SettingsError, existing
from agnosticfair.learners import trees
from agnosticfair.learners.estimates import Estimates, Head
from agnosticfair.mathematics.boosting import Boosting, N
from agnosticfair.mathematics.growing import (
    Growth,
    advance,
    begin,
    best_count,
    current,
    result,
    totals,
)
from agnosticfair.mathematics.trees import pack
from agnosticfair.protocol.messages import Reply
from agnosticfair.protocol.requests import FineCounts, Level, PackedTrees
from agnosticfair.server.plan import Beginning, Plan, trained_heads

MAX_BINS = 255
"""Bins of a column, unless it is said otherwise."""


MAX_SHARE = 0.75  # of the rows that one fold may hold: where few rows differ, folds are given up,
UNMEASURED = 50  # and so many trees grown


@dataclass(frozen=True)
class Boosted:
    """Between two rounds.

    cuts: (columns, K), between the cells that are counted next, until bins are agreed on.  held_out: mean log loss
    out of fold, all heads together.
    """

    encoding: Encoding
    n: int
    heads: tuple[Head, ...]
    folds: int
    seed: int
    settings: Boosting
    cuts: np.ndarray
    binning: Binning | None = None
    growth: Growth | None = None
    held_out: float = float("inf")
    round: int = 0
    outcome: str = "running"
    history: tuple[dict, ...] = ()
    under_floor: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        return "trees"

    @property
    def alpha(self) -> np.ndarray:
        return np.zeros(0)

    @property
    def w(self) -> np.ndarray:
        return np.zeros(0)


def init(plan: Plan, beginning: Beginning) -> Boosted:
    """Before the first round, of the heads that the plan trains."""
    rule = existing(plan.method.rule)
    settings = Boosting(monotone=_signs(plan.task.encoding, rule.monotone))
    return begun(plan, trained_heads(plan), beginning.seed, rule.folds, settings)


def _signs(encoding: Encoding, monotone: Sequence[tuple[str, int]]) -> tuple[int, ...]:
    """The sign of every column, 0 for none; empty where there is none at all."""
    numbers = [name for name, *_ in encoding.numeric]
    for name, _ in monotone:
        if name not in numbers:
            raise SettingsError(
                f"monotone names {name!r}, which is no column of numbers; there are: {shown(numbers) or 'none'}"
            )
    signs = (dict(monotone).get(name, 0) for name in numbers)
    return (*signs, *[0] * len(encoding.categorical)) if monotone else ()


def begun(
    plan: Plan, heads: tuple[Head, ...], seed: int, folds: int, settings: Boosting | None = None
) -> Boosted:
    encoding = plan.task.encoding
    cuts = equal_fine_bins(encoding)
    boosted = Boosted(encoding, plan.n, heads, folds, seed, settings or Boosting(), cuts)
    if plan.declared:
        binning = declared(encoding)
        growth = begin(binning.bins(encoding), boosted.settings, len(heads), folds)
        boosted = replace(boosted, binning=binning, growth=growth)
    return boosted if heads else replace(boosted, held_out=0.0, outcome="learned")  # all are given


def request(state: Boosted) -> FineCounts | Level:
    if state.growth is None or state.binning is None:
        return FineCounts(state.cuts)
    growth = state.growth
    trees = PackedTrees(
        state.binning, pack(growth.done, growth.bins), pack(current(growth), growth.bins)
    )
    level, count = max(growth.level, 0), growth.count.astype(float)
    return Level(
        state.heads, state.folds, state.seed, level, trees, count, growth.settings.min_rows
    )


def step(state: Boosted, reply: Reply) -> Boosted:
    state = replace(state, round=reply.round)
    if state.growth is None:
        return _counted(state, reply)
    state = _without_folds(state, reply)
    assert state.growth is not None
    if len(reply.sums["hist"]) != len(state.growth.count):
        return state  # asked again, without folds
    growth = advance(state.growth, reply.sums["hist"], reply.sums["tree_loss"])
    fresh = growth.level == 0 or growth.finished
    state = replace(state, growth=growth)
    losses = [loss[best_count(loss)] for loss in growth.loss if loss]
    held_out = sum(losses) / state.n if losses else float("nan")
    trees_now = max(map(len, growth.done))
    entry = {"round": reply.round, "stage": "trees", "kept": True, "trees": trees_now}
    entry |= {"level": growth.level, "held_out": held_out}
    history = (*state.history, entry) if fresh else (*state.history[:-1], entry)
    done = "learned" if growth.finished else "running"
    return replace(state, held_out=held_out, history=history, outcome=done)


def _without_folds(state: Boosted, reply: Reply) -> Boosted:
    """The state with the model of all rows alone, and a fixed number of trees, where a fold holds most of the rows."""
    growth, heads = existing(state.growth), len(state.heads)
    if growth.level >= 0 or not state.folds:
        return state
    rows = totals(reply.sums["hist"], growth.bins)[:, N].reshape(-1, heads)
    if (rows[:-1] >= (1 - MAX_SHARE) * rows[-1]).all():
        return state
    settings = replace(state.settings, trees=min(state.settings.trees, UNMEASURED))
    return replace(state, folds=0, settings=settings, growth=begin(growth.bins, settings, heads, 0))


def _counted(state: Boosted, reply: Reply) -> Boosted:
    """After counts of cells: count finer ones, or agree on the bins and begin."""
    encoding, settings = state.encoding, state.settings
    entry = {"round": reply.round, "stage": "bins", "kept": True}
    state = replace(state, history=(*state.history, entry))
    if reply.round < PASSES and len(state.cuts):
        cuts = refined(encoding, state.cuts, reply.sums["fine_bin_counts"])
        return replace(state, cuts=cuts)
    binning = agreed(encoding, state.cuts, reply.sums, MAX_BINS, settings.min_bin)
    growth = begin(binning.bins(encoding), settings, len(state.heads), state.folds)
    return replace(state, binning=binning, growth=growth)


def estimates_of(state: Boosted, plan: Plan) -> Estimates:
    if not state.heads:
        return Estimates("trees", (), 0, state.seed)
    growth = existing(state.growth)
    gain = growth.gain[-len(state.heads) :]
    arrays = trees.packed(
        existing(state.binning), growth.bins, result(growth), len(state.heads), gain
    )
    return Estimates("trees", state.heads, state.folds, state.seed, arrays)
