"""A root, and the folder that it is drained to, with or without a table; without Spark: the tasks
run in this process.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.audits import assert_audits_clean
from harness.faults import CrashingFiles
from harness.folders import files_below, leased_files
from harness.leases import QUEUE, LeasingRoot
from mq.model.names import QueueName
from mq.spark.jobs.drain import Drained, DrainRun
from mq.spark.jobs.drained_folder import About, DrainedFolder
from mq.spark.jobs.draining import Draining, drain_partition
from mq.spark.jobs.row_reading import ids_in
from mq.spark.jobs.tables import DELTA_LOG, table_of
from mq.spark.jobs.tasks import Unwatched
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.format.pipeline import LeaseName
from mq.store.leases.releasing import give_back
from mq.store.opening import attach_root

OTHER = QueueName.parse("other")
LEASE_S = 60.0


class Unflushed(CrashingFiles):
    """Who dies by a signal has lost nothing that was not flushed."""

    def sync(self, descriptor: int) -> None:
        """Nothing."""

    def sync_folder(self, path: str) -> None:
        """Nothing."""


class Place(LeasingRoot):
    """A root with two queues, and the folder that they are drained to."""

    def __init__(self, top: Path, table: str = "") -> None:
        """`table`: of the folder, as tables.table_of has it."""
        super().__init__(top / "root")
        self.to = top / "out"
        self.table = table
        self.make_queue(OTHER)
        self.ids = sorted(
            each.text
            for queue, priority in ((QUEUE, 0), (QUEUE, 3), (OTHER, 0))
            for each in self.publish(3, queue, priority)
        )

    def drain(
        self, files: Files | None = None, to: Path | None = None, batch: int = 5, **more: Any
    ) -> Drained:
        """One run, of a process of its own."""
        files = files or Files()
        root = attach_root(str(self.top), files, self.clock)
        folder = DrainedFolder(to or self.to, files)
        flusher = FsyncFlusher(files, 1)

        def execute(draining: Draining) -> Iterator[dict[str, Any]]:
            for number in range(len(draining.names)):
                told = drain_partition(draining, number, files)
                if told is not None:
                    yield {"by_queue": None, "file": None, "damaged": 0} | told

        form = ("parquet", "zstd") if self.table else ("json", "none")
        state = more.pop("state", "")
        about = About("0123456789abcdef" * 2, str(self.top), *form, state, self.table)
        beside = (DELTA_LOG,) if self.table else ()
        with contextlib.closing(flusher), contextlib.closing(folder), folder.locked(beside):
            about = folder.claim(about)
            held = more.pop("held", 1000)
            table = table_of(self.table, folder.path, about.id, files)
            run = DrainRun(execute, root, flusher, folder, about, 2, Unwatched(), held, table)
            if about.state:
                return run.copy((QUEUE, OTHER), None)
            return run.drain((QUEUE, OTHER), more.pop("limit", None), batch, LEASE_S)

    def drained(self) -> Counter[str]:
        """What any reader of the folder finds."""
        names = sorted(self.to.glob("[!_]*.*")) if self.to.exists() else []
        return Counter(each for name in names for each in ids_in(name))

    def in_root(self) -> list[str]:
        ready = [each.name for queue in (QUEUE, OTHER)
                 for each in files_below(Path(self.root.layout.queue(queue)))]  # fmt: skip
        return sorted(ready + [each.partition(":")[2] for each in leased_files(self.top)])

    def assert_all_are_drained_once(self) -> None:
        assert self.drained() == Counter(self.ids)
        assert self.in_root() == []
        assert list(Path(self.root.layout.leases).iterdir()) == []
        assert list((self.to / "_mq" / "writing").iterdir()) == []
        assert {each.suffix for each in (self.to / "_mq" / "batches").iterdir()} == {".done"}
        assert_audits_clean(self.top, self.clock)

    def lapse(self) -> None:
        """The leases of who died lapse, and mq-mover gives their messages back."""
        self.pass_s(LEASE_S + 1)
        for path in Path(self.root.layout.leases).glob("drain-*.json"):
            name = LeaseName.parse(path.name.removesuffix(".json"))
            self.run(give_back(self.root, name, only_due=True))
