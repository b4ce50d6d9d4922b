"""Buckets that emptied: of delay/, and of every queue whose folder has changed."""

import logging
from typing import ClassVar, Final

from mq.model.errors import MqError
from mq.model.lifecycle import State
from mq.model.limits import SWEEP_EVERY_S
from mq.store.core.listing import is_settled
from mq.store.disk.group import run_alone
from mq.store.operations.buckets import sweep_buckets
from mq_mover.policy import Policy, Turn, Work

_log = logging.getLogger("mq-mover.policies")

_FOLDERS_PER_TURN_MAX: Final = 500


class Buckets(Policy):
    """Takes them away; so many folders a turn."""

    name: ClassVar[str] = "buckets"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def __init__(self, work: Work) -> None:
        super().__init__(work)
        self._waiting: list[str] = []
        """Folders that this pass has not come to."""
        self._without_buckets: dict[str, int] = {}
        """Queues' folders that had no bucket, and their mtimes then."""

    def act(self) -> Turn:
        """The folders that are next. Raises OSError when the folder of queues cannot be listed."""
        self._waiting = self._waiting or self._all()
        for _ in range(min(_FOLDERS_PER_TURN_MAX, len(self._waiting))):
            self._look(self._waiting.pop())
        return Turn(more=bool(self._waiting))

    def _all(self) -> list[str]:
        layout = self.root.layout
        queues = [
            entry.path
            for entry in self.root.files.entries(layout.folder(State.READY))
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
        ]
        known = self._without_buckets
        self._without_buckets = {path: known[path] for path in queues if path in known}
        return [*queues, layout.folder(State.DELAYED)]

    def _look(self, folder: str) -> None:
        status = self.root.files.status(folder)
        if status is None or self._without_buckets.get(folder) == status.st_mtime_ns:
            return
        try:
            none_left = run_alone(sweep_buckets(self.root, folder), self.work.flusher)
        except (MqError, OSError) as error:
            fields = {"folder": folder, "error": repr(error)}
            _log.info("empty buckets stay for now", extra={"fields": fields})
            return
        if none_left and is_settled(status, self.root.now_ms()):
            self._without_buckets[folder] = status.st_mtime_ns
