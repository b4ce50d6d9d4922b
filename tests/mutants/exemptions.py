"""Mutants that the gate does not judge: those that need not be killed, and those that no test is
known to kill.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PROBE = "of a probe's file nothing is promised"
_SWEPT = "what deleted queues have left is swept in any order, and again where it comes back"

EXEMPT: Final[dict[str, str]] = {
    "mq/store/operations/reschedule.py _release: unlocked before yield "
    "flush._replace(files=(claim.descriptor,))": "the lock has ended by then, as it is to",
    "mq/store/disk/files.py: _NEW_FILE without O_NOFOLLOW": "O_EXCL refuses links as well",
    "mq/store/disk/files.py: _CLAIMED_FILE without O_NONBLOCK": (
        "an open for reading and writing does not wait at a FIFO, on Linux"
    ),
    "mq/store/operations/queues.py sweep_tombstones: yield from _sweep_keys(root) before yield from _sweep_settings(root)": _SWEPT,  # noqa: E501
    "mq/store/operations/queues.py sweep_tombstones: _sweep_unfinished(root) before yield from _sweep_settings(root)": _SWEPT,  # noqa: E501
    "mq/store/operations/queues.py sweep_tombstones: yield from sweep_marks(root) before yield from _sweep_keys(root)": _SWEPT,  # noqa: E501
    "mq/store/operations/queues.py sweep_tombstones: _sweep_unfinished(root) before yield from _sweep_keys(root)": _SWEPT,  # noqa: E501
    "mq/store/operations/queues.py sweep_tombstones: _sweep_unfinished(root) before yield from sweep_marks(root)": _SWEPT,  # noqa: E501
    "mq/store/operations/queues.py sweep_tombstones: for queue, since_ms in standing.items() behind yield from _sweep_settings(root)": _SWEPT,  # noqa: E501
    "mq/store/operations/queues.py sweep_tombstones: for queue, since_ms in standing.items() behind yield from _sweep_keys(root)": _SWEPT,  # noqa: E501
    "mq/store/operations/queues.py sweep_tombstones: for queue, since_ms in standing.items() behind yield from sweep_marks(root)": _SWEPT,  # noqa: E501
    "mq/coordination/root_id.py root_id: root.files.sync_folder(root.layout.members) behind found = root.files.linked(path)": "the name is made once: it is the same before its flush and after",  # noqa: E501
    "mq/store/archive/archiving.py _begin: _sweep_unfinished(root) behind yield from _merge(root)": "what an owner that died was writing means nothing, whenever it goes",  # noqa: E501
    "mq/store/bulk/journal.py _check: yield Flush(entries=(root.layout.queue(queue),)) behind refuse_expired(root, queue)": "a publish that is refused promises nothing of its queue",  # noqa: E501
    "mq/store/bulk/journal.py _check: if (mark := mark_of(root, queue)) is not None and mark.covers(uuid) before yield Flush(entries=(root.layout.queue(queue),))": "who rolls forward looks for the mark again",  # noqa: E501
    "mq/store/operations/publish.py assure_queue: yield Flush(entries=(root.layout.queue(draft.queue),)) behind if not queue_exists(root, draft.queue)": "who publishes looks for the queue again once the message is in delay/",  # noqa: E501
    "mq/store/keys/keyed.py take_links: of except FileNotFoundError: no raise QueueNotFound(queue.text) from None": "what follows, a rename or a look for the queue, says the same",  # noqa: E501
    "mq/store/operations/remove.py remove: without yield from no_such_queue(root, queue)": "the message is nowhere then, and `nowhere` says the same",  # noqa: E501
    "mq/store/core/turns.py in_turn: with _lock(root, path) as is_ours behind yield from _a_turn()": "the others of a group act one time more before it",  # noqa: E501
    "mq/store/core/moves.py move_there: flush the folders the other way round": "it is no flush: both queues are looked for, in either order",  # noqa: E501
    "mq/store/core/root.py probe_write: root.files.sync_folder(root.layout.folder(State.NEW)) before root.files.sync(descriptor)": _PROBE,  # noqa: E501
    "mq/store/core/root.py probe_write: unlink_if_there(root.files, path) before root.files.sync(descriptor)": _PROBE,  # noqa: E501
    "mq/store/core/root.py probe_write: unlink_if_there(root.files, path) before root.files.sync_folder(root.layout.folder(State.NEW))": _PROBE,  # noqa: E501
    "mq/store/core/root.py probe_write: root.files.write(descriptor, b'probe\\n') behind root.files.sync(descriptor)": _PROBE,  # noqa: E501
    "mq/store/core/root.py probe_write: descriptor = root.files.open_kept(path) behind root.files.sync_folder(root.layout.folder(State.NEW))": _PROBE,  # noqa: E501
}
"""What these change is promised nowhere: why."""

LIVING_FILE = Path(__file__).parent / "living.txt"


def living() -> list[str]:
    """Those that no test is known to kill: each wants a test, or a reason above. A list that only
    becomes shorter: what a rule finds in new code is not in it.
    """
    return LIVING_FILE.read_text().splitlines()


def are_killed(names: Iterable[str]) -> None:
    """They live no longer."""
    rest = sorted(set(living()) - set(names))
    LIVING_FILE.write_text("".join(f"{name}\n" for name in rest))
