"""The coordinator of one who shares with nobody: every queue is its own."""

from collections.abc import Collection

from mq.coordination.coordinator import View
from mq.model.names import QueueName


class Alone:
    """Leads itself."""

    kind = "alone"

    def __init__(self, member: str) -> None:
        self.member = member

    def start(self) -> None:
        """Nothing to join."""

    def run_once(self, queues: Collection[QueueName]) -> None:
        """Nothing to say, and nobody to say it to."""

    def has(self, queue: QueueName) -> bool:
        """Each is."""
        return True

    def next_due_s(self) -> float:
        """Never."""
        return float("inf")

    def view(self) -> View:
        """Itself alone."""
        return View(self.member, (self.member,))

    def stop(self) -> None:
        """Nothing to leave."""
