"""A scripted model in the process: its answer is a function of what it is asked, so that a run that was cut and is
continued elsewhere gets the same answers as one that was not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import ChatCompletionClient, CreateResult, ModelInfo, RequestUsage

Answer = str | list[FunctionCall] | BaseException
Rule = Callable[[Sequence[Any], dict[str, Any]], Answer]


def user_count(messages: Sequence[Any]) -> int:
    return sum(type(message).__name__ == "UserMessage" for message in messages)


class ScriptedClient(ChatCompletionClient):
    """Answers with `rule(messages, options)`; text is streamed in pieces of `piece` characters.

    Between `hold()` and `release()` calls wait for their answers; `asked` is set when one comes.
    """

    def __init__(
        self, rule: Rule, *, vision: bool = False, piece: int = 7, delay: float = 0.0, thought: str | None = None
    ):
        self.rule = rule
        self.calls = 0
        self.asked = asyncio.Event()
        self._open = asyncio.Event()
        self._open.set()
        self.piece = piece
        self.delay = delay
        self.thought = thought
        self._info = ModelInfo(
            vision=vision,
            function_calling=True,
            json_output=True,
            family="unknown",
            structured_output=True,
            multiple_system_messages=True,
        )
        self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)

    def hold(self) -> None:
        self.asked.clear()
        self._open.clear()

    def release(self) -> None:
        self._open.set()

    async def create(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: Any = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        self.calls += 1
        self.asked.set()
        if self.delay or not self._open.is_set():
            future = asyncio.ensure_future(asyncio.sleep(self.delay) if self.delay else self._open.wait())
            if cancellation_token is not None:
                cancellation_token.link_future(future)
            await future
        answer = self.rule(messages, {"tools": tools, "tool_choice": tool_choice, "json_output": json_output})
        if isinstance(answer, BaseException):
            raise answer
        usage = RequestUsage(prompt_tokens=len(messages), completion_tokens=1)
        reason = "stop" if isinstance(answer, str) else "function_calls"
        return CreateResult(finish_reason=reason, content=answer, usage=usage, cached=False, thought=self.thought)

    async def create_stream(
        self,
        messages: Sequence[Any],
        *,
        tools: Sequence[Any] = (),
        tool_choice: Any = "auto",
        json_output: Any = None,
        extra_create_args: Mapping[str, Any] = {},
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult, None]:
        result = await self.create(
            messages,
            tools=tools,
            tool_choice=tool_choice,
            json_output=json_output,
            cancellation_token=cancellation_token,
        )
        if isinstance(result.content, str):
            for start in range(0, len(result.content), self.piece):
                yield result.content[start : start + self.piece]
        yield result

    async def close(self) -> None:
        pass

    def actual_usage(self) -> RequestUsage:
        return self._usage

    def total_usage(self) -> RequestUsage:
        return self._usage

    def count_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        return sum(len(str(getattr(message, "content", ""))) for message in messages)

    def remaining_tokens(self, messages: Sequence[Any], *, tools: Sequence[Any] = ()) -> int:
        return 10_000 - self.count_tokens(messages)

    @property
    def capabilities(self) -> Any:
        return self._info

    @property
    def model_info(self) -> ModelInfo:
        return self._info


def counting(name: str, *, stop_at: int | None = None, stop_word: str = "TERMINATE") -> Rule:
    """Says its name and how many messages it sees; from `stop_at` on, it adds the stop word."""

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        seen = len(messages)
        text = f"{name} sees {seen} messages, the last is {str(messages[-1].content)[-20:]!r}"
        return f"{text} {stop_word}" if stop_at is not None and seen >= stop_at else text

    return rule
