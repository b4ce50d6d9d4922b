"""How far a check is, for eyes: a bar on a terminal, quiet elsewhere; and how it is told to end."""

import os
import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from mq.tools.fsck.report import Told


class Ending:
    """Whether the check is to end: said by a signal, heard between two steps."""

    def __init__(self) -> None:
        self._said = threading.Event()

    def say(self) -> None:
        """From a signal's handler, too."""
        self._said.set()

    def wants_to_end(self) -> bool:
        """Whether somebody said so."""
        return self._said.is_set()

    def pause(self, seconds: float) -> None:
        """Returns after so long, or when somebody says so."""
        self._said.wait(seconds)


class Bar(Ending):
    """A bar of the root's folders, on a console that is a terminal."""

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def began(self, folder: str, number: int, of: int) -> None:
        """See Watcher."""
        name = os.path.basename(folder)
        self._progress.update(self._task, completed=number, total=of, description=name)

    def looked(self, names: int) -> None:
        """See Watcher."""
        self._progress.update(self._task, names=names)

    def put_right(self, told: Told) -> None:
        """See Watcher. The report has it."""
