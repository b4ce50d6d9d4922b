"""Every call of an archive's batches and of reaping by them fails once: nothing is unlinked that is
not stored, no message is in two batches, and the same calls again come to their end.
"""

import errno
import os
from pathlib import Path

import pytest
from harness.archives import OTHER, ArchivingRoot
from harness.audits import assert_audits_clean
from harness.faults import Fault, FlushedInCalls

from mq.model.errors import MqError
from mq.store.archive.archiving import disable, stored, unfinished_batch
from mq.store.disk.flush import FsyncFlusher

CALLS_MAX = 400


class FailingOnce(FlushedInCalls):
    """The call of this number fails, from `begin` on."""

    def __init__(self, number: int, code: int) -> None:
        super().__init__()
        self._left: int | None = None
        self._number, self._code = number, code
        self.has_failed = False

    def begin(self) -> None:
        self._left = self._number

    def _pass(self, call: str, path: str, also: str = "") -> Fault | None:
        if self._left == 0 and not self.has_failed:
            self.has_failed = True
            raise OSError(self._code, os.strerror(self._code), path)
        if self._left is not None:
            self._left -= 1
        return super()._pass(call, path, also)


def lives_on(top: Path, number: int, code: int) -> bool:
    """Whether a call failed."""
    files = FailingOnce(number, code)
    place = ArchivingRoot(top, 2, files, FsyncFlusher(files, 1))
    place.make_queue(OTHER)
    place.publish(3, OTHER)
    place.delete(OTHER)
    place.remove(4)
    place.pass_s(10)
    files.begin()
    archived: dict[int, list[str]] = {}
    reaper = place.reaper()

    def job() -> None:
        place.enable()
        for _ in range(2):
            batch = unfinished_batch(place.root) or place.begin(5)
            if batch is not None:
                names = list(batch.names(files))
                assert archived.setdefault(batch.seq, names) == names
                stored(place.root, place.flusher, batch)
        while reaper.run_once():
            place.pass_s(1)

    for _ in range(3):
        before = set(place.removed())
        try:
            job()
        except (OSError, MqError):
            assert files.has_failed
        kept = {name for names in archived.values() for name in names}
        assert before - set(place.removed()) <= kept
        place.pass_s(10)
    assert place.removed() == []
    assert len({name for names in archived.values() for name in names}) == 7
    assert sum(map(len, archived.values())) == 7
    has_failed, files.has_failed = files.has_failed, True
    disable(place.root, place.flusher)
    assert_audits_clean(top, place.clock)
    return has_failed


@pytest.mark.certificate
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_every_call_may_fail_once(root: Path, code: int) -> None:
    number = 0
    # Each second one of one way, and some of the other.
    step = 2 if code == errno.EIO else 7
    while lives_on(root.with_name(f"{root.name}-{number}"), number, code):
        number += step
        assert number < CALLS_MAX
    assert number > 20
