"""Every request that uses the disk: what it needs, how it is made, and what its answer promises."""

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from harness.api import PROBLEM_MEDIA_TYPE, Reply, call, delete, fetch, make_queue, post, publish
from harness.audits import looked_at
from harness.folders import files_below
from harness.internals import background_work
from harness.server import STREAMED_BYTES, Server
from harness.waiting import comes_true

from mq.model.names import ConsumerName, QueueName
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.layout import parse_delayed
from mq.store.leases.lease import acknowledge, claim, leases_of
from mq.store.operations.redeliver import Timer, redeliver

CUT_SHORT = Reply(0, {}, b"")
"""What a client has of a response that broke off."""


@dataclass
class Case:
    """One queue with one message, or none yet, and what its clients may count on."""

    server: Server
    queue: str
    body: bytes
    message_id: str = ""
    owed: set[bytes] = field(default_factory=set)
    """Bodies that must be delivered: acknowledged, and not asked to be deleted."""
    possible: set[bytes] = field(default_factory=set)
    """Bodies that may be: a publish or a delete was not answered with success."""

    @property
    def path(self) -> str:
        return f"/{self.queue}"

    async def has_queue(self) -> None:
        await make_queue(self.server, self.queue)

    async def has_message(self) -> None:
        await self.has_queue()
        self.message_id = await publish(self.server, self.body, self.queue)
        self.owed = {self.body}

    async def has_fetched(self) -> None:
        await self.has_message()
        assert (await fetch(self.server, self.queue)).id == self.message_id

    async def has_sideline(self) -> None:
        """And a message that has a key, and was fetched."""
        await self.has_keyed()
        assert (await fetch(self.server, self.queue)).id == self.message_id
        await make_queue(self.server, f"{self.queue}_SIDELINE")

    async def has_sidelined(self) -> None:
        await self.has_fetched()
        assert (await _sideline(self)).status == 200

    async def has_leased(self) -> None:
        await self.has_message()
        queues, consumer = [QueueName.parse(self.queue)], ConsumerName.parse("etl")
        root = looked_at(self.server.root)
        for lease in leases_of(root, consumer):
            if lease.is_open:  # Of cases before.
                run_alone(acknowledge(root, lease.name), NoFlusher())
        assert run_alone(claim(root, consumer, queues, 1, 600), NoFlusher()) is not None

    async def has_scheduled(self) -> None:
        await self.has_queue()
        reply = await call(self.server, "POST", f"{self.path}/messages?delay=600", data=self.body)
        assert reply.status == 201
        self.message_id = reply.id
        self.owed = {self.body}

    async def has_deleted(self) -> None:
        await self.has_message()
        assert (await delete(self.server, self.message_id, self.queue)).status == 202
        self.owed = set()

    async def has_purged(self) -> None:
        await self.has_message()
        assert (await call(self.server, "DELETE", f"{self.path}/messages")).status == 202
        await background_ends(self.server)
        self.owed = set()

    async def has_configured(self) -> None:
        await self.has_message()
        patch = {"visibility_s": 50}
        reply = await call(self.server, "PATCH", f"{self.path}/settings", json=patch)
        assert reply.status == 200

    async def publish_keyed(self, once: bool) -> Reply:
        """With an idempotency key too, if so."""
        headers = {"Idempotency-Key": "once"} if once else {}
        path = f"{self.path}/messages?key=night"
        return await call(self.server, "POST", path, data=self.body, headers=headers)

    async def has_keyed(self, once: bool = False) -> None:
        await self.has_queue()
        reply = await self.publish_keyed(once)
        assert reply.status == 201
        self.message_id, self.owed = reply.id, {self.body}

    async def has_once(self) -> None:
        await self.has_keyed(once=True)

    async def has_once_in_new(self) -> None:
        """Its publisher died before the rename."""
        await self.has_once()
        queues = self.server.root / "queues" / self.queue
        [ready] = [path for path in files_below(queues) if path.name == self.message_id]
        ready.rename(self.server.root / "new" / f"{self.queue}:{self.message_id}")
        self.owed, self.possible = set(), {self.body}

    async def has_freed_key(self) -> None:
        """By one that died before it took the key's link away."""
        await self.has_keyed()
        queues = self.server.root / "queues" / self.queue
        [ready] = [path for path in files_below(queues) if path.name == self.message_id]
        ready.rename(self.server.root / "remove" / f"{self.queue}:{self.message_id}")
        self.owed = set()

    @property
    def schedule(self) -> Path:
        """The file of the schedule `nightly`."""
        return self.server.root / "schedules" / f"{self.queue}:nightly"

    async def has_schedule(self) -> None:
        await self.has_queue()
        assert (await _put_schedule("first")(self)).status == 201

    async def has_buried(self) -> None:
        """A queue that was deleted, and a message of it that nobody retired yet."""
        await self.has_fetched()
        name = f"{self.queue}:{self.message_id}"
        delay = self.server.root / "delay"
        [delayed] = [path for path in files_below(delay) if path.name == name]
        aside = delayed.rename(self.server.root.with_name("aside"))
        assert (await call(self.server, "DELETE", self.path)).status == 200
        await background_ends(self.server)
        aside.rename(delayed)
        self.owed = set()


Prepare = Callable[[Case], Awaitable[None]]
Send = Callable[[Case], Awaitable[Reply]]
Settle = Callable[[Case, Reply], None]


@dataclass(frozen=True)
class Request:
    """A request, the statuses of its successes, and of the same request said once more."""

    name: str
    prepare: Prepare
    send: Send
    settle: Settle
    success: tuple[int, ...]
    again: tuple[int, ...] = ()
    size: int = 16

    def case(self, server: Server, queue: str) -> Case:
        body = queue.encode() * (self.size // len(queue) + 1)
        return Case(server, queue, body)


async def _post(case: Case) -> Reply:
    return await post(case.server, case.body, case.queue)


async def _post_for_later(case: Case) -> Reply:
    return await call(case.server, "POST", f"{case.path}/messages?delay=600", data=case.body)


def _published(case: Case, reply: Reply) -> None:
    (case.owed if reply.status == 201 else case.possible).add(case.body)


def _reschedules(due_in_s: float, **headers: str) -> Send:
    async def send(case: Case) -> Reply:
        path = f"{case.path}/messages/{case.message_id}"
        said = {name.replace("_", "-"): value for name, value in headers.items()}
        return await call(case.server, "PATCH", path, json={"due_in_s": due_in_s}, headers=said)

    return send


def _rescheduled(case: Case, reply: Reply) -> None:
    """Wherever it is, it is owed."""


async def _post_lines(case: Case) -> Reply:
    """Two lines. Where one is refused, that is what the reply says."""
    lines = _lines_of(case)
    return await _posted(case, f"{case.path}/messages?split=lines", b"\n".join(lines), lines)


async def _posted(case: Case, path: str, data: bytes, bodies: list[bytes]) -> Reply:
    reply = await call(case.server, "POST", path, data=data)
    rows = [json.loads(row) for row in reply.body.splitlines()] if reply.status == 200 else []
    case.owed |= {body for body, row in zip(bodies, rows, strict=bool(rows)) if "id" in row}
    problems = [row["problem"] for row in rows if "problem" in row]
    return as_answered(problems[0]) if problems else reply


async def _post_rows(case: Case) -> Reply:
    """Three rows: at once with a tag, with a key and a time to live, and for later."""
    more: list[dict[str, object]] = [
        {"headers": {"ce-id": "1"}, "tags": ["a"]},
        {"key": "k", "ttl_s": 600},
        {"delay_s": 600},
    ]
    rows = [
        json.dumps({"body_base64": base64.b64encode(each).decode(), **said})
        for each, said in zip(_rows_of(case), more, strict=True)
    ]
    path = f"{case.path}/messages?split=rows"
    return await _posted(case, path, "\n".join(rows).encode(), _rows_of(case))


def as_answered(problem: dict[str, Any]) -> Reply:
    """An item's problem as the answer that it would be by itself."""
    headers = {"Content-Type": PROBLEM_MEDIA_TYPE, "Retry-After": "1"}
    return Reply(problem["status"], headers, json.dumps(problem).encode())


def _lines_of(case: Case) -> list[bytes]:
    return [case.body, case.body + b" too"]


def _rows_of(case: Case) -> list[bytes]:
    return [*_lines_of(case), case.body + b" and this"]


def _lines_published(case: Case, reply: Reply) -> None:
    """What is owed was noted by who sent them, line by line."""
    case.possible |= {*_rows_of(case)} - case.owed


async def _fetch_rows(case: Case) -> Reply:
    try:
        return await call(case.server, "GET", f"{case.path}/messages?count=1")
    except aiohttp.ClientError:
        return CUT_SHORT


def _rows_fetched(case: Case, reply: Reply) -> None:
    if reply.status == 200:
        row = json.loads(reply.body)
        assert (row["id"], row["body"].encode()) == (case.message_id, case.body)


async def _acknowledge(case: Case) -> Reply:
    asked = {"ids": [case.message_id]}
    reply = await call(case.server, "POST", f"{case.path}/acks", json=asked)
    if reply.status != 200:
        return reply
    [result] = reply.json()["results"]
    return as_answered(result.get("problem", {"status": result["status"]}))


async def _fetch(case: Case) -> Reply:
    try:
        return await fetch(case.server, case.queue)
    except aiohttp.ClientError:
        return CUT_SHORT


def _fetched(case: Case, reply: Reply) -> None:
    if reply.status == 200:
        assert (reply.id, reply.body) == (case.message_id, case.body)


async def _delete(case: Case) -> Reply:
    return await delete(case.server, case.message_id, case.queue)


async def _delete_if_match(case: Case) -> Reply:
    return await delete(case.server, case.message_id, case.queue, headers={"If-Match": '"1"'})


def _deleted(case: Case, reply: Reply) -> None:
    case.possible = set() if reply.status == 202 else case.owed
    case.owed = set()


async def _sideline(case: Case) -> Reply:
    path = f"{case.path}/messages/{case.message_id}/sideline"
    return await call(case.server, "POST", path)


async def _put_queue(case: Case) -> Reply:
    return await call(case.server, "PUT", case.path)


def _made(case: Case, reply: Reply) -> None:
    """A queue that is made holds nothing that is owed."""


async def _delete_queue(case: Case) -> Reply:
    return await call(case.server, "DELETE", case.path)


def _queue_deleted(case: Case, reply: Reply) -> None:
    case.possible = set() if reply.status == 200 else case.owed
    case.owed = set()


async def _describe(case: Case) -> Reply:
    return await call(case.server, "GET", case.path)


async def _read(case: Case) -> Reply:
    try:
        return await call(case.server, "GET", f"{case.path}/messages/{case.message_id}")
    except aiohttp.ClientError:
        return CUT_SHORT


async def _peek(case: Case) -> Reply:
    return await call(case.server, "GET", f"{case.path}/peek?state=ready,delayed,removed")


def _seen(case: Case, reply: Reply) -> None:
    """A name that is said to be gone is believed."""
    if reply.status == 200:
        rows = [json.loads(line) for line in reply.body.splitlines()]
        assert [row["id"] for row in rows] in ([], [case.message_id])


async def _readyz(case: Case) -> Reply:
    return await call(case.server, "GET", "/-/readyz")


async def _purge(case: Case) -> Reply:
    return await call(case.server, "DELETE", f"{case.path}/messages")


def _purged(case: Case, reply: Reply) -> None:
    case.possible = set() if reply.status == 202 else case.owed
    case.owed = set()


async def _configure(case: Case) -> Reply:
    patch = {"visibility_s": 40, "priority_default": 2}
    return await call(case.server, "PATCH", f"{case.path}/settings", json=patch)


async def _restore(case: Case) -> Reply:
    patch = {"visibility_s": None}
    return await call(case.server, "PATCH", f"{case.path}/settings", json=patch)


async def _read_settings(case: Case) -> Reply:
    return await call(case.server, "GET", f"{case.path}/settings")


def _nothing(case: Case, reply: Reply) -> None:
    """A request that changes nothing promises nothing."""


async def _no_queue(case: Case) -> None:
    """What a queue is made from."""


def _put_schedule(body: str) -> Send:
    async def send(case: Case) -> Reply:
        path = f"{case.path}/schedules/nightly?every=60"
        return await call(case.server, "PUT", path, data=body.encode())

    return send


def _schedule_put(case: Case, reply: Reply) -> None:
    """It is whole, the old one or the new; what was answered is there."""
    if case.schedule.exists():
        body = case.schedule.read_bytes().partition(b"\n")[2]
        assert body == b"again" if reply.status in (200, 201) else body in (b"first", b"again")
    else:
        assert reply.status not in (200, 201)


async def _delete_schedule(case: Case) -> Reply:
    return await call(case.server, "DELETE", f"{case.path}/schedules/nightly")


def _schedule_deleted(case: Case, reply: Reply) -> None:
    assert reply.status != 200 or not case.schedule.exists()


async def _read_schedule(case: Case) -> Reply:
    return await call(case.server, "GET", f"{case.path}/schedules/nightly")


async def _list_groups(case: Case) -> Reply:
    return await call(case.server, "GET", f"{case.path}/groups")


async def _list_schedules(case: Case) -> Reply:
    return await call(case.server, "GET", f"{case.path}/schedules")


def _post_keyed(once: bool = False) -> Send:
    async def send(case: Case) -> Reply:
        return await case.publish_keyed(once)

    return send


def _published_keyed(case: Case, reply: Reply) -> None:
    """Whoever has the key now says the same."""
    (case.owed if reply.status in (201, 409) else case.possible).add(case.body)


async def _delete_by_key(case: Case) -> Reply:
    return await call(case.server, "DELETE", f"{case.path}/keys/night")


async def _read_by_key(case: Case) -> Reply:
    return await call(case.server, "GET", f"{case.path}/keys/night")


KEYED_AGAIN = (201, 409)
"""409 where the one that was answered 503 is there all the same."""
DELETED_AGAIN = (202, 404)
"""404 where remove/ had no room, so that the file was unlinked."""

REQUESTS = (
    Request("publish", Case.has_queue, _post, _published, (201,)),
    Request("publish-streamed", Case.has_queue, _post, _published, (201,), size=STREAMED_BYTES),
    Request("publish-keyed", Case.has_queue, _post_keyed(), _published_keyed, (201,), KEYED_AGAIN),
    Request(
        "publish-keyed-again", Case.has_freed_key, _post_keyed(), _published_keyed, (201,),
        KEYED_AGAIN,
    ),
    Request("publish-taken", Case.has_keyed, _post_keyed(), _nothing, (409,), (409,)),
    Request("publish-once", Case.has_queue, _post_keyed(True), _published_keyed, (201,), (201,)),
    Request(
        "publish-once-streamed", Case.has_queue, _post_keyed(True), _published_keyed, (201,),
        (201,), size=STREAMED_BYTES,
    ),
    Request("publish-once-again", Case.has_once, _post_keyed(True), _nothing, (201,), (201,)),
    Request(
        "publish-once-left-in-new", Case.has_once_in_new, _post_keyed(True), _published, (201,),
        (201,),
    ),
    Request("delete-by-key", Case.has_keyed, _delete_by_key, _deleted, (202,), DELETED_AGAIN),
    Request("read-by-key", Case.has_keyed, _read_by_key, _nothing, (200,), (200,)),
    Request("delete-queue-keyed", Case.has_once, _delete_queue, _queue_deleted, (200,), (200, 404)),
    Request("fetch", Case.has_message, _fetch, _fetched, (200,)),
    Request("fetch-streamed", Case.has_message, _fetch, _fetched, (200,), size=STREAMED_BYTES),
    Request("publish-scheduled", Case.has_queue, _post_for_later, _published, (201,)),
    Request(
        "publish-scheduled-streamed", Case.has_queue, _post_for_later, _published, (201,),
        size=STREAMED_BYTES,
    ),
    Request("postpone", Case.has_message, _reschedules(600), _rescheduled, (200,), (200,)),
    Request("extend", Case.has_fetched, _reschedules(600), _rescheduled, (200,), (200,)),
    Request(
        "extend-if-match", Case.has_fetched, _reschedules(600, If_Match='"1"'), _rescheduled,
        (200,), (200,),
    ),
    Request("release", Case.has_fetched, _reschedules(0), _rescheduled, (200,), (200,)),
    Request("release-scheduled", Case.has_scheduled, _reschedules(0), _rescheduled, (200,), (200,)),
    Request("release-ready", Case.has_message, _reschedules(0), _rescheduled, (200,), (200,)),
    Request("sideline", Case.has_sideline, _sideline, _rescheduled, (200,), (200,)),
    Request("sideline-the-first", Case.has_message, _sideline, _rescheduled, (200,), (200,)),
    Request("sideline-again", Case.has_sidelined, _sideline, _rescheduled, (200,), (200,)),
    Request("publish-lines", Case.has_queue, _post_lines, _lines_published, (200,)),
    Request("publish-rows", Case.has_queue, _post_rows, _lines_published, (200,)),
    Request("fetch-count", Case.has_message, _fetch_rows, _rows_fetched, (200,)),
    Request(
        "fetch-count-streamed", Case.has_message, _fetch_rows, _rows_fetched, (200,),
        size=STREAMED_BYTES,
    ),
    Request("acknowledge", Case.has_fetched, _acknowledge, _deleted, (202,), DELETED_AGAIN),
    Request("delete-ready", Case.has_message, _delete, _deleted, (202,), DELETED_AGAIN),
    Request("delete-leased", Case.has_leased, _delete, _deleted, (202,), DELETED_AGAIN),
    Request("delete-fetched", Case.has_fetched, _delete, _deleted, (202,), DELETED_AGAIN),
    Request("delete-if-match", Case.has_fetched, _delete_if_match, _deleted, (202,), DELETED_AGAIN),
    Request("delete-again", Case.has_deleted, _delete, _deleted, (202,), (202,)),
    Request("create-queue", _no_queue, _put_queue, _made, (201,), (200, 201)),
    Request("create-queue-again", Case.has_message, _put_queue, _nothing, (200,), (200,)),
    Request("create-deleted-queue", Case.has_buried, _put_queue, _made, (201,), (200, 201)),
    Request("delete-queue", Case.has_fetched, _delete_queue, _queue_deleted, (200,), (200, 404)),
    Request("purge", Case.has_message, _purge, _purged, (202,), (202,)),
    Request("purge-fetched", Case.has_fetched, _purge, _purged, (202,), (202,)),
    Request("purge-again", Case.has_purged, _purge, _purged, (202,), (202,)),
    Request("configure", Case.has_message, _configure, _nothing, (200,), (200,)),
    Request("read-settings", Case.has_configured, _read_settings, _nothing, (200,), (200,)),
    Request("restore-settings", Case.has_configured, _restore, _nothing, (200,), (200,)),
    Request(
        "put-schedule", Case.has_queue, _put_schedule("again"), _schedule_put, (201,), (200, 201)
    ),
    Request(
        "replace-schedule", Case.has_schedule, _put_schedule("again"), _schedule_put, (200,), (200,)
    ),
    Request(
        "put-schedule-again", Case.has_schedule, _put_schedule("first"), _nothing, (200,), (200,)
    ),
    Request(
        "delete-schedule", Case.has_schedule, _delete_schedule, _schedule_deleted, (200,),
        (200, 404),
    ),
    Request("read-schedule", Case.has_schedule, _read_schedule, _nothing, (200,), (200,)),
    Request("list-groups", Case.has_schedule, _list_groups, _nothing, (200,), (200,)),
    Request("list-schedules", Case.has_schedule, _list_schedules, _nothing, (200,), (200,)),
    Request(
        "delete-queue-with-schedule", Case.has_schedule, _delete_queue, _queue_deleted, (200,),
        (200, 404),
    ),
    Request("describe-queue", Case.has_fetched, _describe, _nothing, (200,), (200,)),
    Request("read-ready", Case.has_message, _read, _fetched, (200,), (200,)),
    Request("read-streamed", Case.has_fetched, _read, _fetched, (200,), size=STREAMED_BYTES),
    Request("read-removed", Case.has_deleted, _read, _fetched, (200,), (200,)),
    Request("peek", Case.has_fetched, _peek, _seen, (200,), (200,)),
    Request("readyz", Case.has_queue, _readyz, _nothing, (200,), (200,)),
)  # fmt: skip


async def background_ends(server: Server) -> None:
    """Waits for what goes on after an answer."""
    await comes_true(lambda: not background_work(server), "the background's end")


async def drain(server: Server, queue: str) -> list[bytes]:
    """Brings back what was fetched, then fetches and deletes all, of the queue's sideline too; the
    bodies.
    """
    sidelined = f"{queue}_SIDELINE"
    bodies = await _drain(server, queue)
    if (server.root / "queues" / sidelined).exists():
        bodies += await _drain(server, sidelined)
    return bodies


async def _drain(server: Server, queue: str) -> list[bytes]:
    opened = looked_at(server.root)
    top = server.root / "delay"
    for path in list(files_below(top)):
        if path.name.startswith(f"{queue}:"):
            name, message_id, bucket = parse_delayed(path.relative_to(top).as_posix())
            back = redeliver(opened, name, message_id, Timer(lain_s=0), bucket)
            run_alone(back, NoFlusher())
    bodies = []
    while (reply := await fetch(server, queue)).status == 200:
        bodies.append(reply.body)
        assert (await delete(server, reply.id, queue)).status == 202
    assert reply.status in (204, 404)
    return bodies
