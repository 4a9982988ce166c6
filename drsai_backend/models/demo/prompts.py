"""The prompts of programs are answered by the demo model in the form that each asks for: those of chat windows that
want a title, tags and the like, of agents whose calls of tools are text (`drsai_backend.models.text_calls`), and of the
members of a plan-execute team."""

from __future__ import annotations

import json
import re
from typing import Final

from autogen_core.tools import ToolSchema

from drsai_backend.json_types import JsonObject
from drsai_backend.models.demo.tools import shorten, tool_calls

PREFIX: Final = "[offline demo model] "

_ANSWERS_IN: Final = re.compile(r'"(title|tags|follow_ups|queries|text|prompt)"\s*:')
_SAID: Final = re.compile(
    r"^(?:\|\|>)?(?:USER|User|user|<user>|Query|Message)\W{0,3}\s*([^\s<].*?)(?:</user>|`{3}|\"{1,3})?\s*$",
    re.MULTILINE,
)
_ASKS_FOR_A_TITLE: Final = (
    "Provide a concise, 5-word-or-less title",
    "Create a concise, 3-5 word title",
    "Please generate a concise, 5-word-or-less title",
    "Detect user language and write in the same language an extremely concise title",
)
_TITLES: Final = (
    "You are a professional conversation summarizer",
    "你是一名擅长会话的助理\uff0c你需要将用户的会话总结为",
)
_WORDS: Final = 5

_LISTED: Final = re.compile(r"^- ([\w.-]+): (.*)\n  (\{.*\})$", re.MULTILINE)
_MARK: Final = "To use a tool, write these lines"
_LAST: Final = "No tool can be used any more"

_PLANNER: Final = "You make the plan for a task"
_THEN: Final = re.compile(r"(?:[.,;?!]|\band\b|\s)+\s*\bthen\b[\s,]*|[.?!;]\s+(?=[A-Z])", re.IGNORECASE)
_AND: Final = re.compile(r"\s*,?\s+\band\b\s+|,\s+", re.IGNORECASE)
_OWN: Final = re.compile(r"^Your step, \S+:\n", re.MULTILINE)
_DONE: Final = "This was done for the task:"
_ENDS: Final = re.compile(r"\n\n(?:Not everything was done|Now answer the task)")
_STEP: Final = re.compile(r"^Step \S+ \([\w ]+\): ", re.MULTILINE)


def housekeeping(text: str, system: str) -> str | None:
    """The first words of the chat, where a chat window asks for a title and the like; None: it does not."""
    if text.startswith("### Task:") and "<chat_history>" in text:
        found = _ANSWERS_IN.search(text)
        return _json(found.group(1), _topic(text.rpartition("<chat_history>")[2])) if found else _title(text)
    if text.startswith("Your task is to reflect the speaker's likely facial expression"):
        return "🙂"
    if system.startswith("Available Tools: ["):
        return '{"tool_calls": []}'
    if text.startswith("Analyze this conversation and provide:"):
        return json.dumps({"language": "English", "title": _title(text)}, ensure_ascii=False)
    if system.startswith(_TITLES) or (text or system).startswith(_ASKS_FOR_A_TITLE):
        return _title(text or system)
    return None


def _topic(text: str) -> str:
    said: list[str] = _SAID.findall(text)
    return said[0] if said else "a conversation"


def _title(text: str) -> str:
    return " ".join(_topic(text).split()[:_WORDS]).rstrip(".?!,;:")


def _json(key: str, topic: str) -> str:
    short = shorten(topic, 60)
    about = " ".join(topic.split()[:_WORDS]).rstrip(".?!,;:")
    answer: JsonObject = {
        "title": about,
        "tags": ["General"],
        "follow_ups": [f"Tell me more about: {short}", f"Give me an example of: {short}"],
        "queries": [short],
        "text": "",
        "prompt": short,
    }
    return json.dumps({key: answer[key]}, ensure_ascii=False)


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
        return _answer(form, f"{PREFIX}it says: {shorten(said)}")
    tools: list[ToolSchema] = [
        {"name": name, "description": description, "parameters": json.loads(schema)}
        for name, description, schema in _LISTED.findall(system)
    ]
    calls = tool_calls(task, tools, hand_over=False, required="You have to use" in system)
    if not calls:
        return _answer(form, f"{PREFIX}You said: {shorten(task)}")
    thought = f"Thought: {calls[0].name} can tell."
    if form == "text":
        return f"{thought}\nAction: {calls[0].name}\nAction Input: {calls[0].arguments}"
    return f"{thought}\nAction:\n{_blob(calls[0].name, json.loads(calls[0].arguments))}"


def _answer(form: str, text: str) -> str:
    if form == "text":
        return f"Thought: I can answer.\nFinal Answer: {text}"
    return f"Thought: I can answer.\nAction:\n{_blob('Final Answer', text)}"


def _blob(action: str, given: object) -> str:
    return f"```json\n{json.dumps({'action': action, 'action_input': given}, ensure_ascii=False)}\n```"


def plan_of(system: str, task: str) -> str | None:
    """A plan in JSON, when the prompt asks for one: what is joined by `and` is done at once, what comes after `then`
    when that is done. None: it does not."""
    if _PLANNER not in system:
        return None
    steps: list[dict[str, object]] = []
    before: list[str] = []
    for part in _THEN.split(task):
        ids: list[str] = []
        for do in filter(None, (each.strip(" .?!\n") for each in _AND.split(part))):
            ids.append(str(len(steps) + 1))
            steps.append({"id": ids[-1], "do": do, "needs": before})
        before = ids or before
    return json.dumps({"steps": steps[:9]}, ensure_ascii=False)


def own_step(text: str) -> str:
    """Return of what an executor is told, its step; any other text as it is."""
    return _OWN.split(text)[-1]


def summed_up(text: str) -> str | None:
    """The results that the one who answers is told, one a line. None: these are none."""
    if not text.startswith(_DONE):
        return None
    parts = _STEP.split(_ENDS.split(text)[0])[1:]
    said = (part.replace(PREFIX, "").partition("\n") for part in parts)
    return "\n".join(f"- {do.strip()}: {' '.join(result.split())}" for do, _, result in said)
