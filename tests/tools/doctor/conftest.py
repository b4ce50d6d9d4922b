"""Fixtures: folders mounted as file systems that lie."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.doctor.examining import Mounts, lying_mounts


@pytest.fixture
def mounts(needs_root: None, tmp_path: Path) -> Iterator[Mounts]:
    """Mounts that are gone after the test."""
    with lying_mounts(tmp_path) as made:
        yield made
