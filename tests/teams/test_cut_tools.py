"""Agents with tools, contexts and models of each kind, cut at every write: the rest is the same, no model is asked and
no tool is called twice, but for the one that was in flight."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from autogen_core.tools import StaticStreamWorkbench, StaticWorkbench

from drsai_backend import Depends, DrSaiAgent, ReactAgent, RegisteredTools, RunContext, ToolAgent, tool
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.agents.contexts import CompactionContext, EphemeralOutputsContext, TokenBufferedContext
from drsai_backend.database import DatabaseManager
from drsai_backend.datamodel.owner import Owner
from drsai_backend.files import Files
from drsai_backend.models import ModelClientFactory
from drsai_backend.teams.replay.steps import ToolFinished, ToolStarted
from drsai_backend.teams.suspension import InputRequired
from drsai_backend.tools import FileOutput
from drsai_backend.tools.http import HttpTool
from drsai_backend.tools.mcp import McpWorkbench
from drsai_backend.tools.mcp.host import pool
from drsai_backend.tools.registered.http import HttpKind
from drsai_backend.tools.registered.registry import ToolRegistry, ToolSpec
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings
from tests.tools.http.conftest import Said, Sent, Site, site
from tests.tools.mcp.conftest import stdio

__all__ = ["site"]
pytestmark = pytest.mark.usefixtures("spotless")
LOCAL = ("127.0.0.0/8",)
ANN = Owner("default", "u")
REPEATED = {"read", "look", "plot", "get", "find", "m__count"}
"""The tools that may be called again; of all others a person is asked."""
LONG = "A line of text. " * 12


def id_of(arguments: str) -> str:
    """Which call has these arguments, as JSON."""
    return re.findall(r"c\d+(?=\")", arguments)[-1]


class World:
    """What happened outside of the processes. Every call of a tool is told its own id, as its argument `text`."""

    def __init__(self, *rounds: str) -> None:
        self.rounds = rounds
        self.asked: list[str] = []
        self.acted: list[str] = []
        self.opened = 0

    @property
    def called(self) -> list[str]:
        return self.acted

    def call_after(self, last: str | None) -> tuple[str, str] | None:
        """The id and the tool of the call that follows the one with the id `last`; None: the last answer."""
        number = 0 if last is None else int(last.removeprefix("c")) + 1
        return (f"c{number}", self.rounds[number]) if number < len(self.rounds) else None

    def client(self) -> ScriptedClient:
        """A model that makes the calls one after the other, and keeps what it was asked."""

        def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            self.asked.append("\n".join(str(each.content) for each in messages))
            last = messages[-1]
            called = isinstance(last, FunctionExecutionResultMessage)
            found = self.call_after(id_of(messages[-2].content[0].arguments) if called else None)
            if found is None:
                return f"Done: {last.content[0].content}"
            return [FunctionCall(found[0], json.dumps(self.arguments(found[0])), found[1])]

        return ScriptedClient(rule)

    def answer(self, request: ModelRequest) -> Reply:
        """The same over HTTP."""
        self.asked.append(json.dumps(request.messages))
        last = request.messages[-1]
        called = last["role"] == "tool"
        made = request.messages[-2]["tool_calls"][0]["function"]["arguments"] if called else ""
        found = self.call_after(id_of(made) if called else None)
        if found is None:
            return Reply(f"Done: {last['content']}")
        return Reply(tool_calls=[ToolCall(found[1], self.arguments(found[0]), found[0])])

    def arguments(self, call: str) -> dict[str, Any]:
        return {"text": call}

    def act(self, text: str) -> str:
        self.acted.append(text)
        return f"did {text}"

    def agent(self, client: Any = None, **options: Any) -> DrSaiAgent:
        client = self.client() if client is None else client
        return DrSaiAgent("ann", client, max_tool_iterations=len(self.rounds) + 1, **options)


Build = Callable[..., Any]


def results_of(story: Story) -> dict[str, str]:
    """What was shown of the calls that were made."""
    started = [each for each in story.events if isinstance(each, ToolStarted) and each.name != "done"]
    ids = {each.call_id: id_of(each.arguments) for each in started}
    ended = [each for each in story.events if isinstance(each, ToolFinished)]
    return {ids[each.call_id]: each.result for each in ended if each.call_id in ids}


def _plain(value: Any) -> str:
    """As text, without the ids of files, and of calls that a model has written as text, which chance makes."""
    return re.sub(r"(file-|call_)[0-9a-f]{24}", r"\1", json.dumps(value))


async def _nothing(_: World) -> None: ...


async def cut_everywhere(
    make: Callable[[], tuple[World, Build]],
    check: Callable[[World], Awaitable[None]] = _nothing,
    *,
    answers_are_cached: bool = False,
    **provided: Any,
) -> int:
    """Run the story uncut, then with a cut before and behind each of its writes. Returns how many there were."""

    async def told(crash_at: int | None, *, durable: bool, known: dict[str, str]) -> tuple[World, Story, int]:
        world, build = make()
        given = 0

        def answer(question: InputRequired) -> str:
            nonlocal given
            if question.kind == "approval":
                return "approve"
            assert (question.kind, question.tool is not None) == ("tool_retry", True)
            call = id_of(json.dumps(question.tool["arguments"]))  # type: ignore[index]
            if call not in world.called:
                return "run"
            given += 1
            return f"result: {known[call]}"

        story = Story(build, answer=answer, crash_at=crash_at, durable=durable, provided=provided)
        await story.run(LONG)
        await check(world)
        assert not story.steps
        assert world.opened == 0, "a dependency is left open"
        return world, story, given

    expected_world, expected, _ = await told(None, durable=False, known={})
    known = results_of(expected)
    called = list(expected_world.called)
    assert sorted(called) == sorted(known) == [f"c{n}" for n in range(len(expected_world.rounds))]
    assert expected.writes >= 2 * len(expected_world.rounds)
    for crash_at in range(1, expected.writes + 1):
        for durable in (True, False):
            world, story, given = await told(crash_at, durable=durable, known=known)
            if answers_are_cached:  # A cached answer uses no tokens, and has ids of its own for its calls.
                assert story.said[-1]["content"] == expected.said[-1]["content"]
            else:
                assert _plain([story.said, story.state]) == _plain([expected.said, expected.state])
            assert {_plain(each) for each in results_of(story).items()} <= {_plain(each) for each in known.items()}
            again = len(world.asked) - len(expected_world.asked) + len(world.called) - len(called)
            where = f"cut {'behind' if durable else 'before'} write {crash_at}"
            twice = {each for each in world.called if world.called.count(each) > 1}
            assert {world.rounds[int(each[1:])] for each in twice} <= REPEATED, where
            # What was not written is done once more, or its result is given by the person who was asked.
            is_mark = all("!" in each or each.endswith(":td") for each in story.cut)  # `done` counts nothing
            if not answers_are_cached:
                # An answer of plain text is written with the next one that calls tools.
                answers = sum(re.fullmatch(r"m\d+", each) is not None for each in story.cut)
                assert again + given == (0 if durable or is_mark else max(answers, 1)), (where, story.cut)
                assert {*map(_plain, world.asked)} == {*map(_plain, expected_world.asked)}, where
    return expected.writes


def tools_of(world: World) -> list[Any]:
    def opened() -> Iterator[World]:
        world.opened += 1
        yield world
        world.opened -= 1

    Opened = Annotated[World, Depends(opened)]

    @tool
    def sync(text: str, world: Opened, run: RunContext) -> str:
        return f"{world.act(text)} for {run.user_id}"

    @tool(idempotent=True)
    async def read(text: str, world: Opened) -> str:
        return world.act(text)

    @tool(retries=1)
    async def generate(text: str, world: World = Depends(opened)) -> AsyncIterator[str]:  # noqa: B008
        yield "begun"
        yield world.act(text)

    @tool(requires_approval=True)
    async def pay(text: str) -> str:
        return world.act(text)

    @tool(ephemeral=1, idempotent=True)
    def look(text: str) -> str:
        return f"{world.act(text)} {LONG}"

    @tool(idempotent=True)
    async def plot(text: str) -> FileOutput:
        return FileOutput("plot.txt", world.act(text).encode())

    return [sync, read, generate, pay, look, plot]


async def test_tools_of_ours() -> None:
    def make() -> tuple[World, Build]:
        world = World("sync", "read", "generate", "pay", "sync")
        return world, lambda: world.agent(tools=tools_of(world))

    assert await cut_everywhere(make) == 11


CONTEXTS: dict[str, Callable[[World], Any]] = {
    "ephemeral": lambda world: EphemeralOutputsContext(),
    "buffered": lambda world: TokenBufferedContext(150),
}


@pytest.mark.parametrize("kind", CONTEXTS)
async def test_contexts(kind: str) -> None:
    def make() -> tuple[World, Build]:
        world = World("look", "look", "look")
        return world, lambda: world.agent(tools=tools_of(world), model_context=CONTEXTS[kind](world))

    assert await cut_everywhere(make) == 6


async def test_a_context_that_is_compacted() -> None:
    def make() -> tuple[World, Build]:
        world = World("look", "look", "look")

        def summarise(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            world.asked.append(f"summary of {messages}")
            return f"Summary {len(str(messages))}."

        def build() -> DrSaiAgent:
            shown = CompactionContext(200, ScriptedClient(summarise))
            return world.agent(tools=tools_of(world), model_context=shown)

        return world, build

    assert await cut_everywhere(make) > 6, "nothing was summarised"


async def test_http_tools(site: Site) -> None:
    """A GET is repeated, of a POST a person is asked."""

    def make() -> tuple[World, Build]:
        world = World("get", "post", "get")

        def answer(sent: Sent) -> Said:
            return Said(world.act(sent.path[1:]))

        site.answer = answer
        text = [{"name": "text", "type": "string", "required": True}]
        configs = [
            {
                "name": method.lower(),
                "description": method,
                "parameters": text,
                "endpoint": {"url": f"{site.url}/{{text}}", "method": method},
            }
            for method in ("GET", "POST")
        ]
        tools = [HttpTool(each, allowed_addresses=LOCAL) for each in configs]
        return world, lambda: world.agent(tools=tools)

    assert await cut_everywhere(make) == 6


async def test_mcp_tools(tmp_path: Path) -> None:
    """Of servers over stdio, each of one process for all runs; the calls of one may be repeated."""

    class Counted(World):
        def __init__(self, folder: Path) -> None:
            super().__init__("n__count", "m__count", "n__count")
            self.folder = folder

        def arguments(self, call: str) -> dict[str, Any]:
            return {"path": str(self.folder / call)}

        @property
        def called(self) -> list[str]:
            return [path.name for path in self.folder.iterdir() for _ in path.read_text().splitlines()]

    def make() -> tuple[World, Build]:
        folder = tmp_path / "calls"  # The model is asked the same each time.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        world = Counted(folder)
        servers = [stdio(), stdio(name="m", idempotent=True)]
        return world, lambda: world.agent(workbench=[McpWorkbench(servers)])

    try:
        assert await cut_everywhere(make) == 6
    finally:
        await pool().close()


async def test_registered_tools_and_files(db: DatabaseManager, site: Site) -> None:
    """Each on both databases: tools of the tenant, and a tool that keeps a file, which is kept once."""
    registry = ToolRegistry(db, {"http": lambda: HttpKind(LOCAL)})
    who = Principal("u", scopes=frozenset(Scope))
    text = [{"name": "text", "type": "string", "required": True}]
    for name, method in (("find", "GET"), ("order", "POST")):
        endpoint = {"url": f"{site.url}/{{text}}", "method": method}
        config = {"description": name, "parameters": text, "endpoint": endpoint}
        await registry.register(who, ToolSpec(name, "http", config))
    files = Files(db.database, settings())

    def make() -> tuple[World, Build]:
        world = World("plot", "find", "order")
        site.answer = lambda sent: Said(world.act(sent.path[1:]))

        def build(context: RunContext) -> DrSaiAgent:
            return world.agent(workbench=[StaticWorkbench(tools_of(world)), RegisteredTools(["find", "order"])])

        return world, build

    async def one_file(world: World) -> None:
        kept = (await files.list(ANN)).items
        assert [(each.filename, await files.read(ANN, each.file_id)) for each in kept] == [("plot.txt", b"did c0")]
        await files.delete(ANN, kept[0].file_id)

    try:
        assert await cut_everywhere(make, one_file, db_manager=db, files=files, tools=registry) == 6
    finally:
        await registry.statistics.close()


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(strict=False) as server:
        yield server


def profiles(
    tmp_path: Path, server: ModelServer, db: DatabaseManager | None = None, **named: Any
) -> ModelClientFactory:
    file = tmp_path / "models.json"
    file.write_text(json.dumps({"profiles": named}))
    return ModelClientFactory(settings(openai_base_url=server.base_url, models=file), None, db and db.database)


async def test_models_to_fall_back_to(server: ModelServer, tmp_path: Path) -> None:
    """The first fails each time; the answer of the second is not asked for again."""
    server.script("cut-bad", lambda _: Failure(503))
    breaker = {"failures": 1000}
    models = profiles(
        tmp_path, server,
        fast={"model": "cut-bad", "retries": 0, "fallback": ["spare"], "breaker": breaker},
        spare={"model": "cut-good"},
    )  # fmt: skip

    def make() -> tuple[World, Build]:
        world = World("sync", "read")
        server.script("cut-good", world.answer)
        return world, lambda context: world.agent(context.model_client("fast"), tools=tools_of(world))

    try:
        assert await cut_everywhere(make, models=models) == 4
    finally:
        await models.close()
    assert sum(each.model == "cut-bad" for each in server.requests) == sum(
        each.model == "cut-good" for each in server.requests
    )


async def test_answers_that_are_cached(server: ModelServer, tmp_path: Path, db: DatabaseManager) -> None:
    """What was answered and not written is asked for again, and the cache has it."""
    models = profiles(tmp_path, server, db, fast={"model": "cut-cached", "retries": 0, "cache": {"ttl": 60}})
    worlds: list[World] = []

    def make() -> tuple[World, Build]:
        world = World("sync", "read")
        worlds.append(world)
        server.script("cut-cached", world.answer)
        return world, lambda context: world.agent(context.model_client("fast"), tools=tools_of(world))

    async def asked_once(world: World) -> None:
        assert len(world.asked) == len(set(world.asked)) == 3
        await models.forget(ANN)

    try:
        assert await cut_everywhere(make, asked_once, models=models, answers_are_cached=True) == 4
    finally:
        await models.close()


class Writing(World):
    """A model that writes its calls as text."""

    def client(self) -> ScriptedClient:
        def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
            assert not options.get("tools")
            self.asked.append("\n".join(str(each.content) for each in messages))
            last = str(messages[-1].content)
            called = last.startswith("Observation:")
            found = self.call_after(id_of(str(messages[-2].content)) if called else None)
            if found is None:
                return f"Thought: All is done.\nFinal Answer: Done: {last}"
            return f"Thought: One more.\nAction: {found[1]}\nAction Input: {json.dumps(self.arguments(found[0]))}"

        return ScriptedClient(rule)


async def test_calls_as_text() -> None:
    def make() -> tuple[World, Build]:
        world = Writing("sync", "read", "pay", "sync")
        tools = StaticStreamWorkbench(tools_of(world))
        return world, lambda: ReactAgent("ann", world.client(), workbench=tools, max_steps=9)

    assert await cut_everywhere(make) == 9


async def test_work_that_ends_with_done() -> None:
    """The model stops once without it, and is reminded: that is not asked for again either."""

    class Finishing(World):
        def client(self) -> ScriptedClient:
            def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
                self.asked.append("\n".join(str(each.content) for each in messages))
                last = messages[-1]
                if isinstance(last, FunctionExecutionResultMessage):
                    found = self.call_after(id_of(messages[-2].content[0].arguments))
                elif "have not called the tool" in str(last.content):
                    return [FunctionCall("d", '{"answer": "All is done."}', "done")]
                else:
                    found = self.call_after(None)
                if found is None:
                    return "I stop."
                return [FunctionCall(found[0], json.dumps(self.arguments(found[0])), found[1])]

            return ScriptedClient(rule)

    def make() -> tuple[World, Build]:
        world = Finishing("sync", "read")
        tools = StaticStreamWorkbench(tools_of(world))
        return world, lambda: ToolAgent("ann", world.client(), workbench=tools, require_done=True)

    assert await cut_everywhere(make) == 6
