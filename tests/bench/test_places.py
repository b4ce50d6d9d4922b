"""The slow disk: each flush takes its time, is counted, and nothing else takes any."""

import contextlib
import os
import time

import pytest
from harness.needs import cannot_run

from deploy.bench.load import BenchError
from deploy.bench.places import FLUSH_S, slow_ext4


@pytest.mark.needs_root
def test_flushes_are_counted_and_take_their_time(needs_root: None) -> None:
    with contextlib.ExitStack() as cleanup:
        try:
            place = cleanup.enter_context(slow_ext4())
        except BenchError as error:  # Of an older kernel.
            cannot_run(str(error))
        assert place.flushes is not None
        os.sync()
        before, began_s = place.flushes(), time.monotonic()
        for number in range(10):
            with (place.path / str(number)).open("wb") as file:
                file.write(b"x")
                file.flush()
                os.fsync(file.fileno())
        flushes, took_s = place.flushes() - before, time.monotonic() - began_s
        assert flushes >= 10
        assert took_s >= flushes * FLUSH_S
        assert (place.path / "9").read_bytes() == b"x"
    assert not place.path.exists()
