"""Calls of tools as text, where a prompt asks for them so (`drsai_backend.models.text_calls`)."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from autogen_core.tools import ToolSchema

from drsai_backend.models.demo.tools import shorten, tool_calls

_LISTED: Final = re.compile(r"^- ([\w.-]+): (.*)\n  (\{.*\})$", re.MULTILINE)
_MARK: Final = "To use a tool, write these lines"
_LAST: Final = "No tool can be used any more"


def step_in_text(system: str, last: str, task: str) -> str | None:
    """A step in the form that the prompt describes: the first call that the task asks for, then the answer. None: no
    such form is asked for.

    Args:
        system: the system messages.
        last: the last message.
        task: what the person asked for.
    """
    if _MARK not in system and _LAST not in last:
        return None
    form = "json" if '"action_input"' in system + last else "text"
    if last.startswith("Observation: ") or _LAST in last:
        said = last.partition("Observation: ")[2].partition("\nNo tool can")[0] or task
        return _answer(form, f"[offline demo model] it says: {shorten(said)}")
    tools: list[ToolSchema] = [
        {"name": name, "description": description, "parameters": json.loads(schema)}
        for name, description, schema in _LISTED.findall(system)
    ]
    calls = tool_calls(task, tools, hand_over=False, required="You have to use" in system)
    if not calls:
        return _answer(form, f"[offline demo model] You said: {shorten(task)}")
    thought = f"Thought: {calls[0].name} can tell."
    if form == "text":
        return f"{thought}\nAction: {calls[0].name}\nAction Input: {calls[0].arguments}"
    return f"{thought}\nAction:\n{_blob(calls[0].name, json.loads(calls[0].arguments))}"


def _answer(form: str, text: str) -> str:
    if form == "text":
        return f"Thought: I can answer.\nFinal Answer: {text}"
    return f"Thought: I can answer.\nAction:\n{_blob('Final Answer', text)}"


def _blob(action: str, given: Any) -> str:
    return f"```json\n{json.dumps({'action': action, 'action_input': given}, ensure_ascii=False)}\n```"
