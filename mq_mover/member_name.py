"""How an mq-mover is called among those who share upkeep, where nobody says otherwise."""

import re
from typing import Final

_OTHER: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_HOST_CHARS_MAX: Final = 60


def member_name(host: str, pid: int, chance: bytes) -> str:
    """A name that no other process has: pids of two machines or containers may be the same, and
    one of a process that is gone may be had again, so chance is in it. Pure.
    """
    known = _OTHER.sub("-", host).strip("-_.")[:_HOST_CHARS_MAX] or "host"
    return f"{known}-{pid}-{chance.hex()}"
