"""`python -m tests.fuzz`: a longer search than CI's, with other examples each time."""

import os
import sys
from pathlib import Path

import click
import pytest

from tests.fuzz import EXAMPLES_VARIABLE


@click.command("python -m tests.fuzz", context_settings={"show_default": True})
@click.option("--examples", type=click.IntRange(1), default=20_000, help="For each test.")
@click.option("--only", default="", help="Tests with this in their names alone, as pytest's -k.")
def main(examples: int, only: str) -> None:
    """Throw bytes, names and frames at mq, until one of them breaks it."""
    os.environ[EXAMPLES_VARIABLE] = str(examples)
    flags = ["-k", only] if only else []
    # However long it takes; whatever hangs is told by the tests themselves.
    sys.exit(pytest.main([str(Path(__file__).parent), "--timeout", "0", *flags]))


if __name__ == "__main__":
    main()
