"""Ctrl-C in a job's command, at a moment that neither py4j nor the job passes on as it came."""

import io
import logging
import os
import signal

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from rich.console import Console

from mq.model.errors import MqError
from mq.spark.commands.archive import ending_by_signal
from mq.spark.commands.running import Bar, Job, pace
from mq.tools.mqctl.exits import ExitCode, Failed


class Session:
    """What a command asks of Spark: to be stopped."""

    is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """The one that every job gets."""
    made = Session()
    monkeypatch.setattr("mq.spark.commands.running.batch_session", lambda *_, **__: made)
    return made


def new_job() -> Job:
    return Job(None, None, {}, as_json=False, is_quiet=True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_that_py4j_trips_over_is_one(
    number: signal.Signals, session: Session, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGINT)

    def trips() -> None:
        try:
            os.kill(os.getpid(), number)
        except KeyboardInterrupt:
            logging.exception("KeyboardInterrupt while sending command.")
            raise Py4JError("Gateway must be connected to send cancel cmd.") from None

    with pytest.raises(KeyboardInterrupt), new_job().running():
        trips()
    assert session.is_stopped
    assert "Traceback" not in capfd.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before


def test_the_second_interrupt_of_an_archive_is_one() -> None:
    def trips_the_second_time() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        assert ending.is_set()
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            raise Py4JError("Gateway must be connected to send cancel cmd.") from None

    with pytest.raises(KeyboardInterrupt), new_job().running(), ending_by_signal() as ending:
        trips_the_second_time()


def test_what_an_interrupted_job_says_of_going_on_is_told() -> None:
    def says() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt as error:
            raise MqError("go on with it") from error

    with pytest.raises(Failed, match="go on with it") as failed, new_job().running():
        says()
    assert failed.value.exit_code == ExitCode.INTERRUPTED


def test_an_error_without_an_interrupt_is_a_failure() -> None:
    with pytest.raises(Failed, match="Spark: lost") as failed, new_job().running():
        raise Py4JError("lost")
    assert failed.value.exit_code == ExitCode.REFUSED


def test_progress_says_how_fast_and_what_is_left() -> None:
    assert pace(0, 100, 5) == pace(5, 100, 0) == ""
    assert pace(250_000, 1_000_000, 2) == "125,000/s, 0:00:06 left"
    assert pace(3, None, 2) == "2/s"
    seen = io.StringIO()
    console = Console(file=seen, force_terminal=True, width=120)
    with Bar(console, is_quiet=False) as bar:
        bar.began("drains", lambda: 40)
        bar.advanced(10)
    assert "drains" in seen.getvalue()
    assert "10/40" in seen.getvalue()
    # A count takes time: it is for those who see it.
    with Bar(console, is_quiet=True) as bar:
        bar.began("drains", lambda: pytest.fail("is counted"))
        bar.advanced(10)
