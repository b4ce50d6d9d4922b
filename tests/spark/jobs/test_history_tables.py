"""Every figure of a history against a model of loops: by an archive, by inodes, by lines, by all of
them at once, and by none.
"""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from harness.clock import FakeClock
from harness.history_tables_model import Message, Model, Told
from harness.messages import ctime_ms, put_file
from pyspark.sql import DataFrame, SparkSession

from mq.model.clock import SystemClock
from mq.model.errors import QueueNotFound
from mq.model.history import Event, Line, dropped
from mq.model.names import MessageId, QueueName
from mq.spark.jobs.archive_rows import ARCHIVE, FILE_SCHEMA
from mq.spark.jobs.history import History, history
from mq.spark.jobs.history_cells import BadSpan, steps_between
from mq.spark.jobs.history_folder import TABLES, FolderTaken
from mq.store.disk.files import Files
from mq.store.format.history import date_of
from mq.store.opening import open_root

STEP_S = 600
HOUR_MS = 3_600_000
PROCESS = "mq-0123456789abcdef"
DROPPED = 7


class Past:
    """A root, an archive's rows, and the messages that both are of."""

    def __init__(self, top: Path, seed: int) -> None:
        self.top = top
        self.chance = random.Random(seed)
        open_root(str(top), Files(), SystemClock())
        self.now_ms = SystemClock().now_ms()
        self.begun_ms = self.now_ms - 3 * HOUR_MS
        self.messages: list[Message] = []
        self.archived: list[dict[str, Any]] = []
        self.number = 0

    def message(self, queue: str, published_ms: int | None = None, items: int = 0) -> Message:
        """A message published at that time, or any of the last hours; in no source yet. With
        `items` a pack, until `unpack`.
        """
        if published_ms is None:
            published_ms = self.chance.randrange(self.begun_ms, self.now_ms - HOUR_MS // 2)
        self.number += 1
        uuid = f"{published_ms >> 16:08x}-{published_ms & 0xFFFF:04x}-7000-8000-{self.number:012x}"
        made = MessageId(uuid, priority=self.chance.choice((0, 0, 3, 9)), items=items)
        message = Message(queue, made.text, made.priority, published_ms)
        self.messages.append(message)
        return message

    def unpack(self, pack: Message) -> None:
        """What the sources have of the pack is of each of its items."""
        self.messages.remove(pack)
        ids = MessageId.parse(pack.id).all_items()
        size = None if pack.size is None else pack.size // len(ids)
        self.messages += [replace(pack, id=each.text, size=size) for each in ids]

    def lies(self, message: Message, state: str) -> None:
        """Its file is there, in this state."""
        message.state = state
        message.receives = self.chance.choice((0, 1, 2, 999))
        due_ms = min(message.published_ms + 60_000, self.now_ms)
        name = f"{message.queue}:{message.id}"
        aside = self.top / "queues" / f"{message.queue}_SIDELINE"
        lease = self.top / "leases" / "etl.1"
        acknowledged_ms = self.now_ms - 90_000
        path = {
            "ready": self.top / "queues" / message.queue / message.id,
            "sidelined": aside / message.id,
            "delayed": self.top / "delay" / name,
            "leased": lease / name,
            "removed": self.top / "remove" / name,
            "acknowledged": self.top / "remove" / f"etl.1:{_uuid(acknowledged_ms)}.l" / name,
            "deleted": self.top / "remove" / f"{message.queue}:{_uuid(due_ms)}.d" / message.id,
        }[state]
        for folder in (self.top / "queues" / message.queue, path.parent):
            if state != "deleted" or folder == path.parent:
                folder.mkdir(mode=0o700, exist_ok=True)
        if message.size is None:
            message.size = self.chance.choice((0, 1, 2, 3, 100, 5000))
        put_file(path, b"x" * message.size, due_ms, message.receives)
        if state == "sidelined":
            message.aside_ms = due_ms
        if state in ("removed", "acknowledged", "deleted"):
            message.state = "removed"
            message.inode_removed_ms = {
                "removed": ctime_ms(path), "acknowledged": acknowledged_ms, "deleted": due_ms,
            }[state]  # fmt: skip
        if state == "acknowledged":
            message.receives = min(message.receives + 1, 999)

    def archive(self, message: Message, lasted_ms: int, *, with_lines: bool) -> None:
        """It is in the archive, removed so long after it was published."""
        message.archived_ms = message.published_ms + lasted_ms
        message.archived_receives = self.chance.choice((0, 1, 999))
        if message.size is None:
            message.size = self.chance.choice((0, 7, 64, 100_000))
        lines = [
            {"time": _time(told.at), "event": told.event, "receives": told.receives}
            for told in message.lines
        ]
        self.archived.append(
            {
                "id": message.id,
                "priority": message.priority,
                "published": _time(message.published_ms),
                "removed": _time(message.archived_ms),
                "removal": "message",
                "receives": message.archived_receives,
                "size": message.size,
                "damaged": False,
                "events": lines if with_lines else None,
                "queue": message.queue,
            }
        )

    def live(self, message: Message) -> int:
        """Lines of a life: when it was removed."""
        at = message.published_ms + self.chance.randrange(3)
        message.lines.append(Told(at, "published", 0))
        for receives in range(1, self.chance.randrange(1, 4)):
            at += round(math.exp(self.chance.uniform(0, 13)))
            message.lines.append(Told(at, self.chance.choice(("fetched", "leased")), receives))
            if self.chance.random() < 0.5:
                message.lines.append(Told(at + 5, "redelivered", receives))
        return min(at + self.chance.randrange(1, 100_000), self.now_ms - 1)

    def write(self, message: Message, more: str = "") -> None:
        """Its lines are in its queue's history; `more` behind them."""
        for told in message.lines:
            line = Line(told.at, Event(told.event), message.id, told.receives)
            self.append(message.queue, told.at, line.written(PROCESS).decode() + more)

    def append(self, queue: str, at: int, text: str) -> None:
        folder = self.top / "history" / queue / date_of(at)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (folder / f"{PROCESS}.ndjson").open("a") as file:
            file.write(text)

    def rows(self, spark: SparkSession) -> DataFrame:
        """The archive."""
        names = [*FILE_SCHEMA.names, "queue", "day"]
        rows = [tuple(row.get(name) for name in names) for row in self.archived]
        return spark.createDataFrame(rows, ARCHIVE)


def by_all(made: Past) -> None:
    """A message that all sources know, one way or another, of a history that is on."""
    message = made.message("all")
    removed_at = made.live(message)
    fate = made.chance.randrange(6)
    if fate < 3:
        message.lines.append(Told(removed_at, "removed", 1))
        made.archive(message, removed_at - message.published_ms, with_lines=fate == 0)
        if fate == 2:
            made.lies(message, "removed")
    elif fate == 3:
        message.lines.append(Told(removed_at, "sidelined"))
        made.lies(message, "sidelined")
    else:
        made.lies(message, made.chance.choice(("ready", "delayed", "leased")))
    if fate == 1:  # Was sidelined, and came back.
        message.lines.append(Told(message.published_ms + 8, "sidelined"))
        message.lines.append(Told(message.published_ms + 9, "shovelled"))
    if fate == 2:  # Was sidelined, and removed from there.
        message.lines.append(Told(removed_at - 1, "sidelined"))
    made.write(message)


def past(top: Path) -> Past:
    """Queues of which each source knows something, and another nothing."""
    made = Past(top, 1)
    for _ in range(60):
        by_all(made)
    (top / "settings" / "all.json").write_text(json.dumps({"history": True}))
    for state in ("ready", "delayed", "leased", "removed", "acknowledged", "sidelined") * 5:
        made.lies(made.message("inodes"), state)
    for _ in range(5):
        made.lies(made.message("deleted"), "deleted")
    for _ in range(300):  # Enough that latencies share a place in their histogram.
        lasted_ms = round(math.exp(made.chance.uniform(0, 14)))
        made.archive(made.message("archive"), lasted_ms, with_lines=False)
    for published_ms in (made.now_ms - 1, made.now_ms - HOUR_MS):  # By a clock that is ahead.
        made.archive(made.message("archive", published_ms), -5000, with_lines=False)
    for _ in range(30):  # Lines alone, and not of all ends; of a history that is off.
        message = made.message("lines")
        removed_at = made.live(message)
        if made.chance.random() < 0.8:
            message.lines.append(Told(removed_at, "removed", 1))
        made.write(message, made.chance.choice(("", '{"time": "2026-01-01T0\n', "null\n[3]\n")))
    for items in (2, 3, 100):
        for state in ("ready", "delayed", "leased", "removed", "acknowledged", "sidelined"):
            made.lies(pack := made.message("inodes", items=items), state)
            made.unpack(pack)
        pack = made.message("lines", items=items)
        pack.lines.append(Told(made.live(pack), "removed", 1))
        made.write(pack)
        made.unpack(pack)
    # In the first step, which begins with the first message.
    first_ms = min(message.published_ms for message in made.messages)
    made.append("lines", first_ms, dropped(first_ms, DROPPED, PROCESS).decode())
    made.append("lines", first_ms, '{"time": "yesterday", "event": "removed", "id": "x"}\n')
    (top / "queues" / "nothing").mkdir(mode=0o700)
    return made


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Past:
    return past(tmp_path_factory.mktemp("a [root]") / "root")


@pytest.fixture(scope="module")
def written(
    spark: SparkSession, made: Past, tmp_path_factory: pytest.TempPathFactory
) -> tuple[History, Path]:
    clock = FakeClock()
    made.now_ms = clock.now_ms() + 10  # Behind all that its files say.
    clock.set_ms(made.now_ms)
    to = tmp_path_factory.mktemp("history") / "to"
    done = history(
        spark, made.top, to, archive=made.rows(spark), step_s=STEP_S, clock=clock, render=drawn
    )
    return done, to


def drawn(tables: "Any", made_at: datetime) -> str:
    counts = {name: len(rows) for name, rows in tables.items()}
    return json.dumps([counts, made_at.timestamp()])


@pytest.fixture(scope="module")
def models(made: Past, written: tuple[History, Path]) -> dict[str, Model]:
    firsts = [message.published_ms for message in made.messages]
    steps = steps_between(min(firsts), made.now_ms + 1, STEP_S)
    removals = [message.archived_ms or message.inode_removed_ms for message in made.messages]
    # Those of lines alone go with their lines.
    removals_ms = min(max(ms, 0) for ms in removals if ms is not None)
    found = {}
    for queue in ("all", "archive", "deleted", "inodes", "lines", "nothing"):
        messages = [message for message in made.messages if message.queue == queue]
        at = [told.at for message in messages for told in message.lines]
        last = {"all": made.now_ms}.get(queue, max(at, default=0))
        drops = frozenset({0} if queue == "lines" else ())
        # A line of a publish tells from that on.
        at += [each.published_ms for each in messages if each.last("published") is not None]
        lines = (min(at), last) if at else None
        found[queue] = Model(queue, messages, steps, made.now_ms, removals_ms, lines, drops)
    return found


def table(written: tuple[History, Path], name: str) -> list[tuple[Any, ...]]:
    """Its rows, with times in milliseconds."""
    rows = pq.read_table(written[1] / name / "rows.parquet").to_pylist()
    assert len(rows) == written[0].rows[name]
    return [tuple(map(_ms, row.values())) for row in rows]


@pytest.mark.parametrize("name", ["rates", "backlog", "receives", "sizes"])
def test_tables_are_as_the_model_says(
    written: tuple[History, Path], models: dict[str, Model], name: str
) -> None:
    expected = [row for model in models.values() for row in getattr(model, name)()]
    assert _sorted(table(written, name)) == _sorted(expected)


def test_latencies_are_those_of_messages(
    written: tuple[History, Path], models: dict[str, Model]
) -> None:
    found: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {queue: {} for queue in models}
    for queue, priority, what, start, step_s, *rest in table(written, "latencies"):
        assert step_s == STEP_S
        found[queue][priority, what, start] = tuple(rest)
    for queue, model in models.items():
        expected = model.latencies()
        known = {key for key, rest in found[queue].items() if rest[0]}
        assert known == set(expected)
        for key, latencies in expected.items():
            messages, mean_s, *quantiles, longest_s = found[queue][key]
            assert messages == len(latencies)
            assert mean_s == pytest.approx(sum(latencies) / messages / 1000)
            assert longest_s == latencies[-1] / 1000
            for share, got_s in zip((500, 900, 990, 999), quantiles, strict=True):
                exact = latencies[-(-messages * share // 1000) - 1]
                assert exact <= round(got_s * 1000) <= min(exact * (1 + 1 / 128), latencies[-1])
    unknown = {(queue, *key): rest[0] for queue in found for key, rest in found[queue].items()}
    assert unknown["inodes", None, "publish-to-first-fetch", None] is None
    assert unknown["nothing", None, "publish-to-removal", None] == 0


def test_queues_add_up(made: Past, written: tuple[History, Path], models: dict[str, Model]) -> None:
    rows = {row[0]: row[1:] for row in table(written, "queues")}
    assert {queue: set(row[0]) for queue, row in rows.items()} == {
        "all": {"archive", "inodes", "history"},
        "archive": {"archive"},
        "deleted": {"inodes"},
        "inodes": {"inodes"},
        "lines": {"history"},
        "nothing": {"inodes"},
    }
    backlogs = {row[0]: row[3:] for row in table(written, "backlog") if row[1] is None}
    for queue, model in models.items():
        _, first, _, published, removed, *states, size, oldest_s = rows[queue]
        of_state = [
            sum(life.state == state for life in model.lives)
            for state in ("ready", "delayed", "leased", "sidelined")
        ]
        assert states == of_state
        assert first == min((life.published for life in model.lives), default=None)
        if set(rows[queue][0]) == {"inodes"}:
            assert (published, removed) == (None, None)
        else:
            assert published == removed + sum(states) == len(model.lives)
        # At the end of the last step, a millisecond later.
        assert backlogs[queue][:2] == (sum(states[:3]), size)
        if oldest_s is not None:
            assert backlogs[queue][2] == pytest.approx(oldest_s + 0.001)
    assert written[0].messages == len(made.messages)
    assert written[0].dropped == DROPPED


def test_the_report_has_all_rows(made: Past, written: tuple[History, Path]) -> None:
    assert json.loads((written[1] / "report.html").read_text()) == [
        dict(written[0].rows), made.now_ms / 1000,
    ]  # fmt: skip
    assert set(written[0].rows) == set(TABLES)


def test_of_chosen_queues_and_a_chosen_span(
    spark: SparkSession, made: Past, models: dict[str, Model], tmp_path: Path
) -> None:
    clock = FakeClock()
    clock.set_ms(made.now_ms)
    since, until = (made.now_ms // 60_000 * 60_000 - ago for ago in (2 * HOUR_MS, HOUR_MS))
    done = history(
        spark,
        made.top,
        tmp_path / "to",
        archive=made.rows(spark),
        queues=[QueueName.parse("inodes_SIDELINE"), QueueName.parse("archive")],
        step_s=60,
        since=datetime.fromtimestamp(since / 1000, UTC),
        until=datetime.fromtimestamp(until / 1000, UTC),
        clock=clock,
    )
    assert done.queues == ("archive", "inodes")
    assert not (tmp_path / "to" / "report.html").exists()
    steps = steps_between(since, until, 60)
    for name in ("rates", "backlog", "receives", "sizes"):
        expected = [
            row
            for queue in done.queues
            for row in getattr(
                Model(queue, models[queue].messages, steps, made.now_ms,
                      models[queue].removals_ms, None), name
            )()
        ]  # fmt: skip
        assert _sorted(table((done, tmp_path / "to"), name)) == _sorted(expected), name
    with pytest.raises(QueueNotFound):
        history(spark, made.top, tmp_path / "to", queues=[QueueName.parse("nobody")], clock=clock)


def test_of_an_empty_root(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    open_root(str(root), Files(), SystemClock())
    before = sorted(root.rglob("*"))
    done = history(spark, root, tmp_path / "to")
    assert set(done.rows.values()) == {0}
    for name in TABLES:
        assert spark.read.parquet(str(tmp_path / "to" / name)).columns
    with pytest.raises(FolderTaken, match="lies in the root"):
        history(spark, root, root / "over-time")
    with pytest.raises(BadSpan, match="time zone"):
        history(spark, root, tmp_path / "to", since=datetime(2026, 1, 1))
    # It is only read.
    assert sorted(root.rglob("*")) == before


def _uuid(ms: int) -> str:
    return f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7000-8000-00000000ffff"


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1000, UTC).replace(microsecond=ms % 1000 * 1000)


def _ms(value: Any) -> Any:
    return round(value.timestamp() * 1000) if isinstance(value, datetime) else value


def _sorted(rows: "Any") -> "Iterator[Any] | list[Any]":
    return sorted(rows, key=lambda row: [(each is not None, each) for each in row])
