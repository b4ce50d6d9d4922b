"""The tokens of an issuer (JWT) that a daemon accepts, from its start to its drain."""

import asyncio
import importlib.util
from typing import TYPE_CHECKING

from mq.access.callers import Verifier
from mq.model.clock import Clock
from mq.model.errors import StartupError
from mq.runtime.server_settings import JwtSettings

if TYPE_CHECKING:
    from mq.access.key_url import UrlKeys
    from mq.access.keys import FileKeys

_NEEDED = ("jwt", "cryptography")


class IssuedTokens:
    """The verifier of an issuer's tokens, and its keys. For one event loop. Reads a file, blocking.
    Raises StartupError, also where the extra `jwt` is not installed.
    """

    def __init__(self, settings: JwtSettings, clock: Clock) -> None:
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise StartupError(
                f"--jwks and --jwks-url need {' and '.join(missing)}; pip install 'mq[jwt]'"
            )
        # These need the extra `jwt`.
        from mq.access.jwt import JwtVerifier  # noqa: PLC0415
        from mq.access.keys import BadKeys  # noqa: PLC0415

        try:
            self._keys = _keys(settings, clock)
        except BadKeys as error:
            raise StartupError(
                f"the keys of --jwks or --jwks-url cannot be used: {error}"
            ) from None
        self.verifier: Verifier = JwtVerifier(
            self._keys,
            clock,
            audience=settings.audience,
            issuer=settings.issuer,
            leeway_s=settings.leeway_s,
        )

    def start(self) -> None:
        """Begins to fetch keys, if they are at a URL."""
        self._keys.start()

    async def reload(self) -> bool:
        """Reads a file of keys again. False for a bad file: the old keys stay, and the log says
        why.
        """
        return await asyncio.to_thread(self._keys.reload)

    async def stop(self) -> None:
        await self._keys.stop()


def _keys(settings: JwtSettings, clock: Clock) -> "FileKeys | UrlKeys":
    from mq.access.key_url import UrlKeys  # noqa: PLC0415
    from mq.access.keys import FileKeys  # noqa: PLC0415

    if settings.file is not None:
        return FileKeys(settings.file)
    return UrlKeys(settings.url or "", clock)
