"""TLS of mq as a command: flags, SIGHUP, several processes, given sockets, mqctl."""

import asyncio
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest
from harness.certificates import HERE, Authority, Pair
from harness.processes import PATIENCE_S, Process, Processes, eventually
from harness.raw import HANDSHAKE, RawConnection, raw_frame

from mq import Client, Worker


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.pair("server", *HERE)


def flags(pair: Pair) -> tuple[str, ...]:
    return ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key))


def url_of(process: Process) -> str:
    return f"https://localhost:{process.port}"


def shown(port: int, context: ssl.SSLContext) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        found = secured.getpeercert(True)
    assert found is not None
    return found


def replace(pair: Pair, by: Pair) -> None:
    pair.cert.write_bytes(by.cert.read_bytes())
    pair.key.write_bytes(by.key.read_bytes())


@pytest.mark.certificate
def test_all_processes_read_their_certificate_again_on_sighup(
    daemons: Processes, root: Path, authority: Authority, pair: Pair
) -> None:
    mq = daemons.mq(root, "--processes", "2", *flags(pair))
    context = authority.context()
    before = {shown(mq.port, context) for _ in range(10)}
    assert len(before) == 1
    replace(pair, authority.pair("new", *HERE))
    mq.popen.send_signal(signal.SIGHUP)
    for index in range(2):
        mq.wait_for_log(rf"TLS files reloaded.*process={index}|process={index}.*TLS files reloaded")
    after = {shown(mq.port, context) for _ in range(20)}
    assert len(after) == 1
    assert after.isdisjoint(before)
    assert mq.terminate() == 0


@pytest.mark.certificate
def test_one_process_goes_on_with_what_it_had_when_the_new_is_no_good(
    daemons: Processes, root: Path, authority: Authority, pair: Pair
) -> None:
    mq = daemons.mq(root, *flags(pair))
    before = shown(mq.port, authority.context())
    pair.cert.write_bytes(b"torn")
    mq.popen.send_signal(signal.SIGHUP)
    mq.wait_for_log("TLS files not reloaded")
    assert shown(mq.port, authority.context()) == before
    replace(pair, authority.pair("new", *HERE))
    mq.popen.send_signal(signal.SIGHUP)
    mq.wait_for_log("TLS files reloaded")
    assert shown(mq.port, authority.context()) != before
    # Nothing else was to be read, once with TLS and once without.
    assert mq.terminate() == 0
    assert not mq.logged("mq.access: callers reloaded")


def test_publish_consume_and_work_by_mutual_tls(
    daemons: Processes, root: Path, authority: Authority, pair: Pair
) -> None:
    """By the loop and the sockets that a daemon really has."""
    mq = daemons.mq(root, *flags(pair), "--tls-client-ca", str(authority.ca))
    own = authority.pair("worker")
    large = os.urandom(3_000_000)
    options = {"ca_file": authority.ca, "certificate": own.cert, "key": own.key}
    with Client(url_of(mq), **options) as client:
        queue = client.queue("orders")
        queue.create()
        for body in (b"small", large):
            queue.publish(body)
            message = queue.fetch()
            assert message is not None
            with message:
                assert message.body == body
        queue.publish_many([b"%d" % number for number in range(200)])
        with client.consume("orders", via="websocket") as consumer:
            found = set()
            for message in consumer:
                with message:
                    found.add(message.body)
                if len(found) == 200:
                    break
        handled: list[bytes] = []
        worker = Worker(url_of(mq), "orders", **options)

        def handle(message: object) -> None:
            handled.append(message.body)  # type: ignore[attr-defined]
            worker.stop()

        worker.handler()(handle)
        queue.publish(b"for the worker")
        worker.run()
        assert handled == [b"for the worker"]
    assert mq.terminate() == 0


@pytest.mark.certificate
def test_given_sockets_speak_tls(
    daemons: Processes, root: Path, authority: Authority, pair: Pair
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        mq = daemons.start(
            "mq", "--root", str(root), *flags(pair), "--descriptors", str(held.fileno()),
            descriptors=(held.fileno(),),
        )  # fmt: skip
        mq.wait_for_log("listening")
        assert shown(held.getsockname()[1], authority.context())


@pytest.fixture
def told(daemons: Processes, root: Path, authority: Authority, pair: Pair) -> Process:
    return daemons.mq(root, *flags(pair), "--tls-client-ca", str(authority.ca))


def mqctl(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "mq.tools.mqctl", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.certificate
def test_mqctl_shows_its_certificate(told: Process, authority: Authority) -> None:
    own = authority.pair("operator")
    said = ("--ca-file", str(authority.ca), "--cert", str(own.cert), "--cert-key", str(own.key))
    done = mqctl("--url", url_of(told), *said, "create", "orders")
    assert done.returncode == 0, done.stderr
    environment = {
        "MQ_URL": url_of(told),
        "MQ_CA_FILE": str(authority.ca),
        "MQ_CERT": str(own.cert),
        "MQ_CERT_KEY": str(own.key),
    }
    done = mqctl("queues", "--json", **environment)
    assert done.returncode == 0, done.stderr
    assert "orders" in json.dumps(json.loads(done.stdout))


@pytest.mark.certificate
def test_mqctl_says_what_is_wrong_with_its_files(authority: Authority, tmp_path: Path) -> None:
    own = authority.pair("operator")
    for arguments, why in (
        (("--url", "https://localhost:1", "--ca-file", str(tmp_path / "none")), "No such file"),
        (("--url", "https://localhost:1", "--cert-key", str(own.key)), "needs its certificate"),
        (("--ca-file", str(authority.ca)), "https://"),
        (("--url", "http://localhost:1", "--ca-file", str(authority.ca)), "https://"),
    ):
        done = mqctl(*arguments, "queues")
        assert done.returncode == 2, done.stderr
        assert why in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.certificate
@pytest.mark.parametrize(
    ("said", "why"),
    [
        (("--tls-cert", "a.pem"), "use both"),
        (("--tls-key", "a.key"), "use both"),
        (("--tls-client-ca", "ca.pem"), "needs --tls-cert"),
    ],
)
def test_flags_that_would_leave_mq_in_clear_are_refused(
    daemons: Processes, root: Path, said: tuple[str, ...], why: str
) -> None:
    mq = daemons.start("mq", "--root", str(root), "--port", "0", *said)
    assert mq.popen.wait(PATIENCE_S) == 2
    eventually(lambda: mq.logged(why), why)


@pytest.mark.certificate
def test_a_key_that_anybody_can_read_keeps_mq_from_starting(
    daemons: Processes, root: Path, pair: Pair
) -> None:
    pair.key.chmod(0o644)
    for more in ((), ("--processes", "2")):
        mq = daemons.start("mq", "--root", str(root), "--port", "0", *more, *flags(pair))
        assert mq.popen.wait(PATIENCE_S) == 1
        eventually(lambda mq=mq: mq.logged("mode 0644: others can use the key"), "why")


@pytest.mark.certificate
async def test_a_drain_ends_connections_whose_client_does_not_end_tls(
    daemons: Processes, root: Path, authority: Authority, pair: Pair
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root, *flags(pair), "--drain-timeout", "5")
    connector = aiohttp.TCPConnector(ssl=authority.context())
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.get(f"{url_of(mq)}/-/livez") as answer:
            assert answer.status == 200
        assert await asyncio.to_thread(mq.terminate) == 0


@pytest.mark.certificate
def test_who_breaks_the_protocol_of_a_websocket_is_told_so_by_tls_too(
    daemons: Processes, root: Path, authority: Authority, pair: Pair
) -> None:
    mq = daemons.mq(root, *flags(pair))

    async def code() -> int:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", mq.port, ssl=authority.context(), server_hostname="localhost"
        )
        connection = RawConnection(reader, writer)
        await connection.send(HANDSHAKE)
        assert (await connection.response()).status == 101
        await connection.send(raw_frame(b"", opcode=7))
        found, _ = await connection.close_code()
        await connection.ended()
        await connection.close()
        return found

    assert asyncio.run(code()) == 1002
    assert mq.terminate() == 0
    assert not mq.logged("ERROR")
