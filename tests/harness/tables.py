"""A catalog of Iceberg tables on this machine."""

from pathlib import Path

import pytest
from pyiceberg.utils.config import Config


def use_catalog(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog `lake`, as pyiceberg finds it."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{top}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", f"file://{top}/warehouse")
    # It is read once a process.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
