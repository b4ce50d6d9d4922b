"""The pages of fsck and upgrade: every command of them, in order, on a root of its own."""

import sys
from pathlib import Path

import click
import pytest
from harness.folders import make_root, published_by_hand
from harness.old_format import make_old
from harness.pages import check_shown, examples_in, run_examples, script_of, section

from mq.tools.fsck.command import fsck, upgrade

PAGE = section("mq/tools/mqctl/MQCTL.md", "fsck: is the root sound?")
ROOT = "/tmp/mq"
EXAMPLES = examples_in(PAGE)
UPGRADE = section("mq/tools/mqctl/MQCTL.md", "upgrade: a root of an older format")


@pytest.mark.certificate
def test_every_command_says_what_the_page_shows(tmp_path: Path) -> None:
    root = make_root(tmp_path / "mq")
    published_by_hand(root, 0o644)
    script = script_of(EXAMPLES)
    assert f"mqctl fsck {ROOT} " in script
    beginning = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}\n'
    outputs = run_examples(beginning + script.replace(ROOT, str(root)))
    check_shown(EXAMPLES, [each.replace(str(root), ROOT) for each in outputs])


@pytest.mark.certificate
def test_upgrade_says_what_the_page_shows(tmp_path: Path) -> None:
    root = make_root(tmp_path / "mq")
    (root / "queues" / "orders" / ".keys").mkdir(parents=True)
    make_old(root)
    examples = examples_in(UPGRADE)
    beginning = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}\n'
    outputs = run_examples(beginning + script_of(examples).replace(ROOT, str(root)))
    check_shown(examples, [each.replace(str(root), ROOT) for each in outputs])


@pytest.mark.parametrize(("command", "page"), [(fsck, PAGE), (upgrade, UPGRADE)])
def test_every_flag_is_told_of(command: click.Command, page: str) -> None:
    for option in command.params:
        for name in option.opts:
            assert not name.startswith("--") or name in page, name
