"""Tokens that another service signs, as a daemon has them from its flags."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from harness.clock import FakeClock
from harness.issuer import Issuer, SigningKey, jwk_set
from harness.waiting import comes_true
from pytest_aiohttp import AiohttpServer

from mq.daemon.caller_options import caller_options
from mq.daemon.issued import IssuedTokens
from mq.model.errors import StartupError
from mq.runtime.server_settings import JwtSettings

ONE = SigningKey()


def token(clock: FakeClock) -> str:
    return ONE.token(sub="shop", aud="mq", exp=clock.now_ms() // 1000 + 60)


async def test_keys_of_a_file_and_of_a_url(tmp_path: Path, aiohttp_server: AiohttpServer) -> None:
    clock = FakeClock()
    path = tmp_path / "keys.json"
    path.write_bytes(jwk_set(ONE.public()))
    issuer = Issuer(jwk_set(ONE.public()))
    await issuer.start(aiohttp_server)
    for settings in (JwtSettings("mq", file=path), JwtSettings("mq", url=issuer.url)):
        issued = IssuedTokens(settings, clock)
        issued.start()
        await comes_true(lambda issued=issued: issued.verifier.caller(token(clock)))
        await issued.reload()
        await issued.stop()


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (JwtSettings("mq", file=Path("none.json")), "none.json: cannot read it: No such file"),
        (JwtSettings("mq", url="http://issuer/keys"), "the URL must be https"),
    ],
)
async def test_what_cannot_be_keys_is_told_of(settings: JwtSettings, why: str) -> None:
    with pytest.raises(StartupError, match=why):
        IssuedTokens(settings, FakeClock())


@pytest.mark.certificate
def test_without_the_extra_it_says_what_to_install() -> None:
    code = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "jwt" else found(name, *more)
from mq.model.clock import SystemClock
from mq.model.errors import StartupError
from mq.daemon.issued import IssuedTokens
from mq.runtime.server_settings import JwtSettings
try:
    IssuedTokens(JwtSettings("mq", url="https://issuer/keys"), SystemClock())
except StartupError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'mq[jwt]'" in done.stdout, done.stderr


def said(*arguments: str) -> Any:
    found: dict[str, Any] = {}

    @click.command()
    @caller_options
    def command(**given: Any) -> None:
        found.update(given)

    result = CliRunner().invoke(command, arguments)
    return found if result.exit_code == 0 else result.output


def test_flags_become_settings() -> None:
    assert said() == {"jwt": None, "tls_clients": None}
    assert said("--jwks", "k.json", "--jwt-audience", "mq", "--jwt-leeway", "5") == {
        "jwt": JwtSettings("mq", file=Path("k.json"), leeway_s=5),
        "tls_clients": None,
    }
    url = "https://issuer/keys"
    assert said("--jwks-url", url, "--jwt-audience", "mq", "--jwt-issuer", "me")["jwt"] == (
        JwtSettings("mq", issuer="me", url=url)
    )


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--jwks", "k.json"), "need --jwt-audience"),
        (("--jwks", "k.json", "--jwt-audience", ""), "need --jwt-audience"),
        (("--jwks", "k", "--jwks-url", "https://a", "--jwt-audience", "mq"), "use one of them"),
        (("--jwt-issuer", "me"), "need --jwks"),
        (("--jwks", "k.json", "--jwt-audience", "mq", "--jwt-leeway", "1e9"), "jwt-leeway"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(arguments: tuple[str, ...], why: str) -> None:
    assert why in said(*arguments)
