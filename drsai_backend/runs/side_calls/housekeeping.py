"""Housekeeping of chat windows is told apart here: which requests are no part of a conversation, but questions about
one.

Chat windows ask the model that they talk to for a title, tags, the next questions a person may have, or a summary, by
prompts of their own, and many send the chat's id along. A prompt is recognised by how it begins, and by what else must
be in it, so that a person's words that quote one are not taken for it. `tests/recordings` has what the programs really
send; docs/clients.md tells the rule to those who run a server.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from drsai_backend.errors import ConfigurationError
from drsai_backend.runs.requests import InputMessage

OTHER: Final = "other"
"""The kind of what the setting's own expression finds, or a request says of itself."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a prompt of a chat window looks like: how the last message begins, what else is in it and how it ends, and
    how the system message begins. `kind` names what it asks for. Unless it is `after_history`, nothing is before it
    but a system message."""

    kind: str
    begins: tuple[str, ...] = ("",)
    holds: str = ""
    ends: tuple[str, ...] = ("",)
    system: tuple[str, ...] = ("",)
    after_history: bool = False

    def fits(self, text: str, system: str) -> bool:
        """Whether the last message and the system message are such a prompt."""
        return (
            text.startswith(self.begins)
            and system.startswith(self.system)
            and text[-_TAIL:].rstrip().endswith(self.ends)
            and self.holds in text  # the last, for a text may be long
        )


_TAIL: Final = 256
_TASK: Final = ("### Task:",)
# After the chat, or the unfinished text. What its documents and tools found comes in a prompt that begins like these:
# that one ends with the person's question.
_END: Final = ("</chat_history>", "#### Output:")


def _task(kind: str, key: str) -> Prompt:
    return Prompt(kind, _TASK, f'"{key}":', _END)


PROMPTS: Final = (
    # Open WebUI 0.4 to 0.12: all of its prompts, edited ones too, which keep the heading and end with the chat.
    _task("title", "title"),
    _task("tags", "tags"),
    _task("follow_ups", "follow_ups"),
    _task("queries", "queries"),
    _task("autocomplete", "text"),
    _task("image_prompt", "prompt"),
    Prompt(OTHER, _TASK, "<chat_history>", _END),
    Prompt("summary", ("### Task:\nSummarize the conversation history",), "### Messages Being Compacted:"),
    Prompt("emoji", ("Your task is to reflect the speaker's likely facial expression through a fitting emoji.",)),
    Prompt("tool_choice", ("Query: ", "History:\n"), system=("Available Tools: [",)),
    Prompt("title", ("Create a concise, 3-5 word title with an emoji as a title for the ",), "RESPOND ONLY WITH"),
    # LibreChat's @librechat/agents.
    Prompt(
        "title",
        ("Provide a concise, 5-word-or-less title for the conversation",),
        "Only return the title itself.",
    ),
    Prompt(
        "title",
        ("Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title",),
    ),
    Prompt(
        "summary",
        (
            "Hold on, before you continue I need you to write me a checkpoint of everything so far.",
            "Hold on again, update your checkpoint.",
        ),
        after_history=True,
    ),
    # LibreChat before that package.
    Prompt(
        "title",
        (
            "Please generate a concise, 5-word-or-less title for the conversation",
            "Detect user language and write in the same language an extremely concise title",
        ),
        ends=("||>Title:",),
    ),
    # LobeChat.
    Prompt("title", system=("You are a professional conversation summarizer. Generate a concise title",)),
    # LobeChat until 2024, and programs that took its words over, some of which send the chat's messages after them.
    Prompt(
        "title",
        system=("你是一名擅长会话的助理\uff0c你需要将用户的会话总结为",),
        after_history=True,
    ),
    Prompt(
        "summary",
        holds="<chat_history>",
        system=("You're an assistant who's good at extracting key takeaways from conversations and summarizing them.",),
    ),
)
"""The prompts that are known; the first that fits says what a request is."""


def _first_words(prompts: Sequence[Prompt]) -> re.Pattern[str]:
    """One look at a text tells most of those that are none of these."""
    words = {begins for each in prompts for begins in each.begins if begins}
    return re.compile("|".join(map(re.escape, sorted(words))))


@dataclass(frozen=True)
class Housekeeping:
    """The rule, as it is set.

    Args:
        setting: `auto`: the prompts that are known (`PROMPTS`); `off`: none; anything else is a regular expression
            that is searched for in the first 4,096 characters of the last message as well.

    Raises:
        ConfigurationError: it is no regular expression.
    """

    setting: str = "auto"
    _own: re.Pattern[str] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if self.setting not in ("auto", "off"):
            try:
                object.__setattr__(self, "_own", re.compile(self.setting))
            except re.error as error:
                raise ConfigurationError(
                    f"DRSAI_HOUSEKEEPING must be auto, off, or a regular expression, and this is none: {error}"
                ) from None

    def kind_of(self, messages: Sequence[InputMessage]) -> str | None:
        """Return what a conversation asks for, if its last message is housekeeping; None: it is a conversation. A
        system message alone is a prompt, too."""
        asking = ("user", "system") if len(messages) == 1 else ("user",)
        if self.setting == "off" or not messages or messages[-1].role not in asking:
            return None
        content = messages[-1].content
        if not isinstance(content, str):
            return None  # Windows send their prompts as one text.
        if self._own is not None and self._own.search(content, 0, _LOOKED_AT):
            return OTHER
        first = messages[0]
        system = first.content if first.role == "system" and isinstance(first.content, str) else ""
        begins_so = _BEGINS.match(content) is not None
        if not begins_so and not system.startswith(_SYSTEMS):
            return None
        is_alone = len(messages) <= 1 + bool(system)
        for prompt in PROMPTS:
            if (is_alone or prompt.after_history) and prompt.fits(content, system):
                return prompt.kind
        return None


_LOOKED_AT: Final = 4096
_BEGINS: Final = _first_words(PROMPTS)
_SYSTEMS: Final = tuple({begins for each in PROMPTS for begins in each.system if begins})
