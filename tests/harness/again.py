"""`python -m harness.again OUTCOME [OPTION ...]`: runs each test that failed once more, by itself.

Red twice is red. A test that is green then is reported as FLAKY, with its first failure, and has
to be mended: it fails when others run beside it, or by chance. Options go to pytest.
"""

import subprocess
import sys
from pathlib import Path

from harness.outcome import Outcome

TOP = Path(__file__).parents[2]
# A run stops at this number of failures: it has more than chance against it.
FAILURES_MAX = 20
SECONDS_MAX = 300


def main(words: list[str]) -> int:
    """The exit code says whether a test was red twice."""
    outcome = Outcome.read(Path(words[0]))
    if outcome is None or not outcome.failed:
        print("deploy/check: pytest ended without a result", file=sys.stderr)
        return 1
    if len(outcome.failed) >= FAILURES_MAX:
        print(f"{len(outcome.failed)} tests have failed: none is run again")
        return 1
    print(f"{len(outcome.failed)} failed; once more, each by itself:", flush=True)
    red = {test: text for test, text in outcome.failed.items() if not is_green(test, words[1:])}
    for test, text in outcome.failed.items():
        verdict = "FAILED twice" if test in red else "FLAKY"
        print(f"{verdict} {test}; its first failure ends:\n{_end(text)}")
    print(f"{len(red)} failed twice, {len(outcome.failed) - len(red)} flaky")
    return 1 if red else 0


def is_green(test: str, options: list[str]) -> bool:
    """Whether the test passes with nothing beside it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, test]
    try:
        return subprocess.run(command, cwd=TOP, timeout=SECONDS_MAX, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _end(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines()[-12:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
