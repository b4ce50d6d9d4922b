"""A file of tokens that is changed, and after the power was cut at any time."""

import errno
import os
from pathlib import Path

import pytest
from crash.legal_states import Model
from crash.trees import left_behind
from harness.faults import FaultyFiles
from harness.logged_files import LoggedFiles

from mq.access.callers import parse_grants
from mq.access.errors import TokensUnusable
from mq.access.tokens import TOKENS_MAX, line_of, new_token
from mq.tools.mqctl.token_file import TokenFile

GRANTS = parse_grants(("orders*:consume",))


def test_nothing_is_added_that_could_not_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    lines = [f"{line_of(f'n{number}', new_token(), GRANTS)}\n" for number in range(TOKENS_MAX)]
    path.write_text("".join(lines), encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(TokensUnusable, match=f"more than {TOKENS_MAX} tokens"):
        TokenFile(path).add("one-more", new_token(), GRANTS)
    assert len(TokenFile(path).callers()) == TOKENS_MAX
    assert path.read_text(encoding="utf-8") == "".join(lines)


@pytest.mark.parametrize("secret", ["", " secret-0123456789"])
def test_a_change_survives_every_power_cut_whole_once_it_was_told(
    tmp_path: Path, secret: str
) -> None:
    files, tokens = LoggedFiles(tmp_path), {name: new_token() for name in ("first", "second")}
    changed = TokenFile(tmp_path / "tokens", files)
    for name, token in tokens.items():
        changed.add(name, token, GRANTS)
        if secret:
            changed.set_secret(name, secret.strip())
        files.mark("told")
    changed.remove("first")
    files.mark("told")
    first, second = (f"{line_of(name, token, GRANTS)}\n" for name, token in tokens.items())
    texts = ("", first, first + second, second)
    first, second = (f"{name}{secret}\n" if secret else "" for name in tokens)
    secrets = ("", first, first + second, second)
    cuts = 0
    for model in Model:
        for told, tree in left_behind(files.log, model):
            cuts += 1
            left, kept = (
                "" if file is None else file.data.decode()
                for file in (tree.get("/tokens"), tree.get("/tokens.secrets"))
            )
            assert left in texts[told : told + 2], model.name
            assert kept in secrets[told : told + 2], model.name
            # None outlives its token.
            assert all(f"{each.split()[0]} " in left for each in kept.splitlines()), model.name
    assert cuts > 20


def test_two_changes_at_a_time_wait_for_each_other(tmp_path: Path) -> None:
    class LockingFiles(FaultyFiles):
        locked = ""

        def wait_for_lock(self, descriptor: int) -> None:
            self.locked = os.readlink(f"/proc/self/fd/{descriptor}")
            super().wait_for_lock(descriptor)

    files = LockingFiles()
    TokenFile(tmp_path / "tokens", files).add("n", new_token(), GRANTS)
    assert files.locked == str(tmp_path)


def test_who_may_read_it_is_on_stable_media_with_it(tmp_path: Path) -> None:
    files = FaultyFiles()
    tokens = TokenFile(tmp_path / "tokens", files)
    changes = [lambda name=name: tokens.add(name, new_token(), GRANTS) for name in ("a", "b")]
    for change in [*changes, lambda: tokens.set_secret("a", "secret-0123456789")]:
        before = len(files.calls)
        change()
        made = [call for call, _ in files.calls[before:]]
        assert change is changes[0] or made.index("set_mode") < made.index("sync")


@pytest.mark.parametrize("call", ["write", "sync", "rename"])
@pytest.mark.parametrize("is_read_only", [False, True])
def test_a_change_that_fails_is_told_and_leaves_the_file_as_it_was(
    tmp_path: Path, call: str, is_read_only: bool
) -> None:
    files, path = FaultyFiles(), tmp_path / "tokens"
    tokens = TokenFile(path, files)
    tokens.add("first", new_token(), GRANTS)
    text = path.read_text()
    files.fail(call, errno.EIO, times=1)
    if is_read_only:
        files.fail("unlink", errno.EROFS)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        tokens.add("second", new_token(), GRANTS)
    assert path.read_text() == text
    assert is_read_only or os.listdir(tmp_path) == ["tokens"]
