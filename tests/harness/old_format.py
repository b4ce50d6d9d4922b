"""Roots of the format `mq 1`: the links of keys beside the queues."""

import os
from collections.abc import Callable
from pathlib import Path

OLD_LINE = "mq 1\n"
KINDS = ("keys", "idempotency", "firings", "groups")


def make_old(top: Path, flushed: Callable[[str], object] = lambda _: None) -> None:
    """Turns the root, which no daemon uses, into one of `mq 1`. `flushed`: makes a changed folder
    durable.
    """
    queues = sorted((top / "queues").iterdir())
    for kind in KINDS:
        (top / kind).mkdir(mode=0o700)
        for queue in queues:
            if (queue / f".{kind}").exists():
                (queue / f".{kind}").rename(top / kind / queue.name)
        flushed(str(top / kind))
    for queue in queues:
        flushed(str(queue))
    descriptor = os.open(top / "format", os.O_RDWR)
    os.write(descriptor, OLD_LINE.encode())
    os.fsync(descriptor)
    os.close(descriptor)
    flushed(str(top))
