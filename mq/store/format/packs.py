"""The names in new/.parts/: packs that are being parted, or were and are not in their places yet.

A folder `new/.parts/{queue}:{pack}.{try}.{state}/` is a try to part the pack, which was in this
state. Its files are named as all of new/. **It means something once the pack itself lies in it**:
then its other files are messages, which were the pack's. Without the pack it is a try that did not
end, and none of its files is ever delivered. FORMAT.md, "packs", has the rest.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Self

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.disk.files import Files
from mq.store.format.layout import Layout, parse_entry
from mq.store.format.walk import entries_if_there, named

_PARTS: Final = ".parts"
# The first digit of a token.
_BEGUN: Final = "1"
_GIVEN_UP: Final = "0"
_TRY: Final = re.compile(r"(.+)\.([01][0-9a-f]{15})\.(ready|delayed)")


@dataclass(frozen=True, slots=True)
class Try:
    """A try to part a pack of the queue, which was READY or DELAYED; `token`: 16 hex digits that no
    other try has.
    """

    queue: QueueName
    pack: MessageId
    token: str
    state: State

    @classmethod
    def begun(cls, queue: QueueName, pack: MessageId, state: State) -> Self:
        return cls(queue, pack, f"{_BEGUN}{os.urandom(8).hex()[1:]}", state)

    def given_up(self) -> "Try":
        """Another name of its folder: no process commits there any more."""
        return replace(self, token=f"{_GIVEN_UP}{os.urandom(8).hex()[1:]}")

    @property
    def is_given_up(self) -> bool:
        return self.token[0] == _GIVEN_UP

    @property
    def name(self) -> str:
        return f"{self.queue.text}:{self.pack.text}.{self.token}.{self.state.value}"

    @property
    def spot(self) -> str:
        """The `bucket` of its files below new/."""
        return f"{_PARTS}/{self.name}/"

    def folder(self, layout: Layout) -> str:
        return f"{parts(layout)}/{self.name}"

    def pack_path(self, layout: Layout) -> str:
        """The pack's path once it is parted."""
        return layout.path(State.NEW, self.queue, self.pack, self.spot)

    def item_path(self, layout: Layout, item: MessageId) -> str:
        return layout.path(State.NEW, self.queue, item, self.spot)


def parts(layout: Layout) -> str:
    """The folder of all tries; made on first use."""
    return f"{layout.new}/{_PARTS}"


def parse_try(name: str) -> Try:
    """Parses the name of a try's folder. Raises BadName for a foreign one."""
    match = _TRY.fullmatch(name)
    if match is None:
        raise BadName("parting", "{queue}:{pack}.{16 digits}.{ready or delayed}")
    queue, pack = parse_entry(match[1])
    if not pack.items:
        raise BadName("parting", "that of a pack")
    return Try(queue, pack, match[2], State(match[3]))


def tries(layout: Layout, files: Files) -> Iterator[Try]:
    """All tries that have a folder. Raises OSError."""
    for entry, each in named(entries_if_there(files, parts(layout)), parse_try):
        if entry.is_dir(follow_symlinks=False):
            yield each


def tries_of(layout: Layout, files: Files, queue: QueueName, pack: MessageId) -> list[Try]:
    """Those of one pack. Raises OSError."""
    return [each for each in tries(layout, files) if (each.queue, each.pack) == (queue, pack)]
