"""Callers by client certificate, and the file that grants them rights.

TLS has verified the certificate against the CA before its names are read.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mq.access.callers import CALLER_NAME_CHARS_MAX, GRANTS_MAX, Caller
from mq.access.claims import BadClaims, granted
from mq.access.trusted_file import Untrusted, read_trusted
from mq.model.errors import StartupError
from mq.model.limits import KIB
from mq.model.log import logger

CLIENTS_BYTES_MAX: Final = 1024 * KIB
CLIENTS_MAX: Final = 10_000

_log = logger("mq.access")

_KINDS: Final[Mapping[str, str]] = {"URI": "URI", "DNS": "DNS", "email": "EMAIL"}
_PREFIXES: Final = ("CN=", *(f"{kind}=" for kind in _KINDS.values()))
_FIELDS: Final = frozenset({"certificate", "name", "grants"})


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a certificate as `SSLObject.getpeercert` gives it, such as `CN=worker-1`,
    `URI=spiffe://shop/worker`, `DNS=worker.shop`, `EMAIL=who@shop`. The CN of a subject with
    several is ambiguous and ignored.
    """
    common = [
        value
        for part in certificate.get("subject", ())
        for name, value in part
        if name == "commonName"
    ]
    found = [f"CN={common[0]}"] if len(common) == 1 else []
    for kind, value in certificate.get("subjectAltName", ()):
        if kind in _KINDS:
            found.append(f"{_KINDS[kind]}={value}")
    return tuple(name for name in found if name.isprintable())


@dataclass(frozen=True, slots=True)
class Clients:
    """Callers by the name that their certificate must have; the first in the file that matches
    wins.
    """

    callers: Mapping[str, Caller]

    def caller(self, certificate: Mapping[str, Any] | None) -> Caller | None:
        """The caller of a verified certificate; None: unknown, or there is no certificate."""
        names = set(names_of(certificate or {}))
        return next((who for name, who in self.callers.items() if name in names), None)


def parse_clients(text: str) -> Clients:
    """The clients of a TOML document:

        [[client]]
        certificate = "CN=worker-1"
        name = "worker-1"
        grants = ["orders-*:publish,consume"]

    `name` defaults to the certificate's. Raises StartupError.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is one, and not the only one.
        raise StartupError(f"not valid TOML: {error}") from None
    entries = document.pop("client", [])
    if document:
        raise StartupError(
            f"{', '.join(map(repr, document))} is unknown; use tables [[client]] alone"
        )
    if not isinstance(entries, list) or len(entries) > CLIENTS_MAX:
        raise StartupError(f"client must be a list of at most {CLIENTS_MAX} tables, [[client]]")
    callers: dict[str, Caller] = {}
    for number, entry in enumerate(entries, 1):
        try:
            certificate, caller = _client(entry)
        except BadClaims as error:
            raise StartupError(f"client {number}: {error}") from None
        if certificate in callers:
            raise StartupError(f"client {number}: {certificate!r} is listed twice")
        callers[certificate] = caller
    return Clients(callers)


def _client(entry: object) -> tuple[str, Caller]:
    if not isinstance(entry, dict) or entry.keys() - _FIELDS:
        raise BadClaims(f"must be a table of {', '.join(sorted(_FIELDS))} only")
    certificate, grants = entry.get("certificate"), entry.get("grants")
    name = entry.get("name", certificate)
    if not isinstance(certificate, str) or not certificate.startswith(_PREFIXES):
        raise BadClaims(f"certificate must be a string that begins with {' or '.join(_PREFIXES)}")
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise BadClaims("name must be a printable string")
    if not isinstance(grants, list) or len(grants) > GRANTS_MAX:
        raise BadClaims(f"grants must be a list of at most {GRANTS_MAX} strings")
    texts = [str(grant) for grant in grants]
    return certificate, Caller(name[:CALLER_NAME_CHARS_MAX], granted(texts))


class ClientsFile:
    """The clients of a file, read on creation and on `reload`. Raises StartupError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clients = _read(path)

    def caller(self, certificate: Mapping[str, Any] | None) -> Caller | None:
        """See Clients. Does not block."""
        return self._clients.caller(certificate)

    def reload(self) -> bool:
        """Reads the file again, blocking; false, and the old clients stay, if it is invalid."""
        try:
            self._clients = _read(self._path)
        except StartupError as error:
            _log.error(
                "clients not reloaded; the old ones stay", extra={"fields": {"error": str(error)}}
            )
            return False
        return True


def _read(path: Path) -> Clients:
    try:
        return parse_clients(read_trusted(path, CLIENTS_BYTES_MAX).decode())
    except UnicodeDecodeError:
        raise StartupError(f"{path}: not UTF-8") from None
    except (Untrusted, StartupError) as error:
        raise StartupError(f"{path}: {error}") from None
