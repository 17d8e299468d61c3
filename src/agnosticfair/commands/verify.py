"""``agnosticfair verify``: a certificate checked without rows or model, or against them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from agnosticfair.commands.options import example
from agnosticfair.errors import DataError, SettingsError, plain


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
    from agnosticfair.auditing.foreign import is_foreign
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
