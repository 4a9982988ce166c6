"""The messages of a request are looked at here: which of them are new to the thread, and which AutoGen messages its
team is given.

Chat clients resend the whole history with every request. Messages are compared by their text, because that is all a
client keeps of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from typing import Final, cast

from autogen_agentchat.messages import BaseChatMessage, HandoffMessage, MultiModalMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat, Swarm

from drsai_backend.datamodel.base import JsonText
from drsai_backend.errors import InvalidRequest
from drsai_backend.runs.requests import InputMessage
from drsai_backend.teams.imported import answers, called, mark
from drsai_backend.teams.messages import UnknownMessage, dump_of
from drsai_backend.teams.recording.recorder import dump_message, storable
from drsai_backend.teams.runtime.wiring import manager_of
from drsai_backend.teams.team_tree import is_a

USER_LAST: Final = (
    "the last of `messages` must be the user's; to have an answer continued, add one that asks for it, such as "
    "'Continue.'"
)
"""What is wrong with a conversation that ends with an answer, and what to do."""
_TITLE_LENGTH: Final = 80
# The prompt of Open WebUI 0.4 to 0.12, and how it marks the question where a person has chosen older ones.
FOUND: Final = "### Task:"
_FOUND_ENDS: Final = "</context>"
_ASKED: Final = re.compile(r"\s*<user_query>(.*)</user_query>\s*\Z", re.DOTALL)
_CONTEXT: Final = "<!-- SYSTEM CONTEXT (NOT PART OF USER QUERY) -->"
"""After a question, LobeChat puts what belongs to it."""
_AROUND: Final = {
    "<attached_files>": ("</attached_files>", _CONTEXT),  # Open WebUI, and before 0.4:
    "Use the following context as your learned knowledge": ("answer the query.\nQuery: ", _CONTEXT),
    "Please answer the question based on the reference materials": ("## My question is:", "## Reference Materials:"),
}
"""How chat windows put what they have found around a question: how such a message begins, and what stands before and
after the question. The last one is Cherry Studio's."""
CONTINUES: Final = "drsai:continues"
SHOWN: Final = "drsai:shown"
TRACE: Final = "drsai:trace"
"""The names under which the answer that a run continues, `Ask.shown`, and `Ask.trace` are kept in
`UserInput.extra_requests`."""


def continued(messages: Sequence[InputMessage]) -> str | None:
    """The answer that a conversation ends with and that may be continued: a text that answers a message; None: it ends
    otherwise."""
    last = messages[-1]
    if last.role != "assistant" or last.calls or len(messages) == 1 or messages[-2].role not in ("user", "tool"):
        return None
    return last.content if isinstance(last.content, str) and last.content.strip() else None


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
    """The index in `sent` of the first message that is new to the thread; 0 for an unknown thread. Raises as
    `new_messages`."""
    if not sent:
        raise InvalidRequest("`messages` must hold at least one message", param="messages")
    if sent[-1].role != "user" and not (sent[-1].role == "tool" and not known):
        raise InvalidRequest(USER_LAST, param="messages")
    if not known or len(sent) == 1:
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


def input_messages(team: BaseGroupChat, messages: Sequence[InputMessage]) -> list[BaseChatMessage]:
    """A request's messages as the thread stores them: its system messages, as one, and everything up to the last
    answer are marked as imported (see `teams.imported`), what follows is the task of the run. `team` has its state
    loaded.

    Messages without content are left out. Calls of the client's tools are imported with their results, but for those
    that lack a result: no endpoint takes them so.
    """
    imported: list[BaseChatMessage] = []
    task = list(messages)
    if any(each.role != "user" for each in messages):
        answered = max((at for at, each in enumerate(messages) if each.role in ("assistant", "tool")), default=-1)
        imported = _imported(team, messages, answered + 1)
        task = [each for each in messages[answered + 1 :] if each.role == "user"]
    task = [each for each in task if not each.is_empty] or task[-1:]
    given = [*map(as_message, task)]
    speaker = _handed_off_by(team)
    if speaker is not None and given and not any(isinstance(message, HandoffMessage) for message in given):
        # A swarm that handed off to a person is answered by a handoff.
        last = given[-1]
        if isinstance(last, TextMessage):
            given.pop()
        # Only text fits into it; what came with pictures stays before it.
        noted = last.metadata
        given.append(HandoffMessage(content=task[-1].text, source=last.source, target=speaker, metadata=noted))
    return [*imported, *given]


def history_messages(team: BaseGroupChat, messages: Sequence[InputMessage]) -> list[BaseChatMessage]:
    """A conversation that was had elsewhere, as a thread stores it: all of it marked as imported, the calls of tools
    with their results.

    Raises:
        InvalidRequest: a call has no result, or a result no call; `param` names the message.
    """
    known: set[str] = set()
    for index, message in enumerate(messages):
        if message.calls:
            known = {call.id for call in message.calls}
            if missing := known - results_after(messages, index).keys():
                param = f"messages[{index}].tool_calls"
                text = f"`{param}` must be followed by the result of each call; there is none for {sorted(missing)[0]}"
                raise InvalidRequest(text, param=param)
        elif message.role in ("user", "assistant"):
            known = set()
        elif message.role == "tool" and message.call_id not in known:
            param = f"messages[{index}].tool_call_id"
            raise InvalidRequest(f"`{param}`: the assistant's message before it has no such call", param=param)
    found = _imported(team, messages, len(messages))
    if not found:
        raise InvalidRequest("`messages` say nothing: all of them are empty", param="messages")
    return found


def title_of(messages: Sequence[InputMessage]) -> str:
    """The title of a thread that begins with these: the first words of the user, in one line, without what a chat
    window has put around them; "": there are none."""
    text = words_of(next((message.text for message in messages if message.role == "user"), ""))
    title = " ".join(text.split())
    return title if len(title) <= _TITLE_LENGTH else title[: _TITLE_LENGTH - 1] + "…"


def words_of(text: str) -> str:
    """The user's words in a text of theirs, without what a chat window has put around them."""
    return _words_in(asked_in(text).strip()) if text.startswith((FOUND, *_AROUND)) or _CONTEXT in text else text


def asked_in(text: str) -> str:
    """The question in a user's text, without what a chat window has found for it."""
    if not text.startswith(FOUND):
        return text
    _, ends, rest = text.rpartition(_FOUND_ENDS)
    if not ends:
        return text
    marked = _ASKED.match(rest)
    question = rest if marked is None else marked[1]
    return question if question.strip() else text


def _words_in(text: str) -> str:
    """The user's words in a text that a chat window has put something around."""
    for begins, (before, after) in _AROUND.items():
        if text.startswith(begins):
            text = text.partition(before)[2].partition(after)[0].strip() or text
    return text.partition(_CONTEXT)[0].strip() or text


def _imported(team: BaseGroupChat, messages: Sequence[InputMessage], end: int) -> list[BaseChatMessage]:
    """The system's messages, as one, and all other messages before `end`, marked as imported."""
    imported: list[BaseChatMessage] = []
    system = system_text(messages)
    if system is not None:
        imported.append(TextMessage(content=system, source="system", metadata=mark("system")))
    for index, message in enumerate(messages[:end]):
        results = results_after(messages, index)
        if message.calls and results.keys() == {call.id for call in message.calls}:
            imported += called(team, message.text, message.calls, results, message.thought)
        elif message.role == "assistant":
            imported += answers(team, message.text)
        elif message.role == "user" and not message.is_empty:
            imported.append(as_message(message, mark("user")))
    return imported


def results_after(messages: Sequence[InputMessage], index: int) -> dict[str, str]:
    """The results that follow a message directly, but for messages of the system, by the ids of their calls."""
    rest = takewhile(lambda each: each.role in ("tool", "system"), messages[index + 1 :])
    return {each.call_id: each.text for each in rest if each.call_id is not None}


def check_types(team: BaseGroupChat, messages: Sequence[InputMessage]) -> Sequence[InputMessage]:
    """The messages, those of them made of stored dumps as objects of the team's own classes. `team` knows all its
    message types (see `teams.runtime.wiring.share_message_types`).

    Raises:
        InvalidRequest: the team takes no messages of a type; or its class is not in this process.
    """
    if all(each.message is None for each in messages):
        return messages
    factory = team._message_factory  # pyright: ignore[reportPrivateUsage]
    found: list[InputMessage] = []
    for each in messages:
        message = each.message
        if isinstance(message, UnknownMessage):
            with suppress(ValueError):
                message = cast(BaseChatMessage, factory.create(message.dump()))
        if message is not None and (isinstance(message, UnknownMessage) or not factory.is_registered(type(message))):
            raise InvalidRequest(
                f"the team takes no messages of type {dump_of(message)['type']}; name it in its `custom_message_types`",
                param="task",
            )
        found.append(replace(each, message=message))
    return found


def as_message(message: InputMessage, metadata: dict[str, str] | None = None) -> BaseChatMessage:
    """A message of a request as AutoGen's."""
    if message.message is not None:
        return message.message
    content = message.content
    if message.name is not None:
        said = f"{message.name} said:\n"  # In AutoGen's words for speakers whose names an endpoint does not take.
        content = said + content if isinstance(content, str) else [said, *content]
    metadata = {**(metadata or {}), **message.noted}
    if isinstance(content, str):
        return TextMessage(content=content, source=message.role, metadata=metadata)
    return MultiModalMessage(content=content, source=message.role, metadata=metadata)


def sign(message: BaseChatMessage, author: str | None) -> None:
    """Note in a message who has sent it, if that is not the owner of its thread. Its metadata may be the caller's."""
    if author is not None:
        message.metadata = {**message.metadata, "user_id": author}


def storable_dumps(messages: Sequence[BaseChatMessage], author: str | None) -> list[JsonText]:
    """Return messages of a client as their rows keep them, signed by `author` where the thread is another user's.

    Raises:
        InvalidRequest: one holds what no database stores.
    """
    found: list[JsonText] = []
    for message in messages:
        sign(message, author)
        config = dump_message(message)
        if storable(config) is not config:
            raise InvalidRequest("a message holds NUL or a lone surrogate", param="messages")
        found.append(JsonText(config))
    return found


def _handed_off_by(team: BaseGroupChat) -> str | None:
    """Return who of a swarm is to take up the answer to its latest handoff, which left the team: the member that has
    made it; where that is no member any more, the first one. A swarm refuses any other task."""
    if not is_a(team, Swarm):
        return None
    names = team._participant_names  # pyright: ignore[reportPrivateUsage]
    for message in reversed(manager_of(team)._message_thread):  # pyright: ignore[reportPrivateUsage]
        if isinstance(message, HandoffMessage):
            if message.target in names:
                return None
            return message.source if message.source in names else names[0]
    return None
