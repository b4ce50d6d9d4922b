"""Tokens, grants, and the header that shows a token: what is parsed, what is refused."""

import hashlib
import string
from pathlib import Path

import pytest
from harness.access import Tokens
from hypothesis import given
from hypothesis import strategies as st

from mq.access.callers import (
    GRANTS_MAX,
    RIGHTS,
    Caller,
    Grant,
    Needs,
    Right,
    is_allowed,
    parse_grant,
    printed,
)
from mq.access.errors import BadGrant, Forbidden, TokensUnusable, Unauthenticated
from mq.access.tokens import (
    TOKENS_FILE_BYTES_MAX,
    TOKENS_MAX,
    BadLine,
    TokenVerifier,
    digest_of,
    is_name,
    line_of,
    name_of,
    new_token,
    parse_tokens,
    read_tokens,
    token_of,
)

PATTERNS = st.text(string.ascii_letters + string.digits + "_.-*", min_size=1, max_size=64)
GRANTS = st.builds(Grant, PATTERNS, st.frozensets(st.sampled_from(list(Right)), min_size=1))
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,20}", fullmatch=True)
ALL = Grant("*", frozenset({Right.CONSUME}))


# Grants


@given(GRANTS)
def test_a_grant_that_is_printed_is_parsed_to_the_same(grant: Grant) -> None:
    assert parse_grant(printed(grant)) == grant


@given(st.text(max_size=40))
def test_a_text_is_a_grant_or_refused(text: str) -> None:
    try:
        grant = parse_grant(text)
    except BadGrant:
        return
    assert parse_grant(printed(grant)) == grant
    # Nothing in it is more than itself but stars.
    assert set(grant.pattern) <= set(string.ascii_letters + string.digits + "_.-*")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders",
        "orders:",
        ":publish",
        "orders:publish,",
        "orders:publish,publish",
        "orders:read",
        "orders:Publish",
        "orders: publish",
        "o[a-z]:publish",
        "o?:publish",
        "ö:publish",
        "orders:publish:consume",
        f"{'o' * 65}:publish",
        "orders:publish\n",
    ],
)
def test_what_is_no_grant_is_refused(text: str) -> None:
    with pytest.raises(BadGrant):
        parse_grant(text)


@pytest.mark.parametrize(
    ("pattern", "queue", "covers"),
    [
        ("orders", "orders", True),
        ("orders", "orders_SIDELINE", False),
        ("orders*", "orders_SIDELINE", True),
        ("orders", "Orders", False),
        ("orders-*", "orders-eu", True),
        ("orders-*", "orders", False),
        ("*-eu", "orders-eu", True),
        ("a*b*c", "axxbyyc", True),
        ("a.c", "abc", False),
        ("*", "anything", True),
        ("**", "anything", True),
    ],
)
def test_a_pattern_covers_whole_names(pattern: str, queue: str, covers: bool) -> None:
    grant = Grant(pattern, frozenset({Right.PUBLISH}))
    assert grant.covers(Right.PUBLISH, queue) is covers
    assert not grant.covers(Right.CONSUME, queue)
    assert not grant.covers(Right.ADMIN, queue)


def test_admin_includes_the_others_and_no_other_includes_any() -> None:
    for given_right in Right:
        caller = Caller("c", (Grant("q", frozenset({given_right})),))
        allowed = {right for right in Right if caller.may(right, "q")}
        assert allowed == (set(Right) if given_right is Right.ADMIN else {given_right})
        assert is_allowed(caller, Needs.ANY, "q")
        assert not is_allowed(caller, Needs.ANY, "r")
        # The daemon itself is no queue of that pattern.
        assert not any(caller.may(right) for right in RIGHTS)
    assert Caller("c", (ALL,)).may(Right.CONSUME)
    assert not Caller("c", (ALL,)).may(Right.ADMIN)


def test_of_several_grants_each_counts_for_itself() -> None:
    caller = Caller("c", tuple(map(parse_grant, ("a*:publish", "ab:consume"))))
    assert caller.may(Right.PUBLISH, "ab")
    assert caller.may(Right.CONSUME, "ab")
    assert not caller.may(Right.CONSUME, "ac")
    assert not caller.may(Right.ADMIN, "ab")


# Lines


def test_tokens_are_random_and_show_what_they_are() -> None:
    made = {new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(each.startswith("mq_") and len(each) == 46 for each in made)


@given(st.lists(st.tuples(NAMES, st.lists(GRANTS, min_size=1, max_size=4)), max_size=5))
def test_lines_that_are_made_are_parsed_to_the_same(said: list[tuple[str, list[Grant]]]) -> None:
    said = list({name: (name, grants) for name, grants in said}.values())
    tokens = [new_token() for _ in said]
    lines = [
        line_of(name, token, grants) for (name, grants), token in zip(said, tokens, strict=True)
    ]
    entries = parse_tokens("\n".join(["# callers", "", *lines, "  "]))
    assert [each.caller for each in entries] == [
        Caller(name, tuple(grants)) for name, grants in said
    ]
    verifier = TokenVerifier(entries)
    for entry, token in zip(entries, tokens, strict=True):
        assert verifier.caller(token) == entry.caller
        assert verifier.caller(token[:-1]) is None
        assert verifier.caller(token + "x") is None
    assert all(
        is_name(name) and name_of(line) == name for (name, _), line in zip(said, lines, strict=True)
    )


@given(st.text(max_size=300))
def test_a_text_is_tokens_or_refused_with_a_line(text: str) -> None:
    number = 1
    try:
        parse_tokens(text)
    except BadLine as error:
        number = error.number
    assert 1 <= number <= text.count("\n") + 1


DIGEST = "sha256:" + "0" * 64


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("shop", "sha256"),
        ("shop publish", "sha256"),
        (f"shop {DIGEST}", "grants"),
        (f"shop {DIGEST[:-1]} a:publish", "sha256"),
        (f"shop {DIGEST.upper()} a:publish", "sha256"),
        (f"-shop {DIGEST} a:publish", "name"),
        (f"{'n' * 65} {DIGEST} a:publish", "name"),
        (f"shop {DIGEST} a:write", "rights"),
        (f"shop {DIGEST} " + "a:publish " * (GRANTS_MAX + 1), "grants"),
        (f"known {DIGEST} a:publish", "earlier line"),
        (f"shop sha256:{digest_of('mq_known').hex()} a:publish", "earlier line"),
    ],
)
def test_a_line_that_cannot_be_meant_is_told_by_its_number(line: str, why: str) -> None:
    known = line_of("known", "mq_known", [ALL])
    with pytest.raises(BadLine) as raised:
        parse_tokens(f"# callers\n\n{known}\n{line}\n")
    assert raised.value.number == 4
    assert why in raised.value.why


def test_there_is_a_most_of_tokens() -> None:
    lines = [line_of(f"n{each}", str(each), [ALL]) for each in range(TOKENS_MAX + 1)]
    assert len(parse_tokens("\n".join(lines[:-1]))) == TOKENS_MAX
    with pytest.raises(BadLine, match=str(TOKENS_MAX + 1)):
        parse_tokens("\n".join(lines))


def test_a_line_has_the_digest_and_not_the_token() -> None:
    token = new_token()
    line = line_of("shop", token, [ALL])
    assert line == f"shop sha256:{hashlib.sha256(token.encode()).hexdigest()} *:consume"
    assert token not in line


# The file


def test_a_file_is_read(tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens")
    tokens.add("shop", "orders*:publish")
    [entry] = read_tokens(tokens.path)
    assert entry.caller == Caller("shop", (parse_grant("orders*:publish"),))


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    tokens = Tokens(tmp_path / "tokens")
    tokens.add("shop", "orders*:publish")
    tokens.path.chmod(mode)
    with pytest.raises(TokensUnusable, match=f"others may write it.*{mode:04o}"):
        read_tokens(tokens.path)
    tokens.path.chmod(0o644)
    assert read_tokens(tokens.path)


def test_what_is_no_file_of_tokens_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    for make, why in (
        (lambda: None, "No such file"),
        (path.mkdir, "not a regular file"),
        (path.rmdir, "No such file"),
        (lambda: path.write_bytes(b"\xff"), "UTF-8"),
        (lambda: path.write_bytes(b"#" * (TOKENS_FILE_BYTES_MAX + 1)), "larger"),
        (lambda: path.write_text("# callers\nshop\n"), "line 2"),
    ):
        make()
        with pytest.raises(TokensUnusable, match=why) as raised:
            read_tokens(path)
        assert str(path) in str(raised.value)


# The header


@given(st.text(string.ascii_letters + string.digits + "-._~+/", min_size=1, max_size=200))
def test_a_token_is_taken_out_of_its_header(token: str) -> None:
    for scheme in ("Bearer ", "bearer ", "BEARER   "):
        assert token_of([scheme + token]) == token
        assert token_of([scheme + token + "== "]) == token + "=="


@given(st.lists(st.text(max_size=60), max_size=3))
def test_headers_show_a_token_or_none_or_a_bad_one(values: list[str]) -> None:
    try:
        token = token_of(values)
    except Unauthenticated:
        return
    assert token is None or token in values[0]


def test_no_header_and_another_scheme_show_none() -> None:
    assert token_of([]) is None
    assert token_of(["Basic YTpi"]) is None
    assert token_of(["Bearers x"]) is None


@pytest.mark.parametrize(
    "values",
    [
        ["Bearer"],
        ["Bearer "],
        ["Bearer a b"],
        ["Bearer a,b"],
        ["Bearer a", "Bearer a"],
        ["Bearer é"],
    ],
)
def test_a_malformed_header_shows_a_bad_one(values: list[str]) -> None:
    with pytest.raises(Unauthenticated) as raised:
        token_of(values)
    assert raised.value.shown


def test_a_challenge_says_what_was_wrong_only_to_those_who_showed_something() -> None:
    assert Unauthenticated(shown=False).challenge == 'Bearer realm="mq"'
    assert Unauthenticated(shown=True).challenge == 'Bearer realm="mq", error="invalid_token"'
    forbidden = Forbidden("publish", "shop").challenge
    assert forbidden == 'Bearer realm="mq", error="insufficient_scope"'
