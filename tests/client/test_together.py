"""What runs together: its results, its first failure, and its caller."""

import asyncio

import pytest

from mq.client.together import together


async def test_results_are_in_order() -> None:
    late = asyncio.Event()

    async def first() -> int:
        await late.wait()
        return 1

    async def second() -> int:
        late.set()
        return 2

    assert await together(first(), second()) == [1, 2]
    assert await together() == []


async def test_the_first_failure_ends_the_others_and_leaves_the_caller_as_it_was() -> None:
    ended = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def fails() -> None:
        raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        await together(waits(), fails())
    assert ended == ["waits"]
    caller = asyncio.current_task()
    assert caller is not None
    assert not caller.cancelling()


async def test_a_cancelled_caller_cancels_all() -> None:
    began, ended = asyncio.Event(), []

    async def waits() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    caller = asyncio.create_task(together(waits(), waits()))
    await began.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert ended == ["waits", "waits"]
