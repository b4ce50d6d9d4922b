"""mq over TLS: real certificates, real handshakes."""

import asyncio
import contextlib
import gzip
import io
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.certificates import HERE, Authority, Pair, encrypt
from harness.faults import FaultyFiles
from harness.internals import connections, consumers
from harness.processes import PATIENCE_S
from harness.raw import raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true

from mq import AsyncClient
from mq.access.tls import ServerTls, TlsFiles
from mq.client.errors import ConnectionLost, CouldNotConnect
from mq.client.options import Retry
from mq.model.errors import StartupError
from mq.model.limits import BODY_HELD_BYTES_MAX

ONCE = Retry(attempts=1)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def pair(authority: Authority) -> Pair:
    return authority.pair("server", *HERE)


@pytest.fixture
async def secure(serve: Serve, authority: Authority, pair: Pair) -> Server:
    """An mq that serves TLS."""
    return await serve(tls=TlsFiles(pair.cert, pair.key))


@pytest.fixture
async def mutual(serve: Serve, authority: Authority, pair: Pair) -> Server:
    """An mq that asks who comes."""
    return await serve(tls=TlsFiles(pair.cert, pair.key, authority.ca))


@contextlib.asynccontextmanager
async def session(context: ssl.SSLContext) -> AsyncIterator[aiohttp.ClientSession]:
    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as made:
        yield made


async def status(server: Server, context: ssl.SSLContext) -> int:
    url = f"https://localhost:{server.port}/-/livez"
    async with session(context) as made, made.get(url) as answer:
        return answer.status


def shown_by(port: int, context: ssl.SSLContext) -> Awaitable[bytes]:
    def look() -> bytes:
        with (
            socket.create_connection(("127.0.0.1", port), 30) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            found = secured.getpeercert(True)
        assert found is not None
        return found

    return asyncio.to_thread(look)


@pytest.mark.certificate
async def test_both_ways_of_a_request_go_over_tls(secure: Server, authority: Authority) -> None:
    url = f"https://localhost:{secure.port}"
    async with session(authority.context()) as made:
        assert (await made.put(f"{url}/orders")).status == 201
        # The direct way, and the long one.
        assert (await made.post(f"{url}/orders/messages", data=b"plain")).status == 201
        packed = gzip.compress(b"as it is")
        headers = {"Content-Encoding": "gzip", "x-attribute-a": "1"}
        sent = await made.post(f"{url}/orders/messages?priority=3", data=packed, headers=headers)
        assert sent.status == 201
        got = await made.get(f"{url}/orders/messages", headers={"Accept-Encoding": "identity"})
        assert await got.read() == packed
        assert (await made.get(f"{url}/orders/messages")).status == 200
        waiting = asyncio.create_task(made.get(f"{url}/orders/messages?wait=30").__aenter__())
        await comes_true(lambda: consumers(secure, "orders"))
        await made.post(f"{url}/orders/messages", data=b"waited for")
        answer = await waiting
        assert await answer.read() == b"waited for"
        path = f"/orders/messages/{answer.headers['X-Message-Id']}"
        assert (await made.delete(url + path)).status == 202
        lines = b"\n".join(b"line %d" % number for number in range(300))
        split = await made.post(f"{url}/orders/messages?split=lines", data=lines)
        assert split.status in (200, 201), await split.text()
        many = await made.get(f"{url}/orders/messages?count=300")
        assert many.status == 200
        assert (await many.read()).count(b"\n") >= 299


@pytest.mark.certificate
async def test_a_large_body_streams_both_ways(secure: Server, authority: Authority) -> None:
    url = f"https://localhost:{secure.port}"
    body = bytes(range(256)) * (8 * BODY_HELD_BYTES_MAX // 256) + b"end"
    async with session(authority.context()) as made:
        await made.put(f"{url}/orders")
        for _ in range(2):
            sent = await made.post(f"{url}/orders/messages", data=io.BytesIO(body))
            assert sent.status == 201
            async with made.get(f"{url}/orders/messages") as got:
                assert await got.read() == body


async def test_the_client_library_publishes_and_consumes(
    secure: Server, authority: Authority
) -> None:
    url = f"https://localhost:{secure.port}"
    async with AsyncClient(url, ca_file=authority.ca) as client:
        queue = client.queue("orders")
        await queue.create()
        await queue.publish_many([b"%d" % number for number in range(20)])
        found = set()
        async with client.consume("orders", via="websocket") as consumer:
            async for message in consumer:
                async with message:
                    found.add(message.body)
                if len(found) == 20:
                    break
    assert found == {b"%d" % number for number in range(20)}


async def test_a_server_that_the_client_does_not_believe_is_left(
    secure: Server, tmp_path: Path
) -> None:
    url = f"https://localhost:{secure.port}"
    other = Authority(tmp_path, "other")
    async with AsyncClient(url, ca_file=other.ca, retry=ONCE) as client:
        with pytest.raises(CouldNotConnect, match="certificate is not trusted"):
            await client.queue("orders").create()


async def test_mutual_tls_lets_in_those_with_a_certificate_of_the_authority(
    mutual: Server, authority: Authority, tmp_path: Path
) -> None:
    url = f"https://localhost:{mutual.port}"
    good = authority.pair("worker")
    options: dict[str, Any] = {"ca_file": authority.ca, "retry": ONCE}
    async with AsyncClient(url, certificate=good.cert, key=good.key, **options) as client:
        await client.queue("orders").create()
    strangers = Authority(tmp_path, "strangers").pair("stranger")
    late = authority.pair("late", days=-1)
    for shown in (strangers, late, None):
        more = {} if shown is None else {"certificate": shown.cert, "key": shown.key}
        async with AsyncClient(url, **options, **more) as client:
            with pytest.raises((ConnectionLost, CouldNotConnect)):
                await client.queue("orders").create()
    assert await status(mutual, good.load(authority.context())) == 200


async def test_a_certificate_may_be_optional_but_not_a_bad_one(
    serve: Serve, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    server = await serve(tls=TlsFiles(pair.cert, pair.key, authority.ca, "optional"))
    good = authority.pair("worker")
    assert await status(server, authority.context()) == 200
    assert await status(server, good.load(authority.context())) == 200
    stranger = Authority(tmp_path, "strangers").pair("stranger")
    with pytest.raises(aiohttp.ClientError):
        await status(server, stranger.load(authority.context()))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_are_spoken(
    secure: Server, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = authority.context()
    context.minimum_version = context.maximum_version = version
    assert await status(secure, context) == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
async def test_older_tls_is_refused(
    secure: Server, authority: Authority, version: ssl.TLSVersion
) -> None:
    context = authority.context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    # It is the server who ends it: the client would speak it.
    with pytest.raises(ssl.SSLError, match=r"EOF|ALERT_PROTOCOL_VERSION"):
        await shown_by(secure.port, context)


async def test_a_cipher_that_does_not_authenticate_what_it_encrypts_is_refused(
    secure: Server, authority: Authority
) -> None:
    context = authority.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    with pytest.raises(ssl.SSLError, match=r"EOF|ALERT_HANDSHAKE_FAILURE"):
        await shown_by(secure.port, context)


async def test_plain_http_is_hung_up_on_and_others_go_on(
    secure: Server, authority: Authority
) -> None:
    async with raw_connection(secure.port) as connection:
        await connection.send(raw_head("GET", "/-/livez"))
        assert b"HTTP/1.1 200" not in await connection.ended()
    assert await status(secure, authority.context()) == 200


@pytest.mark.certificate
async def test_whoever_does_not_end_its_handshake_is_hung_up_on(
    serve: Serve, pair: Pair, authority: Authority
) -> None:
    server = await serve(tls=TlsFiles(pair.cert, pair.key), handshake_s=1.5)
    async with raw_connection(server.port) as silent, raw_connection(server.port) as halting:
        await halting.send(b"\x16\x03\x01\x02\x00\x01")
        assert await silent.ended() == b""
        await halting.ended()
    assert await status(server, authority.context()) == 200


@pytest.mark.certificate
async def test_a_handshake_that_ends_during_a_drain_does_not_hold_it_up(
    serve: Serve, pair: Pair, authority: Authority
) -> None:
    files = FaultyFiles()
    tls = TlsFiles(pair.cert, pair.key)
    server = await serve(tls=tls, files=files, commit="fsync", drain_s=2 * PATIENCE_S)
    base = f"https://localhost:{server.port}"
    came, leaves = ssl.MemoryBIO(), ssl.MemoryBIO()
    late = authority.context().wrap_bio(came, leaves, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        late.do_handshake()
    hello = leaves.read()
    async with session(authority.context()) as made:
        await (await made.put(f"{base}/q")).read()
        gate = files.hold("sync", "/new/")
        publishing = asyncio.create_task(made.post(f"{base}/q/messages", data=b"x"))
        await comes_true(gate.reached.is_set)
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(hello[:20])
        await comes_true(lambda: connections(server) == 1)
        draining = asyncio.create_task(server.daemon.drain())
        await comes_true(lambda: server.daemon.server is not None and server.daemon.server.drains)
        writer.write(hello[20:])
        while True:
            came.write(await reader.read(16384))
            try:
                late.do_handshake()
                break
            except ssl.SSLWantReadError:
                continue
        writer.write(leaves.read())
        await comes_true(lambda: connections(server) == 2)
        gate.open()
        assert (await publishing).status == 201
        await asyncio.wait_for(draining, PATIENCE_S)
        writer.close()


async def test_a_certificate_is_read_again_and_a_bad_one_changes_nothing(
    secure: Server, authority: Authority, pair: Pair
) -> None:
    context = authority.context()
    before = await shown_by(secure.port, context)
    async with session(context) as kept:
        url = f"https://localhost:{secure.port}/-/livez"
        await (await kept.get(url)).read()
        new = authority.pair("new", *HERE)
        cert, key = pair.cert.read_bytes(), pair.key.read_bytes()
        pair.cert.write_bytes(new.cert.read_bytes())
        await secure.daemon.reload()  # It does not fit its key yet.
        assert await shown_by(secure.port, context) == before
        pair.key.write_bytes(new.key.read_bytes())
        await secure.daemon.reload()
        assert await shown_by(secure.port, context) != before
        assert (await kept.get(url)).status == 200  # The old connection goes on.
        pair.cert.write_bytes(cert)
        pair.key.write_bytes(key)
        await secure.daemon.reload()
        assert await shown_by(secure.port, context) == before


async def test_an_authority_that_was_taken_away_is_believed_no_more(
    mutual: Server, authority: Authority, tmp_path: Path
) -> None:
    worker = authority.pair("worker").load(authority.context())
    assert await status(mutual, worker) == 200
    other = Authority(tmp_path, "other")
    trusted = other.pair("newcomer").load(authority.context())
    authority.ca.write_bytes(other.ca.read_bytes())
    await mutual.daemon.reload()
    with pytest.raises(aiohttp.ClientError):
        await status(mutual, worker)
    assert await status(mutual, trusted) == 200


async def test_where_certificates_are_asked_for_tls_1_2_is_not_spoken(
    mutual: Server, authority: Authority
) -> None:
    """Its sessions would be gone on with when their certificates are good no more."""
    context = authority.pair("worker").load(authority.context())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(aiohttp.ClientError):
        await status(mutual, context)


async def test_an_authority_s_file_that_others_may_write_is_refused(
    pair: Pair, authority: Authority
) -> None:
    authority.ca.chmod(0o664)
    with pytest.raises(StartupError, match="0664: others can write it"):
        ServerTls(TlsFiles(pair.cert, pair.key, authority.ca))


async def test_whoever_comes_again_shows_its_certificate_again(
    mutual: Server, authority: Authority
) -> None:
    context = authority.pair("worker").load(authority.context())

    def come(session: ssl.SSLSession | None) -> tuple[bool | None, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", mutual.port), 30) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as secured,
        ):
            secured.sendall(raw_head("GET", "/-/livez"))
            assert secured.recv(100).startswith(b"HTTP/1.1 200")
            return secured.session_reused, secured.session

    _, session = await asyncio.to_thread(come, None)
    is_reused, _ = await asyncio.to_thread(come, session)
    assert not is_reused


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o660, 0o602])
def test_a_key_that_others_can_use_is_refused(pair: Pair, mode: int) -> None:
    pair.key.chmod(mode)
    with pytest.raises(StartupError, match=f"mode {mode:04o}.*chmod 600"):
        ServerTls(TlsFiles(pair.cert, pair.key))


def test_a_key_of_a_group_is_one(pair: Pair) -> None:
    pair.key.chmod(0o640)
    ServerTls(TlsFiles(pair.cert, pair.key))


def test_files_that_cannot_be_used_are_told_of(
    pair: Pair, authority: Authority, tmp_path: Path
) -> None:
    other = authority.pair("other")
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    empty.chmod(0o600)
    for files, why in (
        (TlsFiles(tmp_path / "none", pair.key), "none.*No such file"),
        (TlsFiles(pair.cert, tmp_path / "none"), "cannot read .*none"),
        (TlsFiles(pair.cert, other.key), "KEY_VALUES_MISMATCH"),
        (TlsFiles(empty, pair.key), "cannot use .*empty"),
        (TlsFiles(pair.cert, empty), "cannot use .*empty"),
        (TlsFiles(pair.cert, pair.key, empty), "cannot use .*empty"),
        (TlsFiles(pair.cert, pair.key, tmp_path / "none"), "cannot read .*none"),
    ):
        with pytest.raises(StartupError, match=why):
            ServerTls(files)
    encrypt(pair)
    with pytest.raises(StartupError, match="encrypted"):
        ServerTls(TlsFiles(pair.cert, pair.key))


async def test_a_client_tells_of_files_that_cannot_be_used(
    authority: Authority, tmp_path: Path
) -> None:
    own = authority.pair("worker")
    url = "https://localhost:1"
    for files, why in (
        ({"ca_file": tmp_path / "none"}, "No such file"),
        ({"ca_file": own.key}, "cannot use the CA file"),
        ({"certificate": own.cert}, "cannot use"),
        ({"key": own.key}, "a key needs its certificate"),
        ({"certificate": tmp_path / "none"}, "No such file"),
    ):
        with pytest.raises(ValueError, match=why):
            AsyncClient(url, **files)
    with pytest.raises(ValueError, match="https"):
        AsyncClient("http://localhost:1", ca_file=authority.ca)
    encrypt(own)
    with pytest.raises(ValueError, match="encrypted"):
        AsyncClient(url, certificate=own.cert, key=own.key)
