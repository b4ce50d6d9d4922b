"""What a root says to who archives it, and must not, or not now.

Floor 0. Beside `mq.errors`, and in its manner.
"""

from dataclasses import dataclass

from mq.errors import MqError


@dataclass(eq=False)
class ArchivedElsewhere(MqError):
    """The root's archive is in another folder, `to`: a root has one."""

    to: str

    def __str__(self) -> str:
        return f"mq: the root is archived to {self.to}; end that first, or go on with it"


class ArchiveBusy(MqError):
    """Another process archives the root."""

    def __str__(self) -> str:
        return "mq: another process archives this root; one at a time does"


class ArchiveNotEnabled(MqError):
    """The root has no archive that is enabled."""

    def __str__(self) -> str:
        return "mq: no archive is enabled for this root"


@dataclass(eq=False)
class ArchiveUnreadable(MqError):
    """A file of the root's archive/ says nothing that this mq understands; no program decides what
    it should say.
    """

    path: str
    why: str

    def __str__(self) -> str:
        return f"mq: {self.path} cannot be understood ({self.why})"
