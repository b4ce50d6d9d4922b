"""The page of fsck: every command of it, in order, on a root of its own."""

import sys
from pathlib import Path

import pytest
from harness.folders import make_root, published_by_hand
from harness.pages import check_shown, examples_in, run_examples, script_of, section

from mq.tools.fsck.command import fsck

PAGE = section("mq/tools/mqctl/MQCTL.md", "fsck: is the root sound?")
ROOT = "/tmp/mq"
EXAMPLES = examples_in(PAGE)


@pytest.mark.certificate
def test_every_command_says_what_the_page_shows(tmp_path: Path) -> None:
    root = make_root(tmp_path / "mq")
    published_by_hand(root, 0o644)
    script = script_of(EXAMPLES)
    assert f"mqctl fsck {ROOT} " in script
    beginning = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}\n'
    outputs = run_examples(beginning + script.replace(ROOT, str(root)))
    check_shown(EXAMPLES, [each.replace(str(root), ROOT) for each in outputs])


def test_every_flag_is_told_of() -> None:
    for option in fsck.params:
        for name in option.opts:
            assert not name.startswith("--") or f"{name}" in PAGE, name
