"""What a site answers of estimates, trees and rules where the coordinator is to see totals only.

Shapes are what the task settles: an array that is short fails at the rows alone that reach beyond it, and a refusal
would tell whether a site has such a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.data.axes import Binning
from agnosticfair.data.records import taken_apart
from agnosticfair.data.summary import MAX_GROUPS
from agnosticfair.errors import existing
from agnosticfair.learners.estimates import LEARNERS, Estimates, Head, learned, strata
from agnosticfair.learners.local import LOCAL
from agnosticfair.learners.trees import binning_of, forests_of
from agnosticfair.mathematics.basis import width
from agnosticfair.mathematics.scores import HESSIAN_ROWS, Points
from agnosticfair.mathematics.trees import MAX_CODES, unpack
from agnosticfair.protocol.messages import Broadcast
from agnosticfair.protocol.requests import Task
from agnosticfair.site.checks import (
    Judgement,
    check_bins,
    check_centres,
    check_fold_seed,
    check_kernels,
    check_private_step,
    check_subgroups,
    need,
    request_check,
    task_check,
)
from agnosticfair.site.policy import MAX_FOLDS


@task_check("estimates")
def _estimates(by: Judgement, task: Task) -> None:
    estimates = existing(task.estimates)
    alone = estimates.kind in ("linear", "additive") and not (estimates.folds or estimates.aware)
    alone = alone and not any(estimates.columns)
    need(alone or not by.policy.epsilon, "such estimates are not answered under epsilon")
    need(estimates.kind in (*LEARNERS, "given"), "its learner is none that is known here")
    _heads(by, estimates.heads)
    need(estimates.heads and not estimates.heads[0].features, "the first head is not the label's")
    need(estimates.folds in (0, *by.policy.folds), f"{estimates.folds} folds are not agreed on")
    check_fold_seed(by, estimates.seed)
    need(len(estimates.columns) in (0, len(estimates.heads)), "heads lack columns")
    for name in filter(None, estimates.columns):
        # its range was sent before: whether a row lies outside would be an answer
        low, high = by.outline.numeric.get(name, (-1.0, -1.0))
        need(low >= 0 and high <= 1, f"{name!r} is no column of probabilities")
    need(all(np.isfinite(v).all() for v in estimates.arrays.values()), "estimates are not finite")
    if not (by.policy.rehearsal and estimates.kind.startswith(LOCAL)):
        _arrays(by, estimates, task)


def _arrays(by: Judgement, request: Estimates, task: Task) -> None:
    """A learner's arrays are whole: where one is short, only rows that reach beyond it would fail."""
    heads = len(learned(request))
    if not heads:
        return need(not request.arrays, "estimates that are given have arrays")
    need(request.kind in LEARNERS, "heads lack columns")
    learner = LEARNERS[request.kind]
    learner.check(learner.of_all_rows(request.arrays, request.folds), task.encoding, heads)
    if request.kind == "trees":
        forests_of(request.arrays, task.encoding, request.folds)
        _binning(by, binning_of(request.arrays), task)
    return None


@task_check("rule")
def _rule(by: Judgement, task: Task) -> None:
    rule = existing(task.rule)
    need(task.estimates is not None, "a rule lacks estimates")
    need(np.isfinite(rule.coefficients).all() and isfinite(rule.shift), "a rule is not finite")
    _prices(rule.error_costs)
    need(rule.weights is None or np.isfinite(rule.weights).all(), "a rule is not finite")
    size = 1
    if rule.subgroups is not None:
        check_subgroups(by, replace(task, subgroups=rule.subgroups))
        size = len(rule.subgroups.values) + 1
    if rule.kernels is not None:
        check_kernels(by, rule.kernels.basis)
        check_centres(by, replace(task, centres=rule.kernels.centres))
        size = rule.kernels.size + 1
    shape = size, len(strata(existing(task.estimates).heads))
    need(rule.coefficients.shape == shape, "a rule has not a coefficient for each subgroup")
    need(rule.weights is None or rule.weights.shape == shape[:1], "a rule has odd weights")


def _prices(prices: Sequence[float]) -> None:
    need(all(isfinite(price) and price > 0 for price in prices), "its prices are none")


def _heads(by: Judgement, heads: Sequence[Head]) -> None:
    """The label, and groups of the agreed sensitive features, each once."""
    need(len({head.name for head in heads}) == len(heads), "a head is named twice")
    targets = {(head.features, head.group, head.label) for head in heads}
    need(len(targets) == len(heads), "two heads are one")
    maximum = 1 + 2 * MAX_GROUPS * len(by.outline.groups)
    need(len(heads) <= maximum, "there are too many heads")
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


@request_check("learn")
def _learn(by: Judgement, broadcast: Broadcast[Any]) -> None:
    request, task = broadcast.request, broadcast.task
    _trained(by, broadcast)
    shape = request.folds + 1, len(request.heads), task.encoding.width + 1
    need(request.w.shape == shape, "weights are no heads'")
    need(np.isfinite(request.w).all(), "weights are not finite")


def _trained(by: Judgement, broadcast: Broadcast[Any]) -> None:
    request = broadcast.request
    need(not by.policy.epsilon, "learners are not answered under epsilon")
    _heads(by, request.heads)
    need(request.folds in (0, *by.policy.folds), f"{request.folds} folds are not agreed on")
    check_fold_seed(by, request.seed)


@request_check("private_heads")
def _private_heads(by: Judgement, broadcast: Broadcast[Any]) -> None:
    check_private_step(by, broadcast)
    _heads(by, broadcast.request.heads)


@request_check("fine_counts")
def _fine_bins(by: Judgement, broadcast: Broadcast[Any]) -> None:
    need(by.policy.rehearsal and not by.declared, "small cells are counted in a rehearsal only")


@request_check("level")
def _level(by: Judgement, broadcast: Broadcast[Any]) -> None:
    request, task = broadcast.request, broadcast.task
    _trained(by, broadcast)
    _binning(by, request.trees.binning, task)
    need(request.min_rows >= by.policy.min_rows, f"leaves have {request.min_rows} rows")
    trees, models = request.trees, len(request.heads) * (request.folds + 1)
    bins = trees.binning.bins(task.encoding)
    done, growing = (unpack(v, bins) for v in (trees.done, trees.growing))
    need(len(done) == len(growing) == models, "there are not trees for each model")
    need(all(len(tree) == 1 for tree in growing), "there is not one tree that grows")
    need(all(0 <= request.level <= tree.depth for tree in growing), "the level is none")
    count = request.count
    need(count.ndim == 2 and count.shape[1] == 2 and _whole(count), "nodes are no pairs")
    need((count >= 0).all() and (count < [models, 2**request.level]).all(), "a node is none")
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


@request_check("subgroup_masses", "calibration", "program")
def _estimated(by: Judgement, broadcast: Broadcast[Any]) -> None:
    request, task = broadcast.request, broadcast.task
    need(not by.policy.epsilon, "sums of estimates without noise are not answered under epsilon")
    need(task.estimates is not None, "there are no estimates in the task")
    need(request.step != "subgroup_masses" or task.subgroups is not None, "there are no subgroups")
    for name, value in taken_apart(request)[1].items():
        need(np.isfinite(value).all(), f"{name!r} is not finite")
    if request.step == "program":
        _prices(request.error_costs)
        _points(request.points, task)
        few = request.points.directions is not None and task.n // HESSIAN_ROWS > MAX_FOLDS
        # the draw of rows is a fold whose number is sent: n
        need(by.policy.rehearsal or not few, f"one row in {task.n // HESSIAN_ROWS} would be drawn")


def _points(points: Points, task: Task) -> None:
    """Shapes that the task settles, and directions that are there: of others only rows near the threshold would fail,
    and a refusal would tell whether the site has one."""
    T, K, P = len(points.A), _weight_functions(task), len(strata(existing(task.estimates).heads))
    shapes = [(points.A, (T, K, P)), (points.nu, (T,)), (points.eps, (T,))]
    shapes += [] if points.W is None else [(points.W, (T, K))]
    if (at := points.directions) is not None:
        need(T > 0, "there is no point for the Hessian")
        shapes += [(v, (len(at.k),)) for v in (at.k, at.j, at.other, at.first, at.second)]
        shapes += [(at.mixed, (len(at.mixed), K, P))]
    for value, shape in shapes:
        need(value.shape == shape, f"an array has the shape {value.shape}, not {shape}")
    need((points.eps >= 0).all(), "the smoothing is none")
    if at is not None:
        of, low, high = np.column_stack([at.k, at.j, at.other]), [0, -2, -1], [K, P, P]
        need(_whole(of) and ((of >= low) & (of < high)).all(), "a direction is none")


def _weight_functions(task: Task) -> int:
    if task.subgroups is not None:
        return len(task.subgroups.values) + 1
    constant = task.fair_basis.kind == "constant"
    return 1 if constant else width(task.fair_basis, task.clients) + 1
