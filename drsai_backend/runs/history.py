"""What is new in a conversation that a client sent: chat clients resend the whole history with every request.

Pure functions; the engine gives them what the thread knows. Messages are compared by their text, because that is all a
client keeps of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from drsai_backend.errors import InvalidRequest
from drsai_backend.runs.events import InputMessage


def new_messages(
    sent: Sequence[InputMessage],
    known_user_texts: Sequence[str],
    *,
    known: bool,
    last_system: str | None,
) -> list[InputMessage]:
    """The messages of `sent` (oldest first) that the thread has to take.

    `known` says whether the thread exists; `known_user_texts` are its newest user texts, oldest first (as many as
    `sent` has messages are enough); `last_system` is the `system_text` it took last.

    An unknown thread takes everything: a client that moves over brings its history along. A known one takes what
    follows the last answer, less the user messages that it already took and whose answer was lost; system messages
    come along when their text changed.

    Raises:
        InvalidRequest: nothing in `sent` is new, or its last message is not the user's.
    """
    start = first_new(sent, known_user_texts, known=known)
    if not known:
        return list(sent)
    system = system_text(sent)
    changed = system is not None and system != (last_system or "")
    return [
        message
        for index, message in enumerate(sent)
        if (changed if message.role == "system" else message.role == "user" and index >= start)
    ]


def first_new(sent: Sequence[InputMessage], known_user_texts: Sequence[str], *, known: bool) -> int:
    """The index in `sent` of the first message that is new to the thread; 0 for an unknown thread.

    Raises:
        InvalidRequest: nothing in `sent` is new, or its last message is not the user's.
    """
    if not sent:
        raise InvalidRequest("`messages` must hold at least one message", param="messages")
    if sent[-1].role != "user":
        raise InvalidRequest("the last of `messages` must be the user's", param="messages")
    if not known:
        return 0
    answered = max((index for index, message in enumerate(sent) if message.role == "assistant"), default=-1)
    rest = [index for index in range(answered + 1, len(sent)) if sent[index].role == "user"]
    texts = [sent[index].text for index in rest]
    # The whole of `rest` is never dropped: the same words said again are a new message.
    for length in range(len(rest) - 1, 0, -1):
        if texts[:length] == list(known_user_texts[-length:]):
            return rest[length]
    return rest[0]


def system_text(messages: Sequence[InputMessage]) -> str | None:
    """The system messages' texts, joined by a blank line; None when there are none, "" when they say nothing."""
    texts = [message.text for message in messages if message.role == "system"]
    return "\n\n".join(text for text in texts if text.strip()) if texts else None
