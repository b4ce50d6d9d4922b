"""The doctor in this process, on real folders, and mounts that lie to it."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from harness.fuse import check_fuse, served

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.tools.doctor.examine import Examination, examine
from mq.tools.doctor.findings import Finding, Level
from mq.tools.doctor.ground import Ground, staked_out
from mq.tools.mqctl.cli import mqctl

# What is never seen is waited for so long.
SOON_S = 2.0


def examined(root: Path, second: Path | None = None) -> Examination:
    """All of it. Nothing is left in the root."""
    before = sorted(path.name for path in root.iterdir())
    found = examine(str(root), None if second is None else str(second), Files(), SystemClock(), 1.0)
    assert sorted(path.name for path in root.iterdir()) == before
    return found


def levels(found: Examination) -> dict[str, Level]:
    """Of each probe that did not say `ok`."""
    return {each.probe: each.level for each in found.findings if each.level is not Level.OK}


def finding(found: Examination, probe: str) -> Finding:
    (one,) = (each for each in found.findings if each.probe == probe)
    return one


def run(*arguments: str | Path) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(mqctl, ["doctor", *map(str, arguments)])


@contextlib.contextmanager
def grounds(root: Path) -> Iterator[Ground]:
    """For one probe alone."""
    with staked_out(str(root), Files(), SystemClock()) as ground:
        yield ground


class Mounts:
    """Mounts folders as file systems that lie."""

    def __init__(self, work: Path, stack: contextlib.ExitStack) -> None:
        self._work = work
        self._stack = stack

    def mount(self, name: str, *lies: str, kind: str = "lies", **options: Any) -> Path:
        """`work/server`, made when missing, mounted at `work/name`."""
        folder = self._work / "server"
        folder.mkdir(exist_ok=True)
        arguments = (str(folder), kind, ",".join(lies), json.dumps(options))
        return self._stack.enter_context(
            served("tools.doctor.lying_mount", self._work / name, *arguments)
        )


@contextlib.contextmanager
def lying_mounts(work: Path) -> Iterator[Mounts]:
    """For a test; skips it where nothing can be mounted."""
    check_fuse()
    with contextlib.ExitStack() as stack:
        yield Mounts(work, stack)
