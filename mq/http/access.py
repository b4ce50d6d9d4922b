"""Who asks: what a connection's client shows, and what it may do by that.

`Access` is one for a daemon, and is changed while it serves; `Shown` is one for a connection. A
kind of token is a Verifier; a client certificate's caller is told by a function. Both are given to
`Access` by `mq.daemon`, which reads the files.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, cast

from aiohttp import hdrs, web

from mq.access.bearer import token_of
from mq.access.callers import ANYBODY, Caller, Verifier
from mq.access.errors import Unauthenticated
from mq.access.limits import CALLER_KNOWN_S
from mq.access.rules import Needed, Needs, check
from mq.model.clock import Clock

Certified: TypeAlias = Callable[[Mapping[str, Any]], Caller | None]
"""Whose a certificate is, as Python's `getpeercert` has it; None: nobody's that is known."""

_PEER: Final = "peercert"


class Access:
    """Who may do what at this daemon. Without verifiers and certificates anybody may do everything.

    For the event loop's thread.
    """

    def __init__(
        self,
        clock: Clock,
        verifiers: Sequence[Verifier] = (),
        certified: Certified | None = None,
    ) -> None:
        self.clock = clock
        self.generation = 0
        """Another whenever anything of it is."""
        self._verifiers = tuple(verifiers)
        self._certified = certified

    @property
    def is_on(self) -> bool:
        """Whether anybody is asked who they are."""
        return bool(self._verifiers) or self._certified is not None

    def replace(self, verifiers: Sequence[Verifier], certified: Certified | None = None) -> None:
        """From here on these say who is who, also on connections that are open."""
        self._verifiers, self._certified = tuple(verifiers), certified
        self.generation += 1

    def caller(self, values: Sequence[str], transport: asyncio.BaseTransport | None) -> Caller:
        """Who shows these Authorization headers over this connection. A token goes before a
        certificate. Raises Unauthenticated.
        """
        if not self.is_on:
            return ANYBODY
        token = token_of(values)
        if token is not None:
            return self._of_token(token)
        peer = transport.get_extra_info(_PEER) if transport is not None else None
        found = self._certified(peer) if peer and self._certified is not None else None
        if found is None:
            raise Unauthenticated(shown=False)
        return found

    def _of_token(self, token: str) -> Caller:
        for verifier in self._verifiers:
            if (found := verifier.caller(token)) is not None:
                return found
        raise Unauthenticated(shown=True)


class Shown:
    """What one connection's client shows; who that is, is remembered for CALLER_KNOWN_S."""

    __slots__ = ("_access", "_caller", "_generation", "_until_s", "_values")

    def __init__(self, access: Access) -> None:
        self._access = access
        self._values: Sequence[str] = ()
        self._caller: Caller | None = None
        self._generation = -1
        self._until_s = 0.0

    def caller(self, values: Sequence[str], transport: asyncio.BaseTransport | None) -> Caller:
        """Who asks, by these Authorization headers. Raises Unauthenticated."""
        access = self._access
        now_s = access.clock.steady_s()
        if (
            self._caller is not None
            and now_s < self._until_s
            and self._generation == access.generation
            and self._values == values
        ):
            return self._caller
        self._caller = None
        found = access.caller(values, transport)
        self._values, self._caller = values, found
        self._generation, self._until_s = access.generation, now_s + CALLER_KNOWN_S
        return found


class _Showing(Protocol):
    shown: Shown


def caller_of(access: Access, request: web.BaseRequest) -> Caller:
    """Who sends the request, now. Raises Unauthenticated."""
    if not access.is_on:
        return ANYBODY
    values = request.headers.getall(hdrs.AUTHORIZATION, ())
    return cast(_Showing, request.protocol).shown.caller(values, request.transport)


def admit(access: Access, request: web.BaseRequest, needed: Needed, queue: str | None) -> None:
    """Raises Unauthenticated, Forbidden, for a request that is not to be done. Looks at nothing
    but its head, and at nothing that is stored.
    """
    if access.is_on and needed is not Needs.NOTHING:
        check(caller_of(access, request), needed, queue)
