"""A certificate for localhost that signs itself, and its key."""

import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


class Pem(NamedTuple):
    """Where they are."""

    certificate: Path
    key: Path


def make(folder: Path, name: str = "tls", password: bytes | None = None, ends_in_s: int = 86_400) -> Pem:
    """A new pair."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(seconds=ends_in_s))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    made = Pem(folder / f"{name}.pem", folder / f"{name}.key")
    made.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))
    locked = BestAvailableEncryption(password) if password else NoEncryption()
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    return made
