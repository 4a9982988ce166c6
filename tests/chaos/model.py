"""The models of all agents, played by one scripted server that outlives the processes and remembers what it was asked.

Every user message of the suite begins with a tag, `[c12.3]`: conversation c12, its message 3. So a request tells which
thread it belongs to. Every answer holds a number of its own, `n57`, which tells which request a stored message came of.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.chaos.schedule import Schedule
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall

TAG = re.compile(r"\[(\w+)\.(\d+)\]")
NUMBER = re.compile(r"\bn(\d+)\b")
_WRITTEN = re.compile(r'"token": "(n\d+\.\d+)"')
_NAME = re.compile(r"You are (\w+)\.")
_PARTICIPANTS = re.compile(r"Pick one of \[(.*?)\]")
CHOOSER = "chooser"
SUMMARY = "summary"
_FAILURES = (Failure(503), Failure(429), Reply("never", hang=True))


@dataclass(frozen=True, slots=True)
class Asked:
    """One request to a model. `digest` is that of all it was shown; `tokens` name the tool calls it answered with;
    `cost` is what it said it had used."""

    number: int
    thread: str
    agent: str
    digest: str
    at: float
    tokens: tuple[str, ...] = ()
    cost: int = 0


class Models:
    """The scripted server. Use it as a context manager.

    Args:
        schedule: decides how long answers take and what agents do.
        pace: factor of all durations.
        slow_first: seconds that ann needs for what she is asked for the first time; a repeated question and all others
            are answered at once.
    """

    def __init__(self, schedule: Schedule, pace: float = 1.0, slow_first: float = 0.0) -> None:
        self._schedule = schedule
        self._pace = 0.0 if slow_first else pace
        self._slow_first = slow_first
        self._chances: dict[str, Random] = {}
        self._asked: dict[str, list[Asked]] = {}
        self._count = 0
        self._threads: dict[int, str] = {}
        self.answered: dict[int, ModelRequest] = {}
        """The requests by their numbers, older ones without their bodies."""
        self._lock = threading.Lock()
        self.called = threading.Event()
        """Set when an answer has called a tool."""
        self.agents: Counter[str] = Counter()
        self._failing = schedule.stream("failing")
        # What agents are told is looked at message by message, and by the `name` of who said it.
        self._server = ModelServer(self._answer, strict=False)

    @property
    def base_url(self) -> str:
        return self._server.base_url

    @property
    def count(self) -> int:
        """How many requests there were."""
        return self._count

    def __enter__(self) -> Models:
        self._server.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.__exit__()

    def asked(self, thread: str) -> list[Asked]:
        """What was asked for a thread so far, in order."""
        with self._lock:
            # A summary may be asked for of messages that tell no thread: it may be this one's.
            return sorted([*self._asked.get(thread, ()), *self._asked.get("", ())], key=lambda each: each.number)

    async def _answer(self, request: ModelRequest) -> Reply | Failure:
        at = time.time()
        if len(self._server.requests) > 500:
            self._server.requests.clear()
        texts = [_text(item) for item in request.messages]
        tags = TAG.findall("\n".join(texts))
        numbers = NUMBER.findall("\n".join(texts))
        # What is to be summarised may hold no message of the user's, but then an answer.
        thread = tags[-1][0] if tags else self._threads.get(int(numbers[-1]), "") if numbers else ""
        name = _NAME.search(request.system)
        agent = CHOOSER if "You choose who speaks." in "\n".join(texts) else name.group(1) if name else ""
        if request.system.startswith("Summarise this."):
            agent = SUMMARY
        with self._lock:
            if request.model == "flaky" and self._failing.random() < 0.4:
                self.agents["failed"] += 1
                return self._failing.choice(_FAILURES)
            self._count += 1
            number = self._count
            self._threads[number] = thread
            self.answered[number] = request
            if (old := self.answered.get(number - 500)) is not None:
                old.body = {}
            chance = self._chances.setdefault(thread, self._schedule.stream("model", thread))
            reply = self._reply(agent, number, request, texts, chance)
            reply.prompt_tokens = number  # so that one counted twice, or missed, shows
            reply.delay = self._pace * chance.uniform(0, 0.12)
            reply.chunk_delay = self._pace * chance.uniform(0, 0.03)
            asked = self._asked.setdefault(thread, [])
            seen = digest(request)
            if agent == "ann" and self._slow_first and all(each.digest != seen for each in asked):
                reply.delay = self._slow_first
            tokens = tuple(call.id or "" for call in reply.tool_calls)
            if agent == "scribe":
                tokens = tuple(_WRITTEN.findall(str(reply.content)))
            asked.append(Asked(number, thread, agent, seen, at, tokens, reply.prompt_tokens + reply.completion_tokens))
            self.agents[agent] += 1
        if tokens:
            self.called.set()
        await asyncio.sleep(0)
        return reply

    def _reply(self, agent: str, number: int, request: ModelRequest, texts: list[str], chance: Random) -> Reply:
        match agent:
            case "chooser" if "route" in request.tools:
                if chance.random() < 0.1:
                    return Reply(f"I do not know n{number}")
                names = [each["function"]["name"] for each in request.body["tools"]]
                if chance.random() < 0.3:
                    return Reply(tool_calls=[self._call(chance.choice(names[1:]), number, 0, chance)])
                parameters = request.body["tools"][0]["function"]["parameters"]
                to = chance.choice(parameters["properties"]["to"]["enum"])
                chosen = {"to": to, "confidence": chance.choice((0.3, 0.9)), "reason": f"as of n{number}"}
                return Reply(tool_calls=[ToolCall("route", chosen, f"n{number}")])
            case "chooser":
                found = _PARTICIPANTS.search("\n".join(texts))
                return Reply(chance.choice(re.findall(r"\w+", found.group(1)) if found else ["ann"]))
            case "clerk":
                if chance.random() < 0.6:
                    return Reply(tool_calls=[ToolCall("transfer_to_expert", {}, f"n{number}")])
                return Reply(f"The clerk n{number} is DONE")
            case "expert":
                if request.messages[-1]["role"] != "tool" and chance.random() < 0.4:
                    return Reply(tool_calls=[self._call("look", number, 0, chance)])
                if chance.random() < 0.3:
                    return Reply(tool_calls=[ToolCall("transfer_to_clerk", {}, f"n{number}")])
                return Reply(f"The expert n{number} is DONE")
            case "worker":
                last = max(index for index, item in enumerate(request.messages) if item["role"] == "user")
                rounds = sum(item["role"] == "assistant" for item in request.messages[last:])
                if rounds < 3 and chance.random() < (0.9, 0.6, 0.3)[rounds]:
                    names = chance.choice((["look"], ["pay"], ["look", "pay"], ["pay", "pay"]))
                    return Reply(tool_calls=[self._call(name, number, i, chance) for i, name in enumerate(names)])
                return Reply(f"The worker did it n{number} after {rounds} rounds of tools")
            case "keeper":
                last = max(index for index, item in enumerate(request.messages) if item["role"] == "user")
                rounds = sum(item["role"] == "assistant" for item in request.messages[last:])
                if rounds < 3 and chance.random() < (0.9, 0.6, 0.3)[rounds]:
                    names = request.tools
                    made = [chance.choice(names) for _ in range(chance.choice((1, 1, 2)))]
                    return Reply(tool_calls=[self._call(name, number, i, chance) for i, name in enumerate(made)])
                return Reply(f"The keeper did it n{number} after {rounds} rounds of tools")
            case "scribe":
                steps = sum("Observation:" in text for text in texts[-6:])
                if steps < 3 and chance.random() < (0.9, 0.6, 0.3)[steps] and "No tool can be used" not in texts[-1]:
                    call = self._call(chance.choice(("transfer", "balance")), number, 0, chance)
                    return Reply(f"Thought: n{number}\nAction: {call.name}\nAction Input: {json.dumps(call.arguments)}")
                return Reply(f"Final Answer: The scribe did it n{number} after {steps} steps")
            case "travel":
                return self._planned(number, request, chance)
            case "judge":
                if chance.random() < 0.1:
                    return Reply(f"No verdict n{number}")
                return Reply({"score": chance.choice((0.1, 0.4, 0.6, 0.8)), "reasons": f"n{number}", "reflection": ""})
            case "asker":
                if request.messages[-1].get("name") == "person" or "person" in texts[-1][:20]:
                    return Reply(f"Thank you n{number} and DONE")
                return Reply(f"What is it n{number} that you want?")
            case _:
                return Reply(f"{agent} says n{number} and " + " ".join(["more"] * chance.randrange(8)))

    def _planned(self, number: int, request: ModelRequest, chance: Random) -> Reply:
        if "You make the plan" in request.system:
            if chance.random() < 0.1:
                return Reply(f"No plan n{number}")
            ids = [f"{number}_{index}" for index in range(chance.randrange(1, 5))]
            steps: list[Any] = []
            for at, name in enumerate(ids):
                needs = [each for each in ids[:at] if chance.random() < 0.4]
                steps.append({"id": name, "do": f"act on n{number} {name}", "needs": needs})
            return Reply({"steps": steps})
        if "You do one step" in request.system:
            if request.messages[-1]["role"] != "tool" and chance.random() < 0.7:
                return Reply(tool_calls=[self._call(chance.choice(request.tools), number, 0, chance)])
            word = chance.choice(["Did it"] * 6 + ["FAILED: it"] * 2 + ["REPLAN: it"])
            return Reply(f"{word} n{number}")
        return Reply(f"The traveller n{number} is back")

    def _call(self, name: str, number: int, index: int, chance: Random) -> ToolCall:
        token = f"n{number}.{index}"
        before, after = (round(self._pace * chance.uniform(0, 0.15), 3) for _ in range(2))
        return ToolCall(name, {"token": token, "before": before, "after": after}, token)


def digest(request: ModelRequest) -> str:
    """Of everything that the model was shown, but for the tools it may use."""
    return hashlib.sha256(json.dumps(request.messages, sort_keys=True).encode()).hexdigest()[:16]


def _text(item: dict[str, Any]) -> str:
    content = item.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
