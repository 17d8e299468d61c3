"""``agnosticfair verify``: a certificate checked without rows or model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from agnosticfair.commands.options import example
from agnosticfair.errors import DataError, SettingsError


@example("verify audit/certificate.json --key 64-hexadecimal-digits")
def verify(
    certificate: Annotated[
        Path | None, Argument(help="A certificate.json that 'audit' wrote.")
    ] = None,
    key: Annotated[str | None, Option(help="The issuer's public key: refuse any other.")] = None,
    new_key: Annotated[
        Path | None, Option(help="Instead: write a new secret key for 'audit --key' to this file.")
    ] = None,
) -> None:
    """Check a certificate on another machine: its sums, every bound that follows from them, digest and signature.

    Needs neither the rows nor the model. What does not hold is said, and ends with exit code 2.
    """
    from agnosticfair.auditing import proof
    from agnosticfair.auditing.certificate import upper

    if new_key is not None:
        print(f"Written: {new_key}. The public key: {proof.new_key(new_key)}")
        return
    if certificate is None:
        raise SettingsError("name a certificate.json to check, or --new-key and a file")
    told = proof.read(certificate)
    wrong = proof.verify(told, key)
    if wrong:
        raise DataError(f"{str(certificate)!r} does not hold: {'; '.join(wrong[:5])}")
    signed = told.get("signature")
    by = (
        f"signed with key {signed['public_key']}"
        if signed
        else "not signed: who issued it is unknown"
    )
    what = [f"{len(told['parts']):,} parts"] * bool(told["parts"])
    what += ["all their mixtures"] * (told["mixtures"] is not None)
    if told["kernels"] is not None:
        what.append(f"every reweighing by {len(told['alpha_difference']):,} kernels")
    most = f"at most {upper(told['upper'])} with {told['confidence']:.0%} confidence"
    if told["kernels"] is None and not any(part["estimable"] for part in told["parts"]):
        most = "of which none has rows enough: nothing is certified"
    print(f"It holds: {' and '.join(what)} recomputed from {told['n']:,} rows' sums, {most}; {by}.")
