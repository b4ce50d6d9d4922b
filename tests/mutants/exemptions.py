"""Mutants that the gate does not judge: those that need not be killed, and those that no test is
known to kill.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PROBE = "of a probe's file nothing is promised"
_LOCKED = "the message is locked before and after: what is decided of it stays the same"

EXEMPT: Final[dict[str, str]] = {
    "mq/store/archive/archiving.py _enable: with contextlib.suppress(FileExistsError) behind yield from _keep_number(root)": "without the folder there is no number to keep",  # noqa: E501
    "mq/store/operations/queues.py _bury: root.files.is_there(parts(root.layout)) is so": "without packs a second pass finds nothing",  # noqa: E501
    "mq/store/disk/files.py Files.flush_nameless: os.write(descriptor, b'\\n') behind os.fsync(descriptor)": _PROBE,  # noqa: E501
    "mq/store/operations/reschedule.py _release: unlocked before yield "
    "flush._replace(stamps=(claim.descriptor,))": "the lock has ended by then, as it is to",
    "mq/store/disk/files.py ClockFiles._changed: symbolic links are followed": (
        "a fake's root, which has no other owner, has no links"
    ),
    "mq/store/disk/files.py: _NEW_FILE without O_NOFOLLOW": "O_EXCL refuses links as well",
    "mq/store/disk/files.py: _CLAIMED_FILE without O_NONBLOCK": (
        "an open for reading and writing does not wait at a FIFO, on Linux"
    ),
    "mq/store/operations/reschedule.py _reschedule_at: if not is_held before yield from _keep(root, place, claim, failure)": _LOCKED,  # noqa: E501
    "mq/store/operations/reschedule.py _reschedule_at: yield from _keep(root, place, claim, failure) behind is_over = is_held and (not is_returned) and is_at_its_limit(root, place.queue, attempts)": _LOCKED,  # noqa: E501
    "mq/coordination/opening.py root_id: root.files.sync_folder(root.layout.members) behind found = root.files.linked(path)": "the name is made once: it is the same before its flush and after",  # noqa: E501
    "mq/store/archive/archiving.py _begin: sweep_unfinished(root, archive_folder(layout), kept_s=None) behind yield from _merge(root)": "what an owner that died was writing means nothing, whenever it goes",  # noqa: E501
    "mq/store/keys/keyed.py show_linked: of except FileNotFoundError: no raise QueueNotFound(queue.text) from None": "what follows, a rename or a look for the queue, says the same",  # noqa: E501
    "mq/store/operations/remove.py remove_many: without yield from no_such_queue(root, queue)": "the message is nowhere then, and `nowhere` says the same",  # noqa: E501
    "mq/store/operations/sideline.py sideline: without yield from no_such_queue(root, queue)": "the message is nowhere then, and `nowhere` says the same",  # noqa: E501
    "mq/store/operations/reschedule.py reschedule: without yield from no_such_queue(root, queue)": "the message is nowhere then, and `nowhere` says the same",  # noqa: E501
    "mq/store/operations/sideline.py opened: if into != queue.sideline() before yield from make_queue(root, into)": "a queue that shares a sideline which is not there finds nothing in it",  # noqa: E501
    "mq/store/opening.py open_root: for folder in layout.folders() before files.sync_folder(layout.root)": "nothing is promised before all of them are flushed",  # noqa: E501
    "mq/store/core/locks.py all_in_turn: with contextlib.ExitStack() as held behind yield from _a_turn()": "the others of a group act one time more before it",  # noqa: E501
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
    """Those that no test is known to kill: each wants a test, or a reason above."""
    return LIVING_FILE.read_text().splitlines()


def are_killed(names: Iterable[str]) -> None:
    """They live no longer."""
    rest = sorted(set(living()) - set(names))
    LIVING_FILE.write_text("".join(f"{name}\n" for name in rest))
