"""How a run ends is stored whatever characters its words have, and one whose end is refused is given up some day."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import sqlalchemy as sa
from autogen_agentchat.conditions import FunctionalTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage

from drsai_backend import Answer, AssistantAgent, DrSai, RunStatus, requires_approval
from drsai_backend.errors import EndpointFailed
from drsai_backend.runs.recovery.suspects import IN_ORDER, Ended
from tests.support.scripted import ScriptedClient
from tests.support.teams.crew import Crew
from tests.support.threads import QUICK, Make, ended, idle, request, run_of, thread_of

ODD = {"half of an emoji": "x\ud83dy", "nul": "x\0y"}
CLEAN = {"half of an emoji": "x?y", "nul": "x\ufffdy"}


@pytest.fixture(autouse=True)
def _not_captured(caplog: pytest.LogCaptureFixture) -> None:
    """What is captured goes from one process of the tests to another, which such characters cannot."""
    caplog.set_level(logging.CRITICAL + 1, "drsai")


@pytest.fixture(params=ODD)
def odd(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Desk:
    """An agent whose tool is to be approved, and is called with a text and under an id."""

    def __init__(self, arguments: dict[str, Any], call_id: str = "1") -> None:
        self.arguments, self.call_id = json.dumps(arguments), call_id
        self.written: list[object] = []
        self.model = ScriptedClient(self.rule)

    def rule(self, messages: Any, _: Any) -> Any:
        if isinstance(messages[-1], FunctionExecutionResultMessage):
            return "done"
        return [FunctionCall(self.call_id, self.arguments, "write")]

    def __call__(self) -> RoundRobinGroupChat:
        @requires_approval
        async def write(text: Any) -> str:
            """Writes."""
            self.written.append(text)
            return "written"

        clerk = AssistantAgent("clerk", self.model, tools=[write], reflect_on_tool_use=True)
        return RoundRobinGroupChat([clerk], max_turns=1)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_question(make: Make, odd: str, streams: bool) -> None:
    """What is shown is cleaned; the tool gets what the model has written."""
    desk = Desk({"text": ODD[odd]}, call_id=f"c{ODD[odd]}")
    drsai = await make({"crew": desk}, **QUICK)
    asking = await (await drsai.engine.start(*request(key="k", stream=streams))).wait()
    assert asking.status is RunStatus.AWAITING_INPUT
    question = (await thread_of(drsai)).input_request
    assert asking.input_request == question
    assert question["tool"]["arguments"] == {"text": CLEAN[odd]}
    done = await (await drsai.user("anonymous").answer("t", Answer(question["id"], decision="approve"))).wait()
    assert (done.status, desk.written, desk.model.calls) == (RunStatus.COMPLETED, [ODD[odd]], 2)


async def test_a_question_with_a_number_of_many_digits(make: Make) -> None:
    desk = Desk({"text": 10**40})
    drsai = await make({"crew": desk}, **QUICK)
    asking = await (await drsai.engine.start(*request())).wait()
    assert asking.status is RunStatus.AWAITING_INPUT
    question = (await thread_of(drsai)).input_request
    assert question["tool"]["arguments"] == {"text": str(10**40)}
    done = await (await drsai.user("anonymous").answer("t", Answer(question["id"], decision="approve"))).wait()
    assert (done.status, desk.written) == (RunStatus.COMPLETED, [10**40])


async def test_a_failure(make: Make, odd: str) -> None:
    def rule(*_: Any) -> Any:
        raise ValueError(ODD[odd])

    model = ScriptedClient(rule)
    drsai = await make({"crew": lambda: RoundRobinGroupChat([AssistantAgent("a", model)])}, **QUICK)
    end = await (await drsai.engine.start(*request(key="k"))).wait()
    run = await run_of(drsai)
    assert (end.status, run.status, model.calls) == (RunStatus.ERROR, RunStatus.ERROR, 1)
    assert run.ending == {"raised": f"ValueError: {CLEAN[odd]}"}


async def test_a_failure_whose_text_is_shown(make: Make, odd: str) -> None:
    model = ScriptedClient(lambda *_: EndpointFailed(ODD[odd]))
    drsai = await make({"crew": lambda: RoundRobinGroupChat([AssistantAgent("a", model)])}, **QUICK)
    end = await (await drsai.engine.start(*request(key="k"))).wait()
    assert (end.status, model.calls) == (RunStatus.ERROR, 1)
    assert end.error_message == (await thread_of(drsai)).error_message
    assert CLEAN[odd] in (end.error_message or "")


async def test_a_reason_to_stop(make: Make, odd: str) -> None:
    class Done(FunctionalTermination):
        async def __call__(self, messages: Any) -> Any:
            stop = await super().__call__(messages)
            return stop and stop.model_copy(update={"content": ODD[odd]})

    model = ScriptedClient(lambda *_: "done")

    def team() -> RoundRobinGroupChat:
        condition = Done(lambda messages: messages[-1].source == "a")
        return RoundRobinGroupChat([AssistantAgent("a", model)], termination_condition=condition)

    drsai = await make({"crew": team}, **QUICK)
    end = await (await drsai.engine.start(*request(key="k"))).wait()
    run = await run_of(drsai)
    assert (end.status, model.calls) == (RunStatus.COMPLETED, 1)
    assert end.stop_reason == run.stop_reason == CLEAN[odd]


REFUSING: dict[str, list[str]] = {
    "sqlite": [
        "CREATE TRIGGER no_end BEFORE UPDATE ON run WHEN NEW.status = 'completed' "
        "BEGIN SELECT RAISE(ABORT, 'no such end'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION no_end() RETURNS trigger AS $$ BEGIN IF NEW.status = 'completed' THEN "
        "RAISE 'no such end'; END IF; RETURN NEW; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER no_end BEFORE UPDATE ON run FOR EACH ROW EXECUTE FUNCTION no_end()",
    ],
}


async def refuse_to_complete(drsai: DrSai) -> None:
    for statement in REFUSING[drsai.database.dialect]:
        await drsai.database.write(lambda session, text=statement: session.execute(sa.text(text)))


async def test_a_run_whose_end_is_refused_is_given_up(make: Make) -> None:
    """After as many tries as one that kills its processes."""
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK, max_attempts=2)
    await refuse_to_complete(drsai)
    await drsai.engine.start(*request())
    thread = await ended(drsai)
    assert thread.status is RunStatus.ERROR
    assert "given up" in (thread.error_message or "")
    assert crew.calls == (1, 1, 4), "the turns that were stored are not repeated"


async def test_it_is_given_up_in_processes_of_its_own_too(make: Make) -> None:
    """Those end in order, although the run has not."""
    crew = Crew()
    drsai = await make({"crew": crew}, **QUICK, max_attempts=2)

    async def apart(keys: Any) -> Ended:
        other = await idle(make, crew, max_attempts=2)
        await other.engine._recovery.resume_apart(keys)
        await other.close()
        return Ended(1, IN_ORDER)

    drsai.engine._recovery.suspects.isolate = apart
    await refuse_to_complete(drsai)
    await drsai.engine.start(*request())
    thread = await ended(drsai)
    assert (thread.status, crew.calls) == (RunStatus.ERROR, (1, 1, 4))
    assert "given up" in (thread.error_message or "")
