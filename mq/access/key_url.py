"""Keys that an issuer serves at a URL, asked for in the background.

Needs the extra `jwt`.
"""

import asyncio
import contextlib
import logging
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import aiohttp

from mq.access.keys import BadKeys, PublicKey, parse_keys
from mq.model.clock import Clock
from mq.model.serving_limits import JWKS_AGAIN_S, JWKS_ANSWER_S, JWKS_BYTES_MAX, JWKS_EVERY_S

_log = logging.getLogger("mq.access")
_OK: Final = 200


def check_url(url: str) -> None:
    """Raises BadKeys for a URL that keys cannot be trusted from: https, or this machine's http."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme == "https" or (parts.scheme == "http" and _is_here(parts.hostname))
        is_one = is_one and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_one = False
    if not is_one:
        raise BadKeys("no https URL, nor http of this machine")


def _is_here(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host or "").is_loopback
    except ValueError:
        return False


class UrlKeys:
    """Keys of a URL: asked for every so often, and when a token names an unknown one, but then not
    more often than every `again_s`, whoever shows what. When the URL fails the last good ones stay.
    Raises BadKeys for a URL that is none.
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
        """Begins to ask; until the first answer no key is known."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Asks no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def reload(self) -> bool:
        """A URL is asked by itself, every so often."""
        return True

    def known(self) -> tuple[PublicKey, ...]:
        """See Keys."""
        return self._keys

    def missed(self) -> None:
        """See Keys."""
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
            _log.warning("keys stay as they were", extra={"fields": fields})
            return False
        self._keys = keys
        return True
