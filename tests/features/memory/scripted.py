"""A person whose year is scripted, and a model that learns from it: what is said, and what is invented or repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tests.support.model_server import ModelRequest

FIND: Final = "worth remembering about them"
"""In the prompt that asks for candidates."""
DECIDE: Final = "Something new was learnt"
"""In the one that asks for decisions."""
SURE: Final = {"complexity": 0.3, "density": 0.9, "emotion": 0.6, "intent": 0.9}
VAGUE: Final = {"complexity": 0.3, "density": 0.4, "emotion": 0.2, "intent": 0.3}

YEAR: Final = (
    ("Hello, I am Ann Lee. I live in Lisbon, by the river.", "What a day."),
    ("I work at Fado Foods as a cook.", "What is 2 + 2?"),
    ("Careful: I am allergic to peanuts.", "Thanks!"),
    ("I have moved, now I live in Porto.", "Do you know a bakery?"),
    ("My dog Rex is ill today.", "My card is 4111 1111 1111 1111, keep it."),
    ("I left the kitchen: now I work at Harbour Labs.", "I live in hope."),
    ("I love hiking in the mountains.", "What is the time?"),
    ("Good news: I moved again, now I live in Hamburg.", "It rains."),
    ("I do not love hiking in the mountains any more.", "Fine."),
    ("I want to learn Czech this winter.", "Good night."),
    ("I am still allergic to peanuts, you know.", "Yes."),
    ("Remind me: I live in Hamburg.", "Bye."),
)
"""What the person says, month by month, and beside it."""
_FACTS: Final = (
    (r"I live in ([A-Z]\w+)", "The user lives in {}."),
    (r"I work at ([A-Z]\w+ [A-Z]\w+)", "The user works at {}."),
    (r"I am(?: still)? allergic to (\w+)", "The user is allergic to {}."),
    (r"My dog (\w+) is ill", "The user has a dog called {}."),
    (r"I love hiking in the (\w+)", "The user loves hiking in the {}."),
    (r"I do not love hiking in the (\w+)", "The user loves hiking in the {} no more."),
    (r"I want to learn (\w+)", "The user wants to learn {}."),
    (r"My card is ([\d ]+\d)", "The user's card is {}."),
)
_SUBJECTS: Final = ("lives in", "works at", "hiking")


def find(request: ModelRequest) -> str:
    """Return what was said, some of it twice, and what was not."""
    texts = re.findall(r"Message (\d+):\n(.*?)(?=\n\nMessage \d+:|\Z)", request.last, re.DOTALL)
    facts: list[Mapping[str, Any]] = [*_found(texts)]
    number, text = texts[0]
    words = " ".join(text.split()[:3])
    invented = [
        {"text": "The user lives in Paris.", "message": int(number), "quote": "I live in Paris", **SURE},
        {"text": "The user lives in Atlantis.", "message": int(number), "quote": words, **SURE},
        {"text": "The user has three children.", "message": 99, "quote": words, **SURE},
        {"text": f"The user said: {words}", "message": int(number), "quote": words, **VAGUE},
        {"text": f"The user says {words}", "message": int(number), "quote": words, **SURE, "intent": "high"},
        {"quote": words},
    ]
    return "Here it is:\n```json\n" + json.dumps({"facts": [*facts, *facts, *invented]}) + "\n```"


def _found(texts: list[tuple[str, str]]) -> Iterator[Mapping[str, Any]]:
    for number, text in texts:
        for pattern, fact in _FACTS:
            if found := re.search(pattern, text):
                yield {"text": fact.format(found[1]), "message": int(number), "quote": found[0], "kind": "fact", **SURE}


def decide(request: ModelRequest) -> str:
    """Return what becomes of each item: what is said of the same subject takes the place of what was."""
    memories = dict(re.findall(r"^Memory (\d+): (.*)$", request.last, re.MULTILINE))
    decisions: list[dict[str, Any]] = []
    for item, text in re.findall(r"^Item (\d+): (.*?) \(nearest", request.last, re.MULTILINE):
        same = [
            number
            for number, known in memories.items()
            if any(subject in text and subject in known for subject in _SUBJECTS)
        ]
        action = "invalidate" if text.endswith("no more.") else "update"
        decisions.append(
            {"item": int(item), "action": action, "memory": int(same[0])}
            if same
            else {"item": int(item), "action": "add"}
        )
    return json.dumps({"decisions": [*decisions, {"item": 99, "action": "update", "memory": 1}]})
