"""What an agent had said of a message when its run was stopped. A chat window has shown it, so the thread keeps it, and
the agents know of it: as the answer that it was, marked as cut off."""

from __future__ import annotations

from typing import Final

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, TextMessage

from drsai_backend.teams.imported import mark

_KEY: Final = "drsai.unfinished"


def unfinished_message(source: str, text: str, message_id: str | None) -> TextMessage:
    """The beginning of a message. Its metadata says `drsai.unfinished`: `stopped`; no agent has taken it up yet, so it
    becomes part of the model contexts as an imported answer does (`teams.imported`)."""
    message = TextMessage(content=text, source=source, metadata={**mark("assistant"), _KEY: "stopped"})
    if message_id is not None:
        message.id = message_id
    return message


def is_unfinished(message: BaseChatMessage | BaseAgentEvent) -> bool:
    """Whether a message was cut off."""
    return _KEY in message.metadata
