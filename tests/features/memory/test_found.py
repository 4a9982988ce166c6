"""What is recalled: by vectors where words do not fit, the same after a SIGKILL, for a bounded number of statements;
and what the command line shows of it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from drsai_backend import DrSai, DrSaiAgent, RunContext
from drsai_backend.access.principal import Principal
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory import rows
from drsai_backend.features.memory.base import NewMemory, shared_by
from drsai_backend.features.memory.extension import Memory
from drsai_backend.features.memory.recall import RecallOptions
from tests.features.memory.learning import ANN, aged, current, learnt
from tests.features.memory.scripted import FIND
from tests.features.memory.test_recall import Listener
from tests.support.commands import Commands, clean_environment
from tests.support.model_server import ModelRequest, ModelServer, Reply
from tests.support.scripted import ScriptedClient
from tests.support.threads import LATE, settings, until

NEAR = {"dog": 0, "Rex": 0, "pet": 0, "animal": 0, "tea": 1, "drink": 1, "beverage": 1, "Lisbon": 2, "home": 2}
"""What words are about, as the scripted embeddings have it."""


def meaning(request: ModelRequest) -> dict[str, Any]:
    """Return vectors of what texts are about, of 4 numbers, whatever their words are."""
    given: Any = request.body["input"]
    vectors: list[str] = []
    texts: list[str] = [given] if isinstance(given, str) else given
    for text in texts:
        vector = [0.0, 0.0, 0.0, 0.01]
        for word, at in NEAR.items():
            vector[at] += word.casefold() in text.casefold()
        vectors.append(base64.b64encode(struct.pack("<4f", *vector)).decode())
    data = [{"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(vectors)]
    return {"object": "list", "data": data, "model": request.model, "usage": {"prompt_tokens": 1, "total_tokens": 1}}


async def test_vectors_find_what_words_do_not(make: Callable[..., DrSai], model: ModelServer) -> None:
    model.embedded = meaning
    ear, texts = Listener(), ("The user has a dog called Rex.", "The user likes tea.", "The user lives in Lisbon.")
    async with make({"ear": ear}, memory=False) as drsai:
        for text in texts:
            await drsai.extension(Memory).add(ANN, NewMemory(text=text))
        await drsai.user("ann").run("ear", "Which animal waits for me?")
    async with make({"ear": ear}, memory=False, embeddings_model="small") as drsai:
        memory = drsai.extension(Memory)
        # They were stored without vectors, and get them with the next one.
        await memory.add(ANN, NewMemory(text="The user owns a boat."))
        for question, answer in (
            ("Which animal waits for me?", texts[0]),
            ("Order a beverage.", texts[1]),
            ("Take me home.", texts[2]),
        ):
            found = await memory.search(ANN, question)
            assert (found.items[0].memory.text, found.notes) == (answer, [])
        await drsai.user("ann").run("ear", "Which animal waits for me?")
        # A model of other dimensions embeds anew with the next one; until then words find what they can.
        model.embedded = lambda request: longer(meaning(request))
    async with make({"ear": ear}, memory=False, embeddings_model="large") as drsai:
        memory = drsai.extension(Memory)
        assert (await memory.search(ANN, "Which animal waits for me?")).items == []
        assert (await memory.search(ANN, "Rex?")).items[0].memory.text == texts[0]
        await aged(drsai)
        await memory.add(ANN, NewMemory(text="The user owns a house."))
        assert (await memory.search(ANN, "Which animal waits for me?")).items[0].memory.text == texts[0]
    assert ["Rex" in each for each in ear.shown] == [False, True]


async def test_old_vectors_serve_while_the_endpoint_has_their_model(
    make: Callable[..., DrSai], model: ModelServer
) -> None:
    """Also beside vectors of the new model, of what all share."""
    model.embedded = lambda request: meaning(request) if request.model == "small" else longer(meaning(request))
    shared, options = shared_by("default"), RecallOptions(scope="ear")
    async with make(memory=False, embeddings_model="small") as drsai:
        await drsai.extension(Memory).add(ANN, NewMemory(text="The user has a dog called Rex."))
    ear = Listener()
    async with make({"ear": ear}, memory_shared={"ear": "tenant"}, memory=False, embeddings_model="large") as drsai:
        memory = drsai.extension(Memory)
        await memory.add(shared, NewMemory(text="Tea is in the kitchen."))
        found = await memory.search(ANN, "Which animal waits for me?", options)
        assert [each.memory.text for each in found.items] == ["The user has a dog called Rex."]
        assert found.notes == []
        await drsai.user("ann").run("ear", "Which beverage has the animal that waits?")
        assert "Rex" in ear.shown[-1]
        assert "Tea" in ear.shown[-1]
        # With the next one all are embedded anew.
        await aged(drsai)
        await memory.add(ANN, NewMemory(text="The user likes tea."))
        person = await drsai.database.read(partial(rows.person_of, owner=ANN))
        assert (person.model, person.dimensions) == ("large", 8)
        assert (await memory.search(ANN, "Which animal waits for me?")).items[0].memory.text.endswith("Rex.")


def longer(answer: dict[str, Any]) -> dict[str, Any]:
    for each in answer["data"]:
        each["embedding"] = base64.b64encode(
            base64.b64decode(each["embedding"]) + struct.pack("<4f", 0, 0, 0, 0)
        ).decode()
    return answer


async def test_it_is_learnt_while_the_vectors_are_of_another_model(
    make: Callable[..., DrSai], model: ModelServer
) -> None:
    model.embedded = meaning
    async with make(embeddings_model="small") as drsai:
        await drsai.extension(Memory).add(ANN, NewMemory(text="The user likes tea."))
    model.embedded = lambda request: longer(meaning(request))
    async with make(embeddings_model="large") as drsai:
        await drsai.user("ann").run("assistant", "I live in Lisbon.", thread_id="t")
        await learnt(drsai)
        assert await current(drsai) == ["The user likes tea.", "The user lives in Lisbon."]


def _shown(request: ModelRequest) -> list[str]:
    return re.findall(r"\[memory\].*?\[/memory\]", json.dumps(request.body, ensure_ascii=False), re.DOTALL)


def test_a_turn_that_is_repeated_after_a_kill_shows_the_same(
    commands: Commands, database_url: str, tmp_path: Path
) -> None:
    async def remembered(change: Callable[[Memory], Any]) -> None:
        drsai = DrSai(None, database_url, settings=settings())  # It is not opened: it would take the run over.
        await change(drsai.extension(Memory))
        await drsai.close()

    with ModelServer() as model:
        answers: list[Reply] = [Reply("I think", hang=True)]
        model.script(FIND, lambda request: '{"facts": []}')
        model.script(None, lambda request: answers.pop() if answers else Reply("It is Rex."))

        def asked() -> list[ModelRequest]:
            return [request for request in model.requests if _shown(request)]

        asyncio.run(remembered(lambda memory: memory.add(ANN, NewMemory(text="The user has a dog called Rex."))))

        async def after(count: int, *arguments: str) -> None:
            program = ("-m", "tests.features.memory.program", database_url, model.base_url, *arguments)
            process = commands.program(*program, cwd=tmp_path, env=clean_environment())
            await until(lambda: _so(len(asked()) == count or not process.running), seconds=60)
            assert len(asked()) == count, process.stderr
            process.die()

        asyncio.run(after(1, "What is my dog called?"))

        async def changed(memory: Memory) -> None:
            [known] = [each async for each in memory.every(ANN)]
            await memory.change(ANN, known.memory_id, "The user has a dog called Max.")
            await memory.add(ANN, NewMemory(text="The dog of the user is brown."))

        asyncio.run(remembered(changed))
        asyncio.run(after(2))
        before, repeated = map(_shown, asked())
        assert before == repeated
        assert "Rex" in before[0]


async def _so(value: bool) -> bool:
    return value


@pytest.fixture
def executed(database_url: str) -> Iterator[list[str]]:
    """What the database is given: on SQLite all of it, else what is not prepared, as all of memory is."""
    told: list[str] = []

    def trace(connection: Any, _: object) -> None:
        connection.set_trace_callback(told.append)

    def note(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        told.append(statement)

    listener = ("connect", trace) if database_url.startswith("sqlite") else ("before_cursor_execute", note)
    event.listen(Engine, *listener)
    yield told
    event.remove(Engine, *listener)


def indeed(messages: Sequence[Any], options: dict[str, Any]) -> str:
    return "Indeed."


def deaf(context: RunContext) -> DrSaiAgent:
    return DrSaiAgent("ear", ScriptedClient(indeed), system_message="Listen.")


async def test_a_run_without_memory_costs_no_statement_more_and_with_it_a_bounded_number(
    database_url: str, executed: list[str]
) -> None:
    ear = Listener()
    async with DrSai({"ear": ear, "deaf": deaf}, database_url, settings=settings(**LATE)) as drsai:
        memory, ann = drsai.extension(Memory), drsai.user("ann")

        async def statements(team: str) -> list[str]:
            counts: list[list[str]] = []
            for _ in range(5):  # Some runs write a snapshot; the first ones prepare what is used again.
                executed.clear()
                await ann.run(team, "What do I drink?", thread_id=team)
                counts.append([each for each in executed if each not in ("COMMIT", "ROLLBACK")])
            return min(counts, key=len)

        async def learn(numbers: range) -> None:
            for number in numbers:
                await memory.add(ANN, NewMemory(text=f"The user does drink tea number {number}."))

        nothing, unknown = await statements("deaf"), await statements("ear")
        await learn(range(40))
        few = await statements("ear")
        await learn(range(40, 120))
        many, still = await statements("ear"), await statements("deaf")
    assert len(still) <= max(len(nothing), 1)  # A look of housekeeping may be among them.
    assert not any("memory" in each for each in still)
    assert len(unknown) - len(nothing) <= 4
    assert len(many) <= len(few) + 1
    assert len(many) - len(still) <= 20, "\n".join(many)


def test_on_the_command_line(commands: Commands, database_url: str, tmp_path: Path) -> None:
    async def fill() -> list[str]:
        async with DrSai(None, database_url, settings=settings(**LATE)) as drsai:
            memory = drsai.extension(Memory)
            texts = ("The user likes tea.", "The user lives in Porto.", "The user has a [bold]dog[/].")
            made = [(await memory.add(ANN, NewMemory(text=text))).memory_id for text in texts]
            await memory.change(ANN, made[1], "The user lives in Hamburg.")
            await memory.add(Owner("default", "bob"), NewMemory(text="The user likes coffee."))
            await memory.add(Owner("default", ""), NewMemory(text="The office has a green door."))
            return made

    def told(*arguments: str, code: int = 0) -> str:
        command = commands.start("memory", *arguments, "--database-url", database_url, cwd=tmp_path)
        assert command.wait(60) == code, command.stderr
        return command.stdout + (command.stderr if code else "")

    [tea, home, dog] = asyncio.run(fill())
    ann = ("--user", "ann")
    listed = json.loads(told("list", *ann, "--json"))
    assert [each["memory_id"] for each in listed] == [home, dog, tea]
    shown = told("list", *ann)
    assert "The user has a [bold]dog[/]." in shown
    assert "coffee" not in shown
    assert "Hamburg" in told("search", "Where do I live?", *ann)
    versions = json.loads(told("show", home, *ann, "--json"))
    assert [each["text"] for each in versions] == ["The user lives in Hamburg.", "The user lives in Porto."]
    assert [json.loads(line)["text"] for line in told("export", *ann).splitlines()] == [
        "The user lives in Hamburg.",
        "The user has a [bold]dog[/].",
        "The user likes tea.",
    ]
    assert "no memory" in told("show", tea, "--user", "bob", code=1)
    assert "forgot" in told("remove", tea, *ann, "--yes")
    assert "no memory" in told("show", tea, *ann, code=1)
    assert "forgot 3 versions" in told("remove", "--all", *ann, "--yes")
    assert told("export", *ann) == ""
    assert "green door" in told("list", "--shared")
    assert "--shared" in told("list", code=2)


async def test_the_tool_forgets_from_six_words_of_ten_on(database_url: str) -> None:
    """And five memories at most: `test_verbs` has that."""
    async with DrSai(None, database_url, settings=settings(**LATE)) as drsai:
        memory, who = drsai.extension(Memory), Principal("ann")
        text = "Gardens hold apples, cherries, lemons."
        await memory.add(ANN, NewMemory(text=text))
        missing = "Nothing like that is remembered."
        assert await memory.forget("apples cherries tulips roses violets", who) == missing  # 2 of 5
        assert text in await memory.forget("apples cherries lemons tulips roses", who)  # 3 of 5
