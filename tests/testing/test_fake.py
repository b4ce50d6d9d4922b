"""What the fake has beyond the interface: its clock, its faults, what is seen of it."""

import asyncio
import threading
import urllib.request
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from harness.waiting import comes_true

from mq import AsyncClient
from mq.client.errors import (
    ConnectionLost,
    CouldNotConnect,
    NotMq,
    NotUsable,
    Problem,
    QueueNotFound,
    Unavailable,
)
from mq.client.options import Retry
from mq.client.transport import Limits, Request
from mq.client.values import Fired
from mq.model.errors import BadName
from mq.model.names import CONTENT_TYPE_DEFAULT
from mq.testing import FakeClock, FakeMq
from mq.testing.faults import FAULTS_MAX

START = datetime(2026, 1, 31, 12, tzinfo=UTC)
ONCE = Retry(attempts=1)


@pytest.fixture
def fake() -> FakeMq:
    """One whose clock only jumps."""
    return FakeMq(clock=FakeClock(START, stands=True))


@pytest.fixture
async def queue(fake: FakeMq) -> Any:
    async with fake.async_client(retry=ONCE) as client:
        made = client.queue("orders")
        await made.create()
        yield made


async def test_what_is_fetched_comes_back_when_its_time_is_over(fake: FakeMq, queue: Any) -> None:
    await queue.publish(b"x")
    first = await queue.fetch(visibility_s=10)
    assert first.due == START + timedelta(seconds=10)
    fake.clock.advance(9.999)
    assert fake.queue("orders").in_flight == [b"x"]
    fake.clock.advance(0.001)
    assert fake.queue("orders").ready == [b"x"]
    assert (await queue.fetch()).receives == 2


async def test_each_thing_happens_at_its_time(fake: FakeMq, queue: Any) -> None:
    await queue.schedule("tick", b"tick", every_s=60, count=3)
    await queue.publish(b"late", delay_s=90)
    fake.clock.advance(3600)
    seen = fake.queue("orders").messages
    assert [(each.text(), (each.due - START).total_seconds()) for each in seen] == [
        ("late", 90), ("tick", 60), ("tick", 120), ("tick", 180),
    ]  # fmt: skip
    assert (await queue.get_schedule("tick")).next is None


async def test_a_fired_message_names_its_firing(fake: FakeMq, queue: Any) -> None:
    await queue.schedule("tick", b"tick", every_s=60, headers={"ce-type": "t"})
    due = (await queue.get_schedule("tick")).next
    fake.clock.advance(60)
    (peeked,) = await queue.peek()
    (fetched,) = await queue.fetch_many(1, visibility_s=1)
    fake.clock.advance(2)
    again = await queue.fetch(visibility_s=1)
    by_socket = await fetched_by_socket(fake, queue)
    read = await queue.read(fetched.id)
    for message in (peeked, fetched, again, by_socket, read):
        assert message.schedule == Fired("tick", due, 1)
        # So that they can be published again.
        assert dict(message.headers) == {"content-type": CONTENT_TYPE_DEFAULT, "ce-type": "t"}
    await queue.purge()
    await queue.publish(b"plain")
    assert (await queue.fetch()).schedule is None


async def fetched_by_socket(fake: FakeMq, queue: Any) -> Any:
    fake.clock.advance(2)
    async with queue.consume(via="websocket") as consumer:
        return await consumer.next()


async def test_a_schedule_waits_while_its_queue_has_expired(fake: FakeMq, queue: Any) -> None:
    await queue.schedule("tick", b"tick", every_s=60)
    await queue.change_settings({"expires_at": (START + timedelta(seconds=30)).isoformat()})
    fake.clock.advance(65)
    assert fake.queue("orders").ready == []
    await queue.change_settings({"expires_at": None})
    fake.clock.advance(20)
    assert fake.queue("orders").ready == [b"tick"]


async def test_a_key_makes_publishes_one_for_as_long_as_the_clock_says(
    fake: FakeMq, queue: Any
) -> None:
    await queue.change_settings({"idempotency_s": 60})
    first = await queue.publish(b"once", idempotency_key="k")
    fake.clock.advance(59)
    assert await queue.publish(b"once", idempotency_key="k") == first
    fake.clock.advance(1)
    assert await queue.publish(b"again", idempotency_key="k") != first
    assert fake.queue("orders").ready == [b"once", b"again"]


async def test_counts_are_those_of_now(queue: Any) -> None:
    for count in range(1, 4):
        await queue.publish(b"x")
        assert (await queue.describe()).ready == count


async def test_a_queue_goes_after_its_grace(fake: FakeMq, queue: Any) -> None:
    ends = (START + timedelta(seconds=30)).isoformat()
    await queue.change_settings({"expires_at": ends, "expiry_grace_s": 30})
    waiting = asyncio.create_task(queue.fetch(wait_s=60))
    await comes_true(lambda: fake.queue("orders").waiting)
    fake.clock.advance(30)
    with pytest.raises(Problem, match="queue-expired"):
        await waiting
    assert fake.queue("orders").exists
    fake.clock.advance(30)
    assert not fake.queue("orders").exists


async def test_messages_expire_to_where_the_settings_say(fake: FakeMq, queue: Any) -> None:
    await queue.change_settings({"message_ttl_s": 10, "expired_to": "sideline"})
    await queue.publish(b"one")
    fake.clock.advance(10)
    [seen] = fake.queue("orders_SIDELINE").messages
    assert (seen.body, seen.reason) == (b"one", "expired")
    await queue.change_settings({"expired_to": None})
    await queue.publish(b"two")
    await queue.publish(b"in hand")
    held = await queue.fetch_many(2, visibility_s=20)
    await held[0].release()
    assert await queue.fetch() is not None
    fake.clock.advance(30)
    assert sorted(fake.queue("orders").removed) == [b"in hand", b"two"]


async def test_what_has_lived_too_long_already_is_not_given_out(fake: FakeMq, queue: Any) -> None:
    await queue.publish(b"old")
    fake.clock.advance(60)
    await queue.change_settings({"message_ttl_s": 10})
    assert await queue.fetch() is None
    await queue.change_settings({"message_ttl_s": 0})
    assert await queue.fetch() is not None


async def test_what_is_received_too_often_goes_aside(fake: FakeMq, queue: Any) -> None:
    await queue.change_settings({"max_receives": 2})
    await queue.publish(b"poison")
    await queue.fetch(visibility_s=1)
    fake.clock.advance(1)
    await (await queue.fetch()).release()
    assert fake.queue("orders").sidelined == [b"poison"]
    assert fake.queue("orders_SIDELINE").messages[0].reason == "receives"


async def test_what_a_consumer_releases_too_often_goes_aside(fake: FakeMq, queue: Any) -> None:
    await queue.change_settings({"max_receives": 1})
    await queue.publish(b"poison")
    async with queue.consume(via="websocket") as consumer:
        await (await consumer.next()).release()
        async with fake.async_client(retry=ONCE) as client:
            aside = await client.queue("orders_SIDELINE").fetch(wait_s=30)
    assert (aside.body, aside.sidelined) == (b"poison", "receives")


async def test_a_scheduled_shovel_brings_it_back(fake: FakeMq, queue: Any) -> None:
    await queue.change_settings({"shovel_interval_s": 600})
    await queue.publish(b"x")
    await (await queue.fetch()).sideline()
    fake.clock.advance(600)
    assert fake.queue("orders").ready == [b"x"]
    assert (await queue.shovel_progress()).moved == 1


async def test_a_shovel_with_a_rate_takes_its_time(fake: FakeMq, queue: Any) -> None:
    for _ in range(5):
        await queue.publish(b"x")
    for message in await queue.fetch_many(5):
        await message.sideline()
    await queue.shovel(rate=1)
    assert len(fake.queue("orders").ready) == 1
    fake.clock.advance(2)
    assert len(fake.queue("orders").ready) == 3
    assert (await queue.stop_shovel()).state == "stopped"
    fake.clock.advance(60)
    assert len(fake.queue("orders").sidelined) == 2


async def test_a_poll_is_woken_by_the_clock_and_by_other_threads(fake: FakeMq, queue: Any) -> None:
    await queue.publish(b"late", delay_s=30)
    waiting = asyncio.create_task(queue.fetch(wait_s=60))
    await comes_true(lambda: fake.queue("orders").waiting)
    fake.clock.advance(30)
    assert (await waiting).body == b"late"

    def publish() -> None:
        with fake.client() as client:
            client.queue("orders").publish(b"from a thread")

    waiting = asyncio.create_task(queue.fetch(wait_s=60))
    await comes_true(lambda: fake.queue("orders").waiting)
    thread = threading.Thread(target=publish)
    thread.start()
    assert (await waiting).body == b"from a thread"
    thread.join()


async def test_a_poll_ends_by_the_clock(fake: FakeMq, queue: Any) -> None:
    waiting = asyncio.create_task(queue.fetch(wait_s=60))
    await comes_true(lambda: fake.queue("orders").waiting)
    fake.clock.advance(60)
    assert await waiting is None
    assert await queue.fetch(wait_s=0.01) is None


async def test_whoever_stops_waiting_gets_nothing(fake: FakeMq, queue: Any) -> None:
    waiting = asyncio.create_task(queue.fetch(wait_s=60))
    await comes_true(lambda: fake.queue("orders").waiting)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await queue.publish(b"x")
    assert fake.queue("orders").ready == [b"x"]


async def test_a_clock_that_runs_brings_things_back_by_itself() -> None:
    fake = FakeMq()
    async with fake.async_client() as client:
        queue = client.queue("orders")
        await queue.create()
        await queue.publish(b"soon", delay_s=0.02)
        assert (await queue.fetch(wait_s=30)).body == b"soon"


def test_a_clock_goes_ahead_alone() -> None:
    clock = FakeClock(START, stands=True)
    assert clock.now() == START
    for wrong in (-1, float("nan"), 1e12):
        with pytest.raises(ValueError, match="advanced"):
            clock.advance(wrong)
    assert clock.now() == START


async def test_fakes_may_have_one_clock(fake: FakeMq, queue: Any) -> None:
    other = FakeMq(clock=fake.clock)
    async with other.async_client() as client:
        await client.queue("orders").create()
        for each in (client.queue("orders"), queue):
            await each.publish(b"later", delay_s=5)
        waiting = [
            asyncio.create_task(each.fetch(wait_s=60)) for each in (queue, client.queue("orders"))
        ]
        await comes_true(lambda: all(each.queue("orders").waiting for each in (fake, other)))
        fake.clock.advance(5)
        assert [found.body for found in await asyncio.gather(*waiting)] == [b"later"] * 2


@pytest.mark.certificate
async def test_too_much_at_a_time_is_told_and_goes_on(fake: FakeMq, queue: Any) -> None:
    await queue.schedule("tick", b"", every_s=1, overlap="skip")
    with pytest.raises(ValueError, match="advance by less"):
        fake.clock.advance(150_000)
    assert len(fake.queue("orders").messages) == 1


@pytest.mark.parametrize(
    ("status", "kind"), [(503, Unavailable), (500, Unavailable), (502, NotMq), (504, NotMq)]
)
async def test_a_request_that_fails_is_not_done(
    fake: FakeMq, queue: Any, status: int, kind: type[Exception]
) -> None:
    fake.fail(status=status)
    with pytest.raises(kind):
        await queue.publish(b"x")
    assert fake.queue("orders").messages == []
    await queue.publish(b"x")
    assert len(fake.queue("orders").messages) == 1


async def test_after_how_long_to_try_again_is_told(fake: FakeMq, queue: Any) -> None:
    fake.fail(retry_after_s=7)
    with pytest.raises(Unavailable) as refused:
        await queue.publish(b"x")
    assert refused.value.retry_after_s == 7


async def test_an_answer_that_is_lost_was_done(fake: FakeMq, queue: Any) -> None:
    fake.lose_answer()
    with pytest.raises(ConnectionLost):
        await queue.publish(b"x")
    assert fake.queue("orders").ready == [b"x"]
    fake.lose_request()
    with pytest.raises(ConnectionLost):
        await queue.purge()
    assert fake.queue("orders").ready == [b"x"]
    fake.refuse_connections()
    with pytest.raises(CouldNotConnect, match="is mq running"):
        await queue.purge()


async def test_faults_choose_their_requests_and_can_be_mended(fake: FakeMq, queue: Any) -> None:
    fake.fail(method="DELETE", queue="orders")
    fake.fail(queue="others", times=3)
    await queue.publish(b"x")
    with pytest.raises(Unavailable):
        await queue.purge()
    fake.mend()
    async with fake.async_client(retry=ONCE) as client:
        with pytest.raises(QueueNotFound):
            await client.queue("others").describe()


async def test_a_client_of_the_fake_takes_no_time_to_try_again(fake: FakeMq) -> None:
    async with fake.async_client() as client:
        fake.fail(times=3, retry_after_s=8)
        await client.queue("orders").create()
    assert fake.clock.now() >= START + timedelta(seconds=24)


@pytest.mark.parametrize(
    "said",
    [
        {"times": 0}, {"times": FAULTS_MAX + 1}, {"times": 1.5}, {"status": 200}, {"status": 429},
        {"retry_after_s": 0}, {"retry_after_s": 0.5}, {"retry_after_s": True},
        {"status": 500, "retry_after_s": 1},
    ],
)  # fmt: skip
def test_what_http_cannot_say_is_refused(fake: FakeMq, said: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"whole|one of|goes with"):
        fake.fail(**said)


async def test_connections_that_are_dropped_are_made_anew(fake: FakeMq, queue: Any) -> None:
    await queue.publish(b"one")
    async with queue.consume(via="websocket") as consumer:
        first = await consumer.next()
        fake.drop_connections()
        again = await consumer.next()
        assert (again.id, again.receives) == (first.id, 2)
        await again.delete()
    assert fake.queue("orders").removed == [b"one"]


async def test_a_connection_s_end_releases_what_it_held(fake: FakeMq, queue: Any) -> None:
    for number in range(3):
        await queue.publish(str(number))
    async with queue.consume(prefetch=3, via="websocket") as consumer:
        await consumer.next()
        await comes_true(lambda: len(fake.queue("orders").in_flight) == 3)
    assert len(fake.queue("orders").ready) >= 2


async def test_what_is_closed_is_not_usable(fake: FakeMq) -> None:
    transport = fake.transport()
    limits = Limits(1, 1)
    await transport.request(Request("PUT", "/orders"), limits)
    polling = asyncio.create_task(
        transport.request(Request("GET", "/orders/messages", (("wait", "60"),)), limits)
    )
    await comes_true(lambda: fake.queue("orders").waiting)
    await transport.close()
    await transport.close()
    with pytest.raises(ConnectionLost):
        await polling
    for begun in (transport.request, transport.connect):
        with pytest.raises(NotUsable):
            await begun(Request("GET", "/-/consume"), limits)
    async with AsyncClient(transport=fake.transport()) as client:
        assert await client.is_alive()


def asked(url: str, method: str = "GET", body: bytes | None = None) -> tuple[int, bytes]:
    """The status and the body of an answer, as any program of this machine gets it."""
    with urllib.request.urlopen(urllib.request.Request(url, body, method=method)) as answer:
        return answer.status, answer.read()


def test_any_program_uses_it_by_its_url(mq_server: FakeMq) -> None:
    """`mq_server` is the fixture that mq brings for pytest."""
    url = mq_server.url
    assert asked(f"{url}/orders", "PUT")[0] == 201
    assert asked(f"{url}/orders/messages", "POST", b"two pizzas")[0] == 201
    assert mq_server.queue("orders").ready == [b"two pizzas"]
    mq_server.clock.advance(3600)
    assert asked(f"{url}/orders/messages?visibility=60") == (200, b"two pizzas")
    assert asked(f"{url}/orders/messages")[0] == 204
    mq_server.clock.advance(61)
    assert asked(f"{url}/orders/messages") == (200, b"two pizzas")


@pytest.mark.parametrize("stands", [True, False])
def test_a_reset_fake_is_empty_at_the_same_url(stands: bool) -> None:
    with FakeMq(clock=FakeClock(START, stands=stands)) as fake, fake.client() as client:
        url, orders = fake.url, client.queue("orders")
        orders.create()
        orders.publish(b"later", delay_s=60)
        orders.publish(b"gone")
        orders.fetch().delete()
        fake.clock.advance(30)
        for _ in range(3):
            fake.fail(times=100)
            fake.reset()
            assert fake.url == url
            assert not fake.queue("orders").exists
            assert orders.create()
            assert fake.queue("orders").messages == []
            orders.publish(b"new", delay_s=10)
            fake.clock.advance(40)
            assert fake.queue("orders").ready == [b"new"]
        assert fake.clock.now() >= START + timedelta(seconds=150)


def test_a_fake_ends_with_its_block() -> None:
    with FakeMq() as fake:
        url = fake.url
        assert asked(f"{url}/-/livez")[0] == 200
    with pytest.raises(OSError, match="refused"):
        asked(f"{url}/-/livez")
    with pytest.raises(NotUsable):
        fake.url  # noqa: B018


def test_a_view_of_what_is_not_there(fake: FakeMq) -> None:
    view = fake.queue("nowhere")
    assert not view.exists
    assert view.messages == view.ready == view.delayed == view.in_flight == view.removed == []
    assert view.sidelined == []
    with pytest.raises(BadName):
        fake.queue("no/queue")


async def test_a_queue_that_was_made_again_has_nothing_of_the_old(fake: FakeMq, queue: Any) -> None:
    await queue.publish(b"old", delay_s=5, key="k")
    await queue.schedule("tick", b"old", every_s=5)
    await queue.delete()
    await queue.create()
    fake.clock.advance(60)
    assert fake.queue("orders").messages == []
    await queue.publish(b"new", key="k")


async def test_a_file_is_a_body(fake: FakeMq, queue: Any) -> None:
    async def pieces() -> Any:
        yield b"a"
        yield b"b"

    await queue.publish(pieces())
    assert fake.queue("orders").ready == [b"ab"]
