"""What is requested of a client: the task, which every round of a fit shares, and one record for each step.

A request knows its step, and what the answer to it must look like.  ``request`` makes a new one
known, in every process that takes part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, Protocol, TypeVar, dataclass_transform

import numpy as np

from agnosticfair.data.axes import FINE, Binning
from agnosticfair.data.encoding import Encoding
from agnosticfair.data.records import taken_apart
from agnosticfair.data.rows import Fold
from agnosticfair.data.summary import SummaryStatistics, counts_shapes
from agnosticfair.errors import existing
from agnosticfair.learners.decisions import Decision
from agnosticfair.learners.estimates import Estimates, Head, strata
from agnosticfair.mathematics import sums
from agnosticfair.mathematics.basis import Basis, constant, kernel_width, width
from agnosticfair.mathematics.fairness import Surrogate
from agnosticfair.mathematics.scores import Points
from agnosticfair.mathematics.subgroups import SubgroupSet as SubgroupSet

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Architecture:
    """Which network clients build: its name in ``networks``, and the widths of its layers."""

    name: str
    hidden: tuple[int, ...]


@dataclass(frozen=True)
class Task:
    """All that a client must know to answer any round: it can be forgotten and rebuilt at any time.

    positive: the label.  sensitive_features: each with its groups.  by_label: strata are cut
    by label, too.  n: what all rows weigh.  basis, fair_basis: the two adversaries'.  centres: (M, d).  fold: of
    the rows that answer; None for all.  estimates: of P(Y, S | x), once they are learned.
    rule: by which a model decides that is looked at.
    """

    encoding: Encoding
    positive: str
    sensitive_features: tuple[tuple[str, tuple[str, ...]], ...]
    by_label: bool
    n: int
    clients: tuple[str, ...]
    basis: Basis
    fair_basis: Basis
    network: Architecture | None = None
    centres: np.ndarray | None = None
    subgroups: SubgroupSet | None = None
    fold: Fold | None = None
    estimates: Estimates | None = None
    rule: Decision | None = None

    @cached_property
    def id(self) -> str:
        plain, arrays = taken_apart(self)
        digest = hashlib.sha256(json.dumps(plain, sort_keys=True).encode())
        for name in sorted(arrays):
            shape = f"{arrays[name].shape} {arrays[name].dtype}"
            digest.update(name.encode() + shape.encode() + arrays[name].tobytes())
        return digest.hexdigest()

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of the groups, those of several features joined."""
        values = [groups for _, groups in self.sensitive_features]
        return tuple(" & ".join(group) for group in product(*values)) if values else ()

    @property
    def strata(self) -> int:
        """G, into how many strata rows are cut (``fairness.comparisons``)."""
        return prod(len(groups) for _, groups in self.sensitive_features) * (
            2 if self.by_label else 1
        )


UNCOUNTED = Task(Encoding((), ()), "", (), False, 0, (), constant(), constant())
"""Of what is asked before the rows are counted."""


class Request(Protocol):
    """What a step is asked for: settings and arrays, in a frozen dataclass."""

    def shapes(self, task: Task) -> Shapes:
        """What every client's answer must look like."""
        ...


T = TypeVar("T")
REQUESTS: dict[str, type[Any]] = {}
REVEALS = {
    **sums.REVEALS,
    "n": "how many rows the site has",
    "labels": "how many rows have each label",
    "groups": "how many rows each sensitive group has",
    "numeric": "the smallest and the largest value of every numeric column, each of one person",
    "categorical": "which categories occur",
    "other": "which values occur in columns that are no features and name subgroups",
    "weight": "what the site's rows weigh together",
}
"""What each field of an answer could tell of a site: of summary statistics, of a round's sums, and of what requests
say."""


@dataclass_transform(frozen_default=True)
def request(step: str, **reveals: str) -> Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass, and know it as the record of this step's request.  reveals: what fields of its
    answer could tell of a site, where no other request has said it."""

    def known(record: type[T]) -> type[T]:
        dataclass_type = record if is_dataclass(record) else dataclass(frozen=True)(record)
        dataclass_type.step = step  # type: ignore[attr-defined]
        REQUESTS[step] = dataclass_type
        REVEALS.update(reveals)
        return dataclass_type

    return known


def step_of(request: Request | type[Any]) -> str:
    """The step that a request, or its record, is of.

    >>> step_of(Moments())
    'moments'
    """
    return request.step  # type: ignore[union-attr]


@request("statistics")
class Summary:
    """What there is among the rows of a fold; of all rows it is asked for without a request.  by_features: one more
    fold, of those by which learners judge rows; None for all of them."""

    by_features: Fold | None = None

    def shapes(self, task: Task) -> Shapes:
        return {}  # summary statistics comes, which is no sums


@request("outline")
class Outline:
    """``Summary`` without a count of anything."""

    def shapes(self, task: Task) -> Shapes:
        return {}


@request("counts")
class Counts:
    """How many rows there are of each label and group of this outline: round zero of secure sums."""

    outline: SummaryStatistics

    def shapes(self, task: Task) -> Shapes:
        return counts_shapes(self.outline)


@request(
    "centres",
    rows="WHOLE ROWS of the site's features (no label, no group), which all sites then see",
    priorities="nothing beyond the rows: a hash of each",
)
class Centres:
    """Distinct rows as kernel centres: the ``share`` of them that draws lowest with this seed."""

    seed: int
    share: float

    def shapes(self, task: Task) -> Shapes:
        return {}  # rows come as Candidates, which check_candidates looks at


@request(
    "clusters",
    count="how many rows are nearest to each centre",
    total="the sum of these rows: with few of them, what they look like",
)
class Clusters:
    """One step of k-means around these centres, (M, d)."""

    centres: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"count": (len(self.centres),), "total": self.centres.shape}


@request("sums")
class Sums:
    """Values and gradients at w of every coefficient of alpha, and one curvature (``mathematics.sums``)."""

    surrogate: Surrogate
    share: float
    w: np.ndarray
    alpha: np.ndarray
    C: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return sums.shapes(len(self.w), len(self.alpha), *self.C.shape)


@request("trials")
class Trials:
    """Loss and decisions under several weights W, (T, D), at once: values, and no gradient."""

    W: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        M, F = (width(basis, task.clients) for basis in (task.basis, task.fair_basis))
        T = len(self.W)
        return {"loss": (T,), "psi_L": (T, M), "psi_hat": (T, task.strata, F + 1)}


@request(
    "histograms",
    counts="how many rows lie in each cell of a column's range, or have each pair of values: with few, who they are",
)
class Histograms:
    """How many rows lie in each of many equal cells of these columns' agreed ranges (``data.axes``)."""

    columns: tuple[str, ...]
    low: np.ndarray
    high: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"counts": (len(self.columns), FINE)}


@request("subgroup_counts")
class SubgroupCounts:
    """How many rows each of the task's subgroups has; each pair of values where it has no subgroup yet."""

    def shapes(self, task: Task) -> Shapes:
        axes, subgroups = existing(task.subgroups).agreed
        size = sum(len(axis.values) for axis in axes)
        return {"counts": (len(subgroups),) if subgroups else (size, size)}


@request(
    "average",
    w="a model trained on the site's rows alone: more than sums reveal",
    clients="nothing: a one",
    psi_C="how decisions go along with the sensitive group around each centre",
    phi_C="how features go along with the sensitive group",
)
class Average:
    """Algorithms 1 and 2: train on the client's own rows, for the server to average.

    steps: of the gradient, None to minimise in full.  penalty: lambda, 0 for none.  n, s_bar: of all
    clients.  phi_C: the gradient of the covariance, from the last round.
    """

    steps: int | None
    rate: float
    penalty: float
    tau: float
    ridge: float
    n: float
    s_bar: float
    w: np.ndarray
    alpha: np.ndarray
    phi_C: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        kernels = dict.fromkeys(("psi_L", "psi_theta", "psi_C"), self.alpha.shape)
        w = self.w.shape
        return {"w": w, "clients": (), "phi_C": w, "correct": (), **kernels}


@request(
    "moments",
    mass="what the site's rows weigh together: how many there are, where all weigh the same",
    x="sums of the features: what the site's mean row looks like",
    x_squares="sums of the squared features",
    gram="how many rows of each group lie around two centres at once: with few, what they look like",
)
class Moments:
    """First and second moments of the features, and of the kernels in every stratum."""

    def shapes(self, task: Task) -> Shapes:
        basis, d = task.fair_basis, (task.encoding.width,)
        M = kernel_width(basis)
        gram = (task.strata, width(basis, task.clients) // M, M + 1, M + 1)
        return {"mass": (), "x": d, "x_squares": d, "gram": gram}


@dataclass(frozen=True)
class Trained:
    """Where the last round of ``train`` began, and the mean gradient of all clients there."""

    w: np.ndarray
    alpha: np.ndarray
    C: np.ndarray
    gradient: np.ndarray


@request(
    "train",
    gradient="the objective's gradient at w, a sum over rows for every weight: of one row, THAT ROW and its label; "
    "of few rows, or over many rounds, it may be solved for what they look like",
    moved="where training on the site's rows alone led from w: as gradient, over some steps of it",
    squares="the mean square of these steps' gradients: how much the rows differ",
)
class TrainNetwork:
    """Sums at w, then local steps of a network.  ridge, scale: (P,), of every weight."""

    surrogate: Surrogate
    share: float
    seed: int
    rate: float
    steps: int
    batch: int | None
    momentum: float
    device: str
    w: np.ndarray
    alpha: np.ndarray
    C: np.ndarray
    ridge: np.ndarray
    scale: np.ndarray
    before: Trained | None

    def shapes(self, task: Task) -> Shapes:
        of_sums = sums.shapes(1, len(self.alpha), *self.C.shape)
        of_weights = dict.fromkeys(("gradient", "moved", "squares"), self.w.shape)
        return {k: v for k, v in of_sums.items() if k not in sums.GRADIENTS} | {
            "mass": (),
            **of_weights,
        }


@request("subgroup_decisions")
class SubgroupDecisions:
    """How many rows of the task's subgroups have which group, label and decision d_w(x) > 0."""

    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"counts": (len(existing(task.subgroups).values), 4 * len(task.groups))}


@request("decisions", psi="decisions per group and label around each centre")
class Decisions:
    """What an audit over kernels needs of the decisions d_w(x) > 0."""

    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        return {"psi": (4 * len(task.groups), width(task.basis, task.clients) + 1)}


# Of the rule: its learners, what their estimates say of subgroups, and its program.

MAX_NUMBERS = 115_000
"""Of a message, so that it stays under a megabyte."""


def hessian_numbers(heads: int, width: int) -> int:
    """How many numbers a head's Hessian has in a message.

    >>> hessian_numbers(2, 200), hessian_numbers(2, 5000)
    (20100, 5000)
    """
    lower = width * (width + 1) // 2
    return lower if heads * lower <= MAX_NUMBERS else width


@request(
    "learn",
    head_loss="how well each head's estimate fits the site's rows",
    head_gradient="the gradient of each head's loss, a sum over rows for every weight: of few rows, or over many "
    "rounds, it may be solved for what they look like",
    head_hessian="how many rows, as far as they are undecided, have two features at once: with few, what they "
    "look like",
    head_mass="how many rows each head is trained on: those of a label, or of all but a fold",
    held_out="how well estimates fit rows that they were not trained on",
)
class Learn:
    """Loss and gradient at w, (models, H, D), of every head's logistic regression, by the model of each fold and of all
    rows; and, where it is requested, the Hessian of the model of all rows, its lower triangle; its diagonal alone where
    that would be more than MAX_NUMBERS."""

    heads: tuple[Head, ...]
    folds: int
    seed: int
    hessian: bool
    w: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        models, H, D = self.w.shape
        each = dict.fromkeys(("head_loss", "head_mass"), (models, H))
        lower = {"head_hessian": (H, hessian_numbers(H, D))} if self.hessian else {}
        return {**each, "head_gradient": self.w.shape, "held_out": (H,), **lower}


@request(
    "subgroup_masses",
    masses="how many people of each group are expected in each subgroup or pair of values: with few, who they "
    "are",
)
class SubgroupMasses:
    """Sums of estimated P(Y = y, S = s | x) over the task's subgroups; where it has none, over each pair of values."""

    def shapes(self, task: Task) -> Shapes:
        assert task.subgroups is not None and task.estimates is not None  # noqa: PT018
        axes, subgroups = task.subgroups.agreed
        size = sum(len(axis.values) for axis in axes)
        C = len(strata(task.estimates.heads))
        return {"masses": (C, len(subgroups)) if subgroups else (C, size, size)}


@request(
    "calibration",
    surplus="by how much labels and groups exceed what is expected in each subgroup: with few people, who they are",
    variance="how uncertain the estimates are in each subgroup",
)
class Calibration:
    """Observed less expected, and its variance, of every head in each of the task's subgroups and, last, overall."""

    def shapes(self, task: Task) -> Shapes:
        M = 0 if task.subgroups is None else len(task.subgroups.values)
        return dict.fromkeys(("surplus", "variance"), (len(existing(task.estimates).heads), M + 1))


@request(
    "fine_counts",
    fine_bin_counts="how many rows lie in each small cell of a column's range, or have no number there: with few, who "
    "they are",
    value_counts="how many rows have each category",
)
class FineCounts:
    """How many rows lie between cuts, (columns, K), of every column of numbers, and how many have each category: for
    the bins of trees (``data.axes``)."""

    cuts: np.ndarray

    def shapes(self, task: Task) -> Shapes:
        values = sum(len(vocabulary) for _, vocabulary in task.encoding.categorical)
        rows, width = self.cuts.shape
        return {"fine_bin_counts": (rows, width + 2), "value_counts": (values,)}


@dataclass(frozen=True)
class PackedTrees:
    """Bins; finished trees and those that grow, of every model, packed over these bins (``mathematics.trees``)."""

    binning: Binning
    done: np.ndarray
    growing: np.ndarray


@request(
    "level",
    hist="for each node of the trees that grow: how many rows have each bin or category of every column, and the "
    "sums of their gradients, which tell how many have the label or the group; a node has at least as many rows of all "
    "sites together as the request says, a bin in it, or a single site, may have one",
    tree_loss="how well trees fit rows that they were not grown from",
)
class Level:
    """Histograms of a level of all trees that grow: of ``count``, (P, 2), models and nodes.

    trees: those so far and those that grow: with them any client can begin here.  min_rows: that a node has, of all
    sites together; a coordinator says so, and a site refuses less than its own min-rows.
    """

    heads: tuple[Head, ...]
    folds: int
    seed: int
    level: int
    trees: PackedTrees
    count: np.ndarray
    min_rows: int

    def shapes(self, task: Task) -> Shapes:
        codes = int(self.trees.binning.bins(task.encoding).starts[-1])
        return {"hist": (len(self.count), codes, 3), "tree_loss": (len(self.heads),)}


@request(
    "program",
    value="how far the rule's scores are above 0",
    utility="what the rule's decisions are worth by the estimates",
    right="how many of the rule's decisions agree with labels",
    positives="how many decisions are positive",
    decided="how many positive decisions each group is expected to get in each subgroup: with few people, who they are",
    hessian="how many rows near the threshold two subgroups have in common: with few, what they look like",
    curvature="how many rows are near the threshold",
    drawn="the same, of a draw of the rows",
    mass="how many people of each group are expected in each subgroup: with few, who they are",
    members="how many rows each subgroup has: with few, who they are",
    totals="what positive decisions for all would be worth by the estimates",
    worth="what the rule's decisions are worth in each subgroup: with few people, who they are",
    worths="what positive decisions for all would be worth in each subgroup: with few people, who they are",
)
class ProgramSums:
    """Sums at several points of the program.  error_costs: of a false positive and a false negative."""

    error_costs: tuple[float, float]
    points: Points

    def shapes(self, task: Task) -> Shapes:
        return self.points.shapes()
