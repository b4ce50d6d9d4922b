"""What a service manager is told, and what of its environment is taken."""

import logging
from pathlib import Path

import pytest
from harness.manager import manager
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import StartupError
from mq.runtime.notify import Notifier, take_notifier

OWN = 4711
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_each_message_is_one_datagram(tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "notify") if kind == "path" else ""
    with manager(path) as told_to:
        notifier = take_notifier(told_to.environment(watchdog_s=2.5), OWN)
        assert notifier.watchdog_s == 2.5
        notifier.ready("Serving\nall")
        notifier.alive()
        notifier.status("Serving more")
        notifier.status("Serving more")
        notifier.stopping(1.5)
        told_to.hears("STOPPING")
    assert told_to.told == [
        {"READY": "1", "STATUS": "Serving all"},
        {"WATCHDOG": "1"},
        {"STATUS": "Serving more"},
        {"STOPPING": "1", "STATUS": "Draining", "EXTEND_TIMEOUT_USEC": "1500000"},
    ]


def test_a_manager_that_is_away_is_told_of_once_and_spoken_to_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(tmp_path / "notify")
    notifier = take_notifier({"NOTIFY_SOCKET": path}, OWN)
    with caplog.at_level(logging.WARNING):
        notifier.ready("Serving")
        notifier.alive()
    assert len(caplog.records) == 1
    with manager(path) as told_to:
        notifier.alive()
        told_to.hears("WATCHDOG")


def test_without_a_manager_nobody_is_told() -> None:
    notifier = take_notifier({"WATCHDOG_USEC": "1000"}, OWN)
    assert not notifier.is_told
    assert notifier.watchdog_s is None
    notifier.ready("Serving")
    assert Notifier(None, watchdog_s=3).watchdog_s is None


@pytest.mark.parametrize(("whose", "every_s"), [("4711", 3), ("1", None), ("", 3)])
def test_a_watchdog_is_for_the_process_that_it_names(whose: str, every_s: float | None) -> None:
    said = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": whose}
    assert take_notifier(said, OWN).watchdog_s == every_s


def test_the_variables_are_taken_away() -> None:
    said = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "HOME": "/"}
    take_notifier(said, OWN)
    assert said == {"HOME": "/"}


@given(address=WORDS, every=WORDS, whose=WORDS)
def test_whatever_it_says_is_taken_or_refused_in_one_line(
    address: str, every: str, whose: str
) -> None:
    said = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": every, "WATCHDOG_PID": whose}
    try:
        notifier = take_notifier(said, OWN)
    except StartupError as error:
        why = str(error)
    else:
        assert notifier.watchdog_s is None or notifier.watchdog_s > 0
        assert notifier.is_told is bool(address)
        return
    assert "NOTIFY_SOCKET" in why or "WATCHDOG_USEC" in why
    assert "\n" not in why
