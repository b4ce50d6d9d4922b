"""How the suite is shared out between pytest's workers, as `deploy/check` runs it."""

from collections.abc import Sequence

import pytest

# What one of these gives is dear and shared: all its tests are one worker's.
SHARED = ("spark", "drivers", "cluster", "connect_server")
# What takes long begins first, so that the workers end together; short tests come last.
LONG = (
    "tests/mutants/test_gate.py",
    "tests/spark/",
    "tests/crash/test_outages.py",
    "tests/histories/test_histories.py",
    "tests/crash/",
    "tests/nfs/",
    "tests/bench/",
    "tests/broker/test_model.py",
)


def arrange(items: list[pytest.Item]) -> None:
    """Puts what takes long first, and what shares a fixture together."""
    for item in items:
        for name in SHARED:
            if name in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(name))
    items.sort(key=lambda item: _rank(item.nodeid, LONG))


def _rank(nodeid: str, first: Sequence[str]) -> int:
    return next((at for at, start in enumerate(first) if nodeid.startswith(start)), len(first))
