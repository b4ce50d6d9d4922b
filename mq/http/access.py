"""Authentication and authorization of requests.

A daemon has one `Access`, which `mq.daemon` fills with verifiers of tokens and a function for
client certificates, also while it serves. A connection has one `Shown`.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mq.access.callers import ANONYMOUS, Caller, Right, Verifier, check
from mq.access.errors import Forbidden, Unauthenticated
from mq.access.secrets import Signer
from mq.access.tokens import token_of
from mq.model.clock import Clock

# How long a connection's caller is cached: a token may end this much late.
CALLER_KNOWN_S: Final = 1.0

Certified: TypeAlias = Callable[[Mapping[str, Any]], Caller | None]
"""The caller of a certificate, as Python's `getpeercert` has it; None: unknown."""

_PEER: Final = "peercert"
_NO_SIGNERS: Final[Mapping[str, Signer]] = {}


class Access:
    """The callers of this daemon. Without verifiers and certificates all callers may do everything.

    For the event loop's thread.
    """

    def __init__(
        self, clock: Clock, verifiers: Sequence[Verifier] = (), certified: Certified | None = None
    ) -> None:
        self.signers: Mapping[str, Signer] = _NO_SIGNERS
        """Callers that sign SQS requests, by access key id."""
        self.clock = clock
        self.generation = 0
        """Changes with each `replace`."""
        self._set(verifiers, certified)

    def replace(
        self,
        verifiers: Sequence[Verifier],
        certified: Certified | None = None,
        signers: Mapping[str, Signer] = _NO_SIGNERS,
    ) -> None:
        """Replaces the verifiers, also for open connections."""
        self.signers = signers
        self._set(verifiers, certified)
        self.generation += 1

    def _set(self, verifiers: Sequence[Verifier], certified: Certified | None) -> None:
        self._verifiers, self._certified = tuple(verifiers), certified
        self.is_on = bool(verifiers) or certified is not None
        """Whether requests need a token or certificate."""

    def caller(self, values: Sequence[str], transport: asyncio.BaseTransport | None) -> Caller:
        """The caller of these Authorization headers on this connection. A token takes precedence
        over a certificate. Raises Unauthenticated.
        """
        if not self.is_on:
            return ANONYMOUS
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
    """A connection's caller, remembered for CALLER_KNOWN_S."""

    __slots__ = ("_access", "_caller", "_generation", "_until_s", "_values")

    def __init__(self, access: Access) -> None:
        self._access = access
        self._values: Sequence[str] = ()
        self._caller: Caller | None = None
        self._generation = -1
        self._until_s = 0.0

    def caller(self, values: Sequence[str], transport: asyncio.BaseTransport | None) -> Caller:
        """The caller of these Authorization headers. Raises Unauthenticated."""
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


class Permission:
    """The queues that a WebSocket's client may consume now. `who` returns the current caller, or
    raises Unauthenticated.
    """

    def __init__(self, who: Callable[[], Caller]) -> None:
        """Raises Unauthenticated."""
        self._who = who
        self._caller = who()

    def renew(self) -> bool:
        """Renews the caller; true if it, or its rights, changed. Raises Unauthenticated."""
        before, self._caller = self._caller, self._who()
        return before != self._caller

    def error(self, queue: str) -> Forbidden | None:
        """Why the client may not consume the queue; None: it may."""
        try:
            check(self._caller, Right.CONSUME, queue)
        except Forbidden as error:
            return error
        return None

    def errors(self, queues: Iterable[str]) -> dict[str, Forbidden]:
        """The errors of those queues that it may not consume."""
        found = {queue: self.error(queue) for queue in queues}
        return {queue: error for queue, error in found.items() if error is not None}
