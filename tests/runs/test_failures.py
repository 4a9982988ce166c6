"""What is told of a run that failed: where, and what kind of thing, but nothing that an exception carries."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import openai
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat, SelectorGroupChat

from drsai_backend import Thread
from drsai_backend.access.principal import Principal
from drsai_backend.errors import RunFailed
from drsai_backend.runs import InputMessage
from tests.support.asks import asks
from tests.support.scripted import Answer, ScriptedClient, counting
from tests.support.threads import Make

SECRET = "sk-12345 at https://inner.example/?key=1"


def refused() -> openai.AuthenticationError:
    answer = httpx.Response(401, request=httpx.Request("POST", "https://inner.example/?key=1"))
    return openai.AuthenticationError(SECRET, response=answer, body=None)


def failing(error: BaseException) -> AssistantAgent:
    def fail(messages: Any, options: Any) -> Answer:
        return error

    return AssistantAgent("bob", ScriptedClient(fail))


def ann() -> AssistantAgent:
    return AssistantAgent("ann", ScriptedClient(counting("ann")))


def flat(error: BaseException) -> Any:
    return RoundRobinGroupChat([ann(), failing(error)], max_turns=2)


def nested(error: BaseException) -> Any:
    return RoundRobinGroupChat([ann(), RoundRobinGroupChat([failing(error)], name="inner", max_turns=1)], max_turns=2)


def choosing(error: BaseException) -> Any:
    def fail(messages: Any, options: Any) -> Answer:
        return error if "ann sees" in str(messages) else "ann"

    return SelectorGroupChat(
        [ann(), failing(ValueError())], ScriptedClient(fail), max_turns=3, allow_repeated_speaker=True
    )


@pytest.mark.parametrize(
    ("build", "where"),
    [
        (failing, "Agent 'bob' of team 'crew'"),
        (flat, "Agent 'bob' of team 'crew'"),
        (nested, "Agent 'bob' of team 'crew'"),
        (choosing, "Agent 'SelectorGroupChatManager' of team 'crew'"),
    ],
)
@pytest.mark.parametrize(
    ("error", "what"),
    [
        (ValueError(SECRET), "failed (run_failed): ValueError was raised."),
        (refused(), "failed (model_auth): The model endpoint refused the API key (HTTP 401)."),
    ],
)
async def test_a_failure_says_what_failed_where(
    make: Make, build: Any, where: str, error: BaseException, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    drsai = await make({"crew": lambda: build(error)})
    with pytest.raises(RunFailed) as caught:
        await drsai.run("crew", "x", thread_id="t")
    failed = caught.value
    assert failed.__cause__ is error
    assert failed.message == f"{where} {what} (thread 't', run {failed.run_id!r})"
    assert (failed.team, failed.thread_id, failed.agent) == ("crew", "t", where.split("'")[1])
    assert failed.run_code is not None
    assert failed.run_code in what
    [thread] = await drsai.db.get(Thread)
    assert thread.error_message == f"{where} {what}"
    assert (await drsai.engine.get_run(Principal(), str(failed.run_id))).error_message == f"{where} {what}"


async def test_a_repeated_request_is_told_the_same_failure(make: Make) -> None:
    drsai = await make({"crew": lambda: flat(refused())})
    request = asks("crew", [InputMessage("user", "x")], thread_id="t", key="k")
    first = await (await drsai.engine.start(*request)).wait()
    again = await (await drsai.engine.start(*request)).wait()
    assert (again.error_code, again.error_message) == (first.error_code, first.error_message)
    assert first.error_code == "model_auth"
