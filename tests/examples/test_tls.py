"""TLS and resource limits: every command of it, in order, with the daemon that it starts."""

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from harness.pages import Example, check_shown, examples_in, run_examples, script_of, section
from harness.processes import Processes

from mq.daemon.cli import main as mq
from mq.model.limits import JWT_LEEWAY_S_DEFAULT, WAITERS_MAX_DEFAULT
from mq.runtime.server_settings import (
    CONNECTIONS_MAX_DEFAULT,
    HANDSHAKE_S_DEFAULT,
    HEAD_S_DEFAULT,
    QUEUES_MAX_DEFAULT,
)

PAGE = section("deploy/SECURE.md", "TLS", "Resource limits")
EXAMPLES = examples_in(PAGE)
FOLDER = "/tmp/mq-tls"


def is_daemon(example: Example) -> bool:
    return example.commands.startswith("mq --root")


@pytest.mark.certificate
@pytest.mark.usefixtures("curl")
def test_every_command_says_what_the_page_shows(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    [begin] = [index for index, each in enumerate(EXAMPLES) if is_daemon(each)]
    folder = tmp_path / "mq-tls"
    run(EXAMPLES[:begin], folder, "")
    _, root_flag, shown_root, port_flag, port, *flags = shlex.split(EXAMPLES[begin].commands)
    assert (root_flag, shown_root, port_flag) == ("--root", "/tmp/mq", "--port")
    started = daemons.mq(
        root,
        *(str(folder / f) if f.endswith((".pem", ".key", ".toml", ".json")) else f for f in flags),
    )
    (folder / "mq.pid").write_text(str(started.popen.pid))
    # What the first example has said of variables, the others use.
    before = "".join(
        line for line in EXAMPLES[0].commands.splitlines(keepends=True)
        if line.startswith(("new=", "by="))
    )  # fmt: skip
    run(EXAMPLES[begin + 1 :], folder, f"cd {FOLDER} && umask 077\n{before}", (port, started.port))
    assert started.logged("TLS files reloaded")


def run(
    examples: Sequence[Example], folder: Path, before: str, ports: tuple[str, int] | None = None
) -> None:
    script = before + script_of(examples)
    assert FOLDER in script
    script = script.replace(FOLDER, str(folder))
    if ports is not None:
        script = script.replace(*map(str, ports))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    check_shown(examples, run_examples(script, env=env))


def test_every_flag_of_the_page_is_one_with_its_default() -> None:
    options = {
        flag: option
        for option in mq.params
        if isinstance(option, click.Option)
        for flag in option.opts
    }
    named = set(re.findall(r"`(--[a-z-]+)`", PAGE))
    assert named <= options.keys()
    told = re.findall(r"^\| `(--[a-z-]+)` \| `(MQ_[A-Z_]+)` \| (\d+) \|", PAGE, re.MULTILINE)
    assert {flag: float(default) for flag, _, default in told} == {
        "--jwt-leeway": JWT_LEEWAY_S_DEFAULT,
        "--head-timeout": HEAD_S_DEFAULT,
        "--body-timeout": options["--body-timeout"].default,
        "--connections-max": CONNECTIONS_MAX_DEFAULT,
        "--waiters-max": WAITERS_MAX_DEFAULT,
        "--queues-max": QUEUES_MAX_DEFAULT,
    }
    for flag, variable, _ in told:
        assert variable == "MQ_" + flag.removeprefix("--").replace("-", "_").upper()
    assert f"handshake within {HANDSHAKE_S_DEFAULT:g} s" in PAGE.replace("\n", " ")
