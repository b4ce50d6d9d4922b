"""TLS of a server: its certificate, whom it believes, and how both are read again."""

import logging
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from mq.model.errors import StartupError

ClientAuth = Literal["required", "optional"]
_log = logging.getLogger("mq.access")

# Of TLS 1.2, beside those of 1.3, which are all good: forward secrecy and authenticated ones alone.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_OF_OTHERS: Final = stat.S_IRWXO | stat.S_IWGRP
_WRITTEN_BY_OTHERS: Final = stat.S_IWOTH | stat.S_IWGRP


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What a server is told of TLS. `cert`: its certificate and those between it and a root, `key`:
    its private key, `client_ca`: whose clients' certificates are believed; all PEM.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_auth: ClientAuth = "required"


class ServerTls:
    """The TLS of a server that reads its files again while it serves. Raises StartupError."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._current = _made(files)
        self.context: Final = _made(files)
        """For the server that listens; each handshake goes on with what was read last."""
        self.context.sni_callback = self._go_on

    def reload(self) -> bool:
        """Reads the files again, blocking: for handshakes from now on; false, and all stays as it
        was, when one of them is no good.
        """
        try:
            self._current = _made(self._files)
        except StartupError as error:
            _log.error("TLS stays as it was", extra={"fields": {"error": str(error)}})
            return False
        _log.info("TLS read again")
        return True

    def _go_on(self, handshake: ssl.SSLObject, name: str | None, of: ssl.SSLContext) -> None:
        # A context's certificate can be loaded anew, but not a CA be taken out of it. The callback
        # is called also for a client that says no name.
        handshake.context = self._current


def _made(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    # Whoever comes again shows its certificate again: the CA may be another by then. TLS 1.2 has
    # sessions beside tickets, which Python cannot switch off: see below.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    _check_mode(files.key, _OF_OTHERS, "others can use the key; chmod 600, or 640 for a group")
    _read(f"{files.cert}, {files.key}", _load_chain, context, files)
    if files.client_ca is not None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        _check_mode(files.client_ca, _WRITTEN_BY_OTHERS, "others can write it; chmod go-w")
        _read(str(files.client_ca), context.load_verify_locations, files.client_ca)
        needed = files.client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
    return context


def _load_chain(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.load_cert_chain(files.cert, files.key, password=_no_password)


def _no_password() -> str:
    # Without this OpenSSL would ask whoever sits at the terminal.
    raise StartupError("the key is encrypted: mq has no password for it")


def _read(what: str, load: Any, *arguments: Any) -> None:
    try:
        load(*arguments)
    except ssl.SSLError as error:
        why = error.reason or "no PEM of what is asked for"
        raise StartupError(f"cannot use {what}: {why}") from error
    except OSError as error:
        raise StartupError(f"cannot read {what}: {error.strerror}") from error


def _check_mode(path: Path, forbidden: int, why: str) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from error
    if mode & forbidden:
        raise StartupError(f"{path} has mode {mode:04o}: {why}")
