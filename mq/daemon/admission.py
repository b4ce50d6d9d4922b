"""Admission: from the daemon's settings, read at the start and at each reload."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable, Mapping

from mq.access.certificates import ClientsFile
from mq.access.secrets import Signer, signers_of
from mq.access.tokens import TokenVerifier, read_tokens
from mq.daemon.issued import IssuedTokens
from mq.http.access import Access
from mq.model.clock import Clock
from mq.model.errors import StartupError
from mq.model.log import logger
from mq.runtime.activation import open_sockets, place_of
from mq.runtime.server_settings import ServerSettings

_log = logger("mq.access")


class Admission:
    """The callers that a daemon admits: by its own tokens, an issuer's, and clients' certificates.
    Reads files when it is made, blocking. Raises StartupError.
    """

    def __init__(self, settings: ServerSettings, clock: Clock) -> None:
        self._file = settings.tokens
        told = {
            "tokens": settings.tokens,
            "keys": settings.jwt and (settings.jwt.file or settings.jwt.url),
            "clients": settings.tls_clients,
        }
        self._told = {name: each for name, each in told.items() if each is not None}
        self._tokens, self._signers = self._read_tokens()
        self._issued = None if settings.jwt is None else IssuedTokens(settings.jwt, clock)
        self._clients = None
        if settings.tls_clients is not None:
            self._clients = ClientsFile(settings.tls_clients)

    def start(self, access: Access) -> None:
        """Puts the callers into effect. In the event loop, like the methods below."""
        if self._issued is not None:
            self._issued.start()
        self._tell(access)

    async def reload(self, access: Access) -> None:
        """Reads the files again. A bad file leaves the old callers, and the log says why."""
        is_read = True
        try:
            self._tokens, self._signers = await asyncio.to_thread(self._read_tokens)
        except (StartupError, OSError, RuntimeError) as error:
            _log.error(
                "callers not reloaded; the old ones stay", extra={"fields": {"error": str(error)}}
            )
            is_read = False
        if self._issued is not None:
            is_read &= await self._issued.reload()
        if self._clients is not None:
            is_read &= await asyncio.to_thread(self._clients.reload)
        self._tell(access)
        if not self._told:
            _log.info("nothing to reload: mq runs without --tokens, --jwks and --tls-clients")
        elif is_read:
            _log.info("callers reloaded", extra={"fields": self._told})

    async def stop(self) -> None:
        if self._issued is not None:
            await self._issued.stop()

    def _read_tokens(self) -> tuple[TokenVerifier | None, Mapping[str, Signer]]:
        if self._file is None:
            return None, {}
        entries = read_tokens(self._file)
        return TokenVerifier(entries), signers_of(entries, self._file)

    def _tell(self, access: Access) -> None:
        issued = None if self._issued is None else self._issued.verifier
        verifiers = [each for each in (self._tokens, issued) if each is not None]
        certified = None if self._clients is None else self._clients.caller
        access.replace(verifiers, certified, self._signers)


def check_exposure(settings: ServerSettings) -> None:
    """Raises StartupError if callers of other machines could do everything and `--allow-anonymous`
    is missing, or if it stands beside files of callers. Blocking.
    """
    if settings.controls_access:
        if settings.allow_anonymous:
            raise StartupError(
                "--allow-anonymous lets every caller do everything, and --tokens, --jwks, "
                "--jwks-url and --tls-clients limit callers; use either"
            )
        return
    if settings.allow_anonymous or settings.asks_certificates:
        return
    for place in _exposed(settings):
        raise StartupError(
            f"{place} can be reached from elsewhere, and every caller could do everything; name "
            "the callers with --tokens, --jwks, --jwks-url or --tls-client-ca, or use "
            "--allow-anonymous"
        )


def _exposed(settings: ServerSettings) -> list[str]:
    """The places to listen at that other machines reach, for people."""
    if settings.descriptors:
        return _exposed_sockets(settings.descriptors)
    try:
        found = socket.getaddrinfo(
            settings.address or None, settings.port,
            type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE,
        )  # fmt: skip
    except OSError:
        return []  # Nothing can listen there; listening will report that.
    if all(is_loopback(str(place[0])) for *_, place in found):
        return []
    return [settings.address or "every address"]


def _exposed_sockets(descriptors: Iterable[int]) -> list[str]:
    exposed = []
    for each in open_sockets(tuple(descriptors)):
        with each:
            if each.family != socket.AF_UNIX and not is_loopback(str(each.getsockname()[0])):
                exposed.append(place_of(each))
    return exposed


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an IP address: 127/8, ::1, and the former as IPv6."""
    # A zone, as in fe80::1%eth0, is not part of the address.
    found = ipaddress.ip_address(address.partition("%")[0])
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
