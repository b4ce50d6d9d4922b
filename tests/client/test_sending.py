"""What is sent again, and what is not, over real sockets that fail."""

import asyncio
import contextlib
import io
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from harness.lossy import Fault, Lossy, answer, problem
from harness.waiting import comes_true

from mq import AsyncClient
from mq.client.errors import (
    AnswerTooLarge,
    ConnectionLost,
    CouldNotConnect,
    DeliveredAgain,
    MessageNotFound,
    NotMq,
    NotUsable,
    Problem,
    SettingsChanged,
    TimedOut,
    Unanswered,
    Unavailable,
)
from mq.client.options import Retry, Timeouts

GONE = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab.json"
HASTY = Timeouts(connect_s=5, answer_s=0.05)


async def test_a_publish_whose_answer_is_lost_is_said_again_once(
    queue: Any, between: Lossy
) -> None:
    for fault in (Fault.LOSE, Fault.END, Fault.CUT):
        between.seen.clear()
        between.faults.append(fault)
        message_id = await queue.publish(b"x")
        first, second = between.requests("POST")
        assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
        assert (await queue.fetch()).id == message_id
    assert await queue.fetch() is None


async def test_each_publish_has_a_key_of_its_own(queue: Any, between: Lossy) -> None:
    await queue.publish(b"x")
    await queue.publish(b"x")
    assert len({each.headers["idempotency-key"] for each in between.seen}) == 2


@pytest.mark.parametrize("fault", [Fault.LOSE, Fault.END, Fault.CUT])
async def test_a_fetch_whose_answer_is_lost_is_not_said_again(
    queue: Any, between: Lossy, fault: Fault
) -> None:
    await queue.publish_many([b"x" * 100] * 2)
    for fetch in (queue.fetch, lambda: queue.fetch_many(3)):
        between.seen.clear()
        between.faults.append(fault)
        with pytest.raises(ConnectionLost) as lost:
            await fetch()
        assert lost.value.was_sent
        assert len(between.requests("GET")) == 1


async def test_a_fetch_is_said_again_after_a_problem_that_passes(
    queue: Any, between: Lossy, slept: Any
) -> None:
    await queue.publish(b"x")
    between.faults.extend([problem("storage-failed", 503), problem("too-many-selections", 503)])
    assert (await queue.fetch()).body == b"x"
    assert slept.pauses_s == [0.1, 0.2]


async def test_what_is_not_said_again_once_it_may_be_done(queue: Any, between: Lossy) -> None:
    await queue.publish(b"x", key="k")
    for ask in (
        lambda: queue.delete_key("k"),
        queue.purge,
        lambda: queue.publish_lines(b"a\nb"),
        queue.shovel,
        lambda: queue.change_settings({"history": True}, if_match='"x"'),
    ):
        for fault, kind in (
            (Fault.END, ConnectionLost),
            (problem("storage-failed", 503), Unavailable),
            (problem("unavailable", 503), Unavailable),
            (problem("internal", 500), Unavailable),
            (answer("502 Bad Gateway"), NotMq),
            (answer("504 Gateway Timeout"), NotMq),
        ):
            between.seen.clear()
            between.faults.append(fault)
            with pytest.raises(kind):
                await ask()
            assert len(between.seen) == 1
    between.seen.clear()
    between.faults.append(problem("message-busy", 503))
    await queue.delete_key("k")
    assert len(between.seen) == 2


async def test_what_is_said_again_whatever_became_of_it(queue: Any, between: Lossy) -> None:
    message_id = await queue.publish(b"x")
    for ask in (
        queue.create, queue.describe, queue.settings, queue.peek, queue.schedules,
        lambda: queue.read(message_id),
        lambda: queue.extend(message_id, 100, receives=0),
        lambda: queue.change_settings({"history": True}),
        lambda: queue.schedule("s", b"x", every_s=60),
        lambda: queue.delete_schedule("s"),
        lambda: queue.delete_messages([message_id]),
        lambda: queue.delete_message(message_id),
        queue.delete,
    ):  # fmt: skip
        between.seen.clear()
        between.faults.extend([Fault.LOSE, problem("unavailable", 503), answer("502 No")])
        await ask()
        assert len(between.seen) == 4


@pytest.mark.certificate
async def test_what_was_released_is_another_s_only_when_it_was_asked_before(
    queue: Any, between: Lossy
) -> None:
    again = problem("delivered-again", 412, retryable=False)
    gone = problem("message-not-found", 404, retryable=False)
    for before in (Fault.LOSE, problem("storage-failed", 503), answer("504 Late")):
        for after in (again, gone):
            await queue.publish(b"x")
            message = await queue.fetch()
            between.faults.extend([before, after])
            await message.release()
            await queue.purge()
    await queue.publish(b"x")
    message = await queue.fetch()
    between.faults.extend([Fault.LOSE, again])
    with pytest.raises(DeliveredAgain):
        await message.extend(60)
    between.faults.append(again)
    with pytest.raises(DeliveredAgain):
        await message.release()


async def test_not_found_is_done_only_when_it_was_asked_before(queue: Any, between: Lossy) -> None:
    gone = problem("message-not-found", 404, retryable=False)
    for before in (Fault.END, problem("storage-failed", 503), answer("504 Late")):
        between.faults.extend([before, gone])
        await queue.delete_message(GONE)
    with pytest.raises(MessageNotFound):
        await queue.delete_message(GONE)
    between.faults.extend([Fault.END, problem("settings-changed", 412, retryable=False)])
    with pytest.raises(SettingsChanged):
        await queue.delete_message(GONE)


async def test_pauses_grow_and_keep_to_retry_after(opened: Any, between: Lossy, slept: Any) -> None:
    client = opened(retry=Retry(attempts=6, first_s=1, longest_s=3, deadline_s=1000))
    busy = problem("unavailable", 503)
    date = "Date: Mon, 23 Nov 2026 10:00:00 GMT"
    between.faults.extend(
        [
            busy,
            problem("unavailable", 503, "Retry-After: 7"),
            problem("unavailable", 503, date, "Retry-After: Mon, 23 Nov 2026 10:00:09 GMT"),
            problem("unavailable", 503, "Retry-After: soon"),
            busy,
            busy,
        ]
    )
    with pytest.raises(Unavailable):
        await client.queue("orders").describe()
    assert slept.pauses_s == [1, 7, 9, 3, 3]


async def test_no_attempt_begins_after_the_deadline(
    opened: Any, between: Lossy, slept: Any
) -> None:
    client = opened(retry=Retry(attempts=9, deadline_s=30))
    between.faults.append(problem("unavailable", 503, "Retry-After: 31"))
    with pytest.raises(Unavailable) as refused:
        await client.queue("orders").describe()
    assert refused.value.retry_after_s == 31
    assert slept.pauses_s == []
    assert len(between.seen) == 1


async def test_one_attempt_is_one(opened: Any, between: Lossy) -> None:
    between.faults.append(problem("unavailable", 503))
    with pytest.raises(Unavailable):
        await opened(retry=Retry(attempts=1)).queue("orders").describe()
    assert len(between.seen) == 1


async def test_whether_it_is_alive_is_asked_once(opened: Any, between: Lossy) -> None:
    client = opened()
    between.faults.append(problem("unavailable", 503))
    with pytest.raises(Unavailable):
        await client.readiness()
    between.faults.append(Fault.END)
    assert await client.is_alive() is False
    assert len(between.seen) == 2


async def test_nobody_is_there(slept: Any, opened: Any, between: Lossy) -> None:
    unused = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = unused.sockets[0].getsockname()[1]
    unused.close()
    await unused.wait_closed()
    client = opened(url=f"http://127.0.0.1:{port}")
    with pytest.raises(CouldNotConnect, match="is mq running there") as refused:
        await client.queue("orders").fetch()
    assert str(port) in str(refused.value)
    assert not refused.value.was_sent
    secret = AsyncClient(f"http://me:secret@127.0.0.1:{port}", retry=Retry(attempts=1))
    with pytest.raises(CouldNotConnect, match=str(port)) as refused:
        await secret.queue("orders").fetch()
    assert "secret" not in str(refused.value)
    await secret.close()
    assert len(slept.pauses_s) == 4
    assert await client.is_alive() is False
    found = await client.queue("orders").publish_many([b"x"] * 300, concurrency=2)
    assert {type(each.problem) for each in found} == {CouldNotConnect}
    # Those that follow are not tried.
    assert len(slept.pauses_s) == 4 + 2 * 4


async def test_an_answer_that_does_not_come(opened: Any, between: Lossy) -> None:
    queue = opened(timeouts=HASTY).queue("orders")
    await queue.create()
    between.faults.append(Fault.HANG)
    with pytest.raises(TimedOut) as late:
        await queue.fetch()
    assert isinstance(late.value, TimeoutError)
    assert isinstance(late.value, Unanswered)
    between.faults.append(Fault.HANG)
    await queue.publish(b"x")
    assert (await queue.fetch()).body == b"x"


async def test_a_fetch_may_wait_longer_than_an_answer(opened: Any, between: Lossy) -> None:
    queue = opened(timeouts=HASTY).queue("orders")
    await queue.create()
    assert await queue.fetch(wait_s=0.2) is None


async def test_who_reads_nothing_is_given_up(opened: Any, between: Lossy) -> None:
    before = sockets()
    client = opened(timeouts=HASTY, retry=Retry(attempts=1))
    between.faults.append(Fault.DEAF)
    with pytest.raises(TimedOut):
        await client.queue("orders").publish(b"x" * 50_000_000)
    await client.close()
    # The other side's half of it is there still.
    await comes_true(lambda: sockets() == before + 1, "its socket is closed")


def sockets() -> int:
    """How many this process has."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(each.readlink()).startswith("socket")
    return found


async def test_an_answer_that_is_not_mq_s(queue: Any, between: Lossy) -> None:
    for said in (
        answer("200 OK", b"<html>a captive portal</html>", "Content-Type: text/html"),
        answer("200 OK", b'["no object"]'),
        answer("200 OK", b'{"name": 7}'),
        answer("302 Found", b"", "Location: /elsewhere"),
        answer("404 Not Found", b"nginx"),
        answer("404 Not Found", b"[]", "Content-Type: application/problem+json"),
        answer("404 Not Found", b"{", "Content-Type: application/problem+json"),
        answer("418 Teapot", b"x" * 10_000),
    ):
        between.seen.clear()
        between.faults.append(said)
        with pytest.raises(NotMq) as strange:
            await queue.describe()
        assert len(str(strange.value)) < 400
        assert len(between.seen) == 1


@pytest.mark.parametrize("kind", ["text/html", "application/problem+json"])
async def test_an_error_is_read_no_further_than_a_problem_goes(
    opened: Any, between: Lossy, kind: str
) -> None:
    queue = opened(retry=Retry(attempts=1)).queue("orders")
    head = f"HTTP/1.1 502 No\r\nContent-Type: {kind}\r\nContent-Length: {1 << 40}\r\n\r\n"
    # Only its beginning comes: a client that reads on would wait for the rest.
    between.faults.append(head.encode() + b"x" * 1_000_000)
    with pytest.raises(NotMq) as strange:
        await queue.describe()
    assert strange.value.status == 502


async def test_an_answer_is_read_up_to_a_bound(opened: Any, between: Lossy) -> None:
    queue = opened(answer_bytes_max=5000).queue("orders")
    await queue.create()
    for size in (4900, 5000):
        await queue.publish(b"x" * size)
        message = await queue.fetch()
        assert len(message.body) == size
        await message.delete()
    await queue.publish(b"x" * 5001)
    requests = len(between.seen)
    with pytest.raises(AnswerTooLarge, match="5000 bytes"):
        await queue.fetch()
    # It is no failure of the connection: a repeat would be as large.
    assert len(between.seen) == requests + 1
    assert (await queue.describe()).in_flight == 1
    with pytest.raises(ValueError, match="answer_bytes_max"):
        opened(answer_bytes_max=0)


async def test_an_answer_that_is_no_http(queue: Any, between: Lossy) -> None:
    between.faults.append(b"SSH-2.0-OpenSSH_9.6\r\n\r\nConnection: close")
    with pytest.raises(ConnectionLost):
        await queue.fetch()


async def test_a_problem_that_nobody_knows(queue: Any, between: Lossy) -> None:
    between.faults.append(problem("of-the-future", 409, retryable=False))
    with pytest.raises(Problem) as told:
        await queue.describe()
    assert (told.value.slug, told.value.status) == ("of-the-future", 409)


async def test_a_file_is_rewound_and_pieces_are_not(queue: Any, between: Lossy) -> None:
    between.faults.append(Fault.END)
    message_id = await queue.publish(io.BytesIO(b"of a file" * 100_000))
    assert (await queue.read(message_id)).body == b"of a file" * 100_000

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"

    between.seen.clear()
    between.faults.append(Fault.END)
    with pytest.raises(ConnectionLost):
        await queue.publish(pieces())
    assert len(between.seen) == 1


async def test_a_cancelled_request_leaves_the_client_usable(opened: Any, between: Lossy) -> None:
    client = opened()
    queue = client.queue("orders")
    between.faults.append(Fault.HANG)
    asking = asyncio.create_task(queue.fetch(wait_s=30))
    await comes_true(lambda: between.seen, "the request")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await client.is_alive()


async def test_who_is_cancelled_does_not_wait_for_long_to_give_a_message_back(
    queue: Any, between: Lossy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.client.message.CLOSE_S", 0.05)
    await queue.publish(b"x")
    message = await queue.fetch()
    between.faults.extend([Fault.HANG] * 10)
    inside = asyncio.Event()

    async def handler() -> None:
        async with message:
            inside.set()
            await asyncio.Event().wait()

    handling = asyncio.create_task(handler())
    await inside.wait()
    handling.cancel()
    with pytest.raises(asyncio.CancelledError) as cancelled:
        await handling
    # Before Python 3.11.4 asyncio.timeout raises no TimeoutError in a task that is cancelled.
    if sys.version_info >= (3, 11, 4):
        assert "could not be released" in str(cancelled.value.__notes__)
    assert len(between.requests("PATCH")) == 1


async def test_a_client_that_is_closed_ends_what_is_on_its_way(opened: Any, between: Lossy) -> None:
    client = opened()
    between.faults.append(Fault.HANG)
    asking = asyncio.create_task(client.queue("orders").describe())
    await comes_true(lambda: between.seen, "the request")
    await client.close()
    with pytest.raises(NotUsable):
        await asking


async def test_a_connection_is_used_again(queue: Any, between: Lossy) -> None:
    before = between.connections
    for n in range(10):
        await queue.publish(str(n))
    assert between.connections == before


async def test_there_are_so_many_connections_at_a_time(opened: Any, between: Lossy) -> None:
    queue = opened(connections_max=3).queue("orders")
    await queue.create()
    await asyncio.gather(*(queue.publish(b"x") for _ in range(50)))
    assert between.connections <= 3
    with pytest.raises(ValueError, match="connections_max"):
        opened(connections_max=0)


async def test_who_waits_at_mq_is_in_nobody_s_way(opened: Any) -> None:
    queue = opened(connections_max=1).queue("orders")
    await queue.create()
    waiting = asyncio.create_task(queue.fetch(wait_s=5))
    # Were there one connection for both, it would be published when the fetch had found nothing.
    await asyncio.sleep(0)
    await queue.publish(b"x")
    message = await waiting
    assert message is not None
    assert message.body == b"x"


async def test_what_every_request_says(opened: Any, between: Lossy) -> None:
    client = opened(token="secret")
    await client.queue("orders").create()
    [seen] = between.seen
    assert seen.headers["authorization"] == "Bearer secret"
    assert seen.headers["user-agent"].startswith("mq-client/")
    assert seen.headers["accept-encoding"] == "identity"
    assert "cookie" not in seen.headers
    assert "secret" not in repr(client)


async def test_a_path_before_mq_s_own(opened: Any, between: Lossy) -> None:
    client = opened(url=f"{between.url}/mq/")
    between.faults.append(answer("200 OK", b'{"alive": true}'))
    assert await client.is_alive()
    assert between.seen[0].path == "/mq/-/livez"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://mq",
        "http://",
        "http://mq/?a=b",
        "http:///x",
        "http://mq:99999",
        "http://mq:0",
        "http://mq:x",
        "http://[::1",
    ],
)
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match="not the URL"):
        AsyncClient(url)


async def test_a_client_of_another_loop(queue: Any) -> None:
    raised: list[Exception] = []

    def elsewhere() -> None:
        try:
            asyncio.run(queue.describe())
        except NotUsable as error:
            raised.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "loop" in str(raised[0])


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Timeouts(connect_s=0),
        lambda: Timeouts(answer_s=-1),
        lambda: Retry(attempts=0),
        lambda: Retry(deadline_s=-1),
        lambda: Retry(first_s=float("nan")),
    ],
)
def test_options_out_of_bounds(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"seconds|attempts"):
        wrong()
