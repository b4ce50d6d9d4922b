"""How far a job is, for eyes: a bar on a terminal, and its lines alone elsewhere."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)


class Bar:
    """A Watcher: the job's step on stderr, while it is one of a terminal."""

    def __init__(self, console: Console, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=is_quiet or not console.is_terminal,
        )
        self._task: TaskID | None = None

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

    def began(self, what: str, of: int | None = None) -> None:
        """See Watcher."""
        if self._task is not None:
            self._progress.remove_task(self._task)
        self._task = self._progress.add_task(escape(what), total=of)

    def advanced(self, by: int) -> None:
        """See Watcher."""
        if self._task is not None:
            self._progress.advance(self._task, by)

    def noted(self, text: str) -> None:
        """See Watcher."""
        if not self._is_quiet:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
