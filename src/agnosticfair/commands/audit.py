"""``agnosticfair audit`` and ``plan-audit``: a certificate for any model, and how many rows one needs;
and ``verify``: a certificate checked without rows or model, or against them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

from agnosticfair.commands import options
from agnosticfair.commands.output import UNCLAIMED, check_folder, deliver, grid, show
from agnosticfair.commands.rows import labelled, tell
from agnosticfair.errors import DataError, SettingsError
from agnosticfair.mathematics.metrics import PARITY

if TYPE_CHECKING:
    import numpy as np

    from agnosticfair.auditing.certificate import Certificate
    from agnosticfair.data.files import Roles
    from agnosticfair.data.storage import Decided
    from agnosticfair.data.table import Table
import re
from collections.abc import Iterator

from agnosticfair.commands.options import example
from agnosticfair.errors import plain

ROWS_FILE = "rows.parquet"
Request = Mapping[str, Any]


def _roles(request: Request) -> Roles:
    from agnosticfair.data.files import Roles

    cluster = [] if request["cluster"] is None else [request["cluster"]]
    lists = ("sensitive_features", "numeric", "categorical", "drop")
    names, numeric, categorical, drop = (tuple(request[name] or ()) for name in lists)
    return Roles(request["target"], names, None, numeric, categorical, (*drop, *cluster))


def judged_of(
    request: Request, file: Path, model: Path | None, dialect: options.Dialect, trust_code: bool
) -> Judged:
    """The rows of a file, and the model or the predictions that are audited on them."""
    from agnosticfair.data.files import read_table
    from agnosticfair.data.table import intersected

    roles, cluster, predictions = _roles(request), request["cluster"], request["predictions"]
    if model is not None:
        judged = _of_model(model, file, roles, dialect, request, trust_code)
    elif predictions is not None:
        judged = _of_column(predictions, file, roles, dialect)
    else:
        raise SettingsError("the audit was of a model: name its file by --model")
    if cluster is not None:
        drop = [name for name in (*roles.drop, predictions) if name not in (None, cluster)]
        by_cluster = replace(roles, client=cluster, drop=tuple(drop))
        who = read_table(file, by_cluster, dialect=dialect).other[cluster].values()
        judged = replace(judged, cluster=who)
    if not request["intersections"]:
        return judged
    groups = judged.table.sensitive_features
    together = {" & ".join(groups): intersected(groups)}
    return replace(judged, table=replace(judged.table, sensitive_features=together))


def audit_options(request: Request, names: int) -> dict[str, Any]:
    """The arguments of ``agnosticfair.audit``, where so many certificates share 1 - confidence."""
    from agnosticfair.mathematics.basis import gaussian, subgroups

    same = ["floor", "seed", "metric", "precision", "mixtures", "positive", "threshold", "bound"]
    columns, kernels = request["columns"], request["kernels"]
    how = (request[name] for name in ("depth", "min_share", "bins"))
    return {
        **{name: request[name] for name in same},
        "basis": None if kernels is None else gaussian(kernels, request["sigma"]),
        "subgroups": subgroups(tuple(columns) if columns else None, *how),
        "confidence": 1 - (1 - request["confidence"]) / names,
    }


@dataclass(frozen=True)
class Judged:
    """What is certified: a model or its predictions, the rows, and what it is called.  cluster: who the rows are
    about, (n,), where that is said."""

    predictions: Any
    table: Table
    name: str
    cluster: Any = None


@options.with_dialect
@options.example(
    "audit test.csv --target income --sensitive-features sex --model model.safetensors"
)
def audit(
    file: Annotated[Path, Argument(help="CSV or Parquet with the rows to audit on.")],
    target: options.Target,
    sensitive_features: options.SensitiveFeatures,
    dialect: options.Dialect,
    model: Annotated[
        Path | None, Option(help="A model written by 'fit'; or another's: .joblib, .pkl, .onnx.")
    ] = None,
    trust_code: Annotated[
        bool, Option("--trust-code", help="Read a .joblib or .pkl, which runs its author's code.")
    ] = False,
    predictions: Annotated[
        str | None, Option(help="Or the column with another model's labels, 0/1 or probabilities.")
    ] = None,
    numeric: options.Numeric = None,
    categorical: options.Categorical = None,
    drop: options.Drop = None,
    positive: options.Positive = None,
    threshold: Annotated[
        float, Option(help="A probability above it is a positive decision.")
    ] = 0.5,
    metric: options.MetricName = PARITY.name,
    intersections: options.Intersections = False,
    columns: Annotated[
        list[str] | None, Option(help="Column that names subgroups; may be repeated, else all.")
    ] = None,
    depth: Annotated[int, Option(help="Most values in one subgroup: 1, 2 or 3.")] = 2,
    min_share: Annotated[
        float, Option(help="Least share of the rows that a subgroup holds.")
    ] = 0.01,
    bins: Annotated[int, Option(help="Bins of a column of numbers.")] = 4,
    limit: Annotated[
        float | None,
        Option(help="Largest difference asked for; exit code 3 where it is not certified."),
    ] = None,
    confidence: Annotated[float, Option(help="With which the bounds hold, all at once.")] = 0.95,
    precision: Annotated[
        float, Option(help="Subgroups whose interval is wider than +- this are not estimable.")
    ] = 0.1,
    mixtures: Annotated[
        bool, Option("--mixtures", help="Bound mixtures of subgroups, too.")
    ] = False,
    kernels: Annotated[
        int | None, Option(help="Besides subgroups: Gaussian kernels around rows drawn at random.")
    ] = None,
    bound: Annotated[
        float | None, Option(help="Bound B on the adversary's alpha, for kernels; else 5.")
    ] = None,
    sigma: Annotated[float, Option(help="Kernels' width; features are scaled to [0, 1].")] = 1.0,
    floor: Annotated[float, Option(help="Least share of the mass a compared group keeps.")] = 0.05,
    seed: Annotated[int, Option(help="Draws the kernels' centres, and a cluster's row.")] = 0,
    cluster: Annotated[
        str | None,
        Option(help="Column that says which rows are one person: one of each is audited."),
    ] = None,
    key: Annotated[Path | None, Option(help="Sign with this key (extra 'secure').")] = None,
    keep_rows: Annotated[
        bool,
        Option("--keep-rows", help="Leave rows.parquet, too, for 'report': it holds the rows."),
    ] = False,
    out: options.OutFolder = Path("audit"),
    as_json: options.Json = False,
) -> None:
    """Certify any model on rows it was not fitted on: every subgroup, at a confidence.

    Give a model file, ours or another's, or the column with a model's predictions. Writes certificate.json,
    which 'verify' checks without the rows, certificate.png and audit.html, which answers at a glance; in a folder each
    where there are several sensitive features, whose certificates then hold together. These files hold no row: with
    --keep-rows rows.parquet holds them all (features, label, group, decision), for the explorer of 'report', and is not
    to travel with the certificate.
    The options numeric, categorical, drop, columns and sensitive-features may be repeated.
    """
    arguments = dict(locals())
    from agnosticfair.auditing.proof import REQUEST, read_key
    from agnosticfair.report import certificate as report
    from agnosticfair.report.page import page_data, report_page
    from agnosticfair.report.studies import Run
    from agnosticfair.report.words import of_decisions

    if (model is None) == (predictions is None):
        raise SettingsError("name either a model by --model or a column by --predictions")
    check_folder(out)
    secret = None if key is None else read_key(key)
    request = {name: value for name, value in arguments.items() if name in REQUEST}
    judged = judged_of(request, file, model, dialect, trust_code)
    names = tuple(judged.table.sensitive_features)
    options = audit_options(request, len(names))
    of_rows = {"positive": positive, "threshold": threshold}
    if not as_json:
        tell({file.stem: judged.table}, target, getattr(judged.predictions, "positive", positive))
    records, holds = {}, True
    for name in names:
        audited = certified(judged, name, options)
        rows = _decided(judged, name, of_rows)
        about = {"sensitive_feature": name, "request": request}
        files, records[name] = _files(judged, audited, about, file, secret)
        folder = out if len(names) == 1 else out / name
        files |= _rows_file(folder, rows, keep_rows)
        content = page_data(
            [Run(folder, "audit", records[name], decided={ROWS_FILE: rows} if keep_rows else {})]
        )
        files["audit.html"] = report_page(content).encode()
        glance = content["studies"][0]["glance"]
        holds = holds and (limit is None or glance["state"] == "kept")
        text = "\n".join((of_decisions(rows, judged.name), str(audited), glance["answer"]))
        deliver(folder, files, report.grids(audited), text, "" if as_json else None)
    if as_json:
        print(
            json.dumps(
                records if len(records) > 1 else records[names[0]], indent=1, allow_nan=False
            )
        )
    if not holds:
        raise Exit(UNCLAIMED)


def certified(judged: Judged, name: str, options: Mapping[str, Any]) -> Certificate:
    """The certificate for one sensitive feature."""
    from agnosticfair.auditing.audit import audit as certify

    rows = {"sensitive_features": name, "cluster": judged.cluster}
    return certify(judged.predictions, judged.table, **rows, **options)


def _files(
    judged: Judged,
    certificates: Certificate,
    about: Mapping[str, Any],
    file: Path,
    secret: Any,
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """A certificate with its figure, by file name; and as JSON."""
    from agnosticfair.auditing.certificate import plain
    from agnosticfair.auditing.proof import sealed
    from agnosticfair.report import certificate as report
    from agnosticfair.report.figures import png
    from agnosticfair.runs.provenance import provenance

    about = {"method": judged.name, "sentence": str(certificates), **plain(about)}
    seal = sealed(certificates.to_json() | about | provenance({file.stem: judged.table}), secret)
    text = json.dumps(seal, indent=1, allow_nan=False)
    files = {
        "certificate.json": f"{text}\n".encode(),
        "certificate.png": png(report.figure(certificates)),
    }
    return files, seal


def _rows_file(folder: Path, rows: Decided, keep: bool) -> dict[str, bytes]:
    """The file of the rows, where it is wanted; else those of an earlier audit go: they are not this certificate's."""
    if keep:
        return {ROWS_FILE: rows.to_bytes()}
    (folder / ROWS_FILE).unlink(missing_ok=True)
    return {}


def _decided(judged: Judged, sensitive_feature: str, how: Mapping[str, Any]) -> Decided:
    """The rows with what is decided on them."""
    from agnosticfair.auditing.inputs import labels_and_decisions
    from agnosticfair.data.storage import Decided

    table = judged.table
    y, decided = labels_and_decisions(judged.predictions, table, None, len(table), **how)
    label = next(iter(table.target.values()[y]), "positive") if table.target else "positive"
    return Decided.of(table, sensitive_feature, label, {judged.name: decided.astype(float)})


def _of_model(
    path: Path,
    file: Path,
    roles: Roles,
    dialect: options.Dialect,
    request: Request,
    trust_code: bool,
) -> Judged:
    """A model and the rows as it reads them; of another's its predictions, and the rows as 'fit' reads them."""
    from agnosticfair.auditing.inputs import is_foreign, load_foreign, predictions_of, read_frame
    from agnosticfair.data.files import read_table
    from agnosticfair.model import load_model

    if not is_foreign(path):
        named = [k for k in ("numeric", "categorical", "drop", "positive") if request[k]]
        if named:
            raise SettingsError(f"the model knows its columns and labels: leave out --{named[0]}")
        ours = load_model(path)
        rows = labelled(ours, [file], str(roles.target), roles.sensitive_features, None, dialect)
        return Judged(ours, rows[file.stem], ours.method["name"])
    table = read_table(file, roles, dialect=dialect)
    theirs = load_foreign(path, trust_code)
    if trust_code:
        print(f"Warning: {path.name!r} runs the code of whoever wrote it.", file=sys.stderr)
    frame = read_frame(file, dialect)
    return Judged(
        predictions_of(theirs, frame, str(roles.target), threshold=request["threshold"]),
        table,
        path.name,
    )


def _of_column(predictions: str, file: Path, roles: Roles, dialect: options.Dialect) -> Judged:
    """The predictions in a column, as labels or as numbers; and the rows, without that column."""
    import numpy as np

    from agnosticfair.data.encoding import shown
    from agnosticfair.data.files import read_table

    # read as the column of clients, which is no feature either
    table = read_table(file, replace(roles, client=predictions), dialect=dialect)
    column, labels = table.other[predictions], table.target.categories if table.target else ()
    if {*column.categories} <= {*labels}:
        return Judged(column.values(), table, predictions)
    numbers = []
    for value in column.categories:
        try:
            numbers.append(float(value))
        except ValueError:
            raise DataError(
                f"column {predictions!r} has the value {shown([value])}, neither a label "
                f"({shown(labels)}) nor a number: write labels, 0 and 1, or probabilities"
            ) from None
    return Judged(np.array(numbers)[column.codes], table, predictions)


@options.with_dialect
@options.example("plan-audit test.csv --target income --sensitive-features sex")
def plan_audit(
    file: Annotated[Path, Argument(help="CSV or Parquet with some rows like those to audit.")],
    target: options.Target,
    sensitive_features: options.SensitiveFeatures,
    dialect: options.Dialect,
    drop: options.Drop = None,
    precision: Annotated[
        float, Option(help="How well a difference is to be known, +- this.")
    ] = 0.1,
    confidence: Annotated[float, Option(help="With which all bounds are to hold at once.")] = 0.95,
) -> None:
    """Say how many rows an audit needs overall, and for every value of a column, before it is made.

    The shares of groups and values come from the rows at hand; the two largest groups are compared.
    """
    from agnosticfair.data.axes import axes_of_table, codes_of
    from agnosticfair.data.encoding import shown
    from agnosticfair.data.files import Roles, read_table

    names = tuple(sensitive_features)
    table = read_table(file, Roles(target, names, None, (), (), tuple(drop or ())), dialect=dialect)
    axes = axes_of_table(table, None, 4)
    codes, subgroups = codes_of(table, axes), sum(len(axis.values) for axis in axes)
    send = (precision, 1 - (1 - confidence) / len(names))
    print(f"There are {len(table):,} rows now. More than two groups, and conjunctions, need more.")
    for name in names:
        group = table.sensitive_features[name].codes
        lines, alone = [("overall", _needed(group, group >= 0, *send, None))], []
        for a, axis in enumerate(axes):
            every = {
                value: _needed(group, codes[:, a] == v, *send, subgroups)
                for v, value in enumerate(axis.values)
            }
            alone += [f"{axis.name} = {value}" for value, rows in every.items() if rows is None]
            most = max((rows for rows in every.values() if rows is not None), default=None)
            lines.append((f"every value of {axis.name}", most))
        title = f"Rows for +-{precision:g} by {name}, at {confidence:.0%} confidence"
        show(grid(title, ("of", "rows in all"), lines))
        if alone:
            print(
                f"Left out, as only one group has rows there and no number of rows compares it: {shown(alone)}."
            )


def _needed(
    group: np.ndarray,
    inside: np.ndarray,
    precision: float,
    confidence: float,
    subgroups: int | None,
) -> int | None:
    """The rows in all for the two largest groups of a subgroup; None where it has not two.  inside: (n,) of bool."""
    import numpy as np

    from agnosticfair.auditing.subgroups import rows_needed

    one, other = np.sort(np.bincount(group[inside], minlength=2))[::-1][:2] / len(group)
    return rows_needed(one, other, precision, confidence, subgroups) if other > 0 else None


@example("verify audit/certificate.json --key 64-hexadecimal-digits")
def verify(
    certificate: Annotated[
        Path | None, Argument(help="A certificate.json that 'audit' wrote.")
    ] = None,
    key: Annotated[str | None, Option(help="The issuer's public key: refuse any other.")] = None,
    rows: Annotated[
        Path | None, Option(help="The audited rows: make the certificate again from them.")
    ] = None,
    model: Annotated[
        Path | None, Option(help="The audited model: refuse a certificate of another one.")
    ] = None,
    trust_code: Annotated[
        bool, Option("--trust-code", help="Read a .joblib or .pkl, which runs its author's code.")
    ] = False,
    new_key: Annotated[
        Path | None, Option(help="Instead: write a new secret key for 'audit --key' to this file.")
    ] = None,
) -> None:
    """Check a certificate on another machine: every number that it prints, from its own sums; digest and signature.

    Needs neither the rows nor the model; with --rows the whole certificate is made again from them. Only a
    signature by the issuer's key, or the rows, show that the sums are real: without them a certificate that passes is
    called consistent. What is wrong is said, and ends with exit code 2.
    """
    from agnosticfair.auditing import proof

    if new_key is not None:
        print(f"Written: {new_key}. The public key: {proof.new_key(new_key)}")
        return
    if certificate is None:
        raise SettingsError("name a certificate.json to check, or --new-key and a file")
    if key is not None and not re.fullmatch("[0-9A-Fa-f]{64}", key):
        raise SettingsError(
            f"--key {plain(key, 80)!r} is no public key: give the 64 hexadecimal digits that 'verify --new-key' printed"
        )
    claims = proof.read(certificate)
    wrong = proof.verify(claims, key)
    if not wrong and model is not None:
        wrong = (*_of_another(claims, model),)
    if not wrong and rows is not None:
        wrong = (*_again(claims, rows, model, trust_code),)
    if wrong:
        raise DataError(
            f"{str(certificate)!r} does not hold: {'; '.join(plain(why, 400) for why in wrong[:5])}"
        )
    print(statement(claims, key is not None, model, rows is not None))


def statement(claims: Mapping[str, Any], key: bool, model: Path | None, rows: bool) -> str:
    """What was checked of a certificate that passed, and what was not; what it says is in its own words."""
    from agnosticfair.auditing.certificate import Certificate
    from agnosticfair.auditing.proof import scope, unchecked

    verdict = "It holds" if key else "Reproduced" if rows else "Consistent"
    source = f"made again from the {claims['n']:,} rows" if rows else f"{claims['n']:,} rows' sums"
    how = "" if rows else "recomputed from "
    sentence = claims.get("sentence") or str(Certificate.from_json(claims))
    said = [f"{verdict}: {how}{source}, over {scope(claims)}.", sentence, _by(claims, key)]
    if not rows:
        said.append(f"Not checked: {', '.join((REAL, *unchecked(claims)))}.")
    if model is None and "model" in claims["sums"]:
        said.append("Not checked: of which model (--model).")
    elif model is not None and "model" not in claims["sums"] and not rows:
        said.append(f"Not checked: whether {model.name!r} made these decisions (--rows).")
    return plain(" ".join(said), 20_000)


REAL = "whether the sums are those of real rows (--rows)"


def _by(claims: Mapping[str, Any], key: bool) -> str:
    signature = claims.get("signature")
    if signature is None:
        return "Not signed: anybody can have written it."
    if key:
        return "Signed with the key you named."
    return f"Signed with key {signature['public_key']}: name it by --key if it is the issuer's."


def _of_another(claims: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Whether the certificate is about another model than that of the file."""
    from agnosticfair.auditing.inputs import is_foreign
    from agnosticfair.model import load_model

    about = claims["sums"].get("model")
    if is_foreign(path):
        if about is not None:
            yield f"it is of a model written by 'fit', and {path.name!r} is none"
    elif about is None:
        yield "it does not say of which model it is: check it by --rows"
    elif about != load_model(path).digest:
        yield f"it is of another model than {path.name!r}"


def _again(
    claims: Mapping[str, Any], rows: Path, model: Path | None, trust_code: bool
) -> Iterator[str]:
    """The certificate made again from the rows, field by field."""
    from agnosticfair.auditing.certificate import plain
    from agnosticfair.auditing.proof import differing
    from agnosticfair.commands.audit import audit_options, certified, judged_of
    from agnosticfair.data.files import DETECTED

    request = claims.get("request")
    if not isinstance(request, Mapping):
        raise SettingsError(
            "the certificate does not say how it was asked for, so it cannot be made again: only those of "
            "'audit' do"
        )
    judged = judged_of(request, rows, model, DETECTED, trust_code)
    names = tuple(judged.table.sensitive_features)
    if claims["sensitive_feature"] not in names:
        yield f"it compares {claims['sensitive_feature']!r}, which was not asked for"
        return
    certificate = certified(judged, claims["sensitive_feature"], audit_options(request, len(names)))
    true = plain(certificate.to_json())
    if (claims["sums"] or {}).get("rows") != (true["sums"] or {}).get("rows"):
        yield f"{rows.name!r} has not the rows, or the decisions, that were audited"
        return
    yield from differing({name: claims[name] for name in true if name in claims}, true)
