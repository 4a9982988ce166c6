"""Messages of any class are made from their dumps; and here are the message types that a team knows.

AutoGen's `MessageFactory` knows AutoGen's own types and those that a team was told of. A stored thread may hold others:
a lone agent shows what it likes, and whoever reads a thread in another process has no team at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    BaseMessage,
    MessageFactory,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
)
from autogen_core.models import UserMessage
from pydantic import BaseModel, ConfigDict, ValidationError

from drsai_backend.errors import DamagedState
from drsai_backend.explain import explain
from drsai_backend.json_types import JsonObject, formatted
from drsai_backend.models.images import DUMPED, with_images
from drsai_backend.state.codec import dump_json

Message: TypeAlias = BaseChatMessage | BaseAgentEvent
HiddenReason: TypeAlias = Literal["tool", "speaker", "last", "told"]
"""Why a message is no part of its run's answer: it was said inside of a tool call; its speaker is not shown; only the
last message is, which this one is not unless the run ends with it; or an answer before this one has told it."""
ASIDE: Final = "drsai.aside"
RECALLED: Final = "drsai.recalled"
"""In the metadata of what a model has answered: the names of what it was shown beside the thread, with spaces."""


class UserInputReceivedEvent(BaseAgentEvent):
    """What became of a question to a person. Part of the thread's messages and log; no agent and no model sees it.

    `decision` is that on a tool call (see `Answer`), "results" of the client's tools, else "answer"; where nobody
    answered "expired" (the deadline has passed) or "withdrawn" (the run was stopped). `content` is what was said (with
    results, what the user has added to them), `arguments` are what the tool is called with: the person's own after
    "edit", those of the question after "approve" and "run"; of results their texts (`results`), in the order of the
    calls. `input_request` is the question as it was asked. `user_id` is who answered or stopped the run; None: nobody.
    `created_at` says when.
    """

    type: Literal["UserInputReceivedEvent"] = "UserInputReceivedEvent"
    source: str = "user"
    content: str
    decision: str
    user_id: str | None = None
    reason: str | None = None
    arguments: JsonObject | None = None
    input_request: JsonObject

    def to_text(self) -> str:
        """Return it in one line, for logs and transcripts."""
        tool: JsonObject | None = self.input_request.get("tool")
        if self.decision == "results":
            names = ", ".join(str(call["name"]) for call in self.input_request.get("tool_calls", ()))
            return f"results of {names}" + (f": {self.content}" if self.content else "")
        what = "" if tool is None else f" {tool['name']}({dump_json(self.arguments).decode()})"
        said = self.reason if self.decision == "deny" else self.content
        return f"{self.decision}{what}" + (f": {said}" if said and said != self.decision else "")


def is_received(config: Mapping[str, object]) -> bool:
    """Whether a dump is that of a `UserInputReceivedEvent`."""
    return config.get("type") == "UserInputReceivedEvent"


REASONING: Final = "drsai.reasoning"
"""In the metadata of a `ThoughtEvent`: it is what a model has thought beside its calls, not what it has said there."""


def thought_beside(source: str, thought: str, metadata: Mapping[str, str]) -> ThoughtEvent:
    """Return what a model has thought beside its calls of tools, as the event that tells it."""
    return ThoughtEvent(content=thought, source=source, metadata={**metadata, REASONING: "true"})


def put_aside(message: object, why: HiddenReason) -> None:
    """Mark a message, event or chunk, before it is stored, as no part of the answer; leave anything else as it is."""
    if isinstance(message, BaseChatMessage | BaseAgentEvent):
        message.metadata = {**message.metadata, ASIDE: why}


def aside_of(message: object) -> HiddenReason | None:
    """Return why a message, or its dump, is no part of the answer; None: it may be one."""
    metadata: dict[str, HiddenReason] | None = noted_in(message)
    return metadata[ASIDE] if metadata and ASIDE in metadata else None


def noted_in(message: Any) -> dict[str, Any] | None:
    """Return the metadata of a message or of its dump; None: it has none."""
    found: Any = message.get("metadata") if type(message) is dict else getattr(message, "metadata", None)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    metadata: dict[str, Any] | None = found if type(found) is dict else None  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return metadata


class ThoughtChunkEvent(ModelClientStreamingChunkEvent):
    """A piece of a thought, as it comes: of what an agent says that is no part of the answer."""


class UnknownMessage(BaseChatMessage):
    """A chat message of a class that is not in this process. Its dump is the one that it was made from."""

    model_config = ConfigDict(extra="allow")

    type: str
    content: object = None
    format_string: str | None = None

    def to_text(self) -> str:
        """The content as text; what is not text, as JSON."""
        return content_text(self.content, self.format_string)

    def to_model_text(self) -> str:
        return self.to_text()

    def to_model_message(self) -> UserMessage:
        """Do as `StructuredMessage` does it: the content, whatever it looks like."""
        return UserMessage(content=content_text(self.content), source=self.source)

    def dump(self) -> JsonObject:
        return self.model_dump(mode="json", exclude_unset=True, warnings=False)


class UnknownEvent(BaseAgentEvent):
    """An event of a class that is not in this process. Its dump is the one that it was made from."""

    model_config = ConfigDict(extra="allow")

    type: str
    content: object = None

    def to_text(self) -> str:
        """The content as text; what is not text, as JSON."""
        return content_text(self.content)

    def dump(self) -> JsonObject:
        return self.model_dump(mode="json", exclude_unset=True, warnings=False)


def content_text(content: object, format_string: str | None = None) -> str:
    """A message's content as text, as `StructuredMessage.to_text` gives it."""
    if isinstance(content, str):
        return content
    if content is None:
        return ""
    text = None
    if format_string is not None and isinstance(content, dict):
        text = formatted(format_string, cast("JsonObject", content))
    return dump_json(cast(object, content)).decode() if text is None else text


class TeamMessages(MessageFactory):
    """The message types of a team, which makes messages of other types as well as it can.

    Args:
        types: by name.
        takes_all: messages of every type may be shown and taken, as where an agent runs without a team.
    """

    def __init__(self, types: Mapping[str, type[Message]] | None = None, *, takes_all: bool = False) -> None:
        super().__init__()
        self._message_types.update(types or {})
        self.takes_all = takes_all

    def is_registered(self, message_type: type[Message]) -> bool:
        return self.takes_all or super().is_registered(message_type)

    def create(self, data: Mapping[str, object]) -> Message:
        """The message of a dump: of the team's class of that name, else as `read_message`.

        Raises:
            pydantic.ValidationError: it is not the dump of a message of that type.
        """
        known = self._message_types.get(str(data.get("type")))
        if known is None:
            return _made(data)
        try:
            return known.load(data)
        except ValidationError:
            # Two agents may each have an `Answer` of their own.
            other = _of_this_process(data)
            if other is None:
                raise
            return other


def loader(factory: MessageFactory, name: object) -> Callable[[JsonObject], Message]:
    """Return what makes the messages of a thread of the class of that name: `factory.create`, or, where that comes to
    it, what pydantic validates the class with, which takes two thirds of the time."""
    types = factory._message_types if type(factory) in (MessageFactory, TeamMessages) else {}  # pyright: ignore[reportPrivateUsage]
    kind = types.get(str(name))
    if kind is None or name in DUMPED or any(getattr(kind, each).__func__ is not its for each, its in _LOADS):
        return lambda config: factory.create(with_images(config))
    return kind.__pydantic_validator__.validate_python


_LOADS: Final = (("load", BaseMessage.load.__func__), ("model_validate", BaseModel.model_validate.__func__))
_STOCK: Final = MessageFactory()


def read_message(config: Mapping[str, object]) -> Message:
    """The message of a dump: of AutoGen's class of that name, else of one that is defined in this process and loses
    nothing of it, else an `UnknownMessage` or `UnknownEvent`. Raises nothing: what is stored can be shown."""
    try:
        return _made(config)
    except ValidationError:
        return _unknown(config).model_construct(None, **{"source": "", "type": "", **config})


def _made(config: Mapping[str, object]) -> Message:
    try:
        return _STOCK.create(with_images(config))
    except ValueError:
        return _of_this_process(config) or _unknown(config).load(config)


def _unknown(config: Mapping[str, object]) -> type[UnknownEvent | UnknownMessage]:
    # The dump does not say which it is, and AutoGen names its events so.
    return UnknownEvent if str(config.get("type")).endswith("Event") else UnknownMessage


def _of_this_process(config: Mapping[str, object]) -> Message | None:
    for kind in reversed(list(_classes_named(str(config.get("type"))))):  # the newest: an older one may be replaced
        try:
            made = kind.load(config)
        except (ValidationError, ValueError, TypeError):
            continue
        if _is_part_of(config, dump_of(made)):
            return made
    return None


def _classes_named(name: str) -> Iterator[type[Message]]:
    stack: list[type] = [BaseChatMessage, BaseAgentEvent]
    while stack:
        kind = stack.pop()
        stack += kind.__subclasses__()
        if kind.__name__ == name and issubclass(kind, BaseMessage) and not getattr(kind, "__abstractmethods__", None):
            yield cast("type[Message]", kind)


def _is_part_of(given: object, made: object) -> bool:
    """Whether everything in `given` is in `made`, which may have more."""
    if isinstance(given, Mapping) and isinstance(made, Mapping):
        given, made = cast("JsonObject", given), cast("JsonObject", made)
        return all(key in made and _is_part_of(value, made[key]) for key, value in given.items())
    return bool(given == made)


def create_message(factory: MessageFactory, config: Mapping[str, object], seq: int) -> Message:
    """The message of the dump of message `seq` of a thread.

    Raises:
        DamagedState: it does not fit its class any more; names the message and the field.
    """
    try:
        return factory.create(with_images(config))
    except (ValueError, TypeError, KeyError) as error:
        text = f"message {seq}, of type {config.get('type')}, does not fit any more: {misfit(error)}"
        raise DamagedState(text, param="messages") from error


def misfit(error: Exception) -> str:
    """Return what of a stored value its class does not take, as far as it may be shown: the field, and not its
    value."""
    if isinstance(error, ValidationError):
        return str(next(explain(error)))
    return f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else f"{type(error).__name__} was raised"


def dump_of(message: Message) -> JsonObject:
    """`message.dump()`, and in any case its `type`: the name of its class where that declares none."""
    config = dict(message.dump())
    config.setdefault("type", type(message).__name__)
    return config
