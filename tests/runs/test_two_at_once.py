"""Two verbs at one moment, in two processes on PostgreSQL: as if one had come after the other.

A lock on a table (`Hold`) makes the first wait in the middle of its transaction while the other one comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from drsai_backend import DrSai
from drsai_backend.access.key_store import ApiKeys
from drsai_backend.access.principal import Principal
from drsai_backend.api.http.body import Bodies
from drsai_backend.api.openai import conversations
from drsai_backend.database import api_keys, files, responses, shares, users
from drsai_backend.database import stored_definitions as stored
from drsai_backend.database.runs.commands import leave_waiting
from drsai_backend.database.shares import Grantee
from drsai_backend.datamodel import Right, RunStatus
from drsai_backend.datamodel.audit import PROGRAM
from drsai_backend.datamodel.owner import Owner
from drsai_backend.definitions.stored.store import DefinitionSpec
from drsai_backend.errors import Conflict, DrSaiError, FilesFull, InvalidRequest, JobLost, NotFound
from drsai_backend.features.base import kinds_of_jobs
from drsai_backend.features.knowledge.base import NewFile, NewStore
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from drsai_backend.tools.registered.registry import ToolSpec
from drsai_backend.work.claims import claim, failed
from tests.support.asks import admitted
from tests.support.postgres import Hold, query
from tests.support.teams.crew import Crew
from tests.support.threads import Make, queued

pytestmark = [
    pytest.mark.parametrize("database_url", ["postgresql"], indirect=True),
    pytest.mark.usefixtures("checked"),
]
WHO = Principal()
DELETION = "WITH t AS (DELETE FROM userinput WHERE thread_id = 't') DELETE FROM thread WHERE thread_id = 't'"
SOURCE = "SELECT id FROM thread WHERE thread_id = 't' FOR UPDATE"
Pair = tuple[DrSai, DrSai]


@pytest.fixture
async def pair(make: Make) -> Pair:
    """Two processes; a thread `t` of some messages is there."""
    both = await make({"crew": Crew()}), await make({"crew": Crew()})
    await both[0].run("crew", "x", thread_id="t")
    return both


async def outcome(work: Awaitable[Any]) -> Any:
    """What a verb returned, or the error that it told its caller."""
    try:
        return await work
    except DrSaiError as error:
        return error


async def beside(hold: Hold, first: Awaitable[Any], second: Awaitable[Any]) -> list[Any]:
    """The outcomes of two verbs: the first stands in the middle of its transaction when the second comes."""
    tasks = [asyncio.create_task(outcome(first))]
    await hold.until_wait(1)
    tasks.append(asyncio.create_task(outcome(second)))
    await hold.until_wait(2)
    hold.let_go()
    return await asyncio.gather(*tasks)


# --- what copies or counts beside a deletion -------------------------------------------------------------------------


async def deleted_beside(hold: Hold, verb: Awaitable[Any]) -> Any:
    """The outcome of a verb on the thread: where it does not hold the thread's row in the middle of its transaction,
    the thread is deleted there."""
    task = asyncio.create_task(outcome(verb))
    await hold.until_wait(1)
    if hold.is_free(SOURCE):
        hold.connection.execute(DELETION)
    hold.let_go()
    return await task


@pytest.mark.parametrize("table", ["journalentry", "autogenmessage"])
async def test_a_fork_is_whole_or_none(pair: Pair, database_url: str, table: str) -> None:
    with Hold(database_url, table, "ACCESS EXCLUSIVE") as hold:
        made = await deleted_beside(hold, pair[0].engine.fork(WHO, "t", new_thread_id="f"))
    if not isinstance(made, NotFound):
        assert len(await pair[1].engine.list_messages(WHO, "f", after=0, limit=100)) == made.message_count == 4


async def test_a_share_is_of_a_thread_that_is_there(pair: Pair, database_url: str) -> None:
    with Hold(database_url, "threadshare", "SHARE") as hold:
        made = await deleted_beside(hold, pair[0].engine.share_thread(WHO, "t", Grantee("bob"), Right.READ))
    assert isinstance(made, NotFound) or made.with_user == "bob"


async def test_what_is_shared_is_told_although_the_thread_is_deleted_at_once(pair: Pair) -> None:
    """The answer is made of what was stored, in the same transaction."""
    engine = pair[0].engine
    write = engine.db.database.write

    async def and_deleted(*args: Any, **kwargs: Any) -> Any:
        engine.db.database.write = write  # type: ignore[method-assign]
        made = await write(*args, **kwargs)
        await pair[1].engine.delete_thread(WHO, "t")
        return made

    engine.db.database.write = and_deleted  # type: ignore[method-assign]
    assert (await engine.share_thread(WHO, "t", Grantee("bob"), Right.READ)).with_user == "bob"


async def test_a_share_of_a_thread_that_is_being_deleted_is_not_found(pair: Pair, database_url: str) -> None:
    with Hold(database_url, "apikey", "SHARE") as hold:
        assert hold.is_free(SOURCE)
        hold.connection.execute(DELETION)
        task = asyncio.create_task(outcome(pair[0].engine.share_thread(WHO, "t", Grantee("bob"), Right.READ)))
        await hold.until_wait(1)
        hold.let_go()
    assert isinstance(await task, NotFound)


async def test_a_fork_that_somebody_uses_is_not_undone(pair: Pair, database_url: str) -> None:
    """A request that was refused takes its fork back, but for an input that came at that moment."""
    await pair[0].engine.fork(WHO, "t", new_thread_id="f")
    with Hold(database_url, "apikey", "SHARE") as hold:
        hold.connection.execute("UPDATE thread SET queued = 1 WHERE thread_id = 'f'")
        undone = asyncio.create_task(pair[1].engine._intake._forks.undo(admitted("crew", thread_id="f")))
        await hold.until_wait(1)
        hold.let_go()
        await undone
    assert query(database_url, "UPDATE thread SET queued = 0 WHERE thread_id = 'f' RETURNING thread_id") == [("f",)]


# --- what is changed beside its deletion -----------------------------------------------------------------------------

CREW = {"agents": {"ann": {}}}
HTTP = {"description": "Looks.", "endpoint": {"method": "GET", "url": "https://example.org/"}}


@pytest.mark.parametrize("is_deleted_first", [False, True], ids=["put, delete", "delete, put"])
async def test_a_deleted_definition_does_not_come_back(pair: Pair, database_url: str, is_deleted_first: bool) -> None:
    one, other = (each.engine.agents for each in pair)
    await one.put(WHO, DefinitionSpec("ann", CREW), replaces=False)
    verbs = [one.put(WHO, DefinitionSpec("ann", CREW), replaces=True), other.delete(WHO, "ann")]
    with Hold(database_url, "storeddefinition", "SHARE") as hold:
        made = await beside(hold, *(reversed(verbs) if is_deleted_first else verbs))
    put, deleted = reversed(made) if is_deleted_first else made
    assert deleted is None
    assert isinstance(put, NotFound) == is_deleted_first
    assert isinstance(await outcome(one.get(WHO, "ann")), NotFound)


@pytest.mark.parametrize("is_deleted_first", [False, True], ids=["put, delete", "delete, put"])
async def test_a_deleted_tool_does_not_come_back(pair: Pair, database_url: str, is_deleted_first: bool) -> None:
    one, other = (each.engine.tools for each in pair)
    await one.register(WHO, ToolSpec("look", "http", HTTP))
    verbs = [one.register(WHO, ToolSpec("look", "http", HTTP), replaces=True), other.unregister(WHO, "look")]
    with Hold(database_url, "registeredtool", "SHARE") as hold:
        made = await beside(hold, *(reversed(verbs) if is_deleted_first else verbs))
    put, deleted = reversed(made) if is_deleted_first else made
    assert deleted is None
    assert isinstance(put, NotFound) == is_deleted_first
    assert isinstance(await outcome(one.get(WHO, "look")), NotFound)


# --- what is changed twice -------------------------------------------------------------------------------------------


async def test_two_changes_of_a_memory_both_hold(pair: Pair, database_url: str) -> None:
    one, other = (each.extension(Memory) for each in pair)
    made = await one.add(WHO.owner, NewMemory(text="The user likes tea."))
    with Hold(database_url, "memory", "SHARE") as hold:
        first, second = await beside(
            hold,
            one.change(WHO.owner, made.memory_id, importance=0.1),
            other.change(WHO.owner, made.memory_id, kind="preference"),
        )
    assert (first.importance, second.importance, second.kind) == (0.1, 0.1, "preference")


async def test_of_two_settings_of_a_rule_the_last_holds(pair: Pair, database_url: str) -> None:
    for table, verbs in (
        ("limitrule", [each.limits.set("user", "ann", runs=n) for n, each in enumerate(pair, 1)]),
        ("budgetrule", [each.budgets.set("user", "ann", tokens_day=n) for n, each in enumerate(pair, 1)]),
        ("switch", [each.switches.off("tool", "t", message=f"Off {n}.") for n, each in enumerate(pair, 1)]),
    ):
        with Hold(database_url, table, "SHARE") as hold:
            made = await beside(hold, *verbs)
        assert not [each for each in made if isinstance(each, DrSaiError)]
    assert query(database_url, "SELECT runs FROM limitrule") == [(2,)]
    assert query(database_url, "SELECT tokens_day FROM budgetrule") == [(2,)]
    assert query(database_url, "SELECT message FROM switch") == [("Off 2.",)]


async def test_a_rule_that_is_set_anew_can_be_removed(pair: Pair, database_url: str) -> None:
    one, other = (each.limits for each in pair)
    await one.set("user", "ann", runs=1)
    with Hold(database_url, "limitrule", "SHARE") as hold:
        _, is_removed = await beside(hold, one.set("user", "ann", runs=2), other.remove("user", "ann"))
    assert is_removed is True
    assert query(database_url, "SELECT runs FROM limitrule") == []


async def test_of_two_metas_of_a_thread_the_last_holds(pair: Pair, database_url: str) -> None:
    verbs = [each.engine.set_meta(WHO, "t", {"n": n}) for n, each in enumerate(pair, 1)]
    with Hold(database_url, "threadfield", "SHARE") as hold:
        first, second = await beside(hold, *verbs)
    assert not isinstance(first, DrSaiError)
    assert second.meta == {"n": 2}


async def test_an_input_that_is_no_answer_is_taken_away(pair: Pair, database_url: str) -> None:
    """Whoever finds that it waits from now on, and who takes it out of the queue, do not wait for each other."""
    [run_id] = await queued(pair[0], "later")
    with Hold(database_url, "thread", "SHARE") as hold:
        left, taken = await beside(
            hold,
            pair[0].database.write(lambda session: leave_waiting(session, run_id)),
            pair[1].engine.cancel_run(WHO, run_id),
        )
    assert left is None
    assert taken.status is RunStatus.STOPPED


async def test_a_file_is_taken_out_of_a_store_while_its_last_attempt_fails(pair: Pair, database_url: str) -> None:
    one, knowledge = pair[0], pair[1].extension(Knowledge)
    file = await one.files.create(WHO.owner, "a.md", b"x")
    store = await knowledge.create(WHO.owner, NewStore(name="s"))
    for each in pair:  # Nobody else does it.
        await each.extension(Knowledge).host.work.stop()
    await knowledge.attach(WHO.owner, store.store_id, [NewFile(file_id=file.file_id)])
    kind = next(each for each in kinds_of_jobs(knowledge) if each.name == "knowledge_ingest")
    kind = replace(kind, options=replace(kind.options, retry_seconds=()))
    take = partial(claim, kind=kind, worker="w", lease=timedelta(60), after=WHO.owner)
    job = await one.database.write(take)
    assert job is not None
    with Hold(database_url, "knowledgefile", "SHARE") as hold:
        taken, lost = await beside(
            hold,
            knowledge.detach(WHO.owner, store.store_id, file.file_id),
            one.database.write(partial(failed, kind=kind, job=job, error="no")),
        )
    assert taken is None
    assert isinstance(lost, JobLost)


async def test_a_user_is_deleted_while_their_files_expire(pair: Pair, database_url: str) -> None:
    one, other = (each.engine for each in pair)
    bob = Owner("default", "bob")
    await one.files.create(bob, "a.md", b"x")
    query(database_url, "UPDATE storedfile SET expires_at = now() - interval '1 hour'")
    deletion = partial(users.delete_part, owner=bob, actor=PROGRAM, hooks=one.hooks)
    with Hold(database_url, "storedfile", "SHARE") as hold:
        (deleted, _), swept = await beside(hold, one.db.database.write(deletion), other.files.sweep())
    assert (deleted["files"], swept) == (1, 0)


# --- what is counted against a limit ---------------------------------------------------------------------------------


async def test_the_last_key_is_made_once(pair: Pair, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "MAX_KEYS", 1)
    made = [ApiKeys(each.database).create(Owner("default", "bob"), ["user"]) for each in pair]
    with Hold(database_url, "apikey", "SHARE") as hold:
        first, second = await beside(hold, *made)
    assert isinstance(second, Conflict), first
    assert query(database_url, "SELECT count(*) FROM apikey") == [(1,)]


async def test_the_last_share_is_given_once(pair: Pair, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MAX_SHARES", 1)
    whom = zip(pair, (Grantee("a"), Grantee("b")), strict=True)
    given = [each.engine.share_thread(WHO, "t", grantee, Right.READ) for each, grantee in whom]
    with Hold(database_url, "threadshare", "SHARE") as hold:
        first, second = await beside(hold, *given)
    assert isinstance(second, Conflict), first
    assert query(database_url, "SELECT count(*) FROM threadshare") == [(1,)]


async def test_the_last_definition_is_stored_once(
    pair: Pair, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "definitions", replace(stored.definitions, most=1))
    specs = [DefinitionSpec(name, {"agents": {name: {}}}) for name in ("ann", "bob")]
    put = [each.engine.agents.put(WHO, spec, replaces=False) for each, spec in zip(pair, specs, strict=True)]
    with Hold(database_url, "storeddefinition", "SHARE") as hold:
        first, second = await beside(hold, *put)
    assert isinstance(second, Conflict), first


async def test_the_last_item_of_a_conversation_is_added_once(
    pair: Pair, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "MOST_WAITING", 1)
    made = [conversations._Conversations(_Responses(each)).change(WHO, "t", add=[{}]) for each in pair]  # type: ignore[arg-type]
    with Hold(database_url, "threadfield", "SHARE") as hold:
        first, second = await beside(hold, *made)
    assert isinstance(second, InvalidRequest), first


class _Responses:
    def __init__(self, drsai: DrSai) -> None:
        self.engine = drsai.engine
        self.bodies = Bodies(10**6, 10**6)


async def test_the_last_file_is_kept_once(pair: Pair, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 1)
    kept = [each.engine.files.create(WHO.owner, f"{n}.txt", b"x") for n, each in enumerate(pair)]
    with Hold(database_url, "storedfile", "SHARE") as hold:
        first, second = await beside(hold, *kept)
    assert isinstance(second, FilesFull), first
