"""Folders and paths of a root: the one module that knows their names and separators.

`new/{queue}:{id}`, `queues/{queue}/{id}`, `delay/{queue}:{id}`, `remove/{queue}:{id}`,
`deleted/{queue}`, `format`. A deleted queue's folder lies in `remove/{queue}:{uuid}.d`.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from mq.errors import BadName
from mq.lifecycle import State
from mq.names import MessageId, QueueName

FORMAT_LINE: Final = "mq 1\n"

_SEPARATOR: Final = ":"
# Not the pid, which processes of two machines or containers may share.
_PROCESS: Final = os.urandom(8).hex()
_DELETED_FOLDER_SUFFIX: Final = ".d"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one root, absolute and as strings: they are made on every operation."""

    root: str
    new: str
    queues: str
    delay: str
    remove: str

    @classmethod
    def of(cls, root: str | Path) -> Self:
        """The layout of a root, made absolute."""
        top = os.path.abspath(root)
        return cls(top, f"{top}/new", f"{top}/queues", f"{top}/delay", f"{top}/remove")

    @classmethod
    def between(cls, source: Path, destination: Path) -> Self:
        """The layout around a folder of delayed messages and one of queues, wherever they are:
        their tombstones and what is removed lie beside the source.
        """
        around = cls.of(source.absolute().parent)
        return replace(around, delay=os.path.abspath(source), queues=os.path.abspath(destination))

    @property
    def format(self) -> str:
        """The file whose one line names the format's version."""
        return f"{self.root}/format"

    @property
    def tombstones(self) -> str:
        """The folder of deleted queues' tombstones."""
        return f"{self.root}/deleted"

    @property
    def queues_lock(self) -> str:
        """The file that whoever makes or deletes a queue has locked."""
        return f"{self.tombstones}/.lock"

    def folder(self, state: State) -> str:
        """The top folder of a state; for READY, the folder of the queues' folders."""
        match state:
            case State.NEW:
                return self.new
            case State.READY:
                return self.queues
            case State.DELAYED:
                return self.delay
            case State.REMOVED:
                return self.remove
            case State.ABSENT:
                raise ValueError("nothing lies nowhere")

    def folders(self) -> tuple[str, ...]:
        """Every folder that a root needs."""
        return (self.new, self.queues, self.delay, self.remove, self.tombstones)

    def queue(self, queue: QueueName) -> str:
        """The folder of a queue's ready messages; the queue exists while it does."""
        return f"{self.queues}/{queue.text}"

    def tombstone(self, queue: QueueName) -> str:
        """The file that says that the queue was deleted and not yet made again."""
        return f"{self.tombstones}/{queue.text}"

    def parent(self, state: State, queue: QueueName) -> str:
        """The folder that a message of the queue lies in while it is in the state."""
        return self.queue(queue) if state is State.READY else self.folder(state)

    def path(self, state: State, queue: QueueName, message_id: MessageId) -> str:
        """Where the message's file is while it is in the state."""
        if state is State.READY:
            return f"{self.queues}/{queue.text}/{message_id.text}"
        return f"{self.folder(state)}/{queue.text}{_SEPARATOR}{message_id.text}"

    def deleted_folder(self, queue: QueueName, uuid: str) -> str:
        """Where a deleted queue's folder goes: the uuid tells one deletion from the next."""
        return f"{self.remove}/{queue.text}{_SEPARATOR}{uuid}{_DELETED_FOLDER_SUFFIX}"

    def probe(self, state: State) -> str:
        """A file of this process to try the folder with. A dotfile, so that nobody takes it for
        a message.
        """
        return f"{self.folder(state)}/.probe.{_PROCESS}"


def entry_prefix(queue: QueueName) -> str:
    """How the names of the queue's files begin in new/, delay/ and remove/."""
    return queue.text + _SEPARATOR


def parse_entry(name: str) -> tuple[QueueName, MessageId]:
    """Reads a name of new/, delay/ or remove/. Raises BadName: the file is foreign."""
    queue, separator, message_id = name.partition(_SEPARATOR)
    if not separator:
        raise BadName("entry", "{queue}:{id}")
    return QueueName.parse(queue), MessageId.parse(message_id)


def is_deleted_folder(name: str) -> bool:
    """Whether a folder of this name in remove/ is a deleted queue's."""
    if not name.endswith(_DELETED_FOLDER_SUFFIX):
        return False
    try:
        parse_entry(name.removesuffix(_DELETED_FOLDER_SUFFIX))
    except BadName:
        return False
    return True
