"""Watch one model: where the rows that arrive lie, what the decisions do to them, and what to do about it.

Every statement holds at all times at once with the monitor's confidence: one may look after every row. Of the
probability 1 - confidence of ever being wrong, half goes to what decisions do and half to where the rows lie.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate
from agnosticfair.auditing.inputs import column, name_of, positive_of, table_of
from agnosticfair.data.axes import codes_of
from agnosticfair.data.encoding import shown
from agnosticfair.data.rows import row_hashes
from agnosticfair.data.storage import alone, write_atomically
from agnosticfair.data.table import Column, Table
from agnosticfair.errors import DataError, ModelError, SettingsError
from agnosticfair.mathematics.subgroups import counted, sizes_of, starts_of
from agnosticfair.model import Model, check_labels
from agnosticfair.monitoring.baseline import (
    HANDED,
    Baseline,
    baseline_of,
    groups_of,
    strange_groups,
)
from agnosticfair.monitoring.verdict import (
    ALIKE,
    MAX_SKETCHES,
    MAX_STRANGE,
    SKETCH,
    MonitorState,
    SubgroupNow,
    Verdict,
    batch_of,
    from_bytes,
    hashes_of,
    in_common,
    judge,
    latest,
)
from agnosticfair.settings import CONFIDENCE, require

YEAR_10000 = 253_402_300_800.0
POSITIVE_LABEL = "1"
"""The label of rows whose decisions are handed over."""


@dataclass(frozen=True)
class Batch:
    """One batch as codes.  decided: (n,) of bool.  hashes: of its rows, by which it is known again."""

    codes: np.ndarray
    group: np.ndarray
    label: np.ndarray
    decision: np.ndarray
    decided: np.ndarray
    digest: str
    hashes: np.ndarray


class Monitor:
    """Counts what arrives, and says whether the promise still is about these people.

    Parameters
    ----------
    model : Model, optional
        None where decisions are handed over with the rows.
    certificate : Certificate, mapping or Baseline
        What was certified on rows held out from the fit, or its JSON; or the baseline in it.
    limit : float, optional
        For every subgroup, instead of what was certified of each.
    state : path, optional
        A file that remembers; it is read at every update if it is there, and written before that returns, so that
        several processes may count into one.
    confidence : float
        Probability that no statement is ever wrong while the promise holds.
    """

    def __init__(
        self,
        model: Model | None,
        certificate: Baseline | Certificate | Mapping[str, Any],
        *,
        limit: float | None = None,
        state: str | Path | None = None,
        confidence: float = 0.95,
    ) -> None:
        require(CONFIDENCE, confidence=confidence)
        self.model, self.confidence = model, confidence
        self.baseline = baseline_of(certificate, model, limit)
        self.path = None if state is None else Path(state)
        self.state = self._restored()

    def _restored(self) -> MonitorState:
        starts, baseline = starts_of(sizes_of(self.baseline.axes)), self.baseline
        counts = np.zeros((len(baseline.subgroups), len(baseline.groups) + 1, 3, 2), np.int64)
        values = np.zeros(starts[-1] + len(baseline.axes), np.int64)
        fresh = MonitorState(baseline.id, counts, values)
        if self.path is None or not self.path.exists():
            return fresh
        state = from_bytes(self.path.read_bytes(), f"file {self.path.name!r}")
        if (state.baseline, state.counts.shape) != (fresh.baseline, fresh.counts.shape):
            raise ModelError(
                f"file {self.path.name!r} watches another model or certificate: name another state file"
            )
        return state

    def update(
        self,
        rows: Table,
        *,
        decisions: np.ndarray | None = None,
        sample: bool = False,
        when: float | None = None,
        again: bool = False,
        who: str = "the batch",
    ) -> Verdict:
        """Count a batch and say where things stand.

        Parameters
        ----------
        rows : Table
            With its sensitive features where they are known, and its labels where they are known. Rows that
            were counted before without labels only have their labels added.
        decisions : (n,) array of 0 and 1, optional
            Where somebody else decides; else the model does.
        sample : bool
            The rows were drawn at random from those counted already, to learn their groups or labels; they count for
            what decisions do, and not for the mix.
        when : float, optional
            Seconds since 1970; now unless said.
        again : bool
            Count a batch that has the very content of an earlier one.
        who : str
            Names the batch in errors.
        """
        if not len(rows):
            raise DataError(f"{who} has no rows: leave it out")
        when = time.time() if when is None else float(when)
        if not 0 <= when < YEAR_10000:
            raise SettingsError(f"{when:g} is no time: give seconds since 1970")
        seen = self._seen(rows, decisions, who)
        batch = self._batch(seen, rows)
        batch_now = batch_of(judge(self.baseline, batch, 1 - self.confidence))
        with self._alone():
            before = self.state
            try:
                self.state = self._counted(seen, batch, when, again, sample, who)
                verdict = self.verdict()
                self.state = self._noted(replace(verdict, batch=batch_now), when)
                if self.path is not None:
                    write_atomically({self.path: self.state.to_bytes()})
            except BaseException:  # what is not on the disk is not counted here either
                self.state = before
                raise
        return replace(verdict, since=dict(self.state.since), batch=batch_now)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process counts into the state file meanwhile, and what others counted before is known."""
        if self.path is None:
            yield
            return
        try:
            with alone(self.path):
                self.state = self._restored()
                yield
        except OSError as error:
            raise ModelError(
                f"cannot write the state to {str(self.path)!r}: {error.strerror}; the batch is not counted there"
            ) from None

    def predict(self, rows: Table, **options: Any) -> np.ndarray:
        """The model's decisions on rows that are counted before they are answered.

        Parameters
        ----------
        rows : Table
        **options
            As in ``update``.

        Returns
        -------
        (n,) array of 0 and 1
        """
        decisions = self._model().predict(rows)
        self.update(rows, **options)
        return decisions

    def verdict(self) -> Verdict:
        """Where things stand, from the counts so far."""
        return judge(self.baseline, self.state, 1 - self.confidence)

    def _model(self) -> Model:
        if self.model is None:
            raise SettingsError("this monitor has no model: hand the decisions over with the rows")
        return self.model

    def _seen(self, rows: Table, decisions: np.ndarray | None, who: str) -> Batch:
        codes = codes_of(rows, self.baseline.axes, who)
        if decisions is None:
            decision, known = decided(self._model(), rows, who)
        else:
            decision, known = handed(decisions, len(rows), who), np.ones(len(rows), bool)
        label = np.zeros(len(rows), np.int64)
        if rows.target is not None:
            positive = POSITIVE_LABEL if self.model is None else self.model.positive
            if self.model is not None:
                check_labels(self.model, rows.target.present, f"the target of {who}")
            label = np.where(rows.labels(positive) > 0, 2, 1)
        bare = row_hashes(replace(rows, target=None))  # labels may come later
        content = np.sort(bare ^ decision.astype(np.uint64))  # whatever the order of rows
        digest = hashlib.sha256(content.tobytes()).hexdigest()[:16]
        group = groups_of(rows, self.baseline)
        return Batch(codes, group, label, decision, known, digest, hashes_of(content))

    def _batch(self, seen: Batch, rows: Table) -> MonitorState:
        """The state of a batch by itself."""
        values, strange = self._values(seen, rows)
        n, undecided = len(seen.codes), int((~seen.decided).sum())
        return MonitorState(
            self.baseline.id, self._tally(seen), values, n, undecided, strange=strange
        )

    def _counted(
        self, seen: Batch, batch: MonitorState, when: float, again: bool, sample: bool, who: str
    ) -> MonitorState:
        """The state with the batch in it; of one that was counted before without labels, with these."""
        state, labelled = self.state, bool(seen.label.any())
        digest = f"sample {seen.digest}" if sample else seen.digest
        before = None if again else state.batches.get(digest)
        if before or (before is not None and not labelled):
            raise DataError(
                f"{who} has the very content of a batch that was counted: leave it out, or say by "
                "again (--again) that it is another one"
            )
        counts, sketches = state.counts + batch.counts, state.sketches
        if before is not None:  # its labels came late
            counts = counts - self._tally(replace(seen, label=np.zeros_like(seen.label)))
        elif not sample:
            if not again:
                self._check_fresh(seen, who)
            both = replace(state, batches={}, sketches=()) + batch
            state = replace(both, since=state.since, timeline=state.timeline)
            sketch = tuple(seen.hashes[:SKETCH].tolist())
            sketches = (*sketches, *filter(None, [sketch]))[-MAX_SKETCHES:]
        batches = latest({**self.state.batches, digest: labelled})
        return replace(state, counts=counts, batches=batches, sketches=sketches, last=when)

    def _check_fresh(self, seen: Batch, who: str) -> None:
        """Raise where most of these rows were counted in an earlier batch."""
        shared = max((in_common(one, seen.hashes) for one in self.state.sketches), default=0.0)
        if shared >= ALIKE:
            raise DataError(
                f"{who} and a batch that was counted have about {shared:.0%} of one's rows in common: leave these "
                "rows out, or say by again (--again) that they are other ones"
            )

    def _tally(self, seen: Batch) -> np.ndarray:
        """Rows of each subgroup by group, label and decision; undecided rows are in none."""
        subgroups, sizes = self.baseline.subgroups, sizes_of(self.baseline.axes)
        shape, there = self.state.counts.shape, seen.decided
        strata = ((seen.group * 3 + seen.label) * 2 + seen.decision)[there]
        return counted(seen.codes[there], sizes, subgroups, strata, shape[1] * 6).reshape(shape)

    def _values(self, seen: Batch, rows: Table) -> tuple[np.ndarray, Mapping[str, tuple[str, ...]]]:
        """Rows of each value of each axis, those of none last; and values never seen, by column."""
        starts = starts_of(sizes_of(self.baseline.axes))
        counts = np.zeros(starts[-1] + len(self.baseline.axes), np.int64)
        strange: dict[str, tuple[str, ...]] = {}
        for c, axis in enumerate(self.baseline.axes):
            there = np.bincount(seen.codes[:, c].astype(int) + 1, minlength=len(axis.values) + 1)
            counts[starts[c] : starts[c + 1]], counts[starts[-1] + c] = there[1:], there[0]
            if there[0]:
                named = {*rows.column(axis.name).values()[seen.codes[:, c] < 0].tolist()}
                strange[axis.name] = tuple(sorted(named)[:MAX_STRANGE])
        return counts, strange | strange_groups(rows, self.baseline)

    def _noted(self, verdict: Verdict, when: float) -> MonitorState:
        """The state with this look on its timeline, and the row of every verdict that is new."""
        since = dict(self.state.since)
        words = {"broken": verdict.decisions == "broken", "outside": verdict.where == "outside"}
        for word, now in (words | {"changed": verdict.changed}).items():
            if now and word not in since:
                since[word] = self.state.rows
        worst = verdict.subgroups[0] if verdict.subgroups else None
        batch = verdict.batch
        point: dict[str, Any] = {
            "time": when,
            "rows": self.state.rows,
            "where": verdict.where,
            "decisions": verdict.decisions,
            "distance": verdict.distance,
            **_ends(verdict.overall),
            "worst": worst and worst.name,
            "worst_low": worst and worst.low,
            "batch": batch and {"rows": batch.rows, "where": batch.where, **_ends(batch.overall)},
        }
        timeline = (*self.state.timeline, point)
        return replace(self.state, since=since, timeline=timeline).thinned()


def _ends(subgroup: SubgroupNow) -> dict[str, Any]:
    """A difference and its interval, on the timeline."""
    return {key: getattr(subgroup, key) for key in ("difference", "low", "high")}


def decided(model: Model, rows: Table, who: str) -> tuple[np.ndarray, np.ndarray]:
    """The model's decisions, (n,), and of which rows it knows all values."""
    known = np.ones(len(rows), bool)
    for name, values in model.encoding.categorical:
        if name not in rows.categorical:
            raise DataError(f"{who} has no column {name!r}, which the model reads: add it")
        known &= rows.categorical[name].aligned(tuple(values)) >= 0
    decision = np.zeros(len(rows), np.int64)
    if known.any():
        decision[known] = model.predict(rows.take(known), who)
    return decision, known


def handed(decisions: np.ndarray, n: int, who: str) -> np.ndarray:
    """Decisions that somebody else made, (n,) of 0 and 1."""
    codes = np.asarray(decisions)
    if codes.shape != (n,) or not np.isin(codes, (0, 1)).all():
        raise DataError(f"{who} needs a decision of 0 or 1 for each of its {n:,} rows")
    return codes.astype(np.int64)


def described(verdict: Verdict) -> str:
    """The verdict in sentences."""
    sentences = [verdict.sentence, verdict.because]
    if verdict.strange:
        names = (f"{column} = {shown(values)}" for column, values in verdict.strange.items())
        sentences.append(f"Values never seen: {'; '.join(names)}.")
    return " ".join(sentence for sentence in (*sentences, *verdict.advice) if sentence)


class MonitoredClassifier:
    """Wraps a fitted classifier: every prediction is counted before it is answered.

    Parameters
    ----------
    estimator : object with ``predict`` and ``classes_``
        Any fitted classifier of two classes, scikit-learn's or this package's.
    certificate : Certificate or mapping
        What ``audit(estimator, X, y, sensitive_features=...)`` made of it on rows it was not fitted on.
    positive : the class that counts as 1; chosen as in ``audit`` unless said
    state, confidence : as in ``Monitor``

    Examples
    --------
    See docs/monitoring.md.
    """

    def __init__(
        self,
        estimator: Any,
        certificate: Certificate | Mapping[str, Any],
        *,
        positive: object = None,
        state: str | Path | None = None,
        confidence: float = 0.95,
    ) -> None:
        if not hasattr(estimator, "predict") or len(getattr(estimator, "classes_", ())) != 2:
            raise ModelError(
                f"{type(estimator).__name__} is no fitted classifier of two classes: fit it first"
            )
        self.estimator, self.classes_ = estimator, estimator.classes_
        self.positive = positive_of(
            [name_of(c) for c in np.asarray(self.classes_).tolist()], positive
        )
        self.monitor = Monitor(None, certificate, state=state, confidence=confidence)

    def predict(self, X: Any, *, sensitive_features: Any = None, **options: Any) -> np.ndarray:
        """The estimator's labels of rows that are counted first.

        Parameters
        ----------
        X : what the estimator takes
        sensitive_features : (n,) array, optional
            Groups, where they are known.
        **options
            ``when`` and ``again`` of ``Monitor.update``.

        Returns
        -------
        (n,) array
            What the estimator says.
        """
        labels = np.asarray(self.estimator.predict(X))
        self.record(X, labels, sensitive_features=sensitive_features, **options)
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """The estimator's own probabilities; nothing is counted.

        Parameters
        ----------
        X : what the estimator takes

        Returns
        -------
        (n, 2) array
        """
        return np.asarray(self.estimator.predict_proba(X))

    def record(
        self, X: Any, labels: Any, *, sensitive_features: Any = None, y: Any = None, **options: Any
    ) -> Verdict:
        """Count rows with the labels they were given, and the true ones where they are known.

        Parameters
        ----------
        X : what the estimator takes
        labels : (n,) array
            Given by whoever decided.
        sensitive_features, y : (n,) arrays, optional
            Groups and true labels, where they are known.
        **options
            As in ``Monitor.update``.

        Returns
        -------
        Verdict
            Where things stand.
        """
        rows = replace(table_of(X), target=None)
        if y is not None:
            rows = replace(rows, target=Column(self._positive(y, len(rows)), ("0", POSITIVE_LABEL)))
        if sensitive_features is not None:
            groups = column(sensitive_features, "sensitive_features", len(rows))
            rows = replace(rows, sensitive_features={HANDED: Column.of(map(name_of, groups))})
        return self.monitor.update(rows, decisions=self._positive(labels, len(rows)), **options)

    @property
    def verdict_(self) -> Verdict:
        """Where things stand."""
        return self.monitor.verdict()

    def _positive(self, labels: Any, n: int) -> np.ndarray:
        """Which labels are the positive one, (n,) of 0 and 1."""
        texts = map(name_of, column(labels, "labels", n).tolist())
        return np.array([text == self.positive for text in texts], dtype=np.int32)
