"""What a fit leaves behind: its card, its run's files, what is said of it; and fits with differential privacy."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agnosticfair.commands.output import cell, check_folder, write_files
from agnosticfair.commands.rows import scores, show_scores, warned
from agnosticfair.errors import SettingsError, plain

if TYPE_CHECKING:
    from agnosticfair.auditing.certificate import Certificate
    from agnosticfair.auditing.limit import CertifiedLimit
    from agnosticfair.data.schema import Schema
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.federation import Fit
    from agnosticfair.methods import Method
    from agnosticfair.privacy.fit import Budget


@dataclass(frozen=True)
class Left:
    """What a fit measured and wrote.  certified: certificates, and why there are none.  extra_files: files for
    'report', where they were requested.  answer: the card's first screen, in a sentence."""

    measures: list[dict[str, Any]]
    certified: tuple[dict[str, Certificate], dict[str, str]]
    extra_files: Mapping[str, bytes]
    cards: Mapping[str, bytes]
    answer: str = ""


def leave(
    fitted: Fit,
    clients: Mapping[str, Table | Stream],
    out: Path,
    *,
    target: str,
    run: Path | None,
    certified_limit: CertifiedLimit | None = None,
) -> Left:
    """Measure and certify a fit on its clients' rows, and write model and card; and a run's files where there is a
    folder for them. What is promised was certified on rows held out."""
    from agnosticfair.auditing.fits import as_content, certificates
    from agnosticfair.auditing.limit import limit_content, stated_certificates
    from agnosticfair.report import card
    from agnosticfair.report.page import card_files
    from agnosticfair.report.words import poor_fit
    from agnosticfair.runs import provenance as record

    fitted.model.save(out)
    measures = scores(fitted.model, clients)
    certified: Any = ({}, {})
    extra_files: dict[str, bytes] = {}
    if certified_limit is not None:
        certified = (stated_certificates(certified_limit), {})
    elif run is not None or not any(source.streamed for source in clients.values()):
        certified = certificates(fitted, clients)
    if run is not None:  # each is another pass over the rows
        about: dict[str, Any] = {"target": target, "training_rows": measures}
        about["warnings"] = warned(measures, partial(poor_fit, fitted))
        content = (
            as_content(*certified) if certified_limit is None else limit_content(certified_limit)
        )
        extra_files = record.run_files(fitted, clients, content, **about)
        write_files(run, extra_files)
    cards, answer = {}, ""
    if not any(source.streamed for source in clients.values()):  # a card is made of rows in memory
        limit = None if certified_limit is None else certified_limit.limit
        tables, known = cast("Mapping[str, Table]", clients), certified[0] | certified[1]
        sections = card.card(fitted, tables, known, target, limit)
        cards = card_files(sections, out.stem)
        if (glance := sections[0].glance) is not None and limit is None:
            answer = f"{glance.sign} {glance.answer}".strip()
    if certified_limit is not None:
        cards |= promised_files(certified_limit, out.stem, clients)
    write_files(out.parent, cards)
    return Left(measures, certified, extra_files, cards, answer)


def note_rows(method: Method) -> None:
    """Say, before it is done, that rows will be shown, where they were requested as kernels' centres."""
    from agnosticfair.server.plan import centres_kind, kernels_wanted

    if centres_kind(method) == "rows":
        print(
            f"Note: --centres rows shows every client about {kernels_wanted(method)} rows of the others, without label "
            "and group, as the kernels' centres; kmeans, ranges and subgroups show none."
        )


def present(fitted: Fit, left: Left, tested: Any, columns: Any, out: Path, as_json: bool) -> None:
    """Say how the fit ended, and what was written."""
    from agnosticfair.data.storage import beside as sketch_file

    measures = left.measures
    if as_json:
        names = ("outcome", "rounds", "outcomes", "seconds", "events")
        ended = {k: getattr(fitted, k) for k in names}
        about: dict[str, Any] = {"model": str(out), "method": fitted.method.name}
        about["positive"] = fitted.model.positive
        about["warnings"] = _warnings(fitted, measures, out)
        about |= _of_rule(fitted)
        about["certificate"] = {
            name: str(certificate) for name, certificate in left.certified[0].items()
        }
        about |= {"columns": columns, "held_out_rows": tested}
        return print(json.dumps({**about, **ended, "training_rows": measures}, indent=1))
    show_scores("Training rows", measures)
    if tested:
        print()
        show_scores("Held-out rows", tested)
    how = "converged" if fitted.converged else f"did not converge (outcome {fitted.outcome!r})"
    rounds = f"{fitted.rounds} round{'s' * (fitted.rounds != 1)}"
    print(f"\n{fitted.method.name} {how} after {rounds} in {fitted.seconds:.1f} s.")
    texts = sentences_of(fitted, left, out)
    texts += [f"Note: {note}" for note in (fitted.exceeds, fitted.uncompared, fitted.costs) if note]
    texts += [
        f"Certificate, by {name}: {certificate}" for name, certificate in left.certified[0].items()
    ]
    for text in texts:  # with names from the user's file
        print(plain(text, 8000))
    for event in fitted.events:
        print("Note:", ", ".join(f"{key} {cell(value)}" for key, value in event.items()))
    beside = (
        ", ".join(str(out.parent / name) for name in left.cards) or "no card, for rows are streamed"
    )
    print(f"Written: {out}, which predicts {fitted.model.positive!r}; {beside}.")
    if fitted.model.training is not None:
        print(
            f"Beside it {sketch_file(out).name} lets 'audit' know the rows of the fit again: keep it to yourself."
        )
    return None


def _of_rule(fitted: Fit) -> dict[str, Any]:
    """What is said of a rule, for JSON; nothing of other fits."""
    from agnosticfair.auditing.certificate import plain as as_json

    if fitted.method.rule is None:
        return {}
    optimum = fitted.optimum
    about = None if optimum is None else {**vars(optimum), "retained": optimum.retained}
    record = {"learner": fitted.learner, "held_out": dict(fitted.held_out), "optimum": about}
    return {"rule": as_json({**record, "statements": fitted.statements})}


def promised_files(
    certified_limit: CertifiedLimit, stem: str, clients: Mapping[str, Table | Stream]
) -> dict[str, bytes]:
    """The certificates of a limit, by file name, for 'verify'."""
    from agnosticfair.auditing.limit import limit_record, stated_certificates
    from agnosticfair.auditing.proof import sealed
    from agnosticfair.runs.provenance import provenance

    print(certified_limit, file=sys.stderr)
    return {
        certificate_name(stem, name): json.dumps(
            sealed(
                certificate.to_json()
                | limit_record(certified_limit, certificate)
                | provenance(clients)
            ),
            indent=1,
        ).encode()
        for name, certificate in stated_certificates(certified_limit).items()
    }


def certificate_name(stem: str, sensitive_feature: str) -> str:
    return f"{stem}-{sensitive_feature}-certificate.json"


def sentences_of(fitted: Fit, left: Left, out: Path) -> list[str]:
    """What is to be said of a fit: the card's answer, warnings, then how it decides, nothing twice."""
    warnings = [text for text in _warnings(fitted, left.measures, out) if text not in left.answer]
    first = [left.answer] * bool(left.answer) + [f"Warning: {text}" for text in warnings]
    said = " ".join(first)
    return [*first, *(text for text in fitted.statements if text not in said)]


def _warnings(fitted: Fit, measures: list[dict[str, Any]], out: Path) -> list[str]:
    """What a user should know before using the model."""
    from agnosticfair.data.encoding import shown
    from agnosticfair.report.words import poor_fit

    sentences = warned(measures, partial(poor_fit, fitted))
    if not fitted.converged:
        sentences.append(
            "it did not converge: more rounds (--max-rounds) may change the model, and --strict fails."
        )
    if fitted.model.joined:
        sentences.append(
            f"more than two labels: all but {fitted.model.positive!r} were taken together as negative."
        )
    if fitted.under_floor:
        sentences.append(
            f"not protected, being too small to compare: {shown(fitted.under_floor)}; join groups."
        )
    if out.suffix != ".safetensors":
        sentences.append(
            f"{out.name!r} holds safetensors whatever its ending says: read it with load_model."
        )
    return sentences


def check_alone(**given: Any) -> None:
    """Raise where an option was given that a private fit would not heed."""
    unheeded = [f"--{option}" for option, value in given.items() if value is not None]
    if unheeded:
        raise SettingsError(
            f"a private fit has no {' and no '.join(unheeded)}: leave it out, and measure by 'evaluate' on rows "
            "that took no part"
        )


def private_fit(
    clients: Mapping[str, Table | Stream],
    method: Method,
    budget: Budget,
    schema: Schema | None,
    about: tuple[str, tuple[str, ...], str | None],
    out: Path,
    as_json: bool,
) -> None:
    """A model and its card, with what was spent and certified. Nothing else is measured on the rows here, for that
    would show what the noise hides.  about: the label's column, the sensitive ones, and the label that counts."""
    from agnosticfair.auditing.fits import certificates
    from agnosticfair.privacy.fit import fit_private
    from agnosticfair.privacy.ledger import ledger_folder
    from agnosticfair.report.card import private_card
    from agnosticfair.report.page import card_files

    if schema is None:
        raise SettingsError(
            "differential privacy needs --schema: ranges and categories taken from rows would show some of them"
        )
    place = budget.ledgers or ledger_folder()
    check_folder(place, option="--ledgers")
    tables = _in_memory(clients)
    target, names, positive = about
    fitted = fit_private(
        tables,
        method,
        budget=replace(budget, ledgers=place),
        schema=schema,
        sensitive_features=names,
        positive=positive,
    )
    fitted.model.save(out)
    cards = card_files(private_card(fitted, target), out.stem)
    write_files(out.parent, cards)
    certified = {name: str(one) for name, one in certificates(fitted, tables)[0].items()}
    if as_json:
        record = {"model": str(out), "method": method.name, "certificate": certified}
        return print(json.dumps(record | dict(fitted.model.privacy or {}), indent=1))
    print(f"{method.name}, {fitted.rounds} rounds, {fitted.seconds:.1f} s.")
    for name, sentence in certified.items():
        print(plain(f"Certificate, by {name}: {sentence}", 8000))
    print(f"What these rows have spent over all fits is kept in {place}.")
    return print(
        f"Written: {out}, which predicts {fitted.model.positive!r}, and {', '.join(sorted(cards))}."
    )


def _in_memory(clients: Mapping[str, Table | Stream]) -> Mapping[str, Table]:
    """The clients' tables; one that streams its rows is refused."""
    from agnosticfair.data.table import Table

    for key, rows in clients.items():
        if not isinstance(rows, Table):
            raise SettingsError(
                f"client {key!r} streams its rows: a private fit needs them in memory"
            )
    return cast("Mapping[str, Table]", clients)
