"""From runs to what a page shows: studies, each some methods on the same rows, as plain JSON.

Every number is one of the run's own files, a mean over its seeds, or counted from its test rows. Of these rows a page
holds none, but a table of counts for the shift explorer: rows, and rows decided positively, of every (cell, group,
label), where a cell is one value of each mixed column. Under a weight per value, which is a weight per cell, accuracy
and rates from the counts are those from the rows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import FORMAT as CERTIFICATE
from agnosticfair.auditing.certificate import plain
from agnosticfair.data.axes import edges_at_quantiles, histogram, round_cuts
from agnosticfair.data.encoding import bin_codes, bin_names
from agnosticfair.data.storage import SITE, Decided, read_decided
from agnosticfair.data.table import Column
from agnosticfair.errors import AgnosticFairError, DataError, ModelError, SettingsError
from agnosticfair.mathematics import metrics, scoring
from agnosticfair.mathematics.metrics import PARITY, gap
from agnosticfair.model import Model, load_model
from agnosticfair.report import words
from agnosticfair.report.certificate import certified, reached
from agnosticfair.runs.provenance import HISTORY

Json = dict[str, Any]


def studies(runs: Sequence[Run], tested: Decided | None = None, mix: Sequence[str] = ()) -> list:
    """The studies of all runs. tested: rows to compare the models of fits on, with their decisions."""
    all_studies: list[Json] = []
    fits = [run for run in runs if run.kind == "fit"]
    for run in runs:
        if run.kind == "fit" and tested is not None:
            if run is fits[0]:
                all_studies += _guarded(run, lambda run: [_of_fits(fits, tested, mix)])
        else:
            all_studies += _guarded(run, lambda run: _KINDS[run.kind](run, mix))
    return all_studies


def _guarded(run: Run, build: Callable[[Run], list[Json]]) -> list[Json]:
    """A file of the right format whose content is not what it should be is refused, too."""
    try:
        return build(run)
    except AgnosticFairError:  # which says what is wrong, and is not the run's fault
        raise
    except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
        raise ModelError(
            f"the run in {str(run.path)!r} is damaged or of another version ({type(error).__name__}: "
            f"{error}): run '{run.kind}' again"
        ) from None


def names_of(fits: Sequence[Run]) -> list[str]:
    """What the methods of several fits are called, each otherwise: by their folders where names repeat,
    and by the whole path where these do, too."""
    names = [run.content["method"]["name"] for run in fits]
    for place in (lambda run: run.path.name, lambda run: run.path):
        names = [
            f"{run.content['method']['name']} ({place(run)})" if names.count(name) > 1 else name
            for name, run in zip(names, fits, strict=True)
        ]
    return names


def metric_of(run: Run) -> str:
    return (run.content["method"].get("fairness") or {}).get("metric", metrics.PARITY.name)


# --- the kinds of run ---


def _of_fit(run: Run, mix: Sequence[str]) -> list[Json]:
    """A fit by itself: measured and certified over its clients' training rows, or over rows held out for a limit."""
    content, certificate = run.content, run.certificate
    scores = [
        e
        for e in content.get("training_rows") or ()
        if e["sensitive_feature"] == sensitive_feature_of(run)
    ]
    numbers = certificate if "accuracy" in certificate else scores[0] if scores else {}
    numbers = {key: _finite(numbers.get(key)) for key in ("accuracy", "difference")}
    entry = fit_entry(content, certificate, content["method"]["name"]) | numbers
    study = _study(run, f"{entry['name']} on {content['rows']:,} training rows", [entry], None, mix)
    study |= {"rows": content["rows"], "rows_are": "training rows"}
    trained = (
        "Measured on the rows it was trained on: expect less on others. Give test rows by --test."
    )
    study["warnings"] = [trained, *_doubts(run)]
    if entry["limit"] is not None:  # certified on rows held out from the fit
        study |= {"rows": certificate["n"], "rows_are": "rows held out", "warnings": _doubts(run)}
    return [study | certified(certificate) | _by_client(scores, entry["name"])]


def _of_fits(fits: Sequence[Run], tested: Decided, mix: Sequence[str]) -> Json:
    """Fits side by side on the same test rows."""
    methods, metric = [], metric_of(fits[0])
    for run, name in zip(fits, names_of(fits), strict=True):
        y, p, s = tested.y, tested.decisions[name], tested.s.codes
        numbers = scoring.accuracy(y, p), scoring.gap(metric, y, p, s)
        poor = words.poor(numbers[0], scoring.majority_rate(y), scoring.positive_rate(p))
        methods.append(
            fit_entry(run.content, run.certificate, name)
            | {"accuracy": _finite(numbers[0]), "difference": _finite(numbers[1])}
            | {"warnings": poor}
        )
    title = (
        f"{methods[0]['name']} on test rows" if len(fits) == 1 else f"{len(fits)} fits on test rows"
    )
    study = _study(fits[0], title, methods, tested, mix, metric)
    study |= certified(fits[0].certificate)
    study["warnings"] += [text for run in fits for text in _doubts(run)]
    return study


def fit_entry(content: Mapping[str, Any], certificate: Mapping[str, Any], name: str) -> Json:
    """What a page and a card say of a fit.  content: as a run's history has it."""
    method, limit = content["method"], certificate.get("limit")  # where one was certified
    fairness = method.get("fairness") or {}
    tau = None if limit is not None else fairness.get("tau")
    return {
        "name": name,
        "outcome": _ended(content),
        "note": method.get("summary"),
        "warnings": content.get("warnings", []),
        "tau": fairness.get("tau"),
        "limit": limit,
        "scope": words.scope_of(fairness if limit is None else None),
        "estimated": None if limit is not None else content.get("estimated"),
        "shadow_price": content.get("shadow_price"),
        **reached(certificate, tau),
    }


def _doubts(run: Run) -> list[str]:
    return words.doubts_of_fit(run.content["events"], run.certificate, sensitive_feature_of(run))


def _ended(content: Mapping[str, Any]) -> str:
    if content["outcome"] == "converged" or content["method"].get("averaging"):
        return f"{content['outcome']} after {content['rounds']} rounds"
    return f"not converged after {content['rounds']} rounds"


def _of_audit(run: Run, mix: Sequence[str]) -> list[Json]:
    """A certificate of a model from anywhere."""
    content = run.content
    name = content.get("method", "the audited model")
    entry = {"name": name, **reached(content)}
    entry |= {
        "accuracy": _finite(content["accuracy"]),
        "difference": _finite(content["difference"]),
    }
    rows = next(iter(run.decided.values()), None)
    title = f"Audit of {name} on {content['n']:,} rows"
    study = _study(run, title, [entry], rows, mix, content["metric"])
    study |= {"rows": content["n"], "rows_are": "audited rows"} | certified(content)
    if content.get("sums"):
        counts = np.array(content["sums"]["counts"][0], float)
        score = measured(counts, content["groups"], content["metric"])
        of_all = _by_client([{"client": "all rows", **score}], name, entry["accuracy"] is not None)
        study |= of_all | {"clients": study["clients"] or of_all["clients"]}
        if of_all["facts"]:
            rates = (entry["accuracy"], score["majority_rate"], score["positive_rate"])
            entry["warnings"] = words.poor(*rates)
    study["warnings"] += words.doubts_of_certificate(content)
    study["limit"] = content.get("limit") or (content.get("request") or {}).get("limit")
    return [study]


_KINDS = {
    "fit": _of_fit,
    "audit": _of_audit,
}


# --- what studies share ---


def _study(
    run: Run,
    title: str,
    methods: list[Json],
    rows: Decided | None,
    mix: Sequence[str],
    metric: str = metrics.PARITY.name,
) -> Json:
    """A study with what its test rows give: the explorer's counts, clients, groups."""
    content = run.content
    study: Json = {
        "title": title,
        "kind": run.kind,
        "source": run.path.name,
        "metric": asdict(metrics.metric_of(metric)),
        "methods": methods,
        "set": None,
        "no_set": None,
        "rows_are": "test rows",
        "provenance": {
            k: content[k] for k in ("command", "versions", "data", "request") if content.get(k)
        },
        "configuration": _configuration(run),
        "explorer": None,
        "clients": [],
        "facts": {},
        "limit": next(
            (m[k] for k in ("limit", "tau") for m in methods if m.get(k) is not None), None
        ),
        "warnings": words.doubts_of_methods(methods),
    }
    if rows is not None:
        study |= {
            "rows": len(rows.y),
            "explorer": counts(rows, mix, metric),
            **_by_client(_scores(rows, metric)),
        }
        study["warnings"] += words.doubts_of_rows(rows)
    return study


def measured(counts: np.ndarray, groups: Sequence[str], metric: str) -> Json:
    """The measures of decided rows; None where a lack of rows leaves a number without meaning.  counts: (G, 2, 2), how
    many rows there are of each group, label and decision."""
    s, y, y_hat = np.indices(counts.shape).reshape(3, -1)
    rows = counts.ravel()
    of = {"positive_rates": rows, "true_positive_rates": rows * (y == 1)}
    of |= {"false_positive_rates": rows * (y == 0)}
    rates = {k: scoring.positive_rates(y_hat, s, w, len(groups)).tolist() for k, w in of.items()}
    values = {
        "accuracy": scoring.accuracy(y, y_hat, rows),
        "majority_rate": scoring.majority_rate(y, rows),
        "base_rate": scoring.positive_rate(y, rows),
        "positive_rate": scoring.positive_rate(y_hat, rows),
        "balanced_accuracy": scoring.balanced_accuracy(y, y_hat, rows),
        "risk_difference": scoring.risk_difference(y_hat, s, rows),
        "label_risk_difference": scoring.risk_difference(y, s, rows),
        "metric": metric,
        "difference": scoring.gap(metric, y, y_hat, s, rows),
        "group_rows": dict(zip(groups, counts.sum(axis=(1, 2)).tolist(), strict=True)),
        **{name: dict(zip(groups, of_groups, strict=True)) for name, of_groups in rates.items()},
    }
    return {"rows": int(counts.sum()), **plain(values)}


def _scores(rows: Decided, metric: str) -> list[Json]:
    """``measured`` of each method at each site, and of all rows first."""
    places = {"all rows": np.ones(len(rows.y), bool)}
    site, names = rows.columns.get(SITE), rows.s.categories
    if isinstance(site, Column):
        places |= {name: site.codes == k for k, name in enumerate(site.categories)}
    entries = []
    for method, p in rows.decisions.items():
        for place, here in places.items():
            counts = np.zeros((len(names), 2, 2))
            stratum = (rows.s.codes[here], rows.y[here].astype(int))
            np.add.at(counts[..., 1], stratum, p[here])
            np.add.at(counts[..., 0], stratum, 1.0 - p[here])
            entries.append({"method": method, "client": place, **measured(counts, names, metric)})
    return entries


def _by_client(scores: Sequence[Mapping[str, Any]], name: str = "", labelled: bool = True) -> Json:
    """What a page has of scores: by client and group, and what the labels themselves say."""
    keys = ("client", "rows", "accuracy", "risk_difference", "positive_rate")
    clients = [
        {key: score[key] for key in keys}
        | {
            "method": score.get("method", name),
            "groups": {
                g: {
                    "rows": score.get("group_rows", {}).get(g),
                    "rate": rate,
                    "true_rate": score["true_positive_rates"].get(g) if labelled else None,
                }
                for g, rate in score["positive_rates"].items()
            },
        }
        for score in scores
    ]
    if not labelled or not scores:
        return {"clients": [{**c, "accuracy": None} for c in clients], "facts": {}}
    facts = {"label_difference": scores[0]["label_risk_difference"]}
    facts |= {key: scores[0][key] for key in ("base_rate", "majority_rate")}
    return {"clients": clients, "facts": facts}


def _finite(value: float | None) -> float | None:
    return None if value is None or not isfinite(value) else float(value)


def _configuration(run: Run) -> Json:
    content = run.content
    if run.kind == "fit":
        about = {
            k: content.get(k) for k in ("target", "sensitive_features", "positive", "seed", "rows")
        }
        return about | {"method": content["method"]}
    return {k: content.get(k) for k in ("metric", "confidence", "precision", "floor")}


MAIN = {
    "history.json": ("fit", HISTORY),
    "certificate.json": ("audit", CERTIFICATE),
}
"""A run's main file, the first of these that is there; the command that writes it; and its format."""


@dataclass(frozen=True)
class Run:
    """content: the main file's content.  certificate: beside a fit's.  decided: the test rows with their
    decisions, by file name."""

    path: Path
    kind: str
    content: Mapping[str, Any]
    certificate: Mapping[str, Any] = field(default_factory=dict)
    decided: Mapping[str, Decided] = field(default_factory=dict)
    model: Model | None = None

    @property
    def fitted_model(self) -> Model:
        assert self.model is not None, "a fit has one"
        return self.model


def read_run(path: Path) -> Run:
    """The run in a folder: of a command, or of a deployment with its results in a folder of their own."""
    folder = path / "results" if (path / "federation.toml").is_file() else path
    if not folder.is_dir():
        raise ModelError(
            f"there is no run folder {str(path)!r}: name what a command wrote by --out"
        )
    name = next((name for name in MAIN if (folder / name).is_file()), None)
    if _time(folder / "error.json") > _time(folder / "history.json"):  # of a deployed run
        why = _json(folder / "error.json").get("error")
        raise ModelError(f"the run in {str(path)!r} ended with an error ({why}): run it again")
    if name is None:
        raise ModelError(
            f"{str(path)!r} holds no results of agnosticfair ({', '.join(MAIN)}): name a folder written "
            "by fit --run, audit or deploy run"
        )
    kind, form = MAIN[name]
    content = _json(folder / name)
    if content.get("format") != form:
        raise ModelError(
            f"{str(folder / name)!r} has format {content.get('format')!r}; this version reads {form!r}: "
            f"run '{kind}' again"
        )
    decided = {p.name: read_decided(p) for p in sorted(folder.glob("rows*.parquet"))}
    if kind != "fit":
        return Run(path, kind, content, decided=decided)
    for other in ("certificate.json", "model.safetensors"):
        if not (folder / other).is_file():
            raise ModelError(f"the run in {str(path)!r} is incomplete: {other!r} is not there")
    _check_files(folder, content.get("files", {}))
    certificate = _json(folder / "certificate.json")
    return Run(path, kind, content, certificate, decided, load_model(folder / "model.safetensors"))


def _check_files(folder: Path, files: Mapping[str, str]) -> None:
    """Raise where a file is not the one that the history was written with."""
    for name, digest in files.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            raise ModelError(
                f"{name!r} in {str(folder)!r} is not of the run that 'history.json' tells of: take all "
                "files of one run"
            )


def _time(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        if not isinstance(content, dict):
            raise ValueError("no object")
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{str(path)!r} cannot be read ({type(error).__name__}): it is damaged, or not ours"
        ) from None
    return content


def sensitive_feature_of(run: Run) -> str:
    """The sensitive feature whose groups a fit is shown for: the certificate's, of several the worst."""
    return run.certificate.get("sensitive_feature") or (*run.content["sensitive_features"], "")[0]


USUAL = ("workclass", "age", "marital-status", SITE)
"""Columns mixed unless others are named, where a data set has them; else the first that suit."""

MAX_COLUMNS = 4  # mixed at a time
MAX_VALUES = 12  # of a column; rarer ones are one
BINS = 4  # of a column of numbers
MIN_ROWS = 400  # of a corner, or a twentieth of all rows, where that is less
MIN_SHARE = 0.05  # of every group in a corner


def chosen(rows: Decided, mix: Sequence[str]) -> list[str]:
    """The columns to mix by: those named, or the usual ones, or the first of few values."""
    for name in mix:
        if name not in rows.columns:
            there = ", ".join(sorted(rows.columns))
            raise SettingsError(f"no column {name!r} to mix by; there are: {there}")
    if len(mix) > MAX_COLUMNS:
        raise SettingsError(f"{len(mix)} columns to mix by are too many: name {MAX_COLUMNS}")
    if mix:
        return list(dict.fromkeys(mix))
    usual = [name for name in USUAL if name in rows.columns]
    widths = {
        name: len(np.unique(column)) if isinstance(column, np.ndarray) else len(column.categories)
        for name, column in rows.columns.items()
    }
    few = [name for name, width in widths.items() if 1 < width <= MAX_VALUES]
    return (usual + [name for name in few if name not in usual])[: max(3, len(usual))]


def values(column: np.ndarray | Column) -> Column:
    """A column in few values: numbers in bins, rare categories together.

    >>> values(np.arange(20.0, 60.0)).categories
    ('under 30', '30 to 40', '40 to 50', '50 or more')
    """
    if isinstance(column, np.ndarray):
        missing = np.isnan(column)
        there = np.unique(column[~missing])
        if len(there) <= BINS and not missing.any():
            return Column(np.searchsorted(there, column), tuple(f"{v:g}" for v in there))
        low, high = (there[0], there[-1]) if len(there) else (0.0, 0.0)
        edges = edges_at_quantiles(round_cuts(low, high), histogram(column, low, high), BINS)
        return Column(bin_codes(column, edges), bin_names(edges, missing=bool(missing.any())))
    counts = np.bincount(column.codes, minlength=len(column.categories))
    order = np.argsort(-counts, kind="stable")[: int((counts > 0).sum())]
    frequent = order if len(order) <= MAX_VALUES else order[: MAX_VALUES - 1]
    codes = np.full(len(counts), len(frequent))
    codes[frequent] = np.arange(len(frequent))
    others = () if len(frequent) == len(order) else (f"{len(order) - len(frequent)} others",)
    return Column(codes[column.codes], (*(column.categories[k] for k in frequent), *others))


def counts(rows: Decided, mix: Sequence[str] = (), metric: str = PARITY.name) -> dict[str, Any]:
    """The table of counts as JSON: of every (cell, group, label) that occurs its codes, how many rows
    and, method by method, how many of these are decided positively."""
    if not len(rows.y):
        raise DataError("there are no test rows: give a file that has some")
    columns = {name: values(rows.columns[name]) for name in chosen(rows, mix)}
    groups = tuple(rows.s.categories[k] for k in np.unique(rows.s.codes))
    s = rows.s.aligned(groups)
    keys = np.column_stack([*(c.codes for c in columns.values()), s, rows.y.astype(int)])
    strata, which = np.unique(keys, axis=0, return_inverse=True)
    which = which.ravel()
    table: dict[str, Any] = {
        "metric": asdict(metrics.metric_of(metric)),
        "columns": [{"name": k, "values": c.categories} for k, c in columns.items()],
        "sensitive_feature": rows.sensitive_feature,
        "groups": groups,
        "positive_label": rows.positive,
        "codes": [strata[:, k].tolist() for k in range(len(columns))],
        "group": strata[:, -2].tolist(),
        "label": strata[:, -1].tolist(),
        "rows": np.bincount(which).tolist(),
        "positive": {
            name: np.bincount(which, weights=p).round(9).tolist()
            for name, p in rows.decisions.items()
        },
    }
    min_rows = min(MIN_ROWS, len(rows.y) // 20)
    corners = {name: corner(table, name, min_rows) for name in rows.decisions}
    return table | {"min_rows": min_rows, "min_share": MIN_SHARE, "corners": corners}


def corner(table: Mapping[str, Any], method: str, min_rows: int) -> dict[str, Any] | None:
    """The subgroup of the rows that is worst by the metric, among those that have one value, or all
    values, of each column, ``min_rows`` rows, and the share MIN_SHARE of every group.

    only: for each column the code of its value, None for all.  None where no subgroup is large enough.
    """
    codes, s, y = np.array(table["codes"]), np.array(table["group"]), np.array(table["label"])
    sizes = [len(c["values"]) for c in table["columns"]]
    mass, took = np.zeros((2, *sizes, len(table["groups"]), 2))
    np.add.at(mass, (*codes, s, y), np.array(table["rows"], float))
    np.add.at(took, (*codes, s, y), np.array(table["positive"][method]))
    best: dict[str, Any] | None = None
    fairness_metric = metrics.metric_of(table["metric"]["name"])
    tried, axes = 0, tuple(range(len(sizes)))
    for only in product(*((None, *range(size)) for size in sizes)):
        place = tuple(slice(None) if k is None else slice(k, k + 1) for k in only)
        here, positive = mass[place].sum(axis=axes), took[place].sum(axis=axes)
        groups = here.sum(axis=1)
        if groups.sum() < min_rows or groups.min() < MIN_SHARE * groups.sum() or not groups.min():
            continue
        difference = gap(fairness_metric, np.stack([here - positive, positive], axis=2))
        tried += np.isfinite(difference)
        if np.isfinite(difference) and (best is None or difference > best["difference"] + 1e-12):
            best = {"only": only, "difference": difference, "rows": int(groups.sum())}
    return None if best is None else best | {"tried": int(tried)}
