"""Mutants that the gate does not judge: those that need not be killed, and those that no test is
known to kill.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_PROBE = "of a probe's file nothing is promised"
_SWEPT = "what deleted queues have left is swept in any order, and again where it comes back"

EXEMPT: Final[dict[str, str]] = {
    "mq/store/reschedule.py _release: unlocked before yield "
    "flush._replace(files=(claim.descriptor,))": "the lock has ended by then, as it is to",
    "mq/store/files.py: _NEW_FILE without O_NOFOLLOW": "O_EXCL refuses links as well",
    "mq/store/files.py: _CLAIMED_FILE without O_NONBLOCK": (
        "an open for reading and writing does not wait at a FIFO, on Linux"
    ),
    "mq/store/queues.py sweep_tombstones: yield from _sweep_keys(root) before yield from _sweep_settings(root)": _SWEPT,  # noqa: E501
    "mq/store/queues.py sweep_tombstones: _sweep_unfinished(root) before yield from _sweep_settings(root)": _SWEPT,  # noqa: E501
    "mq/store/queues.py sweep_tombstones: yield from sweep_marks(root) before yield from _sweep_keys(root)": _SWEPT,  # noqa: E501
    "mq/store/queues.py sweep_tombstones: _sweep_unfinished(root) before yield from _sweep_keys(root)": _SWEPT,  # noqa: E501
    "mq/store/queues.py sweep_tombstones: _sweep_unfinished(root) before yield from sweep_marks(root)": _SWEPT,  # noqa: E501
    "mq/store/queues.py sweep_tombstones: for queue, since_ms in standing.items() behind yield from _sweep_settings(root)": _SWEPT,  # noqa: E501
    "mq/store/queues.py sweep_tombstones: for queue, since_ms in standing.items() behind yield from _sweep_keys(root)": _SWEPT,  # noqa: E501
    "mq/store/queues.py sweep_tombstones: for queue, since_ms in standing.items() behind yield from sweep_marks(root)": _SWEPT,  # noqa: E501
    "mq/store/root.py probe_write: root.files.sync_folder(root.layout.folder(State.NEW)) before root.files.sync(descriptor)": _PROBE,  # noqa: E501
    "mq/store/root.py probe_write: unlink_if_there(root.files, path) before root.files.sync(descriptor)": _PROBE,  # noqa: E501
    "mq/store/root.py probe_write: unlink_if_there(root.files, path) before root.files.sync_folder(root.layout.folder(State.NEW))": _PROBE,  # noqa: E501
    "mq/store/root.py probe_write: root.files.write(descriptor, b'probe\\n') behind root.files.sync(descriptor)": _PROBE,  # noqa: E501
    "mq/store/root.py probe_write: descriptor = root.files.open_kept(path) behind root.files.sync_folder(root.layout.folder(State.NEW))": _PROBE,  # noqa: E501
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
