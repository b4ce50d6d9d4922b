"""A lease's manifest: the messages' queues and number, the consumer, and, as the file's mtime, the
due time.
"""

import json
import stat
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from mq.model.errors import BadName
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.pipeline import LeaseFile, LeaseName, lease_path

LEASE_S_DEFAULT: Final = 600
LEASE_S_MAX: Final = 7 * 24 * 3600
LEASED_MESSAGES_MAX: Final = 1_000_000
# A lease is renewed this many times within its period.
RENEWALS_PER_LEASE: Final = 3
MANIFEST_BYTES_MAX: Final = 1 << 20

_VERSION: Final = 1


class ManifestState(Enum):
    """The progress of a claim; the value is in the file."""

    CLAIMING = "claiming"
    CLAIMED = "claimed"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest. `messages` and `size_bytes` (of their files) are valid once it is
    CLAIMED.
    """

    lease: LeaseName
    queues: tuple[QueueName, ...] = ()
    lease_s: float = LEASE_S_DEFAULT
    state: ManifestState = ManifestState.CLAIMING
    messages: int = 0
    size_bytes: int = 0

    def written(self) -> bytes:
        fields = {
            "version": _VERSION,
            "consumer": self.lease.consumer.text,
            "seq": self.lease.seq,
            "queues": [queue.text for queue in self.queues],
            "lease_s": self.lease_s,
            "state": self.state.value,
            "messages": self.messages,
            "bytes": self.size_bytes,
        }
        return json.dumps(fields).encode() + b"\n"

    @classmethod
    def parse(cls, lease: LeaseName, text: bytes) -> Self:
        """Parses a manifest. A torn one, whose claim did not survive the crash, reads as a claim of
        which nothing is known.
        """
        try:
            fields = json.loads(text)
            return cls(
                lease,
                tuple(QueueName.parse(str(queue)) for queue in fields["queues"]),
                float(fields["lease_s"]),
                ManifestState(fields["state"]),
                int(fields["messages"]),
                int(fields["bytes"]),
            )
        except (BadName, KeyError, TypeError, ValueError, RecursionError):
            return cls(lease)


@dataclass(frozen=True, slots=True)
class ReadManifest:
    """A manifest, and the lease's due time in milliseconds since the epoch."""

    manifest: Manifest
    due_ms: int


def read_manifest(
    root: Root, lease: LeaseName, file: LeaseFile = LeaseFile.MANIFEST
) -> ReadManifest | None:
    """Reads a lease's manifest; with LAPSED, that of a released lease. None: there is none, or
    something else has its name. Raises OSError.
    """
    try:
        descriptor = root.files.open_read(lease_path(root.layout, lease, file))
    except OSError as error:
        if is_gone(error):
            return None
        raise
    try:
        status = root.files.descriptor_status(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        text = root.files.read(descriptor, MANIFEST_BYTES_MAX, 0)
    finally:
        root.files.close(descriptor)
    return ReadManifest(Manifest.parse(lease, text), status.st_mtime_ns // 1_000_000)
