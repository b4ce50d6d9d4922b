"""Names in leases/, journal/ and new/.spark/: what the pipeline keeps in a root.

FORMAT.md, "leases" and "bulk publishes", says what each means. Beside `layout`, the one module that
knows them.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from mq.model.bulk_limits import LEASE_SEQ_DIGITS_MAX, WINDOW_BITS
from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.names import ConsumerName, Key, MessageId, QueueName
from mq.store.format.bucket_names import Shape, is_deep, parse_bucket
from mq.store.format.layout import Layout, new_name, parse_entry, split_entry

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
    """What lies in leases/ of a lease, or of a consumer; the value is how the name ends."""

    MANIFEST = ".json"
    LAPSED = ".lapsed"
    FOLDER = ""
    RELEASED = _RELEASED

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder that holds messages."""
        return self in (LeaseFile.FOLDER, LeaseFile.RELEASED)


@dataclass(frozen=True, slots=True, order=True)
class LeaseName:
    """A consumer's lease by its number, 1 and up."""

    consumer: ConsumerName
    seq: int

    @property
    def text(self) -> str:
        """As it stands in names."""
        return f"{self.consumer.text}.{self.seq}"

    @property
    def spot(self) -> str:
        """The `bucket` of what lies in it while it is open."""
        return f"{self.text}/"

    @property
    def released_spot(self) -> str:
        """The `bucket` of what lies in it while it is given back."""
        return f"{self.text}{_RELEASED}/"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when it is no lease's name."""
        consumer, _, seq = text.rpartition(".")
        if _SEQ.fullmatch(seq) is None:
            raise BadName("lease", "{consumer}.{number}")
        return cls(ConsumerName.parse(consumer), int(seq))


def lease_path(layout: Layout, lease: LeaseName, file: LeaseFile) -> str:
    """Where a file or a folder of the lease is."""
    return f"{layout.leases}/{lease.text}{file.value}"


def new_manifest(layout: Layout, lease: LeaseName) -> str:
    """Where this process writes a manifest that takes another's place. A dotfile, as settings."""
    return f"{layout.leases}/{new_name(lease.text + LeaseFile.MANIFEST.value)}"


def owner_lock(layout: Layout, consumer: ConsumerName) -> str:
    """The file that the one query has locked that uses the consumer's name."""
    return f"{layout.leases}/{consumer.text}{_LOCK}"


def acknowledged_folder(layout: Layout, lease: LeaseName, uuid: str) -> str:
    """Where the folder of an acknowledged lease goes."""
    return f"{layout.remove}/{lease.text}:{uuid}{_ACKNOWLEDGED}"


def parse_lease_file(name: str) -> tuple[LeaseName, LeaseFile]:
    """Reads a name of leases/. Raises BadName: the file is foreign, or an owner's lock."""
    for file in (LeaseFile.MANIFEST, LeaseFile.LAPSED, LeaseFile.RELEASED):
        if name.endswith(file.value):
            return LeaseName.parse(name.removesuffix(file.value)), file
    return LeaseName.parse(name), LeaseFile.FOLDER


def parse_owner_lock(name: str) -> ConsumerName:
    """The consumer whose owner's lock has the name. Raises BadName."""
    if not name.endswith(_LOCK):
        raise BadName("lock", "{consumer}.lock")
    return ConsumerName.parse(name.removesuffix(_LOCK))


def is_acknowledged(name: str) -> bool:
    """Whether a folder of this name in remove/ is an acknowledged lease's."""
    return acknowledged_ms(name) is not None


def acknowledged_ms(name: str) -> int | None:
    """When a lease was acknowledged whose folder in remove/ has this name, milliseconds since the
    epoch by its consumer's clock; None: the folder is none of these.
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
    """What lies in journal/ of a bulk publish; the value is how the name ends."""

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
        """As it stands in names."""
        return f"{self.partition}-{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when it is no attempt's name."""
        match = _ATTEMPT.fullmatch(text)
        if match is None:
            raise BadName("attempt", "{partition}-{attempt}")
        return cls(int(match.group(1)), int(match.group(2)))


@dataclass(frozen=True, slots=True, order=True)
class Fold:
    """A folder of an attempt's messages for one queue that goes to its place whole: `deep` is that
    place, as a bucket is written (`{bucket}/{two digits}/`).
    """

    queue: QueueName
    deep: str

    @classmethod
    def of(cls, queue: QueueName, message_id: MessageId) -> Self:
        """That which the message lies in. Only for queues whose shape is the usual one."""
        return cls(queue, _USUAL.deep(message_id))

    @property
    def text(self) -> str:
        """As it stands in names."""
        return f"{self.queue.text}:{self.deep[:-1].replace('/', _FOLD)}"

    @property
    def bucket(self) -> str:
        """The bucket that its place lies in."""
        return self.deep[: self.deep.index("/") + 1]

    @property
    def first_ms(self) -> int:
        """No message in it was published before, milliseconds since the epoch."""
        bucket, deep, _ = self.deep.split("/")
        parsed = parse_bucket(bucket)
        digits = "0" if parsed is None else parsed.digits
        return int(digits + deep, 16) << WINDOW_BITS

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadName when it is no such folder's name."""
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
    """The folder of what jobs are writing; there from the first job on."""
    return f"{layout.new}/{_STAGING}"


def listings(layout: Layout) -> str:
    """The folder of listings that are too long to be held; there from the first one on."""
    return f"{staging(layout)}/{_LISTINGS}"


def job_folder(layout: Layout, job: str) -> str:
    """The folder of one job's attempts; a file, once the job was given up."""
    return f"{staging(layout)}/{job}"


def job_lock(layout: Layout, job: str) -> str:
    """What whoever commits a job, or forgets it, has locked."""
    return f"{job_folder(layout, job)}/{_LOCK}"


def window_claim(layout: Layout, job: str, window: int) -> str:
    """What the one attempt of a job has made that uses the window for its ids."""
    return f"{job_folder(layout, job)}/.{window:010x}"


def attempt_folder(layout: Layout, job: str, attempt: Attempt) -> str:
    """The folder that one attempt writes to."""
    return f"{job_folder(layout, job)}/{attempt.text}"


def staged_path(
    layout: Layout, job: str, attempt: Attempt, queue: QueueName, message_id: MessageId
) -> str:
    """Where a staged message is."""
    return f"{attempt_folder(layout, job, attempt)}/{queue.text}:{message_id.text}"


def staged_spot(job: str, attempt: Attempt) -> str:
    """The `bucket` of what an attempt has staged, below new/."""
    return f"{_STAGING}/{job}/{attempt.text}/"


def fold_folder(layout: Layout, job: str, attempt: Attempt, fold: Fold) -> str:
    """Where an attempt's folder is that goes to its place whole."""
    return f"{attempt_folder(layout, job, attempt)}/{fold.text}"


def staged_beginning(layout: Layout, job: str, attempt: Attempt, queue: QueueName) -> str:
    """What stands before the id in the paths of what an attempt has staged for a queue."""
    return layout.beginning(State.NEW, queue, staged_spot(job, attempt))


def journal_lock(layout: Layout) -> str:
    """What whoever makes a commit point has locked."""
    return f"{layout.journal}/{_LOCK}"


def journal_path(layout: Layout, name: Key, file: JournalFile) -> str:
    """Where a file of a bulk publish is, by its publish id, or by its job where it has none."""
    return f"{layout.journal}/{name.written()}{file.value}"


def new_journal(layout: Layout, name: Key) -> str:
    """Where this process writes one. A dotfile: it means nothing until it is renamed."""
    return f"{layout.journal}/{new_name(name.written())}"


def parse_journal_file(name: str) -> tuple[Key, JournalFile]:
    """Reads a name of journal/. Raises BadName: the file is foreign."""
    for file in JournalFile:
        if name.endswith(file.value):
            return Key.parse_written(name.removesuffix(file.value)), file
    raise BadName("journal", "{publish id}.json")
