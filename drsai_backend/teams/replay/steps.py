"""The steps of the turn in flight are what agents did in it, so that a turn which is repeated does none of it twice.

A turn is repeated after a crash, and when a person has answered a question that was asked in it. Two kinds of steps are
recorded, each before its outcome is used:

- a model's answer that calls tools is stored before the first tool starts;
- a tool's result is stored before the agent gets it.

Answers of plain text stay in memory. They are stored along with the next step that is, when a nested team comes to a
turn boundary, and when the run waits for a person: so a turn without tool calls writes nothing. What is stored goes
with the transaction that stores the turn.
"""

from __future__ import annotations

# Private: the messages that AutoGen's contexts hold. tests/teams/test_upstream_agents.py.
# pyright: reportPrivateUsage=false
import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias, cast

from autogen_core import FunctionCall
from autogen_core.model_context import ChatCompletionContext
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
)
from autogen_core.tools import ToolSchema

from drsai_backend.datamodel.citations import passages_in
from drsai_backend.datamodel.file import MessageFile
from drsai_backend.errors import ReplayMismatch
from drsai_backend.json_types import JsonObject, storable_text
from drsai_backend.models.answer import ModelAnswer, ReasonedResult, ToolAnswer
from drsai_backend.models.calls.requests import Digested, ModelRequest, digest_of
from drsai_backend.models.fallback.routing import has_images
from drsai_backend.state.codec import decode_value, dump_json, encode_value
from drsai_backend.teams.suspension import check_over

ASKED: Final = "?0"
RETURNED: Final = "="
RECALLED: Final = "r"
CHOSEN: Final = "chosen"
"""In the value of an answer: its calls are no calls of tools, but what a manager or a judge has decided."""
SEEN: Final = "seen"
"""In the value of an answer: whether it is one to a request with images, or, false, of a model that sees none."""
INFO: Final = "info"
"""In the value of an answer: what else its model could by then. Managers, planners, judges and flows ask in the form
that their model knows."""
_INFO: Final = ("family", "function_calling", "json_output", "structured_output")


@dataclass(frozen=True, slots=True)
class Step:
    """Something that an agent did in the turn.

    Attributes:
        agent: path of the agent: names from the outermost team's member down, joined by `/`. A manager that asks a
            model has one too.
        step: names it among the agent's: `m0`, `m1`… are its model's answers; `m0:t<call id>` is the result of a tool
            call of answer 0, `c0`, `c1`… are summaries of its model context, `l1:0` is what its workbench 1 had when
            it was asked for the first time, `r` is what it was shown beside its messages,
            `n0`, `n1`… are notes of the agent's own, `v0`, `v1`… say what a context has shown that counts tokens,
            `u0`, `u1`… what a memory has added to the context,
            `m0:t<call id>!<n>` says that the call was started for the n-th time, `…?<n>` that it
            then ended with a question to a person (0: whether it is approved, before it was started), `…=` is the
            result of one that is made again when the turn is repeated, as agents have taken part in it.
        digest: hash of what was asked.
        value: JSON, enough to replay it.
    """

    agent: str
    step: str
    digest: str
    value: JsonObject


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The agent `source` calls the tool `name`; `arguments` are JSON text, `call_id` is the model's."""

    source: str
    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call of the tool `name` by `source` came to its end. `result` is text; `is_error`: it says what went wrong."""

    source: str
    call_id: str
    name: str
    result: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class ToolPartial:
    """A call of the tool `name` by `source` shows a partial result, as text."""

    source: str
    call_id: str
    name: str
    content: str


ToolEvent: TypeAlias = ToolStarted | ToolPartial | ToolFinished
"""A tool call begins, shows a partial result, or ends. Not stored: the turn's messages say the same once it is."""
Store: TypeAlias = Callable[[Sequence[Step]], Awaitable[None]]


class TurnSteps:
    """The steps of one run's turn in flight.

    Args:
        recorded: what is stored of the turn that is repeated.
        store: stores steps before it returns. Without it, all stay in memory.
        on_tool: called when a tool call starts and ends; not for a result that is replayed.
    """

    def __init__(
        self,
        recorded: Iterable[Step] = (),
        store: Store | None = None,
        on_tool: Callable[[ToolEvent], None] | None = None,
    ) -> None:
        self._recorded = {(step.agent, step.step): step for step in recorded}
        self._store = store
        self._agents: dict[str, AgentSteps] = {}
        self._kept: list[Callable[[], Step]] = []
        self._any_stored = bool(self._recorded)
        self._failure: Exception | None = None
        self._writes = 0
        """How many writes of steps have ended."""
        self.writing: asyncio.Task[None] | None = None
        """The one under way, which goes on when who asked for it is cancelled."""
        self.on_tool = on_tool
        self.number: Callable[[], int] = int
        """Numbers the turn in flight within its run."""
        self.on_complete: Callable[[str, str], None] | None = None
        """Called with an agent's path and the name of its tool, when a call of that has completed the task."""
        self.files: defaultdict[tuple[str, str | None], list[MessageFile]] = defaultdict(list)
        """By agent and call, what tools have made."""
        self.passages: dict[str, dict[str, JsonObject]] = {}
        """By agent, what it was shown of files, by their marks."""
        self.recalled: dict[str, Sequence[str]] = {}
        """By agent, the names of what it is shown beside its messages."""
        if self._recorded:
            for step in self._recorded.values():
                if step.step == RECALLED:
                    self.note_recalled(step.agent.rpartition("/")[2], read_value(step.value))
        self.saved = len(self._recorded)
        """Numbers the states of tools in the turn, so that the latest is known."""
        self.states: dict[int, int] = {}
        """By the `id` of a tool or a workbench, which several agents may have, the number of its state."""

    @property
    def repeats(self) -> bool:
        """Whether the turn is one that is repeated, and not over yet."""
        return bool(self._recorded)

    def start(self, store: Store, number: Callable[[], int] = int) -> None:
        """The team starts: from here on steps are stored by `store`, and turns are told apart by `number`."""
        self._store, self.number = store, number

    def close(self) -> None:
        """The run has ended: nothing is stored or told any more."""
        if self.writing is not None:
            self.writing.cancel()
        self._store = self.on_tool = self.on_complete = None
        self.number = int
        self._agents.clear()

    def agent(self, path: str) -> AgentSteps:
        """The recorder and replayer of one agent."""
        found = self._agents.get(path)
        if found is None:
            found = self._agents[path] = AgentSteps(self, path, path.rpartition("/")[2])
        return found

    def replay(self, agent: str, step: str, asked: Callable[[], str] | None = None) -> JsonObject | None:
        """The recorded value of a step, or None.

        Args:
            asked: makes the digest of what is asked now, and what is not recorded is done now.

        Raises:
            ReplayMismatch: something else was asked when the step was recorded.
            CallOver: there is none, and it is part of a call that came to its end without it.
        """
        found = self._recorded.get((agent, step))
        if found is None:
            if self._recorded and asked is not None:
                check_over()
            return None
        if asked is not None and asked() != found.digest:
            self._failure = ReplayMismatch(
                f"the turn is repeated, and what is recorded of {agent!r} ({step}) does not fit what it asks now"
            )
            raise self._failure
        return read_value(found.value)

    def keep(self, make: Callable[[], Step]) -> None:
        """Keep a step in memory. It is made when it is stored, if ever."""
        self._kept.append(make)

    async def save(self, step: Step) -> None:
        """Store a step, and whatever was kept before it."""
        self._kept.append(lambda: step)
        await self.flush()

    async def flush(self) -> None:
        """Store what is kept in memory only. One write at a time, of agents that work beside each other: the usage that
        is stored with steps is that of all before. A write has the steps of all who wait; so it is nobody's own, and
        goes on when one of them is cancelled.

        Raises:
            Exception: what `store` raises; the run cannot continue.
        """
        if self._store is None or not (self._kept or self.writing):
            return
        # The write that has what is kept now: the next, or where nothing is, the one under way.
        last = self._writes + (self.writing is not None and bool(self._kept))
        while self._writes <= last:
            self.check()
            if self.writing is None:
                self.writing = asyncio.create_task(self._write())
            await asyncio.shield(self.writing)
        self.check()

    async def _write(self) -> None:
        try:
            steps, store = self.unstored(), self._store
            if steps and store is not None:
                self._any_stored = True
                await store(steps)
        except Exception as error:  # noqa: BLE001 - all who wait raise it, by `check`.
            self._failure = error
        finally:
            self._writes += 1
            self.writing = None

    def unstored(self) -> list[Step]:
        """Take what is kept in memory only: to be stored with the run's end when it waits for a person."""
        kept, self._kept = self._kept, []
        return [_storable(make()) for make in kept]

    def check(self) -> None:
        """Raise what a step failed with, in case that an agent has made a text of it."""
        if self._failure is not None:
            raise self._failure

    def note_passages(self, agent: str, text: str) -> None:
        """Keep the passages that an agent was shown in a text, for what it says next."""
        if found := {each["mark"]: each for each in passages_in(text)}:
            self.passages[agent] = {**self.passages.get(agent, {}), **found}

    def note_recalled(self, agent: str, value: JsonObject) -> None:
        """Keep what an agent is shown beside its messages, for what it says next."""
        self.note_passages(agent, value["text"] or "")
        if names := value.get("names"):
            self.recalled[agent] = names

    def turn_done(self) -> bool:
        """The turn is over: forget it. True when anything of it is stored."""
        stored = self._any_stored
        self._any_stored = False
        self._recorded.clear()
        self._kept.clear()
        self.saved = 0
        for shown in (self.passages, self.recalled, self.files, self.states):
            if shown:
                shown.clear()
        for agent in self._agents.values():
            agent.turn_done()
        return stored


@dataclass(frozen=True, slots=True)
class CallName:
    """Where a tool call belongs: `step` is its name among the agent's steps, None for a call that no recorded answer
    asked for; `replayed` says that the answer came from the record, so that the call may have been made already."""

    key: str
    step: str | None
    replayed: bool


@dataclass(slots=True, eq=False)
class AgentSteps:
    """The steps of one agent: an `AnswerSteps` for its model client, and names for its tool calls.

    Attributes:
        turn: the turn in flight.
        path: of the agent.
        source: its name.
        model: its model.
        has_tools: whether it may call tools.
        last_calls: the last answer that called tools.
        has_called: whether the last answer of the turn called tools.
        completed: ids of the calls of the turn that have completed the task. What the agent asks its model with the
            result of one is answered by that result.
    """

    turn: TurnSteps
    path: str
    source: str
    model: ChatCompletionClient | None = None
    has_tools: bool = False
    last_calls: CreateResult | None = None
    has_called: bool = False
    completed: set[str | None] = field(default_factory=set[str | None])
    _asked: int = 0
    _calls: dict[str, tuple[int, bool]] = field(default_factory=dict[str, tuple[int, bool]])
    _uses: Counter[str] = field(default_factory=Counter[str])
    _summaries: int = 0
    _notes: int = 0
    _views: int = 0
    _memories: int = 0
    _recalled: JsonObject | None = None
    _digested: Digested = field(default_factory=Digested)
    _lists: dict[int, tuple[int, list[ToolSchema] | None, bool]] = field(
        default_factory=dict[int, tuple[int, list[ToolSchema] | None, bool]]
    )

    def next_answer(self, request: ModelRequest) -> tuple[int, CreateResult | None]:
        """See `AnswerSteps`.

        Raises:
            ReplayMismatch: the recorded answer is one to another request.
            CallOver: there is none, as the agent's call came to its end without it.
        """
        number = self._asked
        if self.completed and isinstance(last := request.last[-1], FunctionExecutionResultMessage):
            for result in last.content:
                if result.call_id in self.completed:
                    return number, ToolAnswer(content=result.content)
        value = self.turn.replay(self.path, f"m{number}", partial(request.digest, self._digested))
        self._asked += 1
        if value is None:
            return number, None
        result = (ModelAnswer if "profile" in value else ReasonedResult).model_validate(value)
        self._know_calls(number, result, replayed=True)
        return number, result

    def known(self) -> JsonObject:
        """Return what the model could that has given the answer which is asked for next, where that is recorded."""
        value = self.turn.replay(self.path, f"m{self._asked}") or {}
        return {**value.get(INFO, {}), **({"vision": value[SEEN]} if SEEN in value else {})}

    def not_answered(self, number: int) -> None:
        """See `AnswerSteps`."""
        if self._asked == number + 1:
            self._asked = number

    def complete(self, call_id: str | None, tool: str) -> None:
        """A call has completed the task."""
        self.completed.add(call_id)
        if self.turn.on_complete is not None:
            self.turn.on_complete(self.path, tool)

    async def answered(self, number: int, request: ModelRequest, result: CreateResult) -> None:
        """See `AnswerSteps`. An answer that calls tools is stored before this returns."""

        def step() -> Step:
            chosen = {} if self.has_tools or isinstance(result.content, str) else {CHOSEN: True}
            info: Mapping[str, object] = {"vision": True} if self.model is None else self.model.model_info
            seen = {SEEN: True} if has_images(request.last) else {} if info.get("vision") else {SEEN: False}
            able = {INFO: {name: info[name] for name in _INFO if name in info}}
            digest = request.digest(self._digested)
            return Step(self.path, f"m{number}", digest, {**result.model_dump(mode="json"), **chosen, **seen, **able})

        if isinstance(result.content, str):
            self.has_called = False
            self.turn.keep(step)
            return
        self._know_calls(number, result, replayed=False)
        await self.turn.save(step())

    async def once(self, digest: str, make: Callable[[], Awaitable[str | None]]) -> str | None:
        """Return what `make` returns, stored before this returns; in a turn that is repeated, what it returned then.

        Raises:
            ReplayMismatch: what is recorded was made of something else than `digest` says.
        """
        name = f"c{self._summaries}"
        self._summaries += 1
        value = self.turn.replay(self.path, name, lambda: digest)
        if value is None:
            value = {"text": await make()}
            await self.turn.save(Step(self.path, name, digest, value))
        return value["text"]

    async def listed(self, place: int, make: Callable[[], Awaitable[list[ToolSchema]]]) -> list[ToolSchema]:
        """The tools of the workbench at `place`, which `make` lists. In a turn that is repeated they are those that it
        had then, as the model was told: its server may have others by now, or be away."""
        number, tools, is_recorded = self._lists.get(place, (0, None, False))
        name = f"l{place}:{number}"
        if (value := self.turn.replay(self.path, name)) is not None:
            with suppress(Exception):  # The workbench learns what it offers; what it lists counts for the next turn.
                await make()
            tools, is_recorded = cast("list[ToolSchema]", value["tools"]), True
        elif tools is None or not is_recorded:
            found = [*await make()]
            if found != tools:
                self.turn.keep(lambda: Step(self.path, name, "", {"tools": found}))
            tools = found
        self._lists[place] = number + 1, tools, is_recorded
        return [*tools]

    async def recalled(self, find: Callable[[], Awaitable[JsonObject]]) -> str | None:
        """Return the text that the agent is shown beside its messages in this turn, which `find` finds once, with the
        `names` of what is in it. What was found is stored before this returns: in a turn that is repeated it is the
        same, whenever the process died."""
        if self._recalled is None:
            value = self.turn.replay(self.path, RECALLED)
            if value is None:
                value = found = await find()
                self.turn.keep(lambda: Step(self.path, RECALLED, "", found))
                if found["text"] is not None:
                    await self.turn.flush()
            self._recalled = value
            self.turn.note_recalled(self.source, value)
        return self._recalled["text"]

    def bind_view(self, context: ChatCompletionContext) -> None:
        """Have a context that counts tokens show in a turn that is repeated what it showed then: they may be counted
        otherwise by now, as exact counts take a vocabulary that not every process has at once, or ever."""
        setattr(context, "get_messages", partial(self._view, context))  # noqa: B010 - it is a method

    async def _view(self, context: ChatCompletionContext) -> list[LLMMessage]:
        name, held = f"v{self._views}", context._messages
        self._views += 1
        if (value := self.turn.replay(self.path, name)) is not None:
            return [each for start, end in value["shown"] for each in held[start:end]]
        messages = await type(context).get_messages(context)
        shown = {*map(id, messages)}
        groups = [
            (is_shown, [*places]) for is_shown, places in groupby(range(len(held)), lambda at: id(held[at]) in shown)
        ]
        ranges = [[places[0], places[-1] + 1] for is_shown, places in groups if is_shown]
        if sum(end - start for start, end in ranges) == len(messages):  # Else it has made messages of its own.
            self.turn.keep(lambda: Step(self.path, name, "", {"shown": ranges}))
        return messages

    def name_memory(self) -> str:
        """Return the name of the step in which a memory adds to the context now."""
        self._memories += 1
        return f"u{self._memories - 1}"

    async def own_call(self, call: FunctionCall) -> FunctionCall:
        """A tool call that the agent makes of itself: stored before this returns, as a model's answer that makes it
        would be. In a turn that is repeated, the call that was made then.

        Raises:
            ReplayMismatch: another call was made then.
        """
        number = self._asked
        self._asked += 1
        digest = digest_of([call.name, call.arguments])
        value = self.turn.replay(self.path, f"m{number}", lambda: digest)
        if value is not None:
            result = CreateResult.model_validate(value)
            self._know_calls(number, result, replayed=True)
            return cast("list[FunctionCall]", result.content)[0]
        usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        result = CreateResult(finish_reason="function_calls", content=[call], usage=usage, cached=False)
        self._know_calls(number, result, replayed=False)
        await self.turn.save(Step(self.path, f"m{number}", digest, result.model_dump(mode="json")))
        return call

    def noted(self) -> JsonObject | None:
        """Return what was noted here in the turn that is repeated; None: nothing."""
        value = self.turn.replay(self.path, f"n{self._notes}")
        self._notes += value is not None
        return value

    async def note(self, value: JsonObject) -> None:
        """Store something that the agent has found, so that a repeated turn finds the same (`noted`)."""
        name = f"n{self._notes}"
        self._notes += 1
        await self.turn.save(Step(self.path, name, "", value))

    def _know_calls(self, number: int, result: CreateResult, *, replayed: bool) -> None:
        self.has_called = not isinstance(result.content, str)
        if not isinstance(result.content, str):
            self.last_calls = result
            for call in result.content:
                self._calls[call.id] = number, replayed
                if self.turn.files:
                    self.turn.files.pop((self.source, call.id), None)  # A model may give an id again.

    def name_call(self, call_id: str | None, tool: str) -> CallName:
        """The name of a tool call that begins now; the same when the turn is repeated."""
        known = None if call_id is None else self._calls.get(call_id)
        name = storable_text(f"x:{tool}") if known is None else call_step(f"m{known[0]}", call_id)
        self._uses[name] += 1
        if self._uses[name] > 1:
            name = f"{name}#{self._uses[name]}"
        key = f"{self.path}:{name}"
        return CallName(key, None, replayed=False) if known is None else CallName(key, name, known[1])

    def turn_done(self) -> None:
        """Begin to count anew."""
        if self._asked:
            self._asked = 0
            self._calls.clear()
            self.has_called = False
        self._summaries = self._notes = self._views = self._memories = 0
        self._recalled = None
        for kept in (self.completed, self._lists, self._uses, self._digested):
            if kept:
                kept.clear()


def call_step(answer: str, call_id: str | None) -> str:
    """Return the name of the step of a call, by that of the answer that makes it. A model may have made up the id of
    any characters, and the name is stored."""
    return storable_text(f"{answer}:t{call_id}")


class OwnSteps:
    """Mixin: an agent, or a group chat, that records steps of its own. `_steps` is None outside of a run."""

    _steps: AgentSteps | None = None

    def bind_steps(self, steps: AgentSteps) -> None:
        """Called by the engine before every run."""
        self._steps = steps


def _storable(step: Step) -> Step:
    """The step itself, or with its value as text where that holds characters that a database cannot have in JSON."""
    dumped = dump_json(step.value)
    if b"\\u0000" not in dumped and b"\\ud" not in dumped:
        return step
    return Step(step.agent, step.step, step.digest, {"encoded": encode_value(step.value)})


def read_value(value: JsonObject) -> JsonObject:
    """The value of a stored step as it was recorded."""
    return decode_value(value["encoded"]) if value.keys() == {"encoded"} else value
