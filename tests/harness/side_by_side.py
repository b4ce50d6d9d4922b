"""How `deploy/check` shares the suite out between its workers: a file at a time."""

import pytest

# What takes long begins first, so that the workers end together; short files come last.
LONG = (
    "tests/mutants/test_gate.py",
    "tests/nfs/test_machines.py",
    "tests/crash/test_outages.py",
    "tests/faults/test_every_call.py",
    "tests/spark/failures/",
    "tests/spark/",
    "tests/deploy/test_image.py",
    "tests/deploy/test_new_user.py",
    "tests/deploy/test_release.py",
    "tests/crash/",
    "tests/histories/",
    "tests/nfs/",
    "tests/bench/",
    "tests/broker/test_broker_model.py",
    "tests/faults/",
    "tests/daemon/test_supervisor.py",
    "tests/openapi/test_schemathesis.py",
    "tests/daemon/test_standalone.py",
    "tests/cluster/",
    "tests/coordination/",
)


def longest_first(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.nodeid))


def _rank(nodeid: str) -> int:
    return next((at for at, start in enumerate(LONG) if nodeid.startswith(start)), len(LONG))
