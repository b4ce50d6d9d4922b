"""What every fault ends with: the root is audited once the daemons are gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.audits import assert_audits_clean


@pytest.fixture
def audited(root: Path) -> Iterator[None]:
    """Audits the root after the test, unless no daemon ever opened it."""
    yield
    if (root / "format").exists():
        assert_audits_clean(root)
