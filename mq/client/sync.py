"""The client for threads: each class stands before one of the client for event loops, and runs its
methods in the event loop of a background thread.
"""

import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, overload

from mq.client.client import AsyncClient
from mq.client.consuming.consumer import AsyncConsumer
from mq.client.errors import ClientError
from mq.client.message import AsyncMessage, Fetched, release_within, unreleased
from mq.client.options import CLOSE_S
from mq.client.portal import Portal
from mq.client.queue import AsyncQueue
from mq.client.values import PeekedMessage, State
from mq.model.limits import BATCH_MESSAGES_MAX

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

_ASYNCHRONOUS: Final = re.compile(r"\basync (?=for|with)|\bawait |\bAsync(?=[A-Z])")


def _like(
    method: Callable[Concatenate[Any, P], object],
) -> Callable[[Callable[..., T]], Callable[Concatenate[Any, P], T]]:
    """Gives a function the name, signature and docstring of an asynchronous method, as a type
    checker and `inspect` see them.
    """

    def decorate(function: Callable[..., T]) -> Callable[Concatenate[Any, P], T]:
        functools.update_wrapper(function, method)
        function.__doc__ = _ASYNCHRONOUS.sub("", method.__doc__ or "") or None
        function.__qualname__ = _ASYNCHRONOUS.sub("", method.__qualname__)
        signature = inspect.signature(method)
        returned = inspect.formatannotation(signature.return_annotation)
        if (returns := _ASYNCHRONOUS.sub("", returned)) != returned:
            signature = signature.replace(return_annotation=returns)
            function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return decorate


@overload
def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], *, listed: str = ""
) -> Callable[Concatenate[Any, P], T]: ...
@overload
def _blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], given: Callable[[T, Portal], S]
) -> Callable[Concatenate[Any, P], S]: ...
def _blocking(
    method: Callable[..., Coroutine[Any, Any, Any]],
    given: Callable[[Any, Portal], Any] | None = None,
    *,
    listed: str = "",
) -> Callable[..., Any]:
    """The method for threads: it waits for the end. `given` makes what it returns from what the
    method returns. `listed`: the first parameter, an iterable, is read in the caller's thread, so
    that the iterable may use the client.
    """

    @_like(method)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if listed and args:
            args = (list(args[0]), *args[1:])
        elif listed in named:
            named[listed] = list(named[listed])
        found = self._portal.run(lambda: method(self._inner, *args, **named))
        return found if given is None else given(found, self._portal)

    return call


def _opening(
    method: Callable[Concatenate[Any, P], T], given: Callable[[T, Portal], S]
) -> Callable[Concatenate[Any, P], S]:
    """The method, which waits for nothing. `given` makes what it returns."""

    @_like(method)
    def call(self: Any, *args: Any, **named: Any) -> S:
        return given(method(self._inner, *args, **named), self._portal)

    return call


def _iterating(
    method: Callable[Concatenate[Any, P], AsyncIterator[T]],
) -> Callable[Concatenate[Any, P], Iterator[T]]:
    """The method's items; a thread waits for each."""

    @_like(method)
    def call(self: Any, *args: Any, **named: Any) -> Iterator[T]:
        found: Iterator[T] = self._portal.iterate(method(self._inner, *args, **named))
        return found

    return call


class Message(Fetched):
    """A fetched message. `with message:` deletes it at the end of the block, and releases it when
    an exception leaves the block, unless the block settles it.

    Each method applies to this delivery alone: once the message was delivered again, it raises
    DeliveredAgain and changes nothing. Settling a message twice in the same way does nothing; in
    another way, it raises AlreadySettled.
    """

    __slots__ = ("_inner", "_portal")

    def __init__(self, inner: AsyncMessage, portal: Portal) -> None:
        super().__init__(inner.queue, inner.row)
        self._inner = inner
        self._portal = portal

    @property
    def due(self) -> datetime:
        """The end of its visibility timeout, by mq's clock."""
        return self._inner.due

    @property
    def settled(self) -> str | None:
        """How it was settled: deleted, released, sidelined; None: it is not."""
        return self._inner.settled

    delete = _blocking(AsyncMessage.delete)
    release = _blocking(AsyncMessage.release)
    sideline = _blocking(AsyncMessage.sideline)
    failures = _blocking(AsyncMessage.failures)
    extend = _blocking(AsyncMessage.extend)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.settled is not None:
            return
        if error is None:
            self.delete()
            return
        within_s = None if isinstance(error, Exception) else CLOSE_S
        try:
            self._portal.run(lambda: release_within(self._inner, within_s))
        except (ClientError, TimeoutError) as failed:
            error.add_note(unreleased(self, failed))


def _message(found: AsyncMessage | None, portal: Portal) -> Message | None:
    return None if found is None else Message(found, portal)


def _messages(found: list[AsyncMessage], portal: Portal) -> list[Message]:
    return [Message(each, portal) for each in found]


class Consumer:
    """Delivers messages: `for message in consumer`, or `consumer.next()`; several threads may take
    messages of one. It begins with the first message that is taken, or at `with`. The end of the
    block, and `close`, release the messages that were not taken.
    """

    __slots__ = ("_inner", "_portal")

    def __init__(self, inner: AsyncConsumer, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    next = _blocking(AsyncConsumer.next, _message)

    @_like(AsyncConsumer.close)
    def close(self) -> None:
        self._portal.run_last(self._inner.close)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def __enter__(self) -> Self:
        self._portal.run(self._inner.__aenter__)
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Queue:
    """A queue of a Client, which makes it: `client.queue("orders")`. It is only a name; its first
    request shows whether mq has the queue. Each method but `create` raises QueueNotFound.
    """

    __slots__ = ("_inner", "_portal")

    def __init__(self, inner: AsyncQueue, portal: Portal) -> None:
        self._inner = inner
        self._portal = portal

    @property
    def name(self) -> str:
        """The queue's name."""
        return self._inner.name

    create = _blocking(AsyncQueue.create)
    describe = _blocking(AsyncQueue.describe)
    delete = _blocking(AsyncQueue.delete)
    purge = _blocking(AsyncQueue.purge)
    settings = _blocking(AsyncQueue.settings)
    change_settings = _blocking(AsyncQueue.change_settings)
    consumers = _blocking(AsyncQueue.consumers)
    end_consumer = _blocking(AsyncQueue.end_consumer)
    consume = _opening(AsyncQueue.consume, Consumer)

    publish = _blocking(AsyncQueue.publish)
    publish_message = _blocking(AsyncQueue.publish_message)
    publish_many = _blocking(AsyncQueue.publish_many, listed="messages")
    publish_lines = _blocking(AsyncQueue.publish_lines)
    publish_rows = _blocking(AsyncQueue.publish_rows)

    fetch = _blocking(AsyncQueue.fetch, _message)
    fetch_many = _blocking(AsyncQueue.fetch_many, _messages)
    read = _blocking(AsyncQueue.read)
    read_key = _blocking(AsyncQueue.read_key)
    delete_message = _blocking(AsyncQueue.delete_message)
    delete_messages = _blocking(AsyncQueue.delete_messages, listed="messages")
    extend_messages = _blocking(AsyncQueue.extend_messages, listed="messages")
    release_messages = _blocking(AsyncQueue.release_messages, listed="messages")
    sideline_messages = _blocking(AsyncQueue.sideline_messages, listed="messages")
    delete_key = _blocking(AsyncQueue.delete_key)
    extend = _blocking(AsyncQueue.extend)
    release = _blocking(AsyncQueue.release)
    sideline = _blocking(AsyncQueue.sideline)
    failures = _blocking(AsyncQueue.failures)
    history = _blocking(AsyncQueue.history)
    peek = _blocking(AsyncQueue.peek)
    groups = _blocking(AsyncQueue.groups)
    follow = _iterating(AsyncQueue.follow)
    tagged = _blocking(AsyncQueue.tagged)
    delete_tagged = _blocking(AsyncQueue.delete_tagged)
    sideline_tagged = _blocking(AsyncQueue.sideline_tagged)
    tag_history = _blocking(AsyncQueue.tag_history)

    schedule = _blocking(AsyncQueue.schedule)
    schedules = _blocking(AsyncQueue.schedules)
    get_schedule = _blocking(AsyncQueue.get_schedule)
    delete_schedule = _blocking(AsyncQueue.delete_schedule)

    shovel = _blocking(AsyncQueue.shovel)
    shovel_progress = _blocking(AsyncQueue.shovel_progress)
    stop_shovel = _blocking(AsyncQueue.stop_shovel)

    @_like(AsyncQueue.browse)
    def browse(
        self, states: Iterable[State] = ("ready",), *, count: int = BATCH_MESSAGES_MAX
    ) -> Iterator[PeekedMessage]:
        # A page at a time: a thread waits less often.
        pages = self._inner._pages(tuple(states), count)  # noqa: SLF001
        for page in self._portal.iterate(pages):
            yield from page

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class Client:
    """All of mq's HTTP interface, for many threads. Use `with Client(url)`, or call `close()` at
    the end. Its calls run in an event loop of a background thread: a call waits for its end, and an
    interrupt of the calling thread cancels it.

    Its parameters and errors are those of AsyncClient.
    """

    @_like(AsyncClient.__init__)
    def __init__(self, *args: Any, **named: Any) -> None:
        self._inner = AsyncClient(*args, **named)
        self._portal = Portal(self._inner.close)

    @property
    def url(self) -> str:
        """mq's URL."""
        return self._inner.url

    queue = _opening(AsyncClient.queue, Queue)
    queues = _iterating(AsyncClient.queues)
    consume = _opening(AsyncClient.consume, Consumer)
    members = _blocking(AsyncClient.members)
    trends = _blocking(AsyncClient.trends)
    refresh = _blocking(AsyncClient.refresh)
    is_alive = _blocking(AsyncClient.is_alive)
    readiness = _blocking(AsyncClient.readiness)
    memory = _blocking(AsyncClient.memory)
    openapi = _blocking(AsyncClient.openapi)

    def close(self) -> None:
        """Ends the client's consumers, connections and thread, within a bounded time. May be called
        again; any other call then raises NotUsable, also one that another thread is waiting for.
        """
        self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()
