"""The table of what a site answers where the coordinator is to see totals only: one check for each request, and one
for each field of the task.

A request that has no check here is refused; so is a task with a field that has none, unless it is left at its default.
A check raises ``ValueError`` with the cause, which stays at the site. What it looks at is the request, the policy and
what the site has sent already (its schema or its outline): never another row, so that a refusal tells of none. Only
bins that no schema declares are held against rows (``Judgement.bins``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from math import isfinite, prod
from typing import Any

import numpy as np

from agnosticfair.data.encoding import Encoding
from agnosticfair.data.rows import Fold
from agnosticfair.data.schema import check_agreed
from agnosticfair.data.summary import SummaryStatistics, encoding_of
from agnosticfair.learners.decisions import without_bins
from agnosticfair.mathematics.basis import Basis, is_apart, is_centred, width
from agnosticfair.mathematics.subgroups import DEEPEST, SITE
from agnosticfair.privacy.requests import covered
from agnosticfair.protocol.messages import MAX_BYTES, Broadcast
from agnosticfair.protocol.requests import UNCOUNTED, SubgroupSet, Task
from agnosticfair.site.policy import SitePolicy

MIN_SIGMA = 0.1
"""The narrowest kernel, where every feature has the range 0 to 1."""

MIN_TEMPERATURE = 1e-6
MAX_ROWS = 1 << 36
MAX_STEPS = 100_000
MAX_KERNELS = 4096
"""Each is a number for every row."""

MAX_NUMBERS = MAX_BYTES // 8
"""Of an answer: a longer one could not be read."""

NOISE = (1e-3, 1e6)
"""The multipliers of noise that have a meaning."""


@dataclass(frozen=True)
class Judgement:
    """What a request is held against.  outline: of the schema; without one, what this site sent of its rows.  bins:
    from a column, its edges and a fold to whether enough rows lie in every bin."""

    policy: SitePolicy
    outline: SummaryStatistics
    bins: Callable[[str, Sequence[float], Fold | None], bool]

    @property
    def declared(self) -> bool:
        """Whether a schema settles what there is."""
        return self.policy.schema is not None


Check = Callable[[Judgement, Broadcast[Any]], None]
CHECKS: dict[str, Check] = {}
"""By the step: what must hold of its request."""

TASK: dict[str, Callable[[Judgement, Task], None]] = {
    "by_label": lambda by, task: None,  # either
    "basis": lambda by, task: check_kernels(by, task.basis),
    "fair_basis": lambda by, task: check_kernels(by, task.fair_basis),
}
"""By the field of the task: what must hold of it."""


def request_check(*steps: str) -> Callable[[Check], Check]:
    """Know the check of a step's request; its task is checked besides."""

    def known(check: Check) -> Check:
        CHECKS.update(dict.fromkeys(steps, check))
        return check

    return known


def task_check(name: str) -> Callable[..., Any]:
    def known(check: Callable[[Judgement, Task], None]) -> Callable[[Judgement, Task], None]:
        TASK[name] = check
        return check

    return known


def need(holds: object, cause: str) -> None:
    """Raise with the cause unless it holds.

    >>> need(True, "never")
    """
    if not holds:
        raise ValueError(cause)


def check_request(by: Judgement, step: str, broadcast: Broadcast[Any], known: bool = False) -> None:
    """Raise, with the cause, unless the site answers this request.  known: whether its task was judged before."""
    need(step in CHECKS, f"there is no check of the step {step!r}")
    need(broadcast.request.step == step, f"the request is of {broadcast.request.step!r}")
    if broadcast.task.clients:
        if not known:
            check_task(by, broadcast.task)
    else:  # asked before anything is agreed on
        bare = {f.name: getattr(broadcast.task, f.name) for f in fields(Task) if f.name != "fold"}
        need(step in ("counts", "outline"), f"{step!r} has no task")
        need(all(v == getattr(UNCOUNTED, k) for k, v in bare.items()), "the task is half of one")
        TASK["fold"](by, broadcast.task)
    CHECKS[step](by, broadcast)
    need(sum(map(prod, broadcast.shapes.values())) <= MAX_NUMBERS, "its answer would be too long")


def check_task(by: Judgement, task: Task) -> None:
    """Raise unless this is a task that the site would build itself."""
    for f in fields(task):
        value = getattr(task, f.name)
        default = None if f.default is MISSING else f.default
        known = f.name in TASK or value is default
        need(known, f"there is no check of the task's field {f.name!r}")
        if f.name in TASK and value is not None:
            TASK[f.name](by, task)


@task_check("encoding")
def _encoding(by: Judgement, task: Task) -> None:
    requested, agreed_encoding = task.encoding, encoding_of(by.outline, task.encoding.scale)
    if by.declared:
        same = all(
            getattr(requested, k) == getattr(agreed_encoding, k)
            for k in ("numeric", "categorical", "missing")
        )
        need(same, "its columns, ranges or categories are not the schema's")
    elif not by.policy.rehearsal:
        _around(requested, agreed_encoding, by.outline.numeric)
    for name, edges in requested.bins:
        check_bins(by, name, edges, task.fold)


def _around(
    request: Encoding, agreed_encoding: Encoding, known_ranges: Mapping[str, tuple[float, float]]
) -> None:
    """An encoding of other sites' values, too, has this site's columns, ranges and categories."""
    ranges = {name: (low, high) for name, low, high in request.numeric}
    values = {name: {*known} for name, known in request.categorical}
    known_columns = (agreed_encoding.numeric, agreed_encoding.categorical)
    agreed_names = [{name for name, *_ in columns} for columns in known_columns]
    need([{*ranges}, {*values}] == agreed_names, "its columns are others")
    need({*request.missing} >= {*agreed_encoding.missing}, "numbers that are missing have no place")
    for name, (low, high) in known_ranges.items():  # an empty one is in all
        need(
            ranges[name][0] <= low and high <= ranges[name][1],
            f"the range of {name!r} is narrower than the site's",
        )
    for name, known in agreed_encoding.categorical:
        need(values[name] >= {*known}, f"categories of {name!r} are left out")


def check_bins(by: Judgement, name: str, edges: Sequence[float], fold: Fold | None) -> None:
    """Bins are the schema's; without one, enough rows lie in each."""
    need(name in by.outline.numeric, f"{name!r} is no column of numbers")
    need(all(map(isfinite, edges)), f"the edges of {name!r} are not finite")
    need(list(edges) == sorted({*edges}), f"the edges of {name!r} do not ascend")
    declared = tuple(by.outline.bins.get(name, ()))
    if declared or (by.declared and not by.policy.rehearsal):
        return need(tuple(edges) == declared, f"the bins of {name!r} are not the schema's")
    return need(
        by.policy.rehearsal or by.bins(name, edges, fold),
        f"a bin of {name!r} at {', '.join(f'{edge:g}' for edge in edges)} holds fewer than {by.policy.min_rows} "
        "rows: declare 'bins' in a schema",
    )


@task_check("positive")
def _positive(by: Judgement, task: Task) -> None:
    good = not by.declared or task.positive in by.outline.labels
    need(good, "the positive label is not the schema's")


@task_check("sensitive_features")
def _groups(by: Judgement, task: Task) -> None:
    names = [name for name, _ in task.sensitive_features]
    need(len({*names}) == len(names), "a sensitive feature is named twice")
    for name, groups in task.sensitive_features:
        need(name in by.outline.groups, f"{name!r} is no sensitive feature")
        known = {*by.outline.groups[name]}
        need(len({*groups}) == len(groups), f"a group of {name!r} is named twice")
        same = {*groups} == known if by.declared else {*groups} >= known
        need(same, f"the groups of {name!r} are not those that were agreed on")


@task_check("n")
def _n(by: Judgement, task: Task) -> None:
    need(0 <= task.n <= MAX_ROWS, "the number of rows is none")


@task_check("clients")
def _clients(by: Judgement, task: Task) -> None:
    policy, requested = by.policy, {*task.clients}
    need(list(task.clients) == sorted(requested), "the sites are not listed once each")
    if not policy.sites:
        return
    need(policy.site in requested, "the site is not among its sites")
    need(requested <= {*policy.sites}, "the sites are not those of the list")
    enough = len(requested) >= policy.min_sites and policy.may_drop
    need(enough or requested == {*policy.sites}, "some sites of the list are left out")


def check_kernels(by: Judgement, basis: Basis) -> None:
    apart = is_apart(basis) and not by.policy.shares_site_totals
    need(not apart, "totals would have a block of this site's own (shares-site-totals)")
    if is_centred(basis):
        need(basis.sigma >= MIN_SIGMA, f"kernels are narrower than {MIN_SIGMA:g}")


@task_check("network")
def _network(by: Judgement, task: Task) -> None:
    """Any that is known here, if its weights fit into a message."""
    assert task.network is not None
    widths = (task.encoding.width, *task.network.hidden, 1)
    need(all(k > 0 for k in task.network.hidden), "a layer has no width")
    need(sum(a * b for a, b in pairwise(widths)) <= MAX_NUMBERS, "the network is too large")


@task_check("centres")
def check_centres(by: Judgement, task: Task) -> None:
    if task.centres is None:
        return
    widths = {task.encoding.width, without_bins(task.encoding).width}
    need(task.centres.ndim == 2, "centres are no rows")
    need(task.centres.shape[1] in widths, "centres are not of the encoding")
    need(len(task.centres) <= MAX_KERNELS, "there are too many centres")
    need(np.isfinite(task.centres).all(), "centres are not finite")


@task_check("subgroups")
def check_subgroups(by: Judgement, task: Task) -> None:
    assert task.subgroups is not None
    names = [name for name, *_ in task.subgroups.axes]
    need(len({*names}) == len(names), "an axis is named twice")
    for name, values, edges in task.subgroups.axes:
        need(len({*values}) == len(values), f"a value of {name!r} is named twice")
        if edges:
            need(len(values) == len(edges) + 1, f"{name!r} has not one value for each bin")
            check_bins(by, name, edges, task.fold)
        else:
            _values(by, name, values, task.clients)
    _subgroups(task.subgroups)


def _values(by: Judgement, name: str, values: Sequence[str], clients: Sequence[str]) -> None:
    outline = by.outline
    known = outline.categorical.get(name) or outline.groups.get(name) or outline.other.get(name)
    if name == SITE and {*values} & {*clients}:
        return need(
            by.policy.shares_site_totals, "subgroups are named by the site (shares-site-totals)"
        )
    need(known is not None or not by.declared, f"{name!r} is no column of the schema")
    return need(
        not by.declared or {*values} <= {*(known or ())},
        f"values of {name!r} are not the schema's",
    )


def _subgroups(named: SubgroupSet) -> None:
    """Conjunctions of at most DEEPEST values of different axes, each once."""
    subgroups = np.asarray(named.values)
    need(
        subgroups.ndim == 3 and subgroups.shape[1] <= DEEPEST and subgroups.shape[2] == 2,
        "subgroups are deep",
    )
    need((subgroups == np.rint(subgroups)).all(), "subgroups are no whole numbers")
    axis, value = subgroups[..., 0].astype(int), subgroups[..., 1].astype(int)
    sizes = np.array([*(len(values) for _, values, _ in named.axes), 1])
    used = axis >= 0
    need(((axis >= -1) & (axis < len(sizes) - 1)).all(), "a subgroup has an axis that is none")
    need((~used | ((value >= 0) & (value < sizes[axis]))).all(), "a subgroup has no such value")
    order = np.sort(np.where(used, axis, -1), axis=1)
    twice = (order[:, 1:] == order[:, :-1]) & (order[:, 1:] >= 0)
    need(not twice.any(), "a subgroup has an axis twice")
    places = np.sort(np.where(used, axis * sizes.max() + value, -1), axis=1)
    need(len(np.unique(places, axis=0)) == len(places), "a subgroup is named twice")


@task_check("fold")
def _fold(by: Judgement, task: Task) -> None:
    fold, policy = task.fold, by.policy
    if fold is None:
        return
    need(not policy.epsilon, "folds are not answered under epsilon")
    need(fold.of in policy.folds, f"{fold.of} folds are not agreed on")
    check_fold_seed(by, fold.seed)


def check_fold_seed(by: Judgement, seed: int) -> None:
    need(by.policy.fold_seed in (None, seed), "the folds' seed is not the agreed one")


def _numbers(by: Judgement, broadcast: Broadcast[Any]) -> None:
    """Numbers that describe a model: any finite ones, of the shapes that the task settles."""
    task, request = broadcast.task, broadcast.request
    D, F = task.encoding.width + 1, width(task.fair_basis, task.clients)
    D = D if task.rule is None else 0  # a rule decides, without weights
    shapes = {"alpha": (width(task.basis, task.clients),), "C": (task.strata, F + 1)}
    shapes |= {} if task.network else {"w": (D,)}
    plain = [(f.name, getattr(request, f.name)) for f in fields(request)]
    before = getattr(request, "before", None)  # where the round before began
    plain += [] if before is None else [*vars(before).items()]
    for name, value in plain:
        if isinstance(value, float | np.ndarray):
            need(np.isfinite(value).all(), f"{name!r} is not finite")
        if name in shapes and isinstance(value, np.ndarray):
            need(value.shape == shapes[name], f"{name!r} has the shape {value.shape}")
    surrogate = getattr(request, "surrogate", None)
    steep = MIN_TEMPERATURE if surrogate is None else surrogate.temperature
    need(isfinite(steep) and steep >= MIN_TEMPERATURE, "the temperature is none")
    need((getattr(request, "steps", None) or 0) <= MAX_STEPS, "there are too many local steps")
    batch = getattr(request, "batch", None)
    need(batch is None or batch >= by.policy.min_rows, "a step is of too few rows")


request_check("sums", "trials", "average", "moments", "train", "decisions")(_numbers)


@request_check("subgroup_counts", "subgroup_decisions")
def _over_subgroups(by: Judgement, broadcast: Broadcast[Any]) -> None:
    need(broadcast.task.subgroups is not None, "there are no subgroups in the task")
    _numbers(by, broadcast)


@request_check("outline")
def _outline(by: Judgement, broadcast: Broadcast[Any]) -> None:
    need(broadcast.task.fold is None, "an outline is of all rows, never of a fold")
    need(not by.declared, "with a schema there is no outline")


@request_check("counts")
def _counts(by: Judgement, broadcast: Broadcast[Any]) -> None:
    agreed = broadcast.request.outline
    if by.policy.schema is not None:
        return check_agreed(by.policy.schema, agreed, by.policy.site)
    need({*agreed.labels} >= {*by.outline.labels}, "labels are left out")
    need({*agreed.groups} <= {*by.outline.groups}, "a sensitive feature is none")
    for name, groups in agreed.groups.items():
        need({*groups} >= {*by.outline.groups[name]}, f"groups of {name!r} are left out")
    return None


@request_check("histograms")
def _histograms(by: Judgement, broadcast: Broadcast[Any]) -> None:
    request, task = broadcast.request, broadcast.task
    ranges = {name: (low, high) for name, low, high in task.encoding.numeric}
    need(not by.declared or by.policy.rehearsal, "with a schema its bins are declared")
    need(len({*request.columns}) == len(request.columns), "a column is named twice")
    good = request.low.shape == request.high.shape == (len(request.columns),)
    need(good, "there is not one range for each column")
    for name, low, high in zip(request.columns, request.low, request.high, strict=True):
        need(name in ranges, f"{name!r} is no column of numbers")
        need(ranges[name] == (low, high), f"the range of {name!r} is not the task's")


@request_check("centres")
def _rows(by: Judgement, broadcast: Broadcast[Any]) -> None:
    need(by.policy.shows_rows, "it shows no rows (shows-rows)")


@request_check("clusters")
def _clusters(by: Judgement, broadcast: Broadcast[Any]) -> None:
    need(by.policy.shares_cluster_means, "it shows no means of clusters (shares-cluster-means)")
    _numbers(by, broadcast)


@request_check("private_plan")
def _plan(by: Judgement, broadcast: Broadcast[Any]) -> None:
    _noise(broadcast.request.multipliers)


def _noise(z: float | np.ndarray) -> None:
    (low, high), z = NOISE, np.asarray(z)
    need(((z >= low) & (z <= high)).all(), "the noise has no such multiplier")


@request_check(
    "private_counts", "private_moments", "private_gradients", "private_rates", "private_decisions"
)
def check_private_step(by: Judgement, broadcast: Broadcast[Any]) -> None:
    request, task = broadcast.request, broadcast.task
    subgroups = np.zeros((0, 1, 2)) if task.subgroups is None else task.subgroups.values
    need((subgroups[:, 1:, 0] < 0).all(), "subgroups are of one value each")
    need(covered(broadcast), "its noise does not cover the request")
    need(request.max_rows == by.policy.site_rows, "rows are hidden, or sites, and not the other")
    _noise(request.z)
