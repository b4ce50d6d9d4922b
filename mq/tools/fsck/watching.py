"""The progress of a check: a bar on a terminal, silent elsewhere; and the request to end it."""

import os
import threading
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mq.tools.fsck.report import Finding


class Ending:
    """The request to end a check: set by a signal, read between two steps."""

    def __init__(self) -> None:
        self._said = threading.Event()

    def say(self) -> None:
        """Requests the end. Safe in a signal's handler."""
        self._said.set()

    def wants_to_end(self) -> bool:
        return self._said.is_set()

    def pause(self, seconds: float) -> None:
        """Returns after `seconds`, or when the check should end."""
        self._said.wait(seconds)


class Bar(Ending):
    """A bar of the root's folders, if the console is a terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<12}"),
            BarColumn(),
            TextColumn("{task.fields[names]} names"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", names=0)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._progress.stop()

    def began(self, folder: str, number: int, of: int) -> None:
        name = os.path.basename(folder)
        self._progress.update(self._task, completed=number, total=of, description=name)

    def looked(self, names: int) -> None:
        self._progress.update(self._task, names=names)

    def put_right(self, finding: Finding) -> None:
        """See Watcher. Shows nothing: the report has it."""
