"""The files that a process appends its lines to: one for each queue and day, and the next when it
is large. Whole lines, nothing flushed.
"""

import contextlib
from collections import OrderedDict
from dataclasses import dataclass

from mq.model.limits import (
    HISTORY_FILE_BYTES_MAX,
    HISTORY_FILE_IDLE_S,
    HISTORY_FILES_OPEN_MAX,
    HISTORY_FILES_PER_QUEUE_MIN,
)
from mq.store.disk.files import Files, is_gone
from mq.store.format.history import Day, folders_made, history_file
from mq.store.format.layout import Layout


@dataclass(slots=True)
class _Open:
    """An open file of a day, by its number; `is_torn`: its last line perhaps has no end."""

    descriptor: int
    number: int
    used_s: float
    size: int = 0
    is_torn: bool = False


class HistoryFiles:
    """The files of one process, which is called so in their names. One thread at a time."""

    def __init__(self, layout: Layout, files: Files, process: str) -> None:
        self._layout = layout
        self._files = files
        self._process = process
        self._open: OrderedDict[Day, _Open] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def append(self, day: Day, lines: bytes, bytes_max: int, now_s: float) -> bool:
        """Appends lines, in one write. `bytes_max` is what the queue's history may have. Whether a
        new file was begun. Raises OSError: perhaps some of them are there, the last one torn.
        Durable on return: no.
        """
        has_begun, file = self._file(day, len(lines), bytes_max, now_s)
        try:
            self._write(file, lines)
        except OSError as error:
            if not is_gone(error):
                raise
            self._close(day)  # A network mount's way to say that it was taken away.
            has_begun, file = self._file(day, len(lines), bytes_max, now_s)
            self._write(file, lines)
        return has_begun

    def close_idle(self, now_s: float) -> None:
        """Closes what nothing was written to for a while: it may be taken away, and would go on
        taking space.
        """
        while self._open:
            day, oldest = next(iter(self._open.items()))
            if now_s - oldest.used_s < HISTORY_FILE_IDLE_S:
                break
            self._close(day)

    def close(self) -> None:
        """Closes all."""
        for day in list(self._open):
            self._close(day)

    def _write(self, file: _Open, lines: bytes) -> None:
        try:
            self._files.write(file.descriptor, b"\n" + lines if file.is_torn else lines)
        except OSError:
            size = self._files.descriptor_status(file.descriptor).st_size
            file.is_torn = file.is_torn or size != file.size
            raise
        file.is_torn = False

    def _file(self, day: Day, size: int, bytes_max: int, now_s: float) -> tuple[bool, _Open]:
        """The file that so many bytes go to, and whether it is a new one."""
        limit = min(HISTORY_FILE_BYTES_MAX, bytes_max // HISTORY_FILES_PER_QUEUE_MIN)
        file = self._open.get(day) or self._begin(day, 0, now_s)
        status = self._files.descriptor_status(file.descriptor)
        if status.st_nlink == 0:  # Swept: nobody would read what is written there.
            self._close(day)
            file = self._begin(day, 0, now_s)
            status = self._files.descriptor_status(file.descriptor)
        while status.st_size and status.st_size + size > limit:
            self._close(day)
            file = self._begin(day, file.number + 1, now_s)
            status = self._files.descriptor_status(file.descriptor)
        file.used_s, file.size = now_s, status.st_size
        self._open.move_to_end(day)
        return status.st_size == 0, file

    def _begin(self, day: Day, number: int, now_s: float) -> _Open:
        path = history_file(self._layout, day, self._process, number)
        made = folders_made(self._layout, day)
        self._files.refuse_links(*made)
        try:
            descriptor = self._files.open_append(path)
        except FileNotFoundError:
            for folder in made:
                with contextlib.suppress(FileExistsError):
                    self._files.mkdir(folder)
            descriptor = self._files.open_append(path)
        if len(self._open) >= HISTORY_FILES_OPEN_MAX:
            self._close(next(iter(self._open)))
        # Lines of a day before are over, but for a few: what holds them may be taken away.
        for other in [each for each in self._open if each.queue == day.queue]:
            self._close(other)
        file = self._open[day] = _Open(descriptor, number, now_s)
        return file

    def _close(self, day: Day) -> None:
        self._files.close(self._open.pop(day).descriptor)
