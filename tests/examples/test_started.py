"""Getting started and Concepts: every command and program, in order, as it stands there."""

import os
import re
import sys
from pathlib import Path

import pytest
from harness.mqctl import mqctl_for
from harness.pages import (
    AFTER_EACH,
    CURL,
    Example,
    check_shown,
    examples_in,
    run_examples,
    script_of,
)
from harness.processes import Processes

import mq

PAGES = Path(mq.__file__).parent
BLOCK = re.compile(r"```(?P<kind>sh|python)\n(?P<text>.*?)```\n(?:```\n(?P<shown>.*?)```\n)?", re.S)
URL = "localhost:8080"
WORKER = "mqctl worker kitchen:worker\n"
# A worker goes on in another terminal, until Ctrl-C. Its log is read at the end.
BEGIN_WORKER = f"""
if [ -n "${{worker-}}" ]; then kill $worker; wait $worker || true; fi
{sys.executable} -m mq.tools.mqctl worker kitchen:worker >> worker.log 2>&1 &
worker=$!
"""


def blocks(page: str) -> list[tuple[str, str, list[str]]]:
    """Kind, text and shown lines of all that a page has to be typed in."""
    text = (PAGES / page).read_text(encoding="utf-8")
    found = [
        (each["kind"], each["text"], (each["shown"] or "").splitlines())
        for each in BLOCK.finditer(text)
    ]
    assert len(found) == text.count("```sh\n") + text.count("```python\n")
    return found


@pytest.mark.usefixtures("curl")
def test_the_tutorial(tmp_path: Path) -> None:
    (_, install, _), *others = blocks("GETTING_STARTED.md")
    assert install.splitlines()[0].endswith("pip install .")
    assert install.splitlines()[1:] == ["mq --standalone"]
    with mqctl_for(tmp_path, "--standalone") as (mqctl, daemon):
        script = f"cd {tmp_path}\ntrap 'kill ${{worker-}} || true' EXIT\n{mqctl.function()}"
        for kind, text, _ in others:
            if kind == "sh":
                script += BEGIN_WORKER if text == WORKER else text
            elif text.startswith("# kitchen.py\n"):
                script += f"cat > kitchen.py <<'END'\n{text}END\n"
            else:
                script += f"{sys.executable} - <<'END'\n{text}END\n"
            if "shovel start" in text:
                script += "until grep -q 'cooked soup' worker.log; do sleep 0.1; done\n"
            script += AFTER_EACH
        # Not a part of where temporary files go.
        script = re.sub(r"/tmp/mq(?![.\w])", f"{tmp_path}/root", script)
        script = script.replace("/tmp/fetched", "fetched")
        script = script.replace(URL, daemon.url.removeprefix("http://"))
        outputs = run_examples(CURL + script, env={**os.environ, "MQ_URL": daemon.url})
        log = (tmp_path / "worker.log").read_text()
        shown = [Example(text, tuple(lines)) for _, text, lines in others]
        texts = [each.commands for each in shown]
        check_shown(shown, [log if t == WORKER else o for t, o in zip(texts, outputs, strict=True)])


@pytest.mark.usefixtures("curl")
def test_the_concepts(daemons: Processes, root: Path, tmp_path: Path) -> None:
    text = (PAGES / "CONCEPTS.md").read_text(encoding="utf-8")
    examples = examples_in(text)
    assert len(examples) == text.count("```sh\n")
    script = script_of(examples).replace(URL, daemons.mq(root, "--standalone").url)
    outputs = run_examples(CURL + script.replace("/tmp/", f"{tmp_path}/"))
    check_shown(examples, outputs)
