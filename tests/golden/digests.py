"""Digests that are stored and compared with those of a later release: `Run.point`, `Run.fingerprint`,
`TurnStep.digest`.

`frozen/digests.txt` is what the code of the release before makes of them, 3fc5aee. It is written there and never here::

    git worktree add --detach /tmp/old 3fc5aee && cp -r tests/golden tests/recordings /tmp/old/tests/
    cd /tmp/old && python -m venv .venv && .venv/bin/pip install -e . --group dev
    .venv/bin/python -m tests.golden.digests > digests.txt

Users with a name count otherwise since then: the thread `named` was left out.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    SystemMessage,
    UserMessage,
)
from pydantic import BaseModel

from drsai_backend.access.principal import Principal
from drsai_backend.database import migrations
from drsai_backend.datamodel.owner import Owner
from drsai_backend.models import ModelParams
from drsai_backend.models.calls.requests import ModelRequest, digest_of
from drsai_backend.models.images import EncodedImage
from drsai_backend.runs import InputMessage
from drsai_backend.runs.history.digest import points, seed_of
from drsai_backend.runs.intake.request_digest import RequestDigests
from drsai_backend.runs.requests import RunLimits
from drsai_backend.runs.start.plan import fingerprint
from drsai_backend.teams.client_tools.definitions import ClientTool, ClientTools, ToolOutput
from tests.golden import hour
from tests.support.asks import admitted

CALL = FunctionCall("c1", '{"at": "it"}', "look")
IMAGE = EncodedImage(hour.PIXEL)
HISTORY = [
    InputMessage("system", "Be brief."),
    InputMessage("user", "Is it so?\r\n"),
    InputMessage("assistant", "<think>so</think>**ann**\n\nIt is é\u3000."),
    InputMessage("user", ["See.", IMAGE]),
    InputMessage("assistant", "", calls=[CALL]),
    InputMessage("tool", "a tree", call_id="c1"),
    InputMessage("assistant", "A tree."),
    InputMessage("user", "### Task:\n<context>x</context>\n<user_query>who?</user_query>"),
]
TOOLS = ClientTools((ClientTool("look", "Looks.", {"type": "object"}, strict=True), ClientTool("say", kind="custom")))
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a user of a tenant": {"principal": Principal("ann", tenant="acme")},
    "another's thread": {"owner": "bob"},
    "parameters": {"params": ModelParams(temperature=0.5, seed=7, stop=["x"]), "extra": {"a": [1, None]}},
    "tools": {"client_tools": TOOLS},
    "results": {"tool_results": [ToolOutput("c1", "a tree"), ToolOutput("c2", "", is_error=True)]},
    "limits": {"limits": RunLimits(max_turns=3), "background": True, "stream": True, "n": 1},
    "continued": {"continues": "It is"},
}


class Receipt(BaseModel):
    note: str


def of_values() -> Iterator[str]:
    """Of fixed requests."""
    for number, point in enumerate(points(seed_of(Owner("acme", "ann"), "talk"), HISTORY)):
        yield f"point {number} after {point.length} = {point.digest.hex()}"
    for name, values in WAYS.items():
        request = admitted(**{"team": "talk", "messages": HISTORY, "thread_id": "t", **values})
        yield f"fingerprint {name} = {fingerprint(request.ask, request.name)}"
        yield f"digest of a chat {name} = {RequestDigests().of(request)}"
    messages = [
        SystemMessage(content="Be brief."),
        UserMessage(content="Is it so? \0", source="user"),
        AssistantMessage(content=[CALL], thought="Hm.", source="ann"),
        FunctionExecutionResultMessage(content=[FunctionExecutionResult(content="a", name="look", call_id="c1")]),
    ]
    tool = {"name": "look", "description": "Looks.", "parameters": {"type": "object"}}
    asked: dict[str, dict[str, Any]] = {
        "plain": {},
        "tools": {"tools": [tool], "tool_choice": "required"},
        "a form": {"json_output": Receipt, "extra_create_args": {"odd": Receipt(note="x")}},
    }
    for name, options in asked.items():
        yield f"model request {name} = {ModelRequest.of(messages, options).digest({})}"
    yield f"many messages = {ModelRequest.of(messages * 20, {}).digest({})}"
    yield f"what JSON does not know = {digest_of({'b': {1}, 'a': Receipt})}"


def of_rows(rows: Iterable[str]) -> Iterator[str]:
    """Those in the rows of the hour."""
    for line in rows:
        table, column = line.split(" ")[0], line.partition(" = ")[0].split(" ")[-1]
        if (table, column) in (("run", "point"), ("run", "fingerprint"), ("turnstep", "digest"), ("turnstep", "step")):
            yield line


async def _main() -> None:
    with tempfile.TemporaryDirectory() as name:
        url = f"sqlite:///{name}/a.db"
        migrations.upgrade(url)
        async with hour.lived(url, Path(name)):
            print("\n".join([*of_values(), *of_rows(hour.rows(url))]))


if __name__ == "__main__":
    asyncio.run(_main())
