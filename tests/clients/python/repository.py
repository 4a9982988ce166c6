"""What coding agents work in: a git repository with a function that is wrong, and what they are to do there."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

from common import API_KEY, BASE_URL

FIRST, SECOND = "Mend add().", "Which results did you get?"
_WRONG = "def add(a, b):\n    return a - b\n"
_TEST = """
import unittest

from calc import add


class AddTest(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)


unittest.main()
"""


class Repository:
    """A new one. `home` is for what the agent keeps: nothing of the machine's user is read or changed."""

    def __init__(self) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="drsai-coding-")
        self.home, self.folder = Path(self._place.name) / "home", Path(self._place.name) / "work"
        for folder in (self.home, self.folder):
            folder.mkdir()
        (self.folder / "calc.py").write_text(_WRONG)
        (self.folder / "test_calc.py").write_text(_TEST)
        (self.folder / ".gitignore").write_text("__pycache__\n")
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "Begin"]):
            person = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
            subprocess.run(["git", *person, *words], cwd=self.folder, check=True)

    @property
    def environment(self) -> dict[str, str]:
        """Of the agent's process: it reaches this server, and nothing else."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.home), "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}

    def run(self, command: list[str], **more: str) -> str:
        """What the agent prints."""
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **more},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
        )
        if done.returncode:
            raise RuntimeError(f"exit code {done.returncode}: {done.stdout[-300:]} {done.stderr[-300:]}")
        return done.stdout.strip()

    def work(self, answer: str) -> dict[str, Any]:
        """What has become of the repository, beside what the agent said."""
        test = subprocess.run(["python3", "test_calc.py"], cwd=self.folder, capture_output=True)
        note = self.folder / "NOTE.md"
        return {"answer": answer, "passes": test.returncode == 0, "note": note.exists() and note.read_text()}


def results(answer: str) -> list[bool]:
    """Of the calls that the model was shown in the second turn, whether each has its own result."""
    own = ["return a - b", "AddTest", "", "", "OK", "M calc.py"]
    pairs = json.loads(answer)
    assert len(pairs) == len(own), pairs
    return [result != "(none)" and word in result for (_, result), word in zip(pairs, own, strict=True)]


def threads() -> dict[str, int]:
    """The threads of the client's user, and how many runs each has."""
    return {each["id"]: len(_get(f"/threads/{each['id']}/runs")) for each in _get("/threads")}


def _get(path: str) -> list[dict[str, Any]]:
    request = urllib.request.Request(f"{BASE_URL}{path}", headers={"Authorization": f"Bearer {API_KEY}"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["data"]
