"""Recorded runs call the tools of MCP servers: once, and after a crash only where that is allowed."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_core import FunctionCall

from drsai_backend import DrSai, RunStatus
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs import Answer, InputMessage
from drsai_backend.teams.replay.steps import ToolPartial
from drsai_backend.tools.mcp import McpWorkbench
from tests.support.asks import asks
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings
from tests.tools.mcp.conftest import SERVER, soon, stdio


def counting(path: Path, *, wait: float = 0, kind: type[McpWorkbench] = McpWorkbench, **server: Any) -> AssistantAgent:
    def rule(messages: Any, options: Any) -> Any:
        if type(messages[-1]).__name__ == "UserMessage":
            arguments = json.dumps({"path": str(path), "wait": wait})
            return [FunctionCall(id="c1", name="n__count", arguments=arguments)]
        return f"done: {messages[-1].content[0].content}"

    workbench = kind([stdio(**server)])
    return AssistantAgent("counter", ScriptedClient(rule), workbench=workbench, reflect_on_tool_use=True)


async def test_the_pool_is_closed_with_the_application(migrated_sqlite: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    async with DrSai({"crew": lambda: counting(made)}, migrated_sqlite, settings=settings()) as drsai:
        for _ in range(3):
            assert (await drsai.run("crew", "x")).text == "done: counted"
        assert drsai.mcp.pool.count == 1
        assert len(set(made.read_text().splitlines())) == 1, "one process served them all"
    assert drsai.mcp.pool.count == 0


async def test_a_call_is_approved(migrated_sqlite: str, tmp_path: Path) -> None:
    """The mark of the server is that of its tools; the answer repeats the turn, and the tool is called once."""
    made = tmp_path / "made"
    teams = {"crew": lambda: counting(made, requires_approval=True)}
    async with DrSai(teams, migrated_sqlite, settings=settings()) as drsai:
        asked = await drsai.run("crew", "x", thread_id="t")
        assert asked.status is RunStatus.AWAITING_INPUT
        assert not made.exists()
        question = asked.input_request
        assert question is not None
        handle = await drsai.answer("t", Answer(question["id"], decision="approve"))
        assert (await handle.wait()).status is RunStatus.COMPLETED
    assert len(made.read_text().splitlines()) == 1


async def test_a_workbench_of_ones_own_makes_its_calls(migrated_sqlite: str, tmp_path: Path) -> None:
    heard: list[str] = []

    class Heard(McpWorkbench):
        async def call_tool(self, name: str, *args: Any, **kwargs: Any) -> Any:
            heard.append(name)
            return await super().call_tool(name, *args, **kwargs)

    def crew() -> AssistantAgent:
        return counting(tmp_path / "made", kind=Heard)

    async with DrSai({"crew": crew}, migrated_sqlite, settings=settings()) as drsai:
        assert (await drsai.run("crew", "x")).text == "done: counted"
    assert heard == ["n__count"]


async def test_who_asks_needs_the_permission_of_a_server(migrated_sqlite: str, tmp_path: Path) -> None:
    made = tmp_path / "made"
    teams = {"crew": lambda: counting(made, permission="tools:register")}
    async with DrSai(teams, migrated_sqlite, settings=settings()) as drsai:
        for scopes, text in (({Scope.CHAT}, "needs the scope"), ({Scope.CHAT, Scope.TOOLS_REGISTER}, "done: counted")):
            who = Principal(scopes=frozenset(scopes))
            handle = await drsai.engine.start(*asks(team="crew", messages=[InputMessage("user", "x")], principal=who))
            await handle.wait()
            assert text in handle.transcript()[-1].message.to_text()


async def test_progress_is_shown_and_what_is_no_text_is_kept(migrated_sqlite: str) -> None:
    def rule(messages: Any, options: Any) -> Any:
        if type(messages[-1]).__name__ == "UserMessage":
            name, arguments = str(messages[-1].content).split(" ", 1)
            return [FunctionCall(id="c1", name=name, arguments=arguments)]
        return messages[-1].content[0].content

    def crew() -> AssistantAgent:
        workbench = McpWorkbench([stdio(resources=True, max_output=1000)])
        return AssistantAgent("reader", ScriptedClient(rule), workbench=workbench, reflect_on_tool_use=True)

    async with DrSai({"crew": crew}, migrated_sqlite, settings=settings()) as drsai:
        handle = await drsai.start("crew", 'n__steps {"number": 3}')
        events = [event async for event in handle.events()]
        partial = next(event for event in events if isinstance(event, ToolPartial))
        assert (partial.name, partial.content) == ("n__steps", "1/3 step 1")
        assert handle.transcript()[-1].message.to_text() == "all done"
        read = await drsai.run("crew", 'n__read_resource {"uri": "files://reports/q1.pdf"}')
        cut = await drsai.run("crew", 'n__long {"size": 5000}')
        assert read.text.startswith("[file q1.pdf, application/pdf, 5 bytes, id ")
        assert "1000 of 5000 characters are shown" in cut.text
        owner = Owner("default", "anonymous")
        kept = (await drsai.files.list(owner, order="asc")).items
        assert [await drsai.files.read(owner, each.file_id) for each in kept] == [b"%PDF\xff", b"x" * 5000]


async def test_a_server_is_killed_in_the_middle_of_a_run(migrated_sqlite: str, tmp_path: Path) -> None:
    """The agent reads of it and the run goes to its end; the next one has a server again."""
    made = tmp_path / "made"
    waits = iter([60.0, 0.0])
    teams = {"crew": lambda: counting(made, wait=next(waits))}
    async with DrSai(teams, migrated_sqlite, settings=settings()) as drsai:
        handle = await drsai.start("crew", "x")
        await soon(lambda: made.exists() and made.read_text())
        os.kill(int(made.read_text()), signal.SIGKILL)
        assert (await handle.wait()).status is RunStatus.COMPLETED
        assert "closed the connection" in handle.transcript()[-1].message.to_text()
        assert (await drsai.run("crew", "x")).text == "done: counted"
    assert len(set(made.read_text().splitlines())) == 2


async def test_two_of_one_process_have_servers_of_their_own(migrated_sqlite: str, tmp_path: Path) -> None:
    """Of one name, each in the operator's file; and each its own bound of connections."""

    def rule(messages: Any, options: Any) -> Any:
        if type(messages[-1]).__name__ == "UserMessage":
            return [FunctionCall(id="c1", name="n__pid", arguments="{}")]
        return messages[-1].content[0].content

    def crew() -> AssistantAgent:
        return AssistantAgent("reader", ScriptedClient(rule), workbench=McpWorkbench(["n"]), reflect_on_tool_use=True)

    def opened(name: str, most: int) -> DrSai:
        server = {"command": sys.executable, "args": [str(SERVER)], "env": {"WHOSE": name}}
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"mcpServers": {"n": server}}))
        return DrSai({"crew": crew}, migrated_sqlite, settings=settings(mcp_servers=str(file), mcp_connections=most))

    async with opened("ann", 3) as ann, opened("eve", 5) as eve:
        of_ann, of_eve = (await ann.run("crew", "x")).text, (await eve.run("crew", "x")).text
        assert of_ann != of_eve
        assert (await ann.run("crew", "x")).text == of_ann
        assert (ann.mcp.pool.most, eve.mcp.pool.most) == (3, 5)
        assert (ann.mcp.pool.count, eve.mcp.pool.count) == (1, 1)
        await eve.close()
        assert (await ann.run("crew", "x")).text == of_ann
