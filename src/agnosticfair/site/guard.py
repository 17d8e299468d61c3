"""Who stands before a site's rows: a request is judged first, and what goes wrong afterwards stays in the log.

``rehearsed`` puts every client of this process behind such a guard and masks, with keys made on the spot: the same
messages and checks, which shows that nothing is lost and what it costs. It protects nobody, as all keys are here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.data.axes import bin_axis
from agnosticfair.data.rows import Fold
from agnosticfair.data.schema import Schema
from agnosticfair.data.storage import write_atomically
from agnosticfair.data.summary import SummaryStatistics
from agnosticfair.errors import (
    AgnosticFairError,
    DataError,
    FederationError,
    SettingsError,
    SolverError,
    needing,
)
from agnosticfair.protocol.engines import Engine
from agnosticfair.protocol.engines.seam import InProcess
from agnosticfair.protocol.messages import Broadcast, Reply
from agnosticfair.protocol.requests import UNCOUNTED, SubgroupCounts, SubgroupSet, Summary, Task
from agnosticfair.protocol.secure.keys import Roster, check_roster, new_identity
from agnosticfair.protocol.secure.sessions import SecureSite
from agnosticfair.site import ruled  # noqa: F401 (its checks are known by importing it)
from agnosticfair.site.checks import Judgement, check_request, need
from agnosticfair.site.policy import MAX_FOLDS, Refused, SitePolicy

Handler = Callable[[str, Any], Any]
LOG = logging.getLogger("agnosticfair.site")
MAX_EDGES = 64
"""Of one column, in all requests together."""

MAX_TASKS = 4
"""Of which it is remembered that they were judged."""

SESSIONS = 8
"""Whose first task is remembered, those that came last."""


def refused(site: str, step: str, cause: str) -> Refused:
    """The refusal, whose cause is written to the site's own log."""
    LOG.warning("site %r refused step %r: %s", site, step, cause)
    return Refused(site, cause)


@dataclass
class Quiet:
    """A function of the rows whose errors tell nothing: whatever goes wrong is one and the same refusal."""

    site: str
    answer: Handler

    def __call__(self, step: str, request: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return self.answer(step, request)
        except Refused:
            raise
        except (SolverError, ArithmeticError, np.linalg.LinAlgError) as error:
            if not isinstance(request, Broadcast):
                raise refused(self.site, step, type(error).__name__) from None
            # numbers that overflow do so by a row: where the coordinator chose them, a refusal would answer
            LOG.warning("site %r adds zeros to step %r: %s", self.site, step, error)
            zeros = {name: np.zeros(shape) for name, shape in request.shapes.items()}
            return Reply(request.round, zeros)
        except AgnosticFairError as error:
            raise refused(self.site, step, str(error)) from None
        except Exception as error:  # it may quote a row, even in the log
            raise refused(self.site, step, type(error).__name__) from None


@dataclass
class Guard:
    """A site behind its policy; ``answer`` goes from (step, request) to the answer, with noise where the policy has
    epsilon.

    ``pinned`` is, by session, what its first task settled; ``edges``, by column and fold, all edges of the bins that
    were answered, None once some were refused; they are of the rows of digest ``rows``, and outlive the process in
    the file ``path``. ``enough`` says, by fold of the task and fold of the learners, which value has too few rows;
    ``judged`` has the ids of the last tasks that were taken; ``seed`` deals rows to folds, once one was answered for.
    """

    policy: SitePolicy
    answer: Callable[..., Any]
    pinned: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    edges: dict[tuple[str, Fold | None], tuple[float, ...] | None] = field(default_factory=dict)
    enough: dict[tuple[Fold | None, Fold | None], str] = field(default_factory=dict)
    judged: list[str] = field(default_factory=list)
    seed: int | None = None
    path: Path | None = None
    rows: str = ""

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            self.edges = _read_edges(self.path, self.rows)

    def __call__(self, step: str, broadcast: Any, *more: Any) -> Any:
        """The answer, or a refusal before a row is looked at.  more: what a session adds for who shares noise."""
        try:
            self._check(step, broadcast)
        except Refused:
            raise
        except Exception as error:
            if isinstance(error, AgnosticFairError) and not self.policy.hidden:
                raise
            is_refusal = isinstance(error, ValueError | AgnosticFairError)
            cause = str(error) if is_refusal else type(error).__name__  # of odd shapes
            if not self.policy.hidden:
                raise DataError(f"site {self.policy.site!r} {cause}") from None
            raise refused(self.policy.site, step, cause) from None
        if isinstance(broadcast, Broadcast) and broadcast.session:
            broadcast = replace(broadcast, session="")
        try:
            return self.answer(step, broadcast, *more)
        except Exception as error:
            if isinstance(error, AgnosticFairError) or not self.policy.hidden:
                raise
            raise refused(self.policy.site, step, type(error).__name__) from None

    def _check(self, step: str, broadcast: Any) -> None:
        policy = self.policy
        broadcast_or_none = broadcast if isinstance(broadcast, Broadcast) else None
        if policy.hidden and (broadcast_or_none is not None or step != "outline"):
            need(broadcast_or_none is not None, "there is no request")
            assert broadcast_or_none is not None
            check_request(
                self.judgement, step, broadcast_or_none, broadcast_or_none.task.id in self.judged
            )
            self._pin(broadcast_or_none)
            self.judged = [*self.judged[1 - MAX_TASKS :], broadcast_or_none.task.id]
        need(step != "centres" or policy.shows_rows, "shows no rows: let it say shows-rows")
        if not policy.epsilon:
            self._check_rows(broadcast_or_none)

    @cached_property
    def judgement(self) -> Judgement:
        """What requests are held against."""
        schema = self.policy.schema
        outline: SummaryStatistics = (
            self.answer("outline", None) if schema is None else schema.outline()
        )
        return Judgement(self.policy, outline, self.bins)

    def _pin(self, request: Broadcast[Any]) -> None:
        """The first task of a session is its task; only what a fit finds on its way may be added."""
        task = request.task
        if task.fold is not None:
            self.seed = task.fold.seed if self.seed is None else self.seed
            need(self.seed == task.fold.seed, "the folds' seed is another than the first one")
        if not (task.clients and request.session):
            return
        base = replace(task.encoding, bins=())
        groups = (task.positive, task.sensitive_features, task.by_label)
        settled = (base, groups, task.clients, task.fold)
        first = self.pinned.setdefault(request.session, settled)
        for old in list(self.pinned)[:-SESSIONS]:
            del self.pinned[old]
        need(first == settled, "the task is another than the session's first one")

    def _check_rows(self, request: Broadcast[Any] | None) -> None:
        """Raise where a value has too few rows among those that the request touches: all of them, those of its fold,
        and of these the ones by which learners judge."""
        if self.policy.min_rows <= 1:
            return
        fold, of, seed = (
            (None, 0, 0) if request is None else (request.task.fold, *_learner_folds(request))
        )
        need(of <= MAX_FOLDS, f"there are more than {MAX_FOLDS} folds")
        every = [(None, None), (fold, None), *((fold, Fold(k, of, seed)) for k in range(of))]
        for some in every:
            if some not in self.enough:
                self.enough[some] = self._too_few(*some)
            need(not self.enough[some], self.enough[some])

    def _too_few(self, fold: Fold | None, by_features: Fold | None) -> str:
        """Which value has too few rows there, in words.  A label has them among all rows, for it is named."""
        min_rows, task = self.policy.min_rows, replace(UNCOUNTED, fold=fold)
        every = fold is by_features is None
        broadcast = None if every else Broadcast(0, task, Summary(by_features))
        statistics = self.answer("statistics", broadcast)
        named = {f"a group of {name!r}": groups for name, groups in statistics.groups.items()}
        if every:
            named["a label"] = {label: rows for label, rows in statistics.labels.items() if rows}
        for what, counts in named.items():
            if min(counts.values(), default=0) < min_rows:
                where = "" if every else " in one of the folds"
                return (
                    f"has {what} with fewer than {min_rows} rows{where} and does not answer: leave it out, or let the "
                    "site lower min-rows"
                )
        return ""

    def bins(self, column: str, edges: Sequence[float], fold: Fold | None) -> bool:
        """Whether no bin holds a few rows only, these edges and all earlier ones taken together: what two requests
        differ by is a bin, too. Of a column whose bins were refused once no others are answered."""
        min_rows, known = self.policy.min_rows, self.edges.get((column, fold), ())
        if known is None:
            return False
        together = tuple(sorted({*known, *edges}))
        if together != known:
            counts = self._counted(column, together, fold)
            good = len(together) <= MAX_EDGES and not ((counts > 0) & (counts < min_rows)).any()
            self.edges[column, fold] = together if good else None
            self._save()
        return self.edges[column, fold] is not None

    def _save(self) -> None:
        if self.path is not None:
            edges = [
                [column, None if fold is None else [fold.number, fold.of, fold.seed], known]
                for (column, fold), known in self.edges.items()
            ]
            content = json.dumps({"rows": self.rows, "edges": edges})
            write_atomically({self.path: content.encode()}, 0o600)

    def _counted(self, column: str, edges: tuple[float, ...], fold: Fold | None) -> np.ndarray:
        axis = bin_axis(column, edges, missing=True)
        named = SubgroupSet(((axis.name, axis.values, axis.edges),), np.zeros((0, 1, 2)))
        task: Task = replace(UNCOUNTED, subgroups=named, fold=fold)
        reply = self.answer("subgroup_counts", Broadcast(0, task, SubgroupCounts()))
        return np.diag(reply.sums["counts"])


def _learner_folds(request: Broadcast[Any]) -> tuple[int, int]:
    """Into how many folds learners deal rows for this request, and by which seed."""
    by = request.request if hasattr(request.request, "folds") else request.task.estimates
    return (0, 0) if by is None else (by.folds, by.seed)


def _read_edges(path: Path, rows: str) -> dict[tuple[str, Fold | None], tuple[float, ...] | None]:
    try:
        content = json.loads(path.read_text())
        return {
            (str(column), None if fold is None else Fold(*fold)): known and tuple(map(float, known))
            for column, fold, known in content["edges"]
            if content["rows"] == rows
        }
    except (OSError, ValueError, KeyError, TypeError):
        raise FederationError(
            f"the file of bins {path.name!r} is damaged: what was answered is not known, so nothing is"
        ) from None


def guarded(policy: SitePolicy, answer: Handler, path: Path | None = None, rows: str = "") -> Guard:
    """A function of the rows behind a policy; one that adds noise is silent about rows by itself."""
    plain = policy.epsilon or not policy.hidden
    return Guard(policy, answer if plain else Quiet(policy.site, answer), path=path, rows=rows)


def rehearsed(
    engine: Engine,
    may_drop: bool = False,
    consents: Iterable[str] = (),
    schema: Schema | None = None,
    epsilon: float = 0.0,
    site_rows: int = 0,
    rows: Mapping[str, str] | None = None,
) -> tuple[InProcess, Roster]:
    """The engine with every client behind a policy and masks, and their public keys.  consents: fields of
    ``SitePolicy`` that are True.  rows: of clients that add noise, a hash of the rows of each."""
    if not isinstance(engine, InProcess):
        raise SettingsError(
            "secure sums over an engine need its sites' public keys: give them as secure={site: key}"
        )
    with needing("secure", "secure sums need the package 'cryptography'"):
        import cryptography  # noqa: F401
    identities = [new_identity(name) for name in engine.clients()]
    roster = {identity.site: identity.public for identity in identities}
    check_roster(roster, 2)
    common = rehearsal_policy(tuple(sorted(roster)), schema, epsilon, site_rows, consents)
    sites = {}
    for one in identities:
        policy = replace(common, site=one.site, masks=True, may_drop=may_drop)
        answer = guarded(policy, engine.handlers[one.site])
        sites[one.site] = SecureSite(
            one,
            roster,
            answer,
            may_drop=may_drop,
            open_steps=policy.open_steps,
            rows=(rows or {}).get(one.site, ""),
        )
    return replace(engine, handlers=sites), roster


def rehearsal_policy(
    sites: tuple[str, ...],
    schema: Schema | None,
    epsilon: float = 0.0,
    site_rows: int = 0,
    consents: Iterable[str] = (),
) -> SitePolicy:
    """What clients of this process answer, whose own people are whoever calls.

    >>> rehearsal_policy(("north", "south"), None).min_rows
    1
    """
    common = SitePolicy("", sites, False, epsilon, schema, min_rows=1, site_rows=site_rows)
    values: dict[str, Any] = dict.fromkeys(consents, True)
    return replace(common, fold_seed=None, rehearsal=True, **values)
