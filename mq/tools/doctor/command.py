"""The command `mqctl doctor`: its flags, its table, its JSON document."""

import os
import signal
import stat
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click
from rich import box
from rich.table import Table
from rich.text import Text

from mq.model.clock import SystemClock
from mq.model.errors import StartupError
from mq.runtime.options import Number
from mq.store.disk.files import Files
from mq.tools.doctor.examine import SEEN_WITHIN_S, Examination, examine
from mq.tools.doctor.findings import Finding, Level, exit_code, worst
from mq.tools.mqctl.exits import ExitCode, Failed, of_signal
from mq.tools.mqctl.options import json_option
from mq.tools.mqctl.printing import Printer, shown

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE_S_MAX = 600
_COLUMNS = ("level", "probe", "found", "what helps")
_STYLES = {
    Level.OK: "green",
    Level.NOTE: "cyan",
    Level.WARN: "yellow",
    Level.UNKNOWN: "magenta",
    Level.WRONG: "bold red",
}


class _Interrupted(BaseException):
    """A signal that ends the process has arrived; its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Folder(click.Path):
    """A folder that exists, or that this user may not access: the examination reports that."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if not stat.S_ISDIR(os.stat(value).st_mode):
                self.fail(f"{value} is not a folder", param, ctx)
        except (FileNotFoundError, NotADirectoryError):
            self.fail(f"{value} does not exist", param, ctx)
        except OSError:
            pass
        return str(value)


@click.command()
@click.argument("root", type=_Folder())
@click.argument("second", type=_Folder(), required=False)
@click.option(
    "--patience",
    type=Number(0.1, _PATIENCE_S_MAX),
    default=SEEN_WITHIN_S,
    show_default=True,
    help="Seconds to wait until a change made at one mount is seen at the other.",
)
@json_option
def doctor(root: str, second: str | None, patience: float, as_json: bool) -> None:
    """Try what mq can promise in the folder ROOT, and at SECOND, another mount of it.

    ROOT is mq's, or a folder that is to become its own. The trials use a folder of their own,
    .doctor.*, which is gone at the end. Daemons may run meanwhile; no message is touched.

    Exits with 0 when all that mq needs is there, with 1 when something could not be tried, with 5
    when something that mq needs is missing or wrong.
    """
    before = {number: signal.signal(number, _interrupt) for number in _ENDING}
    printer = Printer(as_json)
    try:
        examined = _examined(root, second, patience, printer)
    except _Interrupted as interrupted:
        raise Failed(of_signal(interrupted.number)) from None
    except (StartupError, OSError) as error:
        raise Failed(ExitCode.REFUSED, f"doctor: {error}", as_json=as_json) from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    _print(examined, printer)
    printer.flush()
    click.get_current_context().exit(exit_code(examined.findings))


def _examined(root: str, second: str | None, patience_s: float, printer: Printer) -> Examination:
    """Examines the root; on a terminal, a line names the current probe."""
    files, clock = Files(), SystemClock()
    if printer.as_json or not printer.err_is_terminal:
        return examine(root, second, files, clock, patience_s)
    with printer.console(of_err=True).status("trying") as status:
        return examine(
            root, second, files, clock, patience_s, lambda probe: status.update(f"trying {probe}")
        )


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ends the examination. Later signals must not interrupt its clean-up."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise _Interrupted(number)


def _print(examined: Examination, printer: Printer) -> None:
    """Prints the findings, then the conclusion."""
    if printer.as_json:
        printer.document(_document(examined))
        return
    if printer.is_terminal:
        printer.console().print(_table(examined.findings))
    else:
        printer.table(_COLUMNS, [_cells(finding) for finding in examined.findings])
    conclusion = examined.conclusion
    printer.line(f"durability: {conclusion.durability}")
    printer.line(f"clustering: {conclusion.clustering}")
    for why in conclusion.why:
        printer.line(f"because: {why}")
    for setting in conclusion.settings:
        printer.line(f"set: {setting}")
    if examined.swept:
        printer.line(f"swept: {examined.swept} left by a doctor that was killed")


def _document(examined: Examination) -> dict[str, Any]:
    return {
        "root": examined.root,
        "second_mount": examined.second,
        "level": worst(finding.level for finding in examined.findings).value,
        "exit_code": exit_code(examined.findings),
        "durability": examined.conclusion.durability,
        "clustering": examined.conclusion.clustering,
        "because": list(examined.conclusion.why),
        "settings": list(examined.conclusion.settings),
        "leftovers_swept": examined.swept,
        "findings": [
            {
                "probe": finding.probe,
                "level": finding.level.value,
                "found": finding.says,
                "helps": finding.do or None,
                "facts": dict(finding.facts),
            }
            for finding in examined.findings
        ],
    }


def _cells(finding: Finding) -> tuple[str, str, str, str | None]:
    return finding.level.value, finding.probe, finding.says, finding.do or None


def _table(findings: Sequence[Finding]) -> Table:
    """A table of findings. Advice is below its finding, since few have it."""
    table = Table(*_COLUMNS[:3], box=box.SIMPLE_HEAD, pad_edge=False)
    for finding in findings:
        level, probe, says = (shown(cell) for cell in _cells(finding)[:3])
        found = Text(says)
        if finding.do:
            found.append(f"\n-> {shown(finding.do)}", "bold")
        table.add_row(Text(level, _STYLES[finding.level]), Text(probe), found)
    return table
