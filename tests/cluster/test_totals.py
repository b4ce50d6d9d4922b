"""Totals over processes, one of which is killed: no more is lost than what was not written."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from harness.processes import PATIENCE_S, Process, Processes, eventually


def ask(mq: Process, method: str, path: str, body: bytes | None = None) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{mq.url}{path}", body, headers, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        said = response.read()
    return json.loads(said) if response.headers.get_content_subtype() == "json" else said


def lifetime(mq: Process) -> dict[str, int]:
    said: dict[str, int] = ask(mq, "GET", "/orders")["lifetime"]
    return {name: count for name, count in said.items() if count}


@pytest.mark.certificate
def test_a_kill_loses_what_was_not_written_and_an_orderly_end_nothing(
    daemons: Processes, root: Path
) -> None:
    one, two = daemons.mq(root), daemons.mq(root)
    for queue in ("orders", "orders_SIDELINE"):
        ask(one, "PUT", f"/{queue}")
    ask(one, "PATCH", "/orders/settings", b'{"max_receives": 1}')
    # Later than the settings, which it would know half a second late.
    mover = daemons.mover("--root", str(root))
    for mq in (one, two):
        for _ in range(3):
            ask(mq, "POST", "/orders/messages", b"{}")
    ask(one, "GET", "/orders/messages?visibility=0.01")
    done = {"published": 6, "fetched": 1, "sidelined": 1}
    # What the others did is to be seen once they have written it.
    eventually(lambda: lifetime(two) == done, "all are counted", 4 * PATIENCE_S)
    ask(one, "POST", "/orders/messages", b"{}")
    ask(two, "POST", "/orders/messages", b"{}")
    one.kill()
    two.terminate()
    mover.terminate()
    again = lifetime(daemons.mq(root))
    assert again.pop("published") in (7, 8)
    assert again == {"fetched": 1, "sidelined": 1}
