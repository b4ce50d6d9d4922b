"""Tokens and where mq listens, with real processes: SIGHUP, `--processes`, and what is refused."""

import asyncio
import contextlib
import os
import signal
import socket
from pathlib import Path

import pytest
from harness.access import Tokens, status
from harness.manager import handing_on, manager
from harness.processes import PATIENCE_S, Processes, eventually
from harness.raw import RawConnection, raw_connection, raw_head
from harness.siblings import server_pids
from harness.waiting import comes_true

ONE_LINE = "can be reached from elsewhere"


@pytest.mark.certificate
def test_sighup_has_tokens_read_again(daemons: Processes, root: Path, tokens: Tokens) -> None:
    mq = daemons.mq(root, "--tokens", str(tokens.path))
    assert status(mq.url, tokens.of["root"]) == 404
    newcomer = tokens.add("newcomer", "orders:consume")
    tokens.remove("root")
    assert status(mq.url, newcomer) == 401
    mq.popen.send_signal(signal.SIGHUP)
    mq.wait_for_log(r"INFO.* callers reloaded")
    assert (status(mq.url, newcomer), status(mq.url, tokens.of["root"])) == (404, 401)
    # A file that says nothing that can be meant changes nothing, and the log says why.
    tokens.damage()
    mq.popen.send_signal(signal.SIGHUP)
    mq.wait_for_log(r"ERROR.* callers not reloaded; the old ones stay .*line 2")
    assert (status(mq.url, newcomer), status(mq.url, tokens.of["root"])) == (404, 401)
    # And so does one that others may write.
    tokens.add("last", "orders:consume")
    tokens.path.chmod(0o666)
    mq.popen.send_signal(signal.SIGHUP)
    mq.wait_for_log(r"callers not reloaded; the old ones stay .*others may write it")
    assert status(mq.url, newcomer) == 404
    assert status(mq.url, tokens.of["last"]) == 401
    assert mq.terminate() == 0
    assert not any(token in line for line in mq.lines for token in tokens.of.values())


async def _status(connection: RawConnection, token: str) -> int:
    await connection.send(raw_head("GET", "/orders", f"Authorization: Bearer {token}"))
    return (await connection.response()).status


@pytest.mark.certificate
async def test_all_processes_hear_of_a_sighup(
    daemons: Processes, root: Path, tokens: Tokens
) -> None:
    mq = await asyncio.to_thread(
        daemons.mq, root, "--tokens", str(tokens.path), "--processes", "2", "--standalone"
    )
    # A file of before, and connections that are kept.
    async with contextlib.AsyncExitStack() as stack:
        kept = [await stack.enter_async_context(raw_connection(mq.port)) for _ in range(16)]
        assert {await _status(each, tokens.of["consumer"]) for each in kept} == {404}
        tokens.remove("consumer")
        newcomer = tokens.add("newcomer", "*:admin")
        mq.popen.send_signal(signal.SIGHUP)

        async def are_changed() -> bool:
            said = [
                (await _status(each, tokens.of["consumer"]), await _status(each, newcomer))
                for each in kept
            ]
            return said == [(401, 404)] * len(kept)

        await comes_true(are_changed, "all connections refuse the one and take the other")
    pids = server_pids(mq, 2)
    assert len(pids) == 2
    heard = "both processes say so"
    await comes_true(lambda: sum(" callers reloaded" in line for line in mq.lines) == 2, heard)
    # Nobody took it for an end.
    assert mq.popen.poll() is None
    assert await asyncio.to_thread(mq.terminate) == 0


def test_the_log_says_whom_it_was_refused_to_and_no_token(
    daemons: Processes, root: Path, tokens: Tokens
) -> None:
    mq = daemons.mq(root, "--tokens", str(tokens.path))
    assert status(mq.url, tokens.of["stranger"], "/orders/peek") == 403
    assert status(mq.url, "mq_secret", "/orders/peek") == 401
    mq.wait_for_log(r"WARNING.* refused .*problem=forbidden .*stranger lacks the right 'consume'")
    mq.wait_for_log(r"refused .*problem=unauthenticated .*path=/orders/peek")
    shown = (tokens.of["stranger"], "mq_secret")
    assert not any(token in line for line in mq.lines for token in shown)


@pytest.mark.certificate
def test_a_bad_file_keeps_mq_from_starting(daemons: Processes, root: Path, tokens: Tokens) -> None:
    tokens.damage()
    for flags in ((), ("--processes", "2")):
        mq = daemons.start("mq", "--root", str(root), "--tokens", str(tokens.path), *flags)
        assert mq.popen.wait(PATIENCE_S) == 1
        eventually(lambda mq=mq: mq.logged(r"tokens .*, line 2: "), "what is wrong")


@pytest.mark.certificate
@pytest.mark.parametrize("flags", [(), ("--processes", "2", "--standalone")])
def test_beyond_loopback_mq_does_not_start_without_access_control(
    daemons: Processes, root: Path, flags: tuple[str, ...]
) -> None:
    mq = daemons.start("mq", "--root", str(root), "--port", "0", "--address", "0.0.0.0", *flags)
    assert mq.popen.wait(PATIENCE_S) == 1
    eventually(lambda: mq.logged("--allow-anonymous"), "what to say")
    assert len(mq.lines) == 1
    assert ONE_LINE in mq.lines[0]
    # Nothing was made.
    assert not root.exists()


@pytest.mark.certificate
def test_where_it_is_meant_mq_starts(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--address", "0.0.0.0", "--allow-anonymous")
    assert status(mq.url, "x") == 404


@pytest.mark.certificate
def test_beyond_loopback_mq_starts_with_tokens(
    daemons: Processes, root: Path, tokens: Tokens
) -> None:
    mq = daemons.mq(root, "--address", "0.0.0.0", "--tokens", str(tokens.path))
    assert status(mq.url, "x") == 401
    assert status(mq.url, tokens.of["root"]) == 404


@pytest.mark.certificate
@pytest.mark.parametrize("flags", [(), ("--processes", "2")])
def test_sockets_that_are_given_are_looked_at_too(
    daemons: Processes, root: Path, flags: tuple[str, ...]
) -> None:
    with socket.create_server(("0.0.0.0", 0)) as made:
        mq = daemons.start(
            "mq", "--root", str(root), *flags, python=handing_on([made]),
            descriptors=[made.fileno()],
        )  # fmt: skip
        assert mq.popen.wait(PATIENCE_S) == 1
        eventually(lambda: mq.logged(ONE_LINE), "what is wrong")


@pytest.mark.certificate
@pytest.mark.parametrize("flags", [(), ("--processes", "2")])
def test_a_reload_ends_nothing_where_there_is_nothing_to_read(
    daemons: Processes, root: Path, flags: tuple[str, ...]
) -> None:
    with manager() as told:
        said = ("mq", "--root", str(root), "--port", "0", *flags)
        mq = daemons.start(*said, env=told.environment(60))
        told.hears("READY")
        mq.popen.send_signal(signal.SIGHUP)
        mq.wait_for_log("nothing to reload")
        assert mq.terminate() == 0


@pytest.mark.certificate
def test_a_process_that_has_just_started_hears_of_it_too(
    daemons: Processes, root: Path, tokens: Tokens
) -> None:
    said = ("--root", str(root), "--port", "0", "--processes", "2", "--tokens", str(tokens.path))
    mq = daemons.start("mq", *said)
    # It has not come to its first line by then.
    pid = int(mq.wait_for_log(r"started daemon=mq-0 pid=(\d+)").group(1))
    os.kill(pid, signal.SIGHUP)
    mq.wait_for_log(r" listening .*port=")
    mq.wait_for_log(" callers reloaded")
    assert mq.terminate() == 0
    assert not mq.logged("starts again")
