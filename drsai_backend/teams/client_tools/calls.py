"""The calls of a client's tools by one agent become questions: all of an answer become one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from autogen_core import CancellationToken
from autogen_core.tools import TextResultContent, ToolResult

from drsai_backend.json_types import JsonObject
from drsai_backend.teams.replay.tool_calls import ToolCalls
from drsai_backend.teams.suspension import InputRequired


@dataclass(frozen=True, slots=True)
class ClientCall:
    """One call of a tool that the run's client has. `called` is the tool's name for the model, `name` and `kind` what
    it is to the client."""

    called: str
    name: str
    kind: str
    arguments: Mapping[str, object]
    id: str | None
    token: CancellationToken | None


class ClientCalls:
    """The calls of a client's tools beside those of the agent's own, which are `own`."""

    def __init__(self, own: ToolCalls) -> None:
        self._own = own
        self._steps = own.steps
        self._broker = own.broker
        self._waiting: list[JsonObject] = []
        """Those of the answer in hand that wait for results."""

    async def ask(self, call: ClientCall) -> ToolResult:
        """Return what the client has returned for a call.

        Raises:
            InputRequired: nothing yet. All calls of the answer that are the client's are in one question, which is
                asked when the agent's own have come to their end.
        """
        name = self._steps.name_call(call.id, call.called)
        known = next((result for result in self._broker.results if result["key"] == name.key), None)
        if known is not None:
            said = TextResultContent(content=known["content"])
            result = ToolResult(name=call.called, result=[said], is_error=known["is_error"])
            self._own.note_result(name, result)
            return result
        asked: JsonObject = {
            "type": call.kind,
            "name": call.name,
            "arguments": self._written(call),
            "called": call.called,
            "key": name.key,
        }
        self._waiting.append(asked)
        try:
            with self._own.calling(call.token) as task:
                await self._own.wait_for_others(task)
                raise self._broker.report(self._question())
        finally:
            self._waiting.remove(asked)

    def _question(self) -> InputRequired:
        calls, answer = list(self._waiting), self._steps.last_calls
        wanted = ", ".join(f"{each['name']}({each['arguments']})" for each in calls)
        return InputRequired(
            self._steps.source,
            f"{self._steps.source} waits for the results of tools that the client has: {wanted}",
            key=f"{calls[0]['key']}@client",
            type="tool_results",
            kind="client_tool",
            tool_calls=calls,
            content=None if answer is None else answer.thought,
            thought=getattr(answer, "reasoning", None),
        )

    def _written(self, call: ClientCall) -> str:
        """The arguments as the model has written them."""
        answer = self._steps.last_calls
        calls = [] if answer is None or isinstance(answer.content, str) else answer.content
        for each in calls:
            if each.id == call.id and each.name == call.called and json.loads(each.arguments) == call.arguments:
                return each.arguments
        return json.dumps(call.arguments, ensure_ascii=False, default=str)

    def answered_names(self) -> set[str]:
        """The names, for the model, of the tools that were called in the turn in flight."""
        return {result["called"] for result in self._broker.results}

    def last_called(self) -> set[str]:
        """The names of the tools that the model has called last."""
        answer = self._steps.last_calls
        return set() if answer is None or isinstance(answer.content, str) else {call.name for call in answer.content}
