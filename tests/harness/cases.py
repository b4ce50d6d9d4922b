"""What a fault is tried with: both ways to commit, and bodies that are held and streamed."""

import pytest

KIB = 1024
MIB = 1024 * KIB

STREAMED_BYTES = 3 * MIB // 2

commit_modes = pytest.mark.parametrize("commit", ["fsync", "syncfs"])
body_sizes = pytest.mark.parametrize("size", [5, STREAMED_BYTES], ids=["held", "streamed"])
