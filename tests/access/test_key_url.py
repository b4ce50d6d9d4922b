"""Keys that an issuer serves, over real HTTP."""

from typing import Any

import aiohttp
import pytest
from harness.clock import FakeClock
from harness.issuer import Issuer, SigningKey, jwk_set
from harness.waiting import comes_true
from pytest_aiohttp import AiohttpServer

from mq.access.jwt import JwtVerifier
from mq.access.key_url import JWKS_AGAIN_S, UrlKeys, check_url
from mq.access.keys import BadKeys

ONE, TWO = SigningKey(), SigningKey(kid="two")


@pytest.fixture
async def issuer(aiohttp_server: AiohttpServer) -> Issuer:
    made = Issuer(jwk_set(ONE.public()))
    await made.start(aiohttp_server)
    return made


def token(key: SigningKey, clock: FakeClock) -> str:
    return key.token(sub="shop", aud="mq", exp=clock.now_ms() // 1000 + 9000)


class Following:
    """A verifier by a URL's keys, stopped at the end."""

    def __init__(self, issuer: Issuer, **options: Any) -> None:
        self.clock = FakeClock()
        self.keys = UrlKeys(issuer.url, self.clock, **options)
        self.verifier = JwtVerifier(self.keys, self.clock, audience="mq")

    async def __aenter__(self) -> "Following":
        self.keys.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.keys.stop()

    def knows(self, key: SigningKey) -> bool:
        return self.verifier.caller(token(key, self.clock)) is not None


async def test_an_unknown_key_is_asked_for_but_not_too_often(issuer: Issuer) -> None:
    async with Following(issuer) as following:
        assert not following.knows(ONE)  # Nothing has come yet, and nobody waits for it.
        await comes_true(lambda: following.knows(ONE))
        issuer.body = jwk_set(TWO.public())
        for _ in range(5):
            assert not following.knows(TWO)
        async with aiohttp.ClientSession() as session:
            for _ in range(5):
                await (await session.get(issuer.url)).read()
        assert issuer.asked == 1 + 5  # Those of this test alone.
        following.clock.advance(JWKS_AGAIN_S)
        await comes_true(lambda: following.knows(TWO))
        assert not following.knows(ONE)
        assert issuer.asked == 2 + 5


async def test_the_last_good_keys_stay_when_the_url_fails(issuer: Issuer) -> None:
    async with Following(issuer, again_s=0.01, every_s=0.01) as following:
        await comes_true(lambda: following.knows(ONE))
        for body, status in ((b"torn", 200), (jwk_set(), 200), (issuer.body, 500), (b"", 302)):
            issuer.body, issuer.status = body, status
            asked = issuer.asked
            await comes_true(lambda asked=asked: issuer.asked >= asked + 2)
            assert following.knows(ONE)
        issuer.body, issuer.status = jwk_set(ONE.public(), TWO.public()), 200
        await comes_true(lambda: following.knows(TWO))


async def test_a_url_that_hangs_is_given_up_and_keeps_nobody(issuer: Issuer) -> None:
    async with Following(issuer, again_s=0.01, every_s=0.01, answer_s=0.05) as following:
        await comes_true(lambda: following.knows(ONE))
        issuer.hangs = True
        asked = issuer.asked
        await comes_true(lambda: issuer.asked >= asked + 2)
        assert following.knows(ONE)
        issuer.hangs, issuer.body = False, jwk_set(TWO.public())
        await comes_true(lambda: following.knows(TWO))


async def test_an_issuer_that_is_not_there_yet_is_asked_again(issuer: Issuer) -> None:
    issuer.status = 503
    async with Following(issuer, again_s=0.01) as following:
        await comes_true(lambda: issuer.asked >= 2)
        assert not following.knows(ONE)
        issuer.status = 200
        await comes_true(lambda: following.knows(ONE))


async def test_an_answer_without_end_is_no_jwk_set(issuer: Issuer) -> None:
    issuer.body = b" " * 2_000_000 + jwk_set(ONE.public())
    async with Following(issuer, again_s=0.01) as following:
        await comes_true(lambda: issuer.asked >= 2)
        assert not following.knows(ONE)


@pytest.mark.parametrize("url", ["https://issuer/keys", "http://localhost:1/k", "http://[::1]/k"])
def test_keys_come_by_https_or_from_this_machine(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url", ["http://issuer/keys", "http://10.0.0.1/k", "file:///etc/k", "https://", "https://a:0/",
            "http://[::1", "keys"]
)  # fmt: skip
def test_keys_by_any_other_way_are_refused(url: str) -> None:
    with pytest.raises(BadKeys):
        check_url(url)
