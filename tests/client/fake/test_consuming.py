"""The fake says over a WebSocket what the live server says."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from harness.twins import LIMITS, Twins, live_twins

from mq.client.errors import ConnectionLost
from mq.client.transport import Request, Socket

UNKNOWN = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
REFUSED: list[Any] = [
    [],
    {},
    {"subscribe": []},
    {"subscribe": [{"queue": "a", "credit": -1}]},
    {"subscribe": [{"queue": "a", "more": 1}], "ref": "a"},
    {"ack": [], "ref": 7},
    {"ack": [1]},
    {"ack": ["x"], "ref": {}},
    {"ack": ["x"], "release": ["y"]},
    {"credit": {"a": 0}},
    {"begin": 1, "ref": 1},
]
ANSWERED: list[Any] = [
    {"subscribe": [{"queue": "a", "credit": 0}, {"queue": "no/name"}, {"queue": "b"}], "ref": 1},
    {"subscribe": [{"queue": "a"}], "ref": "again"},
    {"subscribe": [{"queue": "c", "select": "bad", "credit": 0}]},
    {"subscribe": [{"queue": "c", "credit": 10_000}]},
    {"credit": {"a": 10_000, "b": 1}},
    {"unsubscribe": ["c", "b", "c"]},
    {"ack": [UNKNOWN, "x", UNKNOWN], "ref": 9_007_199_254_740_991},
    {"release": [UNKNOWN]},
    {"sideline": [UNKNOWN]},
]


class Both:
    """A WebSocket to each, which are told the same."""

    def __init__(self, twins: Twins, live: Socket, mocked: Socket) -> None:
        self._twins = twins
        self._live = live
        self._mocked = mocked

    @classmethod
    async def connect(cls, twins: Twins) -> "Both":
        request = Request("GET", "/-/consume")
        live = await twins.live.connect(request, LIMITS)
        return cls(twins, live, await twins.mocked.connect(request, LIMITS))

    async def say(self, command: Any) -> None:
        text = command if isinstance(command, str) else json.dumps(command)
        await self._mocked.send(text)
        await self._live.send(self._twins.theirs(text))

    async def hear(self) -> Any:
        """The next frame, which both say; the fake's."""
        ours, theirs = await self._mocked.receive(), await self._live.receive()
        if isinstance(ours, bytes) or isinstance(theirs, bytes):
            assert ours == theirs
            return ours
        assert json.loads(self._twins.ours(str(theirs))) == json.loads(str(ours))
        return json.loads(str(ours))

    async def say_and_hear(self, command: Any) -> Any:
        await self.say(command)
        return await self.hear()

    async def message(self) -> str:
        """The id of the message that comes next, whose body comes with it."""
        said = await self.hear()
        assert len(await self.hear()) == said["size"]
        return str(said["id"])

    async def end(self) -> None:
        for each in (self._live, self._mocked):
            with pytest.raises(ConnectionLost):
                await _all_of(each)

    async def close(self) -> None:
        await self._live.close()
        await self._mocked.close()


async def _all_of(socket: Socket) -> None:
    while True:
        await socket.receive()


async def refused(twins: Twins) -> None:
    for queue in ("a", "b", "c"):
        await twins.ask("PUT", f"/{queue}")
    await twins.ask("DELETE", "/b")
    both = await Both.connect(twins)
    for command in (*REFUSED, *ANSWERED):
        await both.say_and_hear(command)
    await both.say_and_hear("{")
    await both.end()
    await both.close()


async def consumed(twins: Twins) -> None:
    await twins.ask("PUT", "/d")
    for priority in (0, 5, 0, 9):
        body = b"\xff" * priority
        await twins.ask("POST", "/d/messages", {"priority": priority}, {"ce-type": "made"}, body)
    both = await Both.connect(twins)
    subscribe = {"queue": "d", "credit": 3, "visibility_s": 5, "priority": 2}
    await both.say_and_hear({"subscribe": [subscribe]})
    ids = [await both.message() for _ in range(3)]
    await both.say_and_hear({"ack": [ids[0], ids[0]], "ref": "a"})
    await both.say_and_hear({"sideline": [ids[1]], "ref": "s"})
    await both.say_and_hear({"release": [ids[2]], "ref": "r"})
    # Of what was released, and of what had no credit yet, the first comes first.
    await both.say_and_hear({"credit": {"d": 2}})
    assert await both.message() == ids[2]
    last = await both.message()
    await twins.advance(6)
    await twins.ask("GET", "/d/messages", {"count": 1})
    await both.say_and_hear({"ack": [ids[2], last], "ref": "late"})
    await twins.ask("DELETE", "/d")
    assert (await both.say_and_hear({"unsubscribe": ["d"]}))["queue"] == "d"
    await both.hear()
    await both.close()


@pytest.mark.parametrize("go", [refused, consumed])
def test_frames_are_the_same(root: Path, go: Any) -> None:
    with asyncio.Runner() as runner, live_twins(root, runner) as twins:
        runner.run(go(twins))
