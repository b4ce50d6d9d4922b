"""Tokens of mq's own, an issuer's tokens, and certificates, at one daemon, as its flags say."""

import asyncio
import os
import signal
import ssl
import time
from pathlib import Path

import aiohttp
import pytest
from harness.access import Tokens, status
from harness.certificates import HERE, Authority, Pair
from harness.issuer import SigningKey, jwk_set
from harness.processes import Process, Processes, eventually

ONE, OTHER = SigningKey(), SigningKey(kid="other")
CLIENTS = """
[[client]]
certificate = "CN=worker-1"
grants = ["orders:consume"]
"""


def issued(key: SigningKey, *grants: str) -> str:
    return key.token(sub="shop", aud="mq", exp=time.time() + 600, mq_grants=list(grants))


class Asked:
    """A daemon that asks everybody who they are, and those who come to it."""

    def __init__(self, mq: Process, authority: Authority, pairs: dict[str, Pair]) -> None:
        self.mq = mq
        self._authority = authority
        self._pairs = pairs

    def statuses(self, token: str | None = None, certificate: str | None = None) -> list[int]:
        """Of a publish, a fetch and the making of a queue."""
        return asyncio.run(self._statuses(token, certificate))

    async def _statuses(self, token: str | None, certificate: str | None) -> list[int]:
        context: ssl.SSLContext = self._authority.context()
        if certificate is not None:
            self._pairs[certificate].load(context)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        url, found = f"https://localhost:{self.mq.port}", []
        async with aiohttp.ClientSession(headers=headers) as session:
            for method, path in (
                ("POST", "/orders/messages"),
                ("GET", "/orders/messages"),
                ("PUT", "/orders"),
            ):
                async with session.request(method, url + path, ssl=context) as answer:
                    found.append(answer.status)
        return found


@pytest.mark.parametrize("processes", [1, 2])
def test_each_way_lets_in_whom_it_knows_and_all_are_read_again(
    daemons: Processes, root: Path, tmp_path: Path, processes: int
) -> None:
    authority, tokens = Authority(tmp_path), Tokens(tmp_path / "tokens")
    pairs = {name: authority.pair(name) for name in ("worker-1", "worker-2")}
    own, keys, clients = authority.pair("server", *HERE), tmp_path / "keys", tmp_path / "clients"
    keeper = tokens.add("keeper", "*:admin")
    keys.write_bytes(jwk_set(ONE.public()))
    clients.write_text(CLIENTS, encoding="utf-8")
    clients.chmod(0o644)
    mq = daemons.mq(
        root, "--tls-cert", str(own.cert), "--tls-key", str(own.key),
        "--tls-client-ca", str(authority.ca), "--tls-client-auth", "optional",
        "--tls-clients", str(clients), "--tokens", str(tokens.path),
        "--jwks", str(keys), "--jwt-audience", "mq", "--processes", str(processes),
    )  # fmt: skip
    asked = Asked(mq, authority, pairs)
    shop = issued(ONE, "orders:publish")
    assert asked.statuses(keeper) == [404, 404, 201]
    assert asked.statuses(shop) == [201, 403, 403]
    assert asked.statuses(certificate="worker-1")[0] == 403
    assert asked.statuses(certificate="worker-1")[2] == 403
    assert asked.statuses(certificate="worker-2") == [401, 401, 401]
    assert asked.statuses(issued(OTHER, "orders:publish")) == [401, 401, 401]
    assert asked.statuses() == [401, 401, 401]
    # A token goes before a certificate.
    assert asked.statuses(shop, "worker-1") == [201, 403, 403]

    keys.write_bytes(jwk_set(OTHER.public()))
    clients.write_text(CLIENTS.replace("worker-1", "worker-2"), encoding="utf-8")
    tokens.remove("keeper")
    again = tokens.add("again", "*:admin")
    mq.popen.send_signal(signal.SIGHUP)
    for index in range(processes):
        mark = "" if processes == 1 else rf".*process={index}"
        mq.wait_for_log(rf"mq.access: callers reloaded.*{mark}")

    assert asked.statuses(shop) == [401, 401, 401]
    assert asked.statuses(again)[2] == 200
    assert asked.statuses(keeper) == [401, 401, 401]
    assert asked.statuses(issued(OTHER, "orders:publish"))[0] == 201
    assert asked.statuses(certificate="worker-1") == [401, 401, 401]
    assert asked.statuses(certificate="worker-2")[0] == 403
    assert mq.terminate() == 0


def test_one_file_that_is_no_good_keeps_no_other_from_being_read_again(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    tokens, keys = Tokens(tmp_path / "tokens"), tmp_path / "keys"
    gone = tokens.add("gone", "*:admin")
    stays = tokens.add("stays", "*:admin")
    keys.write_bytes(jwk_set(ONE.public()))
    mq = daemons.mq(
        root, "--tokens", str(tokens.path), "--jwks", str(keys), "--jwt-audience", "mq"
    )  # fmt: skip
    keys.unlink()
    os.mkfifo(keys)  # Nobody writes to it.
    tokens.remove("gone")
    mq.popen.send_signal(signal.SIGHUP)
    mq.wait_for_log("keys not reloaded")

    eventually(lambda: status(mq.url, gone, "/-/queues") == 401, "that a token is gone")
    assert status(mq.url, stays, "/-/queues") == 200
    assert status(mq.url, issued(ONE, "*:admin"), "/-/queues") == 200
    assert not mq.logged("mq.access: callers reloaded")
    assert mq.terminate() == 0
