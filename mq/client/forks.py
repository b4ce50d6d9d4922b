"""Clients that are made before a fork, as with gunicorn's preload, Celery's prefork and
multiprocessing, work in the child: what they have of their process is made anew there. The parent's
connections and threads stay its own.
"""

import os
from typing import Protocol
from weakref import WeakSet

from mq.client.errors import NotUsable


class OfAProcess(Protocol):
    """A part of a client that belongs to one process."""

    def forked(self) -> None:
        """Runs in a process that was forked, before its first line: makes all anew."""


_parts: "WeakSet[OfAProcess]" = WeakSet()


def renewed_by_forks(part: OfAProcess) -> None:
    """Has the part's `forked` called in each process that is forked from here on."""
    _parts.add(part)


def check_inherited(pid: int, what: str) -> None:
    """Raises NotUsable for `what` was open in a parent process of this number."""
    if pid != os.getpid():
        raise NotUsable.inherited(what)


def _renew_all() -> None:
    for part in list(_parts):
        part.forked()


os.register_at_fork(after_in_child=_renew_all)
