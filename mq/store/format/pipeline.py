"""The names in leases/, journal/ and new/.spark/: the files of the Spark pipeline.

FORMAT.md, "leases" and "bulk publishes", says what each means.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.names import ConsumerName, Key, MessageId, QueueName
from mq.store.format.bucket_names import Shape, is_deep, parse_bucket
from mq.store.format.layout import Layout, new_name, parse_entry, split_entry

LEASE_SEQ_DIGITS_MAX: Final = 12
# How long a publish id is remembered.
LEDGER_KEPT_S: Final = 7 * 24 * 3600
# The number of bits of a time window, in milliseconds, whose ids only one task uses.
WINDOW_BITS: Final = 8

_STAGING: Final = ".spark"
_LISTINGS: Final = ".listings"
_LOCK: Final = ".lock"
_RELEASED: Final = ".back"
_ACKNOWLEDGED: Final = ".l"
_FOLD: Final = "."
_USUAL: Final = Shape()
_SEQ: Final = re.compile(rf"[1-9][0-9]{{0,{LEASE_SEQ_DIGITS_MAX - 1}}}")
_JOB: Final = re.compile(r"[0-9a-f]{32}")
_ATTEMPT: Final = re.compile(r"(0|[1-9][0-9]*)-(0|[1-9][0-9]*)")


class LeaseFile(Enum):
    """The kinds of names in leases/, of a lease or a consumer; the value is the suffix."""

    MANIFEST = ".json"
    LAPSED = ".lapsed"
    FOLDER = ""
    RELEASED = _RELEASED

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of messages."""
        return self in (LeaseFile.FOLDER, LeaseFile.RELEASED)


@dataclass(frozen=True, slots=True, order=True)
class LeaseName:
    """A consumer's lease by its number, from 1 on."""

    consumer: ConsumerName
    seq: int

    @property
    def text(self) -> str:
        return f"{self.consumer.text}.{self.seq}"

    @property
    def spot(self) -> str:
        """The `bucket` of its messages while it is open."""
        return f"{self.text}/"

    @property
    def released_spot(self) -> str:
        """The `bucket` of its messages while it is being released."""
        return f"{self.text}{_RELEASED}/"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a lease's name. Raises BadName."""
        consumer, _, seq = text.rpartition(".")
        if _SEQ.fullmatch(seq) is None:
            raise BadName("lease", "{consumer}.{number}")
        return cls(ConsumerName.parse(consumer), int(seq))


def lease_path(layout: Layout, lease: LeaseName, file: LeaseFile) -> str:
    """The path of a file or folder of the lease."""
    return f"{layout.leases}/{lease.text}{file.value}"


def new_manifest(layout: Layout, lease: LeaseName) -> str:
    """Where this process writes a manifest that replaces another. A dotfile, as for settings."""
    return f"{layout.leases}/{new_name(lease.text + LeaseFile.MANIFEST.value)}"


def owner_lock(layout: Layout, consumer: ConsumerName) -> str:
    """The file that the query which uses the consumer's name keeps locked."""
    return f"{layout.leases}/{consumer.text}{_LOCK}"


def acknowledged_folder(layout: Layout, lease: LeaseName, uuid: str) -> str:
    """The place of an acknowledged lease's folder."""
    return f"{layout.remove}/{lease.text}:{uuid}{_ACKNOWLEDGED}"


def parse_lease_file(name: str) -> tuple[LeaseName, LeaseFile]:
    """Parses a name of leases/. Raises BadName for a foreign file, and for an owner's lock."""
    for file in (LeaseFile.MANIFEST, LeaseFile.LAPSED, LeaseFile.RELEASED):
        if name.endswith(file.value):
            return LeaseName.parse(name.removesuffix(file.value)), file
    return LeaseName.parse(name), LeaseFile.FOLDER


def parse_owner_lock(name: str) -> ConsumerName:
    """The consumer of an owner's lock. Raises BadName."""
    if not name.endswith(_LOCK):
        raise BadName("lock", "{consumer}.lock")
    return ConsumerName.parse(name.removesuffix(_LOCK))


def is_acknowledged(name: str) -> bool:
    """Whether a folder of this name in remove/ is an acknowledged lease's."""
    return acknowledged_ms(name) is not None


def acknowledged_ms(name: str) -> int | None:
    """When a lease was acknowledged, by the name of its folder in remove/, in milliseconds since
    the epoch by its consumer's clock; None: the name is another's.
    """
    if not name.endswith(_ACKNOWLEDGED):
        return None
    try:
        lease, moment = parse_entry(name.removesuffix(_ACKNOWLEDGED))
        LeaseName.parse(lease.text)
    except BadName:
        return None
    return moment.published_ms


class JournalFile(Enum):
    """The kinds of a bulk publish's files in journal/; the value is the suffix."""

    JOURNAL = ".json"
    DONE = ".done"
    BEGUN = ".begun"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One task's attempt to write one partition of a job."""

    partition: int
    attempt: int

    @property
    def text(self) -> str:
        return f"{self.partition}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses an attempt's name. Raises BadName."""
        match = _ATTEMPT.fullmatch(text)
        if match is None:
            raise BadName("attempt", "{partition}-{attempt}")
        return cls(int(match.group(1)), int(match.group(2)))


@dataclass(frozen=True, slots=True, order=True)
class Fold:
    """A folder of an attempt's messages for one queue that moves to its place as a whole: `deep` is
    that place, written as a bucket (`{bucket}/{two digits}/`).
    """

    queue: QueueName
    deep: str

    @classmethod
    def of(cls, queue: QueueName, message_id: MessageId) -> Self:
        """The fold of a message. Only for queues of the usual shape."""
        return cls(queue, _USUAL.deep(message_id))

    @property
    def text(self) -> str:
        return f"{self.queue.text}:{self.deep[:-1].replace('/', _FOLD)}"

    @property
    def bucket(self) -> str:
        """The bucket that contains its place."""
        return self.deep[: self.deep.index("/") + 1]

    @property
    def first_ms(self) -> int:
        """The earliest possible publish time of its messages, in milliseconds since the epoch."""
        bucket, deep, _ = self.deep.split("/")
        parsed = parse_bucket(bucket)
        digits = "0" if parsed is None else parsed.digits
        return int(digits + deep, 16) << WINDOW_BITS

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses a fold's name. Raises BadName."""
        queue, place = split_entry(text)
        bucket, _, deep = place.partition(_FOLD)
        parsed = parse_bucket(bucket)
        if parsed is None or parsed.shard is not None or not is_deep(deep):
            raise BadName("fold", "{queue}:{bucket}.{two digits}")
        if len(parsed.digits) != _USUAL.digits:
            raise BadName("fold", "a bucket of the usual shape")
        return cls(QueueName.parse(queue), f"{bucket}/{deep}/")


def is_job(text: str) -> bool:
    """Whether it is a job's name: 32 hexadecimal digits."""
    return _JOB.fullmatch(text) is not None


def staging(layout: Layout) -> str:
    """The folder of jobs that are being written; made by the first job."""
    return f"{layout.new}/{_STAGING}"


def listings(layout: Layout) -> str:
    """The folder of spools, listings too long for memory; made on first use."""
    return f"{staging(layout)}/{_LISTINGS}"


def job_folder(layout: Layout, job: str) -> str:
    """The folder of one job's attempts; a file once the job was abandoned."""
    return f"{staging(layout)}/{job}"


def job_lock(layout: Layout, job: str) -> str:
    """The lock file for committing or abandoning a job."""
    return f"{job_folder(layout, job)}/{_LOCK}"


def window_claim(layout: Layout, job: str, window: int) -> str:
    """The claim file of the one attempt of a job that uses the window for its ids."""
    return f"{job_folder(layout, job)}/.{window:010x}"


def attempt_folder(layout: Layout, job: str, attempt: Attempt) -> str:
    """The folder that one attempt writes to."""
    return f"{job_folder(layout, job)}/{attempt.text}"


def staged_path(
    layout: Layout, job: str, attempt: Attempt, queue: QueueName, message_id: MessageId
) -> str:
    return f"{attempt_folder(layout, job, attempt)}/{queue.text}:{message_id.text}"


def staged_spot(job: str, attempt: Attempt) -> str:
    """The `bucket` of an attempt's staged messages below new/."""
    return f"{_STAGING}/{job}/{attempt.text}/"


def fold_folder(layout: Layout, job: str, attempt: Attempt, fold: Fold) -> str:
    """The folder of an attempt's fold."""
    return f"{attempt_folder(layout, job, attempt)}/{fold.text}"


def staged_beginning(layout: Layout, job: str, attempt: Attempt, queue: QueueName) -> str:
    """The part of the paths of an attempt's staged messages for a queue before the id."""
    return layout.beginning(State.NEW, queue, staged_spot(job, attempt))


def journal_lock(layout: Layout) -> str:
    """The lock file for making a commit point."""
    return f"{layout.journal}/{_LOCK}"


def journal_path(layout: Layout, name: Key, file: JournalFile) -> str:
    """A file of a bulk publish, by its publish id, or by its job if it has none."""
    return f"{layout.journal}/{name.written()}{file.value}"


def new_journal(layout: Layout, name: Key) -> str:
    """Where this process writes such a file. A dotfile: it means nothing until it is renamed."""
    return f"{layout.journal}/{new_name(name.written())}"


def parse_journal_file(name: str) -> tuple[Key, JournalFile]:
    """Parses a name of journal/. Raises BadName for a foreign file."""
    for file in JournalFile:
        if name.endswith(file.value):
            return Key.parse_written(name.removesuffix(file.value)), file
    raise BadName("journal", "{publish id}.json")
