"""Mutants that need not be killed, and why: what they change is promised nowhere."""

from typing import Final

EXEMPT: Final[dict[str, str]] = {}
