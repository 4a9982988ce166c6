"""An agent of one's own that keeps notes in a table of its own. Keeps `notes.db` in this directory.

`DrSaiAgentMixin` brings `self._db_manager` and `self._run_context`; the rest is AutoGen's `BaseChatAgent`.
"""

import asyncio
from collections.abc import Sequence

from autogen_agentchat.agents import BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_core import CancellationToken
from sqlmodel import Field, SQLModel

from drsai_backend import DrSai, DrSaiAgentMixin


class Note(SQLModel, table=True):
    """A note of a user, on whatever thread it was taken."""

    id: int | None = Field(default=None, primary_key=True)
    user_id: str = Field(index=True)
    text: str


class Librarian(DrSaiAgentMixin, BaseChatAgent):
    """Notes what begins with "note", and recites all notes of the user otherwise."""

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        user_id = self._run_context.user_id
        text = messages[-1].to_text()
        if text.lower().startswith("note "):
            note = await self._db_manager.upsert(Note(user_id=user_id, text=text[5:]))
            answer = f"Noted as number {note.id}."
        else:
            notes = await self._db_manager.get(Note, filters={"user_id": user_id}, order="id")
            answer = "\n".join(["Your notes:", *(f"- {note.text}" for note in notes)])
        return Response(chat_message=TextMessage(content=answer, source=self.name))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        """Nothing to forget: the notes are the user's, not the conversation's."""


async def main() -> None:
    teams = {"librarian": lambda: Librarian("librarian", "Keeps notes.")}
    async with DrSai(teams=teams, database_url="sqlite:///notes.db") as drsai:
        await drsai.db.create_table(Note)  # a table that exists is left alone
        for user, thread, text in [
            ("ada", "monday", "note the tide turns at noon"),
            ("bob", "monday", "note buy bread"),
            ("ada", "tuesday", "What do you know?"),  # another thread, the same notes
        ]:
            result = await drsai.user(user).run("librarian", text, thread_id=thread)
            print(f"{user}: {text}\n  {result.text}")


if __name__ == "__main__":
    asyncio.run(main())
