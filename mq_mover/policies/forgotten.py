"""Publishes that were never answered: their files may be torn, and are not delivered."""

import contextlib
import itertools
import logging
import stat
from collections.abc import Iterator
from typing import ClassVar, Final

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.model.names import MessageId, QueueName
from mq.store.disk.group import run_alone
from mq.store.format.layout import parse_entry
from mq.store.keys.orphans import give_up_publishes
from mq.store.operations.redeliver import forget, is_forgotten
from mq_mover.policy import Policy, Turn

_log = logging.getLogger("mq-mover.policies")

_PER_TURN_MAX: Final = 1000


class ForgottenPublishes(Policy):
    """Moves what lies in new/ too long to remove/."""

    name: ClassVar[str] = "forgotten-publishes"
    every_s: ClassVar[float] = SWEEP_EVERY_S

    def act(self) -> Turn:
        """Some of them, once what says that they were published is gone."""
        staged = frozenset(itertools.islice(self._forgotten(), _PER_TURN_MAX))
        if not staged:
            return Turn()
        kept = run_alone(give_up_publishes(self.root, staged), self.work.flusher)
        swept = 0
        for queue, message_id in staged - kept:
            try:
                swept += forget(self.root, queue, message_id, FORGOTTEN_AFTER_S)
            except OSError as error:
                fields = {"id": message_id.text, "error": repr(error)}
                _log.warning("a forgotten publish stays for now", extra={"fields": fields})
        if swept:
            _log.info("forgotten publishes removed", extra={"fields": {"count": swept}})
        return Turn(swept, more=swept > 0 and len(staged) == _PER_TURN_MAX)

    def _forgotten(self) -> Iterator[tuple[QueueName, MessageId]]:
        for entry in self.root.files.entries(self.root.layout.folder(State.NEW)):
            with contextlib.suppress(BadName):  # Foreign, or a probe.
                status = self.root.files.status(entry.path)
                if status is None or not stat.S_ISREG(status.st_mode):
                    continue
                if is_forgotten(self.root, status, FORGOTTEN_AFTER_S):
                    yield parse_entry(entry.name)
