"""What the models of the recorded teams answer: they pay 1, 2, 3 and 4, each once as far as they are told."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from tests.support.model_server import ModelRequest, Reply, ToolCall

PAYMENTS = {1, 2, 3, 4}


class Script:
    """Answers each request by what it says, and counts them by their worlds: the model's name, or the task's.

    While `holding`, the model that has paid once, and one that is told to hold, gives no answer. One that is told to
    pause answers when that is `paused`.
    """

    def __init__(self) -> None:
        self.holding = False
        self.paused = True
        self.held: set[str] = set()
        self.answered: dict[str, int] = {}

    async def __call__(self, asked: ModelRequest) -> Reply:
        reply = self._answer(asked)
        while asked.last == "Pause." and not self.paused:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.05)
        return reply

    def _answer(self, asked: ModelRequest) -> Reply:
        text = json.dumps(asked.messages)
        if asked.model == "talk":
            world, holds, reply = "talk", asked.last.startswith("Hold"), _talk(asked)
        else:
            named = re.search(r"\[(task-\w+)\]", text)
            world = asked.model if named is None else named.group(1)
            done = {int(each) for each in re.findall(r"pay \S+~(\d) done", text)}
            holds = done == {1} or world in ("of_simple", "task-simple")
            reply = _pays(asked, text, done)
        if self.holding and holds:
            self.held.add(asked.last if world == "talk" else world)
            return Reply(hang=True)
        self.answered[world] = self.answered.get(world, 0) + 1
        return reply


def _talk(asked: ModelRequest) -> Reply:
    last, number = asked.last, asked.number
    if asked.messages[-1]["role"] == "tool":
        return Reply(f"It gave: {last}")
    calls = {
        "Wire": ToolCall("wire", {"number": 7}, f"wire{number}"),
        "Ask": ToolCall("ask_person", {"question": "Which one?"}, f"ask{number}"),
        "Look": ToolCall("look", {"at": "it"}, f"look{number}"),
        "Dig": ToolCall("dig", {}, f"dig{number}"),
    }
    call = calls.get(last.split(" ")[0].rstrip("."))
    return Reply(f"You said: {last}") if call is None else Reply(tool_calls=[call])


def _pays(asked: ModelRequest, text: str, done: set[int]) -> Reply:
    if "judge" in asked.system.lower():
        return Reply({"score": 1.0, "reasons": "r", "reflection": "x"})
    left = sorted(PAYMENTS - done)
    if "Action Input" in asked.system:
        call = f'Thought: I pay.\nAction: pay\nAction Input: {{"number": {left[0]}}}' if left else ""
        return Reply(call or "Thought: It is done.\nFinal Answer: All is paid.")
    if "pay" not in asked.tools:
        return _manages(asked, text)
    if not left:
        return Reply({"note": "All is paid."} if asked.model == "structured" else "All is paid.")
    # At last two at once.
    numbers = left[:2] if left[0] == 3 else left[:1]
    return Reply(tool_calls=[ToolCall("pay", {"number": each}, f"pay{each}x{asked.number}") for each in numbers])


def _manages(asked: ModelRequest, text: str) -> Reply:
    """The models beside the one that pays."""
    if "ann" in asked.tools and "All is paid" not in text:
        return Reply(tool_calls=[ToolCall("ann", {"task": "Pay."}, f"ann{asked.number}")])
    if "You make the plan" in text:
        return Reply({"steps": [{"id": "1", "do": "pay", "needs": []}]})
    if "is_request_satisfied" in text:
        said: dict[str, Any] = {
            "is_request_satisfied": "All is paid" in text,
            "is_in_loop": False,
            "is_progress_being_made": True,
            "next_speaker": "ann",
            "instruction_or_question": "Pay.",
        }
        return Reply({name: {"answer": answer, "reason": "r"} for name, answer in said.items()})
    return Reply("ann" if "role" in text and "select" in text.lower() else "It is done.")
