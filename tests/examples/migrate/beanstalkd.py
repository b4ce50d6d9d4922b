#!/usr/bin/env python3
"""Moves the jobs of a beanstalkd tube, ready, delayed and buried, into a queue of mq.

    pip install . greenstalk
    python -m tests.examples.migrate.beanstalkd --from localhost:11300 --tube orders \\
        --to http://localhost:8080 --queue orders

beanstalkd 1.12 or newer, whose `reserve-job` takes what is delayed or buried. What is buried goes
to `orders_SIDELINE`.
"""

import argparse
import contextlib
import hashlib
import sys
from collections.abc import Iterator, Sequence

import greenstalk

from mq.client.values import NewMessage
from tests.examples.migrate.moving import Taken, attributes, main, parser

BATCH = 100
URGENT_BITS = 32
VISIBILITY_S_MAX = 7 * 24 * 3600
STATES = ("ready", "reserved", "delayed", "buried")


class Beanstalkd:
    """A tube."""

    def __init__(self, client: greenstalk.Client[bytes], tube: str) -> None:
        self._client = client
        self._tube = tube

    def take(self) -> list[Taken]:
        """What is ready, then what is delayed, soonest first, then what is buried."""
        found: list[Taken] = []
        while len(found) < BATCH and (each := self._next(wait_s=0 if found else 1)) is not None:
            found.append(each)
        return found

    def settle(self, taken: Sequence[Taken]) -> None:
        """Deletes them. One whose time to run ended meanwhile may be gone already."""
        for each in taken:
            with contextlib.suppress(greenstalk.NotFoundError):
                self._client.delete(each.handle)

    def give_back(self, taken: Sequence[Taken]) -> None:
        """Buries them: `kick` brings them back."""
        for each in taken:
            with contextlib.suppress(greenstalk.NotFoundError):
                self._client.bury(each.handle)

    def left(self) -> int:
        """All that the tube has."""
        told = dict(self._client.stats_tube(self._tube))
        return sum(int(str(told[f"current-jobs-{state}"])) for state in STATES)

    def _next(self, wait_s: int) -> Taken | None:
        try:
            return self._taken(self._client.reserve(timeout=0), delay_s=0)
        except greenstalk.DeadlineSoonError:
            # One that we have is about to end its time to run: first what we have.
            return None
        except greenstalk.TimedOutError:
            pass
        with contextlib.suppress(greenstalk.NotFoundError):
            return self._by_id(self._client.peek_delayed().id)
        with contextlib.suppress(greenstalk.NotFoundError):
            return self._by_id(self._client.peek_buried().id)
        with contextlib.suppress(greenstalk.TimedOutError, greenstalk.DeadlineSoonError):
            if wait_s:
                return self._taken(self._client.reserve(timeout=wait_s), delay_s=0)
        return None

    def _by_id(self, job_id: int) -> Taken:
        told = self._client.stats_job(job_id)
        left_s = int(told["time-left"]) if told["state"] == "delayed" else 0
        job = self._client.reserve_job(job_id)
        return self._taken(job, delay_s=left_s, is_buried=told["state"] == "buried")

    def _taken(self, job: greenstalk.Job[bytes], delay_s: int, *, is_buried: bool = False) -> Taken:
        told = self._client.stats_job(job)
        told_too = {f"beanstalkd-{name}": str(told[name]) for name in ("id", "pri", "age")}
        new = NewMessage(
            job.body,
            delay_s=delay_s or None,
            priority=priority(int(told["pri"])),
            visibility_s=min(max(int(told["ttr"]), 1), VISIBILITY_S_MAX),
            headers=attributes(told_too),
            idempotency_key=self._key(job),
        )
        return Taken(str(job.id), job, new, is_set_aside=is_buried)

    def _key(self, job: greenstalk.Job[bytes]) -> str:
        """A server that is begun anew without a binlog counts from 1 again: so not the id alone."""
        digest = hashlib.sha256(self._tube.encode() + b"\0" + job.body).hexdigest()
        return f"{job.id}-{digest[:40]}"


def priority(pri: int) -> int:
    """9 for beanstalkd's most urgent, 0 for its least, by the power of two: 0 is 9, 1024 (what
    beanstalkd counts as urgent is less) 6, 65536 (greenstalk's default) 4, 2**32 - 1 is 0.
    """
    return 9 - min(9, pri.bit_length() * 10 // (URGENT_BITS + 1))


@contextlib.contextmanager
def source(address: str, tube: str) -> Iterator[Beanstalkd]:
    """The tube of the server at this address, host:port."""
    host, _, port = address.rpartition(":")
    where = (host, int(port))
    with greenstalk.Client(where, encoding=None, use=tube, watch=[tube]) as client:
        yield Beanstalkd(client, tube)


def options() -> argparse.Namespace:
    """As the command line says."""
    made = parser("Moves the jobs of a beanstalkd tube into a queue of mq.")
    made.add_argument("--from", dest="source", default="localhost:11300", metavar="HOST:PORT")
    made.add_argument("--tube", default="default")
    return made.parse_args()


if __name__ == "__main__":
    said = options()
    with source(said.source, said.tube) as tube:
        sys.exit(main(tube, said))
