"""What all scripts share: a case is a function; what it returns, or raises, is printed as one JSON object."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

BASE_URL = os.environ["BASE_URL"]
API_KEY = os.environ["API_KEY"]
CLIENT = os.environ.get("CLIENT", "client")
ROOT_URL = BASE_URL.removesuffix("/v1")

_cases: dict[str, Callable[[], Any]] = {}


def case(function: Callable[[], Any]) -> Callable[[], Any]:
    _cases[function.__name__] = function
    return function


def tag(name: str) -> str:
    """A word that no other client and no other run of this script says."""
    return f"{CLIENT}-{name}-{time.time_ns()}"


def conversation(answer: str) -> list[dict[str, str]]:
    """A second turn, as a client that keeps its history itself sends it."""
    return [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "My name is Ada."},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": "Which messages do you see?"},
    ]


def seen(text: str) -> dict[str, Any]:
    """What the model saw, from its answer to "Which messages …": its instructions apart."""
    messages = json.loads(text)
    told = "\n".join(content for role, content in messages if role == "system")
    return {
        "messages": [message for message in messages if message[0] != "system"],
        "system": [part for part in ("You are solo.", "Be kind.") if part in told],
    }


def main() -> None:
    chosen = os.environ.get("CASES", "").split()
    runner = asyncio.Runner()  # one loop for all cases: some clients keep their connections between them
    for name, function in _cases.items():
        if chosen and name not in chosen:
            continue
        try:
            saw = runner.run(_awaited(function)) if inspect.iscoroutinefunction(function) else function()
        except Exception as error:  # noqa: BLE001  # it is what the case saw
            place = traceback.extract_tb(error.__traceback__)
            own = [f"{frame.name}:{frame.lineno}" for frame in place if "/tests/clients/" in frame.filename]
            saw = {"raised": type(error).__name__, "text": str(error)[:600], "at": own[-1:]}
        print(json.dumps({"case": name, "saw": saw}), flush=True)


async def _awaited(function: Callable[[], Any]) -> Any:
    return await function()
