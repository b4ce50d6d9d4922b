"""Settings of queues, as their files say: looked at now and then, asked about each message."""

from dataclasses import dataclass
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import MqError
from mq.model.limits import SETTINGS_AGE_S, SETTINGS_KNOWN_MAX
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.files import Files
from mq.store.format.layout import Layout
from mq.store.format.settings import NO_FILE, Version, read_fields, settings_in, settings_version
from mq.store.history.sweep import Kept

_DEFAULTS: Final = QueueSettings()


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a queue until `stale_s`, by the steady clock; `is_sure`: its settings could
    be read.
    """

    stale_s: float
    version: Version
    settings: QueueSettings
    is_sure: bool


class KnownSettings:
    """What a process knows of queues' settings, at most SETTINGS_AGE_S old. Threads share it. Each
    call blocks, now and then, for a look at the file; none raises. What cannot be read, or
    understood, is as it was last known, and before that as by default.
    """

    def __init__(self, layout: Layout, files: Files, clock: Clock) -> None:
        self._layout = layout
        self._files = files
        self._clock = clock
        self._known: dict[str, _Known] = {}

    def of(self, queue: QueueName) -> QueueSettings:
        """The settings of the queue, but for those whose default is the daemon's."""
        # In the way of every message.
        known = self._known.get(queue.text)
        if known is None or self._clock.steady_s() >= known.stale_s:
            known = self._look(queue)
        return known.settings

    def is_on(self, queue: QueueName) -> bool:
        """Whether the queue has a history."""
        return self.of(queue).history

    def kept(self, queue: QueueName) -> Kept | None:
        """The bounds of its history, the defaults' where it is gone; None: nobody can tell."""
        known = self._known.get(queue.text)
        if known is None or self._clock.steady_s() >= known.stale_s:
            known = self._look(queue)
        settings = known.settings
        bounds = Kept(settings.history_kept_s, settings.history_bytes_max)
        return bounds if known.is_sure else None

    def look_again(self, queue: QueueName) -> None:
        """They have just been changed: the next look is at them."""
        self._known.pop(queue.text, None)

    def _look(self, queue: QueueName) -> _Known:
        known = self._known.get(queue.text)
        stale_s = self._clock.steady_s() + SETTINGS_AGE_S
        version, settings = (known.version, known.settings) if known else (NO_FILE, _DEFAULTS)
        is_sure = True
        try:
            found = settings_version(self._layout, self._files, queue)
            if found != version:
                fields = read_fields(self._layout, self._files, queue)
                version, settings = found, settings_in(fields, _DEFAULTS)
        except (OSError, MqError):
            is_sure = False  # Who needs the settings tells of it.
        if len(self._known) >= SETTINGS_KNOWN_MAX:
            self._known.clear()
        look = self._known[queue.text] = _Known(stale_s, version, settings, is_sure)
        return look
