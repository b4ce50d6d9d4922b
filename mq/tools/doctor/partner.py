"""A second process that does on files what the doctor asks: one side of a race, at its own mount.

    python -m mq.tools.doctor.partner PROCESS_ID_OF_THE_DOCTOR

Requests come as lines of JSON, `[what, arguments]`, and are answered likewise: `{"found": ...}` or
`{"errno": ..., "error": ...}`. It ends with its standard input, and when the doctor is gone.
"""

import json
import os
import signal
import sys
import threading
from typing import Any, Final

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.tools.doctor.limits import LOCK_LOOK_EVERY_S, SEEN_LOOK_EVERY_S

_NUMBER_BYTES_MAX: Final = 20


class Doing:
    """What it can be asked. Paths are absolute; times are of the steady clock, which all processes
    of a machine share.
    """

    def __init__(self, doctor: int) -> None:
        self._files = Files()
        self._clock = SystemClock()
        self._locked: dict[str, int] = {}
        self._pause = threading.Event()
        # Not what this process sees as its parent: by then the doctor may have been killed.
        self._doctor = doctor

    def hello(self) -> int:
        """Its process id."""
        return os.getpid()

    def make(self, path: str, text: str = "") -> float:
        """A new file, on stable media; when it was."""
        descriptor = self._files.create(path)
        try:
            self._files.write(descriptor, text.encode())
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        return self._clock.steady_s()

    def stamp(self, path: str, mtime_ns: int) -> float:
        """Sets a file's mtime, on stable media; when it was."""
        descriptor = self._files.open_claimed(path)
        try:
            self._files.stamp(descriptor, mtime_ns)
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        return self._clock.steady_s()

    def read(self, path: str) -> str | None:
        """What is in a file; None where it is not there."""
        try:
            return self._files.read_file(path, 100).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def mtime(self, path: str, locked: bool = False) -> int:
        """A file's mtime, nanoseconds: by its name, or once it is open and locked."""
        if not locked:
            found = self._files.status(path)
            return -1 if found is None else found.st_mtime_ns
        descriptor = self._files.open_claimed(path)
        try:
            self._files.lock(descriptor)
            return self._files.descriptor_status(descriptor).st_mtime_ns
        finally:
            self._files.close(descriptor)

    def await_name(self, path: str, by_listing: bool, within_s: float) -> float | None:
        """Waits until the name is there; when it was first seen. None: it never was."""
        folder, name = os.path.split(path)

        def is_seen() -> bool:
            if not by_listing:
                return self._files.status(path) is not None
            return any(entry.name == name for entry in self._files.entries(folder))

        return self._until(is_seen, within_s)

    def await_mtime(self, path: str, mtime_ns: int, within_s: float) -> float | None:
        """Waits until a file's mtime, by its name, is this one; as `await_name`."""
        return self._until(lambda: self.mtime(path) == mtime_ns, within_s)

    def missed(self, path: str, for_s: float) -> dict[str, int]:
        """Looks for a file that is replaced meanwhile: how often, and how often in vain."""
        end_s = self._clock.steady_s() + for_s
        looks = missed = 0
        while self._clock.steady_s() < end_s:
            looks += 1
            missed += self._files.status(path) is None
        return {"looks": looks, "missed": missed}

    def lock(self, path: str, within_s: float = 0.0) -> bool:
        """Locks a file and keeps it so; False when another had it all the while."""
        descriptor = self._files.open_claimed(path)
        try:
            had = self._until(lambda: self._files.lock(descriptor), within_s, LOCK_LOOK_EVERY_S)
        except OSError:
            self._files.close(descriptor)
            raise
        if had is None:
            self._files.close(descriptor)
            return False
        self._locked[path] = descriptor
        return True

    def unlock(self, path: str) -> None:
        """Gives a file's lock back."""
        self._files.close(self._locked.pop(path))

    def race(
        self, path: str, side: str, claims: bool, count: int, at_s: float, apart_s: float
    ) -> list[int]:
        """Wants each of so many files, `{path}{number}`, by a rename to a name of its own, or as
        the one who makes it; those that it had. The n-th begins `n * apart_s` after `at_s`.
        """
        won = []
        for number in range(count):
            self._until_time(at_s + number * apart_s)
            wanted = f"{path}{number}"
            try:
                if claims:
                    self._files.rename(wanted, f"{wanted}.{side}")
                else:
                    self._files.close(self._files.create(wanted))
            except (FileNotFoundError, FileExistsError):
                continue
            won.append(number)
        return won

    def add(
        self, path: str, side: str, count: int, at_s: float, replaces: bool, within_s: float
    ) -> list[int]:
        """Adds one to the number in a file so often, under the lock `{path}.lock`, writing in place
        or replacing the file by a rename; the numbers that it made.
        """
        self._until_time(at_s)
        made = []
        for _ in range(count):
            if not self.lock(f"{path}.lock", within_s):
                raise TimeoutError(f"no lock within {within_s:g} s")
            try:
                number = _number(self._files.read_file(path, _NUMBER_BYTES_MAX)) + 1
                self._put(path, f"{path}.{side}" if replaces else "", f"{number:09d}".encode())
            finally:
                self.unlock(f"{path}.lock")
            made.append(number)
            self._pause.wait(LOCK_LOOK_EVERY_S)  # For the other to have a turn.
        return made

    def _put(self, path: str, beside: str, content: bytes) -> None:
        descriptor = self._files.create(beside) if beside else self._files.open_kept(path)
        try:
            self._files.write(descriptor, content)
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        if beside:
            self._files.rename(beside, path)

    def _until(
        self, is_so: Any, within_s: float, every_s: float = SEEN_LOOK_EVERY_S
    ) -> float | None:
        """When it was so; None when it was not within that time."""
        end_s = self._clock.steady_s() + within_s
        while not is_so():
            if os.getppid() != self._doctor:
                raise SystemExit
            if self._clock.steady_s() >= end_s:
                return None
            self._pause.wait(every_s)
        return self._clock.steady_s()

    def _until_time(self, at_s: float) -> None:
        """Turns until then: who slept would be late by more than a race takes."""
        while self._clock.steady_s() < at_s:
            pass


def _number(content: bytes) -> int:
    """What a file says; 0 where that is no number: what was added is lost."""
    return int(content) if content.isdigit() else 0


def answer(doing: Doing, line: str) -> str:
    """Does what a line asks, and says what came of it."""
    what, arguments = json.loads(line)
    try:
        return json.dumps({"found": getattr(doing, what)(**arguments)})
    except OSError as error:
        return json.dumps({"errno": error.errno or 0, "error": error.strerror or str(error)})


def main() -> None:
    """Answers until standard input ends."""
    # The doctor, of the same group, decides when it is over.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    doing = Doing(int(sys.argv[1]))
    for line in sys.stdin:
        sys.stdout.write(answer(doing, line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
