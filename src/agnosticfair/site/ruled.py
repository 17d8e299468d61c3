"""What a site answers of estimates, trees and rules where the coordinator is to see totals only.

Shapes are what the task settles: an array that is short fails at the rows alone that reach beyond it, and a refusal
would tell whether a site has such a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.data.binning import Binning
from agnosticfair.learners.estimates import LEARNERS, Estimates, learned
from agnosticfair.learners.heads import MAX_GROUPS, Head, strata
from agnosticfair.learners.local import LOCAL
from agnosticfair.learners.trees import binning_of, forests_of
from agnosticfair.mathematics.basis import width
from agnosticfair.mathematics.scores import HESSIAN_ROWS
from agnosticfair.mathematics.trees import MAX_CODES, from_numbers, unpack
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.questions import Task
from agnosticfair.site.checks import (
    Judgement,
    check_bins,
    check_centres,
    check_fold_seed,
    check_kernels,
    check_named,
    check_private_step,
    need,
    question_check,
    task_check,
)
from agnosticfair.site.policy import MOST_FOLDS


@task_check("estimates")
def _estimates(by: Judgement, task: Task) -> None:
    asked = task.estimates
    assert asked is not None
    alone = asked.kind in ("linear", "additive") and not (asked.folds or asked.aware)
    alone = alone and not any(asked.columns)
    need(alone or not by.policy.epsilon, "such estimates are not answered under epsilon")
    need(asked.kind in (*LEARNERS, "given"), "its learner is none that is known here")
    _heads(by, asked.heads)
    need(asked.heads and not asked.heads[0].features, "the first head is not the label's")
    need(asked.folds in (0, *by.policy.folds), f"{asked.folds} folds are not agreed on")
    check_fold_seed(by, asked.seed)
    need(not asked.columns or len(asked.columns) == len(asked.heads), "heads lack columns")
    for name in filter(None, asked.columns):
        # of its own range, told before: whether a row lies outside would be an answer
        low, high = by.outline.numeric.get(name, (-1.0, -1.0))
        need(low >= 0 and high <= 1, f"{name!r} is no column of probabilities")
    need(all(np.isfinite(v).all() for v in asked.arrays.values()), "estimates are not finite")
    if not (by.policy.rehearsal and asked.kind.startswith(LOCAL)):
        _arrays(by, asked, task)


def _arrays(by: Judgement, asked: Estimates, task: Task) -> None:
    """A learner's arrays are whole: where one is short, only rows that reach beyond it would fail."""
    heads = len(learned(asked))
    if not heads:
        return need(not asked.arrays, "estimates that are given have arrays")
    need(asked.kind in LEARNERS, "heads lack columns")
    learner = LEARNERS[asked.kind]
    learner.check(learner.of_all_rows(asked.arrays, asked.folds), task.encoding, heads)
    if asked.kind == "trees":
        forests_of(asked.arrays, task.encoding, asked.folds)
        _binning(by, binning_of(asked.arrays), task)
    return None


@task_check("rule")
def _rule(by: Judgement, task: Task) -> None:
    asked = task.rule
    assert asked is not None
    need(task.estimates is not None, "a rule lacks estimates")
    assert task.estimates is not None
    need(np.isfinite(asked.coefficients).all() and isfinite(asked.shift), "a rule is not finite")
    need(all(isfinite(price) and price > 0 for price in asked.prices), "its prices are none")
    need(asked.weights is None or np.isfinite(asked.weights).all(), "a rule is not finite")
    size = 1
    if asked.subgroups is not None:
        check_named(by, replace(task, named=asked.subgroups))
        size = len(asked.subgroups.parts) + 1
    if asked.kernels is not None:
        check_kernels(by, asked.kernels.basis)
        check_centres(by, replace(task, centres=asked.kernels.centres))
        size = asked.kernels.size + 1
    shape = size, len(strata(task.estimates.heads))
    need(asked.coefficients.shape == shape, "a rule has not a coefficient for each subgroup")
    need(asked.weights is None or asked.weights.shape == shape[:1], "a rule has odd weights")


def _heads(by: Judgement, heads: Sequence[Head]) -> None:
    """The label, and groups of the agreed sensitive features, each once."""
    need(len({head.name for head in heads}) == len(heads), "a head is named twice")
    targets = {(head.features, head.group, head.label) for head in heads}
    need(len(targets) == len(heads), "two heads are one")
    most = 1 + 2 * MAX_GROUPS * len(by.outline.groups)
    need(len(heads) <= most, "there are too many heads")
    for head in heads:
        size = len(head.features)
        known = all(name in by.outline.groups for name in head.features)
        known = known and len({*head.features}) == size == len(head.group)
        known = known and len(head.other) in (0, size)
        labels = (None, 0, 1) if size else (None,)
        need(known and head.label in labels, f"{head.name!r} is no head")
        for group in (head.group, head.other):
            pairs = zip(head.features, group, strict=False)
            good = not by.declared or all(value in by.outline.groups[name] for name, value in pairs)
            need(good, f"{head.name!r} has a group that is none")


@question_check("learn")
def _learn(by: Judgement, broadcast: Broadcast[Any]) -> None:
    asked, task = broadcast.asked, broadcast.task
    _trained(by, broadcast)
    shape = asked.folds + 1, len(asked.heads), task.encoding.width + 1
    need(asked.w.shape == shape, "weights are no heads'")
    need(np.isfinite(asked.w).all(), "weights are not finite")


def _trained(by: Judgement, broadcast: Broadcast[Any]) -> None:
    """Folds and heads of a learner."""
    asked = broadcast.asked
    need(not by.policy.epsilon, "learners are not answered under epsilon")
    _heads(by, asked.heads)
    need(asked.folds in (0, *by.policy.folds), f"{asked.folds} folds are not agreed on")
    check_fold_seed(by, asked.seed)


@question_check("private_heads")
def _private_heads(by: Judgement, broadcast: Broadcast[Any]) -> None:
    check_private_step(by, broadcast)
    _heads(by, broadcast.asked.heads)


@question_check("cells")
def _cells(by: Judgement, broadcast: Broadcast[Any]) -> None:
    need(by.policy.rehearsal and not by.declared, "small cells are counted in a rehearsal only")


@question_check("level")
def _level(by: Judgement, broadcast: Broadcast[Any]) -> None:
    asked, task = broadcast.asked, broadcast.task
    _trained(by, broadcast)
    _binning(by, asked.binning, task)
    bins, models = asked.binning.bins(task.encoding), len(asked.heads) * (asked.folds + 1)
    done, growing = (unpack(from_numbers(v), bins) for v in (asked.forests, asked.growing))
    need(len(done) == len(growing) == models, "there are not trees for each model")
    need(all(len(tree) == 1 for tree in growing), "there is not one tree that grows")
    need(all(0 <= asked.level <= tree.depth for tree in growing), "the level is none")
    count = asked.count
    need(count.ndim == 2 and count.shape[1] == 2 and _whole(count), "nodes are no pairs")
    need((count >= 0).all() and (count < [models, 2**asked.level]).all(), "a node is none")
    need(len(np.unique(count, axis=0)) == len(count), "a node is named twice")


def _whole(numbers: np.ndarray) -> bool:
    return bool((numbers == np.rint(numbers)).all())


def _binning(by: Judgement, binning: Binning, task: Task) -> None:
    """Bins for each column of numbers that are the agreed ones, and a code for each category."""
    sizes, codes, encoding = binning.edge_sizes, binning.codes, task.encoding
    values = sum(len(known) for _, known in encoding.categorical)
    need(sizes.shape == (len(encoding.numeric),), "there are not bins for each column")
    good = _whole(sizes) and (sizes >= 0).all() and binning.edges.shape == (sizes.sum(),)
    need(good, "there are not as many edges as it says")
    need(codes.shape == (values,), "there is not a code for each category")
    need(_whole(codes) and ((codes >= 0) & (codes < MAX_CODES)).all(), "a code is none")
    for (name, *_), edges in zip(encoding.numeric, binning.by_column, strict=True):
        if len(edges):
            check_bins(by, name, edges.tolist(), task.fold)


@question_check("subgroup_masses", "calibration", "program")
def _estimated(by: Judgement, broadcast: Broadcast[Any]) -> None:
    asked, task = broadcast.asked, broadcast.task
    need(not by.policy.epsilon, "sums of estimates without noise are not answered under epsilon")
    need(task.estimates is not None, "there are no estimates in the task")
    need(asked.step != "subgroup_masses" or task.named is not None, "there are no subgroups")
    for f in fields(asked):
        value = getattr(asked, f.name)
        good = not isinstance(value, float | np.ndarray) or np.isfinite(value).all()
        need(good, f"{f.name!r} is not finite")
    if asked.step == "program":
        need(all(isfinite(price) and price > 0 for price in asked.prices), "its prices are none")
        need((np.asarray(asked.eps) >= 0).all(), "the smoothing is none")
        _points(asked, task)
        few = asked.hessian and task.n // HESSIAN_ROWS > MOST_FOLDS
        # the draw of rows is a fold whose number is sent: n
        need(by.policy.rehearsal or not few, f"one row in {task.n // HESSIAN_ROWS} would be drawn")


def _points(asked: Any, task: Task) -> None:
    """Shapes that the task settles, and directions that are there: of others only rows near the threshold would fail,
    and a refusal would tell whether the site has one."""
    assert task.estimates is not None
    T, K, P = len(asked.A), _weight_functions(task), len(strata(task.estimates.heads))
    shapes = {"A": (T, K, P), "nu": (T,), "eps": (T,), "directions": (len(asked.directions), 5)}
    shapes |= {"mixed": (len(asked.mixed), K, P), "W": (T, K if asked.W.size else 0)}
    for name, shape in shapes.items():
        own = getattr(asked, name).shape
        need(own == shape, f"{name!r} has the shape {own}")
    need(T > 0 or not asked.hessian, "there is no point for the Hessian")
    of, low, high = asked.directions[:, :3], [0, -2, -1], [K, P, P]
    need(_whole(of) and ((of >= low) & (of < high)).all(), "a direction is none")


def _weight_functions(task: Task) -> int:
    """How many there are of a program, with overall."""
    if task.named is not None:
        return len(task.named.parts) + 1
    constant = task.fair_basis.kind == "constant"
    return 1 if constant else width(task.fair_basis, task.clients) + 1
