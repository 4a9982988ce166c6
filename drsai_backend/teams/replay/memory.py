"""The memory stands for one of an agent's own that is kept elsewhere, as in a vector store: what it tells is recorded
with the turn, as others may have added to it by the time the turn is repeated."""

from __future__ import annotations

# Private: the messages that AutoGen's contexts hold. tests/teams/test_upstream_agents.py.
# pyright: reportPrivateUsage=false
from contextlib import suppress
from operator import is_
from typing import cast

from autogen_core.memory import ListMemory, Memory, MemoryQueryResult, UpdateContextResult
from autogen_core.model_context import ChatCompletionContext

from drsai_backend.teams.recording.cells import MessageObjects, memory_content, memory_item, normalise
from drsai_backend.teams.replay.steps import AgentSteps, Step


class RecordedMemory:
    """Stands for the memory `inner`, whose own all else is, its class included."""

    def __init__(self, inner: Memory, steps: AgentSteps) -> None:
        self.__inner = inner
        self.__steps = steps

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        return type(self.__inner)

    def __getattr__(self, name: str) -> object:
        if name.startswith("_RecordedMemory__"):  # Not there yet: somebody makes a copy.
            raise AttributeError(name)
        return getattr(self.__inner, name)

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """See `autogen_core.memory.Memory.update_context`. In a turn that is repeated it adds and returns what it did
        then."""
        steps, name = self.__steps, self.__steps.name_memory()
        if (value := steps.turn.replay(steps.path, name)) is not None:
            for message in MessageObjects({}).context_messages(value["added"]):
                await model_context.add_message(message)
            return UpdateContextResult(memories=MemoryQueryResult(results=[*map(memory_content, value["found"])]))
        before = [*model_context._messages]
        result = await self.__inner.update_context(model_context)
        held, results = [*model_context._messages], result.memories.results
        if len(held) >= len(before) and all(map(is_, before, held)):  # Else it has done more than add.
            with suppress(TypeError, ValueError):  # It tells what is no JSON: then it is asked again.
                added = [normalise(each.model_dump()) for each in held[len(before) :]]
                step = Step(steps.path, name, "", {"added": added, "found": [*map(memory_item, results)]})
                steps.turn.keep(lambda: step)
        return result


def bind_memories(agent: object, steps: AgentSteps) -> None:
    """Have the memories of an agent recorded that are kept elsewhere. A `ListMemory` is part of the thread's state."""
    memories: object = getattr(agent, "_memory", None)
    if memories and isinstance(memories, list):
        bound = [
            RecordedMemory(each, steps) if isinstance(each, Memory) and not isinstance(each, ListMemory) else each
            for each in cast("list[object]", memories)
        ]
        setattr(agent, "_memory", bound)  # noqa: B010 - no class of this package declares it
