"""A file of tokens that is changed, and after the power was cut at any time."""

from pathlib import Path

import pytest
from crash.legal_states import Model
from crash.trees import left_behind
from harness.logged_files import LoggedFiles

from mq.access.errors import TokensUnusable
from mq.access.grants import parse_grants
from mq.access.limits import TOKENS_MAX
from mq.access.tokens import line_of, new_token
from mq.mqctl.token_file import TokenFile

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
