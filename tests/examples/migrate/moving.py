"""Moves messages: each is deleted at its source only once mq has it on stable media.

Each is published with a key that its source knows it by, as its Idempotency-Key. What was stored,
and could not be deleted at the source since this program or its connection ended between the two,
is therefore stored once, however often it is moved: as long as mq knows the key, which is a week.
"""

import argparse
import base64
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

from mq import Client
from mq.client.errors import ClientError, Refused, TooLarge
from mq.client.values import NewMessage

REMEMBERED_S = 7 * 24 * 3600
PAUSE_S = 1.0


@dataclass(frozen=True)
class Taken:
    """A message that the source has given us, and keeps until it is settled."""

    name: str
    """What the source knows it by."""
    handle: Any
    """What settles it there."""
    message: NewMessage
    is_set_aside: bool = False
    """It goes to the queue's sideline."""


class Source(Protocol):
    """A queue that is to become empty."""

    def take(self) -> list[Taken]:
        """The next messages, in their order; none where there is nothing within a second or so."""

    def settle(self, taken: Sequence[Taken]) -> None:
        """Deletes these. Raises where the source says that one is still there."""

    def give_back(self, taken: Sequence[Taken]) -> None:
        """Lets go of these, which stay there."""

    def left(self) -> int:
        """How many there are, as far as the source tells, with those that others have."""


@dataclass
class Report:
    """What came of it."""

    moved: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    """Why mq does not take them, by their names at the source."""
    left: int = 0


class Mover:
    """Moves what a source has to a queue of mq."""

    def __init__(self, source: Source, client: Client, queue: str, at_once: int = 1) -> None:
        """`at_once`: so many publishes go on at a time; with more than one, order is given up."""
        self._source = source
        self._client = client
        self._queue = queue
        self._at_once = at_once
        self._prepared: set[str] = set()
        self.report = Report()

    def run(self, idle_s: float) -> Report:
        """Moves until nothing more came for so long. Raises ClientError where mq cannot store what
        it might store later; all that is not stored is still at the source then.
        """
        self._prepare(self._queue)
        moved_at = time.monotonic()
        while time.monotonic() < moved_at + idle_s:
            if self._move(self._source.take()):
                moved_at = time.monotonic()
        self.report.left = self._source.left()
        return self.report

    def _move(self, taken: Sequence[Taken]) -> bool:
        """Whether any of these was moved."""
        known = [each for each in taken if each.name in self.report.refused]
        fresh = [each for each in taken if each.name not in self.report.refused]
        before = self.report.moved
        for queue, part in self._parted(fresh):
            self._prepare(queue)
            for at in range(0, len(part), self._at_once):
                self._publish(queue, part[at : at + self._at_once])
        self._source.give_back(known)
        if known and not fresh:
            time.sleep(PAUSE_S)  # The source has nothing else.
        if self.report.moved == before:
            return False
        print(f"moved {self.report.moved}", flush=True)
        return True

    def _parted(self, taken: Sequence[Taken]) -> list[tuple[str, list[Taken]]]:
        ready = [each for each in taken if not each.is_set_aside]
        aside = [each for each in taken if each.is_set_aside]
        parts = ((self._queue, ready), (f"{self._queue}_SIDELINE", aside))
        return [(queue, part) for queue, part in parts if part]

    def _publish(self, queue: str, taken: Sequence[Taken]) -> None:
        try:
            told = self._client.queue(queue).publish_many(
                [each.message for each in taken], concurrency=self._at_once
            )
        except ValueError as error:  # The client refuses a message before it sends any.
            if len(taken) > 1:
                for each in taken:
                    self._publish(queue, [each])
            else:
                self.report.refused[taken[0].name] = str(error)
                self._source.give_back(taken)
            return
        pairs = list(zip(taken, told, strict=True))
        stored = [each for each, published in pairs if published.problem is None]
        # From here on it may die: what is stored is stored, and known by its key.
        self._source.settle(stored)
        self.report.moved += len(stored)
        failure: ClientError | None = None
        for each, published in pairs:
            if isinstance(published.problem, Refused | TooLarge):
                self.report.refused[each.name] = str(published.problem)
                self._source.give_back([each])
            elif published.problem is not None:
                failure = published.problem
        if failure is not None:
            raise failure

    def _prepare(self, name: str) -> None:
        """The queue is there, and knows a repeat for a week."""
        if name in self._prepared:
            return
        queue = self._client.queue(name)
        queue.create()
        if queue.settings()["idempotency_s"] < REMEMBERED_S:
            queue.change_settings({"idempotency_s": REMEMBERED_S})
        self._prepared.add(name)


def attributes(found: Mapping[str, Any]) -> dict[str, str]:
    """The headers of mq that keep these: text as it is, what is no text as JSON; bytes, and text
    that no header can have, as Base64 under a name that says so.
    """
    headers: dict[str, str] = {}
    for name, value in found.items():
        header = f"x-attribute-{quote(name, safe='')}"
        if isinstance(value, str) and value.isprintable() and value == value.strip():
            headers[header] = value
        elif isinstance(value, str | bytes):
            content = value.encode() if isinstance(value, str) else value
            headers[f"{header}-base64"] = base64.b64encode(content).decode()
        else:
            headers[header] = json.dumps(value, default=str)
    return headers


def parser(what: str) -> argparse.ArgumentParser:
    """The options that all sources have."""
    made = argparse.ArgumentParser(description=what)
    made.add_argument("--to", required=True, metavar="URL", help="of mq")
    made.add_argument("--queue", required=True, help="of mq; made where it is missing")
    made.add_argument("--token", help="for an mq that asks for one: with the right admin")
    made.add_argument("--at-once", type=int, default=1, help="publishes at a time (1: in order)")
    made.add_argument("--idle", type=float, default=60, help="seconds without any, then it ends")
    return made


def main(source: Source, options: argparse.Namespace) -> int:
    """Moves, and tells of it. 0: nothing is left; 1: something is."""
    with Client(options.to, token=options.token) as client:
        report = Mover(source, client, options.queue, options.at_once).run(options.idle)
    for name, why in report.refused.items():
        print(f"refused {name}: {why}", file=sys.stderr)
    print(f"{report.moved} moved, {len(report.refused)} refused, {report.left} left at the source")
    return 1 if report.left or report.refused else 0
