"""From runs to what a page shows: studies, each some methods on the same rows, as plain JSON.

Every number is one of the run's own files, a mean over its seeds, or counted from its test rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import about, warnings
from agnosticfair.data.decided import SITE, Decided
from agnosticfair.errors import AgnosticFairError, DataError, ModelError
from agnosticfair.experiments import shifts as suite
from agnosticfair.mathematics import metrics, notions
from agnosticfair.mathematics.basis import Basis
from agnosticfair.report import facts, tables
from agnosticfair.report import shifts as shift_tables
from agnosticfair.report.explorer import counts
from agnosticfair.report.figures import NAMES, SETS
from agnosticfair.report.runs import Run
from agnosticfair.report.tables import Row, Spread

MOST_PARTS, MOST_FEW = 20, 6
"""Named parts that a page draws: estimable ones, and others."""

FEW_ROWS = 100
"""A group or a site of fewer test rows is warned of."""

Json = dict[str, Any]


def studies(runs: Sequence[Run], tested: Decided | None = None, mix: Sequence[str] = ()) -> list:
    """The studies of all runs. tested: rows to compare the models of fits on, with their decisions."""
    made: list[Json] = []
    fits = [run for run in runs if run.kind == "fit"]
    for run in runs:
        if run.kind == "fit" and tested is not None:
            if run is fits[0]:
                made += _guarded(run, lambda run: [_of_fits(fits, tested, mix)])
        else:
            made += _guarded(run, lambda run: _KINDS[run.kind](run, mix))
    return made


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
    names = [run.told["method"]["name"] for run in fits]
    for place in (lambda run: run.path.name, lambda run: run.path):
        names = [
            f"{run.told['method']['name']} ({place(run)})" if names.count(name) > 1 else name
            for name, run in zip(names, fits, strict=True)
        ]
    return names


def sensitive_feature_of(run: Run) -> str:
    """The sensitive feature whose groups a fit is shown for: the certificate's, of several the worst."""
    return run.certificate.get("sensitive_feature") or (*run.told["sensitive_features"], "")[0]


def notion_of(run: Run) -> str:
    return (run.told["method"].get("fairness") or {}).get("notion", notions.PARITY.name)


# --- the kinds of run ---


def _of_suite(run: Run, mix: Sequence[str]) -> list[Json]:
    """A study per data set and setting of the shift suite."""
    rows, made = run.told["rows"], []
    summaries = shift_tables.summarise(rows)
    for data, setting in dict.fromkeys((s.dataset, s.setting) for s in summaries):
        chosen = [s for s in summaries if (s.dataset, s.setting) == (data, setting)]
        own = [r for r in rows if (r["dataset"], r["setting"]) == (data, setting)]
        methods = []
        for s in chosen:
            numbers = {
                "accuracy": "test_accuracy",
                "difference": "test_risk_difference",
                "certified": "certified_risk_difference",
                "mean": "mean_risk_difference",
                "p90": "p90_risk_difference",
                "worst": "max_risk_difference",
            }
            entry = {key: _spread(s.numbers[name]) for key, name in numbers.items()}
            first = next((row for row in s.rows if "detail" in row), {})
            entry |= _detailed(first) | {"note": shift_tables.NOTES.get(s.method)}
            methods.append({"name": s.method, "outcome": s.outcome, "seeds": s.seeds, **entry})
        kernels = Basis("gaussian", suite.KERNELS, suite.WIDTH)
        made.append(
            _study(
                run,
                f"{NAMES.get(data, data)}: {setting} split",
                methods,
                run.decided.get(f"rows-{data}-{setting}.parquet"),
                mix,
                set=_set(kernels, suite.BOUND, suite.FLOOR, "training rows"),
                deployments=_deployments(chosen),
                frontier=_frontier(own),
            )
        )
    return made


def _of_paper(run: Run, mix: Sequence[str]) -> list[Json]:
    """A study per data set and setting of the paper's experiments; nothing is certified there."""
    rows, made = run.told["rows"], []
    summaries = [s for s in tables.summarise(rows) if s.setting != "clients"]
    for data, setting in dict.fromkeys((s.dataset, s.setting) for s in summaries):
        methods = []
        for s in summaries:
            if (s.dataset, s.setting) != (data, setting):
                continue
            names = {"accuracy": "test_accuracy", "difference": "test_risk_difference"}
            entry = {key: _spread(s[name]) for key, name in names.items()}
            own = (r for r in rows if (r["dataset"], r["setting"]) == (data, setting))
            first: Row = next((r for r in own if r["method"] == s.method and "detail" in r), {})
            entry |= _detailed(first)
            methods.append({"name": s.method, "outcome": s.outcome, "seeds": s.seeds, **entry})
        title = f"{NAMES.get(data, data)}: {SETS[setting]}"
        rows_file = run.decided.get(f"rows-{data}-{setting}.parquet")
        made.append(_study(run, title, methods, rows_file, mix))
    if not made:
        raise DataError(
            f"{str(run.path)!r} has Figure 3 alone, which has no test rows to report on"
        )
    return made


def _of_fit(run: Run, mix: Sequence[str]) -> list[Json]:
    """A fit by itself: measured on its training rows, certified over its clients."""
    told, certificate = run.told, run.certificate
    scores = [
        e
        for e in told.get("training_rows") or ()
        if e["sensitive_feature"] == sensitive_feature_of(run)
    ]
    measured = certificate if "accuracy" in certificate else scores[0] if scores else {}
    gap = measured.get("difference", measured.get("risk_difference"))
    numbers = {"accuracy": _one(measured.get("accuracy")), "difference": _one(gap)}
    entry = _fit_entry(run, told["method"]["name"]) | numbers
    study = _study(run, f"{entry['name']} on {told['rows']:,} training rows", [entry], None, mix)
    study |= {"rows": told["rows"], "rows_are": "training rows"}
    study |= _certified(certificate, "training rows")
    study["clients"] = _client_scores(scores, entry["name"])
    study["facts"] = facts.of_scores(scores[0]) if scores else {}
    study["warnings"] = [
        "Measured on the rows it was trained on: expect less on others. Give test rows by --test.",
        *_fit_warnings(run),
    ]
    return [study]


def _of_fits(fits: Sequence[Run], tested: Decided, mix: Sequence[str]) -> Json:
    """Fits side by side on the same test rows."""
    methods, notion = [], notion_of(fits[0])
    for run, name in zip(fits, names_of(fits), strict=True):
        y, p, s = tested.y, tested.decisions[name], tested.s.codes
        numbers = metrics.accuracy(y, p), metrics.gap(notion, y, p, s)
        methods.append(
            _fit_entry(run, name) | {"accuracy": _one(numbers[0]), "difference": _one(numbers[1])}
        )
    title = (
        f"{methods[0]['name']} on test rows" if len(fits) == 1 else f"{len(fits)} fits on test rows"
    )
    study = _study(fits[0], title, methods, tested, mix, notion)
    study |= _certified(fits[0].certificate, "training rows")
    study["warnings"] += [text for run in fits for text in _fit_warnings(run)]
    return study


def _fit_entry(run: Run, name: str) -> Json:
    told, certificate = run.told, run.certificate
    method = told["method"]
    fairness = method.get("fairness") or {}
    entry = {"name": name, "outcome": _ended(told), "seeds": 1, "note": method.get("summary")}
    entry |= {"history": told["history"], "training_alpha": told["alpha"]}
    entry |= {"tau": fairness.get("tau"), **_reached(certificate)}
    return entry


def _of_audit(run: Run, mix: Sequence[str]) -> list[Json]:
    """A certificate of a model from anywhere."""
    told = run.told
    name = told.get("method", "the audited model")
    entry = {"name": name, "seeds": 1, **_reached(told)}
    entry |= {"accuracy": _one(told["accuracy"]), "difference": _one(told["difference"])}
    rows = next(iter(run.decided.values()), None)
    title = f"Audit of {name} on {told['n']:,} rows"
    study = _study(run, title, [entry], rows, mix, told["notion"])
    study |= {"rows": told["n"]} | _certified(told, "audited rows")
    study["warnings"] += _certificate_warnings(told)
    study["limit"] = told.get("limit") or facts.LIMIT
    return [study]


def _of_running(run: Run, mix: Sequence[str]) -> list[Json]:
    """A fit that still runs: its rounds so far."""
    begins, rounds = run.told, run.rounds
    name = begins.get("method", "the fit")
    last = rounds[-1] if rounds else {}
    most, clients = begins.get("most"), begins.get("clients")
    entry = {"name": name, "seeds": 1, "history": rounds, "tau": begins.get("tau")}
    entry |= {"outcome": "running", "accuracy": _one(last.get("accuracy"))}
    study = _study(run, f"{name}, still training", [entry], None, mix)
    told = (
        f"Round {last['round']} of at most {most}, {clients} clients." if last else "No round yet."
    )
    ended = begins.get("error")
    study["status"] = f"{told} {f'It ended: {ended}' if ended else 'The page follows by itself.'}"
    study["rows_are"] = "training rows"
    waiting = begins.get("waiting", {})
    study["warnings"] = [
        *(f"Waiting for site {key!r}: {why}." for key, why in waiting.items()),
        "Still training: nothing here is a result yet.",
    ]
    return [study]


_KINDS = {
    "shifts": _of_suite,
    "reproduce": _of_paper,
    "fit": _of_fit,
    "audit": _of_audit,
    "running": _of_running,
}


# --- their parts ---


def _study(
    run: Run,
    title: str,
    methods: list[Json],
    rows: Decided | None,
    mix: Sequence[str],
    notion: str = notions.PARITY.name,
    **parts: Any,
) -> Json:
    """A study with what its test rows give: the explorer's counts, clients, groups."""
    told = run.told
    made: Json = {
        "title": title,
        "kind": run.kind,
        "source": run.path.name,
        "notion": asdict(notions.notion_of(notion)),
        "methods": methods,
        "rows_are": "test rows",
        "provenance": {k: told[k] for k in ("command", "versions", "data", "asked") if told.get(k)},
        "configuration": _configuration(run),
        "explorer": None,
        "no_explorer": "This run kept no test rows, so there is nothing to reweigh: "
        "for a run of fit, give some by 'report --test FILE'.",
        "clients": [],
        "facts": {},
        "limit": next((m["tau"] for m in methods if m.get("tau") is not None), facts.LIMIT),
        "warnings": _warnings(methods),
        **parts,
    }
    if rows is not None:
        made |= {
            "rows": len(rows.y),
            "explorer": counts(rows, mix, notion),
            "clients": _clients(rows),
            "facts": facts.of_rows(rows),
        }
        made["warnings"] += _few(rows)
    return made


def _detailed(row: Row) -> Json:
    """What the results keep of one seed."""
    found = row.get("detail") or {}
    about = {"history": found.get("history"), "training_alpha": found.get("alpha")}
    worst = found.get("worst") or {}
    about |= {"tau": row.get("tau"), "first_certified": row.get("certified_risk_difference")}
    return about | {f"worst_{k}": worst[k] for k in worst}


def _reached(certificate: Mapping[str, Any]) -> Json:
    """The bounds of a certificate, and where they are reached."""
    if "worst_difference" not in certificate:
        return {"certified": None}
    intervals = certificate.get("intervals") or {}
    parts = _parts(certificate)
    beyond = parts is not None and parts["certified"]
    kernels = certificate["basis"]["kind"] != "constant"
    bound = certificate["upper"] if beyond else certificate["worst_difference"] if kernels else None
    return {
        "certified": None if bound is None else _one(bound),
        "parts": parts,
        "certified_interval": None if beyond else intervals.get("worst_difference"),
        "certified_accuracy": certificate.get("worst_accuracy"),
        "interval": intervals.get("difference"),
        "confidence": certificate.get("confidence"),
        "worst_alpha": certificate["alpha_difference"],
        "worst_profile": certificate["profile"],
        "worst_groups": certificate["groups"],
    }


def _parts(certificate: Mapping[str, Any]) -> Json | None:
    """The named parts of a certificate: the worst that are certified (or only measured, on the rows of a fit), those
    with too few rows, and how many there are of each."""
    parts = certificate.get("parts") or ()
    if not parts:
        return None
    keys = ("name", "rows", "difference", "low", "high", "ratio", "ratio_low", "pair")

    def told(some: Sequence[Mapping[str, Any]]) -> list[Json]:
        return [{key: part[key] for key in keys} for part in some]

    able = [part for part in parts if part["estimable"]]
    few = [part for part in parts if not part["estimable"] and part["difference"] is not None]
    held_out = certificate.get("upper") is not None
    certified, by = held_out and bool(able), "high" if held_out else "difference"
    able.sort(key=lambda part: -part[by])
    few.sort(key=lambda part: -part["difference"])
    return {
        "certified": certified,
        "why": f"Measured on {'too few rows' if held_out else 'the rows of the fit'}, and not certified.",
        "estimable": told(able[:MOST_PARTS]),
        "few": told(few[:MOST_FEW]),
        "counts": [len(able), len(parts) - len(able)],
        "upper": certificate.get("upper") if certified else None,
        "mixtures": certificate.get("mixtures"),
        "confidence": certificate.get("confidence"),
        "precision": certificate.get("precision"),
        "worst_few": few[0]["difference"] if few else None,
    }


def _certified(certificate: Mapping[str, Any], rows: str) -> Json:
    """The set of a certificate in words, and what it compares."""
    if "worst_difference" not in certificate:
        return {"set": None, "no_set": certificate.get("says") or "There is no certificate."}
    notion = asdict(notions.notion_of(certificate["notion"]))
    if certificate["basis"]["kind"] == "constant":
        parts = _parts(certificate)
        if parts is None or not parts["certified"]:
            why = parts["why"] if parts else "No part was looked at."
            return {"set": None, "no_set": f"Nothing is certified here. {why}", "notion": notion}
        mixed = " and every mixture of them" if certificate.get("mixtures") is not None else ""
        level = f"{100 * certificate['confidence']:g}% confidence, all at once"
        words = f"each of {parts['counts'][0]:,} named parts of the population{mixed}, with {level}"
        return {"set": words, "notion": notion}
    basis, bound = Basis(**certificate["basis"]), certificate["bound"]
    words = _set(basis, float("inf") if bound is None else bound, certificate["floor"], rows)
    return {"set": words, "notion": notion}


def _set(basis: Basis, bound: float, floor: float, rows: str) -> str:
    return (
        f"every reweighing of the {rows} by {about(basis, bound)}, in which the compared groups "
        f"each keep {100 * floor:g}% of the mass"
    )


def _deployments(chosen: Sequence[shift_tables.Summary]) -> list[Json]:
    """Every deployment's risk difference, method by method, a mean over the seeds that have it."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for s in chosen:
        for row in s.rows:
            for place in row["deployments"]:
                tilt = place["kind"] == "kernel tilt"  # around another row in every seed
                key = place["kind"], place["name"] if not tilt or row["seed"] == 0 else ""
                if key[1]:
                    found.setdefault(key, {}).setdefault(s.method, []).append(
                        place["risk_difference"]
                    )
    return [
        {"kind": kind, "name": name, "values": {m: float(np.mean(v)) for m, v in by.items()}}
        for (kind, name), by in found.items()
    ]


def _frontier(rows: Sequence[Row]) -> list[Json]:
    """Points of methods whose setting varies, means over the seeds."""
    seeds = {row["seed"] for row in rows if row["frontier"]}
    groups: dict[tuple[str, float], list[Row]] = {}
    for row in rows:
        value = row["kept"] if row["kept"] is not None else row["tau"]
        if row["seed"] in seeds and row["frontier"] and "worst" in row and value is not None:
            groups.setdefault((row["method"], value), []).append(row)
    names = {
        "accuracy": "test_accuracy",
        "difference": "test_risk_difference",
        "certified": "certified_risk_difference",
        "worst": "max_risk_difference",
    }
    return [
        {"method": method, "value": value}
        | {key: _spread(Spread.of(r[name] for r in group))["mean"] for key, name in names.items()}
        for (method, value), group in sorted(groups.items())
    ]


def _clients(rows: Decided) -> list[Json]:
    """What each method does at each site, and on all rows; per group its rows and positive rate."""
    sites = {"all rows": np.ones(len(rows.y), bool)}
    site = rows.columns.get(SITE)
    if site is not None and not isinstance(site, np.ndarray):
        sites |= {name: site.codes == k for k, name in enumerate(site.categories)}
    names = rows.s.categories
    made = []
    for method, p in rows.decisions.items():
        right = 1.0 - np.abs(rows.y - p)
        for place, part in sites.items():
            w = part.astype(float)
            rates = metrics.positive_rates(p, rows.s.codes, w, len(names))
            sizes = np.bincount(rows.s.codes, weights=w, minlength=len(names))
            groups = zip(names, sizes, rates, strict=True)
            made.append(
                {
                    "method": method,
                    "client": place,
                    "rows": int(part.sum()),
                    "accuracy": _number(metrics.positive_rate(right, w)),
                    "risk_difference": _number(metrics.risk_difference(p, rows.s.codes, w)),
                    "groups": {g: {"rows": int(n), "rate": _number(r)} for g, n, r in groups},
                }
            )
    return made


def _client_scores(scores: Sequence[Mapping[str, Any]], method: str) -> list[Json]:
    """The same from a fit's own scores of its training rows."""
    return [
        {k: score[k] for k in ("client", "rows", "accuracy", "risk_difference")}
        | {"method": method, "groups": {g: {"rate": r} for g, r in score["positive_rates"].items()}}
        for score in scores
    ]


def _configuration(run: Run) -> Json:
    told = run.told
    if run.kind == "fit":
        about = {
            k: told.get(k) for k in ("target", "sensitive_features", "positive", "seed", "rows")
        }
        return about | {"method": told["method"]}
    if run.kind == "audit":
        names = ("notion", "basis", "bound", "floor", "tolerance", "confidence", "resamples")
        return {k: told.get(k) for k in names}
    if run.kind == "running":
        return {k: told.get(k) for k in ("method", "most", "tau", "clients")}
    return dict(told.get("asked") or {})


# --- where a claim is weak ---


def _warnings(methods: Sequence[Json]) -> list[str]:
    told = []
    for method in methods:
        outcome = str(method.get("outcome") or "")
        done, _, all_of = outcome.removeprefix("converged ").partition("/")
        if outcome.startswith("converged ") and all_of and done != all_of.partition(";")[0]:
            told.append(f"{method['name']} did not converge in every run ({outcome}).")
        elif "diverged" in outcome or "infeasible" in outcome or outcome.startswith("not "):
            told.append(f"{method['name']}: {outcome}.")
    if methods and max(m["seeds"] for m in methods) == 1:
        told.append("One run only: how much chance is in these numbers is not known.")
    return told


def _few(rows: Decided) -> list[str]:
    sizes = zip(
        rows.s.categories, np.bincount(rows.s.codes, minlength=len(rows.s.categories)), strict=True
    )
    return [
        f"Group {name!r} has only {size} test rows: its rates are uncertain."
        for name, size in sizes
        if size < FEW_ROWS
    ]


def _fit_warnings(run: Run) -> list[str]:
    missing = [e for e in run.told["events"] if e["event"] in ("no answer", "restated")]
    told = [f"Replies were missing: {', '.join(_event(e) for e in missing)}."] if missing else []
    others = run.certificate.get("others") or {}
    told += (
        [f"The groups here are those of {sensitive_feature_of(run)!r}, the worst."]
        if others
        else []
    )
    told += [f"By {name!r} it is: {says}" for name, says in others.items()]
    return told + _certificate_warnings(run.certificate)


def _event(event: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in event.items())


def _certificate_warnings(certificate: Mapping[str, Any]) -> list[str]:
    if "worst_difference" not in certificate:
        return [certificate.get("says") or "There is no certificate."]
    few = [
        f"Group {name!r} has only {group['rows']} rows in the certificate: its rates are uncertain."
        for name, group in certificate["groups"].items()
        if group["rows"] < FEW_ROWS
    ]
    return [*warnings(certificate), *few]


def _ended(told: Mapping[str, Any]) -> str:
    if told["outcome"] == "converged" or told["method"].get("averaging"):
        return f"{told['outcome']} after {told['rounds']} rounds"
    return f"not converged after {told['rounds']} rounds"


# --- numbers ---


def _spread(found: Spread) -> Json:
    return {k: _number(v) for k, v in asdict(found).items()}


def _one(value: float | None) -> Json:
    return _spread(Spread.of([None if value is None or not isfinite(value) else value]))


def _number(value: float) -> float | None:
    return float(value) if isfinite(value) else None
