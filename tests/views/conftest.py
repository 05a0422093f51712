# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "support" / "browser"))

import browser as browser_module  # noqa: E402


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium; a test that needs it is skipped where there is none."""
    if browser_module.find() is None:
        pytest.skip("no Chromium here (apt-get install chromium)")
    with browser_module.Browser() as one:
        yield one


@pytest.fixture
def open_page(browser, tmp_path):
    """Writes a page's text and opens it with the network cut: open_page(html, **options of Browser.open)."""
    opened = []

    def open_text(html, **options):
        path = tmp_path / f"page{len(opened)}.html"
        path.write_text(html)
        opened.append(browser.open(path, **options))
        return opened[-1]

    yield open_text
    for page in opened:
        page.close()
