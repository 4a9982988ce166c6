"""The definitions of a client's tools come with a request: with them are the results that it brings back, and the ids
of its calls.

Neutral: each API translates its own wire format from and to these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self, TypeAlias, cast

from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import JsonObject

ToolKind: TypeAlias = Literal["function", "custom", "legacy"]
"""What a tool is to its client. `custom`: it takes free text, which a model gives as the argument `input`; `legacy`:
one of OpenAI's deprecated `functions`, whose calls have no ids."""
Choice: TypeAlias = Literal["auto", "none", "required"]

STORED_AS: Final = "drsai:client_tools"
"""The name under which a request's tools are kept in `UserInput.extra_requests`."""
CUSTOM_INPUT: Final = "input"
"""The one argument of a custom tool, as a model sees it."""
MAX_RESULTS: Final = 256
MAX_RESULT_BYTES: Final = 4 * 2**20
"""Of all results of a request together."""
THE_USER_ADDS: Final = "\n\n[The user adds:]\n"
"""Between the result of a call and what the user has said after it."""
_NO_ARGUMENTS: Final[JsonObject] = {"type": "object", "properties": {}}
_ID: Final = re.compile(r"call_([0-9a-z]{18})_[0-9]{1,9}_[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class ClientTool:
    """One tool of the client's own.

    Attributes:
        name: under which the client knows it.
        description: what it does, for the model.
        parameters: a JSON schema of its arguments; None: it takes none, or it is a custom one.
        strict: the model's arguments are to keep to the schema exactly.
        kind: what it is to the client.
    """

    name: str
    description: str = ""
    parameters: JsonObject | None = None
    strict: bool = False
    kind: ToolKind = "function"

    @classmethod
    def custom(cls, name: str, description: str | None, grammar: str | None) -> Self:
        """A tool that takes free text, which follows that grammar; None: any."""
        text = description or ""
        if grammar is not None:
            text += f"\n\nThe input must follow this grammar: {grammar}"
        return cls(name, text.strip(), kind="custom")

    @property
    def schema(self) -> JsonObject:
        """The parameters as a model is shown them."""
        if self.kind == "custom":
            return {"type": "object", "properties": {CUSTOM_INPUT: {"type": "string"}}, "required": [CUSTOM_INPUT]}
        return {**_NO_ARGUMENTS, **(self.parameters or {})}


@dataclass(frozen=True, slots=True)
class ClientTools:
    """What a request offers, and what is to be made of it. Without tools, the choice is among the agent's own.

    Attributes:
        tools: in the client's order; names are unique.
        choice: `required`: the answering agent's next call of its model is one of these tools; `none`: of none.
        only: the names of those that may be called; None: all.
        parallel: whether one answer may call several; None: the model decides.
    """

    tools: Sequence[ClientTool]
    choice: Choice = "auto"
    only: Sequence[str] | None = None
    parallel: bool | None = None

    @property
    def offered(self) -> list[ClientTool]:
        """The tools that may be called."""
        if self.choice == "none":
            return []
        return [tool for tool in self.tools if self.only is None or tool.name in self.only]

    @property
    def is_of_agent(self) -> bool:
        """Whether it is about the answering agent's own tools."""
        return not self.tools

    def checked(self, field: str) -> Self:
        """The same. Raises InvalidRequest, which names the request's `field`, where its choice is of tools that are not
        there."""
        names = {tool.name for tool in self.tools}
        for name in self.only or ():
            if name not in names:
                raise InvalidRequest(f"`{field}` names {name!r}, which is none of the request's tools", param=field)
        if self.choice == "required" and not (names if self.only is None else self.only):
            raise InvalidRequest(f"`{field}` demands a tool, and the request has none", param=field)
        return self

    def without_demand(self) -> Self:
        """The same tools, and whether to call one is the model's to decide."""
        return replace(self, choice="auto") if self.choice == "required" else self

    def to_json(self) -> JsonObject:
        """Return it as it is stored; defaults are left out."""
        given: JsonObject = {"tools": [_as_json(tool) for tool in self.tools]}
        rest = {"choice": self.choice, "only": self.only and list(self.only), "parallel": self.parallel}
        return given | {name: value for name, value in rest.items() if value not in (None, "auto")}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return what `to_json` gave."""
        tools = tuple(ClientTool(**tool) for tool in stored["tools"])
        return cls(tools, stored.get("choice", "auto"), stored.get("only"), stored.get("parallel"))


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a client's tool has returned.

    Attributes:
        call_id: of the call; "" where the client's API has none, and `name`, the tool's, finds it.
        content: the text that the agent's model is given.
        is_error: `content` says what went wrong.
        name: the tool's.
        where: the place in the request, for what is wrong with it.
    """

    call_id: str
    content: str
    is_error: bool = False
    name: str | None = None
    where: str = "results"


def new_call_id(run_id: str, turn: int, number: int) -> str:
    """The id under which a client knows a call: 40 characters at most, and unique, as those of models often are not.

    Args:
        run_id: as `runs.requests.new_run_id` makes it; the id leads back to the run without an index.
        turn: the thread's turns that are stored.
        number: of the client's calls in the turn in flight.
    """
    return f"call_{run_id.removeprefix('run_')}_{turn}_{number}"


def run_of_call(call_id: str) -> str | None:
    """The id of the run that asked for a call; None: it is none of ours."""
    found = _ID.fullmatch(call_id)
    return None if found is None else f"run_{found[1]}"


def calls_of(question: Mapping[str, object] | None) -> list[JsonObject]:
    """The client's calls that a question asks for; empty where it is none of that kind."""
    if question is None or question.get("kind") != "client_tool":
        return []
    return cast("list[JsonObject]", question["tool_calls"])


def custom_input(call: JsonObject) -> str:
    """The text that a custom tool is called with."""
    written: str = call["arguments"]
    arguments: object = json.loads(written)
    given: object = arguments.get(CUSTOM_INPUT) if isinstance(arguments, dict) else arguments  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return given if isinstance(given, str) else written


def _as_json(tool: ClientTool) -> JsonObject:
    # Not `asdict`, which copies the whole of each schema.
    given: JsonObject = {"name": tool.name}
    if tool.description:
        given["description"] = tool.description
    if tool.parameters is not None:
        given["parameters"] = tool.parameters
    if tool.strict:
        given["strict"] = True
    if tool.kind != "function":
        given["kind"] = tool.kind
    return given
