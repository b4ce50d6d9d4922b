"""The client for threads: its thread, its end, interrupts and forks."""

import asyncio
import gc
import inspect
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from harness.in_threads import in_thread
from harness.processes import Processes, eventually
from harness.server import Server
from harness.waiting import comes_true

import mq
from mq import AsyncClient, Client
from mq.client.consuming.consumer import AsyncConsumer
from mq.client.errors import NotUsable
from mq.client.message import AsyncMessage
from mq.client.portal import Portal
from mq.client.queue import AsyncQueue
from mq.client.sync import Consumer, Message, Queue

NOTHING = "nothing"


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "mq-client"]


async def nothing() -> None:
    """What ends nothing."""


def run(daemons: Processes, root: Path, program: str) -> str:
    """What the program says, with every warning an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, daemons.mq(root).url],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def test_all_that_mq_has_is_in_its_dir() -> None:
    assert set(mq.__all__) <= set(dir(mq))
    assert all(hasattr(mq, each) for each in dir(mq))


PAIRS = [
    (Client, AsyncClient),
    (Queue, AsyncQueue),
    (Message, AsyncMessage),
    (Consumer, AsyncConsumer),
]
# What a consumer does with a message before a program has it.
OF_EVENT_LOOPS = {"begin", "came_by", "settler"}


def public(class_: type) -> set[str]:
    return {each for each in dir(class_) if not each.startswith("_")}


@pytest.mark.parametrize(("ours", "asynchronous"), PAIRS)
def test_the_client_for_threads_has_all_methods_of_the_one_for_event_loops(
    ours: type, asynchronous: type
) -> None:
    fields = set(inspect.get_annotations(asynchronous)) | {"name"} & public(ours)
    assert public(ours) == (public(asynchronous) | fields) - OF_EVENT_LOOPS
    for name in public(ours) & public(asynchronous):
        method, theirs = getattr(ours, name), getattr(asynchronous, name)
        if callable(method):
            assert inspect.signature(method).parameters == inspect.signature(theirs).parameters
            assert method.__doc__, name
            assert not inspect.iscoroutinefunction(method)


def test_a_method_shows_what_it_takes_and_returns() -> None:
    assert str(inspect.signature(Client)).startswith("(url: str = 'http://127")
    assert str(inspect.signature(Queue.fetch)).endswith("-> 'mq.client.message.Message | None'")
    assert str(inspect.signature(Queue("orders", Portal(nothing)).describe)).startswith("() -> ")
    assert "`for message in queue.consume()`" in (Queue.consume.__doc__ or "")


async def test_an_iterable_of_messages_may_use_the_client(server: Server) -> None:
    def use() -> list[bytes]:
        with Client(server.url) as client:
            queue = client.queue("orders")
            queue.create()
            queue.publish_many(queue.publish("1") and str(n) for n in range(2))
            queue.publish_many(messages=(each.body for each in queue.browse()))
            return sorted(each.body for each in queue.browse(count=3))

    assert await in_thread(use) == [b"0", b"0", *[b"1"] * 6]


async def test_a_client_has_a_thread_from_its_first_call_to_its_end(server: Server) -> None:
    client = Client(server.url)
    assert threads() == []
    assert await in_thread(client.is_alive)
    [thread] = threads()
    assert thread.daemon
    await in_thread(client.close)
    assert threads() == []
    with pytest.raises(NotUsable):
        client.is_alive()
    client.close()


async def test_a_client_that_is_dropped_ends_its_thread(server: Server) -> None:
    client = Client(server.url)
    await in_thread(client.is_alive)
    assert len(threads()) == 1
    del client
    await in_thread(gc.collect)
    await comes_true(lambda: not threads(), "its thread ends")


async def test_a_queue_keeps_its_client(server: Server) -> None:
    queue = Client(server.url).queue("orders")
    await in_thread(gc.collect)
    assert await in_thread(queue.create)
    message_id = await in_thread(queue.publish, b"x")
    message = await in_thread(queue.fetch)
    assert message.id == message_id
    del queue
    await in_thread(message.delete)
    del message
    await in_thread(gc.collect)
    # The thread that was in the last call may let go of the message a moment later.
    await comes_true(lambda: threads() == [], "the thread's end")


async def test_many_threads_use_one_client(server: Server) -> None:
    with Client(server.url) as client:
        queue = client.queue("orders")
        await in_thread(queue.create)
        publishing = (in_thread(queue.publish, str(n)) for n in range(30))
        ids = await asyncio.gather(*publishing)
        found = await in_thread(queue.fetch_many, 100)
        assert {each.id for each in found} == set(ids)
        assert len(threads()) == 1
        await in_thread(client.close)


async def test_a_client_that_is_closed_ends_the_calls_of_other_threads(server: Server) -> None:
    client = Client(server.url)
    queue = client.queue("orders")
    await in_thread(queue.create)
    waiting = asyncio.create_task(in_thread(queue.fetch, wait_s=60))
    consuming = asyncio.create_task(in_thread(next, queue.consume(), None))
    await asyncio.sleep(0)
    await in_thread(queue.describe)
    await in_thread(client.close)
    with pytest.raises(NotUsable):
        await waiting
    # It ends, or was closed before it began.
    await asyncio.wait([consuming])
    assert isinstance(consuming.exception(), NotUsable | None)


async def test_a_consumer_of_a_closed_client_hides_nothing(server: Server) -> None:
    client = Client(server.url)

    def consume() -> None:
        client.queue("orders").create()
        with client.consume("orders"):
            client.close()
            raise LookupError("the block's own")

    with pytest.raises(LookupError, match="own"):
        await in_thread(consume)


def test_a_portal_is_not_used_from_within() -> None:
    portal = Portal(nothing)

    async def nested() -> None:
        portal.run(nested)

    with pytest.raises(NotUsable, match="within"):
        portal.run(nested)
    portal.close()


INTERRUPTED = """
import os, signal, sys, threading, traceback
from mq import Client

with Client(sys.argv[1]) as client:
    queue = client.queue("orders")
    queue.create()
    main = threading.get_ident()

    def interrupt():
        while "run" not in (names := [f.name for f in stack()]) or "wait" not in names:
            pass
        os.kill(os.getpid(), signal.SIGINT)

    def stack():
        return traceback.extract_stack(sys._current_frames()[main])

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        queue.fetch(wait_s=60)
    except KeyboardInterrupt:
        print("interrupted")
    thread.join()
    # The fetch was given up: it does not take this one.
    queue.publish("x")
    print(queue.fetch(wait_s=20).text())
"""


@pytest.mark.certificate
def test_an_interrupt_cancels_the_call(daemons: Processes, root: Path) -> None:
    assert run(daemons, root, INTERRUPTED) == "interrupted\nx\n"


FORKED = """
import asyncio, os, sys, warnings
from mq import AsyncClient, Client
from mq.client.errors import NotUsable

warnings.simplefilter("ignore", DeprecationWarning)
client, unused = Client(sys.argv[1]), Client(sys.argv[1])
tasks = AsyncClient(sys.argv[1])
queue = client.queue("orders")
queue.create()
queue.publish_many(["1", "2"])
message = queue.fetch()
consumer = queue.consume()
taken = consumer.next()
pids = []
for number in range(3):
    if (pid := os.fork()) == 0:
        for inherited in (message.delete, taken.release, consumer.next, lambda: message.extend(9)):
            try:
                inherited()
            except NotUsable as error:
                assert "is open in the process" in str(error), error
            else:
                raise AssertionError
        with unused:
            unused.queue("of_children").create()
        for _ in range(20):
            client.queue("of_children").publish(str(number))
        assert client.queue("of_children").fetch(wait_s=1).text() in "012"
        consumer.close()
        client.close()

        async def in_a_loop():
            async with tasks:
                await tasks.queue("of_children").publish("by a task")

        asyncio.run(in_a_loop())
        sys.exit()
    pids.append(pid)
print([os.waitpid(pid, 0)[1] for pid in pids])
# The parent's are as they were.
message.delete()
taken.delete()
queue.publish("3")
print(consumer.next().text())
print(sum(1 for each in client.queue("of_children").peek(count=1000)))
consumer.close()
client.close()
"""


@pytest.mark.certificate
def test_a_client_that_was_made_before_a_fork_works_in_the_child(
    daemons: Processes, root: Path
) -> None:
    assert run(daemons, root, FORKED).splitlines() == ["[0, 0, 0]", "3", "60"]


WHILE_ITS_THREADS_ARE_AT_WORK = """
import os, sys, threading, warnings
from mq import Client

warnings.simplefilter("ignore", DeprecationWarning)
client = Client(sys.argv[1], connections_max=2)
queue = client.queue("orders")
queue.create()
go_on = True

def publish():
    while go_on:
        queue.publish("parent")

threads = [threading.Thread(target=publish) for _ in range(4)]
for each in threads:
    each.start()
for _ in range(10):
    if (pid := os.fork()) == 0:
        queue.publish("child")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
go_on = False
for each in threads:
    each.join()
found = [each.body for each in queue.browse()]
print(found.count(b"child"), len(found) > 10)
client.close()
"""


@pytest.mark.certificate
def test_a_fork_while_requests_are_under_way_leaves_both_usable(
    daemons: Processes, root: Path
) -> None:
    """More requests than connections: locks and slots are taken at the moment of the fork."""
    assert run(daemons, root, WHILE_ITS_THREADS_ARE_AT_WORK) == "10 True\n"


LEFT_OPEN = """
import sys
from mq import Client

client = Client(sys.argv[1])
queue = client.queue("orders")
queue.create()
queue.publish_many(["1", "2", "3"])
consumer = queue.consume()
print(consumer.next().text())
"""


@pytest.mark.certificate
def test_a_process_ends_whatever_it_left_open(daemons: Processes, root: Path) -> None:
    assert run(daemons, root, LEFT_OPEN) in ("1\n", "2\n", "3\n")


def test_nothing_of_the_client_is_loaded_before_it_is_asked_for() -> None:
    program = (
        "import sys, mq, mq.model.names; "
        "print('aiohttp' in sys.modules, 'mq.client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False False\n", done.stderr
    with pytest.raises(AttributeError, match="nothing"):
        getattr(mq, NOTHING)


def test_a_thread_that_ends_is_waited_for() -> None:
    portal = Portal(nothing)
    portal.run(nothing)
    portal.close()
    eventually(lambda: threads() == [], "the thread ends")
