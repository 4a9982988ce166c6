"""The base of every tool of this package is here. AutoGen's agents and workbenches take it as one of their own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import cast

from autogen_core import CancellationToken
from autogen_core.tools import BaseTool, ToolResult, ToolSchema
from pydantic import BaseModel, ConfigDict

from drsai_backend.json_types import JsonObject
from drsai_backend.tools.options import TIMEOUT, ToolOptions
from drsai_backend.tools.results import ToolOutput
from drsai_backend.tools.running import ToolRun


class _AnyArguments(BaseModel):
    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True, slots=True)
class ToolIdentity:
    """What a tool is called (`name`, by the model), who made it (`author`), and words to find it by (`labels`)."""

    name: str
    author: str = ""
    labels: tuple[str, ...] = ()


class ToolBase(BaseTool[BaseModel, ToolResult]):
    """A tool: `invoke` makes a call; options, validation and errors are dealt with around it (`calling`).

    Args:
        identity: its name, author and labels.
        description: tells the model what it is for.
        parameters: JSON Schema of its arguments, an object.
        options: see `ToolOptions`.
        strict: the endpoint is to keep to the schema.

    Attributes:
        raised: what a foreign tool has raised, which its caller is to get; or what stands in its result as text.
    """

    component_config_schema = BaseModel
    raised: Exception | None = None

    def __init__(
        self,
        identity: ToolIdentity,
        description: str,
        parameters: JsonObject,
        options: ToolOptions | None = None,
        *,
        strict: bool = False,
    ) -> None:
        super().__init__(_AnyArguments, ToolResult, identity.name, description, strict)
        self.identity = identity
        self.parameters = parameters
        self.options = options or ToolOptions()
        schema = {"name": identity.name, "description": description, "parameters": parameters, "strict": strict}
        self._schema = cast("ToolSchema", schema)

    @property
    def schema(self) -> ToolSchema:
        """See `autogen_core.tools.Tool.schema`."""
        return self._schema

    @property
    def says_no_time(self) -> bool:
        """Whether nobody has said of this tool how long an attempt may take."""
        return self.options.timeout == TIMEOUT

    async def validate_credentials(self) -> None:
        """Raise ToolError when the tool cannot work with the credentials it has. By default it needs none."""

    def check(self, arguments: Mapping[str, object]) -> JsonObject:
        """The arguments as `invoke` gets them.

        Raises:
            ToolError: they do not fit `parameters`; the text tells the model what to change.
        """
        from drsai_backend.tools.checking import check_against

        return check_against(self.parameters, arguments)

    @abstractmethod
    async def invoke(self, arguments: JsonObject, run: ToolRun) -> ToolOutput | AsyncIterator[ToolOutput]:
        """Make a call with valid arguments. An iterator's last item is the result, those before are partial ones.

        Raises:
            ToolError: its text is for the model. All other errors are logged, and the model is told that it failed.
        """

    async def run_json(
        self, args: Mapping[str, object], cancellation_token: CancellationToken, call_id: str | None = None
    ) -> ToolResult:
        """See `autogen_core.tools.Tool.run_json`: for agents that do not know this class. Raises ToolError."""
        from drsai_backend.tools.calling import result_or_error

        return await result_or_error(self, args, call_id)

    async def run(self, args: BaseModel, cancellation_token: CancellationToken) -> ToolResult:
        """See `autogen_core.tools.BaseTool.run`."""
        return await self.run_json(args.model_dump(), cancellation_token)

    def return_value_as_string(self, value: object) -> str:
        """See `autogen_core.tools.Tool.return_value_as_string`."""
        return value.to_text(replace_image="[image]") if isinstance(value, ToolResult) else str(value)
