"""An mq that leaves out flushes, to see whether a power-cut test notices.

    python -m crash.unflushed sync,sync_folder --root ...

The first argument names the methods of Files that do nothing.
"""

import sys

from mq.daemon.cli import main
from mq.store.disk.files import Files


def leave_out(method: str) -> None:
    """Makes a flush of Files do nothing."""
    assert method in ("sync", "sync_folder", "sync_file_system")
    setattr(Files, method, lambda self, what: None)


if __name__ == "__main__":
    for name in sys.argv.pop(1).split(","):
        leave_out(name)
    main()
