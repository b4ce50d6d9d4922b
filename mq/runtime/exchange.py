"""Questions between the processes of one mq, over pairs of sockets that their supervisor made.

A question goes to each other process, and each answers with a few parts, all JSON objects in
datagrams. A process that ends leaves its socket to the one that is started in its place, which may
read a question after its asker has given up, and answers it all the same.
"""

import asyncio
import contextlib
import json
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from mq.model.limits import KIB
from mq.model.log import logger

# One datagram; a part has to fit.
DATAGRAM_BYTES_MAX: Final = 128 * KIB
# Datagrams that are read before others have a turn.
READ_AT_ONCE_MAX: Final = 32
# How long the other processes may take, and questions that one process answers at a time.
ANSWER_S: Final = 2.0
ANSWERING_MAX: Final = 64

Part: TypeAlias = Mapping[str, Any]
Answers: TypeAlias = Callable[[Part], Awaitable[Sequence[Part]]]
"""Answers a question, in at least one part."""

_log = logger("mq.exchange")


def make_pairs(processes: int) -> list[tuple[socket.socket, socket.socket]]:
    """For each process the socket on which it receives, and the one by which the others send to it.
    Raises OSError.
    """
    return [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(processes)]


@dataclass(slots=True)
class _Asked:
    """A question that waits for its answers: from which processes still, and the parts so far."""

    waits_for: set[int]
    done: "asyncio.Future[None]"
    parts: list[Part] = field(default_factory=list)


class Exchange:
    """One process's end. Use it on the event loop's thread. Without descriptors it is alone."""

    def __init__(self, index: int = 0, descriptors: Sequence[int] = ()) -> None:
        """`descriptors`: the socket on which this process receives, then those by which each
        process, this one too, is sent to. Raises OSError.
        """
        sockets = [socket.socket(fileno=os.dup(each)) for each in descriptors]
        for each in sockets:
            each.setblocking(False)
        self._receives = sockets[0] if sockets else None
        self._sends = dict(enumerate(sockets[1:]))
        self._turns = {each: asyncio.Lock() for each in self._sends}
        self._index = index
        self._asked: dict[int, _Asked] = {}
        self._ref = secrets.randbits(32)
        self._answers: Answers | None = None
        self._answering: set[asyncio.Task[None]] = set()

    def begin(self, answers: Answers) -> None:
        """Answers the other processes' questions from here on."""
        self._answers = answers
        if self._receives is not None:
            asyncio.get_running_loop().add_reader(self._receives.fileno(), self._read)

    def end(self) -> None:
        if self._receives is not None:
            asyncio.get_running_loop().remove_reader(self._receives.fileno())
        for task in self._answering:
            task.cancel()
        for each in (self._receives, *self._sends.values()):
            if each is not None:
                each.close()
        self._receives, self._sends = None, {}

    async def ask(self, question: Part) -> tuple[list[Part], bool]:
        """Asks all other processes. Returns the parts of their answers, and whether all answered in
        time.
        """
        others = [each for each in self._sends if each != self._index]
        if not others:
            return [], True
        self._ref += 1
        asked = _Asked(set(others), asyncio.get_running_loop().create_future())
        ref, self._asked[self._ref] = self._ref, asked
        try:
            async with asyncio.timeout(ANSWER_S):
                said = {"ref": ref, "from": self._index, "question": question}
                await asyncio.gather(*(self._send(each, said) for each in others))
                await asked.done
        except TimeoutError:
            pass
        finally:
            del self._asked[ref]
        return asked.parts, not asked.waits_for

    def _read(self) -> None:
        for _ in range(READ_AT_ONCE_MAX):
            if self._receives is None:
                return
            try:
                data = self._receives.recv(DATAGRAM_BYTES_MAX)
            except (BlockingIOError, InterruptedError):
                return
            said = json.loads(data)
            if "question" in said:
                self._begin_answer(said)
            else:
                self._came(said)

    def _came(self, said: Part) -> None:
        asked = self._asked.get(said["ref"])
        if asked is None:
            return
        asked.parts.append(said["part"])
        if said["is_last"]:
            asked.waits_for.discard(said["from"])
            if not asked.waits_for and not asked.done.done():
                asked.done.set_result(None)

    def _begin_answer(self, said: Part) -> None:
        if len(self._answering) >= ANSWERING_MAX:
            return
        task = asyncio.create_task(self._answer(said))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, said: Part) -> None:
        if self._answers is None:
            return
        try:
            parts = await self._answers(said["question"])
            async with asyncio.timeout(ANSWER_S):
                for number, part in enumerate(parts, 1):
                    answer = {"ref": said["ref"], "from": self._index, "part": part}
                    await self._send(said["from"], {**answer, "is_last": number == len(parts)})
        except Exception as error:
            _log.warning(
                "could not answer another process", extra={"fields": {"error": repr(error)}}
            )

    async def _send(self, index: int, said: Part) -> None:
        """Waits for room in the other process's socket."""
        async with self._turns[index]:
            with contextlib.suppress(KeyError):  # It has ended meanwhile.
                data = json.dumps(said).encode("ascii")
                await asyncio.get_running_loop().sock_sendall(self._sends[index], data)
