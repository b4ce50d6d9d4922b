"""Claims of messages of a group, each in a script like those of `scripts.py`."""

import os
from hashlib import sha256
from pathlib import Path

from crash.registry import BUCKETS, FLAT, script
from crash.stage import ORDERS, Stage

GROUP = "stove"


async def _published(on: Stage, count: int = 2) -> list[str]:
    await on.begin(ORDERS)
    ids = [await on.clients.publish_keyed(300, more=f"group={GROUP}") for _ in range(count)]
    on.known()
    return ids


async def _fetch(on: Stage) -> str | None:
    on.disk.mark("fetch_asked", queue=ORDERS)
    return await on.clients.fetch()


def _link(on: Stage) -> Path:
    digits = sha256(GROUP.encode()).hexdigest()[:16]
    return (
        on.root / "queues" / ORDERS / ".groups" / sha256(digits.encode()).hexdigest()[:2] / digits
    )


@script(FLAT, BUCKETS)
async def group_one_by_one(on: Stage) -> None:
    first, second = await _published(on)
    assert await _fetch(on) == first
    assert await _fetch(on) is None
    await on.clients.delete(first)
    assert await _fetch(on) == second
    await on.clients.reschedule(second, 0)
    assert await _fetch(on) == second


@script()
async def group_that_goes_on_after_a_sideline(on: Stage) -> None:
    first, second = await _published(on)
    assert await _fetch(on) == first
    await on.clients.sideline(first)
    assert await _fetch(on) == second


@script(FLAT, BUCKETS)
async def group_whose_head_was_removed(on: Stage) -> None:
    """By one that died before it flushed it."""
    first, second = await _published(on)
    assert await _fetch(on) == first
    on.disk.mark("delete_asked", queue=ORDERS, id=first)
    os.rename(on.delayed(first), on.removed(first))
    assert await _fetch(on) == second
    assert os.readlink(_link(on)) == second


@script()
async def group_whose_link_was_made(on: Stage) -> None:
    """By one that died before it flushed it."""
    first, _ = await _published(on)
    link = _link(on)
    link.parent.mkdir(mode=0o700, parents=True)
    link.parent.parent.chmod(0o700)
    link.symlink_to(first)
    assert await _fetch(on) == first
