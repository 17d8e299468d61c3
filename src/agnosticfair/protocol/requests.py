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

from agnosticfair.data.axes import FINE
from agnosticfair.data.encoding import Encoding
from agnosticfair.data.records import taken_apart
from agnosticfair.data.rows import Fold
from agnosticfair.data.summary import SummaryStatistics, counts_shapes
from agnosticfair.errors import existing
from agnosticfair.learners.decisions import Decision
from agnosticfair.learners.estimates import Estimates
from agnosticfair.mathematics import sums
from agnosticfair.mathematics.basis import Basis, constant, kernel_width, width
from agnosticfair.mathematics.fairness import Surrogate
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
