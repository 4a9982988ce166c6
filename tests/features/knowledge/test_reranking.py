"""A model puts passages in order, and where it does not, they stay as they were found and the answer says so."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal, Scope
from drsai_backend.features.knowledge.base import Question
from drsai_backend.features.knowledge.extension import Knowledge
from tests.api.conftest import openai_client
from tests.features.knowledge.conftest import QUICK, Filled
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import settings

TEXTS = {"a.md": "Leave leave leave.", "b.md": "Leave of absence.", "c.md": "Thirty days of paid leave a year."}


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
async def drsai(database_url: str, tmp_path: Path, model: ModelServer) -> AsyncIterator[DrSai]:
    file = tmp_path / "models.yaml"
    profiles: dict[str, Any] = {"judge": {"model": "gpt-4o"}, "other": {"model": "gpt-4o-mini"}}
    profiles["both"] = {"model": "gpt-4o", "fallback": ["other"]}
    file.write_text(json.dumps({"profiles": profiles}))
    given = settings(
        **QUICK, database_url=database_url, models=file, OPENAI_BASE_URL=model.base_url, OPENAI_API_KEY="k"
    )
    async with DrSai(settings=given) as drsai:
        yield drsai


async def test_a_model_ranks(client: openai.AsyncOpenAI, filled: Filled, model: ModelServer) -> None:
    store, _ = await filled(TEXTS)

    async def names(ranker: str) -> tuple[list[str], list[str]]:
        found = await client.vector_stores.search(
            store,
            query="leave",
            max_num_results=2,
            ranking_options={"ranker": ranker},  # type: ignore[typeddict-item]
        )
        scores = [each.score for each in found.data]
        assert scores == sorted(scores, reverse=True)
        return [each.filename for each in found.data], [str(each) for each in (found.model_extra or {})["notes"]]

    plain, _ = await names("none")
    assert await names("auto") == (plain, (await names("none"))[1])
    assert not model.requests, "no model was asked"
    model.script(None, lambda _: Reply('{"order": [2]}'))
    ranked, notes = await names("judge")
    [request] = model.requests
    shown = json.loads(request.messages[-1]["content"])
    assert (shown["question"], len(shown["passages"])) == (["leave"], 3)
    last = next(name for name, text in TEXTS.items() if text == shown["passages"][2]["text"])
    assert (ranked, [note for note in notes if "ranker" in note]) == ([last, plain[0]], [])
    for answer in (Reply("I like the second one."), Reply('{"order": [7]}'), Failure(400)):
        model.script(None, lambda _, answer=answer: answer)
        kept, notes = await names("judge")
        assert kept == plain
        assert [note for note in notes if "ranker 'judge'" in note]
    with pytest.raises(openai.BadRequestError, match="there is no ranker 'nobody'"):
        await names("nobody")


async def test_a_search_that_a_model_ranks_needs_what_a_chat_needs(
    client: openai.AsyncOpenAI, filled: Filled, drsai: DrSai, model: ModelServer
) -> None:
    """Its scope, and a request of the limit."""
    store, _ = await filled(TEXTS)
    model.script(None, lambda _: Reply('{"order": [2]}'))

    async def search(client: openai.AsyncOpenAI, ranker: str) -> int:
        options: Any = {"ranker": ranker}
        return len((await client.vector_stores.search(store, query="leave", ranking_options=options)).data)

    reader = Principal("anonymous", scopes=frozenset({Scope.KNOWLEDGE_READ}))
    async with openai_client(drsai.app(lambda _: reader, is_open=True), max_retries=0) as other:
        assert await search(other, "auto") == 3
        with pytest.raises(openai.PermissionDeniedError, match="`chat`"):
            await search(other, "judge")
    await drsai.limits.set("user", "anonymous", requests=1)
    assert await search(client, "judge") == 3
    with pytest.raises(openai.RateLimitError, match="a minute for you"):
        await search(client, "judge")
    with pytest.raises(openai.BadRequestError, match="there is no ranker"):
        await search(client, "nobody")
    assert await search(client, "none") == 3, "no model is asked"
    assert len(model.requests) == 1


async def test_a_ranker_that_is_off_is_not_asked(
    client: openai.AsyncOpenAI, filled: Filled, drsai: DrSai, model: ModelServer
) -> None:
    """Over the API that is a refusal, which is charged nothing. Others hear it in a note."""
    store, _ = await filled(TEXTS)
    model.script(None, lambda _: Reply('{"order": [2]}'))
    await drsai.limits.set("user", "anonymous", requests=2)
    owner, knowledge = Principal("anonymous").owner, drsai.extension(Knowledge)

    async def search(ranker: str) -> int:
        options: Any = {"ranker": ranker}
        return len((await client.vector_stores.search(store, query="leave", ranking_options=options)).data)

    off: list[tuple[Any, str]] = [("all", ""), ("tenant", owner.tenant), ("model", "judge"), ("model", "gpt-4o")]
    for kind, name in off:
        where = {"tenant": owner.tenant} if kind == "model" else {}
        await drsai.switches.off(kind, name, message="Back at six.", **where)
        with pytest.raises(openai.InternalServerError, match=r"Back at six\.") as refused:
            await search("judge")
        assert refused.value.code == "switched_off"
        if kind == "model":
            found = await knowledge.search(owner, ["filled"], Question(queries=["leave"], ranker="judge"))
            assert any("The ranker 'judge' gave no usable answer" in note for note in found.notes)
        if name != "gpt-4o":
            await drsai.switches.on(kind, name, **where)
    assert not model.requests
    assert await search("both") == 3
    await drsai.switches.on("model", "gpt-4o", tenant=owner.tenant)
    assert await search("judge") == 3
    assert [each.model for each in model.requests] == ["gpt-4o-mini", "gpt-4o"]


async def test_an_agent_has_a_ranker(
    client: openai.AsyncOpenAI, filled: Filled, drsai: DrSai, model: ModelServer
) -> None:
    """By its knowledge, by a tool or before the question; or by the hosted tool of a request."""
    store, _ = await filled(TEXTS)
    judged: list[str] = []

    def answer(request: ModelRequest) -> Reply | str:
        if "You put passages in the order" in request.system:
            passages = json.loads(request.last)["passages"]
            judged.append(passages[2]["text"])
            return '{"order": [2]}'
        if request.tools and request.messages[-1]["role"] != "tool":
            name = next(each for each in request.tools if each in ("file_search", "knowledge_search"))
            arguments = {"queries": ["leave"]} if name == "file_search" else {"query": "leave"}
            return Reply(tool_calls=[ToolCall(name, arguments)])
        return "So."

    def shown() -> list[str]:
        told = json.dumps([each["content"] for each in model.requests[-1].messages])
        return [text for text in TEXTS.values() if text in told]

    model.script(None, answer)
    for mode in ("tool", "context"):
        knowledge = {"stores": ["filled"], "mode": mode, "ranker": "judge", "top_k": 1}
        await drsai.agents.put(mode, {"agents": {mode: {"knowledge": knowledge}}})
        await client.chat.completions.create(model=mode, messages=[{"role": "user", "content": "leave"}])
        assert shown() == judged[-1:]
    tools: Any = [{"type": "file_search", "vector_store_ids": [store], "max_num_results": 1}]
    for ranker, asked in (("judge", 3), ("auto", 3), ("default_2024_08_21", 3)):
        tools[0]["ranking_options"] = {"ranker": ranker}
        await client.responses.create(model="assistant", input="leave", tools=tools)
        assert len(judged) == asked
        assert (shown() == judged[-1:]) is (ranker == "judge")
    before = len(model.requests)
    for wrong in ("nobody", "", 5):
        tools[0]["ranking_options"] = {"ranker": wrong}
        with pytest.raises(openai.BadRequestError, match=r"ranker|tools"):
            await client.responses.create(model="assistant", input="leave", tools=tools)
    assert len(model.requests) == before
