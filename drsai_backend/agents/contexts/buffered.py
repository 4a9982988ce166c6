"""Buffered contexts show a part: the newest outputs of some tools, the newest messages within a number of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from autogen_core import Component
from autogen_core.models import FunctionExecutionResultMessage, LLMMessage, SystemMessage
from pydantic import BaseModel, Field

from drsai_backend.agents.contexts.ephemeral import OutputAges, checked, left_out
from drsai_backend.agents.contexts.growing import CountTokens, GrowingContext, estimate_message, unit_start
from drsai_backend.errors import ConfigurationError


class OutputsContext(GrowingContext):
    """A context that shows only the newest outputs of some tools: of those in `ephemeral`, and of those marked so."""

    def __init__(
        self, ephemeral: Mapping[str, int] | None = None, initial_messages: list[LLMMessage] | None = None
    ) -> None:
        super().__init__(initial_messages)
        self.ephemeral = checked(ephemeral)
        self._kept = self.ephemeral

    def bind_tools(self, marked: Mapping[str, int]) -> None:
        """Called before a run with the agent's tools that are marked `ephemeral`. `ephemeral` wins."""
        self._kept = {**marked, **self.ephemeral}

    def _reader(self) -> object:
        return type(self), self._kept


class EphemeralOutputsConfig(BaseModel):
    """The component config of `EphemeralOutputsContext`."""

    ephemeral: dict[str, int] = Field(default_factory=dict)
    initial_messages: list[LLMMessage] | None = None


class EphemeralOutputsContext(OutputsContext, Component[EphemeralOutputsConfig]):
    """All messages, with only the newest outputs of some tools; of the older ones a short note is left.

    Args:
        ephemeral: tool name → how many of its newest outputs stay in the prompt.
        initial_messages: what the context begins with.

    Raises:
        ConfigurationError: a number is below 0.
    """

    component_config_schema = EphemeralOutputsConfig
    component_provider_override = "drsai_backend.agents.contexts.EphemeralOutputsContext"

    def __init__(
        self, ephemeral: Mapping[str, int] | None = None, *, initial_messages: list[LLMMessage] | None = None
    ) -> None:
        super().__init__(ephemeral, initial_messages)

    async def get_messages(self) -> list[LLMMessage]:
        """The messages, old outputs replaced."""
        self._scan()
        return [*self._seen.view]

    def _scan_message(self, position: int, message: LLMMessage) -> None:
        seen = self._seen
        seen.view.append(message)
        if not self._kept or not isinstance(message, FunctionExecutionResultMessage):
            return
        for index, result in enumerate(message.content):
            if result.name not in self._kept:
                continue
            newest = seen.newest[result.name]
            newest.append((position, index))
            if len(newest) > self._kept[result.name]:
                older, at = newest.popleft()
                seen.view[older] = left_out(seen.view[older], at)

    def _to_config(self) -> EphemeralOutputsConfig:
        return EphemeralOutputsConfig(ephemeral=self.ephemeral, initial_messages=self._initial_messages)

    @classmethod
    def _from_config(cls, config: EphemeralOutputsConfig) -> Self:
        return cls(config.ephemeral, initial_messages=config.initial_messages)


class TokenBufferedConfig(EphemeralOutputsConfig):
    """The component config of `TokenBufferedContext`."""

    max_tokens: int
    keep_first: bool = True


class TokenBufferedContext(OutputsContext, Component[TokenBufferedConfig]):
    """The newest messages that fit into `max_tokens`.

    A call of tools and its results are shown together or not at all. System messages that were added to the context are
    always shown, in front; of equal ones the newest, as AutoGen's memories add one in each turn. The newest message, or
    the newest call with its results, is always shown too: only with these may a prompt be longer than `max_tokens`.
    With `keep_first` the first message of the user is shown, if it fits beside those. A prompt costs as much as it
    shows, however long the thread is.

    The agent's own system message and the schemas of its tools are not part of a context: leave room for them.

    Args:
        max_tokens: limit of a prompt's messages, above 0.
        keep_first: show the user's first message.
        ephemeral: as in `EphemeralOutputsContext`.
        count: tokens of one message; estimated without network by default. It is no part of the component config.
        initial_messages: what the context begins with.

    Raises:
        ConfigurationError: `max_tokens` is not above 0, or a number in `ephemeral` is below 0.
    """

    component_config_schema = TokenBufferedConfig
    component_provider_override = "drsai_backend.agents.contexts.TokenBufferedContext"

    def __init__(
        self,
        max_tokens: int,
        *,
        keep_first: bool = True,
        ephemeral: Mapping[str, int] | None = None,
        count: CountTokens | None = None,
        initial_messages: list[LLMMessage] | None = None,
    ) -> None:
        super().__init__(ephemeral, initial_messages)
        if max_tokens <= 0:
            raise ConfigurationError(f"max_tokens is {max_tokens}: give a number of tokens above 0")
        self.max_tokens = max_tokens
        self.keep_first = keep_first
        self._own_count = count
        self._count_message = count or estimate_message

    async def get_messages(self) -> list[LLMMessage]:
        """The prompt: system messages, the user's first message, the newest messages."""
        self._scan()
        return self._buffered(0, [], self.max_tokens)

    def _reader(self) -> object:
        return super()._reader(), self._count_message

    def _count_at(self, position: int, view: LLMMessage) -> int:
        """Tokens of a message as it is shown. A message is counted once, but for one with outputs left out."""
        if view is not self._messages[position]:
            return self._count_message(view)
        found = self._seen.counts.get(position)
        if found is None:
            found = self._seen.counts[position] = self._count_message(view)
        return found

    def _buffered(self, lowest: int, between: list[LLMMessage], limit: int) -> list[LLMMessage]:
        """System messages, the first one of the user, `between`, and the newest messages from `lowest` on."""
        messages = self._messages
        pinned = list(self._seen.systems.values())
        room = limit - sum(self._count_at(each, messages[each]) for each in pinned)
        room -= sum(map(self._count_message, between))
        newest = self._newest(lowest, room)
        first = self._seen.first_user
        if self.keep_first and first is not None and first not in newest:
            beside = room - self._count_at(first, messages[first])
            fewer = self._newest(lowest, beside)
            if self._total(fewer) <= beside:
                pinned.append(first)
                newest = fewer
        shown = [view for _, (_, view) in sorted(newest.items())]
        return [*(messages[each] for each in pinned), *between, *shown]

    @staticmethod
    def _total(newest: Mapping[int, tuple[int, LLMMessage]]) -> int:
        return sum(tokens for tokens, _ in newest.values())

    def _newest(self, lowest: int, limit: int) -> dict[int, tuple[int, LLMMessage]]:
        """The newest units from `lowest` on within `limit` tokens, and the last one: position → tokens, view."""
        messages, ages = self._messages, OutputAges(self._kept)
        found: dict[int, tuple[int, LLMMessage]] = {}
        used, end = 0, len(messages)
        while end > lowest:
            if self._is_aside(end - 1):
                end -= 1
                continue
            start = unit_start(messages, end, lowest)
            if start == end:
                end -= 1
                continue
            unit: dict[int, tuple[int, LLMMessage]] = {}
            for position in reversed(range(start, end)):
                if not self._is_aside(position):
                    view = ages.view(messages[position])
                    unit[position] = self._count_at(position, view), view
            used += self._total(unit)
            if used > limit and found:
                break
            found |= unit
            end = start
        return found

    def _is_aside(self, position: int) -> bool:
        """Whether the message is not shown in its place."""
        return isinstance(self._messages[position], SystemMessage)

    def _to_config(self) -> TokenBufferedConfig:
        if self._own_count is not None:
            raise ConfigurationError("a context with a count of its own has no component config: leave `count` out")
        return TokenBufferedConfig(
            max_tokens=self.max_tokens,
            keep_first=self.keep_first,
            ephemeral=self.ephemeral,
            initial_messages=self._initial_messages,
        )

    @classmethod
    def _from_config(cls, config: TokenBufferedConfig) -> Self:
        return cls(
            config.max_tokens,
            keep_first=config.keep_first,
            ephemeral=config.ephemeral,
            initial_messages=config.initial_messages,
        )
