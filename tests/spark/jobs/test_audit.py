"""The audit on a real Spark: what it finds, what it counts, what it reads, and beside daemons."""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.messages import put_file
from harness.packs import body_of, new_pack, put_pack
from pyspark.sql import SparkSession

from mq.model.clock import SystemClock
from mq.model.history import Event, Line
from mq.model.names import MessageId, QueueName, UuidSource
from mq.spark.jobs.archive_rows import ARCHIVE
from mq.spark.jobs.audit import audit, folders_of
from mq.spark.jobs.audit_bodies import checked_bodies
from mq.spark.jobs.audit_counts import Reconciled, counting_of, reconciled
from mq.spark.jobs.audit_findings import Audited, Balance
from mq.spark.jobs.audit_tasks import Task
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.history import Day, date_of, day_folder
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue
from mq.store.scan.tally import OVERDUE_AFTER_S

HOUR_MS = 3_600_000


class AnHourAgo(SystemClock):
    """Ids of messages that were published some time ago."""

    def now_ms(self) -> int:
        return super().now_ms() - HOUR_MS


@dataclass
class Kept:
    """A root whose queue has a history, with messages of half an hour ago."""

    top: Path
    root: Root = field(init=False)

    def __post_init__(self) -> None:
        clock = SystemClock()
        self.root = open_root(str(self.top), Files(), clock)
        run_alone(create_queue(self.root, QueueName("orders")), NoFlusher())
        run_alone(create_queue(self.root, QueueName("orders_SIDELINE")), NoFlusher())
        run_alone(create_queue(self.root, QueueName("plain")), NoFlusher())
        settings = put_file(
            self.top / "settings" / "orders.json", json.dumps({"history": True}).encode()
        )
        self._uuids = UuidSource(AnHourAgo())
        made_ms = clock.now_ms() - 2 * HOUR_MS
        os.utime(settings, ns=(made_ms * 10**6,) * 2)
        day = Path(day_folder(self.root.layout, Day("orders", date_of(clock.now_ms()))))
        day.mkdir(parents=True, mode=0o700)
        for folder in day.relative_to(self.top).parents[:-1]:
            (self.top / folder).chmod(0o700)
        self._lines = day / f"mq-{'0' * 16}.ndjson"
        self._lines.touch(0o600)

    def tell(self, event: Event, message_id: str) -> None:
        line = Line(self.root.now_ms() - HOUR_MS, event, message_id).written("mq-0")
        self._lines.write_bytes(self._lines.read_bytes() + line)

    def tell_torn(self) -> None:
        self._lines.write_bytes(self._lines.read_bytes() + b'{"time": "2026\n')

    def published(
        self, folder: str | None, *events: Event, body: bytes = b"x", more: str = ""
    ) -> str:
        """A message in a folder (None: gone), with lines of what became of it."""
        message_id = MessageId.parse(f"{self._uuids.next()}{more}")
        self.tell(Event.PUBLISHED, message_id.text)
        for event in events:
            self.tell(event, message_id.text)
        if folder is not None:
            name = message_id.text if folder.startswith("queues") else f"orders:{message_id.text}"
            (self.top / folder).mkdir(mode=0o700, exist_ok=True)
            put_file(self.top / folder / name, body, self.root.now_ms() + HOUR_MS).chmod(0o600)
        return message_id.text

    def packed(self, folder: str | None, items: int, *events: Event) -> MessageId:
        """Likewise a pack."""
        pack = new_pack(items, uuids=self._uuids)
        for event in (Event.PUBLISHED, *events):
            self.tell(event, pack.text)
        if folder is not None:
            name = pack.text if folder.startswith("queues") else f"orders:{pack.text}"
            put_pack(self.top / folder / name, pack, due_ms=self.root.now_ms() + HOUR_MS)
        return pack

    def counts(
        self, spark: SparkSession, archived: list[dict[str, Any]] | None = None
    ) -> Reconciled:
        task = Task(str(self.top), OVERDUE_AFTER_S, 0)
        kept = None if archived is None else spark.createDataFrame(archived, ARCHIVE)
        counting = counting_of(self.root, ["orders", "plain"])
        folders = folders_of(self.root, task)
        return reconciled(spark, self.root, task, counting, folders, kept)


def balance_of(found: Reconciled, queue: str = "orders") -> Balance:
    [balance] = [each for each in found.balances if each.queue == queue]
    return balance


def a_life(kept: Kept) -> dict[str, int]:
    kept.published("queues/orders")
    kept.published("queues/orders", Event.FETCHED, Event.RELEASED)
    kept.published("delay", Event.FETCHED)
    kept.published("leases/c.1", Event.LEASED)
    put_file(kept.top / "leases/c.1.json", b"{}", kept.root.now_ms() + HOUR_MS)
    kept.published("queues/orders_SIDELINE", Event.SIDELINED)
    kept.published("remove", Event.REMOVED)
    kept.published(None, Event.FETCHED, Event.REMOVED)
    kept.packed("queues/orders", 3)
    kept.packed("remove", 4, Event.FETCHED, Event.REMOVED)
    # One item of a parted pack was removed and reaped, the other is delayed.
    parted = kept.packed(None, 2, Event.FETCHED, Event.PARTED)
    kept.tell(Event.REMOVED, parted.item(1).text)
    put_file(kept.top / f"delay/orders:{parted.item(2).text}", b"x", kept.root.now_ms() + HOUR_MS)
    return {
        "published": 7 + 3 + 4 + 2, "ready": 2 + 3, "delayed": 1 + 1, "leased": 1, "sidelined": 1,
        "removed": 1 + 4, "reaped": 1 + 1,
    }  # fmt: skip


def test_counts_reconcile_differ_or_are_unknown(spark: SparkSession, root: Path) -> None:
    kept = Kept(root)
    lived = a_life(kept)
    found = kept.counts(spark)
    assert balance_of(found).outcome == "reconciled"
    assert balance_of(found).figures == lived
    assert balance_of(found, "plain").outcome == "unknown"
    assert "off" in balance_of(found, "plain").why
    # One that nobody has removed, and that is nowhere; and one that only the archive has.
    lost, stored = kept.published(None), kept.published(None, Event.FETCHED)
    row = {"id": stored, "queue": "orders", "damaged": False}
    assert balance_of(kept.counts(spark, [row])).outcome == "differs"
    gone = kept.packed(None, 2)
    found = kept.counts(spark, [row])
    more = {"published": lived["published"] + 4, "archived": 1, "nowhere": 3}
    assert balance_of(found).figures == lived | more
    assert {(each.kind, each.path, each.queue) for each in found.findings} == {
        ("counts", each, "orders") for each in (lost, gone.item(1).text, gone.item(2).text)
    }
    # Where lines are missing nothing is proved.
    kept.tell_torn()
    torn = kept.counts(spark, [row])
    assert (balance_of(torn).outcome, torn.findings) == ("unknown", ())
    assert "torn" in balance_of(torn).why


def test_what_has_no_line_makes_counts_unknown(spark: SparkSession, root: Path) -> None:
    kept = Kept(root)
    kept.published("queues/orders")
    lineless = MessageId(UuidSource(AnHourAgo()).next()).text
    put_file(root / "queues/orders" / lineless, b"x", kept.root.now_ms())
    found = kept.counts(spark)
    assert balance_of(found).outcome == "unknown"
    assert "1 messages have no line" in balance_of(found).why


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_bodies_are_held_against_their_digests(spark: SparkSession, root: Path) -> None:
    kept = Kept(root)
    right, wrong = (
        f"x-attribute-sha256: {sha256(said)}\n".encode() for said in (b"body", b"another")
    )
    kept.published("queues/orders", body=right + b"body", more=f",h={len(right)}")
    bad = kept.published("queues/orders", body=wrong + b"body", more=f",h={len(wrong)}")
    same = kept.published("remove", Event.REMOVED, body=b"same")
    other = kept.published("remove", Event.REMOVED, body=b"changed")
    gone = kept.published(None)
    archive = root.parent / "archive"
    (archive / "_bodies").mkdir(parents=True)
    (archive / "_bodies/large").write_bytes(b"large")
    common = {"queue": "orders", "damaged": False}
    rows = [
        {**common, "id": same, "value": b"same", "sha256": sha256(b"same")},
        {**common, "id": other, "value": b"first", "sha256": sha256(b"first")},
        {**common, "id": gone, "value": b"torn", "sha256": sha256(b"whole")},
        {**common, "id": f"{gone[:-1]}0", "body": "_bodies/large", "sha256": sha256(b"large")},
        {**common, "id": f"{gone[:-1]}1", "body": "_bodies/large", "sha256": sha256(b"l")},
        {**common, "id": f"{gone[:-1]}2", "body": "_bodies/none", "sha256": sha256(b"l")},
    ]
    pack = kept.packed("remove", 3, Event.REMOVED)
    for item in pack.all_items():
        says = sha256(body_of(item)) if item.place > 1 else sha256(b"another")
        rows.append({**common, "id": item.text, "sha256": says})
    task = Task(str(root), OVERDUE_AFTER_S, 0)
    archived = spark.createDataFrame(rows, ARCHIVE)
    count, found = checked_bodies(spark, task, folders_of(kept.root, task), archive, archived)
    assert count == 2 + 2 + 3 + 3 + 3
    assert sorted((each.kind, each.path) for each in found) == sorted(
        [
            ("digest", f"{root}/queues/orders/{bad}"),
            ("digest", f"{root}/remove/orders:{other}"),
            ("digest", f"{root}/remove/orders:{pack.text}"),
            ("digest", f"{archive}/queue=orders {gone}"),
            ("digest", f"{archive}/_bodies/large"),
            ("storage", f"{archive}/_bodies/none"),
        ]
    )


def test_a_root_is_audited_and_findings_are_written(spark: SparkSession, root: Path) -> None:
    kept = Kept(root)
    lived = a_life(kept)
    clean = audit(spark, root, again_after_s=0)
    assert clean.is_clean, clean.examples
    assert clean.facts()["outcome"] == "clean"
    assert dict(clean.balances[0].figures) == lived
    kept.published("queues/orders")
    odd = next((root / "queues/orders").iterdir())
    os.link(odd, root / "delay" / f"orders:{odd.name}")
    for number in range(3):
        put_file(root / "delay" / f"torn~{number}", b"")
    (root / "settings" / "unheard-of.json").write_bytes(b"{}")
    (root / "settings" / "unheard-of.json").chmod(0o600)
    found = audit(spark, root, again_after_s=0, examples=2, to=root.parent / "found", bodies=True)
    assert found.kinds == {"two_states": 1, "linked": 2, "foreign": 3, "settings": 1}
    assert found.bodies == 0
    written = spark.read.parquet(str(root.parent / "found")).groupBy("kind").count().collect()
    assert {row["kind"]: row["count"] for row in written} == found.kinds
    assert len([each for each in found.examples if each.kind == "foreign"]) == 2
    assert_told(found)
    narrow = audit(spark, root, again_after_s=0, queues=[QueueName("plain")], is_by_name=True)
    assert narrow.is_clean, narrow.examples


def assert_told(found: Audited) -> None:
    lines = list(found.lines())
    assert any("and 1 more" in line for line in lines)
    assert any("mqctl fsck --repair" in line for line in lines)
    assert lines[-1].endswith("7 findings")
    json.dumps(found.facts())
