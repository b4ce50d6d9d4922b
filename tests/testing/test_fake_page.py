"""Every example of the fake's page is a test that passes."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import mq.testing

PAGE = Path(mq.testing.__file__).with_name("TESTING.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == PAGE.count("```python") >= 5


@pytest.mark.parametrize("example", EXAMPLES)
async def test_example(request: pytest.FixtureRequest, example: str) -> None:
    named: dict[str, Any] = {}
    exec(compile(example, "TESTING.md", "exec"), named)
    tests = [found for name, found in named.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        wanted = inspect.signature(test).parameters
        ended = test(**{name: request.getfixturevalue(name) for name in wanted})
        if inspect.isawaitable(ended):
            await ended
