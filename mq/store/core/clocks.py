"""Whether this machine's clock agrees with what a root has seen of it."""

import contextlib
import itertools
import logging
from typing import Final

from mq.model.clock import Clock, rfc3339
from mq.model.limits import CLOCK_BEHIND_S
from mq.store.disk.files import Files
from mq.store.disk.mounts import file_system_of
from mq.store.format.layout import Layout

_log = logging.getLogger("mq.clock")

_QUEUES_LOOKED_AT: Final = 1000


def check_clock(layout: Layout, files: Files, clock: Clock) -> None:
    """Warns where a folder of the root has changed at a time that is still to come: the clock is
    behind now, or was ahead then. Blocking.

    On a network mount times are the server's, whose lead is followed. Nothing that a root has tells
    of a clock that is ahead.
    """
    if not file_system_of(layout.root).has_own_times:
        return
    newest_ms, now_ms = newest_change_ms(layout, files), clock.now_ms()
    if newest_ms - now_ms >= CLOCK_BEHIND_S * 1000:
        fields = {"now": rfc3339(now_ms), "root_changed": rfc3339(newest_ms)}
        _log.warning("the clock is behind the root, or was ahead", extra={"fields": fields})


def newest_change_ms(layout: Layout, files: Files) -> int:
    """When one of the root's folders, or of its first queues', has changed last; 0: there is none.
    mq sets no time of a folder, so these are the clock's.
    """
    folders = list(layout.folders())
    with contextlib.suppress(OSError):
        queues = itertools.islice(files.entries(layout.queues), _QUEUES_LOOKED_AT)
        folders += [each.path for each in queues if each.is_dir(follow_symlinks=False)]
    newest_ms = 0
    for folder in folders:
        with contextlib.suppress(OSError):
            if (status := files.status(folder)) is not None:
                newest_ms = max(newest_ms, status.st_mtime_ns // 1_000_000)
    return newest_ms
