"""Who a client certificate is, and what such a client may do.

What a certificate says of its owner is believed because its CA is: these names are only
asked for once TLS has verified it.
"""

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mq.access.callers import Caller
from mq.access.claims import BadClaims, granted
from mq.access.limits import GRANTS_MAX
from mq.access.trusted_file import Untrusted, read_trusted
from mq.model.errors import StartupError
from mq.model.serving_limits import CALLER_NAME_CHARS_MAX, CLIENTS_BYTES_MAX, CLIENTS_MAX

_log = logging.getLogger("mq.access")

_KINDS: Final[Mapping[str, str]] = {"URI": "URI", "DNS": "DNS", "email": "EMAIL"}
_PREFIXES: Final = ("CN=", *(f"{kind}=" for kind in _KINDS.values()))
_FIELDS: Final = frozenset({"certificate", "name", "grants"})


def names_of(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a certificate as `SSLObject.getpeercert` gives it, such as `CN=worker-1`,
    `URI=spiffe://shop/worker`, `DNS=worker.shop`, `EMAIL=who@shop`. A subject with several CNs has
    none: nobody could say which of them counts.
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
    """Who may do what with which certificate: callers by the name that a certificate has to have;
    of several the one that stands first in the file.
    """

    callers: Mapping[str, Caller]

    def caller(self, certificate: Mapping[str, Any] | None) -> Caller | None:
        """Whose the verified certificate is; None: nobody's that is known, or there is none."""
        names = set(names_of(certificate or {}))
        return next((who for name, who in self.callers.items() if name in names), None)


def parse_clients(text: str) -> Clients:
    """The clients of a TOML document:

        [[client]]
        certificate = "CN=worker-1"
        name = "worker-1"
        grants = ["orders-*:publish,consume"]

    `name` is the certificate's where it is left out. Raises StartupError.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOMLDecodeError is one, and not the only one.
        raise StartupError(f"no TOML: {error}") from None
    entries = document.pop("client", [])
    if document:
        raise StartupError(f"unknown: {', '.join(map(repr, document))}; [[client]] is all there is")
    if not isinstance(entries, list) or len(entries) > CLIENTS_MAX:
        raise StartupError(f"client: a list of tables, [[client]], {CLIENTS_MAX} at most")
    callers: dict[str, Caller] = {}
    for number, entry in enumerate(entries, 1):
        try:
            certificate, caller = _client(entry)
        except BadClaims as error:
            raise StartupError(f"client {number}: {error}") from None
        if certificate in callers:
            raise StartupError(f"client {number}: {certificate!r} stands there twice")
        callers[certificate] = caller
    return Clients(callers)


def _client(entry: object) -> tuple[str, Caller]:
    if not isinstance(entry, dict) or entry.keys() - _FIELDS:
        raise BadClaims(f"a table of {', '.join(sorted(_FIELDS))} alone")
    certificate, grants = entry.get("certificate"), entry.get("grants")
    name = entry.get("name", certificate)
    if not isinstance(certificate, str) or not certificate.startswith(_PREFIXES):
        raise BadClaims(f"certificate is a text that begins with {' or '.join(_PREFIXES)}")
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise BadClaims("name is a text that can be printed")
    if not isinstance(grants, list) or len(grants) > GRANTS_MAX:
        raise BadClaims(f"grants is a list of {GRANTS_MAX} texts at most")
    texts = [str(grant) for grant in grants]
    return certificate, Caller(name[:CALLER_NAME_CHARS_MAX], granted(texts))


class ClientsFile:
    """The clients of a file, read when it is made and when it is told to. Raises StartupError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._clients = _read(path)

    def caller(self, certificate: Mapping[str, Any] | None) -> Caller | None:
        """See Clients. Does not block."""
        return self._clients.caller(certificate)

    def reload(self) -> bool:
        """Reads the file again, blocking; false, and the clients stay, when it is no good."""
        try:
            self._clients = _read(self._path)
        except StartupError as error:
            _log.error("clients stay as they were", extra={"fields": {"error": str(error)}})
            return False
        return True


def _read(path: Path) -> Clients:
    try:
        return parse_clients(read_trusted(path, CLIENTS_BYTES_MAX).decode())
    except UnicodeDecodeError:
        raise StartupError(f"{path}: no UTF-8") from None
    except (Untrusted, StartupError) as error:
        raise StartupError(f"{path}: {error}") from None
