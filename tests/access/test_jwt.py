"""Tokens that another service signed, with real keys."""

import base64
import hashlib
import hmac
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from harness.clock import FakeClock
from harness.issuer import MAKERS, SigningKey, jwk_set
from hypothesis import given
from hypothesis import strategies as st

from mq.access.callers import Caller, Right
from mq.access.jwt import JWTS_KNOWN_MAX, JwtVerifier
from mq.access.keys import JWKS_KEYS_MAX, BadKeys, FileKeys, PublicKey, parse_keys

ONE = SigningKey()
CLOCK = FakeClock()


class Fixed:
    """Keys that stay, and how often one was missed."""

    def __init__(self, *entries: dict[str, Any]) -> None:
        self.keys = parse_keys(jwk_set(*entries))
        self.misses = 0

    def known(self) -> Any:
        return self.keys

    def missed(self) -> None:
        self.misses += 1


class CountedKeys(tuple[PublicKey, ...]):
    """Keys, and how often a token was verified by them."""

    looks = 0

    def __iter__(self) -> Iterator[PublicKey]:
        self.looks += 1
        return super().__iter__()


def claims(clock: FakeClock = CLOCK, **other: Any) -> dict[str, Any]:
    said = {"sub": "shop", "aud": "mq", "iss": "https://issuer", "mq_grants": ["orders:publish"]}
    found = {**said, "exp": clock.now_ms() // 1000 + 60, **other}
    return {name: value for name, value in found.items() if value is not None}


def verifier(keys: Any, clock: FakeClock = CLOCK, leeway_s: float = 0) -> JwtVerifier:
    return JwtVerifier(keys, clock, audience="mq", issuer="https://issuer", leeway_s=leeway_s)


def told(token: str, *entries: dict[str, Any]) -> Caller | None:
    return verifier(Fixed(*(entries or (ONE.public(),)))).caller(token)


@pytest.mark.parametrize("algorithm", list(MAKERS))
def test_each_kind_of_key_is_known(algorithm: str) -> None:
    key = SigningKey(algorithm=algorithm)
    caller = told(key.token(**claims()), key.public())
    assert caller is not None
    assert caller.name == "shop"
    assert caller.may(Right.PUBLISH, "orders")
    assert told(SigningKey(algorithm=algorithm).token(**claims()), key.public()) is None


@pytest.mark.parametrize(
    "other",
    [
        {"aud": "others"},
        {"aud": None},
        {"iss": "https://others"},
        {"iss": None},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": CLOCK.now_ms() // 1000},
        {"nbf": CLOCK.now_ms() // 1000 + 2},
        {"nbf": "now"},
        {"sub": None},
        {"mq_grants": ["typo"]},
    ],
)
def test_claims_that_are_not_for_here_are_refused(other: dict[str, Any]) -> None:
    assert told(ONE.token(**claims())) is not None
    assert told(ONE.token(**claims(**other))) is None


def test_one_of_several_audiences_is_enough() -> None:
    assert told(ONE.token(**claims(aud=["others", "mq"]))) is not None


def test_a_token_without_a_signature_is_refused() -> None:
    token = jwt.encode(claims(), None, "none", headers={"kid": "one"})
    assert told(token) is None


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_a_public_key_is_no_secret_to_sign_with(algorithm: str) -> None:
    key = SigningKey(algorithm="RS256")
    pem = key.private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    # By hand: the library would not sign with it.
    text = f"{part({'alg': algorithm, 'kid': 'one', 'typ': 'JWT'})}.{part(claims())}"
    digest = hmac.new(pem, text.encode(), getattr(hashlib, f"sha{algorithm[2:]}")).digest()
    token = f"{text}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"
    assert told(token, key.public()) is None


def test_a_key_signs_with_what_it_is_said_to_alone() -> None:
    key = SigningKey(algorithm="RS256")
    assert told(key.token(**claims()), key.public(alg="RS256")) is not None
    assert told(key.token(**claims()), key.public(alg="PS256")) is None


def test_a_header_with_extensions_that_must_be_understood_is_refused() -> None:
    assert told(ONE.token({"crit": ["x"], "x": 1}, **claims())) is None


def test_a_body_changed_after_it_was_signed_is_refused() -> None:
    head, _, signature = ONE.token(**claims()).split(".")
    assert told(f"{head}.{part(claims(sub='root'))}.{signature}") is None


def test_without_a_name_each_key_is_tried_and_with_one_that_alone() -> None:
    unnamed = SigningKey(kid=None, private=ONE.private)
    other = SigningKey(kid="other")
    assert told(unnamed.token(**claims()), other.public(), ONE.public()) is not None
    lying = SigningKey(kid="other", private=ONE.private)
    assert told(lying.token(**claims()), other.public(), ONE.public()) is None


def test_time_is_told_by_the_clock_also_for_a_token_that_is_known() -> None:
    clock = FakeClock()
    found = verifier(Fixed(ONE.public()), clock, leeway_s=5)
    now_s = clock.now_ms() // 1000
    token = ONE.token(**claims(clock, nbf=now_s + 10, exp=now_s + 60))
    assert found.caller(token) is None
    clock.advance(6)
    assert found.caller(token) is not None
    clock.advance(55)
    assert found.caller(token) is not None
    clock.advance(5)
    assert found.caller(token) is None


def test_a_key_that_was_taken_away_knows_nobody_any_more() -> None:
    keys = Fixed(ONE.public())
    found = verifier(keys)
    token = ONE.token(**claims())
    assert found.caller(token) is not None
    assert keys.misses == 0
    keys.keys = parse_keys(jwk_set(SigningKey(kid="two").public()))
    assert found.caller(token) is None
    assert keys.misses == 1


@pytest.mark.certificate
def test_what_is_remembered_is_bounded() -> None:
    keys = Fixed(ONE.public())
    counted = keys.keys = CountedKeys(keys.keys)
    found = verifier(keys)
    tokens = [ONE.token(**claims(jti=str(number))) for number in range(JWTS_KNOWN_MAX + 5)]
    for token in tokens:
        assert found.caller(token) is not None
    counted.looks = 0
    for token in tokens[5:]:
        assert found.caller(token) is not None
    assert counted.looks == 0
    # Those of long ago are not remembered, and so verified again.
    for token in tokens[:5]:
        assert found.caller(token) is not None
    assert counted.looks == 5


@given(st.text() | st.from_regex(r"[A-Za-z0-9_-]{0,40}(\.[A-Za-z0-9_-]{0,40}){2}"))
def test_whatever_is_shown_is_refused_or_known(text: str) -> None:
    assert told(text) is None


@given(
    st.dictionaries(
        st.sampled_from(["alg", "kid", "typ", "b64", "crit", "jku", "jwk"]),
        st.none() | st.integers() | st.text() | st.sampled_from(["ES256", "none", "one", False]),
    )
)
def test_whatever_a_header_says_an_unsigned_token_is_refused(header: dict[str, Any]) -> None:
    assert told(f"{part(header)}.{part(claims())}.AAAA") is None


def test_keys_that_sign_nothing_are_passed_over() -> None:
    weak = json.loads(
        jwt.algorithms.RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key())
    )
    passed = [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "one"},
        {"kty": "unheard-of"},
        ONE.public(use="enc"),
        ONE.public(key_ops=["sign"]),
        ONE.public(x="!"),
        ONE.public(kid=7),
        weak,
        "no object",
    ]
    assert len(parse_keys(jwk_set(ONE.public(), *passed))) == 1
    with pytest.raises(BadKeys, match="no key"):
        parse_keys(jwk_set(*passed))


def test_of_a_private_key_the_public_part_is_taken() -> None:
    private = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(ONE.private))
    assert "d" in private
    assert told(ONE.token(**claims()), {**private, "kid": "one"}) is not None


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"keys": {}}', b"[" * 100_000, b'{"keys": []}', b" " * 300_000,
     jwk_set(*[ONE.public()] * (JWKS_KEYS_MAX + 1))],
    ids=range(8),
)  # fmt: skip
def test_what_is_no_jwk_set_is_refused(data: bytes) -> None:
    with pytest.raises(BadKeys):
        parse_keys(data)


@given(st.binary())
def test_whatever_a_jwk_set_holds_is_keys_or_refused(data: bytes) -> None:
    with pytest.raises(BadKeys):
        parse_keys(data)


def test_a_file_is_read_again_when_asked_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with pytest.raises(BadKeys, match="No such file"):
        FileKeys(path)
    path.write_bytes(jwk_set(ONE.public()))
    keys = FileKeys(path)
    found, two = verifier(keys), SigningKey(kid="two")
    path.write_bytes(b"torn")
    assert not keys.reload()
    assert found.caller(ONE.token(**claims())) is not None
    path.write_bytes(jwk_set(two.public()))
    assert keys.reload()
    assert found.caller(ONE.token(**claims())) is None
    assert found.caller(two.token(**claims())) is not None
    for header in (b"[" * 5000, b"{}", b'{"alg": "ES256", "kid": 1e999}', b"\xff"):
        made = base64.urlsafe_b64encode(header).rstrip(b"=").decode()
        assert found.caller(f"{made}.e30.AAAA") is None
    assert found.caller(two.token(**(claims() | {"exp": 10**400}))) is None
    path.chmod(0o666)
    with pytest.raises(BadKeys, match="others may write it"):
        FileKeys(path)
    path.unlink()
    os.mkfifo(path)
    assert not keys.reload()
