"""The model behind the teams, as a process: `python -m tests.clients.model` prints its base URL and serves until its
standard input ends.

It is the strict scripted server of the tests, and answers by what it is asked (coding agents: see `coding`):

| the last message | the answer |
| --- | --- |
| a tool's result | `The tool said …` |
| `Which messages …` | all messages that arrived, as JSON: `[[role, text], …]` |
| `Which parameters …` | the request without messages and tools, as JSON |
| `Be slow TAG` | after 2.5 seconds, the how manyth such request this is |
| `Fail TAG` | HTTP 500 |
| `How often TAG` | how many requests named the tag before |
| `… weather …`, `… time …` | calls of the tools `get_weather` and `get_time`, where they are offered |
| `Who …` | a person, as JSON, if `response_format` or a tool asks for it, else a sentence |
| `Talk for ever` | a text that was cut by `length` |
| `Delete PATH` | a call of `delete` |
| anything else | `Answer: ` and the text |
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from typing import Any

from tests.clients import coding
from tests.support.model_server import Answer, Failure, ModelRequest, ModelServer, Reply, ToolCall

PERSON = {"name": "Ada", "age": 36}
_ARGUMENTS: dict[str, dict[str, Any]] = {"get_weather": {"city": "Paris"}, "get_time": {"zone": "CET"}}
_asked: Counter[str] = Counter()


def text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def answer(request: ModelRequest) -> Answer:
    if (done := coding.answer_of(request)) is not None:
        return done
    last, text = request.messages[-1], request.last
    if last["role"] == "tool":
        results: list[str] = []
        for message in reversed(request.messages):
            if message["role"] != "tool":
                break
            results.append(text_of(message))
        return f"The tool said {' and '.join(reversed(results))}."
    if "You are the writer" in request.system:
        return "A draft."
    if "You are the reviewer" in request.system:
        return "Good."
    if text.startswith("Which messages"):
        return json.dumps([[message["role"], text_of(message)] for message in request.messages])
    if text.startswith("Which parameters"):
        return json.dumps({k: v for k, v in request.body.items() if k not in ("messages", "tools")})
    tagged = re.match(r"(Be slow|Fail|How often) (\S+)", text)
    if tagged is not None:
        what, tag = tagged.groups()
        if what == "How often":
            return str(_asked[tag])
        _asked[tag] += 1
        return (
            Reply(f"Slow answer {_asked[tag]}.", delay=2.5) if what == "Be slow" else Failure(500, "broken on purpose")
        )
    wanted = [name for name in _ARGUMENTS if name.removeprefix("get_") in text and name in request.tools]
    if wanted:
        return Reply(tool_calls=[ToolCall(name, _ARGUMENTS[name]) for name in wanted])
    if text.startswith("Delete ") and "delete" in request.tools:
        return Reply(tool_calls=[ToolCall("delete", {"path": text.split()[1].rstrip(".")})])
    if text.startswith("Who "):
        form = (request.body.get("response_format") or {}).get("type", "text")
        if form != "text":
            return Reply(dict(PERSON))
        made = next((name for name in request.tools if "erson" in name or "final" in name), None)
        return Reply(tool_calls=[ToolCall(made, dict(PERSON))]) if made else "Ada, who was 36."
    if text.startswith("Talk for ever"):
        return Reply("And so on", finish_reason="length")
    return f"Answer: {text}"


def main() -> None:
    with ModelServer(answer) as server:
        print(server.base_url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
