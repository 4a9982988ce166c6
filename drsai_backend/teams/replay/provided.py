"""What an agent's tools are given of its run, and which of them its model has to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from drsai_backend.access.principal import Scope
from drsai_backend.datamodel import Thread
from drsai_backend.errors import ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.client_tools.definitions import ClientTools
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.replay.steps import AgentSteps
from drsai_backend.tools import ToolRun
from drsai_backend.tools.running import MAX_OUTPUT, Lazy

Offer = Callable[[JsonObject], JsonObject]


def tool_run_of(agent: object, context: RunContext, cache: dict[object, Any]) -> ToolRun:
    """What the calls of an agent's tools have in common. `cache` is that of the run."""
    principal = context.principal

    def allows(scope: str) -> bool:
        # A scope that the server does not know is a role, which applications name.
        return principal.may(Scope(scope)) if scope in set(Scope) else scope in principal.roles

    async def thread() -> object:
        name = (context.owner or principal.owner).thread(context.thread_id)
        found = await context.db_manager.get(Thread, name._asdict(), load_messages=False, load_state=False)
        if not found:
            raise ToolError("The thread of this run is not stored.")
        return found[0]

    more: Mapping[type, object] = getattr(agent, "tool_provided", {})
    return ToolRun(
        provided={
            RunContext: context,
            type(principal): principal,
            type(context.db_manager): context.db_manager,
            Thread: Lazy(thread),
            **more,
        },
        allows=allows,
        cache=cache,
        overrides=getattr(agent, "dependency_overrides", {}),
        middleware=getattr(agent, "tool_middleware", ()),
        max_output=MAX_OUTPUT if context.settings is None else context.settings.max_tool_output,
        asker=f"{principal.tenant}/{principal.user_id}",
    )


def choosing(agent: object, steps: AgentSteps, offer: Offer | None, asked: ClientTools | None = None) -> Offer | None:
    """`offer` with the choice among the agent's own tools in it: what the request has `asked`, else the agent's
    `tool_choice`. One that has to be called is so until a call was made: the answer after its result is free."""
    if asked is None:
        choice = getattr(agent, "tool_choice", "auto")
        if choice == "auto":
            return offer
        asked = ClientTools((), choice) if choice in ("none", "required") else ClientTools((), "required", (choice,))
    mode, only = asked.choice, asked.only

    def offered(options: JsonObject) -> JsonObject:
        options = options if offer is None else offer(options)
        tools = cast("Sequence[Any]", options.get("tools") or ())
        if not tools or "tool_choice" in options:
            return options
        if mode == "none":
            return {**options, "tool_choice": "none"}
        if mode == "required" and steps.has_called:
            return options
        named = [tool for tool in tools if only is None or _name(tool) in only]
        if not named:
            raise ToolError(f"tool_choice={' or '.join(only or ())!r}: the agent has no tool of that name")
        return {**options, "tools": named, "tool_choice": mode}

    return offered


def _name(tool: Any) -> str:
    return str(cast("JsonObject", tool)["name"] if isinstance(tool, Mapping) else tool.name)
