from __future__ import annotations

import re
import runpy
from pathlib import Path

from tests.support.commands import ROOT, Commands


def test_the_demo_shows_what_really_happens(commands: Commands, tmp_path: Path) -> None:
    # An endpoint that is set is not asked: the demo runs offline.
    command = commands.start("demo", cwd=tmp_path, env={"OPENAI_BASE_URL": "http://127.0.0.1:1/v1"})
    assert command.wait(90) == 0, command.stderr
    shown = command.stdout
    killed = re.search(r"kill -9 (\d+)", shown)
    assert killed is not None
    assert len(set(re.findall(r"Process (\d+) starts", shown))) == 2
    assert "status is running" in shown
    assert re.search(r"resumes\s+the\s+run\s+\(attempt\s+2\)", shown)
    transcript = shown[shown.index("4  The thread, as stored") :]
    speakers = re.findall(r"^  (?:turn (\d))? +(user|writer|reviewer)  ", transcript, re.MULTILINE)
    assert speakers == [
        ("", "user"),
        ("1", "writer"),
        ("2", "reviewer"),
        ("3", "writer"),
        ("4", "reviewer"),
        ("", "user"),
        ("5", "writer"),
        ("6", "reviewer"),
        ("7", "writer"),
        ("8", "reviewer"),
    ]
    assert "— killed here —" in transcript
    assert "Status completed: 10 messages, each stored once, in 8 turns." in transcript
    assert "writer remembers 10 of them, 2 from before the kill." in transcript
    assert list(tmp_path.glob("*.db")) == []


def test_a_terminal_shows_each_answer_to_its_end_before_the_next_begins() -> None:
    script = runpy.run_path(str(ROOT / "docs/make_demo_svg.py"))
    lines = [line.plain for line in script["record"]()]
    [resumed] = (number for number, line in enumerate(lines) if line.startswith("3  The second process"))
    [asked] = (number for number, line in enumerate(lines) if line.startswith("The next message of the user"))
    assert [line for line in lines[resumed:asked] if "APPROVE" in line] != []
    assert "rivers in winter" in lines[asked + 2]
