"""The page on histories: its commands, one after the other, against daemons."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes import Processes

import mq.spark.jobs
from mq.spark.commands.history import history

PAGE = Path(mq.spark.jobs.__file__).with_name("HISTORY.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```\n```\n(?P<shown>.*?)```\n", re.DOTALL)
BEGINNING = (
    f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}\n'
    f'python() {{ {sys.executable} "$@"; }}\n'
)


@pytest.mark.certificate
def test_the_commands_say_what_the_page_shows(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    url = daemons.mq(root, "--standalone").url
    examples = BLOCK.findall(PAGE)
    assert len(examples) == 2
    for commands, shown in examples:
        said = run(BEGINNING + here(commands, root, tmp_path), url)
        lines = here(shown, root, tmp_path).strip().split("\n")
        # On several lines, since a minute may end meanwhile.
        patterns = [re.escape(line).replace(r"\.\.\.", ".*") for line in lines]
        pattern = "\n".join(patterns).replace(r"1\ steps", r"[12]\ steps")
        assert re.search(pattern, said), said
    refused = subprocess.run(
        [sys.executable, "-m", "mq.tools.mqctl", "pipeline", "history", "--json",
         "--queue", "nobody", "--master", "local[1]", "--root", root, "--to", tmp_path / "other"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert refused.returncode == 1
    assert '{"error": {"exit": 1, "message": ' in refused.stderr
    assert "nobody" in refused.stderr
    assert not (tmp_path / "other" / "queues").exists()


def test_every_option_is_told_of() -> None:
    for option in history.params:
        for name in (*option.opts, *option.secondary_opts):
            known = name in PAGE or name in ("--report", "--no-json", "-q", "--quiet")
            assert known or not name.startswith("--"), name


def here(text: str, root: Path, tmp_path: Path) -> str:
    return re.sub(r"/tmp/(mq\b)?", lambda path: str(root) if path[1] else f"{tmp_path}/", text)


def run(script: str, url: str) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"export MQ_URL={url}\n{script}"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=150,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
