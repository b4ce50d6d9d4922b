"""TLS of servers and clients: certificates, trusted authorities, and their reload."""

import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from mq.access.trusted_file import CORRECT
from mq.model.errors import StartupError
from mq.model.log import logger

ClientAuth = Literal["required", "optional"]
_log = logger("mq.access")

# The TLS 1.2 suites with forward secrecy and authentication; all suites of TLS 1.3 have both.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
_ENCRYPTED: Final = "the key is encrypted; mq takes keys without a password only"
_OF_OTHERS: Final = stat.S_IRWXO | stat.S_IWGRP
_WRITTEN_BY_OTHERS: Final = stat.S_IWOTH | stat.S_IWGRP


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """A server's TLS files, all PEM. `cert`: its certificate chain; `key`: its private key;
    `client_ca`: the authorities of client certificates.
    """

    cert: Path
    key: Path
    client_ca: Path | None = None
    client_auth: ClientAuth = "required"


class ServerTls:
    """A server's TLS, which can reload its files while it serves. Raises StartupError."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._current = _made(files)
        self.context: Final = _made(files)
        """For the listening socket; each handshake continues with the files read last."""
        self.context.sni_callback = self._go_on

    def reload(self) -> bool:
        """Reads the files again, blocking, for handshakes from now on; false, and nothing changes,
        if one is invalid.
        """
        try:
            self._current = _made(self._files)
        except StartupError as error:
            _log.error(
                "TLS files not reloaded; the old ones stay", extra={"fields": {"error": str(error)}}
            )
            return False
        _log.info("TLS files reloaded")
        return True

    def _go_on(self, handshake: ssl.SSLObject, name: str | None, of: ssl.SSLContext) -> None:
        # A new context, since a CA cannot be removed from an existing one. OpenSSL calls this also
        # for a client without a server name.
        handshake.context = self._current


def _made(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    # No resumption: a returning client must show its certificate again, since the CA may have
    # changed. TLS 1.2 also has sessions without tickets, which Python cannot disable, so client
    # certificates need TLS 1.3 below.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.set_alpn_protocols(["http/1.1"])
    _check_mode(files.key, _OF_OTHERS, "others can use the key; chmod 600 it, or 640 for a group")
    _read(f"{files.cert}, {files.key}", _load_chain, context, files)
    if files.client_ca is not None:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        _check_mode(files.client_ca, _WRITTEN_BY_OTHERS, "others can write it; chmod go-w it")
        _read(str(files.client_ca), context.load_verify_locations, files.client_ca)
        needed = files.client_auth == "required"
        context.verify_mode = ssl.CERT_REQUIRED if needed else ssl.CERT_OPTIONAL
    return context


def _load_chain(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.load_cert_chain(files.cert, files.key, password=_no_password)


def _no_password() -> str:
    # Without a callback OpenSSL would prompt on the terminal.
    raise StartupError(_ENCRYPTED)


def _read(what: str, load: Any, *arguments: Any) -> None:
    try:
        load(*arguments)
    except ssl.SSLError as error:
        raise StartupError(
            f"cannot use {what}: {_why(error)}; it must be PEM, and the key must fit the "
            "certificate"
        ) from error
    except OSError as error:
        raise StartupError(f"cannot read {what}: {error.strerror}; {CORRECT}") from error


def _check_mode(path: Path, forbidden: int, why: str) -> None:
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}; {CORRECT}") from error
    if mode & forbidden:
        raise StartupError(f"{path} has mode {mode:04o}: {why}")


# Clients


@dataclass(frozen=True, slots=True)
class Certificates:
    """A client's files, all PEM. `ca_file`: the trusted authorities, instead of the system's;
    `certificate`: the client's certificate chain; `key`: its private key, if it is not in the same
    file.
    """

    ca_file: str | Path | None = None
    certificate: str | Path | None = None
    key: str | Path | None = None

    def __bool__(self) -> bool:
        return self != Certificates()

    def context(self, url: str) -> ssl.SSLContext | None:
        """The TLS context for the URL; None: the default. Raises ValueError for unusable files, and
        for a URL that is not https, where certificates would suggest a secrecy that is not there.
        """
        if not self:
            return None
        if urlsplit(url).scheme != "https":
            raise ValueError("certificates need an https:// URL")
        if self.key is not None and self.certificate is None:
            raise ValueError("a key needs its certificate")
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise ValueError(f"cannot use the CA file {self.ca_file}: {_why(error)}") from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_refuse_password)
            except OSError as error:
                files = ", ".join(str(each) for each in (self.certificate, self.key) if each)
                raise ValueError(f"cannot use {files}: {_why(error)}") from None
        return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or "not PEM of the expected kind"
    return error.strerror or "cannot be read"


def _refuse_password() -> str:
    raise ValueError(_ENCRYPTED)
