"""A thread that goes over to another model: what its team is told of the conversation so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import BaseGroupChat

from drsai_backend.json_types import JsonObject
from drsai_backend.runs.messages import as_message
from drsai_backend.runs.requests import InputMessage
from drsai_backend.runs.transcript import asked_after, is_shown, said_to
from drsai_backend.teams.imported import answers, imported_role, mark
from drsai_backend.teams.messages import aside_of, is_received, read_message
from drsai_backend.teams.team_tree import tree_of


def told_before(
    team: BaseGroupChat,
    messages: Iterable[tuple[int, JsonObject]],
    shown: Mapping[int, bool | None],
    *,
    is_same: bool = False,
) -> list[BaseChatMessage]:
    """The stored messages of another team, numbered dumps, as a history that `team` has had: what the user said, and
    what they were shown. `shown` says of each number whether it was (None: not known). `is_same`: they are its own, and
    who said them said them, unless one agent alone is left to have done so."""
    told: list[BaseChatMessage] = []
    by_name = is_same and len(tree_of(team).agents) > 1
    last: str | None = None
    for seq, config in messages:
        role = imported_role(config)
        if is_received(config):
            told += answers(team, asked_after(config.get("input_request"), last))
            if (said := said_to(config)).strip():
                told.append(as_message(InputMessage("user", said), mark("user")))
            last = None
            continue
        message = read_message(config)
        if not isinstance(message, BaseChatMessage) or role == "system":
            continue
        known = shown.get(seq)
        if role in ("assistant", "calls") or (role is None and (is_shown(message) if known is None else known)):
            last = message.to_text()
            mine = TextMessage(content=last, source=message.source, metadata=mark("assistant"))
            told += [mine] if by_name and last else answers(team, last)
        elif role == "user" or (message.source == "user" and aside_of(message) is None):
            last = None
            given = InputMessage("user", InputMessage.of(message).content)
            if not given.is_empty:
                told.append(as_message(given, mark("user")))
    return told
