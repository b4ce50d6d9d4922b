"""What a process knows of a queue apart from its messages, at most SETTINGS_AGE_S old.

A look costs four or five calls; then every operation on the queue has its answers in memory for
half a second. The price is on the other side: an operation that changes a fact, and relies on all
processes knowing it, makes its mark durable and waits FACTS_SETTLE_S before it relies on it
(`PROTOCOL.md`, "Facts"). Two rules hold where a fact is used:

- The time of a look is taken before the look, and the age is checked when the fact is used. So a
process that was stopped in between looks again. - A fact about where a message may have come from
is asked for after the message was renamed.

A fact that must not be half a second old is asked for each time: see `unserved.py`, `find.py`.
"""

import math
import stat
from dataclasses import dataclass, replace
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import MqError
from mq.model.message import Stamp
from mq.model.names import QueueName
from mq.model.settings import DIGITS_SETTING, SHARDS_SETTING, QueueSettings, tag_of
from mq.store.disk.files import Files
from mq.store.format.bucket_names import Shape
from mq.store.format.crossings import SharedSidelines
from mq.store.format.layout import Layout
from mq.store.format.settings import (
    DEFAULT_SHAPE,
    NO_FILE,
    Version,
    read_fields,
    settings_in,
    settings_version,
    shape_in,
)

# A process uses facts of a queue that are at most this old.
SETTINGS_AGE_S: Final = 0.5
SETTINGS_KNOWN_MAX: Final = 10_000
# An operation that changes what other processes know of a queue, and relies on it, waits this long:
# afterwards no process uses what it knew before. The excess over SETTINGS_AGE_S allows for clocks
# that run at different rates.
FACTS_SETTLE_S: Final = 0.55

_DEFAULTS: Final = QueueSettings()


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One look at a queue. It is used until `stale_s`, by the steady clock.

    `exists`: its folder was there, as a network mount remembers it. `fields`: what its settings
    file said, of this `version`; `settings`: the same with mq's own defaults, as last known where
    the file cannot be understood. `purged_ms`: the time of its purge mark. `trouble`: why
    the look is not complete; `unreadable`: why its settings are not known.
    """

    stale_s: float
    exists: bool = False
    version: Version = NO_FILE
    fields: dict[str, object] | None = None
    settings: QueueSettings = _DEFAULTS
    shape: Shape = DEFAULT_SHAPE
    purged_ms: int | None = None
    unreadable: MqError | OSError | None = None
    trouble: OSError | None = None


@dataclass(frozen=True, slots=True)
class Configured:
    """A queue's effective settings and its shape, and the version of the file that has them."""

    settings: QueueSettings
    shape: Shape
    version: Version

    def as_json(self) -> dict[str, object]:
        """The effective values, by field."""
        shape = {DIGITS_SETTING: self.shape.digits, SHARDS_SETTING: self.shape.shards}
        return {**self.settings.as_json(), **shape}

    @property
    def tag(self) -> str:
        """An entity tag's text, which other values do not have."""
        return tag_of(self.as_json())


class Facts:
    """The facts of a root's queues, for one process. Threads share it without a lock. A call may
    block for a look.
    """

    def __init__(
        self, layout: Layout, files: Files, clock: Clock, over_network: bool = False
    ) -> None:
        self._layout = layout
        self._files = files
        self._clock = clock
        self._over_network = over_network
        self._shared = SharedSidelines(layout, files, clock)
        self._known: dict[str, QueueFacts] = {}
        self.settle_s = FACTS_SETTLE_S
        """After how long all processes of the root know a fact that was changed; 0 where this is
        the only one.
        """
        self._has_failures = False
        self._failures_stale_s = -math.inf
        self._changes = 0
        """How often this process changed facts: a look that began before is not kept."""

    def has_failures(self) -> bool:
        """Whether the root has a folder of failures, as of half a second ago at most. May block.
        Raises OSError.
        """
        if not self._has_failures and self._clock.steady_s() >= self._failures_stale_s:
            self._failures_stale_s = self._clock.steady_s() + SETTINGS_AGE_S
            self._has_failures = self._files.is_there(self._layout.failures)
        return self._has_failures

    def found_failures(self) -> None:
        self._has_failures = True

    def fresh(self, queue: QueueName) -> QueueFacts | None:
        """The queue's facts where no look is due. Does not block."""
        facts = self._known.get(queue.text)
        return facts if facts is not None and self._clock.steady_s() < facts.stale_s else None

    def of(self, queue: QueueName) -> QueueFacts:
        """The queue's facts, for an operation that relies on them. Raises OSError."""
        # In the way of every message, as `fresh` and `settings` are.
        facts = self._known.get(queue.text)
        # Of a queue that is not there nothing is kept: its shape, and its mark, are made before its
        # folder.
        if (
            facts is None
            or not facts.exists
            or facts.trouble is not None
            or self._clock.steady_s() >= facts.stale_s
        ):
            facts = self.look(queue)
            if facts.trouble is not None:
                raise facts.trouble
        return facts

    def settings(self, queue: QueueName) -> QueueSettings:
        """The queue's settings, without those whose default is the daemon's. Where the file cannot
        be read or parsed: the last known ones, or the defaults. Does not raise.
        """
        facts = self._known.get(queue.text)
        if facts is None or self._clock.steady_s() >= facts.stale_s:
            facts = self.look(queue)
        return facts.settings

    def sure_settings(self, queue: QueueName) -> QueueSettings | None:
        """Like `settings`; None where the file cannot be read or parsed."""
        facts = self.fresh(queue) or self.look(queue)
        return facts.settings if facts.unreadable is None else None

    def shape(self, queue: QueueName) -> Shape:
        """The queue's shape. Raises SettingsUnreadable, OSError."""
        facts = self.fresh(queue)
        if facts is not None and facts.exists and facts.unreadable is None:
            return facts.shape
        return self._shape_of(queue, None)

    def shape_now(self, queue: QueueName) -> Shape:
        """The queue's shape as its settings are now, for a move that depends on it. Costs one stat
        if the known settings are current. Raises SettingsUnreadable, OSError.
        """
        facts = self._known.get(queue.text)
        is_known = (
            facts is not None
            and facts.fields is not None
            and facts.unreadable is None
            and facts.version == settings_version(self._layout, self._files, queue)
        )
        return self._shape_of(queue, facts if is_known else None)

    def _shape_of(self, queue: QueueName, known: QueueFacts | None) -> Shape:
        facts = known or self.look(queue)
        if facts.unreadable is not None:
            raise facts.unreadable
        return facts.shape

    def sidelines(self, queue: QueueName) -> tuple[QueueName, ...]:
        """Where sidelined messages of the queue may be, as of now: its own sideline, there or not,
        and those that it shares or has shared. One stat, for rare operations. Raises OSError.
        """
        return queue.sideline(), *self._shared_now().asides(queue)

    def users(self, sideline: QueueName) -> tuple[QueueName, ...]:
        """The queues, but for its own, from which the sideline's messages may have come, as of now.
        One stat, for rare operations. Raises OSError.
        """
        return self._shared_now().users(sideline)

    def others(self, queue: QueueName) -> tuple[QueueName, ...]:
        """The queues in which a message of this one may be by now: its sidelines, or a sideline's
        queues; whether they are there or not. Raises OSError.
        """
        if queue.is_sideline:
            return queue.counterpart(), *self.users(queue)
        return self.sidelines(queue)

    def _shared_now(self) -> SharedSidelines:
        if self._over_network:
            self._files.asked_status(self._shared.folder)
        return self._shared

    def configured(self, queue: QueueName, defaults: QueueSettings = _DEFAULTS) -> Configured:
        """The queue's settings as they are now; `defaults`: the daemon's. Raises
        SettingsUnreadable.
        """
        # The version is read first: if the file is replaced in between, the versions differ.
        version = settings_version(self._layout, self._files, queue)
        fields = read_fields(self._layout, self._files, queue)
        return Configured(settings_in(fields, defaults), shape_in(fields), version)

    def look_again(self, queue: QueueName) -> None:
        """This process has changed a fact of the queue: the next use looks."""
        self._changes += 1
        if (facts := self._known.get(queue.text)) is not None:
            self._known[queue.text] = replace(facts, stale_s=float("-inf"))

    def forget(self, queue: QueueName) -> None:
        """The queue was deleted or made again: drops all facts, the settings too."""
        self._changes += 1
        self._known.pop(queue.text, None)
        if queue.is_sideline:
            self.look_again(queue.counterpart())

    def look(self, queue: QueueName) -> QueueFacts:
        """The queue's facts as they are now. Does not raise: see `trouble` and `unreadable`."""
        changes = self._changes
        facts = QueueFacts(self._clock.steady_s() + SETTINGS_AGE_S)
        try:
            if self._over_network:
                # The mount asks the server when a folder is opened, and looks for names again in a
                # folder that it knows to have changed.
                self._files.asked_status(self._layout.purged)
            # First: a queue that is there by now had its settings and its mark before.
            exists = self._is_folder(self._layout.queue(queue))
            facts = replace(
                facts, exists=exists, purged_ms=mark_ms(self._layout, self._files, queue)
            )
        except OSError as error:
            facts = replace(facts, trouble=error)
        facts = self._with_settings(facts, queue)
        if self._changes == changes:
            if len(self._known) >= SETTINGS_KNOWN_MAX:
                self._known.clear()
            self._known[queue.text] = facts
        elif (known := self._known.get(queue.text)) is not None:
            self._known[queue.text] = replace(known, stale_s=float("-inf"))
        return facts

    def _with_settings(self, facts: QueueFacts, queue: QueueName) -> QueueFacts:
        """Read anew only where the file is another."""
        known = self._known.get(queue.text) or facts
        version, fields = known.version, known.fields
        settings, shape = known.settings, known.shape
        unreadable: MqError | OSError | None = None
        try:
            found = settings_version(self._layout, self._files, queue)
            if fields is None or found != version or known.unreadable is not None:
                version = found
                fields = {}
                if found != NO_FILE:
                    fields = read_fields(self._layout, self._files, queue)
                settings, shape = settings_in(fields, _DEFAULTS), shape_in(fields)
        except (OSError, MqError) as error:
            unreadable = error
        return replace(
            facts,
            version=version,
            fields=fields,
            settings=settings,
            shape=shape,
            unreadable=unreadable,
        )

    def _is_folder(self, path: str) -> bool:
        status = self._files.status(path)
        return status is not None and stat.S_ISDIR(status.st_mode)


def mark_ms(layout: Layout, files: Files, queue: QueueName) -> int | None:
    """The time of the queue's purge mark, milliseconds since the epoch; None: it has none. Raises
    OSError.
    """
    status = files.status(layout.purge_mark(queue))
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return Stamp.from_mtime_ns(status.st_mtime_ns).due_ms
