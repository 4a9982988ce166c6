"""Memories over HTTP, by tools, and as AutoGen's `Memory`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from autogen_core import FunctionCall
from autogen_core.memory import MemoryContent
from autogen_core.model_context import UnboundedChatCompletionContext
from autogen_core.models import UserMessage
from sqlalchemy.orm import Session

from drsai_backend import AssistantAgent, DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel import AutoGenMessage, WorkJob, table_of, utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.autogen import DrSaiMemory
from drsai_backend.features.memory.base import KIND, NewMemory, Source
from drsai_backend.features.memory.extension import Memory, store
from drsai_backend.features.memory.extraction import Action, Change
from drsai_backend.tools.builtin import builtin_tools
from drsai_backend.work.jobs import enqueue, states
from drsai_backend.work.kinds import Job, NewJob
from tests.support.repeated import Story
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import LATE, settings

ANN = Owner("default", "ann")


@pytest.fixture
async def drsai(database_url: str) -> AsyncIterator[DrSai]:
    async with DrSai(None, database_url, settings=settings(**LATE)) as made:
        yield made


async def test_over_http(drsai: DrSai) -> None:
    transport = httpx.ASGITransport(drsai.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test", params={"user": "ann"}) as http:
        made = (await http.post("/v1/memories", json={"text": "The user lives in Porto.", "kind": "fact"})).json()
        path = f"/v1/memories/{made['id']}"
        secret = await http.post("/v1/memories", json={"text": "The card is 4111 1111 1111 1111."})
        assert secret.status_code == 400
        assert "4111" not in secret.text
        changed = (await http.patch(path, json={"text": "The user lives in Hamburg."})).json()
        assert (changed["id"], changed["text"]) == (made["id"], "The user lives in Hamburg.")
        history = (await http.get(f"{path}/history")).json()["data"]
        assert [each["ended_by"] for each in history] == [None, "update"]
        [found] = (await http.get("/v1/memories/search", params={"query": "Where do I live?"})).json()["data"]
        assert found["text"] == "The user lives in Hamburg."
        assert "Hamburg" in (await http.get("/v1/memories/export")).text
        assert (await http.get(path, params={"user": "bob"})).status_code == 404
        assert (await http.get("/v1/memories/a%00b")).status_code == 404
        nobody = await http.post("/v1/memories", json={"text": "x y"}, params={"user": "anonymous"})
        assert nobody.status_code == 403
        settings_ = (await http.patch("/v1/memories/settings", json={"learns": False})).json()
        assert (settings_["enabled"], settings_["learns"]) == (False, False)
        await drsai.user("ann").run("assistant", "Hello, where do I live?", thread_id="t")
        short = (await http.get("/v1/threads/t/memory")).json()
        assert short["messages"][0]["content"] == "Hello, where do I live?"
        told = (await http.get("/api/v1/agent/memory/t", params={"query": "live"})).json()
        assert [each["content"] for each in told["long_term"]] == ["The user lives in Hamburg."]
        assert {"short_term", "long_term"} == {each["type"] for each in told["combined"]}
        assert all({"content", "score", "days_ago"} <= each.keys() for each in told["combined"])
        assert (await http.delete("/v1/memories")).json()["versions"] == 2
        assert (await http.get("/v1/memories")).json()["data"] == []


async def test_a_search_without_a_scope_finds_those_of_all(drsai: DrSai) -> None:
    memory = drsai.extension(Memory)
    for scope in ("", "work", "home"):
        await memory.add(ANN, NewMemory(text=f"The user drinks tea, {scope or 'always'}.", scope=scope))
    transport = httpx.ASGITransport(drsai.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test", params={"user": "ann"}) as http:

        async def found(**query: str) -> set[str]:
            answer = await http.get("/v1/memories/search", params={"query": "tea", **query})
            assert answer.status_code == 200, answer.text
            return {each["scope"] for each in answer.json()["data"]}

        assert await found() == {"", "work", "home"}
        assert await found(scope="work") == {"", "work"}
        assert await found(scope="") == {""}
    # As an agent without a scope is shown it.
    assert {each.memory.scope for each in (await memory.search(ANN, "tea")).items} == {""}


async def test_what_changes_by_its_importance_or_kind_keeps_who_said_it_and_when(drsai: DrSai) -> None:
    memory = drsai.extension(Memory)
    said = [Source(thread_id="t", run_id="r", seq=3, quote="I live in Porto.")]
    since = utcnow() - timedelta(days=30)
    new = NewMemory(text="The user lives in Porto.", origin="run", sources=said, valid_from=since)
    path = f"/v1/memories/{(await memory.add(ANN, new)).memory_id}"
    transport = httpx.ASGITransport(drsai.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test", params={"user": "ann"}) as http:
        same = ("origin", "sources", "valid_from")
        before = (await http.get(path)).json()
        for change in ({"importance": 0.9}, {"kind": "preference"}, {"text": before["text"], "importance": 0.7}):
            changed = (await http.patch(path, json=change)).json()
            assert {**changed, **change} == changed
            assert {name: changed[name] for name in same} == {name: before[name] for name in same}
            before = changed
        _, *over = await memory.history(ANN, path.removeprefix("/v1/memories/"))
        # Each was true until it was said anew.
        assert [each.valid_to for each in over] == [each.expired_at for each in over]
        other = (await http.patch(path, json={"text": "The user lives\nin  Hamburg."})).json()
        assert (other["text"], other["origin"], other["sources"]) == ("The user lives in Hamburg.", "api", [])
        assert other["valid_from"] > before["valid_from"]


async def test_a_conversation_is_searched_as_chats_are(database_url: str) -> None:
    """By its speakers, by the messages before one, and by days."""
    answers = iter(("To Lisbon.", "Fine.", "You too."))
    client = ScriptedClient(lambda messages, options: next(answers))
    async with DrSai({"ear": lambda: AssistantAgent("ear", client)}, database_url, settings=settings(**LATE)) as made:
        await _search_a_conversation(made)


async def _search_a_conversation(drsai: DrSai) -> None:
    said = ("Where are you off to?", "To Lisbon.", "We went to Porto yesterday.", "Fine.", "Sleep well.", "You too.")
    for text in said[::2]:
        await drsai.user("ann").run("ear", text, thread_id="t")
    today = utcnow().date()
    for number, text in enumerate(said):  # A day each, the last one today.
        at = utcnow() - timedelta(days=len(said) - 1 - number)
        await drsai.database.write(partial(_said_at, text=text, at=at))
    await drsai.extension(Memory).add(ANN, NewMemory(text="The user was in Porto."))
    transport = httpx.ASGITransport(drsai.app())
    async with httpx.AsyncClient(transport=transport, base_url="http://test", params={"user": "ann"}) as http:

        async def best(query: str, on: str | None = None) -> str:
            params = {"query": query} | ({} if on is None else {"on": on})
            told = (await http.get("/api/v1/agent/memory/t", params=params)).json()
            return max(told["short_term"], key=lambda each: each["score"])["content"]

        assert await best("Off to Lisbon, where?") == "To Lisbon."
        assert await best("What was said yesterday?") == "Sleep well."
        assert await best("What was said yesterday?", str(today - timedelta(days=1))) == "Fine."
        assert await best("What was 4 days ago?") in ("To Lisbon.", "We went to Porto yesterday.")
        for path in ("/api/v1/agent/memory/t", "/v1/memories/search"):
            for wrong in ("2025-02-30", "yesterday", "1700000000", ""):
                refused = await http.get(path, params={"query": "Porto", "on": wrong})
                assert refused.status_code in (400, 422)
                assert "on" in refused.text
        for on, count in ((str(today + timedelta(days=1)), 1), (str(today), 0)):
            found = await http.get("/v1/memories/search", params={"query": "Yesterday?", "on": on})
            assert len(found.json()["data"]) == count


def _said_at(session: Session, text: str, at: datetime) -> None:
    m = table_of(AutoGenMessage)
    session.execute(sa.update(m).where(m.c.config["content"].as_string() == text).values(created_at=at))


async def test_tools_remember_and_forget(drsai: DrSai) -> None:
    memory = drsai.extension(Memory)
    assert await memory.remember("The user likes tea.", Principal("ann")) == "Remembered: The user likes tea."
    assert "Not remembered" in await memory.remember("my password is hunter2", Principal("ann"))
    assert "Not remembered" in await memory.remember("The user likes tea.", Principal())
    await memory.add(ANN, NewMemory(text="The user has a dog called Rex."))
    assert await memory.forget("my dog Rex", Principal("ann")) == "Forgotten:\n- The user has a dog called Rex."
    assert await memory.forget("my dog Rex", Principal("ann")) == "Nothing like that is remembered."
    assert [each.text async for each in memory.every(ANN)] == ["The user likes tea."]


async def test_the_tool_forgets_little_at_once_and_what_is_being_learnt(drsai: DrSai) -> None:
    memory = drsai.extension(Memory)
    for number in range(7):
        await memory.add(ANN, NewMemory(text=f"The user keeps {number} horses."))
    await memory.add(ANN, NewMemory(text="The user likes green tea."))
    await drsai.database.act(lambda session: enqueue(session, ANN, NewJob(KIND, "run:1", {}, after=600)))
    assert await memory.forget("I grow green beans", Principal("ann")) == "Nothing like that is remembered."
    assert (await memory.forget("keeps horses", Principal("ann"))).count("horses") == 5
    assert len([each async for each in memory.every(ANN)]) == 3
    assert await drsai.database.read(lambda session: states(session, ANN, KIND, ["run:1"])) == {}


async def test_a_call_of_forget_that_was_cut_is_not_made_again_of_itself(drsai: DrSai) -> None:
    """It would forget what comes next."""
    memory, owner = drsai.extension(Memory), Owner("default", "u")
    for number in range(7):
        await memory.add(owner, NewMemory(text=f"The user keeps {number} horses."))

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
        is_done = messages[-1].type == "FunctionExecutionResultMessage"
        return "Done." if is_done else [FunctionCall("c0", '{"text": "keeps horses"}', "forget")]

    def build() -> AssistantAgent:
        return AssistantAgent("ann", ScriptedClient(rule), tools=builtin_tools(["forget"]), max_tool_iterations=2)

    provided = {"own_tools": drsai.engine._services.own_tools}  # pyright: ignore[reportPrivateUsage]
    story = Story(build, provided=provided, answer=lambda question: "result: forgotten", crash_at=2)
    await story.run()
    assert [question.kind for question in story.questions] == ["tool_retry"]
    assert len([each async for each in memory.every(owner)]) == 2


async def test_a_deleted_user_has_no_memories_and_gets_none(drsai: DrSai) -> None:
    memory = drsai.extension(Memory)
    await memory.add(ANN, NewMemory(text="The user likes tea."))
    await drsai.database.act(lambda session: enqueue(session, ANN, NewJob(KIND, "run:1", {}, after=600)))
    assert await drsai.database.act(lambda session: memory.user_deleted(session, ANN)) == 2
    assert [each async for each in memory.every(ANN)] == []


async def test_what_was_said_before_does_not_replace_what_was_said_later(drsai: DrSai) -> None:
    memory = drsai.extension(Memory)
    made = await memory.add(ANN, NewMemory(text="The user lives in Porto."))
    before = made.valid_from - timedelta(days=1)
    old = NewMemory(text="The user lives in Lisbon.", valid_from=before)
    j = table_of(WorkJob).c
    actions: tuple[Action, ...] = ("update", "invalidate")
    for action in actions:
        await drsai.database.act(lambda session: enqueue(session, ANN, NewJob(KIND, "run:1", {}, after=600)))
        [(key, epoch)] = await drsai.database.read(lambda session: [*session.execute(sa.select(j.id, j.epoch))])
        job = Job(key, ANN, KIND, "run:1", {}, 1, epoch, 1, is_last=False)
        change = Change(action, old, made.memory_id)
        await drsai.database.act(partial(store, job=job, changes=[change], vectors=None, owner=ANN))
        assert await memory.history(ANN, made.memory_id) == [made]


async def test_as_a_memory_of_autogen_it_is_put_into_a_context_once(drsai: DrSai) -> None:
    memory = DrSaiMemory(of=(drsai.extension(Memory), ANN))
    await memory.add(MemoryContent(content="The user likes tea.", mime_type="text/plain"))
    context = UnboundedChatCompletionContext()
    await context.add_message(UserMessage(content="Do I like tea?", source="user"))
    for _ in range(3):
        found = await memory.update_context(context)
        assert [each.content for each in found.memories.results] == ["The user likes tea."]
    messages = await context.get_messages()
    assert sum("[memory]" in str(each.content) for each in messages) == 1
    await memory.clear()
    await memory.update_context(context)
    assert len(await context.get_messages()) == 1


async def test_what_is_said_the_same_changes_by_its_importance_and_what_is_long_over_goes(
    drsai: DrSai, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = drsai.extension(Memory)
    monkeypatch.setattr("drsai_backend.features.memory.rows.MAX_PAST", 2)
    made = await memory.add(ANN, NewMemory(text="I drink tea.", importance=0.5))
    for importance in (0.5, 0.6, 0.7, 0.8, 0.9):
        await memory.change(ANN, made.memory_id, "I drink tea.", "fact", importance)
    versions = await memory.history(ANN, made.memory_id)
    assert [each.importance for each in versions] == [0.9, 0.8, 0.7]
