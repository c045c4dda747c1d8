"""What every page is looked at with."""

from collections.abc import Iterator

import pytest

from tests.browser.chromium import Tab, running


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    """A tab of a browser that a module has to itself."""
    with running() as found:
        yield found
