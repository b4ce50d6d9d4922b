"""Keys that an issuer serves at a URL, fetched in the background.

Needs the extra `jwt`.
"""

import asyncio
import contextlib
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from mq.access.keys import JWKS_BYTES_MAX, BadKeys, PublicKey, parse_keys
from mq.model.clock import Clock
from mq.model.log import logger

# The interval of requests for keys, the shortest interval, and the timeout of a request, in
# seconds.
JWKS_EVERY_S: Final = 600.0
JWKS_AGAIN_S: Final = 30.0
JWKS_ANSWER_S: Final = 10.0

_log = logger("mq.access")
_OK: Final = 200


def check_url(url: str) -> None:
    """Raises BadKeys unless the URL is https, or http on this machine."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts.hostname))
        is_one = is_one and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise BadKeys("the URL must be https, or http on this machine")


def _is_here(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


class UrlKeys:
    """Keys of a URL: fetched every `every_s`, and when a token names an unknown key, at most every
    `again_s`. While the URL fails the last good keys stay. Raises BadKeys for an invalid URL.
    """

    def __init__(
        self,
        url: str,
        clock: Clock,
        *,
        every_s: float = JWKS_EVERY_S,
        again_s: float = JWKS_AGAIN_S,
        answer_s: float = JWKS_ANSWER_S,
    ) -> None:
        check_url(url)
        self._url = url
        self._clock = clock
        self._every_s, self._again_s, self._answer_s = every_s, again_s, answer_s
        self._keys: tuple[PublicKey, ...] = ()
        self._tried_s = 0.0
        self._is_asking = True
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to fetch. No key is known until the first answer."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def reload(self) -> bool:
        """Nothing to do: the URL is fetched periodically."""
        return True

    def known(self) -> tuple[PublicKey, ...]:
        return self._keys

    def missed(self) -> None:
        if not self._is_asking and self._clock.steady_s() - self._tried_s >= self._again_s:
            self._wanted.set()

    async def _follow(self) -> None:
        async with aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._answer_s), cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            while True:
                self._is_asking = True
                is_good = await self._ask(session)
                self._is_asking = False
                self._tried_s = self._clock.steady_s()
                self._wanted.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._every_s if is_good else self._again_s):
                        await self._wanted.wait()

    async def _ask(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get(self._url, allow_redirects=False) as answer:
                if answer.status != _OK:
                    raise BadKeys(f"answered {answer.status}")
                data = bytearray()
                async for chunk in answer.content.iter_any():
                    data += chunk
                    if len(data) > JWKS_BYTES_MAX:
                        break
            keys = parse_keys(bytes(data))
        except (aiohttp.ClientError, TimeoutError, OSError, BadKeys) as error:
            fields = {"url": self._url, "error": str(error) or type(error).__name__}
            _log.warning("keys not fetched; the old ones stay", extra={"fields": fields})
            return False
        self._keys = keys
        return True
