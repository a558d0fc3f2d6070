"""A real browser for the tests of pages.

Without chromium these tests are skipped with a loud line, except in CI, where they fail.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def launched() -> Iterator[Any]:
    """The browser, until the tests are over."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("There is no chromium, and in CI the tests of pages are never skipped.")
        pytest.skip("there is no chromium")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  (most tests need no browser)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()
