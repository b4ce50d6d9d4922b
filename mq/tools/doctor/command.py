"""The command `mqctl doctor`."""

import os
import signal
import stat
from types import FrameType
from typing import Any

import click

from mq.model.clock import SystemClock
from mq.model.errors import StartupError
from mq.runtime.options import Number
from mq.store.disk.files import Files
from mq.tools.doctor.examine import Examination, examine
from mq.tools.doctor.findings import exit_code
from mq.tools.doctor.limits import SEEN_WITHIN_S
from mq.tools.doctor.printing import print_examination
from mq.tools.mqctl.exits import ExitCode, Failed, of_signal
from mq.tools.mqctl.options import json_option
from mq.tools.mqctl.printing import Printer

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE_S_MAX = 600


class _Interrupted(BaseException):
    """A signal came that asks to end; its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Folder(click.Path):
    """A folder that is there, or that this user may not look for: the examination says so."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            if not stat.S_ISDIR(os.stat(value).st_mode):
                self.fail(f"{value} is no folder", param, ctx)
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
    help="Seconds that what is done at one mount is waited for at the other.",
)
@json_option
def doctor(root: str, second: str | None, patience: float, as_json: bool) -> None:
    """Try what mq can promise in the folder ROOT, and at SECOND, another mount of it.

    ROOT is mq's, or a folder that is to become its own. What is tried lies in a folder of its own,
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
    print_examination(examined, printer)
    printer.flush()
    click.get_current_context().exit(exit_code(examined.findings))


def _examined(root: str, second: str | None, patience_s: float, printer: Printer) -> Examination:
    """Where somebody looks, with a line that says what is tried."""
    files, clock = Files(), SystemClock()
    if printer.as_json or not printer.err_is_terminal:
        return examine(root, second, files, clock, patience_s)
    with printer.console(of_err=True).status("trying") as status:
        return examine(
            root, second, files, clock, patience_s, lambda probe: status.update(f"trying {probe}")
        )


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Ends the examination; what follows must not end its cleaning up."""
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise _Interrupted(number)
