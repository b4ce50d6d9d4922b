"""mq-mover and histories: what it writes, and what it sweeps."""

import json
import os
from pathlib import Path

from harness.leases import LEASE_S, QUEUE, LeasingRoot
from harness.schedules import TimedRoot
from harness.upkeep import all_policies

from mq.model.history import Event
from mq.model.limits import SWEEP_EVERY_S
from mq.model.names import MessageId, QueueName
from mq.model.settings import HISTORY_KEPT_S_DEFAULT
from mq_mover.lapses import LeaseMover


def with_history(top: Path, queue: str, **more: object) -> None:
    settings = top / "settings" / f"{queue}.json"
    settings.write_text(json.dumps({"history": True, **more}))


def lines(top: Path, queue: str) -> list[dict[str, object]]:
    return [
        json.loads(line)
        for path in sorted((top / "history" / queue).glob("*/*"))
        for line in path.read_text().splitlines()
    ]


def test_a_lease_that_lapses_is_told_of(root: Path) -> None:
    place = LeasingRoot(root)
    with_history(root, QUEUE.text)
    (message_id,) = place.publish(1)
    place.claimed()
    place.pass_s(LEASE_S)
    assert LeaseMover(place.root, place.flusher).run_once() == 1
    told = [(line["event"], line["receives"]) for line in lines(root, QUEUE.text)]
    assert told[-2:] == [("leased", 1), ("redelivered", 1)]
    assert lines(root, QUEUE.text)[-1]["id"] == message_id.text


def test_what_a_schedule_publishes_is_told_of(root: Path) -> None:
    place = TimedRoot(root)
    with_history(root, QUEUE.text)
    place.put()
    place.pass_s()
    assert place.scheduler().run_once() == 1
    (line,) = lines(root, QUEUE.text)
    assert (line["event"], line["id"]) == ("published", place.ready()[0].text)


def test_histories_are_swept_also_of_queues_that_are_gone(root: Path) -> None:
    place = LeasingRoot(root)
    with_history(root, QUEUE.text, history_kept_s=30 * 24 * 3600)
    with_history(root, "gone")
    message_id = MessageId(place.uuids.next())
    for name in (QUEUE.text, "gone"):
        place.root.history.record(QueueName(name), Event.PUBLISHED, message_id, 0)
    (root / "settings" / "gone.json").unlink()
    (root / "history" / "notes of ours").mkdir()
    sweeper = all_policies(place.root, place.flusher)
    sweeper.run_once()
    assert lines(root, "gone")
    place.pass_s(HISTORY_KEPT_S_DEFAULT + SWEEP_EVERY_S)
    for path in (root / "history").glob("*/*/*"):
        then_s = place.clock.now_ms() / 1000 - HISTORY_KEPT_S_DEFAULT - 1
        os.utime(path, (then_s, then_s))
    sweeper.run_once()
    place.pass_s(SWEEP_EVERY_S)
    sweeper.run_once()
    assert lines(root, QUEUE.text)
    assert not (root / "history" / "gone").exists()
    assert (root / "history" / "notes of ours").exists()
