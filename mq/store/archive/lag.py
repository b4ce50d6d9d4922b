"""How far an archive is behind: what lies in remove/ that no stored ledger names."""

from collections.abc import Iterator

from mq.model.lifecycle import State
from mq.store.archive.ledger import ledgers, names_of, stored_ledgers
from mq.store.archive.removed_names import removed_names, without
from mq.store.core.root import Root
from mq.store.format.archive import parse_removed, removed_with_folder_ms
from mq.store.keys.holders import across, whereabouts


class LagLook:
    """One look through remove/, some names at a time; `messages` and `oldest_ms` (when it was
    removed, milliseconds since the epoch; None: there is none) are what was found so far. Memory
    does not grow with what lies there. What is stored meanwhile may count.
    """

    def __init__(self, root: Root) -> None:
        self.messages = 0
        self.oldest_ms: int | None = None
        self._root = root
        self._blocks = _unstored(root)

    def advance(self, names: int) -> bool:
        """Looks at so many names more, or some more than these; False at the end. Raises OSError,
        and is at its end then.
        """
        while names > 0:
            block = next(self._blocks, None)
            if block is None:
                return False
            names -= len(block)
            for name in block:
                self._count(name)
        return True

    def _count(self, name: str) -> None:
        status = self._root.files.status(f"{self._root.layout.remove}/{name}")
        if status is None or (status.st_nlink > 1 and lives_too(self._root, name)):
            return
        folder_ms = removed_with_folder_ms(name)
        came_ms = status.st_ctime_ns // 1_000_000 if folder_ms is None else folder_ms
        self.messages += 1
        self.oldest_ms = came_ms if self.oldest_ms is None else min(self.oldest_ms, came_ms)


def lives_too(root: Root, name: str) -> bool:
    """Whether a message of remove/, of two names, is somewhere else too, as a crash may leave it:
    whoever moves it next says which of the two counts.
    """
    removed = parse_removed(name)
    if whereabouts(root, removed.queue, removed.id) not in (None, State.REMOVED):
        return True
    # Where it came from the other side of a sideline, or by a shovel, just before.
    return across(root, removed.queue, removed.id) is not None


def _unstored(root: Root) -> Iterator[list[str]]:
    names = stored_ledgers(ledgers(root))
    with names_of(root, names, what_can_be_read=True) as have:
        yield from without(removed_names(root), have)
