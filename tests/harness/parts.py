"""The parts of `deploy/check certificate`, and the sample of them that `.ci/run` takes.

A test of the certificate belongs to the part that names the longest start of its path. Each part
takes at most ten minutes on two cores, so that a change asks for minutes and not for an hour.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath


@dataclass(frozen=True)
class Part:
    """Some tests of the certificate."""

    name: str
    covers: str
    paths: tuple[str, ...]
    """Starts of paths below `tests/`."""
    touches: tuple[str, ...]
    """Starts of paths in the checkout: a change of these asks for this part."""
    programs: tuple[str, ...] = ()
    """Programs that its tests start, beside Python's."""


_STORE = ("mq/store/", "mq/broker/", "mq/model/")
_FILE_SYSTEMS = ("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs", "fusermount3", "mount")

PARTS = (
    Part(
        "power",
        "each state that a power cut may leave, by the model of file systems",
        ("crash/test_states.py", "crash/test_legal_states.py"),
        (*_STORE, "mq_mover/", "mq_reaper/", "tests/crash/"),
        ("fusermount3", "mount"),
    ),
    Part(
        "images",
        "power cuts of ext4, xfs and btrfs in images, outages, disks that fail",
        (
            "crash/",
            "faults/test_real_disks.py",
            "store/disk/test_flush_disks.py",
            "tools/doctor/test_examine_disks.py",
        ),
        ("mq/store/disk/", "mq/store/core/", "mq/store/opening.py", "mq/tools/doctor/"),
        _FILE_SYSTEMS,
    ),
    Part(
        "faults",
        "each file call of each operation fails; full, read-only and lying disks",
        ("faults/", "tools/doctor/", "tools/fsck/"),
        (*_STORE, "mq/http/", "mq_mover/", "mq_reaper/", "tests/faults/"),
        ("fusermount3", "mount"),
    ),
    Part(
        "kills",
        "kill -9 under load and before each file call, histories of clusters",
        ("crash/test_kill.py", "faults/test_kill_at_every_call.py", "histories/"),
        (*_STORE, "mq/daemon/", "mq_mover/", "mq_reaper/", "tests/histories/"),
    ),
    Part(
        "mutants",
        "each flush, order and error that is taken out turns a test red",
        ("mutants/",),
        ("mq/store/", "mq_mover/", "mq_reaper/", "tests/mutants/"),
        ("fusermount3", "mount"),
    ),
    Part(
        "nfs",
        "NFS: a server that fails, two machines, and an imitation that lies",
        ("nfs/",),
        (*_STORE, "tests/nfs/"),
        (
            "ganesha.nfsd", "qemu-system-x86_64", "busybox", "mount.nfs4", "depmod", "cpio",
            "fusermount3", "unshare",
        ),
    ),
    Part(
        "queues",
        "what takes a server of its own and seconds: long waits, floods, random operations",
        (
            "broker/", "conformance/", "fuzz/", "http/", "metrics/", "model/", "openapi/",
            "protocol/",
            "runtime/", "store/",
        ),
        ("mq/broker/", "mq/http/", "mq/protocol/", "mq/store/"),
        ("curl", "nginx", "openssl", "systemd-analyze"),
    ),
    Part(
        "processes",
        "daemons as processes: supervision, clusters, leadership, tokens and TLS",
        ("access/", "cluster/", "coordination/", "daemon/", "mq_mover/", "mq_reaper/"),
        ("mq/access/", "mq/broker/", "mq/coordination/", "mq/daemon/", "mq/runtime/", "mq_mover/"),
        ("java", "nginx", "openssl", "strace", "zookeeper"),
    ),
    Part(
        "clients",
        "the client, workers as processes, clients of SQS, mqctl in terminals",
        ("client/", "sqs/", "testing/", "tools/"),
        ("mq/client/", "mq/sqs/", "mq/testing/", "mq/tools/"),
        ("nginx",),
    ),
    Part(
        "spark",
        "Spark: the source, the sink, streams, their failures",
        ("spark/",),
        ("mq/spark/", "mq/store/bulk/", "mq/store/leases/", "tests/spark/"),
        ("java",),
    ),
    Part(
        "jobs",
        "Spark's jobs: drain, load, archive, history, audit, shovel, replay, report",
        ("spark/jobs/", "spark/commands/"),
        ("mq/spark/", "mq/store/archive/", "mq/store/history/", "tests/spark/"),
        ("java", "chromium"),
    ),
    Part(
        "page",
        "the page in a browser: looks, actions, hostile content",
        ("page/",),
        ("mq/http/", "mq/metrics/", "tests/page/"),
        ("chromium",),
    ),
    Part(
        "deploy",
        "units, containers, alerts, documents, a release, a new machine",
        ("deploy/",),
        ("deploy/", "pyproject.toml", "README.md"),
        (
            "systemd-analyze", "strace", "prometheus", "promtool", "buildah", "mmdebstrap", "nginx",
            "curl",
        ),
    ),
    Part(
        "examples",
        "the pages' examples as written, migrations, benchmarks",
        ("examples/", "bench/"),
        ("README.md", "mq/GETTING_STARTED.md", "deploy/", "tests/examples/"),
        (
            "beanstalkd", "rabbitmqctl", "rsync", "mkfs.btrfs", "node", "npm", "java", "cc",
            "curl", "mkfs.ext4", "openssl",
        ),
    ),
    Part(
        "check",
        "the tests of deploy/check with five times the random examples, and the branches they take",
        (),
        (),
    ),
)  # fmt: skip
BY_NAME = {part.name: part for part in PARTS}

# Two minutes of proof with fixed seeds, `deploy/check sample`: 21 kills of mq and 14 of mq-mover
# and mq-reaper under load; each state that a power cut may leave of 20 operations; one fault at
# each file call of publish, fetch, delete and redelivery.
_STATES = (
    "first_start-flat", "restart-flat", "publish-flat", "publish-buckets", "publish_streamed-flat",
    "publish_keyed-flat", "publish_once-flat", "publish_lines-flat", "schedule-flat", "fetch-flat",
    "fetch-buckets", "extend-flat", "release_by_request-flat", "redeliver-flat",
    "delete_ready-flat", "delete_redelivered-flat", "delete_removed-buckets", "sideline-flat",
    "shovel-flat", "purge-flat",
)  # fmt: skip
_FAULTS = ("publish", "fetch", "delete-ready", "delete-fetched", "delete-again")
SAMPLE = (
    "crash/test_kill.py::test_kill_loses_and_invents_nothing[1-alone]",
    "crash/test_kill.py::test_kill_loses_and_invents_nothing[1-with-mover-and-reaper]",
    "crash/test_kill.py::test_kill_loses_and_invents_nothing[2-with-mover-and-reaper]",
    *(
        f"crash/test_states.py::test_every_state_keeps_what_was_promised[{name}]"
        for name in _STATES
    ),
    *(
        f"faults/test_every_call.py::test_every_call_of_a_request_may_fail[{name}-{mode}]"
        for name in _FAULTS
        for mode in ("EIO-fsync", "ENOSPC-fsync", "EIO-syncfs")
    ),
    "faults/test_every_upkeep_call.py::test_every_call_of_upkeep_may_fail[redeliver-EIO-fsync]",
    "faults/test_every_upkeep_call.py::test_every_call_of_upkeep_may_fail[reap-EIO-fsync]",
)


def part_of(path: str) -> Part | None:
    """The part of a module of tests: a path below `tests/`."""
    named = [(len(start), part) for part in PARTS for start in part.paths if path.startswith(start)]
    return max(named, key=lambda each: each[0])[1] if named else None


def asked_by(changed: list[str]) -> list[Part]:
    """The parts that a change asks for: paths in the checkout."""
    asked = []
    for part in PARTS:
        touched = any(path.startswith(part.touches) for path in changed if part.touches)
        tested = any(
            part_of(str(PurePosixPath(path).relative_to("tests"))) is part
            for path in changed
            if path.startswith("tests/")
        )
        if touched or tested:
            asked.append(part)
    return asked
