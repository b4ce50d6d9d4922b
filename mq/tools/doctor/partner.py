"""A second process that works on files at the doctor's request: one side of a contest, at its own
mount.

    python -m mq.tools.doctor.partner PROCESS_ID_OF_THE_DOCTOR

A request is a line of JSON, `[what, arguments]`; so is its answer: `{"found": ...}` or `{"errno":
..., "error": ...}`. The process ends with its standard input, and when the doctor is gone.
"""

import json
import os
import signal
import sys
import threading
from typing import Any, Final

from mq.model.clock import SystemClock
from mq.store.disk.files import Files

# The pause between two attempts to lock, and between two looks for a name or a time.
_LOCK_LOOK_EVERY_S: Final = 0.000_2
_SEEN_LOOK_EVERY_S: Final = 0.001
# The pause between reading and writing under the lock, and between unlocking and locking again.
# Without mutual exclusion two sides then read the same number, even if one began late.
_ADDING_S: Final = 0.002

_NUMBER_BYTES_MAX: Final = 20


class Doing:
    """The requests. Paths are absolute; times are of the steady clock, which all processes of a
    machine share.
    """

    def __init__(self, doctor: int) -> None:
        self._files = Files()
        self._clock = SystemClock()
        self._locked: dict[str, int] = {}
        self._pause = threading.Event()
        # Not this process's parent as it sees it now: the doctor may have been killed already.
        self._doctor = doctor

    def hello(self) -> int:
        return os.getpid()

    def make(self, path: str, text: str = "") -> float:
        """Creates a file; returns the time. Durable on return: yes, except for its name."""
        descriptor = self._files.create(path)
        try:
            self._files.write(descriptor, text.encode())
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        return self._clock.steady_s()

    def stamp(self, path: str, mtime_ns: int) -> float:
        """Sets a file's mtime; returns the time. Durable on return: yes."""
        descriptor = self._files.open_claimed(path)
        try:
            self._files.stamp(descriptor, mtime_ns)
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        return self._clock.steady_s()

    def read(self, path: str) -> str | None:
        """A file's content; None if it does not exist."""
        try:
            return self._files.read_file(path, 100).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def mtime(self, path: str, locked: bool = False) -> int:
        """A file's mtime in nanoseconds: by its name, or once it is open and locked."""
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
        """Waits for the name to appear; returns when it was first seen, None if it never was."""
        folder, name = os.path.split(path)

        def is_seen() -> bool:
            if not by_listing:
                return self._files.status(path) is not None
            return any(entry.name == name for entry in self._files.entries(folder))

        return self._until(is_seen, within_s)

    def await_mtime(self, path: str, mtime_ns: int, within_s: float) -> float | None:
        """Waits for a file's mtime, read by its name, to be this one; returns as
        `await_name` does.
        """
        return self._until(lambda: self.mtime(path) == mtime_ns, within_s)

    def missed(self, path: str, for_s: float) -> dict[str, int]:
        """Looks repeatedly for a file that is being replaced; returns the number of looks, and of
        failures.
        """
        end_s = self._clock.steady_s() + for_s
        looks = missed = 0
        while self._clock.steady_s() < end_s:
            looks += 1
            missed += self._files.status(path) is None
        return {"looks": looks, "missed": missed}

    def lock(self, path: str, within_s: float = 0.0) -> bool:
        """Locks a file until `unlock`; False if another process had it locked all the time."""
        descriptor = self._files.open_claimed(path)
        try:
            had = self._until(lambda: self._files.lock(descriptor), within_s, _LOCK_LOOK_EVERY_S)
        except OSError:
            self._files.close(descriptor)
            raise
        if had is None:
            self._files.close(descriptor)
            return False
        self._locked[path] = descriptor
        return True

    def unlock(self, path: str) -> None:
        self._files.close(self._locked.pop(path))

    def race(
        self, path: str, side: str, claims: bool, count: int, at_s: float, apart_s: float
    ) -> list[int]:
        """Races for each of `count` files, `{path}{number}`: renames it to a name of its own, or
        creates it. Returns the numbers that it won. The n-th attempt begins `n * apart_s` after
        `at_s`.
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
        """Adds one to the number in a file `count` times, under the lock `{path}.lock`: writes in
        place, or replaces the file by a rename. Returns the numbers that it wrote.
        """
        self._until_time(at_s)
        made = []
        for _ in range(count):
            if not self.lock(f"{path}.lock", within_s):
                raise TimeoutError(f"no lock within {within_s:g} s")
            try:
                number = _number(self._files.read_file(path, _NUMBER_BYTES_MAX)) + 1
                self._pause.wait(_ADDING_S)
                self._put(path, f"{path}.{side}" if replaces else "", f"{number:09d}".encode())
            finally:
                self.unlock(f"{path}.lock")
            made.append(number)
            self._pause.wait(_ADDING_S)
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
        self, is_so: Any, within_s: float, every_s: float = _SEEN_LOOK_EVERY_S
    ) -> float | None:
        """Waits until the condition is true; returns the time, None if it was not within
        `within_s`.
        """
        end_s = self._clock.steady_s() + within_s
        while not is_so():
            if os.getppid() != self._doctor:
                raise SystemExit
            if self._clock.steady_s() >= end_s:
                return None
            self._pause.wait(every_s)
        return self._clock.steady_s()

    def _until_time(self, at_s: float) -> None:
        """Waits in a loop: sleeping would end late by more than a race takes."""
        while self._clock.steady_s() < at_s:
            pass


def _number(content: bytes) -> int:
    """A file's number; 0 for anything else: the additions are lost."""
    return int(content) if content.isdigit() else 0


def answer(doing: Doing, line: str) -> str:
    """Carries out a line's request; returns the answer's line."""
    what, arguments = json.loads(line)
    try:
        return json.dumps({"found": getattr(doing, what)(**arguments)})
    except OSError as error:
        return json.dumps({"errno": error.errno or 0, "error": error.strerror or str(error)})


def main() -> None:
    """Answers requests until standard input ends."""
    # The doctor, in the same process group, decides when to end.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    doing = Doing(int(sys.argv[1]))
    for line in sys.stdin:
        sys.stdout.write(answer(doing, line) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
