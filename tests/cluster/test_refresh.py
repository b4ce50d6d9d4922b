"""Two mq processes and an mq-mover over one root: what is done to a queue in one all follow.

None of them looks by itself during a test: only what is asked for by `POST /-/refresh` is seen, but
where the test says otherwise.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.processes import Process, Processes
from harness.waiting import comes_true

NEVER = ("--refresh", "86400")


class Root:
    """What runs over a root: two mqs, and an mq-mover once it is started."""

    def __init__(self, daemons: Processes, path: Path, session: aiohttp.ClientSession) -> None:
        self.path = path
        self.session = session
        self._daemons = daemons
        self.mqs: list[Process] = []

    async def start(self, *flags: str) -> None:
        for _ in range(2):
            self.mqs.append(await asyncio.to_thread(self._daemons.mq, self.path, *flags))

    async def mover(self, *flags: str) -> Process:
        said = ("--root", str(self.path), "--member", "m", *flags)
        return await asyncio.to_thread(self._daemons.mover, *said)

    async def call(self, mq: int, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """The status, and the body where it is JSON."""
        url = self.mqs[mq].url + path
        async with self.session.request(method, url, **more) as response:
            body = await response.read()
            is_json = "json" in response.headers.get("Content-Type", "")
            return response.status, json.loads(body) if is_json else body

    async def patch(self, mq: int, queue: str, **settings: Any) -> None:
        assert (await self.call(mq, "PATCH", f"/{queue}/settings", json=settings))[0] == 200

    async def refresh(self, mq: int) -> dict[str, int]:
        status, found = await self.call(mq, "POST", "/-/refresh")
        assert status == 200
        return dict(found)

    async def told(self) -> dict[str, Any]:
        """What the mover tells of itself, {} where it does not yet."""
        _, found = await self.call(0, "GET", "/-/members")
        return next(iter(found["members"]), {})

    async def upkept(self) -> list[str]:
        """The queues whose upkeep is the mover's."""
        told = await self.told()
        return list(told["queues"]["names"]) if told else []


@pytest.fixture
async def here(daemons: Processes, root: Path) -> AsyncIterator[Root]:
    async with aiohttp.ClientSession() as session:
        yield Root(daemons, root, session)


@pytest.mark.certificate
async def test_what_one_makes_changes_and_deletes_all_follow_when_one_is_asked(here: Root) -> None:
    await here.start(*NEVER)
    await here.mover(*NEVER)
    await here.call(0, "PUT", "/a")
    await here.call(0, "PUT", "/b")
    assert await here.refresh(1) == {"queues": 2, "new": 2, "changed": 0, "gone": 0}

    async def has(*names: str) -> bool:
        return await here.upkept() == list(names)

    await comes_true(lambda: has("a", "b"))
    await here.patch(0, "a", max_receives=3)
    # It was told of the change, and may have looked.
    assert (await here.refresh(1))["changed"] in (0, 1)
    async with here.session.ws_connect(here.mqs[1].url + "/-/consume") as socket:
        # With no credit nothing is looked for, and so nothing is found to be gone.
        wanted = [{"queue": each, "credit": 0} for each in ("a", "b")]
        await socket.send_json({"ref": 1, "subscribe": wanted})
        assert [each["status"] for each in (await socket.receive_json())["results"]] == [200, 200]
        await here.call(0, "DELETE", "/a")
        assert (await here.refresh(0))["gone"] in (0, 1)
        event = await socket.receive_json()
        assert (event["event"], event["queue"]) == ("unsubscribed", "a")
    await comes_true(lambda: has("b"))


@pytest.mark.certificate
async def test_all_follow_by_themselves_after_a_while(here: Root) -> None:
    await here.start("--refresh", "0.2")
    await here.mover("--refresh", "0.2")
    await here.call(0, "PUT", "/a")

    async def has(*names: str) -> bool:
        return await here.upkept() == list(names)

    await comes_true(lambda: has("a"))
    async with here.session.ws_connect(here.mqs[1].url + "/-/consume") as socket:
        await socket.send_json({"ref": 1, "subscribe": [{"queue": "a", "credit": 0}]})
        assert (await socket.receive_json())["results"][0]["status"] == 200
        await here.call(0, "DELETE", "/a")
        assert (await socket.receive_json())["event"] == "unsubscribed"
    await comes_true(has)


@pytest.mark.certificate
async def test_a_queue_whose_time_is_over_is_so_for_all_and_then_gone_for_all(here: Root) -> None:
    await here.start(*NEVER)
    await here.call(0, "PUT", "/a")
    # It is in use in both.
    for mq in (0, 1):
        assert (await here.call(mq, "GET", "/a/messages"))[0] == 204
    soon = (datetime.now(UTC) + timedelta(seconds=1)).isoformat()
    await here.patch(0, "a", expires_at=soon, expiry_grace_s=2)
    polling = asyncio.create_task(here.call(1, "GET", "/a/messages?wait=30"))
    status, problem = await polling
    assert (status, problem["type"]) == (410, "urn:mq:problem:queue-expired")
    assert (await here.call(1, "POST", "/a/messages", data=b"late"))[0] == 410
    await here.mover(*NEVER)

    async def is_gone() -> bool:
        return (await here.call(1, "GET", "/a"))[0] == 404

    await comes_true(is_gone)
    assert await here.refresh(0) == {"queues": 0, "new": 0, "changed": 0, "gone": 0}


@pytest.mark.certificate
async def test_a_shovel_follows_its_queue_s_settings_without_a_restart(here: Root) -> None:
    await here.start(*NEVER)
    await here.call(0, "PUT", "/a")
    await here.mover(*NEVER)

    async def sidelined() -> str:
        async with here.session.post(here.mqs[0].url + "/a/messages", data=b"x") as response:
            message_id = response.headers["X-Message-Id"]
        assert (await here.call(0, "POST", f"/a/messages/{message_id}/sideline"))[0] == 200
        return message_id

    async def is_back(message_id: str) -> bool:
        return (here.path / "queues" / "a" / message_id).exists()

    first = await sidelined()
    await here.patch(1, "a", shovel_interval_s=1)
    await comes_true(lambda: is_back(first))
    second = await sidelined()
    await comes_true(lambda: is_back(second))

    # Off again: what is sidelined from here on stays, however many turns the policy has.
    await here.patch(1, "a", shovel_interval_s=0)

    async def turns() -> int:
        return int((await here.told())["policies"]["shovel"]["turns"])

    before = await turns()

    async def has_looked() -> bool:
        return await turns() > before + 3

    await comes_true(has_looked)
    third = await sidelined()
    before = await turns()
    await comes_true(has_looked)
    assert not await is_back(third)
