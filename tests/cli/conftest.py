"""The command line as a user has it: processes, files, sockets. Nothing is patched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.commands import Commands


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    with Commands() as running:
        yield running
