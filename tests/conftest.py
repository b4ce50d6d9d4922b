"""Fixtures: an mq in this process's event loop over a real socket, and daemons as processes."""

import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import hypothesis
import pytest
from harness.access import Tokens, tokens_of_all
from harness.chance import examples
from harness.needs import cannot_run, program
from harness.outcome import Recorder
from harness.parts import BY_NAME
from harness.processes import Processes, processes
from harness.server import Serve, Server
from harness.side_by_side import ByFile, longest_first
from harness.tiers import Tiers, Within

from mq.daemon.daemon import Daemon
from mq.model.clock import Clock
from mq.runtime.server_settings import ServerSettings
from mq.store.disk.files import Files

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile(
    "mq",
    deadline=None,
    max_examples=examples(100),
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("mq")


def pytest_addoption(parser: pytest.Parser) -> None:
    tiers = ("check", "sample", "certificate")
    parser.addoption("--tier", choices=tiers, help="the tests to run")
    parser.addoption("--part", choices=tuple(BY_NAME), help="those of a part of the certificate")
    parser.addoption("--outcome", type=Path, help="a file for what came of the run")
    parser.addoption("--within", type=float, help="seconds, after which no test begins")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tiers(config))
    if (outcome := config.getoption("--outcome")) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(outcome.resolve()))
    if (seconds := config.getoption("--within")) is not None:
        config.pluginmanager.register(Within(config, seconds))
    # A background job may have SIGINT ignored, and one of nohup SIGHUP; what tests start would
    # inherit that.
    for number, usual in (
        (signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)
    ):  # fmt: skip
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile | None:
    """Of `--dist loadfile`, as `deploy/check` has it."""
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of several workers, each has the tests in one and the same order; where time is short, what
    is most relevant stays first.
    """
    if hasattr(config, "workerinput") and config.getoption("--within") is None:
        longest_first(items)


def pytest_collection_finish() -> None:
    """What stays to the end is not looked through each time that garbage is collected."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where a test's root goes; not made yet."""
    return tmp_path / "root"


@pytest.fixture
async def serve(root: Path) -> AsyncIterator[Serve]:
    """Starts an mq in this loop: `await serve(body_idle_s=0.2)`, with fields of ServerSettings,
    and `files` and `clock` as seams. Several may share the root.
    """
    started: list[Server] = []

    async def start(
        files: Files | None = None, clock: Clock | None = None, **settings: Any
    ) -> Server:
        where = Path(settings.pop("root", root))
        made = ServerSettings(root=where, port=0, **{"drain_s": 5, **settings})
        daemon = Daemon(made, files=files, clock=clock)
        port = await daemon.start()
        session = aiohttp.ClientSession(auto_decompress=False)
        server = Server(daemon, where, f"http://127.0.0.1:{port}", port, session)
        started.append(server)
        return server

    yield start
    for server in started:
        await server.session.close()
        await server.daemon.drain()


@pytest.fixture
async def server(serve: Serve) -> Server:
    """An mq with its defaults."""
    return await serve()


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    """A file with a token for each of the tests' callers."""
    return tokens_of_all(tmp_path / "tokens")


@pytest.fixture
def daemons() -> Iterator[Processes]:
    """Starts mq, mq-mover and mq-reaper as processes, and ends them."""
    with processes() as started:
        yield started


@pytest.fixture
def curl() -> str:
    """For tests that run the pages' commands."""
    return program("curl")


@pytest.fixture
def needs_root() -> None:
    """For tests that mount: they need root."""
    if os.geteuid() != 0:
        cannot_run("needs root, to mount")
