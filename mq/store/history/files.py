"""The files to which a process appends its lines: one for each queue and day, and another one when
it is large. Writes whole lines and flushes nothing.
"""

import contextlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from mq.model.limits import MIB
from mq.store.disk.files import Files, is_gone
from mq.store.format.history import Day, folders_made, history_file
from mq.store.format.layout import Layout

# A file at this size, or at this share of the queue's limit, is followed by another one.
HISTORY_FILE_BYTES_MAX: Final = 16 * MIB
HISTORY_FILES_PER_QUEUE_MIN: Final = 8
# The limit of open files, and the idle time after which a file is closed.
HISTORY_FILES_OPEN_MAX: Final = 64
HISTORY_FILE_IDLE_S: Final = 60.0


@dataclass(slots=True)
class _Open:
    """An open file of a day with its number; `is_torn`: its last line may have no end."""

    descriptor: int
    number: int
    used_s: float
    size: int = 0
    is_torn: bool = False


class HistoryFiles:
    """The files of one process, named after `process`. For one thread at a time."""

    def __init__(self, layout: Layout, files: Files, process: str) -> None:
        self._layout = layout
        self._files = files
        self._process = process
        self._open: OrderedDict[Day, _Open] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def append(self, day: Day, lines: bytes, bytes_max: int, now_s: float) -> bool:
        """Appends lines in one write. `bytes_max`: the limit of the queue's history. Returns
        whether a new file was begun. Raises OSError: some lines may be written, the last one torn.
        Durable on return: no.
        """
        has_begun, file = self._file(day, len(lines), bytes_max, now_s)
        try:
            self._write(file, lines)
        except OSError as error:
            if not is_gone(error):
                raise
            self._close(day)  # How a network mount reports a removed file.
            has_begun, file = self._file(day, len(lines), bytes_max, now_s)
            self._write(file, lines)
        return has_begun

    def close_idle(self, now_s: float) -> None:
        """Closes files without recent writes: an open file that was removed would still take
        space.
        """
        while self._open:
            day, oldest = next(iter(self._open.items()))
            if now_s - oldest.used_s < HISTORY_FILE_IDLE_S:
                break
            self._close(day)

    def close(self) -> None:
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
        """The file for `size` bytes, and whether it is new."""
        limit = min(HISTORY_FILE_BYTES_MAX, bytes_max // HISTORY_FILES_PER_QUEUE_MIN)
        file = self._open.get(day) or self._begin(day, 0, now_s)
        status = self._files.descriptor_status(file.descriptor)
        if status.st_nlink == 0:  # A line in a removed file would never be read.
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
        # Close files of earlier days: they get hardly any more lines and may be removed.
        for other in [each for each in self._open if each.queue == day.queue]:
            self._close(other)
        file = self._open[day] = _Open(descriptor, number, now_s)
        return file

    def _close(self, day: Day) -> None:
        self._files.close(self._open.pop(day).descriptor)
