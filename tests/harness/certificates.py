"""Certificates of authorities that a test makes, as PEM files."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

HERE = (x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    cert: Path
    key: Path

    def load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.load_cert_chain(self.cert, self.key)
        return context


class Authority:
    """Signs certificates; its own is in the file `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder, self._key = folder, ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        own = _builder(self._name, self._name, self._key.public_key(), 1)
        own = own.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        own = own.add_extension(_usage(signs_others=True), critical=True)
        self.ca = folder / f"{name}.pem"
        self.ca.touch(0o644)
        self.ca.write_bytes(_pem(own.sign(self._key, hashes.SHA256())))

    def pair(
        self,
        name: str,
        *others: x509.GeneralName,
        days: int = 1,
        subject: tuple[str, ...] | None = None,
    ) -> Pair:
        """A certificate of a name (or of several), for so many days from now; negative: it was
        over so many days ago.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        names = (name,) if subject is None else subject
        whose = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names])
        made = _builder(whose, self._name, key.public_key(), days)
        made = made.add_extension(_usage(signs_others=False), critical=True)
        if others:
            made = made.add_extension(x509.SubjectAlternativeName(others), critical=False)
        cert, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert.write_bytes(_pem(made.sign(self._key, hashes.SHA256())))
        secret.touch(0o600)
        secret.write_bytes(_secret(key))
        return Pair(cert, secret)

    def context(self) -> ssl.SSLContext:
        """A client's, who believes this authority."""
        return ssl.create_default_context(cafile=self.ca)


def encrypt(pair: Pair) -> None:
    """Has the key's file be one that needs a password."""
    key: Any = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    pair.key.write_bytes(_secret(key, serialization.BestAvailableEncryption(b"secret")))


def _builder(subject: x509.Name, issuer: x509.Name, key: Any, days: int) -> Any:
    end = datetime.datetime.now(datetime.UTC) + days * DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - (abs(days) + 1) * DAY)
        .not_valid_after(end)
    )


def _usage(signs_others: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_others,
        crl_sign=signs_others,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _secret(key: Any, encryption: Any = None) -> bytes:
    found: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        encryption or serialization.NoEncryption(),
    )
    return found
