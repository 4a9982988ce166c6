"""A compaction context has its older messages summarised when it is nearly full."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol, Self

from autogen_core import ComponentModel, FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from drsai_backend.agents.contexts.buffered import TokenBufferedConfig, TokenBufferedContext
from drsai_backend.agents.contexts.growing import CountTokens, calls_of, unit_start
from drsai_backend.errors import ConfigurationError
from drsai_backend.estimates import estimate_text
from drsai_backend.models import DefaultModelClient

_log = logging.getLogger("drsai.agents")

COMPACTION_PROMPT: Final = (
    "Below is the older part of a conversation. Summarise it for whoever continues it: what was asked, what was found, "
    "what was decided and done, what is still open. Keep names, numbers, paths and identifiers as they are. "
    "Write nothing but the summary."
)
SUMMARY_SOURCE: Final = "summary"
_OPENING: Final = "[Summary of the conversation's first {count} messages]\n"
NOT_SUMMARISED: Final = "[Messages after that were left out: no summary of them could be made.]"


class Once(Protocol):
    """Does something once in a turn, even one that is repeated: stores what `make` returns before it returns it."""

    async def __call__(self, digest: str, make: Callable[[], Awaitable[str | None]]) -> str | None: ...


async def _unbound(digest: str, make: Callable[[], Awaitable[str | None]]) -> str | None:
    return await make()


class CompactionConfig(TokenBufferedConfig):
    """The component config of `CompactionContext`. Without `model_client` the run's own model summarises."""

    model_client: ComponentModel | None = None
    share: float = 0.8
    keep: float = 0.3
    prompt: str = COMPACTION_PROMPT


class CompactionContext(TokenBufferedContext):
    """The newest messages, and a summary of what was before them.

    When the messages of a prompt take more than `share` of `max_tokens`, all but the newest of them are summarised by
    one call of the model. The summary becomes a message of the context, stored with the turn, and stands for them from
    then on. In a run the call's outcome is stored at once: a turn that is repeated does not ask again. Calls that have
    no results yet are never summarised.

    Where the model fails, says nothing or says too much, the messages are left out as in `TokenBufferedContext`, a
    note says so, and the model is asked again when the context is full the next time.

    Args:
        max_tokens: limit of a prompt's messages.
        model_client: who summarises; default: the run's own model. A context's client is the run's to close.
        share: of `max_tokens`; above it the context is compacted.
        keep: of `max_tokens`; newest messages within it are kept as they are. The summary may take the same share.
        prompt: what the summarising model is told.
        keep_first, ephemeral, count, initial_messages: as in `TokenBufferedContext`.

    Raises:
        ConfigurationError: an option is out of its range; or no model client is given outside of a team factory.
    """

    component_config_schema = CompactionConfig
    component_provider_override = "drsai_backend.agents.contexts.CompactionContext"

    def __init__(  # noqa: PLR0913 - options of a public class
        self,
        max_tokens: int,
        model_client: ChatCompletionClient | None = None,
        *,
        share: float = 0.8,
        keep: float = 0.3,
        prompt: str = COMPACTION_PROMPT,
        keep_first: bool = True,
        ephemeral: Mapping[str, int] | None = None,
        count: CountTokens | None = None,
        initial_messages: list[LLMMessage] | None = None,
    ) -> None:
        super().__init__(
            max_tokens, keep_first=keep_first, ephemeral=ephemeral, count=count, initial_messages=initial_messages
        )
        if not 0 < share <= 1:
            raise ConfigurationError(f"share is {share}: give the part of max_tokens above which is summarised, 0 to 1")
        if not 0 < keep < share:
            raise ConfigurationError(f"keep is {keep}: give a part of max_tokens above 0 and below share ({share})")
        self.share = share
        self.keep = keep
        self.prompt = prompt
        self._model_client = DefaultModelClient() if model_client is None else model_client
        self._asked = self._model_client
        self._once: Once = _unbound

    def bind_run(self, once: Once, client: Callable[[ChatCompletionClient], ChatCompletionClient]) -> None:
        """Called before a run: how an outcome is kept for a repeated turn, and the run's client made of the own one."""
        self._once = once
        self._asked = client(self._model_client)

    async def get_messages(self) -> list[LLMMessage]:
        """The prompt. It may ask the model for a summary first, and add that to the context."""
        self._scan()
        if self._tokens() > self.share * self.max_tokens:
            await self._compact()
        return self._buffered(self._seen.covered, self._summary(), self.max_tokens)

    def _scan_message(self, position: int, message: LLMMessage) -> None:
        covered = _covered_by(message, position)
        if covered is not None:
            self._seen.summary_at, self._seen.covered = position, covered
        else:
            super()._scan_message(position, message)

    def _is_aside(self, position: int) -> bool:
        return super()._is_aside(position) or _covered_by(self._messages[position], position) is not None

    def _summary(self) -> list[LLMMessage]:
        at = self._seen.summary_at
        return [] if at is None else [self._messages[at]]

    def _tokens(self) -> int:
        """Tokens of the prompt if nothing more was left out. It looks at what no summary covers."""
        messages, seen = self._messages, self._seen
        first = seen.first_user
        shown = {*seen.systems.values(), *([] if seen.summary_at is None else [seen.summary_at])}
        if self.keep_first and first is not None and first < seen.covered:
            shown.add(first)
        pinned = sum(self._count_at(each, messages[each]) for each in shown)
        return pinned + self._total(self._newest(seen.covered, 1 << 62))

    async def _compact(self) -> None:
        messages, start = self._messages, self._seen.covered
        kept = self._newest(start, int(self.keep * self.max_tokens))
        end = min([*kept, *self._pending(start)], default=len(messages))
        older = [each for each in range(start, end) if not self._is_aside(each)]
        if not older:
            return  # all of it is one unit, which is shown in any case
        earlier = self._summary()
        before = str(earlier[0].content).partition("\n")[2] if earlier else ""
        asked: list[LLMMessage] = [
            SystemMessage(content=self.prompt),
            UserMessage(content=self._transcript(before, start, end), source="user"),
        ]
        digest = hashlib.blake2b(repr([each.content for each in asked]).encode("utf-8", "replace"), digest_size=16)
        text = await self._once(digest.hexdigest(), lambda: self._ask(asked))
        summary = None if text is None else _summary_message(end, text)
        if summary is None or self._count_message(summary) > self.keep * self.max_tokens:
            _log.warning("the context's %d oldest messages could not be summarised and are left out", end)
            left_out = before if before.endswith(NOT_SUMMARISED) else f"{before}\n{NOT_SUMMARISED}".strip()
            summary = _summary_message(end, left_out)
        await self.add_message(summary)
        self._scan()

    def _pending(self, start: int) -> list[int]:
        """Return where the newest calls are, if they have no results yet. What was called before those is abandoned."""
        answered: set[str] = set()
        for position in range(len(self._messages) - 1, start - 1, -1):
            message = self._messages[position]
            if isinstance(message, FunctionExecutionResultMessage):
                answered |= {result.call_id for result in message.content}
            elif calls := calls_of(message):
                return [] if all(call.id in answered for call in calls) else [position]
        return []

    async def _ask(self, asked: list[LLMMessage]) -> str | None:
        """The model's summary; None where there is none."""
        try:
            result = await self._asked.create(asked)
        except Exception as error:  # noqa: BLE001  # whatever a model client raises; the buffer stands in for it
            _log.warning("no summary of a context: its model failed (%s)", type(error).__name__)
            return None
        content = result.content
        return content.strip() or None if isinstance(content, str) else None

    def _transcript(self, before: str, start: int, end: int) -> str:
        """The messages from `start` to `end` as text, after the earlier summary. Of more than fits into a prompt the
        newest are taken: an import may be longer than any window."""
        room = int(self.max_tokens * self.share) - estimate_text(before) - estimate_text(self.prompt)
        parts: list[str] = []
        while end > start:
            first = min(unit_start(self._messages, end, start), end - 1)
            lines = [_as_text(self._messages[each]) for each in range(first, end) if not self._is_aside(each)]
            part = "\n".join(lines)
            room -= estimate_text(part) + 1
            if room < 0:
                parts.append(part[-max(4 * room + 4 * estimate_text(part), 0) :] if not parts else "")
                parts.append("[Messages before that do not fit here.]")
                break
            parts.append(part)
            end = first
        said = "\n".join(part for part in reversed(parts) if part)
        return f"[Summary of what was before]\n{before}\n\n[The conversation since]\n{said}" if before else said

    def _to_config(self) -> CompactionConfig:
        return CompactionConfig(
            **super()._to_config().model_dump(exclude={"initial_messages"}),
            initial_messages=self._initial_messages,
            model_client=self._model_client.dump_component(),
            share=self.share,
            keep=self.keep,
            prompt=self.prompt,
        )

    @classmethod
    def _from_config(cls, config: TokenBufferedConfig) -> Self:
        assert isinstance(config, CompactionConfig)
        client = config.model_client
        return cls(
            config.max_tokens,
            None if client is None else ChatCompletionClient.load_component(client),
            share=config.share,
            keep=config.keep,
            prompt=config.prompt,
            keep_first=config.keep_first,
            ephemeral=config.ephemeral,
            initial_messages=config.initial_messages,
        )


def _summary_message(covered: int, text: str) -> UserMessage:
    return UserMessage(content=_OPENING.format(count=covered) + text, source=SUMMARY_SOURCE)


def _covered_by(message: LLMMessage, position: int) -> int | None:
    """Return how many of a context's messages a message at `position` is the summary of; None: it is no summary."""
    if not isinstance(message, UserMessage) or message.source != SUMMARY_SOURCE or not isinstance(message.content, str):
        return None
    opening, closing = _OPENING.split("{count}")
    digits, found, _ = message.content.removeprefix(opening).partition(closing)
    if not (found and message.content.startswith(opening) and digits.isascii() and digits.isdecimal()):
        return None
    return int(digits) if 0 < int(digits) <= position else None


def _as_text(message: LLMMessage) -> str:
    """A message as a line of a transcript."""
    said: list[str] = []
    for part in [message.content] if isinstance(message.content, str) else message.content:
        match part:
            case str():
                said.append(part)
            case FunctionCall(name=name, arguments=arguments):
                said.append(f"calls {name}({arguments})")
            case FunctionExecutionResult(name=name, content=content):
                said.append(f"{name} returned {content}")
            case _:
                said.append("[an image]")
    return f"{getattr(message, 'source', 'tools')}: {' '.join(said)}"
