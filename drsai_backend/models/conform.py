"""Messages made to fit a strict endpoint: see `message_rules`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from autogen_core import FunctionCall, Image
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from drsai_backend.models.message_rules import Rules

CONTINUE: Final = "Continue."
"""What the user says where a strict endpoint wants to hear it and nobody has spoken."""


def with_prompt(messages: Sequence[LLMMessage], prompt: str) -> list[LLMMessage]:
    """`messages` with one more system message after those that they begin with."""
    own = next((index for index, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
    return [*messages[:own], SystemMessage(content=prompt), *messages[own:]]


def conform(messages: Sequence[LLMMessage], rules: Rules, *, prefixed: bool = False) -> Sequence[LLMMessage]:
    """The messages as an endpoint with these rules takes them; the same object where it takes any.

    For one that wants turns: system messages are joined, messages of one role in a row are one, empty ones are left
    out. Calls of tools stay with their results. Where several people and agents speak as users and `name` is not taken,
    each but "user" is named in the text, as AutoGen does it (`prefixed`: the client does that by itself).
    """
    several = len({each.source for each in messages if isinstance(each, UserMessage)}) > 1
    if not rules.alternate:
        if rules.names or prefixed or not several:
            return messages
        return [_named(each) if isinstance(each, UserMessage) else each for each in messages]
    prompts = [each.content for each in messages if isinstance(each, SystemMessage) and each.content.strip()]
    said = [each for each in messages if not isinstance(each, SystemMessage) and not _is_empty(each)]
    prompt = "\n\n".join(prompts)
    if not said:
        return [UserMessage(content=prompt, source="user")] if prompt else messages
    turns = _turns(said, several, prefixed)
    if not isinstance(turns[0], UserMessage):
        turns.insert(0, _continue())
    if isinstance(turns[-1], AssistantMessage):
        turns.append(_continue())
    if not prompt:
        return turns
    if rules.system:
        return [SystemMessage(content=prompt), *turns]
    first = turns[0]
    assert isinstance(first, UserMessage)
    return [UserMessage(content=_joined([prompt, *_parts(first.content)]), source=first.source), *turns[1:]]


def _turns(said: Sequence[LLMMessage], several: bool, prefixed: bool) -> list[LLMMessage]:
    turns: list[LLMMessage] = []
    for each in said:
        last = turns[-1] if turns else None
        if isinstance(each, UserMessage):
            named = several and (isinstance(last, UserMessage) or not prefixed)
            parts = _parts(_named(each).content if named else each.content)
            if isinstance(last, FunctionExecutionResultMessage):
                # The agent's answer was the results themselves.
                turns.append(AssistantMessage(content=_results(last), source="assistant"))
            if isinstance(last, UserMessage):
                turns[-1] = UserMessage(content=_joined([*_parts(last.content), *parts]), source=last.source)
            else:
                turns.append(UserMessage(content=_joined(parts), source=each.source))
        elif (
            isinstance(each, AssistantMessage) and isinstance(last, AssistantMessage) and isinstance(last.content, str)
        ):
            turns[-1] = _both(last.content, last.thought, each)
        elif isinstance(each, FunctionExecutionResultMessage) and isinstance(last, FunctionExecutionResultMessage):
            turns[-1] = FunctionExecutionResultMessage(content=[*last.content, *each.content])
        else:
            turns.append(each)
    return turns


def _both(text: str, thought: str | None, then: AssistantMessage) -> AssistantMessage:
    """Two answers in a row. What is said before a call of tools goes with it, as models themselves do it."""
    if isinstance(then.content, str):
        return AssistantMessage(content=f"{text}\n\n{then.content}", thought=thought, source=then.source)
    before = text if not then.thought else f"{text}\n\n{then.thought}"
    calls: list[FunctionCall] = then.content
    return AssistantMessage(content=calls, thought=before, source=then.source)


def _is_empty(message: LLMMessage) -> bool:
    return not any(part.strip() if isinstance(part, str) else True for part in _any_parts(message.content))


def _any_parts(content: object) -> Sequence[object]:
    return content if isinstance(content, list) else [content]  # pyright: ignore[reportUnknownVariableType]


def _parts(content: str | list[str | Image]) -> list[str | Image]:
    return [content] if isinstance(content, str) else content


def _named(message: UserMessage) -> UserMessage:
    if message.source == "user":
        return message
    head, content = f"{message.source} said:\n", message.content
    if isinstance(content, str):
        return UserMessage(content=head + content, source=message.source)
    rest = [head + content[0], *content[1:]] if isinstance(content[0], str) else [head, *content]
    return UserMessage(content=rest, source=message.source)


def _joined(parts: list[str | Image]) -> str | list[str | Image]:
    """One text, or, with images, the parts as they are, texts that touch as one."""
    joined: list[str | Image] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] = f"{joined[-1]}\n\n{part}"
        else:
            joined.append(part)
    return joined[0] if len(joined) == 1 and isinstance(joined[0], str) else joined


def _results(message: FunctionExecutionResultMessage) -> str:
    return "\n".join(result.content for result in message.content) or CONTINUE


def _continue() -> UserMessage:
    return UserMessage(content=CONTINUE, source="user")
