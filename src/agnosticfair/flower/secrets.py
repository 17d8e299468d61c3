"""Keys of sites and TLS certificates of the coordinator, as text; who writes them keeps them private."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from typing import Any

DAYS = 90
"""How long the server's TLS certificate of a test authority is good."""

AUTHORITY_DAYS = 3650


def key_pair() -> dict[str, str]:
    """A site's private key and, ending in .pub, its public one, as OpenSSH writes them."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    return {"": private.decode(), ".pub": f"{public.decode()}\n"}


def tls_files(host: str) -> dict[str, str]:
    """A TLS authority for a test, its key, and the server's TLS certificate by it."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "agnosticfair test CA")])
    authority = _signed(name, key.public_key(), name, key, AUTHORITY_DAYS, ())
    files = {"tls/ca.crt": _pem(authority), "tls/ca.key": _private(key)}
    return files | renewed(host, files["tls/ca.crt"], files["tls/ca.key"])


def renewed(host: str, authority: str, authority_key: str) -> dict[str, str]:
    """A new TLS certificate and key of the server, by an authority that is there."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    issuer = x509.load_pem_x509_certificate(authority.encode())
    signer: Any = load_pem_private_key(authority_key.encode(), None)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host[:64])])
    certificate = _signed(subject, key.public_key(), issuer.subject, signer, DAYS, _names(host))
    return {"tls/server.crt": _pem(certificate), "tls/server.key": _private(key)}


def tls_end(tls: str) -> datetime:
    """When a TLS certificate ends."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(tls.encode()).not_valid_after_utc


def _signed(
    subject: Any, public: Any, issuer: Any, signer: Any, days: int, names: tuple[Any, ...]
) -> Any:
    """A TLS certificate; one without names of a server is an authority's."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    begin, is_ca = datetime.now(UTC) - timedelta(minutes=5), not names
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    certificate = (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=days))
        .add_extension(x509.BasicConstraints(is_ca, 0 if is_ca else None), critical=True)
        .add_extension(_usage(is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(by, critical=False)
    )
    if names:
        serves = x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH])
        certificate = certificate.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = certificate.add_extension(serves, critical=False)
    return certificate.sign(signer, hashes.SHA256())


def _pem(tls: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return tls.public_bytes(Encoding.PEM).decode()


def _private(key: Any) -> str:
    from cryptography.hazmat.primitives import serialization as form

    pem, pkcs8 = form.Encoding.PEM, form.PrivateFormat.PKCS8
    return key.private_bytes(pem, pkcs8, form.NoEncryption()).decode()


def _usage(is_ca: bool) -> Any:
    from cryptography import x509

    signs = {"key_cert_sign": is_ca, "crl_sign": is_ca, "digital_signature": not is_ca}
    rest = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    return x509.KeyUsage(**signs, **dict.fromkeys((*rest, "encipher_only", "decipher_only"), False))


def _names(host: str) -> tuple[Any, ...]:
    """The names the server answers to: the host, and this machine itself."""
    from cryptography import x509

    loop = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    try:
        host_name: Any = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        host_name = x509.DNSName(host)
    return loop if host_name in loop else (host_name, *loop)
