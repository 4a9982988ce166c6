"""What the demo model answers to the prompts by which chat windows ask for a title, tags and the like: the first words
of the chat, in the form that is asked for."""

from __future__ import annotations

import json
import re
from typing import Final

from drsai_backend.json_types import JsonObject
from drsai_backend.models.demo.tools import shorten

_ANSWERS_IN: Final = re.compile(r'"(title|tags|follow_ups|queries|text|prompt)"\s*:')
_SAID: Final = re.compile(
    r"^(?:USER|User|user|<user>|Query|Message)\W{0,3}\s*([^\s<].*?)(?:</user>|`{3}|\"{3})?\s*$", re.MULTILINE
)
_ASKS_FOR_A_TITLE: Final = ("Provide a concise, 5-word-or-less title", "Create a concise, 3-5 word title")
_WORDS: Final = 5


def housekeeping(text: str, system: str) -> str | None:
    """The answer to a prompt, which a program reads; None: it is none."""
    if text.startswith("### Task:") and "<chat_history>" in text:
        found = _ANSWERS_IN.search(text)
        return _json(found.group(1), _topic(text.rpartition("<chat_history>")[2])) if found else _title(text)
    if text.startswith("Your task is to reflect the speaker's likely facial expression"):
        return "🙂"
    if system.startswith("Available Tools: ["):
        return '{"tool_calls": []}'
    if text.startswith("Analyze this conversation and provide:"):
        return json.dumps({"language": "English", "title": _title(text)}, ensure_ascii=False)
    if system.startswith("You are a professional conversation summarizer") or text.startswith(_ASKS_FOR_A_TITLE):
        return _title(text)
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
