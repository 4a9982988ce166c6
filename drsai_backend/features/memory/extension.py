"""`Memory` is the feature: its verbs, `drsai.extension(Memory).add(…)`, its tools, its job and its routes."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Final

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.database.locks import alone
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import Conflict, DrSaiError, InvalidRequest, NotFound, TeamBuildError, UnknownModel
from drsai_backend.features.base import Extension, read_options
from drsai_backend.features.memory.base import (
    KIND,
    FoundMemories,
    Level,
    MemoryInfo,
    MemoryKind,
    NewMemory,
    Source,
    shared_by,
)
from drsai_backend.features.memory.checks import check_text, share_of_words
from drsai_backend.lazily import later
from drsai_backend.page import Page, every
from drsai_backend.tools.options import ToolOptions
from drsai_backend.tools.running import current_tool_run
from drsai_backend.work.jobs import cancel, enqueue, finish
from drsai_backend.work.kinds import Job, JobOptions, NewJob

if TYPE_CHECKING:
    from fastapi import APIRouter
    from sqlalchemy.orm import Session

    from drsai_backend.api.joining import Web
    from drsai_backend.catalog import Catalog
    from drsai_backend.database import users
    from drsai_backend.database.hooks import EndedRun
    from drsai_backend.features.memory import extraction, recall, rows
    from drsai_backend.features.memory.extraction import Change
    from drsai_backend.features.memory.recall import RecallOptions
    from drsai_backend.features.memory.rows import Listed, Vectors
    from drsai_backend.runs import Engine
    from drsai_backend.teams.context import RunContext
    from drsai_backend.teams.recall import Recall
else:
    extraction, recall, rows = (
        later(f"drsai_backend.features.memory.{each}") for each in ("extraction", "recall", "rows")
    )
    users = later("drsai_backend.database.users")

log = logging.getLogger("drsai.memory")

UNKNOWN_PERSON: Final = (
    "nothing is remembered here: this user may be many people (nobody is named, or a gateway names none)"
)
_FORGOTTEN: Final = 0.6
"""Part of the words of what is to be forgotten which a memory must have."""
_MOST_FORGOTTEN: Final = 5
"""Memories that one call of the tool forgets."""

_FORGOTTEN_ELSEWHERE: Final = (
    "What is remembered of you like that, if anything, is forgotten. This thread is not yours."
)


class Memory(Extension):
    """What people have said of themselves, across threads. Whoever asks sees their own; those of others do not exist
    here (NotFound). The owner of what all users of a tenant share is `base.shared_by(tenant)`."""

    name = "memory"
    tools = {
        "remember": ToolOptions(idempotent=True, permission=Scope.MEMORY_WRITE),
        "forget": ToolOptions(permission=Scope.MEMORY_DELETE),
    }
    jobs = {KIND: JobOptions(handler="learn", timeout=300.0)}
    _catalog: Catalog

    @property
    def is_on(self) -> bool:
        """Whether anything is learnt from runs (`DRSAI_MEMORY`)."""
        return self.host.settings.memory

    # --- verbs --------------------------------------------------------------------------------------------------------

    async def add(self, owner: Owner, new: NewMemory) -> MemoryInfo:
        """Remember something. What is remembered already, word for word, is returned as it is.

        Raises:
            InvalidRequest: the text cannot be remembered, or seems to hold a secret.
            Conflict: there are 5,000 memories.
        """
        new = replace(new, text=check_text(new.text))
        vectors = await self._vectors(owner, [new.text])
        return await self.host.database.act(partial(rows.add_memory, owner=owner, new=new, vectors=vectors))

    async def change(
        self,
        owner: Owner,
        memory_id: str,
        text: str | None = None,
        kind: MemoryKind | None = None,
        importance: float | None = None,
    ) -> MemoryInfo:
        """Say something anew: what is None stays, and so does the version before, in the history. With the same text,
        so does from where it is known, and since when. Raises as `add`, and NotFound."""
        known = (await self.history(owner, memory_id))[0].text if text is None else check_text(text)
        vectors = await self._vectors(owner, [known])

        def changed(session: Session) -> MemoryInfo:
            alone(session, KIND, *owner)
            before = rows.find(session, owner, [memory_id]).get(memory_id)
            if before is None:
                raise NotFound(f"there is no memory {memory_id!r}", param="memory_id")
            new = NewMemory(
                text=before.text if text is None else known,
                kind=kind or before.kind,
                importance=before.importance if importance is None else importance,
                scope=before.scope,
            )
            if new.text == before.text:  # Who has said it, and when, stays true.
                new = replace(new, origin=before.origin, sources=before.sources, valid_from=before.valid_from)
            return rows.add_memory(session, owner, new, vectors, replaces=memory_id)

        return await self.host.database.act(changed)

    async def list(
        self, owner: Owner, only: Listed | None = None, after: str | None = None, limit: int = 20
    ) -> Page[MemoryInfo]:
        """Return a page of memories, the newest first. Raises InvalidRequest where `after` is no `next`."""
        return await self.host.database.read(
            partial(rows.list_memories, owner=owner, only=only or rows.Listed(), after=after, limit=limit)
        )

    def every(self, owner: Owner) -> AsyncIterator[MemoryInfo]:
        """Yield all current memories, the newest first."""
        return every(lambda after: self.list(owner, None, after, 500))

    async def search(
        self,
        owner: Owner,
        question: str,
        options: RecallOptions | None = None,
        *,
        all_scopes: bool = False,
        on: date | None = None,
        thread: ThreadName | None = None,
    ) -> FoundMemories:
        """Return the memories that fit a question, the best first, as agents are shown them. None is counted as used.

        Args:
            owner: whose.
            question: what they are to be about.
            options: how many, and which.
            all_scopes: those of every scope, whatever `options` says.
            on: the day on which it is asked, from which `last week` is seen; None: today, in UTC.
            thread: what is known in this thread, which may have been rewound; None: what is known.

        Raises:
            InvalidRequest: the question cannot be asked.
        """
        given = options or recall.RecallOptions()
        # Of what is shared, each team has a scope of its own.
        scopes = None if all_scopes or not (owner.user_id or given.scope) else ("", given.scope)
        return await recall.find(self.host, {owner: scopes}, question, given, on=on, thread=thread)

    async def history(self, owner: Owner, memory_id: str) -> Sequence[MemoryInfo]:
        """Return all versions of a memory, the newest first. Raises NotFound."""
        return await self.host.database.read(partial(rows.history, owner=owner, memory_id=memory_id))

    async def delete(self, owner: Owner, memory_id: str) -> None:
        """Forget a memory, with all of its versions. Raises NotFound."""
        await self.host.database.act(partial(rows.delete_memory, owner=owner, memory_id=memory_id))

    async def delete_all(self, owner: Owner) -> int:
        """Forget everything of a person, also what is being learnt; return how many versions there were."""

        def gone(session: Session) -> int:
            cancel(session, owner, KIND)
            return rows.delete_all(session, owner)

        return await self.host.database.act(gone)

    async def learns(self, owner: Owner) -> bool:
        """Return whether anything is learnt from what a person says, where `DRSAI_MEMORY` is set."""
        return (await self.host.database.read(partial(rows.person_of, owner=owner))).learns

    async def set_learns(self, owner: Owner, *, learns: bool) -> None:
        """Keep whether anything is to be learnt from what a person says. What is being learnt is given up."""

        def kept(session: Session) -> None:
            if not learns:  # First: what is learnt is stored with the end of its job, and then changes their row.
                cancel(session, owner, KIND)
            rows.set_learns(session, owner, learns=learns)

        await self.host.database.act(kept)

    # --- tools: who asks is filled in ---------------------------------------------------------------------------------

    async def remember(self, text: str, who: Principal) -> str:
        """Remember something about the user for later conversations, when they ask for it.

        Args:
            text: one sentence about the user, with no more than they said
        """
        if not who.is_one_person:
            return f"Not remembered: {UNKNOWN_PERSON}."
        try:
            made = await self.add(who.owner, NewMemory(text=text, origin="tool"))
        except (InvalidRequest, Conflict) as error:
            return f"Not remembered: {error.message}."
        return f"Remembered: {made.text}"

    async def forget(self, text: str, who: Principal) -> str:
        """Forget what is remembered about the user, when they ask for it. It is gone for good.

        Args:
            text: what is to be forgotten, in words that say it
        """
        if not who.is_one_person:
            return f"Nothing was forgotten: {UNKNOWN_PERSON}."
        # What is being learnt may be what is to be forgotten.
        await self.host.database.act(lambda session: cancel(session, who.owner, KIND))
        owners = [who.owner, *([shared_by(who.tenant)] if self.host.settings.memory_shared else [])]
        found, *_ = await recall.matching(self.host, dict.fromkeys(owners), text, 20)
        fits = [
            each
            for each in found
            if share_of_words(text, each.text) >= _FORGOTTEN
            # Of what is shared, what others said, too, is not theirs to forget.
            and (not each.shared or {source.said_by for source in each.sources} == {who.user_id})
        ][:_MOST_FORGOTTEN]
        for each in fits:
            await self.delete(owners[each.shared], each.memory_id)
        run = current_tool_run()
        if run is not None and run.thread is not None and run.thread.owner != who.owner:
            return _FORGOTTEN_ELSEWHERE  # Whose thread it is would read it.
        if not fits:
            return "Nothing like that is remembered."
        return "Forgotten:\n" + "\n".join(f"- {each.text}" for each in fits)

    # --- recall -------------------------------------------------------------------------------------------------------

    def recall_for(self, run: RunContext, options: Mapping[str, object]) -> Recall:
        given, who = read_options(recall.RecallOptions, self.name, options), run.principal
        whose: dict[Owner, Sequence[str]] = {}
        # On another one's thread, they would read what is remembered of whoever asks.
        if who.is_one_person and run.owner in (None, who.owner):
            whose[who.owner] = ("", given.scope)
        if (level := self._level(run.team, given.shared)) is not None:
            whose[shared_by(who.tenant)] = ("", _shared_scope(level, run.team))
        if not whose or not who.may(Scope.MEMORY_READ):
            return _nothing
        return partial(recall.shown, self.host, whose, given, (run.owner or who.owner).thread(run.thread_id))

    def _level(self, team: str, asked: Level | None) -> Level | None:
        """Return what is shared of a team's runs, and shown in them, where one of its agents asks for a level; None:
        nothing. Raises TeamBuildError: the settings do not allow that."""
        shared = self.host.settings.memory_shared
        if asked is None:
            return shared.get(team)
        if shared.get(team, shared.get("*")) not in (asked, "tenant"):
            text = f"memory: `shared: {asked}` is not allowed for {team!r}: DRSAI_MEMORY_SHARED says what is"
            raise TeamBuildError(text)
        return asked

    async def open(self, engine: Engine) -> None:
        self._catalog = engine.catalog

    async def _level_of_run(self, team: str, definition: int | None) -> Level | None:
        """Return what is shared of a run, by its team as it was then. Raises UnknownModel: this process does not serve
        the team."""
        try:
            recipe = await self._catalog.of_run(team, definition)
            return self._level(team, getattr(recipe.factory, "memory_shared", None))
        except UnknownModel:
            if definition is None:
                raise
        except TeamBuildError:
            pass
        return None

    async def _vectors(self, owner: Owner, texts: Sequence[str]) -> Vectors | None:
        """Return vectors of texts; None: there is no endpoint, or it gives none now: keywords find them. Where the
        person's index has none of the model, one that has them takes its place before."""
        embedder, database = self.host.embedder, self.host.database
        if not embedder.available or (model := embedder.model) is None:
            return None

        async def made(of: Sequence[str]) -> dict[str, bytes]:
            return dict(zip(of, await embedder.embed(owner, of), strict=True))

        try:
            of = await made(texts)
            vectors = known = rows.Vectors(model, len(of[texts[0]]) // 4, of)
            if await database.read(partial(rows.is_to_rebuild, owner=owner, vectors=vectors)):
                part = partial(rows.rebuild, owner=owner)
                while (more := await database.write_apart(partial(part, vectors=known))) is not None:
                    known = replace(vectors, of=await made(more)) if more else known
        except DrSaiError as error:
            log.warning("memories have no vectors for now: %s", error.message)
            return None
        return vectors

    # --- learning -----------------------------------------------------------------------------------------------------

    def run_ended(self, session: Session, run: EndedRun) -> None:
        """Have it learnt what a known person has said in the run."""
        if not run.status.is_final or (asked := rows.asker_of(session, run.name.owner, run.run_id)) is None:
            return
        who, team, definition = asked
        if not who.is_one_person or not rows.person_of(session, who.owner).learns:
            return
        if who.owner != run.name.owner and not users.owns_anything(session, who.owner):
            return  # They were deleted meanwhile.
        where = {"thread_id": run.name.thread_id, "user_id": run.name.user_id, "run_id": run.run_id}
        enqueue(session, who.owner, NewJob(KIND, f"{run.run_id}:{run.epoch}", where))
        if {team, "*"} & self.host.settings.memory_shared.keys():
            of_all = {**where, "team": team, "definition": definition}
            enqueue(session, who.owner, NewJob(KIND, f"{run.run_id}:{run.epoch}:shared", of_all))

    def user_deleted(self, session: Session, owner: Owner) -> int:
        """Forget everything, with what is being learnt: a job that stores it now is waited for; and of what is shared,
        what they have said."""
        return cancel(session, owner, KIND) + rows.delete_all(session, owner) + rows.delete_said_by(session, owner)

    def export_user(self, session: Session, owner: Owner) -> Iterable[tuple[str, bytes]]:
        """Return what is shared of their words; what is theirs alone is in the rows of the table."""
        lines = [each.model_dump_json().encode() + b"\n" for each in rows.said_by(session, owner)]
        return [("shared.jsonl", b"".join(lines))] if lines else []

    async def learn(self, job: Job) -> None:
        """Learn from a run. All that comes of it is stored with the end of the job, or nothing is.

        Raises:
            Exception: what the model client raises: it is tried again.
        """
        where = job.payload
        thread = ThreadName(job.owner.tenant, where["user_id"], where["thread_id"])
        author, other = (None, None) if thread.owner == job.owner else (job.owner.user_id, thread.user_id)
        said = await self.host.database.read(partial(rows.said_in, name=thread, run_id=where["run_id"], author=author))
        if not said or not await self.learns(job.owner):
            return
        source = Source(thread_id=thread.thread_id, run_id=where["run_id"], seq=0, quote="", user_id=other)
        owner, scope = job.owner, ""
        if (team := where.get("team")) is not None:
            if (level := await self._level_of_run(team, where["definition"])) is None:
                return
            owner, scope, source.said_by = shared_by(owner.tenant), _shared_scope(level, team), owner.user_id
        found = await extraction.candidates(self.host, job.owner, said, source, scope)
        if not found:
            return
        vectors = await self._vectors(owner, [each.text for each in found])
        near: list[tuple[NewMemory, Sequence[MemoryInfo]]] = []
        for each in found:
            known, *_ = await recall.matching(self.host, {owner: [scope]}, each.text, extraction.NEAREST)
            near.append((each, known))
        changes = await extraction.decide(self.host, job.owner, near)
        if changes:
            await self.host.database.write(partial(store, job=job, changes=changes, vectors=vectors, owner=owner))

    # --- routes -------------------------------------------------------------------------------------------------------

    def routes(self, web: Web) -> APIRouter:
        from drsai_backend.features.memory.routes import memory_routes

        return memory_routes(self, web)


async def _nothing(_: str) -> None:
    """Recall nothing: who asks may be many people, or may not see it, or others would."""


def store(session: Session, job: Job, changes: Sequence[Change], vectors: Vectors | None, owner: Owner) -> None:
    """Store what was decided of an owner's memories, with the end of the job: once, whoever is killed."""
    from drsai_backend.features.memory import rows

    finish(session, job)
    alone(session, KIND, *owner)
    for each in changes:
        since = each.new.valid_from
        known = rows.find(session, owner, [each.memory_id or ""]).get(each.memory_id or "")
        if known is not None and since is not None and known.valid_from > since:
            continue  # It was said before the memory that it would end or take the place of.
        try:
            if each.action != "invalidate":
                # What would take the place of a memory that was forgotten meanwhile is new.
                rows.add_memory(session, owner, each.new, vectors, replaces=known and known.memory_id)
            elif known is not None:
                rows.end_memory(session, owner, known.memory_id, "invalidate", since)
        except Conflict as error:
            log.warning("something was not learnt: %s", error.message)
            return


def _shared_scope(level: str, team: str) -> str:
    """Return under which name a team's runs keep what is shared: its own, or that of all teams of the tenant."""
    return team if level == "team" else ""
