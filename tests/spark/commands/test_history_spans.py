"""What `--since` and `--step` take, and what they do not."""

from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.spark.commands.history import history, length, when

CONTEXT = click.Context(history)
OPTION = click.Option(["--step"])


@given(st.integers(1, 10**9), st.sampled_from("smhdw"))
def test_lengths(number: int, unit: str) -> None:
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}[unit]
    assert length(CONTEXT, OPTION, f"{number}{unit}") == number * seconds


def test_moments() -> None:
    at = when(CONTEXT, OPTION, "2026-01-31T13:00:00.250+01:00")
    assert at == datetime(2026, 1, 31, 12, 0, 0, 250_000, UTC)
    ago = when(CONTEXT, OPTION, "7d")
    assert ago is not None
    assert timedelta(0) <= datetime.now(UTC) - ago - timedelta(days=7) < timedelta(hours=1)
    assert (when(CONTEXT, OPTION, None), length(CONTEXT, OPTION, None)) == (None, None)


@pytest.mark.parametrize("text", ["", "0d", "-1d", "7", "d", "1.5h", "7 d", "9999999999w", "now"])
def test_what_is_no_moment(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no time"):
        when(CONTEXT, OPTION, text)
    if text != "9999999999w":
        with pytest.raises(click.BadParameter, match="no length"):
            length(CONTEXT, OPTION, text)
