"""A team that does its work, one that kills its process in its second turn, and one that does while it is built. Served
by real processes.

What stands in the file `POISON` is what they do: without it both wait in that turn, so that a process has all runs on
board; "kill" has the poisonous one kill its process, "load" the one that does so while it is built, and this and "work"
let the others go on as well. `POISON_OWN` is one more name of the first team, which other servers do not know.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken


class Speaker(BaseChatAgent):
    """Says something at once."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        await self.work()
        return Response(chat_message=TextMessage(content=f"{self.name} has spoken", source=self.name))

    async def work(self) -> None:
        """What comes before."""

    async def on_reset(self, cancellation_token: CancellationToken) -> None: ...


class Waiting(Speaker):
    """Waits for its word first."""

    words = ("work", "load")

    async def work(self) -> None:
        with Path(os.environ["POISON"]).with_suffix(".seen").open("a") as file:
            file.write(f"{os.getpid()} {type(self).__name__}\n")
        while _word() not in self.words:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


class Killing(Waiting):
    """Kills its process then."""

    words = ("kill", "work")

    async def work(self) -> None:
        await super().work()
        os.kill(os.getpid(), signal.SIGABRT)


def _word() -> str:
    file = Path(os.environ["POISON"])
    return file.read_text() if file.exists() else ""


def _team(second: type[Speaker]) -> RoundRobinGroupChat:
    return RoundRobinGroupChat([Speaker("first", ""), second("second", ""), Speaker("third", "")], max_turns=3)


def _built() -> RoundRobinGroupChat:
    if _word() == "load":
        os.kill(os.getpid(), signal.SIGABRT)
    return _team(Waiting)


teams = {"innocent": lambda: _team(Waiting), "poison": lambda: _team(Killing), "loaded": _built}
if "POISON_OWN" in os.environ:
    teams[os.environ["POISON_OWN"]] = teams["innocent"]
