"""Writeback ahead of a flush: what was written goes to the disk while more is written, so that the
flush at the end has less to do. It promises nothing.
"""

import contextlib
import threading

from mq.store.disk.files import Files


class Writeback:
    """Has a thread write a file system's pages now and then, from the first `begin` on. It has a
    descriptor of its own: of every error the one that flushes at the end is told too.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._folder = folder
        self._wake = threading.Event()
        self._ends = False
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Has what is written so far go to the disk, unless that goes on already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="writeback", daemon=True)
            self._thread.start()
        self._wake.set()

    def end(self) -> None:
        """Waits until nothing goes on."""
        self._ends = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            descriptor = self._files.open_folder(self._folder)
            try:
                while self._wake.wait() and not self._ends:
                    self._wake.clear()
                    self._files.sync_file_system(descriptor)
            finally:
                self._files.close(descriptor)
