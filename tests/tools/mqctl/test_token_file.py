"""A file of tokens that is changed, and after the power was cut at any time."""

import errno
import os
from pathlib import Path

import pytest
from crash.legal_states import Model
from crash.trees import left_behind
from harness.faults import FaultyFiles
from harness.logged_files import LoggedFiles

from mq.access.errors import TokensUnusable
from mq.access.grants import parse_grants
from mq.access.limits import TOKENS_MAX
from mq.access.tokens import line_of, new_token
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


def test_a_change_survives_every_power_cut_whole_once_it_was_told(tmp_path: Path) -> None:
    files, tokens = LoggedFiles(tmp_path), {name: new_token() for name in ("first", "second")}
    changed = TokenFile(tmp_path / "tokens", files)
    for name, token in tokens.items():
        changed.add(name, token, GRANTS)
        files.mark("told")
    changed.remove("first")
    files.mark("told")
    first, second = (f"{line_of(name, token, GRANTS)}\n" for name, token in tokens.items())
    texts = ("", first, first + second, second)
    cuts = 0
    for model in Model:
        for told, tree in left_behind(files.log, model):
            cuts += 1
            file = tree.get("/tokens")
            left = "" if file is None else file.data.decode()
            assert left in texts[told : told + 2], model.name
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
    for name in ("first", "second"):
        before = len(files.calls)
        tokens.add(name, new_token(), GRANTS)
    made = [call for call, _ in files.calls[before:]]
    assert made.index("set_mode") < made.index("sync")


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
