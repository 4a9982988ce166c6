"""The same run as it is served: a fresh team for every run, through the engine, everything stored."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from autogen_agentchat.teams import BaseGroupChat

from benchmarks.teams import InstantClient, Texts, our_team
from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.datamodel import RunStatus
from drsai_backend.drsai import DrSai
from drsai_backend.runs import InputMessage
from tests.support.asks import Asked, asks

USER = "bench"
TEAM = "pair"


class Served:
    """A `DrSai` with one team, or with the `teams` that are given. Use it as `async with Served(url) as served`.

    `writes` counts the write transactions.
    """

    def __init__(
        self,
        url: str,
        teams: Mapping[str, Any] | None = None,
        *,
        stream: bool = False,
        vision: bool = True,
        **settings: Any,
    ) -> None:
        self._client = InstantClient(vision=vision)
        self._stream = stream
        self._texts = Texts()
        self._drsai = DrSai(teams or {TEAM: self._team}, url, settings=Settings(database_url=url, **settings))
        self.engine = self._drsai.engine
        self.database = self._drsai.database
        self.db = self._drsai.db
        self.writes = 0
        write = self.database.write

        async def counted(fn: Any, **options: Any) -> Any:
            self.writes += 1
            return await write(fn, **options)

        self.database.write = counted  # type: ignore[method-assign]

    def _team(self) -> BaseGroupChat:
        return our_team(self._client, stream=self._stream)

    def request(self, thread_id: str, team: str = TEAM) -> Asked:
        text = self._texts.next()
        return asks(
            team,
            [InputMessage("user", text)],
            Principal(USER),
            thread_id=thread_id,
            stream=self._stream,
            raw_messages=[{"role": "user", "content": text}],
        )

    async def run(self, thread_id: str, team: str = TEAM) -> None:
        """One run, to its stored end."""
        handle = await self.engine.start(*self.request(thread_id, team))
        end = await handle.wait()
        assert end.status is RunStatus.COMPLETED, end

    async def fill(self, thread_id: str, runs: int) -> None:
        """Bring a thread to that many runs."""
        for _ in range(runs):
            await self.run(thread_id)

    async def idle(self) -> None:
        """Wait until nothing is left to do behind the runs: a snapshot, for one."""
        if self.engine._running._tasks:
            await asyncio.wait(self.engine._running._tasks)

    async def __aenter__(self) -> Self:
        await self._drsai.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._drsai.close()
