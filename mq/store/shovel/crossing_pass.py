"""A pass over a queue whose messages go to another queue that is no sideline of it.

It is a crossing (`crossing_files.py`, FORMAT.md, "Crossings"): the messages are recorded before the
first one moves. The run's id is the crossing's.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from mq.model.errors import QueueNotFound
from mq.model.lifecycle import SHOVEL
from mq.model.message import Stamp
from mq.store.core.moves import message_status
from mq.store.core.root import Root
from mq.store.core.unserved import uuid_beginning
from mq.store.disk.flush import Flusher
from mq.store.disk.group import run_alone
from mq.store.format.crossings import Crossing
from mq.store.scan.order import Candidate, OrderUntil, list_after
from mq.store.shovel.crossing_files import (
    Chosen,
    candidate_of,
    chosen_of,
    finish,
    held,
    leave_one_name,
    record_chosen,
)
from mq.store.shovel.shovel import SHOVEL_IDS_AHEAD_S, SHOVEL_LISTED_MAX, Aim, Batch


class CrossingPass:
    """The messages that are ready in a queue at the start of the pass. Thread-safe, but for `begin`
    and `end`.
    """

    def __init__(self, root: Root, flusher: Flusher, crossing: Crossing, aim: Aim) -> None:
        self.aim = aim
        self._root = root
        self._flusher = flusher
        self._crossing = crossing
        self._held = contextlib.ExitStack()
        self._lock = threading.Lock()
        self._is_chosen = False
        self._taken = 0
        """The number of chosen messages that batches had."""
        self._rest: Iterator[Chosen] | None = None

    def begin(self, goes_on: Callable[[], bool]) -> None:
        """Records the messages; `goes_on` is called now and then, and False ends that. The caller
        waits `facts.settle_s` before the first batch. Raises Busy, MqError, OSError. Durable on
        return: yes.
        """
        self._held.enter_context(held(self._root, self._flusher, self._crossing.id))
        chosen = self._found(goes_on)
        run_alone(record_chosen(self._root, self._crossing, {}, chosen), self._flusher)
        self._is_chosen = True

    def _found(self, goes_on: Callable[[], bool]) -> Iterator[Chosen]:
        # Only so that this ends in a sideline that grows faster than it is listed.
        until_ms = self.aim.began_ms + SHOVEL_IDS_AHEAD_S * 1000
        order = OrderUntil(until=uuid_beginning(until_ms))
        at, is_all = None, False
        while not is_all and goes_on():
            try:
                found, is_all = list_after(
                    self._root, SHOVEL.source, self.aim.source, SHOVEL_LISTED_MAX, at, order
                )
            except QueueNotFound:
                return
            if not found:
                return
            for each in found:
                at = each.id
                path = self._root.layout.path(
                    SHOVEL.source, self.aim.source, each.id, each.bucket or ""
                )
                if (status := message_status(self._root, path)) is not None:
                    yield Chosen(each.id, Stamp.from_mtime_ns(status.st_mtime_ns))

    def batch(self, count: int) -> Batch | None:
        """The next messages that are there, at most `count`; None: there are no more. Blocking.
        Raises MqError, OSError; the next call then returns the same messages.
        """
        with self._lock:
            taken = self._taken
            there: list[Candidate] = []
            stamps: dict[str, Stamp] = {}
            try:
                if self._rest is None:
                    chosen = chosen_of(self._root, self._crossing) if self._is_chosen else ()
                    self._rest = itertools.islice(chosen, taken, None)
                while len(there) < count and (each := next(self._rest, None)) is not None:
                    taken += 1
                    found = candidate_of(self._root, self._crossing, each.id)
                    if found is not None:
                        there.append(found)
                        stamps[each.id.text] = each.stamp
            except BaseException:
                self._rest = None
                raise
            self._taken = taken
            return Batch(tuple(there), replace(self.aim, chosen=stamps)) if there else None

    def end(self, moved: int) -> None:
        """Ends the crossing, once no batch is in flight. Raises MqError, OSError: mq-mover ends it
        after LEDGER_KEPT_S. Durable on return: yes.
        """
        with self._held:
            if self._is_chosen:
                if moved < self._taken:
                    # One that stayed may have two names: then the crossing is not over.
                    leave_one_name(self._root, self._flusher, self._crossing)
                run_alone(finish(self._root, self._crossing, {"moved": moved}), self._flusher)
