"""A model card: what a model is for, what it was made of, what was measured, and where that ends.

The sections follow Mitchell et al., *Model Cards for Model Reporting*.  A card is plain texts; what
came out of a user's file (names of columns, groups and labels) is escaped when it is written.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from math import isfinite
from typing import Any

import numpy as np

from agnosticfair.auditing.certificate import Certificate, interval_text
from agnosticfair.auditing.fits import compared_in, noisy_certificate
from agnosticfair.data.encoding import shown
from agnosticfair.data.table import Table
from agnosticfair.federation import Fit
from agnosticfair.mathematics import scoring
from agnosticfair.mathematics.basis import is_centred
from agnosticfair.mathematics.metrics import metric_of
from agnosticfair.methods import Fairness, Method
from agnosticfair.model import Model
from agnosticfair.report import rule as ruled
from agnosticfair.report import words
from agnosticfair.report.figures import png
from agnosticfair.report.page import Section
from agnosticfair.report.studies import fit_entry
from agnosticfair.runs.ruled import about, proxy
from agnosticfair.settings import TAU

MAX_SUBGROUPS = 8  # that a card names, of the estimable ones
MAX_FEW = 3  # of the others

FEW = 100
"""Rows of a group under which its rates are said to be uncertain."""


Certified = Mapping[str, Certificate | str]
"""Of everything that is compared, its certificate, or why there is none."""


def card(
    fitted: Fit,
    clients: Mapping[str, Table],
    certified: Certified,
    target: str = "the label",
    limit: float | None = None,
) -> tuple[Section, ...]:
    """The card of a fit.

    clients: the rows it was made of.  certified: see ``auditing.fits.certificates``.  target: what the label is called.
    limit: where one was requested instead of tau.
    """
    model = fitted.model
    counts = {key: compared_in(fitted, table) for key, table in clients.items()}
    groups = {
        name: np.concatenate([columns[name].values() for columns in counts.values()])
        for name in next(iter(counts.values()))
    }
    y = np.concatenate([t.labels(model.positive) for t in clients.values()])
    y_hat = np.concatenate([model.predict(t) for t in clients.values()])
    scores = _scores(y, y_hat, groups)
    return (
        replace(_about(model, target), glance=_glance(fitted, certified, scores, limit)),
        _uses(model),
        _data(model, clients),
        *_rule(fitted, [*clients.values()]),
        *(_groups(y, y_hat, name, values) for name, values in groups.items()),
        *(_certified(name, certificate) for name, certificate in certified.items()),
        _limits(fitted, scores, groups),
        _origin(fitted),
    )


def private_card(fitted: Fit, target: str = "the label") -> tuple[Section, ...]:
    """The card of a differentially private fit: of what noise let through, and nothing that was measured on rows."""
    model = fitted.model
    limits: tuple[str, ...] = (
        "Nothing else was measured on the rows: it would show what the noise hides.",
        "The claim does not cover what was known before, such as the schema, nor what is measured on these rows later.",
    )
    if model.estimates is not None:
        limits = (proxy(model.estimates, model.sensitive_features), *limits)
    return (
        _about(model, target),
        _uses(model),
        _certified(" & ".join(model.sensitive_features), noisy_certificate(fitted)),
        Section("Limits", points=limits),
        _origin(fitted),
    )


def _about(model: Model, target: str) -> Section:
    columns = len(model.encoding.numeric) + len(model.encoding.categorical)
    holders = (
        "one holder" if model.clients == 1 else f"{model.clients} holders, who kept their rows"
    )
    return Section(
        f"Model card: {target} by {model.method['name']}",
        (
            f"The model decides from {columns} columns whether {target} is {model.positive!r} (a "
            f"positive decision) or {model.negative!r}. {_kind(model)}",
            f"It was trained on {model.rows:,} rows of {holders}, and was {_fairness_sentence(model)}.",
        ),
    )


def _glance(
    fitted: Fit, certified: Certified, scores: Mapping[str, Any], limit: float | None = None
) -> words.Glance | None:
    """The first screen of the page of this fit, of the feature for which its verdict is the worst; None without a
    certificate."""
    content: dict[str, Any] = {"method": asdict(fitted.method), "outcome": fitted.outcome}
    content |= {"rounds": fitted.rounds, "warnings": _warnings(fitted, scores)}
    content |= {"shadow_price": fitted.price_of_limit, "estimated": fitted.estimated}
    shown = []
    for name, certificate in certified.items():
        if isinstance(certificate, str):
            continue
        sealed = certificate.to_json()
        if limit is not None:  # as ``stated_certificates`` has it
            kept, sentence = certificate.upper == limit, certificate.notes[0]
            sealed |= {"limit": limit, "kept": kept, "sentence": sentence}
        method = fit_entry(content, sealed, fitted.method.name)
        method |= {"difference": certificate.difference, "accuracy": scores["accuracy"]}
        rates = {group: {"rate": rate} for group, rate in scores["rates"].get(name, {}).items()}
        study = {
            "methods": [method],
            "limit": method["tau"] if limit is None else limit,
            "metric": asdict(metric_of(certificate.metric)),
            "rows": certificate.n,
            "rows_are": "rows held out" if certificate.held_out else words.TRAINING,
            "facts": {"majority_rate": scores["majority"]},
            "clients": [{"method": fitted.method.name, "client": "all rows", "groups": rates}],
        }
        shown.append(words.glance(study))
    return min(shown, key=lambda one: [*words.SIGNS].index(one.state), default=None)


def _scores(y: np.ndarray, y_hat: np.ndarray, groups: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """What the first screen says of the training rows."""
    rates = {
        name: {str(g): float(y_hat[values == g].mean()) for g in np.unique(values)}
        for name, values in groups.items()
    }
    right, majority = float(np.mean(y == y_hat)), scoring.majority_rate(y)
    positive = float(np.mean(y_hat))
    return {"accuracy": right, "majority": majority, "positive": positive, "rates": rates}


def _warnings(fitted: Fit, scores: Mapping[str, Any]) -> list[str]:
    rates = (scores[name] for name in ("accuracy", "majority", "positive"))
    return words.poor_fit(fitted, *rates)


def _fairness_sentence(model: Model) -> str:
    averaging = model.method.get("averaging") or {}
    if not model.method.get("fairness") and not averaging.get("penalty"):
        return "not asked to treat groups alike"
    return (
        f"asked to give the groups of {shown(model.sensitive_features) or 'no column'} similar treatment, as "
        "described below"
    )


def _kind(model: Model) -> str:
    if model.rule is not None and not model.method.get("fairness"):
        return "It estimates the label's probability, and decides for the label that costs less."
    if model.rule is not None:
        return (
            "It is a rule: a learner estimates the probabilities of the label and of the groups from the columns, and "
            "a program finds the decisions of most utility among those that keep groups' rates within a limit in "
            "every subgroup. A score above zero is a positive decision."
        )
    if model.network is None:
        return (
            "It is a linear classifier: every column adds or takes away a fixed number of points, and a "
            "total above zero is a positive decision."
        )
    return (
        f"It is a neural network ({model.network['name']!r}, {len(model.w):,} numbers): what a column does to a "
        "decision depends on the other columns."
    )


def _uses(model: Model) -> Section:
    return Section(
        "Intended use",
        (
            "For decisions, or support of decisions, about cases like those it was trained on: the same "
            "columns, collected in the same way.",
        ),
        (
            "Not for cases with values it has not seen: a category unknown in training is "
            + ("taken as a rare one." if _of_trees(model) else "refused."),
            f"Not evidence about groups other than those of {shown(model.sensitive_features) or 'no column'}.",
            "Not a legal assessment. Whether a use is lawful, and whether a person must be able to "
            "contest a decision, is for people to judge; the numbers below are there to help them.",
        ),
    )


def _of_trees(model: Model) -> bool:
    return model.estimates is not None and model.estimates.kind == "trees"


def _data(model: Model, clients: Mapping[str, Table]) -> Section:
    numbers, texts = model.encoding.numeric, model.encoding.categorical
    encoding = model.encoding
    sizes = zip(dict(encoding.bins), encoding.bin_sizes(), strict=True)
    cut = [f"{name} counts by its {k} bins, too." for name, k in sizes if not _of_trees(model)]
    if encoding.missing:
        cut.append(
            f"Missing in some rows, which have a bin of their own: {shown(encoding.missing)}."
        )
    rows = [(key, f"{len(t):,}", _share(t.labels(model.positive))) for key, t in clients.items()]
    return Section(
        "Training data",
        (
            f"Columns of numbers: {', '.join(name for name, _, _ in numbers) or 'none'}. Columns of "
            f"categories: {', '.join(name for name, _ in texts) or 'none'}.",
            _unused(model),
        ),
        tuple(cut),
        lines=(("holder", "rows", f"labelled {model.positive}"), *rows),
    )


def _unused(model: Model) -> str:
    """Which columns do not decide, in a sentence."""
    names = shown(model.sensitive_features)
    if model.estimates is not None and model.estimates.aware:
        return f"Used to decide, too: {names}."
    return (
        f"Not used to decide: {names or 'nothing'}. Other columns may carry the same information, which is why the "
        "groups' decisions are compared."
    )


def _rule(fitted: Fit, tables: Sequence[Table]) -> list[Section]:
    """How a rule decides: its learner, what its limits cost, where it had to act, and how its estimates agree with the
    rows; none of a fit without one."""
    facts, positive = about(fitted, tables), fitted.model.positive
    if facts is None:
        return []
    pictures = [
        (title, text, png(figure, 110)) for title, text, figure in ruled.pictures(facts, positive)
    ]
    first, rest = (
        [p for p in pictures if p[0] == ruled.ACTED],
        [p for p in pictures if p[0] != ruled.ACTED],
    )
    sections = [
        Section(
            "How it decides",
            (ruled.learner_words(facts), facts["proxy"]),
            tuple(facts["statements"]),
        )
    ]
    if fitted.method.fairness is not None:
        lines = ruled.acted_lines(facts)
        sections.append(
            Section(ruled.ACTED, (ruled.acted_words(facts),), (), lines, None, (*first,))
        )
    if facts["calibration"]:
        title, lines = (
            "Do the estimates agree with the rows?",
            ruled.calibrated_lines(facts, positive),
        )
        sections.append(Section(title, (ruled.calibrated_words(facts),), (), lines))
    lines = ruled.importance_lines(facts, positive)
    if lines or rest:
        sentences = (ruled.IMPORTANCE,) if "gains" in facts else ()
        sections.append(Section("What the estimates hang on", sentences, (), lines, None, (*rest,)))
    return sections


def _groups(y: np.ndarray, y_hat: np.ndarray, sensitive_feature: str, named: np.ndarray) -> Section:
    """Measured on the training rows, group by group and together."""
    groups, s = np.unique(named, return_inverse=True)
    masks = {**{str(g): s == j for j, g in enumerate(groups)}, "all rows": np.ones(len(y), bool)}
    lines = [
        (
            name,
            f"{mask.sum():,}",
            _share(y[mask]),
            _share(y_hat[mask]),
            _share(y[mask] == y_hat[mask]),
            _share(y_hat[mask & (y == 1)]),
            _share(y_hat[mask & (y == 0)]),
        )
        for name, mask in masks.items()
    ]
    gap, labels = scoring.risk_difference(y_hat, s), scoring.risk_difference(y, s)
    head = ("group", "rows", "labelled positive", "decided positive", "decided rightly")
    rates = ("decided positive, of the labelled so", "decided positive, of the others")
    return Section(
        f"Measured, by {sensitive_feature}",
        (
            "On the rows it was trained on; expect somewhat worse on others. The risk difference, the "
            f"largest gap between two groups' shares of positive decisions, is {_number(gap)}; in the "
            f"labels themselves it is {_number(labels)}. Always giving the commonest answer would be "
            f"right for {scoring.majority_rate(y):.1%} of these rows.",
        ),
        lines=((*head, *rates), *lines),
    )


def _certified(sensitive_feature: str, certificate: Certificate | str) -> Section:
    title = f"Certificate, by {sensitive_feature}"
    if isinstance(certificate, str):
        return Section(title, (f"There is none: {certificate}",))
    if certificate.held_out:
        end = "This holds for the subgroups that are named, in the population that the rows were drawn from."
    elif certificate.noisy:
        end = "Under the noise of differential privacy, and about the training rows alone."
    else:
        end = "A bound beyond these rows takes rows that the fit did not see: audit some."
    return Section(title, (str(certificate), end), (), _subgroups(certificate))


def _subgroups(certificate: Certificate) -> tuple[tuple[str, ...], ...]:
    """The worst subgroups, and how many are not estimable, as a table."""
    few = certificate.not_estimable
    head = (
        "subgroup",
        "rows",
        f"{certificate.quantity}, measured",
        f"{certificate.confidence:.0%} interval",
    )
    lines = [
        (subgroup.name, f"{subgroup.rows:,}", _number(subgroup.difference), interval_text(subgroup))
        for subgroup in (*certificate.listed(MAX_SUBGROUPS), *few[:MAX_FEW])
    ]
    if len(few) > MAX_FEW:
        lines.append(
            (f"{len(few) - MAX_FEW:,} more subgroups", "", "", "not estimable: too few rows")
        )
    return (head, *lines)


def _aimed(method: Method, fairness: Fairness) -> str:
    """What training held the decisions to."""
    if method.rule is not None:
        chance = "Counted rates differ by chance besides, the more the smaller a subgroup is."
        return f"tau is {fairness.tau:g}. {TAU} {chance}"
    if fairness.measured.kind == "sigmoid":
        return (
            f"Training aimed at {fairness.tau:g} for the decisions themselves, over its own set and the rows it had; "
            "the certificate has a set of its own."
        )
    return f"Training held every group's mean log loss within {fairness.tau:g}; the certificate is about decisions."


def _limits(fitted: Fit, scores: Mapping[str, Any], groups: Mapping[str, np.ndarray]) -> Section:
    fairness = fitted.method.fairness
    counts = [zip(*np.unique(named, return_counts=True), strict=True) for named in groups.values()]
    small = [f"{group} ({n})" for counts_here in counts for group, n in counts_here if n < FEW]
    points = [text[0].upper() + text[1:] for text in _warnings(fitted, scores)]
    if fairness is None:
        points.append("This method does not constrain how groups are treated.")
    else:
        points.append(_aimed(fitted.method, fairness))
        points += [text for text in (fitted.exceeds, fitted.uncompared, fitted.costs) if text]
        points.append(
            f"Fairness here means {fairness.metric.replace('_', ' ')}. Other meanings can contradict it."
        )
    if fitted.centres is not None and "rows" in _centres(fitted):
        points.append(
            f"About {len(fitted.centres)} training rows, without label and group, were shown to every "
            "holder: the kernels are centred on them."
        )
    if not fitted.converged:
        points.append(
            f"Training did not converge: it ended as {fitted.outcome!r}, without reaching its own stopping rule."
        )
    if small:
        points.append(
            f"Groups of fewer than {FEW} rows, whose rates are uncertain: {shown(small)}."
        )
    if fitted.under_floor:
        points.append(
            f"Groups too small to be compared in any reweighting: {shown(fitted.under_floor)}."
        )
    for event in fitted.events:
        points.append("During training: " + ", ".join(f"{k} {v}" for k, v in event.items()) + ".")
    points.append(
        "Labels are taken as they are; where they are unfair, a model that fits them is, too."
    )
    return Section("Limits", (), tuple(points))


def _centres(fitted: Fit) -> set[str]:
    """Where the kernels' centres came from."""
    fairness = fitted.method.fairness
    bases = (fitted.method.basis, fairness.basis if fairness else fitted.method.basis)
    return {basis.centres for basis in bases if is_centred(basis)}


def _origin(fitted: Fit) -> Section:
    facts = {"rounds run": f"{fitted.rounds}", "outcome": fitted.outcome}
    facts |= {k: str(v) for k, v in _flat({**asdict(fitted.method), "seed": fitted.model.seed})}
    facts |= {"python": platform.python_version()}
    facts |= {name: version(name) for name in ("agnosticfair", "numpy", "scipy")}
    return Section("How it was made", lines=(("setting", "value"), *facts.items()))


def _flat(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values under dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", v) for inner, v in _flat(value))
        else:
            yield name, value


def _share(values: np.ndarray) -> str:
    return f"{values.mean():.1%}" if len(values) else "none"


def _number(value: float) -> str:
    return f"{value:.4f}" if isfinite(value) else "unknown"
