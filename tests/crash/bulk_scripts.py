"""Bulk publishes, each in a script like those of `scripts.py`: tasks, a driver, and who comes after
one that died.
"""

from collections.abc import Callable

from crash.registry import BUCKETS, FLAT, script
from crash.stage import ORDERS, SOON_S, Stage
from harness.messages import make_body

from mq.model.errors import StagedFileGone
from mq.model.headers import parse_block, tags_in
from mq.model.names import Key, MessageId, QueueName, UuidSource
from mq.store.bulk.journal import abort, begin_publish, commit, read_journal
from mq.store.bulk.roll_forward import roll_all_forward
from mq.store.bulk.rolling import Roller
from mq.store.bulk.staging import Staged, StagingWriter
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import Attempt, JournalFile, journal_path

JOB = "0123456789abcdef0123456789abcdef"
NAME = Key.parse("nightly")


class _Bulk:
    """One publish of two partitions with a message each; a third attempt loses."""

    def __init__(
        self,
        on: Stage,
        *,
        key: str = "",
        is_scheduled: bool = False,
        in_folds: bool = False,
        head: bytes = b"",
    ) -> None:
        self._on = on
        self._in_folds = in_folds
        self._key = key
        self._head = head
        self._is_scheduled = is_scheduled
        self._facts: list[tuple[str, int, int]] = []

    async def publish(self, then: Callable[[Root, FsyncFlusher], object]) -> list[str]:
        """By tasks and a driver, and what comes then; the ids of what was published."""
        mark = self._on.disk.mark

        def work(root: Root, flusher: FsyncFlusher) -> None:
            staged = self._stage(root, flusher)
            mark("publish_asked", queue=ORDERS, key=self._key, idempotency="")
            mark("bulk_asked", ids=[message_id for message_id, _, _ in self._facts])
            run_alone(commit(root, JOB, staged, NAME), flusher)
            for message_id, number, due_ms in self._facts:
                mark("published", queue=ORDERS, id=message_id, number=number, due_ms=due_ms)
            then(root, flusher)

        await self._on.other(work)
        return [message_id for message_id, _, _ in self._facts]

    async def give_up(self) -> None:
        """Staged, and given up; a task that comes late stages nothing."""

        def work(root: Root, flusher: FsyncFlusher) -> None:
            self._stage(root, flusher)
            self._on.known()
            assert abort(root, JOB, NAME)
            try:
                self._stage(root, flusher)
            except StagedFileGone:
                return
            raise AssertionError("a late task has staged its part")

        await self._on.other(work)

    def _stage(self, root: Root, flusher: FsyncFlusher) -> list[Staged]:
        run_alone(begin_publish(root, NAME), flusher)
        uuids = UuidSource(root.clock)
        found = []
        for number, attempt in enumerate((Attempt(0, 0), Attempt(0, 2), Attempt(1, 1))):
            has_key = self._key and attempt.partition == 0
            key = Key.parse(self._key) if has_key else None
            ttl_s = TTL_S if self._head else None
            tags = len(tags_in(parse_block(self._head)))
            message_id = MessageId(
                uuids.next(), 0, key, None, len(self._head), ttl_s=ttl_s, tags=tags
            )
            is_later = self._is_scheduled and attempt.partition == 1
            due_ms = root.now_ms() + SOON_S * 1000 if is_later else None
            with StagingWriter(root, JOB, attempt, "fsync") as writer:
                body = make_body(100 + number, 300)
                if self._in_folds:
                    uuids_of = (message_id.uuid,)
                    writer.put_alike(QueueName(ORDERS), message_id, uuids_of, (body,), True)
                else:
                    writer.put(QueueName(ORDERS), message_id, body, self._head, due_ms)
                staged = writer.finish()
            if number > 0:
                self._facts.append((message_id.text, 100 + number, due_ms or 0))
                found.append(staged)
        return found


TTL_S = 30 * 24 * 3600
HEAD = b"X-Message-Tags: a, b\n"


@script()
async def publish_in_bulk_with_a_key_and_for_later(on: Stage) -> None:
    await on.begin(ORDERS)
    ids = await _Bulk(on, key="night", is_scheduled=True).publish(
        lambda root, _: roll_all_forward(root)
    )
    await on.clients.delete(ids[0])
    await on.clients.publish_keyed(300, key="night")


@script(FLAT, BUCKETS)
async def publish_in_bulk_with_entries(on: Stage) -> None:
    """One with a key, and one that a process that died has moved and not flushed: an audit reports
    a living message without its entries.
    """
    await on.begin(ORDERS)

    def roll_twice(root: Root, _: FsyncFlusher) -> None:
        on.known()
        _roll(root)
        roll_all_forward(root)

    ids = await _Bulk(on, key="night", head=HEAD).publish(roll_twice)
    await on.clients.delete(ids[1])


@script(FLAT, BUCKETS)
async def roll_forward_what_another_has(on: Stage) -> None:
    """Which died before the journal's end."""
    await on.begin(ORDERS)

    def roll_twice(root: Root, _: FsyncFlusher) -> None:
        on.known()
        _roll(root)
        roll_all_forward(root)

    ids = await _Bulk(on).publish(roll_twice)
    await on.clients.delete(ids[1])


def _roll(root: Root) -> None:
    journal = read_journal(root, journal_path(root.layout, NAME, JournalFile.JOURNAL))
    assert journal is not None
    Roller(root, journal).run()


@script()
async def roll_folds_forward(on: Stage) -> None:
    """The first goes to its place whole, which the second finds taken."""
    await on.begin(ORDERS)

    def roll(root: Root, _: FsyncFlusher) -> None:
        _roll(root)
        roll_all_forward(root)

    ids = await _Bulk(on, in_folds=True).publish(roll)
    await on.clients.delete(ids[0])


@script()
async def roll_folds_forward_that_another_has(on: Stage) -> None:
    """Which died before the journal's end."""
    await on.begin(ORDERS)

    def roll_twice(root: Root, _: FsyncFlusher) -> None:
        on.known()
        _roll(root)
        roll_all_forward(root)

    ids = await _Bulk(on, in_folds=True).publish(roll_twice)
    await on.clients.delete(ids[1])


@script()
async def give_up_a_bulk(on: Stage) -> None:
    await on.begin(ORDERS)
    await _Bulk(on).give_up()
    await on.clients.publish(300)


@script(FLAT, BUCKETS)
async def delete_the_queue_of_a_bulk(on: Stage) -> None:
    await on.begin(ORDERS)
    await _Bulk(on).publish(lambda *_: on.known())
    await on.clients.drop(ORDERS)
    await on.clients.make(ORDERS)
    await on.other(lambda root, _: roll_all_forward(root))
    await on.clients.publish(300)
