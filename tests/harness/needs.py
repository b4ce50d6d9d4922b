"""What a test needs of the machine."""

import os

import pytest


def cannot_run(reason: str) -> None:
    """Skips a test that this machine cannot run; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"CI must be able to run this: {reason}")
    pytest.skip(reason)
