"""One daemon whose callers show tokens of its own, tokens of an issuer, or certificates."""

import secrets
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from harness.certificates import HERE, Authority
from harness.issuer import Issuer, SigningKey, jwk_set
from harness.server import Serve, Server
from harness.waiting import comes_true
from pytest_aiohttp import AiohttpServer

from mq import AsyncClient
from mq.access.tls import TlsFiles
from mq.model.clock import SystemClock
from mq.runtime.server_settings import JwtSettings

ONE, TWO = SigningKey(), SigningKey(kid="two")
CLIENTS = """
[[client]]
certificate = "CN=worker-1"
grants = ["orders:consume"]
"""


@pytest.fixture
async def issuer(aiohttp_server: AiohttpServer) -> Issuer:
    made = Issuer(jwk_set(ONE.public()))
    await made.start(aiohttp_server)
    return made


class Callers:
    """A daemon, and who asks it."""

    def __init__(self, server: Server, authority: Authority, clients: Path) -> None:
        self.server, self.authority, self.clients = server, authority, clients

    async def ask(self, method: str, path: str, token: str = "", name: str = "") -> int:
        """The status that a caller gets, by a token, a certificate of this name, or neither."""
        context: ssl.SSLContext = self.authority.context()
        if name:
            self.authority.pair(name).load(context)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://localhost:{self.server.port}{path}"
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as session,
            session.request(method, url) as answer,
        ):
            return answer.status


def token(key: SigningKey = ONE, **claims: Any) -> str:
    now_s = SystemClock().now_ms() // 1000
    said = {"sub": "shop", "aud": "mq", "exp": now_s + 60, "jti": secrets.token_hex(4)}
    return key.token(**{**said, **claims})


@pytest.fixture
async def callers(serve: Serve, issuer: Issuer, tmp_path: Path) -> Callers:
    authority = Authority(tmp_path)
    pair = authority.pair("server", *HERE)
    clients = tmp_path / "clients.toml"
    clients.write_text(CLIENTS)
    server = await serve(
        tls=TlsFiles(pair.cert, pair.key, authority.ca, "optional"),
        jwt=JwtSettings("mq", url=issuer.url, leeway_s=0),
        tls_clients=clients,
    )
    found = Callers(server, authority, clients)

    async def knows() -> bool:
        return await found.ask("PUT", "/orders", token(scope="mq:*:admin")) in (200, 201)

    await comes_true(knows)
    return found


async def test_whoever_shows_nothing_may_nothing(callers: Callers) -> None:
    assert await callers.ask("PUT", "/orders") == 401
    assert await callers.ask("POST", "/orders/messages") == 401
    assert await callers.ask("POST", "/orders/messages", "no token") == 401
    assert await callers.ask("GET", "/-/livez") == 200


async def test_an_issuer_s_token_may_what_its_claims_say(callers: Callers) -> None:
    publisher = token(mq_grants=["orders:publish"])
    assert await callers.ask("POST", "/orders/messages", publisher) == 201
    assert await callers.ask("POST", "/orders/messages?priority=1", publisher) == 201
    assert await callers.ask("GET", "/orders/messages", publisher) == 403
    assert await callers.ask("POST", "/orders/messages", token()) == 403
    now_s = SystemClock().now_ms() // 1000
    assert await callers.ask("POST", "/orders/messages", token(exp=now_s - 1)) == 401
    assert await callers.ask("POST", "/orders/messages", token(aud="others")) == 401
    assert await callers.ask("POST", "/orders/messages", token(TWO, scope="mq:*:admin")) == 401


async def test_a_certificate_may_what_the_file_says_until_that_is_another(callers: Callers) -> None:
    assert await callers.ask("GET", "/orders/messages", name="worker-1") == 204
    assert await callers.ask("POST", "/orders/messages", name="worker-1") == 403
    assert await callers.ask("GET", "/orders/messages", name="worker-2") == 401
    # A token goes before a certificate.
    publisher = token(mq_grants=["orders:publish"])
    assert await callers.ask("POST", "/orders/messages", publisher, "worker-1") == 201
    callers.clients.write_text(CLIENTS.replace("worker-1", "worker-2"))
    await callers.server.daemon.reload()
    assert await callers.ask("GET", "/orders/messages", name="worker-1") == 401
    assert await callers.ask("GET", "/orders/messages", name="worker-2") == 200


async def test_the_client_library_consumes_by_its_certificate(callers: Callers) -> None:
    await callers.ask("POST", "/orders/messages", token(scope="mq:orders:publish"))
    own = callers.authority.pair("worker-1")
    url = f"https://localhost:{callers.server.port}"
    files = {"ca_file": callers.authority.ca, "certificate": own.cert, "key": own.key}
    async with (
        AsyncClient(url, **files) as client,
        client.consume("orders", via="websocket") as consumer,
    ):
        async for message in consumer:
            async with message:
                break
