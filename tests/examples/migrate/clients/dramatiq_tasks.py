"""An actor of Dramatiq with the settings of MIGRATE.md, which DRAMATIQ_SETTINGS has: it fails the
first time, and then writes into the file LOG.
"""

import os
from pathlib import Path

import dramatiq

exec(Path(os.environ["DRAMATIQ_SETTINGS"]).read_text(encoding="utf-8"))
LOG = os.open(os.environ["LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
_failed = set()


@dramatiq.actor(max_retries=3, min_backoff=100)
def double(number: int) -> None:
    if number not in _failed:
        _failed.add(number)
        raise ValueError(number)
    os.write(LOG, f"{2 * number}\n".encode())
