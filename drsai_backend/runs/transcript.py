"""What of a thread a client is shown: one rule, applied when a message is stored, and kept with it.

So a client sees the same whether it listens while the run lives, follows it from another process, repeats its request,
or reads the thread. And one rule of what a question and its answer are in the conversation that a client has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage
from autogen_agentchat.teams import BaseGroupChat

from drsai_backend.json_types import JsonObject
from drsai_backend.teams.client_tools.definitions import calls_of
from drsai_backend.teams.imported import imported_role
from drsai_backend.teams.team_tree import is_a, leaf_agents


@dataclass(frozen=True, slots=True)
class Cast:
    """Who speaks in a team: `people` lend their voice to a person, `members` take the handoffs that stay inside."""

    people: frozenset[str]
    members: frozenset[str]


def is_shown(message: BaseChatMessage | BaseAgentEvent, cast: Cast | None = None) -> bool:
    """Whether a chat window shows what a team has said: its answers, and the handoffs to people outside. What came in
    from a client is never shown, whoever it says has said it; its writer knows that, this function does not.

    `cast=None`: the message was stored before this was kept, so its team is not known. Then what the user and the
    system have said is told by their names, and no handoff is shown.
    """
    if not isinstance(message, BaseChatMessage) or imported_role(message) is not None:
        return False
    if cast is None:
        return message.source not in ("user", "system") and not isinstance(message, HandoffMessage)
    if message.source in cast.people:
        return False
    return not isinstance(message, HandoffMessage) or message.target not in cast.members


def is_asked(prompt: str, last: str | None) -> bool:
    """Whether an answer that ends with the shown message `last` asks the question `prompt` already. If not, the
    question is shown after it."""
    asked = prompt.strip()
    return not asked or (last is not None and last.strip().endswith(asked))


SAID_BEFORE: Final = "said_before"
"""In a stored question: what its client was shown while the turn that asks it was under way."""


def asked_text(question: JsonObject) -> str:
    """What a chat window is shown of a question: its prompt, and the number of an approval, which tells it from an
    equal one of another chat where clients name none."""
    prompt, number = str(question.get("prompt") or ""), question.get("number")
    return prompt if number is None else f"{prompt} (No. {number})"


def asked_after(question: JsonObject | None, last: str | None) -> str:
    """What a client is shown of a question after the message `last`: its text, unless that message ends with it, or
    what was said beside calls of the client's tools; and before that what it has read of the turn; "": nothing."""
    if question is None:
        return ""
    text = asked_text(question)
    shown = "" if is_asked(text, last) else text
    if calls_of(question):
        shown = str(question.get("content") or "")
    before = str(question.get(SAID_BEFORE) or "")
    return f"{before}\n\n{shown}" if before else shown


def said_to(received: JsonObject) -> str:
    """What a client has said in answer to a question, of the dump of a `UserInputReceivedEvent`; "": nothing, as who
    presses a button; or it is a message of its own, which follows."""
    question: JsonObject = received.get("input_request") or {}
    return "" if question.get("kind") == "handoff" else str(received.get("content") or "")


class Transcript:
    """What of one run is shown, while it lives. `team` is ready to run."""

    def __init__(self, team: BaseGroupChat) -> None:
        people = frozenset(agent.name for agent in leaf_agents(team) if is_a(agent, UserProxyAgent))
        self._cast = Cast(people, frozenset(team._participant_names))  # pyright: ignore[reportPrivateUsage]
        self._given: set[str] = set()
        """Ids of messages that came from the client while the run lived."""

    def came_in(self, messages: Iterable[BaseChatMessage]) -> None:
        """The client has sent these meanwhile."""
        self._given.update(message.id for message in messages)

    def is_given(self, message: BaseChatMessage | BaseAgentEvent) -> bool:
        """Whether the client has sent it while the run lived."""
        return message.id in self._given

    def shows(self, message: BaseChatMessage | BaseAgentEvent) -> bool:
        return message.id not in self._given and is_shown(message, self._cast)
