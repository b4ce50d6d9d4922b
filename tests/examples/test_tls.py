"""The page of TLS: every command of it, in order, with the daemon that it starts."""

import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from harness.processes import Processes

from mq.daemon.cli import main as mq
from mq.model.serving_limits import (
    CONNECTIONS_MAX_DEFAULT,
    HANDSHAKE_S_DEFAULT,
    HEAD_S_DEFAULT,
    JWT_LEEWAY_S_DEFAULT,
    QUEUES_MAX_DEFAULT,
    WAITERS_MAX_DEFAULT,
)

from .test_examples import Example, as_shown, examples_in

PAGE = (Path(__file__).parents[2] / "deploy" / "TLS.md").read_text(encoding="utf-8")
EXAMPLES = examples_in(PAGE)
MARK = "== the next example"
FOLDER = "/tmp/mq-tls"


def is_daemon(example: Example) -> bool:
    return example.commands.startswith("mq --root")


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
    assert started.logged("TLS read again")


def run(
    examples: Sequence[Example], folder: Path, before: str, ports: tuple[str, int] | None = None
) -> None:
    script = before + "".join(f"{each.commands}printf '\\n{MARK}\\n'\n" for each in examples)
    assert FOLDER in script
    script = script.replace(FOLDER, str(folder))
    if ports is not None:
        script = script.replace(*map(str, ports))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        capture_output=True,
        text=True,
        timeout=150,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = done.stdout.split(f"\n{MARK}\n")[:-1]
    for example, output in zip(examples, outputs, strict=True):
        lines = iter(output.splitlines())
        for shown in example.lines:
            pattern = as_shown(shown)
            assert any(pattern.fullmatch(line) for line in lines), (
                f"{example.commands}shows no more:\n{shown}\nbut:\n{output}"
            )


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
    assert f"handshake within {HANDSHAKE_S_DEFAULT:g} s" in PAGE
