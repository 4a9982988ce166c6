"""Each served team is a tool: what is said to it is a user input for a thread of whoever asks.

A run belongs to the engine and not to the call: a client that leaves, or has waited for its time, asks again by the
thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Annotated, Any, Final, TypeAlias, cast

import orjson
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import drsai_backend
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.mcp.answers import decision_of, refused, told
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.thread import check_name
from drsai_backend.errors import DrSaiError, InvalidRequest, NotFound, StaleAnswer, UnknownModel
from drsai_backend.explain import IS_NUMBER, explain
from drsai_backend.runs import Answer, Ask, Engine, Handle, InputMessage, Origin, RunEnded, RunEvent, Where
from drsai_backend.runs.events import MessageDone
from drsai_backend.runs.feed.live_run import as_done

_log = logging.getLogger(__name__)
Context: TypeAlias = ServerRequestContext[object, object]

MAX_TEXT: Final = 1_000_000
"""Characters of a message or an answer."""
_UNUSABLE: Final = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_NAME: Final = 64
_LIVE: Final = (RunStatus.CREATED, RunStatus.RUNNING)
_INSTRUCTIONS: Final = (
    "Each tool is a team of agents. Say something with `message`. The answer names a thread: give its `thread_id` to "
    "continue the conversation, to answer a question of the team with `answer`, or, with neither, to wait for the end "
    "of a run and read its answer. A run continues when its caller leaves."
)


class Arguments(BaseModel):
    """What a call of a team says."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    message: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] | None = Field(
        default=None, description="What to say to the team. Leave it out to wait for the thread's run."
    )
    thread_id: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="The conversation to continue; without it a new one begins."
    )
    answer: Annotated[str, Field(max_length=MAX_TEXT)] | None = Field(
        default=None, description="The answer to what the team asks on the thread, in place of a message."
    )
    idempotency_key: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(
        default=None, description="A text of your own: the same call again with it is not made twice."
    )
    wait_seconds: Annotated[float, Field(ge=0, le=3600), IS_NUMBER] = Field(
        default=50.0, description="How long to wait for the answer. The run continues after that."
    )


class TeamTools:
    """The MCP server of an engine's teams.

    Args:
        engine: whose teams.
        who: who asks, of a request.
    """

    def __init__(self, engine: Engine, who: Callable[[Context], Principal]) -> None:
        self._engine = engine
        self._who = who

    def server(self) -> Server[object]:
        """The server, for a transport of the `mcp` package to serve."""
        return Server(
            "drsai_backend",
            version=drsai_backend.__version__,
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    def _names(self) -> dict[str, str]:
        """The operator's teams by the names of their tools. A stored definition has a name that a tool may have."""
        names: dict[str, str] = {}
        for team in self._engine.teams.names():
            name = _UNUSABLE.sub("_", team)
            if len(name) > _MAX_NAME or name in names:
                name = f"{name[: _MAX_NAME - 9]}_{hashlib.sha256(team.encode()).hexdigest()[:8]}"
            names[name] = team
        return names

    async def _list(self, context: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        schema = Arguments.model_json_schema()
        names = {team: name for name, team in self._names().items()}
        tools = [
            Tool(
                name=names.get(offer.name, offer.name),
                title=offer.name,
                description=offer.description or f"Ask the team {offer.name}.",
                input_schema=schema,
            )
            for offer in await self._engine.offers(self._who(context))
            if offer.name in names or offer.name not in names.values()
        ]
        return ListToolsResult(tools=tools)

    async def _call(self, context: Context, params: CallToolRequestParams) -> CallToolResult:
        try:
            return await self._ask(context, params.name, params.arguments or {})
        except DrSaiError as error:
            return refused(error)
        except Exception:  # noqa: BLE001 - its text is for the log alone
            _log.exception("a call of the tool %s failed", params.name)
            text = TextContent(type="text", text="internal_error: something went wrong here; the log has it")
            return CallToolResult(content=[text], is_error=True)

    async def _ask(self, context: Context, tool: str, given: Mapping[str, object]) -> CallToolResult:
        who = self._who(context)
        team = self._names().get(tool, tool)
        arguments = _read(given)
        who.require(Scope.CHAT)
        said: list[MessageDone] = []
        thread, key = arguments.thread_id, arguments.idempotency_key
        for param, name in (("thread_id", thread), ("idempotency_key", key)):
            if name is not None:
                check_name(name, param)
        try:
            await self._engine.check_name(who, {"model": team}, later=True)
            if key is None:
                await self._engine.check_team(who, team, Where(thread))
            events, thread_id, run_id, ended = await self._begin(who, team, arguments)
        except UnknownModel:
            raise NotFound(f"there is no tool {tool!r}", param="name") from None
        if ended is None:
            ended = await _heard(events, said, context, arguments.wait_seconds)
        return told(said, ended, tool=tool, thread_id=thread_id, run_id=run_id)

    async def _begin(
        self, who: Principal, team: str, arguments: Arguments
    ) -> tuple[AsyncGenerator[RunEvent], str, str, RunEnded | None]:
        """The events of the run that the call is about, its thread, and its id."""
        if arguments.message is not None:
            message = InputMessage("user", arguments.message)
            where, origin = Where(arguments.thread_id), Origin(arguments.idempotency_key)
            return _of(await self._engine.start(Ask(team, [message], where=where, origin=origin), who))
        if arguments.thread_id is None:
            raise InvalidRequest("say something with `message`, or name a thread with `thread_id`", param="message")
        thread = await self._engine.get_thread(who, arguments.thread_id)
        if thread.team != team:
            raise NotFound(f"no thread {arguments.thread_id!r} of this team", param="thread_id")
        if arguments.answer is not None:
            return _of(await self._answer(who, arguments.thread_id, arguments, thread.input_request))
        if thread.run_id is None:
            raise NotFound(f"the thread {arguments.thread_id!r} has no run", param="thread_id")
        log = self._engine.follow_run(who, thread.run_id)

        async def events() -> AsyncGenerator[RunEvent]:
            async with aclosing(log):
                async for logged in log:
                    yield as_done(logged.event)

        return events(), thread.thread_id, thread.run_id, None

    async def _answer(
        self, who: Principal, thread_id: str, arguments: Arguments, question: Mapping[str, object] | None
    ) -> Handle:
        """Answer the question that a thread has, if it has one. With a key the engine may know the answer of before,
        whatever is asked by now. Raises StaleAnswer."""
        given, key = arguments.answer or "", arguments.idempotency_key
        if question is None and key is None:
            raise StaleAnswer("the thread does not ask anything (any more)", param="answer")
        question = question or {"id": ""}
        answer = _answer(str(question["id"]), decision_of(given, question))
        said = hashlib.sha256(orjson.dumps([thread_id, given])).hexdigest()
        try:
            return await self._engine.answer(who, thread_id, answer, origin=Origin(key, fingerprint=said))
        except StaleAnswer as error:
            raise StaleAnswer(error.message, param="answer") from None


def _of(handle: Handle) -> tuple[AsyncGenerator[RunEvent], str, str, None]:
    return handle.events(), handle.thread_id, handle.run_id, None


def _read(given: Mapping[str, object]) -> Arguments:
    try:
        arguments = Arguments.model_validate(given)
    except ValidationError as error:
        wrong = next(explain(error))
        raise InvalidRequest(str(wrong), param=wrong.place) from None
    if arguments.message is not None and arguments.answer is not None:
        raise InvalidRequest("give either a `message` or an `answer`", param="answer")
    for name in ("message", "answer", "thread_id", "idempotency_key"):
        if "\0" in (getattr(arguments, name) or ""):
            raise InvalidRequest(f"`{name}` must not hold NUL characters", param=name)
    return arguments


def _answer(question: str, fields: Mapping[str, object]) -> Answer:
    text = fields.get("content", fields.get("text"))
    decision, reason, arguments = fields.get("decision"), fields.get("reason"), fields.get("arguments")
    for name, value, kind in (
        ("text", text, str),
        ("decision", decision, str),
        ("reason", reason, str),
        ("arguments", arguments, dict),
    ):
        if value is not None and not isinstance(value, kind):
            raise InvalidRequest(f"`{name}` of the answer is of the wrong type", param="answer")
    return Answer(question, cast(Any, text), cast(Any, decision), cast(Any, reason), cast(Any, arguments))


async def _heard(
    events: AsyncGenerator[RunEvent], said: list[MessageDone], context: Context, seconds: float
) -> RunEnded | None:
    """Return how the run ends; None: it has not within `seconds`. What it says meanwhile is progress."""
    try:
        async with asyncio.timeout(seconds), aclosing(events) as heard:
            async for event in heard:
                if isinstance(event, RunEnded):
                    return event
                if isinstance(event, MessageDone):
                    said.append(event)
                    if event.shown:
                        text = event.message.to_text()[:1000]
                        await context.session.report_progress(len(said), message=text)
    except TimeoutError:
        return None
    return None
