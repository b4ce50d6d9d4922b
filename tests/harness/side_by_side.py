"""How `deploy/check` shares the suite out between its workers: a file at a time, and the scripts of
the crash states one by one, last, so that the workers end together.
"""

import pytest
from xdist.scheduler import LoadFileScheduling

# What takes long begins first, so that the workers end together; short files come last. Files that
# mostly wait stand between those that mostly compute.
LONG = (
    "tests/mutants/test_gate.py",
    "tests/nfs/test_machines.py",
    "tests/crash/test_outages.py",
    "tests/spark/failures/",
    "tests/faults/test_every_call.py",
    "tests/crash/test_power_cuts.py",
    "tests/spark/",
    "tests/faults/test_every_upkeep_call.py",
    "tests/faults/test_kill_at_every_call.py",
    "tests/deploy/test_new_user.py",
    "tests/deploy/test_image.py",
    "tests/deploy/test_release.py",
    "tests/histories/",
    "tests/nfs/test_histories.py",
    "tests/cluster/test_leadership.py",
    "tests/crash/",
    "tests/nfs/",
    "tests/bench/",
    "tests/broker/test_broker_model.py",
    "tests/conformance/test_memory.py",
    "tests/faults/",
    "tests/daemon/test_supervisor.py",
    "tests/openapi/test_schemathesis.py",
    "tests/daemon/test_children_standalone.py",
    "tests/cluster/",
    "tests/coordination/",
)


# Many tests of some seconds each: they fill what time the long files leave a worker.
LAST = "tests/crash/test_states.py"


class ByFile(LoadFileScheduling):
    """A file is one worker's; each test of `LAST` goes to any."""

    def _split_scope(self, nodeid: str) -> str:
        return nodeid if nodeid.startswith(LAST) else str(super()._split_scope(nodeid))


def longest_first(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    if nodeid.startswith(LAST):
        return len(LONG) + 1
    return next((at for at, start in enumerate(LONG) if nodeid.startswith(start)), len(LONG))
