"""``agnosticfair monitor``: after deployment, is the promise still about these people?"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Exit, Option

from agnosticfair.commands.options import Columns, Json, ModelFile, example
from agnosticfair.commands.output import grid, show, write_files
from agnosticfair.errors import DataError, SettingsError, plain

if TYPE_CHECKING:
    from agnosticfair.data.table import Table
    from agnosticfair.model import Model
    from agnosticfair.monitoring.baseline import Baseline
    from agnosticfair.monitoring.monitor import Monitor
    from agnosticfair.monitoring.verdict import Verdict

ALARM = 3


@example(
    "monitor model.safetensors --certificate certificate.json --rows today.csv --state watch.json"
    "   Exit code 0: no alarm; 3: the limit is broken, or the rows lie outside the set; 2: bad input."
)
def monitor(
    model: ModelFile,
    certificate: Annotated[Path, Option(help="What the model was certified on, by 'audit'.")],
    rows: Annotated[
        list[Path] | None, Option(help="A batch of rows, CSV or Parquet; may be repeated.")
    ] = None,
    sample: Annotated[
        list[Path] | None,
        Option(help="Rows drawn from earlier batches, with their groups; not counted for the mix."),
    ] = None,
    state: Annotated[Path | None, Option(help="File that remembers; made if it is absent.")] = None,
    add: Annotated[
        list[Path] | None, Option(help="Another site's state to add; nothing is then written.")
    ] = None,
    labels: Annotated[Path | None, Option(help="Labels that came late, joined by --key.")] = None,
    key: Annotated[
        str | None,
        Option(help="Column that both files have, for --labels.", rich_help_panel="Data"),
    ] = None,
    target: Annotated[str | None, Option(help="Column with the label, where it is known.")] = None,
    sensitive_features: Annotated[
        Columns, Option(help="Column with groups; else the model's.")
    ] = None,
    limit: Annotated[float | None, Option(help="Instead of what was certified.")] = None,
    confidence: Annotated[float, Option(help="That no statement is ever wrong.")] = 0.95,
    when: Annotated[
        str | None, Option(help="Time of the batch, 2026-11-16T08:00+00:00; else now.")
    ] = None,
    again: Annotated[
        bool, Option("--again", help="Count a batch of the very content of an earlier one.")
    ] = False,
    page: Annotated[Path | None, Option(help="Write the page here.")] = None,
    prometheus: Annotated[Path | None, Option(help="Write metrics here, as text.")] = None,
    alert: Annotated[
        str | None, Option(help="Command to run on an alarm; it gets the verdict as JSON.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Count a batch of decided rows: are they inside the certified set, and is the limit kept?"""
    from agnosticfair.auditing import proof
    from agnosticfair.auditing.inputs import is_foreign
    from agnosticfair.model import load_model
    from agnosticfair.monitoring.monitor import Monitor

    if is_foreign(model):
        raise SettingsError(
            f"{str(model)!r} is not a model written by 'fit': watch it in Python by "
            "agnosticfair.MonitoredClassifier(classifier, certificate)"
        )
    loaded = load_model(model)
    content = proof.read(certificate)
    watch = Monitor(loaded, content, limit=limit, state=state, confidence=confidence)
    if wrong := proof.verify(content if "digest" in content else proof.sealed(content)):
        raise DataError(f"{str(certificate)!r} does not hold: {plain(wrong[0], 400)}")
    if not (rows or sample or add or watch.state.rows):
        raise SettingsError("there is nothing to watch yet: name a batch by --rows")
    if (labels is None) != (key is None):
        raise SettingsError(
            "labels that come late are joined by a key: give both --labels and --key"
        )
    if labels is not None and not (rows or sample):
        raise SettingsError("labels belong to rows: name the batch that they are of by --rows")
    verdict, time = watch.verdict(), _time(when)
    for path in (*(rows or ()), *(sample or ())):
        batch = _batch(loaded, watch.baseline, path, target, sensitive_features, labels, key)
        drawn = path in (sample or ())
        verdict = watch.update(
            batch, again=again, sample=drawn, when=time, who=f"file {path.name!r}"
        )
    if add:
        watch, verdict = _added(watch, add)
    _deliver(watch, verdict, page, prometheus)
    if as_json:
        print(json.dumps(verdict.to_json(), indent=1))
    else:
        _show(watch, verdict)
    if verdict.alarm and alert is not None:
        _alert(alert, verdict)
    raise Exit(ALARM if verdict.alarm else 0)


def _batch(
    model: Model,
    baseline: Baseline,
    path: Path,
    target: str | None,
    sensitive_features: list[str] | None,
    labels: Path | None,
    key: str | None,
) -> Table:
    """The rows of a file, with their groups and labels where they are known."""
    from dataclasses import replace

    from agnosticfair.data.encoding import shown
    from agnosticfair.data.files import called, read_rows

    known = baseline.sensitive_features
    names = tuple(sensitive_features or known)
    if len(names) != len(known):
        raise SettingsError(
            f"--sensitive-features names {len(names)} columns, and the certificate has {len(known)}: {shown(known)}"
        )
    features = {name for name, *_ in (*model.encoding.numeric, *model.encoding.categorical)}
    further = [axis.name for axis in baseline.axes if axis.name not in features]
    read = (*names, *further, *([] if key is None else [key]))
    table = read_rows(path, model.encoding, target=target, sensitive_features=read, unknown=True)
    there = table.sensitive_features
    for name in sensitive_features or ():
        if name not in there:
            raise DataError(f"{called(path)} has no column {name!r}: name the one with the groups")
    if target is not None and table.target is None and labels is None:
        raise DataError(f"{called(path)} has no column {target!r}: name the label's by --target")
    columns = {one: there[name] for one, name in zip(known, names, strict=True) if name in there}
    apart = {k: c for k, c in there.items() if k not in names}
    table = replace(table, sensitive_features=columns, other={**table.other, **apart})
    if labels is None:
        return table
    # the key names rows, and is none of their content
    joined = _joined(table, path, labels, str(key), target)
    return replace(joined, other={k: c for k, c in joined.other.items() if k in further})


def _joined(table: Table, path: Path, labels: Path, key: str, target: str | None) -> Table:
    from dataclasses import replace

    from agnosticfair.data.encoding import Encoding
    from agnosticfair.data.files import read_rows
    from agnosticfair.data.table import Column

    if target is None or key not in table.other:
        raise SettingsError(
            f"{path.name!r} needs the column {key!r}, and --target names the label's"
        )
    joined_table = read_rows(labels, Encoding((), ()), sensitive_features=(key, target))
    if {key, target} - {*joined_table.sensitive_features}:
        raise DataError(f"file {labels.name!r} needs the columns {key!r} and {target!r}")
    values = [
        c.values().tolist()
        for c in (joined_table.sensitive_features[key], joined_table.sensitive_features[target])
    ]
    by_key = dict(zip(*values, strict=True))
    if len(by_key) < len(values[0]):
        raise DataError(
            f"file {labels.name!r} has a key of column {key!r} twice: keep one label of each"
        )
    matches = [by_key.get(k) for k in table.other[key].values().tolist()]
    if None in matches:
        raise DataError(
            f"file {labels.name!r} has no label for {matches.count(None)} of {len(matches)} rows of {path.name!r}: "
            f"wait "
            "until all labels of the batch have come"
        )
    return replace(table, target=Column.of(matches))


def _added(watch: Monitor, files: list[Path]) -> tuple[Monitor, Verdict]:
    from copy import copy

    from agnosticfair.monitoring.verdict import from_bytes

    whole = copy(watch)
    whole.path = None
    for path in files:
        if not path.is_file():
            raise DataError(f"there is no state file {str(path)!r}: check the path")
        whole.state = whole.state + from_bytes(path.read_bytes(), f"file {path.name!r}")
    return whole, whole.verdict()


def _deliver(watch: Monitor, verdict: Verdict, page: Path | None, prometheus: Path | None) -> None:
    if page is not None:
        from agnosticfair.report.page import monitor_data, monitor_page

        text = monitor_page(monitor_data(watch, verdict))
        write_files(page.parent, {page.name: text.encode()})
    if prometheus is not None:
        from agnosticfair.monitoring.verdict import exposition

        write_files(prometheus.parent, {prometheus.name: exposition(verdict)})


def _time(when: str | None) -> float | None:
    """Seconds since 1970 of a time as text."""
    from datetime import UTC, datetime

    if when is None:
        return None
    try:
        moment = datetime.fromisoformat(when)
    except ValueError:
        raise SettingsError(f"{when!r} is no time: write it as 2026-11-16T08:00+00:00") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _show(watch: Monitor, verdict: Verdict) -> None:
    from agnosticfair.auditing.certificate import lower, upper
    from agnosticfair.monitoring.monitor import described
    from agnosticfair.report.page import last_batch

    places = {"edge": "at the edge"}
    print(described(verdict))
    print(
        f"Where the rows lie: {places.get(verdict.where, verdict.where)}, {verdict.distance:.4f} from the "
        f"nearest mix in the set. Watched at {100 * watch.confidence:g}% confidence, valid at all times."
    )
    if len(watch.state.timeline) > 1:
        print(last_batch(watch.state.timeline))
    header = ("subgroup", "rows", "difference", "at least", "at most", "limit", "verdict")
    worst = (verdict.overall, *verdict.subgroups[:10])
    lines = [
        (p.name, p.rows, p.difference, lower(p.low), upper(p.high), upper(p.limit), p.verdict)
        for p in worst
    ]
    show(grid("What the decisions do", header, lines))


def _alert(command: str, verdict: Verdict) -> None:
    """Run the user's command, without a shell, with the verdict on its standard input; where it fails, that is said,
    and the exit code is the alarm's."""
    try:
        content = json.dumps(verdict.to_json())
        subprocess.run(shlex.split(command), input=content, text=True, timeout=60, check=True)  # noqa: S603
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        message = f"error: the alert {command!r} could not be given: {type(error).__name__}"
        print(message, file=sys.stderr)
