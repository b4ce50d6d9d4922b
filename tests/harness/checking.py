"""A check of a root with a clock that a test has: nobody waits."""

from collections.abc import Callable
from dataclasses import dataclass, field

from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import Flusher, NoFlusher
from mq.store.scan.tally import OVERDUE_AFTER_S
from mq.tools.fsck.checking import Asked, Check, Doing
from mq.tools.fsck.report import Finding, Report


@dataclass
class Heard:
    """What a watcher is told; `on_pause` is what happens while the check waits."""

    on_pause: Callable[[float], None] = lambda seconds: None
    ends_after: int | None = None
    folders: list[str] = field(default_factory=list)
    righted: list[Finding] = field(default_factory=list)
    pauses_s: list[float] = field(default_factory=list)
    asked: int = 0

    def began(self, folder: str, number: int, of: int) -> None:
        assert number < of
        self.folders.append(folder)

    def looked(self, names: int) -> None:
        assert names >= 0

    def put_right(self, finding: Finding) -> None:
        self.righted.append(finding)

    def wants_to_end(self) -> bool:
        self.asked += 1
        return self.ends_after is not None and self.asked > self.ends_after

    def pause(self, seconds: float) -> None:
        self.pauses_s.append(seconds)
        self.on_pause(seconds)


def checked(
    root: Root,
    doing: Doing = Doing.LOOK,
    queues: tuple[QueueName, ...] = (),
    heard: Heard | None = None,
    flusher: Flusher | None = None,
    again_after_s: float = 0,
) -> Report:
    """What a check reports."""
    asked = Asked(queues, doing, again_after_s, OVERDUE_AFTER_S)
    return Check(root, flusher or NoFlusher(), asked, heard or Heard()).run()
