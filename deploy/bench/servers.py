"""The servers that the benches ask: mq on a root, and aiohttp's empty answer."""

import urllib.request
from typing import Final

from deploy.bench.ceiling import Commit
from tests.harness.processes import Process, Processes

QUEUE: Final = "bench"
MESSAGES: Final = f"/{QUEUE}/messages"


def commit_flags(commit: Commit, in_memory: bool) -> tuple[str, ...]:
    """A commit mode as flags of mq; none must be forced on anything but tmpfs."""
    if commit != "none":
        return ("--commit", commit)
    return ("--durability", "none", *(() if in_memory else ("--force",)))


def start_empty_server(started: Processes) -> Process:
    """aiohttp's low-level server, answering an empty 200 to everything."""
    server = started.start("deploy.bench.empty_server")
    server.port = int(server.wait_for_log(r"listening port=(\d+)").group(1))
    return server


def make_queue(server: Process, queue: str = QUEUE, settings: str = "") -> None:
    """PUTs a queue; `settings` is the query of it."""
    url = f"{server.url}/{queue}{'?' if settings else ''}{settings}"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
        answer.read()
