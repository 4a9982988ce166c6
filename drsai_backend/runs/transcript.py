"""The transcript is what of a thread a client is shown: one rule, applied when a message is stored, and kept with it.

So a client sees the same whether it listens while the run lives, follows it from another process, repeats its request,
or reads the thread. And one rule of what a question and its answer are in the conversation that a client has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
)

from drsai_backend.errors import BudgetReached
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.client_tools.definitions import calls_of
from drsai_backend.teams.imported import imported_role
from drsai_backend.teams.messages import aside_of, is_received, put_aside, read_message
from drsai_backend.teams.shown import Shown
from drsai_backend.teams.team_tree import TeamTree, is_class


def is_shown(
    message: BaseChatMessage | BaseAgentEvent, people: Collection[str] | None = None, members: Collection[str] = ()
) -> bool:
    """Whether a chat window shows what a team has said: its answers, and the handoffs to people outside. What came in
    from a client is never shown, whoever it says has said it; its writer knows that, this function does not.

    `people` lend their voice to a person, `members` take the handoffs that stay inside. `people=None`: the message was
    stored before this was kept, so its team is not known. Then what the user and the system have said is told by their
    names, and no handoff is shown.
    """
    if not isinstance(message, BaseChatMessage) or imported_role(message) is not None or aside_of(message) is not None:
        return False
    if people is None:
        return message.source not in ("user", "system") and not isinstance(message, HandoffMessage)
    if message.source in people:
        return False
    return not isinstance(message, HandoffMessage) or message.target not in members


def is_asked(prompt: str, last: str | None) -> bool:
    """Whether an answer that ends with the shown message `last` asks the question `prompt` already. If not, the
    question is shown after it."""
    asked = prompt.strip()
    return not asked or (last is not None and last.strip().endswith(asked))


SAID_BEFORE: Final = "said_before"
"""In a stored question: what its client was shown while the turn that asks it was under way."""


def asked_text(question: Mapping[str, object]) -> str:
    """Return what a chat window is shown of a question: its prompt, and the number of an approval, which tells it from
    an equal one of another chat where clients name none."""
    prompt, number = str(question.get("prompt") or ""), question.get("number")
    return prompt if number is None else f"{prompt} (No. {number})"


def asked_after(question: Mapping[str, object] | None, last: str | None) -> str:
    """Return what a client is shown of a question after the message `last`: its text, unless that message ends with it,
    or what was said beside calls of the client's tools; and before that what it has read of the turn; "": nothing."""
    if question is None:
        return ""
    text = asked_text(question)
    shown = "" if is_asked(text, last) else text
    if calls_of(question):
        shown = str(question.get("content") or "")
    before = str(question.get(SAID_BEFORE) or "")
    return f"{before}\n\n{shown}" if before else shown


def notice_of(stop_code: str | None, stop_reason: str | None) -> str:
    """Return what a client is shown where a run ends without an answer for want of a budget: the operator's words."""
    return stop_reason or "" if stop_code == BudgetReached.code else ""


def said_to(received: JsonObject) -> str:
    """Return what a client has said in answer to a question, of the dump of a `UserInputReceivedEvent`; "": nothing, as
    who presses a button; or it is a message of its own, which follows."""
    question: JsonObject = received.get("input_request") or {}
    return "" if question.get("kind") == "handoff" else str(received.get("content") or "")


class Transcript:
    """What of one run is shown, while it lives.

    Args:
        tree: what the team is made of.
        shown: who of it is shown.
        stored: messages of the thread as dumps, by number, where this process resumes the run; from `first` on they are
            its own.

    """

    def __init__(self, tree: TeamTree, shown: Shown, stored: Mapping[int, Mapping[str, object]], first: int) -> None:
        self._people = frozenset(agent.name for agent in tree.agents if is_class(type(agent), UserProxyAgent))
        self._members = frozenset(tree.team._participant_names)  # pyright: ignore[reportPrivateUsage]
        self._given: set[str] = set()
        """Ids of messages that came from the client while the run lived."""
        self._shown = shown
        self._revealed = ""
        self._last: tuple[int, BaseChatMessage | BaseAgentEvent] | None = None
        for seq in sorted(stored):
            if seq < first:
                continue
            if aside_of(stored[seq]) == "last":
                self._last = seq, read_message(stored[seq])
            elif is_received(stored[seq]):
                self._last = None  # It was shown when the run ended with its question.

    def came_in(self, messages: Iterable[BaseChatMessage]) -> None:
        """The client has sent these meanwhile."""
        self._given.update(message.id for message in messages)

    def is_given(self, message: BaseChatMessage | BaseAgentEvent) -> bool:
        """Whether the client has sent it while the run lived."""
        return message.id in self._given

    def shows(self, message: BaseChatMessage | BaseAgentEvent) -> bool:
        if message.id in self._given:
            return False
        return message.id == self._revealed or is_shown(message, self._people, self._members)

    def mark(self, message: BaseChatMessage | BaseAgentEvent) -> None:
        """Mark what the team says, before it is stored, where it is no part of the answer."""
        why = self._shown.aside(message.source)
        # What a speaker thinks who may have the last word is told: it is no part of the answer anyway.
        is_piece = isinstance(message, ModelClientStreamingChunkEvent) or (
            why == "speaker" and isinstance(message, ThoughtEvent)
        )
        if why is not None and aside_of(message) is None and (is_piece or self.shows(message)):
            put_aside(message, why)

    def store(self, seq: int, message: BaseChatMessage | BaseAgentEvent) -> bool:
        """Whether a message that is about to be stored is shown."""
        if aside_of(message) == "last" and isinstance(message, BaseChatMessage):
            self._last = seq, message
        return self.shows(message)

    def reveal(self) -> tuple[int, BaseChatMessage | BaseAgentEvent] | None:
        """The run ends: its newest message is shown, if only that one is. Returns it with its number."""
        if self._last is not None:
            self._revealed = self._last[1].id
        return self._last
