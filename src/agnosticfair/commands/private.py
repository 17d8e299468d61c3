"""``agnosticfair fit --epsilon``: a differentially private fit, its model and its card."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from agnosticfair.commands.output import check_folder, write_files
from agnosticfair.errors import SettingsError

if TYPE_CHECKING:
    from agnosticfair.data.schema import Schema
    from agnosticfair.data.stream import Stream
    from agnosticfair.data.table import Table
    from agnosticfair.methods import Method
    from agnosticfair.private import Budget


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
    from agnosticfair.private import fit_private
    from agnosticfair.protocol.privacy.store import ledger_folder
    from agnosticfair.report import card

    if schema is None:
        raise SettingsError(
            "differential privacy needs --schema: ranges and categories taken from rows would show some of them"
        )
    place = budget.ledgers or ledger_folder()
    check_folder(place, option="--ledgers")
    held = _in_memory(clients)
    target, names, positive = about
    fitted = fit_private(
        held,
        method,
        budget=replace(budget, ledgers=place),
        schema=schema,
        sensitive_features=names,
        positive=positive,
    )
    fitted.model.save(out)
    sections = card.private_card(fitted, target)
    texts = {"md": card.markdown(sections), "html": card.html(sections)}
    cards = {f"{out.stem}-card.{kind}": text.encode() for kind, text in texts.items()}
    write_files(out.parent, cards)
    certified = {name: str(made) for name, made in certificates(fitted, held)[0].items()}
    if as_json:
        told = {"certificate": certified, **dict(fitted.model.privacy or {})}
        return print(json.dumps({"model": str(out), "method": method.name, **told}, indent=1))
    print(f"{method.name}, {fitted.rounds} rounds, {fitted.seconds:.1f} s.")
    for name, sentence in certified.items():
        print(f"Certificate, by {name}: {sentence}")
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
