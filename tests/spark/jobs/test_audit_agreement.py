"""The audit's tasks and fsck, on the same broken roots: both find the same, kind by kind, where it
is. Without Spark: the steps that Spark maps, one after the other.
"""

import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from harness.checking import checked
from harness.damage.by_chance import DAMAGES, Damage, Lived
from harness.damage.each_breach import BREACHES, Place, lay_out_all_that_is_allowed
from harness.messages import new_id, put_file
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.model.names import MessageId, QueueName
from mq.spark.jobs.audit import looked_around
from mq.spark.jobs.audit_findings import COUNTED, FOREIGN, Finding
from mq.spark.jobs.audit_tasks import Counted, Looking, Task, compared, packed, unpacked
from mq.store.audit.findings import Breach
from mq.store.audit.folders import FolderAuditor
from mq.store.core.root import Root
from mq.store.format.bucket_names import IN_COMMON, Shape
from mq.store.scan.tally import OVERDUE_AFTER_S


def audited(
    root: Root, queues: tuple[QueueName, ...] | None = None, groups: int = 2
) -> tuple[list[Finding], Counted]:
    """What a driver and its tasks find, of the breaches that fsck knows."""
    task = Task(root.layout.root, OVERDUE_AFTER_S, 0, queues, groups=groups)
    auditor = FolderAuditor(root, OVERDUE_AFTER_S, queues)
    driver = Looking(task, root)
    mine, _ = looked_around(auditor, driver)
    screened = [
        batch
        for at in range(2)
        for batch in packed(Looking(task, root).screened(auditor.folders[at::2]))
    ]
    rows = list(unpacked(packed(compared(unpacked(screened), 1))))
    counted = Counted()
    for what, _, said in rows:
        if what == COUNTED:
            counted.add(said)
    found = Looking(task, root).confirmed(row for row in rows if row[0] != COUNTED)
    again = [Finding.of(each) for each in driver.again(mine, auditor, lambda _: None)]
    counted.amounts.add(auditor.amounts)
    return [*found, *again], counted


def assert_agree(root: Root, queues: tuple[QueueName, ...] = ()) -> None:
    by_fsck = checked(root, queues=queues)
    found, counted = audited(root, queues or None)
    told = Counter((each.kind, each.path) for each in found if each.kind != FOREIGN)
    expected = Counter(
        (each.violation.breach.name.lower(), each.violation.path)
        for each in by_fsck.remaining.examples
    )
    assert told == expected
    assert counted.amounts.messages == by_fsck.amounts.messages
    assert counted.amounts.of_queues == by_fsck.amounts.of_queues
    if not queues:
        assert counted.amounts.foreign == by_fsck.amounts.foreign
        assert counted.amounts.hidden == by_fsck.amounts.hidden
        assert counted.amounts.lost == by_fsck.amounts.lost


@pytest.mark.parametrize(
    ("breach", "damage"),
    BREACHES,
    ids=[f"{at}-{breach.name}" for at, (breach, _) in enumerate(BREACHES)],
)
def test_each_breach_is_found_as_fsck_finds_it(
    root: Path, breach: Breach, damage: Callable[[Place], Path]
) -> None:
    place = Place(root)
    damage(place)
    found, _ = audited(place.root)
    assert breach.name.lower() in {each.kind for each in found}
    assert_agree(place.root)


def test_a_root_as_mq_leaves_it_is_clean(root: Path) -> None:
    place = Place(root)
    lay_out_all_that_is_allowed(place)
    assert audited(place.root)[0] == []
    assert_agree(place.root)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=7), st.integers(0, 2**32))
def test_what_chance_breaks_is_found_by_both(damages: list[Damage], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lived = Lived(Path(folder) / "root", Random(seed))
        for damage in damages:
            damage(lived)
        assert_agree(lived.place.root)
        assert_agree(lived.place.root, (QueueName("orders"),))


def test_every_shape_of_folders_and_ids_is_clean(root: Path) -> None:
    """Buckets of all kinds, split among tasks or not; then each message a bucket too far."""
    place = Place(root)
    shapes = {"orders": Shape(), "sharded": Shape(9, 4), "wide": Shape(7)}
    put = []
    for name, shape in shapes.items():
        if name != "orders":
            place.folder(f"queues/{name}")
        if shape != Shape():
            fields = {"bucket": shape.digits, "shards": shape.shards}
            put_file(root / "settings" / f"{name}.json", json.dumps(fields).encode())
        for end in ("", ",p=3", ",v=30", ".json", ",p=9,v=5.csv"):
            message_id = MessageId.parse(f"{new_id().text}{end}")
            for bucket in ("", shape.bucket(message_id), shape.deep(message_id)):
                uuid = message_id.uuid
                again = message_id.with_uuid(uuid[:24] + new_id().uuid[24:32] + uuid[32:])
                put.append(lay(place, f"queues/{name}/{bucket}{again.text}"))
    for state, more in (("delay", ""), ("remove", ""), ("remove", f"orders:{new_id().text}.d/")):
        for at in range(3):
            uuid = new_id().text
            deep = IN_COMMON.deep(MessageId.parse(uuid))
            bucket = ("", deep[:9], deep)[at]
            entry = uuid if more else f"orders:{uuid}"
            put.append(lay(place, f"{state}/{more}{bucket}{entry}"))
    found, counted = audited(place.root)
    assert found == []
    assert sum(counted.amounts.messages.values()) == len(put)
    assert_agree(place.root)
    for path in put:
        if "SIDELINE" not in str(path) and ".d/" not in str(path):
            elsewhere = path.parent / "00000000" if len(path.parent.name) > 8 else path.parent
            elsewhere.mkdir(mode=0o700, exist_ok=True)
            path.rename(elsewhere / path.name)
    assert_agree(place.root)


def lay(place: Place, name: str) -> Path:
    path = place.top / name
    for folder in reversed(path.relative_to(place.top).parents[:-1]):
        (place.top / folder).mkdir(mode=0o700, exist_ok=True)
    put_file(path, b"x", place.clock.now_ms() + 60_000).chmod(0o600)
    return path
