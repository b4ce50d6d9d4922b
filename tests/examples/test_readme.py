"""The README's sixty seconds, as they stand there."""

import re
import subprocess
from pathlib import Path

from harness.folders import message_files, nothing_anywhere
from harness.processes import Processes

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def tour() -> str:
    section = README.split("## Sixty seconds")[1]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return block.group(1)


def test_the_tour_of_the_readme(daemons: Processes, root: Path, tmp_path: Path) -> None:
    mq = daemons.mq(root)
    daemons.reaper("--source", str(root / "remove"), "--keep", "3600")
    script = (
        tour()
        .replace("http://localhost:8080", mq.url)
        .replace("localhost:8080", mq.url)
        .replace("/tmp/mq", str(root))
        .replace("/tmp/fetched", str(tmp_path / "fetched"))
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'curl() {{ command curl -sSf "$@"; }}\n{script}'],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "two pizzas" in done.stdout
    assert "X-Message-Receives: 1" in done.stdout
    files = message_files(root)
    assert len(files["remove"]) == 1
    assert files | {"remove": []} == nothing_anywhere()


def test_ci_runs_the_readme_s_test_command() -> None:
    command = re.search(r"<!-- the test command -->\n```sh\n(.*)\n```", README)
    assert command is not None
    assert command.group(1).endswith("deploy/check")
