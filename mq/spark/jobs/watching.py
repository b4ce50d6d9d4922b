"""How far a job is: what it says to whoever watches, and a watcher who does not care."""

from typing import Protocol


class Watcher(Protocol):
    """Whoever is told how far a job is; on the thread that runs the job."""

    def began(self, what: str, of: int | None = None) -> None:
        """A step of the job began: `what`, a few words in the present ("lists", "archives batch
        3"); `of`: how many messages (or names) it has, where that is known.
        """

    def advanced(self, by: int) -> None:
        """So many more of the step's messages are done."""

    def noted(self, text: str) -> None:
        """Something that a person is to read, and that ends nothing: a line."""


class Unwatched:
    """A watcher who does not care."""

    def began(self, what: str, of: int | None = None) -> None:
        """See Watcher."""

    def advanced(self, by: int) -> None:
        """See Watcher."""

    def noted(self, text: str) -> None:
        """See Watcher."""
