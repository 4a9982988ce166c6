"""Steering happens between two turns: a run leaves, stops, pauses, or takes up what the user has said meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field

from autogen_agentchat.messages import BaseChatMessage

from drsai_backend.database.runs.commands import join_writes, queued_inputs
from drsai_backend.errors import UnsupportedStateVersion
from drsai_backend.runs.commands.stored_request import messages_from
from drsai_backend.runs.execution.writer import RunWriter
from drsai_backend.runs.failures import HandedOver, PauseRequested
from drsai_backend.runs.messages import as_message, check_types, sign
from drsai_backend.teams.session import TeamSession
from drsai_backend.teams.suspension import StopRequested


@dataclass(eq=False)
class Steering:
    """Does at turn boundaries what others have asked of one run. `texts` are the user's that came while it lived."""

    _writer: RunWriter
    _session: TeamSession
    texts: list[str] = field(default_factory=list[str])

    async def at_boundary(self) -> None:
        """Do what `Thread.control` asks.

        Raises:
            HandedOver, StopRequested, PauseRequested: the run does not continue here.
            LimitReached: it has used up what it may use.
        """
        writer = self._writer
        control = writer.lease.control
        if control == "cancel":
            raise StopRequested("The run was stopped.")
        if writer.live.leaving:
            raise HandedOver
        repeats = writer.steps.repeats or writer.broker.answers
        if control == "pause":
            # Before a turn that is repeated, nobody has spoken since the team was loaded.
            paused = None if repeats else await self._session.pause()
            if paused is not None:
                await writer.append(paused, counts=False)
            raise PauseRequested
        writer.bounds.check()
        # A turn that is repeated must see what it saw: then new messages wait for its end.
        if control == "steer" and not repeats:
            await self._steer()

    async def _steer(self) -> None:
        """Hand the user's new messages to everybody, as a turn of their own."""
        writer, lease = self._writer, self._writer.lease
        waiting = await writer.read(lambda session: queued_inputs(session, lease.name, "steer"))
        messages: list[BaseChatMessage] = []
        taken: list[tuple[str, int]] = []
        for row in waiting:
            # Clients send the whole conversation; what the user said last is new.
            try:
                new = messages_from(row["request"])
            except UnsupportedStateVersion:
                continue  # A worker that reads it begins it when the run is over.
            if all(message.message is None for message in new):
                new = new[-1:]
            said = [*map(as_message, check_types(self._session.team, new))]
            for message in said:
                sign(message, row["request"].get("author"))
            messages += said
            self.texts += [message.text for message in new]
            taken.append((row["run_id"], lease.last_seq + len(messages)))
        if waiting and not taken:
            return
        writer.transcript.came_in(messages)
        writer.keyed = True
        await self._session.steer(messages)
        await writer.append(await self._session.capture_turn(), counts=False, also=join_writes(lease, taken))
