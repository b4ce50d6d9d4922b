"""`mqctl token`: a file of tokens is made, read and changed; and an mq that has it is asked."""

import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.access import Tokens, tokens_of_all
from harness.mqctl import Mqctl, mqctl_for

from mq.access.callers import Caller, Right, parse_grant
from mq.access.tokens import TokenVerifier, new_token, read_tokens
from mq.tools.mqctl.token_file import TokenFile


def caller(path: Path, token: str) -> Caller | None:
    return TokenVerifier(read_tokens(path)).caller(token)


@pytest.mark.certificate
def test_a_token_is_printed_once_and_its_digest_kept(mqctl: Mqctl, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    made = mqctl("token", "new", "--name", "shop", "--grant", "o-*:publish", "--file", str(path))
    [token] = made.lines
    assert token not in path.read_text()
    assert token not in made.err
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = caller(path, token)
    assert found is not None
    assert found.name == "shop"
    assert found.may(Right.PUBLISH, "o-1")
    assert not found.may(Right.CONSUME, "o-1")


def test_a_line_is_printed_where_no_file_is_said(mqctl: Mqctl, tmp_path: Path) -> None:
    token, line = mqctl("token", "new", "--name", "shop", "--grant", "*:admin").lines
    path = tmp_path / "tokens"
    path.write_text(line)
    path.chmod(0o600)
    assert caller(path, token) is not None
    # One more goes behind a line without an end.
    done = mqctl("token", "new", "--name", "b", "--grant", "b:admin", MQ_TOKENS=str(path))
    assert done.code == 0
    assert caller(path, token) is not None
    assert caller(path, done.lines[0]) is not None


def test_what_stands_beside_a_token_stays(mqctl: Mqctl, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    tokens = Tokens(path)
    for name in ("a", "b", "c"):
        tokens.add(name, f"{name}:admin")
    path.write_text("# those of the shop\n\n" + path.read_text())
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 4711, 4712)
    owner = (path.stat().st_uid, path.stat().st_gid)
    link = tmp_path / "link"
    link.symlink_to(path)
    done = mqctl("token", "remove", "b", "--file", str(link), "--json")
    assert done.json == {"removed": "b"}
    assert link.is_symlink()
    assert path.read_text().startswith("# those of the shop\n\na ")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert (path.stat().st_uid, path.stat().st_gid) == owner
    assert mqctl("token", "list", "--file", str(path)).lines == ["a\ta:admin", "c\tc:admin"]
    listed = mqctl("token", "list", "--file", str(path), "--json").json
    assert listed["tokens"][0] == {"name": "a", "grants": ["a:admin"]}
    assert caller(path, tokens.of["b"]) is None
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "tokens"]


def test_what_cannot_be_done_is_told_and_changes_nothing(mqctl: Mqctl, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    Tokens(path).add("shop", "a:admin")
    before = path.read_bytes()
    here = ("--file", str(path))
    new = ("token", "new", "--grant", "a:admin", "--name")
    assert mqctl(*new, "shop", *here).code == 1
    assert mqctl("token", "remove", "other", *here).code == 3
    assert mqctl(*new, "a b", *here).code == 2
    assert mqctl("token", "new", "--name", "b", "--grant", "a:write", *here).code == 2
    assert mqctl("token", "list", "--file", str(tmp_path / "none")).code == 1
    away = str(tmp_path / "none" / "tokens")
    assert json.loads(mqctl(*new, "b", "--file", away, "--json").err)["error"]["exit"] == 1
    assert path.read_bytes() == before
    path.chmod(0o666)
    refused = mqctl(*new, "b", *here)
    assert refused.code == 1
    assert "others may write it" in refused.err
    assert path.read_bytes() == before


def test_changes_at_a_time_wait_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    tokens = {f"n{each}": new_token() for each in range(16)}
    threads = [
        threading.Thread(target=TokenFile(path).add, args=(name, token, [parse_grant("a:publish")]))
        for name, token in tokens.items()
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {each.name for each in TokenFile(path).callers()} == tokens.keys()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Mqctl, Tokens]]:
    """mqctl, and an mq that asks for tokens."""
    tokens = tokens_of_all(tmp_path / "tokens")
    with mqctl_for(tmp_path, "--tokens", str(tokens.path)) as (mqctl, _):
        yield mqctl, tokens


@pytest.mark.certificate
def test_mqctl_shows_its_token_and_is_told_what_it_may_not(guarded: tuple[Mqctl, Tokens]) -> None:
    mqctl, tokens = guarded
    of = {name: {"MQ_TOKEN": token} for name, token in tokens.of.items()}
    assert mqctl("create", "orders", **of["keeper"]).code == 0
    assert mqctl("send", "orders", "hello", **of["publisher"]).code == 0
    assert mqctl("receive", "orders", "--ack", "--count", "1", **of["consumer"]).lines == ["hello"]
    assert mqctl("queues", **of["stranger"]).lines == []
    nobody = mqctl("send", "orders", "hello")
    assert nobody.code == 1
    assert "unauthenticated" in nobody.err
    assert "MQ_TOKEN" in nobody.err
    refused = mqctl("receive", "orders", **of["publisher"])
    assert refused.code == 1
    assert "forbidden, right=consume" in refused.err
    # By a WebSocket too, on which nothing is consumed without the right.
    follows = mqctl("receive", "orders", "--follow", "--ack", "--json", **of["publisher"])
    assert follows.code == 1
    assert follows.error["problem"]["right"] == "consume"
    shown = nobody.err + refused.err + follows.err
    assert not any(token in shown for token in tokens.of.values())


@pytest.mark.parametrize("command", [("list",), ("remove", "shop")])
def test_a_missing_file_option_is_a_usage_error(mqctl: Mqctl, command: tuple[str, ...]) -> None:
    done = mqctl("token", *command)
    assert done.code == 2
    assert "Missing option '--file' (env var: 'MQ_TOKENS')." in done.err
