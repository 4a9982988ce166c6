"""Runs whose model endpoint answers too much, or what is no answer."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from openai.types.chat import ChatCompletionChunk

from drsai_backend import RunContext, Thread
from drsai_backend.models.endpoints.chunks import Part
from drsai_backend.runs import InputMessage, TextDelta
from tests.support.asks import Asked, asks
from tests.support.model_server import ModelServer, Raw, Reply, ToolCall
from tests.support.threads import Make

BOUNDS: dict[str, Any] = {"max_answer_bytes": 10_000, "max_thought_bytes": 1_000, "max_tool_output": 2_000}


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(strict=False) as server:
        yield server


def flood() -> Iterator[bytes]:
    delta = {"choices": [{"index": 0, "delta": {"content": "x" * 1_000}, "finish_reason": None}], "model": "m"}
    while True:
        yield f"data: {json.dumps(delta)}\n\n".encode()


async def talk(text: str) -> str:
    return text * 10_000


def agent(context: RunContext, **more: Any) -> AssistantAgent:
    return AssistantAgent("ann", context.model_client(), **more)


def asked() -> Asked:
    return asks("crew", [InputMessage("user", "x")], thread_id="t")


@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_without_end_ends_as_length(make: Make, server: ModelServer, streams: bool) -> None:
    whole = b'{"choices": [{"message": {"role": "assistant", "content": "' + b"y" * 100_000
    server.script(None, lambda _: Raw(flood(), "text/event-stream") if streams else Raw([whole]))
    drsai = await make(
        {"crew": lambda context: agent(context, model_client_stream=streams)}, openai_base_url=server.base_url, **BOUNDS
    )
    handle = await drsai.engine.start(*asked())
    end = await handle.wait()
    assert (end.status.value, end.finish_reason) == ("completed", "length")
    [thread] = await drsai.db.get(Thread)
    assert len(thread.messages[-1]["content"]) == 10_000


@pytest.mark.parametrize("streams", [False, True])
async def test_garbage_is_told_as_such_and_leaves_no_traceback(
    make: Make, server: ModelServer, streams: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(
        None,
        lambda _: Raw(
            [b"data: {nonsense\n\n" if streams else b"{"], "text/event-stream" if streams else "application/json"
        ),
    )
    drsai = await make(
        {"crew": lambda context: agent(context, model_client_stream=streams)}, openai_base_url=server.base_url
    )
    end = await (await drsai.engine.start(*asked())).wait()
    assert end.error_code == "model_error"
    assert "cannot be read" in str(end.error_message)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == ["run ended"]
    assert "Traceback" not in caplog.text


async def test_a_tools_text_is_cut_and_its_call_counts(make: Make, server: ModelServer) -> None:
    server.script(None, [Reply(tool_calls=[ToolCall("talk", {"text": "ab"})]), "done"])
    tools = [FunctionTool(talk, "Talks.")]
    drsai = await make(
        {"crew": lambda context: agent(context, tools=tools, reflect_on_tool_use=True)},
        openai_base_url=server.base_url,
        **BOUNDS,
    )
    end = await (await drsai.engine.start(*asked())).wait()
    assert end.status.value == "completed"
    result = server.requests[-1].messages[-1]["content"]
    assert result.startswith("abab")
    assert "[The result was cut: 2000 of 20000 characters are shown." in result
    assert len(result) < 2_200


def pieces() -> int:
    gc.collect()
    return sum(isinstance(each, ChatCompletionChunk | Part) for each in gc.get_objects())


async def test_pieces_of_an_answer_are_not_kept(make: Make, server: ModelServer) -> None:
    """AutoGen's client links a task for each to the run's token, and the task holds the piece."""
    server.script(None, lambda _: Reply("x", chunks=["x "] * 300))
    drsai = await make(
        {"crew": lambda context: agent(context, model_client_stream=True)}, openai_base_url=server.base_url
    )
    before = pieces()
    handle = await drsai.engine.start(*asked())
    assert (await handle.wait()).status.value == "completed"
    assert pieces() - before < 20


async def test_a_process_ends_in_time_whatever_its_models_do(make: Make, server: ModelServer) -> None:
    server.script(None, lambda _: Raw(flood(), "text/event-stream"))
    drsai = await make(
        {"crew": lambda context: agent(context, model_client_stream=True)},
        openai_base_url=server.base_url,
        max_answer_bytes=1_000_000_000,
    )
    handles = [
        await drsai.engine.start(*asks("crew", [InputMessage("user", "x")], thread_id=f"t{number}"))
        for number in range(20)
    ]
    async with asyncio.timeout(60):
        await drsai.close()
        for handle in handles:
            assert (await handle.wait()).status.value == "running"


async def calls_of_a_run(drsai: Any, server: ModelServer, thread: str, pieces: int) -> int:
    """The calls of Python functions that a run makes whose answer has so many pieces, which come at once."""
    deltas = [{"choices": [{"index": 0, "delta": {"content": f"{each} "}}], "model": "m"} for each in range(pieces)]
    body = b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in deltas) + b"data: [DONE]\n\n"
    server.script(None, lambda _: Raw([body], "text/event-stream"))
    made = Counter[str]()

    def count(_: object, event: str, __: object) -> None:
        made[event] += 1

    # Threads that run already are the endpoint's, and those of the database, which does nothing for a piece.
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        handle = await drsai.engine.start(*asks("crew", [InputMessage("user", "x")], thread_id=thread))
        texts = [event async for event in handle.events() if isinstance(event, TextDelta)]
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert len(texts) == pieces
    return made["call"]


async def test_a_piece_costs_few_calls(make: Make, server: ModelServer) -> None:
    """Each is one of its own to the end."""
    drsai = await make(
        {"crew": lambda context: agent(context, model_client_stream=True)}, openai_base_url=server.base_url
    )
    await calls_of_a_run(drsai, server, "warm", 50)
    few, many = [await calls_of_a_run(drsai, server, f"t{pieces}", pieces) for pieces in (50, 450)]
    each = (many - few) / 400
    assert each < 110
