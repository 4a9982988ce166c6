"""Profiles that fall back: endpoints that hang, drop, refuse, are busy or cut their answers off. The answer comes once,
from the right one."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any, cast

import openai
import pytest
from autogen_core.models import CreateResult, SystemMessage, UserMessage
from pydantic import SecretStr

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DatabaseUnavailable, EndpointBusy, EndpointFailed, EndpointTimeout
from drsai_backend.models import ModelAnswer, ModelParams, RunModelClient, UsageMeter
from drsai_backend.models.fallback.asker import Asker
from drsai_backend.models.fallback.breaker import Breaker, Breakers
from drsai_backend.models.fallback.client import ProfileClient
from drsai_backend.models.profiles.schema import BreakerRule
from tests.models.profiles.conftest import MakeModels
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall

Name = Callable[[str], str]
SAID = "A recording of the user's, kept as a file; what is in it is not told here."
ASKED = [SystemMessage(content="Be brief."), UserMessage(content="Hello?", source="user")]
TOOL: Any = {"name": "add", "description": "", "parameters": {"type": "object", "properties": {}}}
CAUSES = {
    "hangs": Reply("never", hang=True),
    "drops": Reply("never", break_after=0),
    "drops_late": Reply("never", break_after=1),
    "is_busy": Failure(429, headers={"retry-after": "3600"}),
    "fails": Failure(503),
    "overflows": Failure(400, "This model's maximum context length is 8 tokens.", "context_length_exceeded"),
    "cuts_a_call_off": Reply(tool_calls=[ToolCall("add", {"a": 1})], break_after=3),
}


def _refusing() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


async def _streamed(client: Any, **options: Any) -> tuple[list[str], CreateResult]:
    items = [item async for item in client.create_stream(ASKED, **options)]
    return items[:-1], items[-1]


@pytest.mark.parametrize(
    ("streams", "cause"),
    # Scripts break streams only.
    [*((True, cause) for cause in CAUSES), *((False, cause) for cause in CAUSES if not cause.startswith(("dr", "cu")))],
)
async def test_what_gives_no_answer_is_answered_by_the_next(
    server: ModelServer, models: MakeModels, name: Name, streams: bool, cause: str
) -> None:
    bad, good = name("bad"), name("good")
    server.script(bad, [CAUSES[cause]])
    server.script(good, ["Hi there."])
    profile = {"model": bad, "retries": 0, "timeout": 0.3, "fallback": ["spare"]}
    factory = models(fast=profile, spare={"model": good, "timeout": 5})
    meter = UsageMeter()
    client = RunModelClient(factory.create("fast"), meter=meter)
    if streams:
        pieces, result = await _streamed(client, tools=[TOOL])
        assert "".join(pieces) == "Hi there."
    else:
        result = await client.create(ASKED)
    assert isinstance(result, ModelAnswer)
    assert (result.content, result.profile, result.model, result.attempts) == ("Hi there.", "spare", good, 2)
    assert [request.model for request in server.requests] == [bad, good]
    assert (meter.prompt_tokens, meter.calls) == (10, 1)


async def test_comments_are_no_pieces_of_an_answer(models: MakeModels, name: Name) -> None:
    """They keep the connection of an endpoint that hangs open, as a proxy sends them."""
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    piece = json.dumps({**chunk, "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]})

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        writer.write(f"data: {piece}\n\n".encode())
        while not reader.at_eof():
            writer.write(b": still here\n\n")
            await asyncio.sleep(0.02)
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1") as endpoint:
        where = f"http://127.0.0.1:{endpoint.sockets[0].getsockname()[1]}/v1"
        profile = {"model": name("m"), "endpoint": where, "retries": 0, "timeout": 0.3}
        async with asyncio.timeout(5):
            with pytest.raises(openai.APITimeoutError):
                await _streamed(RunModelClient(models(fast=profile).create("fast")))
        await asyncio.sleep(0.1)  # Until the endpoint has seen that its client has left.


async def test_a_refused_connection_is_answered_by_the_next(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    server.script(good := name("good"), ["Hi."])
    profile = {"model": name("gone"), "endpoint": _refusing(), "retries": 0, "fallback": ["spare"]}
    result = await models(fast=profile, spare={"model": good}).create("fast").create(ASKED)
    assert result.content == "Hi."


async def test_a_stream_that_has_shown_text_is_never_begun_again(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    bad, good = name("bad"), name("good")
    server.script(bad, [Reply("One two three four", break_after=3)])
    server.script(good, ["never asked"])
    factory = models(fast={"model": bad, "fallback": ["spare"]}, spare={"model": good})
    shown: list[Any] = []
    stream = RunModelClient(factory.create("fast")).create_stream(ASKED)
    shown += [await anext(stream), await anext(stream)]
    with pytest.raises(openai.APIConnectionError):
        await anext(stream)
    assert shown == ["One", " two"]
    assert [request.model for request in server.requests] == [bad]


async def test_an_endpoint_is_asked_again_after_what_it_asks_for(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    busy = name("busy")
    server.script(
        busy, [Failure(429, headers={"retry-after-ms": "20"}), Failure(500, headers={"retry-after": "0"}), "Now."]
    )
    client = models(fast={"model": busy, "retries": 2}).create("fast")
    result = await client.create(ASKED)
    assert (result.content, result.attempts) == ("Now.", 3)  # type: ignore[attr-defined]


async def test_what_nobody_answers_says_why(server: ModelServer, models: MakeModels, name: Name) -> None:
    server.script(busy := name("busy"), lambda _: Failure(429, "secret words"))
    server.script(slow := name("slow"), lambda _: Reply("never", hang=True))
    server.script(broken := name("broken"), lambda _: Failure(500))
    common = {"retries": 0, "timeout": 0.2}
    factory = models(
        busy={"model": busy, **common},
        slow={"model": slow, **common},
        all={"model": broken, **common, "fallback": ["busy", "slow"]},
    )
    with pytest.raises(EndpointBusy):
        await factory.create("busy").create(ASKED)
    with pytest.raises(EndpointTimeout):
        await factory.create("slow").create(ASKED)
    with pytest.raises(
        EndpointFailed, match=r"'all': no answer: all: .*500.*; busy: .*; slow: no answer in time"
    ) as got:
        await factory.create("all").create(ASKED)
    assert "secret" not in str(got.value)


async def test_a_request_that_is_wrong_is_wrong_everywhere(server: ModelServer, models: MakeModels, name: Name) -> None:
    server.script(bad := name("bad"), [Failure(401, "no such key")])
    client = models(fast={"model": bad, "fallback": ["spare"]}, spare={"model": name("good")}).create("fast")
    with pytest.raises(Exception, match="no such key"):
        await client.create(ASKED)
    assert len(server.requests) == 1


async def test_an_endpoint_that_fails_on_is_left_alone_and_probed(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    bad, good = name("bad"), name("good")
    answers: list[Any] = [Failure(500), Failure(500), "back"]
    server.script(bad, lambda _: answers.pop(0))
    server.script(good, lambda _: "spare")
    breaker = {"failures": 2, "seconds": 30}
    factory = models(
        fast={"model": bad, "retries": 0, "breaker": breaker, "fallback": ["spare"]},
        spare={"model": good},
        alone={"model": bad},
    )
    client = factory.create("fast")
    assert [(await client.create(ASKED)).content for _ in range(4)] == ["spare"] * 4
    with pytest.raises(EndpointFailed, match="alone: left alone for a while"):
        await factory.create("alone").create(ASKED)
    assert len(answers) == 1, "two calls have opened the breaker, and two others did not ask"
    factory.breakers.of(server.base_url, bad).open_until = 0.0  # as if half a minute had passed
    assert (await client.create(ASKED)).content == "back"


async def test_a_probe_whose_recordings_cannot_be_read_is_not_lost(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    class Away:
        async def get(self, *_: object) -> None:
            raise DatabaseUnavailable("away")

    server.script(ears := name("ears"), [Failure(500), "heard"])
    factory = models(ears={"model": ears, "retries": 0, "breaker": {"failures": 1}, "can": {"audio": True}})
    client = factory.create("ears")
    assert isinstance(client, ProfileClient)
    with pytest.raises(EndpointFailed):
        await client.create(ASKED)
    factory.breakers.of(server.base_url, ears).open_until = 0.0
    line = f"[audio a.wav, audio/wav, 3 bytes, id file-1] {SAID}"
    deaf = client.bound(Asker(Owner("t", "u"), files=cast("Any", Away())))
    with pytest.raises(DatabaseUnavailable):
        await deaf.create([UserMessage(content=line, source="user")])
    assert (await client.create(ASKED)).content == "heard"


async def test_another_factory_learns_for_itself(server: ModelServer, models: MakeModels, name: Name) -> None:
    """Two `DrSai` of one process, each with rules of its own."""
    bad = name("bad")
    answers: list[Any] = [Failure(500), "back"]
    server.script(bad, lambda _: answers.pop(0))
    one, other = (models(fast={"model": bad, "retries": 0, "breaker": {"failures": 1}}) for _ in range(2))
    with pytest.raises(EndpointFailed):
        await one.create("fast").create(ASKED)
    assert (await other.create("fast").create(ASKED)).content == "back"


def _allowed(breaker: Breaker) -> int:
    epoch = breaker.allows()
    assert epoch is not None
    return epoch


def test_breakers_let_one_probe_pass_and_are_bounded() -> None:
    now = [0.0]
    breakers, rule = Breakers(lambda: now[0], most=3), BreakerRule(failures=1, seconds=10)
    breaker = breakers.of("there", "m")
    breaker.failed(_allowed(breaker), rule)
    assert not breaker.allows()
    now[0] = 10.0
    probe = _allowed(breaker)
    assert not breaker.allows(), "one probe at a time"
    breaker.failed(probe, rule)
    now[0] = 29.0
    assert not breaker.allows(), "twice as long after a failed probe"
    now[0] = 30.0
    breaker.released(_allowed(breaker))
    assert breaker.allows(), "a probe that was cancelled says nothing"
    breaker.succeeded()
    assert breaker.allows()
    assert breaker.allows()
    for number in range(10):
        breakers.of("there", str(number))
    assert len(breakers) == 3


def test_many_calls_that_fail_together_open_a_breaker_once() -> None:
    now = [0.0]
    breaker, rule = Breaker(lambda: now[0]), BreakerRule(failures=5, seconds=10)
    together = [_allowed(breaker) for _ in range(50)]
    for epoch in together[:40]:
        breaker.failed(epoch, rule)
    assert (breaker.opened, breaker.open_until) == (1, 10.0)
    now[0] = 10.0
    probe = _allowed(breaker)
    breaker.failed(together[40], rule)
    breaker.released(together[41])
    assert not breaker.allows(), "the probe is still under way"
    breaker.failed(together[42], rule, retry_after=30)
    assert breaker.open_until == 40.0, "what the endpoint asks for counts, whoever is told"
    breaker.failed(probe, rule)
    assert (breaker.opened, breaker.open_until) == (2, 40.0)
    now[0] = 40.0
    probe = _allowed(breaker)
    breaker.succeeded()
    for epoch in (*together[43:], probe):
        breaker.failed(epoch, rule)
    assert breaker.allows(), "they were begun before it was well again"


async def test_limits_hold_calls_back_and_send_them_elsewhere(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    at_once, most = 0, 0

    async def slow(_: Any) -> str:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        return "slow"

    server.script(narrow := name("narrow"), slow)
    server.script(rare := name("rare"), lambda _: "rare")
    server.script(good := name("good"), lambda _: "spare")
    factory = models(
        narrow={"model": narrow, "limits": {"concurrency": 2}},
        rare={"model": rare, "limits": {"rpm": 2}, "timeout": 2, "fallback": ["spare"]},
        spare={"model": good},
    )
    await asyncio.gather(*(factory.create("narrow").create(ASKED) for _ in range(6)))
    assert most == 2
    answers = [(await factory.create("rare").create(ASKED)).content for _ in range(3)]
    assert answers == ["rare", "spare", "spare"], "the second would have to wait for half a minute"


async def test_parameters_of_profiles_and_requests_reach_the_model_by_its_rules(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    server.script(own := name("own"), lambda _: "ok")
    given = {"temperature": 0.1, "max_tokens": 7, "top_k": 3, "user": "u"}
    client = models(own={"model": own, "parameters": given, "can": {"thinking": False}}).create("own")
    params = ModelParams(temperature=0.9, reasoning_effort="low", seed=4)
    await RunModelClient(client, params=params).create(ASKED)
    assert server.requests[-1].parameters == {"temperature": 0.9, "max_tokens": 7, "top_k": 3, "user": "u", "seed": 4}


async def test_usage_of_an_attempt_that_broke_off_counts(server: ModelServer, models: MakeModels, name: Name) -> None:
    bad, good = name("bad"), name("good")
    server.script(bad, [Reply("", usage=True, finish_reason=None, chunks=[], break_after=3, prompt_tokens=30)])
    server.script(good, [Reply("Hi.", details={"prompt_tokens_details": {"cached_tokens": 4}})])
    factory = models(fast={"model": bad, "retries": 0, "fallback": ["spare"]}, spare={"model": good})
    meter = UsageMeter()
    _, result = await _streamed(RunModelClient(factory.create("fast"), meter=meter))
    assert result.content == "Hi."
    assert meter.as_dict() == {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50, "cached_tokens": 4}


@pytest.mark.parametrize("streams", [True, False])
async def test_usage_of_an_answer_that_another_model_repairs_counts_once(
    server: ModelServer, models: MakeModels, name: Name, streams: bool
) -> None:
    """Of a model whose tools are called by text: it is asked again, and is too busy."""
    details = {"prompt_tokens_details": {"cached_tokens": 4}}
    server.script(name("bad"), [Reply("Thought: Hm.\nAction:", details=details), Failure(429)])
    server.script(name("good"), [Reply("Final Answer: 3", details=details)])
    factory = models(fast={"model": name("bad"), "retries": 0, "fallback": ["spare"]}, spare={"model": name("good")})
    meter = UsageMeter()
    client = RunModelClient(factory.create("fast"), meter=meter).calling_in_text("text")
    result = (await _streamed(client, tools=[TOOL]))[1] if streams else await client.create(ASKED, tools=[TOOL])
    assert (result.content, meter.calls) == ("3", 1)
    assert meter.as_dict() == {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30, "cached_tokens": 8}


async def test_a_key_whose_limit_is_used_up_is_nobody_elses(
    server: ModelServer, models: MakeModels, name: Name
) -> None:
    """A tenant with a key of its own must not have the endpoint left alone for all others."""

    def answer(request: ModelRequest) -> Any:
        return Failure(429, headers={"retry-after": "250"}) if request.api_key == "spent" else "Hi."

    server.script(model := name("model"), answer)
    client = models(fast={"model": model, "retries": 0}).create("fast")
    assert isinstance(client, ProfileClient)
    spent, other = client.with_key(SecretStr("spent")), client.with_key(SecretStr("other"))
    for error in (EndpointBusy, EndpointFailed):
        with pytest.raises(error):
            await spent.create(ASKED)
    assert [request.api_key for request in server.requests] == ["spent"]
    assert [(await each.create(ASKED)).content for each in (other, client)] == ["Hi.", "Hi."]
