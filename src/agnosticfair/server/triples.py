"""Parts of three values: they join a fit in its midst, where they are near the limit.

There are many more of them than of pairs, and most never matter. So a linear fit begins with single values and pairs.
When it is nearly done, and again at its end, one question asks for the sums over conjunctions of three values at the
present w; those that hold enough rows and are near the limit are parts from then on, and the fit goes on until a last
look finds no other. All are looked at that one reply has room for, those beneath the pairs nearest to the limit first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import cast

import numpy as np

from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.parts import DEEPEST, Part
from agnosticfair.mathematics.parts import triples as conjunctions
from agnosticfair.mathematics.sums import OF_FAIR, shapes
from agnosticfair.methods import Method
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.questions import PartSums
from agnosticfair.server import adversaries, deciding, interactions, limited, named, solvers
from agnosticfair.server.plan import Beginning, HeldBy, Plan, Start, fairness_of

VALUES = len(OF_FAIR) - 1
"""Sums of a part and cell, without slopes."""


def deepens(method: Method) -> bool:
    """Whether the method looks for parts of three values; a network has all of them from its first round on."""
    basis = fairness_of(method).basis
    return basis.kind == "named" and basis.depth == DEEPEST and method.network is None


def wanted(state: solvers.SolverState) -> bool:
    """Whether to look now: before a fit has converged, and once earlier. Where parts have a price that is when it is
    nearly done or half of the rounds are over; where each is limited, as soon as the limit is looked at, for steps that
    keep a limit are hard to find."""
    if not deepens(state.plan.method):
        return False
    inner, rounds = cast(limited.LimitedState, state.inner), state.plan.method.max_rounds
    if inner.here is None or not inner.limited or inner.looked == inner.round:
        return False
    nearly = inner.promised < interactions.NEARLY or inner.round >= rounds // 2
    nearly |= inner.fairness.spread is None
    due = inner.outcome == "converged" if state.done else not inner.looked and nearly
    return due and bool(_left(state.plan))


def question(state: solvers.SolverState) -> Broadcast[PartSums]:
    """Ask for the sums over conjunctions of three values at the present w."""
    plan, inner = state.plan, cast(limited.LimitedState, state.inner)
    assert inner.here is not None
    at = dict(zip(named.parts_in(plan), limited.by_part(inner), strict=True))
    left = _left(plan)
    beneath = [max(at[one, two], at[one, three], at[two, three]) for one, two, three in left]
    first = np.argsort(-np.array(beneath), kind="stable")[
        : most_parts(plan.task.cells, plan.features + 1)
    ]
    measured, here = inner.fairness.measured, inner.here
    if measured.kind == "sigmoid":
        measured = Surrogate("sigmoid", deciding.temperature(replace(inner, w=here.w)))
    return _about(plan, [left[k] for k in np.sort(first)], measured, here.w, inner.round)


def _left(plan: Plan) -> list[Part]:
    """The conjunctions of three values that may hold enough rows, and are no parts yet."""
    parts = named.parts_in(plan)
    known = {*parts}
    return [part for part in conjunctions(parts) if part not in known]


def _about(
    plan: Plan, parts: list[Part], measured: Surrogate, w: np.ndarray, at: int
) -> Broadcast[PartSums]:
    asked = named.with_parts(plan, named.axes_in(plan), parts)
    nobody, none = np.zeros((plan.task.cells, len(parts) + 1)), np.zeros(0)
    return Broadcast(at, asked.task, PartSums(measured, 1.0, w, np.ones(1), nobody, none))


def most_parts(G: int, D: int) -> int:
    """How many parts' sums a reply has room for, without slopes, with G cells and D features."""
    others = sum(map(prod, shapes(D, 1, G, 1).values())) - G * D
    return max(1, (deciding.MOST_BYTES // 8 - others) // (VALUES * G))


def onward(
    state: solvers.SolverState, asked: Broadcast[PartSums], total: Reply
) -> solvers.SolverState:
    """The fit with the parts that joined, from where it is; one without a round left has not converged."""
    plan, inner = state.plan, cast(limited.LimitedState, state.inner)
    inner = replace(inner, looked=inner.round)
    joined, worst = near(inner, asked, total.sums)
    if not joined:
        return replace(state, inner=inner)
    if inner.round >= plan.method.max_rounds:
        return replace(state, inner=replace(inner, outcome="rounds"))
    plan = named.with_parts(plan, named.axes_in(plan), named.parts_in(plan) + joined)
    start = deciding.start_of(inner)
    assert start is not None
    made = deciding.init(plan, Beginning(start=_wider(start, len(joined))))
    slopes = _slopes(inner, worst, made.game.C)
    fresh = replace(made, metric=inner.metric, limited=True, frozen=inner.frozen, slopes=slopes)
    # what was learnt of steps stays; what was answered is of fewer parts
    own = ("round", "damping", "nu", "constant", "looked", "history")
    fresh = replace(fresh, **{name: getattr(inner, name) for name in own})
    return replace(state, plan=plan, inner=fresh)


def near(
    state: limited.LimitedState, asked: Broadcast[PartSums], sums: Mapping[str, np.ndarray]
) -> tuple[list[Part], np.ndarray]:
    """The parts in question that hold enough rows and are near the limit, or at the end of a fit over tau, and their
    differences; the worst ones, where half a reply has no room for all. Of a mixture any part may matter."""
    task, fairness = asked.task, state.fairness
    assert task.named is not None
    enough = sums["psi_theta"][:, :-1].sum(axis=0) >= max(fairness.basis.least * task.n, 1.0)
    own, ended = adversaries.drawn_together(state.game, sums), state.outcome != "running"
    priced = fairness.spread is not None and not ended
    psi = limited.charged(state, own) if priced else limited.decided(state, own)
    worst = limited.differences(state, psi, own["psi_theta"])[:, :-1].max(axis=0)
    least = deciding.CLOSE * limited.begins(state)
    close = worst > (fairness.tau + limited.TOLERATED if ended else least)
    chosen = np.flatnonzero(enough & (close if fairness.each else True))
    (G, F), D = state.game.C.shape, len(state.w)
    room = max(1, most_parts(G, D) // 2 - F)
    chosen = np.sort(chosen[np.argsort(-worst[chosen], kind="stable")[:room]])
    return [task.named.agreed[1][m] for m in chosen.tolist()], worst[chosen]


def _wider(start: Start, more: int) -> Start:
    """The start of a fit that has more parts, which nothing holds yet."""
    held = start.held
    if held is None:
        return start

    def wider(C: np.ndarray) -> np.ndarray:
        return np.concatenate([C[..., :-1], np.zeros((*C.shape[:-1], more)), C[..., -1:]], axis=-1)

    return replace(start, held=replace(held, C=wider(held.C), cuts=wider(held.cuts)))


def _slopes(inner: limited.LimitedState, joined: np.ndarray, C: np.ndarray) -> np.ndarray:
    """The parts whose slopes are asked for, those that joined among them, as many as a reply has room for.
    joined: their differences."""
    assert inner.slopes is not None
    worst = np.concatenate([limited.by_part(inner), joined])
    own = np.r_[inner.slopes, len(worst) - len(joined) : len(worst)]
    most = deciding.most_slopes(C, len(inner.w))
    return np.sort(own[np.argsort(-worst[own], kind="stable")[:most]])


def start_of(state: solvers.SolverState) -> Start | None:
    """Where a similar fit may begin, which finds its parts of three values by itself: without theirs."""
    start = interactions.start_of(state)
    if start is None or not deepens(state.plan.method):
        return start
    few = sum(len(part) < DEEPEST for part in named.parts_in(state.plan))
    slopes = None if start.slopes is None else start.slopes[start.slopes < few]
    return replace(start, slopes=slopes, held=start.held and _narrower(start.held, few))


def _narrower(held: HeldBy, few: int) -> HeldBy:
    """What held a fit's weights, of its first parts alone."""
    own = np.r_[:few, held.C.shape[-1] - 1]
    without = ~held.cuts[:, :, few:-1].any(axis=(1, 2))
    return replace(held, C=held.C[:, own], cuts=held.cuts[without][:, :, own])


def at_most(plan: Plan) -> tuple[Plan, Broadcast[PartSums]]:
    """The plan with as many parts of three values as can join, and a question that may find them."""
    D, left = plan.features + 1, _left(plan)
    asked = left[: most_parts(plan.task.cells, D)]
    room = max(1, most_parts(plan.task.cells, D) // 2 - plan.kernels[1] - 1)
    measured = fairness_of(plan.method).measured
    wider = named.with_parts(plan, named.axes_in(plan), named.parts_in(plan) + left[:room])
    return wider, _about(plan, asked, measured, np.zeros(D), 1)
