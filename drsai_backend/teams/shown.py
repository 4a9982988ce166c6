"""Shown agents are those whose messages are the text of a team's answer.

Default: everybody's. A team's setting names some (`shows`, or the key `shown` beside a component config), and so may a
request; "last" is the newest message alone. What is said inside of a tool call, as by an agent or team that is used as
a tool, is never part of the text. All of it is stored, and is among the steps of the run: what is no part of the answer
is marked in its metadata, before it is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias, cast

# Private: the names of managers and participants. tests/teams/test_upstream.py.
# pyright: reportPrivateUsage=false
from autogen_agentchat.teams import BaseGroupChat
from pydantic import Field

from drsai_backend.teams.messages import HiddenReason
from drsai_backend.teams.team_tree import TeamTree, is_a, tree_of

SETTING: Final = "shown"
ShownChoice: TypeAlias = Literal["last"] | Annotated[list[str], Field(min_length=1, max_length=64)]
"""The names of agents and inner teams, or "last": the newest message, which is known at the end of a run."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Whose messages are the text of an answer.

    Attributes:
        names: the speakers; None: all.
        is_last: only the newest message of theirs.
    """

    names: frozenset[str] | None = None
    is_last: bool = False

    def aside(self, source: str) -> HiddenReason | None:
        """Return why what this speaker says is no part of the answer; None: it is one."""
        is_hidden = self.names is not None and source not in self.names
        return "speaker" if is_hidden else "last" if self.is_last else None


def read_shown(value: object) -> ShownChoice:
    """Return a choice as a file of teams has it.

    Raises:
        ValueError: it is neither a list of names nor "last".
    """
    names = cast("list[object]", value) if isinstance(value, list) else []
    if value == "last" or (names and all(isinstance(each, str) for each in names)):
        return cast("ShownChoice", value)
    raise ValueError(f"`{SETTING}` must be a list of names of participants, or 'last'")


def shown_of(tree: TeamTree, choice: ShownChoice | None) -> Shown:
    """Return who of a team is shown.

    Raises:
        ValueError: the team has nobody of a name; the message names those that there are.
    """
    if choice is None or choice == "last":
        return Shown(is_last=choice == "last")
    team = tree.team
    known = {name: {name} for name in (*(each.name for each in tree.agents), team._group_chat_manager_name)}
    for chat in team._participants:
        if is_a(chat, BaseGroupChat):
            known[chat.name] = {chat.name, chat._group_chat_manager_name, *(each.name for each in tree_of(chat).agents)}
    check_names(choice, known)
    return Shown(frozenset[str]().union(*(known[name] for name in choice)))


def check_names(choice: Collection[str], known: Collection[str]) -> None:
    """Raise ValueError where a name of a choice is not known."""
    for name in choice:
        if name not in known:
            raise ValueError(f"`{SETTING}` names {name!r}, which is none of the team's: {', '.join(known)}")
