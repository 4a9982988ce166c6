"""A server on loopback that stands for search engines, the weather and the web."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tools.http.conftest import Site


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()
