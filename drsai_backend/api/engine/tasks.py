"""A task is what a request asks for; here are its body, and what is told of the run that does it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, NamedTuple

from pydantic import Field

from drsai_backend.access.principal import Principal
from drsai_backend.api.auth import Body
from drsai_backend.config import Settings
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.datamodel.thread import check_name
from drsai_backend.definitions.modes import (
    ASKED,
    MAX_STEPS,
    MAX_TOOLS,
    ModeRequest,
    definition_of,
    mode_of,
    speaker_of,
    takes_tools,
    team_of,
)
from drsai_backend.errors import Forbidden, InvalidRequest, NotFound
from drsai_backend.explain import did_you_mean
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Ask, Engine, Handle, InputMessage, Origin, Where
from drsai_backend.runs.steps.events import (
    Mark,
    StepCalled,
    StepEnded,
    StepNews,
    StepReturned,
    StepsEnded,
    StepStarted,
    StepsVoid,
    StepThought,
)
from drsai_backend.runs.steps.views import SHOWN, RunStep, cut, shortened, title_of
from drsai_backend.runs.threads.queries import RunCount
from drsai_backend.runs.threads.views import RunView
from drsai_backend.strategies import COMPLETE
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.builtin import builtin_tools

MOST_STEPS: Final = 200
"""Steps that an answer has; `/v1/runs/{run_id}/steps` has the others."""
_LIMITS: Final = frozenset({"max_iterations", "max_turns"})
STATES: Final = {
    RunStatus.CREATED: "pending",
    RunStatus.RUNNING: "running",
    RunStatus.AWAITING_INPUT: "awaiting_input",
    RunStatus.PAUSED: "paused",
    RunStatus.COMPLETED: "success",
    RunStatus.STOPPED: "cancelled",
    RunStatus.ERROR: "failed",
}


class ExecuteBody(Body):
    """A task."""

    task: str = Field(min_length=1, max_length=5000, description="What is to be done.")
    mode: str | None = Field(
        default=None,
        max_length=64,
        description="How it is worked on; `GET /tools` lists the modes that are offered. null: `react`, unless the "
        "operator has set another one.",
        json_schema_extra={"anyOf": [{"enum": [*COMPLETE]}, {"type": "null"}]},
    )
    max_steps: int | None = Field(
        default=None,
        ge=1,
        le=MAX_STEPS,
        description="Answers of the model, at most. null: 10, unless the operator has set another number.",
    )
    tools: list[str] | None = Field(
        default=None, max_length=MAX_TOOLS, description="Names of tools; null: all that `GET /tools` lists."
    )
    conversation_id: str | None = Field(
        default=None, min_length=1, max_length=64, description="The thread that it continues, or begins."
    )
    tenant_id: str | None = Field(default=None, max_length=64, description="That of who asks; no other one.")


class TaskEvent(NamedTuple):
    """What is told of one event of a task: where it stands (None: nowhere), and JSON objects; `last`: nothing
    follows."""

    position: Mark | None
    objects: list[JsonObject]
    last: bool = False


@dataclass(frozen=True, slots=True)
class Tasks:
    """The tasks of one application."""

    engine: Engine
    settings: Settings

    async def start(self, who: Principal, body: ExecuteBody, key: str | None = None) -> Handle:
        """Start a task. `key`: the request's `Idempotency-Key`.

        Raises:
            InvalidRequest: a field cannot be used; `param` names it.
            Forbidden: another tenant is named.
        """
        self.check_tenant(who, body.tenant_id)
        mode, steps = body.mode or self.settings.engine_mode, body.max_steps or self.settings.engine_steps
        team = team_of(mode, self.settings)
        if not body.task.strip():
            raise InvalidRequest("`task` must not be empty", param="task")
        asked = ModeRequest(max_steps=steps, tools=await self._names(who, body, mode))
        definition_of(mode, asked, self.settings)
        name = None if body.conversation_id is None else check_name(body.conversation_id, "conversation_id")
        ask = Ask(
            team,
            [InputMessage("user", body.task)],
            [{"role": "user", "content": body.task}],
            extra={ASKED: asked.model_dump()},
            where=Where(name),
            origin=Origin(key),
        )
        return await self.engine.start(ask, who)

    def check_tenant(self, who: Principal, tenant: str | None) -> None:
        """Raise Forbidden where a request names another tenant than that of who asks."""
        if tenant is not None and tenant != who.tenant:
            raise Forbidden(f"`tenant_id`: you are of the tenant {who.tenant!r}, and no other", param="tenant_id")

    # --- tools --------------------------------------------------------------------------------------------------

    async def tools(self, who: Principal) -> list[JsonObject]:
        """The tools that an agent may have, as they are told."""
        found = [_tool_info(tool) for tool in builtin_tools(self.settings.engine_tools, self.settings)]
        known = {each["name"] for each in found}
        page = await self.engine.tools.list(who, None, MAX_TOOLS - len(found))
        for stored in page.items:
            made = self.engine.tools.make(who.tenant, stored)
            if stored.name in known:
                continue
            if isinstance(made, ToolBase):
                found.append(_tool_info(made))
            else:
                text = str(stored.definition.get("description") or "The tools of an MCP server.")
                found.append({"name": stored.name, "description": text, "parameters": {"type": "object"}})
        return found

    async def _names(self, who: Principal, body: ExecuteBody, mode: str) -> list[str]:
        if body.tools is None:
            return [each["name"] for each in await self.tools(who)] if takes_tools(mode) else []
        names = list(dict.fromkeys(body.tools))
        others = [name for name in names if name not in self.settings.engine_tools]
        for at, name in enumerate(others):
            try:
                await self.engine.tools.get(who, name)
            except NotFound:
                where = f"tools[{body.tools.index(others[at])}]"
                meant = did_you_mean(name, [each["name"] for each in await self.tools(who)])
                text = f"`{where}`: there is no tool {name!r} here{meant}; GET /api/v1/agent/tools lists them"
                raise InvalidRequest(text, param=where) from None
        return names

    # --- what is told -------------------------------------------------------------------------------------------

    async def find(self, who: Principal, task_id: str) -> tuple[RunView, ThreadName]:
        """A task, and its thread. Raises NotFound for an unknown one, and for a run that is none."""
        try:
            run, owner = await self.engine.find_run(who, task_id)
        except NotFound:
            run = owner = None
        if run is None or owner is None or mode_of(run.team) is None:
            raise NotFound(f"no task {task_id!r}", param="task_id")
        return run, owner.thread(run.thread_id)

    async def whole(self, who: Principal, task_id: str) -> JsonObject:
        """A task with its first steps and its answer; how it stands, and its counts, are those of all steps."""
        run, name = await self.find(who, task_id)
        steps: list[RunStep] = []
        newest: list[RunStep] = []
        calls = 0
        after: str | None = None
        while True:
            page = await self.engine.list_steps(who, task_id, after=after, limit=100)
            steps += page.items[: MOST_STEPS - len(steps)]
            newest = page.items[-1:] or newest
            calls += sum(step.tool is not None for step in page.items)
            after = page.next
            if after is None:
                break
        answer = await self.engine.last_text(who, task_id)
        texts = await self.engine.first_texts(name.owner, [task_id])
        is_over = run.status.is_final
        return {
            **summary(run, texts.get(task_id)),
            "status": state_of(run, newest),
            "steps": [step_info(shortened(step), answer if is_over else None) for step in steps],
            "step_count": newest[0].position if newest else 0,
            "tool_call_count": calls,
            "final_answer": (answer or "") if is_over else "",
        }

    async def begun(self, who: Principal, handle: Handle) -> AsyncGenerator[TaskEvent]:
        """Yield what is told of a task that has just been started, to its end."""
        yield TaskEvent(None, [begun(handle)])
        async with aclosing(self.events(who, handle.run_id)) as events:
            async for each in events:
                yield each

    async def events(self, who: Principal, task_id: str, after: Mark | None = None) -> AsyncGenerator[TaskEvent]:
        """Yield what is told of a task after a place, to its end. It breaks off where this process ends before the
        task."""
        async with aclosing(self.engine.follow_steps(who, task_id, after)) as events:
            async for logged in events:
                if isinstance(logged.event, StepsEnded):
                    yield TaskEvent(logged.position, await self._ending(who, task_id, logged.event), last=True)
                else:
                    yield TaskEvent(logged.position, [told_of(logged.event)])

    async def _ending(self, who: Principal, task_id: str, ended: StepsEnded) -> list[JsonObject]:
        """Return how a task ended, or that it waits for a person."""
        run = ended.run
        newest = (await self.engine.list_steps(who, task_id, limit=1, order="desc")).items
        status = state_of(run, newest)
        told: list[JsonObject] = []
        if run.status is RunStatus.ERROR:
            told.append({"type": "error", "content": run.error_message or "the task failed"})
        elif run.status is RunStatus.AWAITING_INPUT:
            told.append({"type": "input_request", "input_request": run.input_request})
        content = await self.engine.last_text(who, task_id) or ""
        if content and status in ("success", "max_steps_reached"):
            told.append({"type": "final_answer", "content": content})
        final = {"type": "final", "content": content}
        count = newest[0].position if newest else 0
        return [*told, {**final, "status": status, "step_count": count, "execution_time": round(run.seconds, 3)}]


def _tool_info(tool: ToolBase) -> JsonObject:
    schema = tool.schema
    return {
        "name": schema["name"],
        "description": schema.get("description", ""),
        "parameters": schema.get("parameters", {"type": "object"}),
    }


def begun(run: Handle | RunView) -> JsonObject:
    """Return what is told first."""
    return {"type": "task", "task_id": run.run_id, "conversation_id": run.thread_id}


def state_of(run: RunView, steps: list[RunStep]) -> str:
    """Return how a task stands. `steps`: its newest one, where it is known."""
    reached = run.stop_code in _LIMITS or any(step.limit in _LIMITS for step in steps)
    if reached and run.status in (RunStatus.COMPLETED, RunStatus.STOPPED):
        return "max_steps_reached"
    return STATES[run.status]


def summary(run: RunView, task: str | None) -> JsonObject:
    """A task as a list shows it."""
    return {
        "task_id": run.run_id,
        "task": task or "",
        "mode": mode_of(run.team) or "",
        "status": state_of(run, []),
        "conversation_id": run.thread_id,
        "execution_time": round(run.seconds, 3),
        "created_at": run.created_at.isoformat(),
        "finished_at": None if run.finished_at is None else run.finished_at.isoformat(),
        "usage": run.usage,
        "error": run.error_message,
        "input_request": run.input_request,
    }


def statistics(counts: Sequence[RunCount]) -> JsonObject:
    """Return how tasks went, as their numbers are told."""
    by_status = dict.fromkeys(STATES.values(), 0)
    for each in counts:
        by_status[STATES[each.status]] += each.runs
    over = [each for each in counts if each.status.is_final]
    ended, seconds = sum(each.runs for each in over), sum(each.seconds for each in over)
    return {
        "total": sum(by_status.values()),
        "by_status": by_status,
        "success_rate": by_status["success"] / ended if ended else None,
        "mean_time": round(seconds / ended, 3) if ended else None,
    }


def step_info(step: RunStep, answer: str | None) -> JsonObject:
    """A step as it is told. `answer`: that of the task, once it is over."""
    is_answer = step.text is not None and answer is not None and step.text == cut(answer, SHOWN)
    return {
        "step": step.position,
        "source": step.source,
        "thought": step.thought,
        "action": step.tool,
        "action_input": step.input,
        "observation": step.observation,
        "content": None if is_answer else step.text,
        "error": step.error or (step.observation if step.is_error else None),
        "final_answer": step.text if is_answer else None,
    }


def told_of(event: StepNews) -> JsonObject:
    """An event that is no end."""
    if isinstance(event, StepsVoid):
        return {"type": "steps_void", "after": event.after}
    step = shortened(event.step)
    match event:
        case StepStarted():
            source = step.source or speaker_of(event.team or "")
            return {"type": "step_start", "step": step.position, "source": source, "title": title_of(step, source)}
        case StepThought():
            return {"type": "thought", "step": step.position, "content": step.thought}
        case StepCalled():
            call = {"action": step.tool, "tool": step.tool, "input": step.input}
            return {"type": "action", "step": step.position, **call}
        case StepReturned():
            return {
                "type": "observation",
                "step": step.position,
                "content": step.observation,
                "is_error": step.is_error,
            }
        case StepEnded():
            return {"type": "step_end", "step": step.position, "content": step.text, "error": step.error}
