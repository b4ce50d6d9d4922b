"""The heads of a queue's groups, as far as this process knows. The head is the message of a group
that is in flight, or is coming back; the others of its group wait.

Pure; for the event loop's thread. A head is a hint that saves claims: the link of the group decides
(`mq.store.keys`). A forgotten head costs a claim that fails with GroupHeld; a stale one delays its
group until a scan has looked at the link again.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from mq.model.names import group_in

# Heads that a queue remembers in one process. A forgotten head costs a failed claim.
HEADS_MAX: Final = 16_384
# Heads whose links a scan looks at, the longest unchecked first.
HEADS_PER_LOOK: Final = 256


class Groups:
    """The groups of one queue that have a message in flight. Times are a steady clock's seconds."""

    def __init__(self, steady_s: Callable[[], float]) -> None:
        self._steady_s = steady_s
        self._heads: dict[str, tuple[str, float]] = {}
        """By the group's digits; the one that was looked at last comes last."""

    def holds_back(self, name: str) -> bool:
        """Whether another message of the group goes before that of this id."""
        if not self._heads or not (group := group_in(name)):
            return False
        head, until_s = self._heads.get(group, (name, inf))
        return head != name and self._steady_s() < until_s

    def holds(self, group: str) -> bool:
        """Whether a message of the group is out."""
        return group in self._heads and self._steady_s() < self._heads[group][1]

    def hold(self, group: str, head: str, for_s: float = inf) -> None:
        """From here on only `head` may go, for `for_s`; with an empty `head`, none."""
        if len(self._heads) >= HEADS_MAX and group not in self._heads:
            del self._heads[next(iter(self._heads))]
        self._heads[group] = head, self._steady_s() + for_s

    def let_go(self, group: str, head: str) -> bool:
        """The message was settled. Whether it was the head."""
        if self._heads.get(group, ("", 0.0))[0] != head:
            return False
        del self._heads[group]
        return True

    def forget(self) -> None:
        self._heads.clear()

    def held(self) -> dict[str, str]:
        now_s = self._steady_s()
        self._heads = {group: held for group, held in self._heads.items() if now_s < held[1]}
        return {group: head for group, (head, _) in self._heads.items()}

    def looked(self, heads: Mapping[str, str]) -> None:
        """A scan has checked these: they are still heads."""
        for group, head in heads.items():
            if self._heads.get(group, ("", 0.0))[0] == head:
                self._heads[group] = self._heads.pop(group)
