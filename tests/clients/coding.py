"""What the scripted model does for a coding agent, by whichever tools that one offers: it reads two files at once,
mends one and writes another at once, and then runs the test and asks git, at once.

`Mend add()` is answered in these four steps; `Which results …` by all calls and results that the model was shown, as
JSON: `[[text of the call, result], …]`. `Look NAME up` calls the tool that finds further tools.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.model_server import Answer, ModelRequest, Reply, ToolCall

MENDED = "def add(a, b):\n    return a + b\n"
NOTE = "add() adds.\n"


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def answer_of(request: ModelRequest) -> Answer | None:
    """The answer to a coding agent; None: it is none that asks."""
    is_claude, is_codex = "Bash" in request.tools, "exec_command" in request.tools
    if not is_claude and not is_codex:
        return None
    asked = max(index for index, each in enumerate(request.messages) if each["role"] == "user")
    question, since = text_of(request.messages[asked]), request.messages[asked + 1 :]
    if "Which results" in question:
        return json.dumps(_pairs(request.messages))
    if "Look " in question and not since:
        return Reply(tool_calls=[ToolCall("ToolSearch", {"query": re.findall(r"Look (\w+) up", question)[-1]})])
    if "Mend add()" not in question:
        return None
    step = sum(bool(each.get("tool_calls")) for each in since)
    if step == 3:
        results = [text_of(each) for each in since if each["role"] == "tool"]
        return f"Done: {'OK' if 'OK' in ''.join(results) else results}"
    # Where it works: Claude Code says so in a message of the system, codex in one of the user.
    found = re.search(r"working directory: (\S+)|<cwd>(.+?)</cwd>", json.dumps(request.messages))
    folder = (found[1] or found[2]).split("\\n")[0] if found else "/nowhere"
    return Reply(tool_calls=(_of_claude if is_claude else _of_codex)(folder)[step])


def _of_claude(folder: str) -> list[list[ToolCall]]:
    change = {"old_string": "a - b", "new_string": "a + b"}
    return [
        [ToolCall("Read", {"file_path": f"{folder}/{name}"}) for name in ("calc.py", "test_calc.py")],
        [
            ToolCall("Edit", {"file_path": f"{folder}/calc.py", **change}),
            ToolCall("Write", {"file_path": f"{folder}/NOTE.md", "content": NOTE}),
        ],
        [
            ToolCall("Bash", {"command": "python3 test_calc.py 2>&1", "description": "Run the test"}),
            ToolCall("Bash", {"command": "git status --short", "description": "What has changed"}),
        ],
    ]


def _of_codex(folder: str) -> list[list[ToolCall]]:
    commands = [
        ("cat calc.py", "cat test_calc.py"),
        ("sed -i 's/a - b/a + b/' calc.py", "echo 'add() adds.' > NOTE.md"),
        ("python3 test_calc.py 2>&1", "git status --short"),
    ]
    return [[ToolCall("exec_command", {"cmd": each, "workdir": folder}) for each in step] for step in commands]


def _pairs(messages: list[dict[str, Any]]) -> list[list[str]]:
    results = {each["tool_call_id"]: text_of(each) for each in messages if each["role"] == "tool"}
    calls = [call for each in messages for call in each.get("tool_calls") or ()]
    return [[json.dumps(call["function"]), results.get(call["id"], "(none)")] for call in calls]
