"""The page about access: every command of it, in order, against an mq that asks for tokens."""

import os
import re
import shlex
from pathlib import Path

import click
import pytest
from harness.mqctl import Mqctl, mqctl_for, mqctl_server_at
from harness.pages import CURL, check_shown, examples_in, run_examples, script_of, section

from mq.daemon.cli import main as mq_command
from mq.tools.mqctl.cli import mqctl as mqctl_command

PAGE = section("deploy/SECURE.md", "Tokens and rights")
EXAMPLES = examples_in(PAGE)
HANG_UP = "kill -HUP $(pgrep -o -f 'mq --root /tmp/mq')"
URL = "mq=http://localhost:8080"


def outputs(begin: str, script: str, folder: Path) -> list[str]:
    """What each example of a script says, whose files are in the folder."""
    script = begin + script.replace("/tmp/", f"{folder}/")
    env = {name: value for name, value in os.environ.items() if not name.startswith("MQ_")}
    said = run_examples(f"exec 2>&1\n{script}", strict="-eu", env=env)
    return [each.replace(str(folder), "/tmp") for each in said]


@pytest.mark.certificate
@pytest.mark.usefixtures("curl")
def test_every_command_says_what_the_page_shows(tmp_path: Path) -> None:
    first, *others = EXAMPLES
    folder = tmp_path / "said"
    folder.mkdir()
    with mqctl_server_at(tmp_path / "before"):
        # The page's file is there before mq is.
        function = function_at(tmp_path / "before")
        said = outputs(function, script_of([first]), folder)
    with mqctl_for(tmp_path, "--tokens", str(folder / "tokens")) as (mqctl, mq):
        script = script_of(others)
        assert script.count(HANG_UP) == 1
        assert script.count(URL) == 1
        script = script.replace(HANG_UP, f"kill -HUP {mq.popen.pid}")
        script = script.replace(URL, f"mq={mq.url}\nexport MQ_URL={mq.url}")
        again = first.commands.splitlines()[0]
        said += outputs(mqctl.function() + CURL, f"{again}\n{script}", folder)
        mq.wait_for_log(" callers reloaded")
    check_shown(EXAMPLES, said)


def function_at(path: Path) -> str:
    return Mqctl(path, "http://127.0.0.1:1").function()


def test_what_is_not_run_has_flags_that_there_are() -> None:
    lines = re.findall(r"^(mq|mqctl) (.*)$", "\n".join(not_run()), re.MULTILINE)
    assert {name for name, _ in lines} == {"mq", "mqctl"}
    for name, arguments in lines:
        command: click.Command = mq_command
        words = shlex.split(arguments)
        if name == "mqctl":
            for _ in range(2):
                group = command if isinstance(command, click.Group) else mqctl_command
                found = group.get_command(click.Context(group), words.pop(0))
                assert found is not None
                command = found
        command.make_context(name, words)


def not_run() -> list[str]:
    """The blocks of the page that no shell is given."""
    blocks = re.findall(r"```(\w*)\n(.*?)```\n", PAGE, re.DOTALL)
    return [text for kind, text in blocks if not kind]


def test_each_flag_of_access_is_told_of() -> None:
    context = click.Context(mq_command, **mq_command.context_settings)
    for option in ("tokens", "allow-anonymous"):
        assert any(f"--{option}" in each.opts for each in mq_command.params)
        assert f"`--{option}" in PAGE
        assert f"`{context.auto_envvar_prefix}_{option.upper().replace('-', '_')}`" in PAGE
