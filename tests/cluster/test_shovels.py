"""Shovels of real processes: killed, stopped, of several at once, and by schedule."""

import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from harness.folders import message_files
from harness.processes import Process, Processes, eventually

COUNT = 6


def ask(mq: Process, method: str, path: str, body: bytes | None = None) -> Any:
    """The answer's JSON; None where it has none."""
    request = urllib.request.Request(mq.url + path, body, method=method)
    if method == "PATCH":
        request.add_header("Content-Type", "application/merge-patch+json")
    with urllib.request.urlopen(request, timeout=30) as response:
        content = response.read()
    return json.loads(content) if content else None


def sidelined(mq: Process, count: int = COUNT) -> list[str]:
    """Messages that were sidelined; their ids."""
    ask(mq, "PUT", "/orders")
    ids = [ask(mq, "POST", "/orders/messages", b"%d" % n)["id"] for n in range(count)]
    for message_id in ids:
        ask(mq, "POST", f"/orders/messages/{message_id}/sideline")
    return ids


def in_queue(root: Path, queue: str = "orders") -> set[str]:
    """Ids of what is ready in the queue."""
    found = (name.partition(":") for name in message_files(root)["queues"])
    return {message_id for name, _, message_id in found if name == queue}


def moved_some(mq: Process) -> bool:
    """Whether a run is in its middle, as other processes see it."""
    now = ask(mq, "GET", "/orders/shovel")
    return bool(now["state"] == "running" and now["moved"] > 0)


@pytest.mark.certificate
def test_one_that_is_killed_was_interrupted_and_the_next_moves_the_rest(
    daemons: Processes, root: Path
) -> None:
    mq, other = daemons.mq(root), daemons.mq(root)
    ids = sidelined(mq)
    run_id = ask(mq, "POST", "/orders/shovel?rate=1")["id"]
    eventually(lambda: moved_some(other), "the middle of the run")
    mq.kill()
    now = ask(other, "GET", "/orders/shovel")
    assert (now["id"], now["state"]) == (run_id, "interrupted")
    moved = in_queue(root)
    assert moved
    assert moved | in_queue(root, "orders_SIDELINE") == set(ids)
    assert now["ended"] is None
    ask(other, "POST", "/orders/shovel")
    eventually(lambda: ask(other, "GET", "/orders/shovel")["state"] == "done", "the next's end")
    assert ask(other, "GET", "/orders/shovel")["moved"] == len(ids) - len(moved)
    assert in_queue(root) == set(ids)


@pytest.mark.certificate
def test_another_process_stops_it(daemons: Processes, root: Path) -> None:
    mq, other = daemons.mq(root), daemons.mq(root)
    sidelined(mq)
    run_id = ask(mq, "POST", "/orders/shovel?rate=1")["id"]
    eventually(lambda: moved_some(other), "the middle of the run")
    ask(other, "DELETE", "/orders/shovel")
    eventually(lambda: ask(other, "GET", "/orders/shovel")["state"] == "stopped", "its end")
    now = ask(mq, "GET", "/orders/shovel")
    assert (now["id"], now["moved"]) == (run_id, len(in_queue(root)))
    assert in_queue(root, "orders_SIDELINE")


@pytest.mark.certificate
def test_one_that_is_stopped_loses_its_turn_and_takes_nothing_twice(
    daemons: Processes, root: Path
) -> None:
    mq, other = daemons.mq(root), daemons.mq(root)
    ids = sidelined(mq, 5 * COUNT)
    ask(mq, "POST", "/orders/shovel?rate=1")
    eventually(lambda: moved_some(other), "the middle of the run")
    os.kill(mq.popen.pid, signal.SIGSTOP)
    try:
        eventually(
            lambda: ask(other, "GET", "/orders/shovel")["state"] == "interrupted", "its silence"
        )
        run_id = ask(other, "POST", "/orders/shovel")["id"]
        eventually(lambda: ask(other, "GET", "/orders/shovel")["state"] == "done", "the next's end")
        # But for one whose lock the late one may have.
        moved = in_queue(root)
        assert len(moved) >= len(ids) - 1
        # Each is taken away: what the late one would move once more is not there.
        for message_id in moved:
            ask(other, "DELETE", f"/orders/messages/{message_id}")
    finally:
        os.kill(mq.popen.pid, signal.SIGCONT)
    mq.wait_for_log("a shovel ended")
    left = in_queue(root) | in_queue(root, "orders_SIDELINE")
    assert left == set(ids) - moved
    now = ask(other, "GET", "/orders/shovel")
    assert (now["id"], now["state"]) == (run_id, "done")


@pytest.mark.certificate
def test_by_schedule_and_a_run_of_a_killed_mover_goes_on_elsewhere(
    daemons: Processes, root: Path
) -> None:
    mq = daemons.mq(root)
    ids = sidelined(mq)
    ask(mq, "PATCH", "/orders/settings", b'{"shovel_interval_s": 1}')
    flags = ("--root", str(root), "--refresh", "0.5", "--assign-every", "1")
    movers = [daemons.mover(*flags) for _ in range(2)]
    eventually(lambda: in_queue(root) == set(ids), "all of them back")
    now = ask(mq, "GET", "/orders/shovel")
    assert (now["by"], now["interval_s"]) == ("scheduled", 1.0)
    movers[0].kill()
    for message_id in ids:
        ask(mq, "POST", f"/orders/messages/{message_id}/sideline")
    eventually(lambda: in_queue(root) == set(ids), "all of them back again", patience_s=90)
    ask(mq, "PATCH", "/orders/settings", b'{"shovel_interval_s": null}')
