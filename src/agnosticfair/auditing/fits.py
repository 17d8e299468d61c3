"""What is certified of a fit: one set, the one that it was trained for, and one certificate, for every front."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from agnosticfair.auditing.audit import audit_clients
from agnosticfair.auditing.certificate import Certificate
from agnosticfair.auditing.subgroups import Agreed, SubgroupRecord
from agnosticfair.data.stream import Stream
from agnosticfair.data.table import Column, Table, intersected
from agnosticfair.errors import AgnosticFairError
from agnosticfair.federation import Fit
from agnosticfair.mathematics.basis import (
    Basis,
    around,
    comes_with_rows,
    constant,
    design,
    is_apart,
    is_centred,
    subgroups,
)
from agnosticfair.mathematics.metrics import PARITY
from agnosticfair.mathematics.subgroups import subgroup_name
from agnosticfair.methods import Fairness
from agnosticfair.protocol.engines import Engine


def compared(fairness: Fairness | None, columns: Mapping[str, Column]) -> dict[str, Column]:
    """The groups that a fit compares: those of each sensitive feature, or the intersections of all.

    >>> two = {"sex": Column.of(["F", "M"]), "race": Column.of(["a", "b"])}
    >>> list(compared(Fairness(0.05, intersections=True), two)), list(compared(None, two))
    (['sex & race'], ['sex', 'race'])
    """
    if fairness is None or not fairness.intersections or len(columns) < 2:
        return dict(columns)
    return {" & ".join(columns): intersected(columns)}


def compared_in(fitted: Fit, table: Table) -> dict[str, Column]:
    """The groups of a table's rows that a fit compares."""
    names = fitted.model.sensitive_features
    return compared(fitted.method.fairness, {k: table.sensitive_features[k] for k in names})


def agreed_in(fitted: Fit, without: str | None = None) -> Agreed:
    """The subgroups that a fit was held to: those in which it compared groups; only overall where no column names any.
    without: the axis of a column that the rows do not have."""
    basis = replace(fitted.method.fairness.basis, split=False)  # type: ignore[union-attr]
    if fitted.subgroups is None:
        return Agreed(basis, (), ())
    axes, named = fitted.subgroups.agreed
    alone = {*fitted.not_compared}
    there = {a: k for k, a in enumerate(a for a, axis in enumerate(axes) if axis.name != without)}
    values = tuple(
        tuple((there[a], v) for a, v in subgroup)
        for subgroup in named
        if subgroup_name(axes, subgroup) not in alone and all(a in there for a, _ in subgroup)
    )
    return Agreed(basis, tuple(axes[a] for a in there), values)


@dataclass(frozen=True, eq=False)
class FitKernels:
    """The kernels of a fit on rows at hand, (n, M), as ``audit`` takes a function of the rows."""

    basis: Basis
    K: np.ndarray

    def __call__(self, X: Any) -> np.ndarray:
        return self.K


def certified_set(fitted: Fit, without: str | None = None) -> dict[str, Any]:
    """What is certified of a fit: the arguments of ``audit`` and ``audit_clients`` for the set it was trained for.

    The subgroups that it was held to, or every one that columns name; and its kernels, with their bound, where it was
    held to these and they can be asked of any rows: those by client are of the rows of the fit alone.
    """
    fairness = fitted.method.fairness
    if fairness is None:
        return {"subgroups": subgroups(), "metric": PARITY.name}
    options: dict[str, Any] = {"metric": fairness.metric, "floor": fairness.floor}
    basis = replace(fairness.basis, split=False)
    if basis.kind == "subgroups":
        return options | {"subgroups": agreed_in(fitted, without)}
    options["subgroups"] = subgroups()
    if not is_centred(basis) or fitted.centres is None:
        return options
    centres = fitted.centres[: basis.kernels]
    return options | {"basis": basis, "bound": fairness.bound, "centres": centres}


def kernels_on(
    fairness: Fairness,
    X: np.ndarray,
    centres: np.ndarray | None,
    kernels: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> dict[str, Any]:
    """The kernels of a fit on rows at hand, as ``audit`` is asked with them; none by client, for who holds a row is not
    known here.

    X: (n, d) rows as the fit saw them.  kernels: (n, M), where they come with the rows.  weights: (n,), the centre of
    the set; None for equal ones.
    """
    basis = replace(fairness.basis, split=False)
    plain = weights is None and fairness.trust == 0
    if is_apart(basis) or (basis.kind == constant().kind and kernels is None and plain):
        return {}
    b = None if centres is None else centres[: basis.kernels]
    K = design(basis, X, b, "", ("",)) if kernels is None else kernels
    if comes_with_rows(basis) or not plain:
        basis = Basis("function", K.shape[1])
    K = around(K, weights, fairness.trust)
    return {"basis": FitKernels(basis, K), "bound": fairness.bound}


def certificates(
    fitted: Fit, clients: Mapping[str, Table | Stream] | Engine, **how: Any
) -> tuple[dict[str, Certificate], dict[str, str]]:
    """The certificates of a fit on the rows that made it, by what they compare; and where there is none, why: a site
    may refuse it, and the model is no worse for that.

    Nothing is bounded beyond these rows. A private fit was measured under its noise, and no row is looked at again.
    Tables can be asked about intersections, too; over an engine, and of streams, each sensitive feature is by itself.
    """
    if fitted.model.privacy is not None:
        return {" & ".join(fitted.model.sensitive_features): noisy_certificate(fitted)}, {}
    names: Iterable[str] = fitted.model.sensitive_features
    if isinstance(clients, Mapping) and not any(table.streamed for table in clients.values()):
        tables = cast("Mapping[str, Table]", clients)
        columns = {k: compared_in(fitted, t) for k, t in tables.items()}
        clients = {k: replace(t, sensitive_features=columns[k]) for k, t in tables.items()}
        names = next(iter(columns.values()))
    all_certificates, reasons = {}, {}
    send = {**certified_set(fitted), "held_out": False, **how}
    for name in names:
        try:
            all_certificates[name] = audit_clients(
                fitted.model, clients, sensitive_features=name, **send
            )
        except AgnosticFairError as error:
            if not getattr(error, "declined", True):
                raise  # nobody refused: a site was lost, or has other rows now
            reasons[name] = str(error)
    return all_certificates, reasons


def noisy_certificate(fitted: Fit) -> Certificate:
    """The certificate of a differentially private fit, of what noise let through: every subgroup's difference on the
    training rows, and what it is at most there, all at once."""
    report, nothing = fitted.model.privacy or {}, float("nan")
    noisy = tuple(
        SubgroupRecord(name, int(rows), difference, 0.0, at_most, True, depth=min(k, 1))
        for k, (name, rows, difference, at_most) in enumerate(report["subgroups"])
    )
    each = (
        f"each site, of at most {report['max_rows']:.0f} rows" if report["max_rows"] else "each row"
    )
    spent = (
        f"Differentially private for {each}: epsilon {report['epsilon']:.3g} at delta {report['delta']:g} was spent, "
        f"against the coordinator together with {report['colluding']:.0f} of the other sites."
    )
    return Certificate(
        metric=fitted.method.fairness.metric if fitted.method.fairness else PARITY.name,
        confidence=report["confidence"],
        precision=nothing,
        floor=nothing,
        n=fitted.model.rows,
        accuracy=report["accuracy"],
        subgroups=noisy,
        noisy=True,
        notes=(spent,),
    )


def as_content(
    certificates: Mapping[str, Certificate], reasons: Mapping[str, str]
) -> dict[str, Any]:
    """Certificates as JSON with what they ``say``: the worst one, and what the ``others`` say."""
    others = {name: f"There is no certificate: {why}" for name, why in reasons.items()}
    if not certificates:
        none = "There is no certificate: the model protects nobody."
        return {"sentence": " ".join(others.values()) or none}
    worst = max(certificates, key=lambda name: certificates[name].worst_difference)
    others |= {name: str(other) for name, other in certificates.items() if name != worst}
    about = {"sentence": str(certificates[worst]), "sensitive_feature": worst, "others": others}
    return {**about, **certificates[worst].to_json()}
