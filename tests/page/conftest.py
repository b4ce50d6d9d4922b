"""A browser for each test that looks at the page."""

from collections.abc import AsyncIterator

import pytest
from harness.browser import Browser, browser


@pytest.fixture
async def chromium() -> AsyncIterator[Browser]:
    """A Chromium of its own."""
    async with browser() as launched:
        yield launched
