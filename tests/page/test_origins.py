"""What pages of other origins may not have a browser do to an mq that it can reach."""

import ssl
from pathlib import Path

import aiohttp
import pytest
from harness.access import Tokens
from harness.api import UNKNOWN_ID, assert_problem, call
from harness.browser import Browser
from harness.certificates import HERE, Authority
from harness.processes import Processes
from harness.server import Serve, Server

from mq.protocol.endpoints import ENDPOINTS

CHANGING = [(each.method, each.path) for each in ENDPOINTS if each.changes]
FOREIGN = (
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://evil.example"},
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
)


def path_of(pattern: str) -> str:
    return pattern.format(
        queue="orders",
        id=UNKNOWN_ID,
        key="k",
        schedule="s",
        consumer="c",
        tag="t",
        asset="page.css",
    )


def test_whatever_is_no_reading_changes_something() -> None:
    reading = {("GET", "/{queue}/peek"), ("GET", "/-/queues"), ("HEAD", "/{queue}"), ("GET", "/-/")}
    assert not reading & set(CHANGING)
    assert ("GET", "/{queue}/messages") in CHANGING
    assert {method for method, _ in CHANGING} == {"GET", "POST", "PUT", "PATCH", "DELETE"}


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
async def test_a_page_of_another_origin_changes_nothing(
    server: Server, headers: dict[str, str]
) -> None:
    await call(server, "PUT", "/orders")
    message_id = (await call(server, "POST", "/orders/messages", data=b"x")).id
    for method, pattern in CHANGING:
        reply = await call(server, method, path_of(pattern), headers=headers)
        assert_problem(reply, 403, "foreign-origin")
    (row,) = (await call(server, "GET", "/orders/peek")).body.splitlines()
    assert message_id.encode() in row
    assert b'"receives": 0' in row


@pytest.mark.parametrize("site", ["same-origin", "none", None])
async def test_its_own_page_and_what_is_no_browser_may(server: Server, site: str | None) -> None:
    headers = {"Sec-Fetch-Site": site, "Origin": server.url} if site else {"Origin": server.url}
    assert (await call(server, "PUT", "/orders", headers=headers)).status == 201
    reply = await call(server, "POST", "/orders/messages", data=b"x", headers=headers)
    assert reply.status == 201
    assert (await call(server, "GET", "/orders/messages", headers=headers)).status == 200


async def test_reading_is_the_browser_s_to_judge(server: Server) -> None:
    await call(server, "PUT", "/orders")
    for path in ("/orders", "/orders/peek", "/-/queues", "/-/", "/-/page/main.js"):
        assert (await call(server, "GET", path, headers=FOREIGN[0])).status == 200
        # And it judges: nothing tells it that others may read.
        assert "Access-Control-Allow-Origin" not in (await call(server, "GET", path)).headers


async def test_who_shows_a_token_is_believed(serve: Serve, tokens: Tokens) -> None:
    server = await serve(tokens=tokens.path)
    shown = {**tokens.header("root"), **FOREIGN[2]}
    assert (await call(server, "PUT", "/orders", headers=shown)).status == 201
    assert_problem(await call(server, "PUT", "/orders", headers=FOREIGN[2]), 401, "unauthenticated")


async def test_a_token_that_nobody_asks_for_says_nothing(server: Server) -> None:
    headers = {"Authorization": "Bearer x", **FOREIGN[0]}
    assert_problem(await call(server, "PUT", "/orders", headers=headers), 403, "foreign-origin")


async def test_a_password_for_a_proxy_is_no_token(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    authority, clients = Authority(tmp_path), tmp_path / "clients"
    own, proxy = authority.pair("server", *HERE), authority.pair("proxy")
    clients.write_text('[[client]]\ncertificate = "CN=proxy"\ngrants = ["*:admin"]\n')
    clients.chmod(0o644)
    mq = daemons.mq(
        root, "--tls-cert", str(own.cert), "--tls-key", str(own.key),
        "--tls-client-ca", str(authority.ca), "--tls-clients", str(clients),
    )  # fmt: skip
    context: ssl.SSLContext = proxy.load(authority.context())
    password = {"Authorization": "Basic dzp4"}
    async with aiohttp.ClientSession(headers=password) as session:
        for headers, status in (({}, 201), *((each, 403) for each in FOREIGN)):
            url = f"https://localhost:{mq.port}/orders"
            async with session.put(url, headers=headers, ssl=context) as reply:
                assert reply.status == status


async def test_a_real_browser_s_page_of_another_port_changes_nothing(
    server: Server, serve: Serve, chromium: Browser
) -> None:
    other = await serve(root=server.root.with_name("other"))
    await call(server, "PUT", "/orders")
    await call(server, "POST", "/orders/messages", data=b"x")
    tab = await chromium.open(f"{other.url}/-/livez")
    ways = """async (url) => {
        const plain = { mode: "no-cors" };
        await fetch(url, plain);
        await fetch(url, { ...plain, method: "POST", body: "y" });
        const image = new Image();
        await new Promise((done) => { image.onerror = done; image.src = url + "?visibility=5"; });
    }"""
    await tab.page.evaluate(ways, f"{server.url}/orders/messages")
    (row,) = (await call(server, "GET", "/orders/peek")).body.splitlines()
    assert b'"receives": 0' in row


async def test_a_port_that_a_browser_leaves_out_is_no_other_origin(server: Server) -> None:
    headers = {"Host": "mq.example:443", "Origin": "https://mq.example"}
    assert (await call(server, "PUT", "/orders", headers=headers)).status == 201
    headers["Host"] = "mq.example:8443"
    assert_problem(await call(server, "PUT", "/more", headers=headers), 403, "foreign-origin")
