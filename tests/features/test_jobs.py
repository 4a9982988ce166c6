"""Jobs of an extension: enqueued in its transactions and in those of runs, done by its methods, gone with the user."""

from __future__ import annotations

import asyncio
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.hooks import EndedRun
from drsai_backend.datamodel import WorkJob, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import InvalidRequest
from drsai_backend.features.base import Extension
from drsai_backend.work.jobs import enqueue, finish
from drsai_backend.work.kinds import Job, JobOptions, NewJob
from drsai_backend.work.workers import Workers
from tests.features.conftest import Extended
from tests.support.teams.crew import Crew
from tests.work.conftest import Doing, until

ANN = Owner("acme", "ann")


class Echo(Extension):
    """Says again what runs have ended with; a job that is called `wrong` fails."""

    name = "echo"
    jobs = {"echo": JobOptions(handler="say", failed="given_up", retry_seconds=())}

    def __init__(self, host: Any) -> None:
        super().__init__(host)
        self.said: list[str] = []
        self.doing = Doing()
        self.doing.go.set()

    async def add(self, owner: Owner, key: str) -> None:
        await self.host.database.write(lambda session: enqueue(session, owner, NewJob("echo", key, {"text": key})))
        self.host.work.wake()

    def run_ended(self, session: Session, run: EndedRun) -> None:
        enqueue(session, run.name.owner, NewJob("echo", f"{run.run_id} {run.epoch}", {"text": run.status.value}))

    async def say(self, job: Job) -> None:
        await self.doing(job)
        if job.key == "wrong":
            raise InvalidRequest("it is wrong")

        def store(session: Session) -> None:
            finish(session, job)
            self.said.append(job.payload["text"])

        await self.host.database.write(store)

    def given_up(self, session: Session, job: Job, error: str) -> None:
        self.said.append(f"{job.key}: {error}")


async def test_jobs_are_done_by_the_methods_of_the_extension(extended: Extended) -> None:
    drsai = await extended({"crew": Crew()}, Echo)
    echo = drsai.extension(Echo)
    await asyncio.sleep(0.1)  # It has looked: nothing is due for a minute but what wakes it.
    await echo.add(ANN, "hello")
    await until(lambda: echo.said == ["hello"])
    await echo.add(ANN, "wrong")
    await until(lambda: echo.said == ["hello", "wrong: it is wrong"])


async def test_the_end_of_a_run_enqueues_one(extended: Extended) -> None:
    drsai = await extended({"crew": Crew()}, Echo, sweep_seconds=0.05)
    await drsai.run("crew", "x", thread_id="t")
    await until(lambda: drsai.extension(Echo).said == ["completed"])


async def test_with_a_user_their_jobs_go_and_what_is_done_of_them_is_not_stored(extended: Extended) -> None:
    drsai = await extended({"crew": Crew()}, Echo)
    echo = drsai.extension(Echo)
    echo.doing.go.clear()
    for key in ("a", "b"):
        await echo.add(ANN, key)
    await echo.add(Owner("acme", "bob"), "c")
    await echo.doing.has_begun()
    listed = await drsai.users.list("acme")
    assert [each.user_id for each in listed.items] == ["ann", "bob"]
    assert await drsai.users.delete(ANN) == {"jobs": 2}
    echo.doing.go.set()
    await until(lambda: echo.said == ["c"])

    def rows(session: Session) -> list[Any]:
        return [*session.execute(sa.select(table_of(WorkJob))).all()]

    async def none() -> bool:
        return await drsai.database.read(rows) == []

    await until(none)
    assert echo.said == ["c"]


async def test_without_kinds_nothing_begins(extended: Extended) -> None:
    def working() -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() if task.get_name().startswith("drsai work")}

    class Without(Extension):
        name = "without"

    drsai = await extended({"crew": Crew()}, Without)
    before = working()  # Of features that come along.
    host = drsai.extension(Without).host
    workers = Workers(host.database, host.settings)
    workers.start(())
    workers.wake()
    assert working() == before
    await workers.stop()
