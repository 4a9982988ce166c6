"""A sandbox with bubblewrap, and a folder that it may use."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from drsai_backend.tools.code.bubblewrap import _ENVIRONMENT, BubblewrapSandbox
from drsai_backend.tools.code.folders import WorkFolders

MARK = "DRSAI_TEST_ROOT"
"""The variable by which processes in a test's sandboxes are found from outside."""


@pytest.fixture
def root() -> Iterator[Path]:
    """Not one of pytest's: as root, code runs as another user, who must get through the folders above."""
    made = Path(tempfile.mkdtemp(prefix="drsai-code-test-", dir="/tmp"))
    made.chmod(0o711)
    yield made / "root"
    shutil.rmtree(made)


@pytest.fixture
async def bubblewrap(root: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BubblewrapSandbox]:
    """One that works. Without one a test is skipped, and fails where $DRSAI_TEST_SANDBOX says `required`: in CI."""
    monkeypatch.setitem(_ENVIRONMENT, MARK, str(root))
    sandbox = BubblewrapSandbox(WorkFolders(root))
    if (why := await sandbox.probe()) is not None:
        if os.environ.get("DRSAI_TEST_SANDBOX") == "required":
            pytest.fail(f"bubblewrap does not work here: {why}")
        pytest.skip(f"WITHOUT bubblewrap: apt-get installs it, as .ci/run does: {why}")
    yield sandbox
    assert not [name for name in os.listdir(root) if name.startswith("once-")]
