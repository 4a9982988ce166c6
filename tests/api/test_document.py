"""The shell lines of docs/http.md, run as they are against a real server."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from tests.examples.processes import ROOT, clean_environment
from tests.examples.test_readme import serving


@pytest.mark.skipif(shutil.which("curl") is None, reason="WITHOUT curl: apt-get installs it, as .ci/run does")
def test_the_shell_lines_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/http.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5, "or nothing is tried"
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    script = "set -euo pipefail\n" + "\necho ----\n".join(blocks).replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    slowly = {**clean_environment(), "DRSAI_DEMO_DELAY": "0.02"}  # so that there is something to pause
    monkeypatch.setattr("tests.examples.test_readme.clean_environment", lambda: slowly)
    with serving(tmp_path, port):
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "DRSAI_API_KEY": "unused"},  # nobody needs one here
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"error":{' not in done.stdout, done.stdout
    listed, loaded, background, busy, control, events, rest = done.stdout.split("----")
    assert '"message_count":2' in loaded
    assert '"object":"list"' in listed
    assert background.count('"object":"thread.run"') == 2
    assert '"object":"list"' in busy
    assert control.count('"object":"thread"') == 2
    assert re.findall(r"^event: (?:status|message|end)$", events, re.MULTILINE)[-1] == "event: end"
    assert "id: 2-1-0\n" in events
    assert "id: 2-1-0\n" not in rest
    assert "event: end" in rest
