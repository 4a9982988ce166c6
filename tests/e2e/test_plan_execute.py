"""`plan_execute` as its clients see it: over HTTP, with a scripted model."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from drsai_backend import PlanExecuteTeam, RunContext, requires_approval, tool
from drsai_backend.datamodel import JournalEntry, Thread
from drsai_backend.definitions import DefinitionPolicy, load
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall

DEFINED = """
tools:
  fare: {python: "tests.e2e.test_plan_execute:fare"}
  pay: {python: "tests.e2e.test_plan_execute:pay"}
agents:
  clerk: {prompt: You are a clerk., tools: [fare, pay], strategy: plan_execute}
  careful: {strategy: {kind: plan_execute, check: true, replans: 1}}
  short: {strategy: {kind: plan_execute, max_steps: 3, retries: 1, replans: 0, at_once: 1}}
  other: {prompt: You are another one.}
  boss: {prompt: You are the boss., tools: [{agent: clerk}]}
teams:
  crew: {kind: round_robin, participants: [clerk, other], max_turns: 2}
serve: [clerk, careful, short, crew, boss]
"""


@tool
async def fare(city: str) -> str:
    """The fare to a city."""
    return f"{len(city) * 10} euros"


@tool
@requires_approval
async def pay(what: str) -> str:
    """Pay for something."""
    PAID.append(what)
    return f"paid {what}"


PAID: list[str] = []


def plan(*steps: tuple[str, str, Sequence[str]]) -> str:
    return json.dumps({"steps": [{"id": id_, "do": do, "needs": [*needs]} for id_, do, needs in steps]})


def _done(step: str, request: ModelRequest) -> str:
    return f"{step} is done"


class Models:
    """A planner that gives `plans`, one after the other, and executors that answer by what their step is."""

    def __init__(self, model: ModelServer, *plans: str, do: Callable[[str, ModelRequest], Any] | None = None) -> None:
        self.plans = [*plans]
        self.do = do or _done
        self.planned: list[ModelRequest] = []
        self.done: list[tuple[str, str]] = []
        self.summed: list[ModelRequest] = []
        self.most = self.now = 0
        model.script("You make the plan", self.make)
        model.script("You do one step", self.step)
        model.script(None, self.sum_up)

    def make(self, request: ModelRequest) -> Any:
        self.planned.append(request)
        return self.plans.pop(0)

    async def step(self, request: ModelRequest) -> Any:
        told = next(each["content"] for each in request.messages if each["role"] == "user")
        do = told.rpartition(":\n")[2].strip()
        if request.messages[-1]["role"] == "user":
            self.done.append((do, told))
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        said = self.do(do, request)
        said = await said if inspect.isawaitable(said) else said
        self.now -= 1
        return said

    def sum_up(self, request: ModelRequest) -> Any:
        self.summed.append(request)
        return "Here is the answer."

    @property
    def steps(self) -> list[str]:
        return [do for do, _ in self.done]


@pytest.fixture
async def service(serve: Serve, tmp_path: Path) -> Service:
    PAID.clear()
    file = tmp_path / "team.yaml"
    file.write_text(DEFINED)
    return await serve(load(str(file), DefinitionPolicy(("tests.e2e",))))


async def ask(service: Service, team: str, text: str = "Go.", **more: Any) -> Any:
    body = {"model": team, "messages": [{"role": "user", "content": text}], "thread_id": "t", "user": "u", **more}
    answer = await service.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]


async def tasks_of(service: Service) -> list[Any]:
    answer = await service.http.get("/v1/threads/t", params={"user": "u"})
    assert answer.status_code == 200, answer.text
    return answer.json()["tasks"]


def statuses(tasks: Any) -> dict[str, tuple[str, int]]:
    return {each["task_id"]: (each["meta"]["status"], each["meta"]["attempts"]) for each in tasks["tasks"]}


DIAMOND = plan(("1", "rome", []), ("2", "oslo", []), ("3", "compare", ["1", "2"]))


async def test_a_plan_is_made_and_followed(service: Service, model: ModelServer) -> None:
    models = Models(model, DIAMOND, plan(("1", "bern", [])))
    said = await ask(service, "clerk", "Which fare is lower?")
    assert said["content"] == "Here is the answer."
    thoughts = said["reasoning_content"]
    assert "1. rome\n2. oslo\n3. compare (needs 1, 2)" in thoughts
    assert "Step 3 done:\n\ncompare is done" in thoughts
    assert (sorted(models.steps[:2]), models.steps[2:], models.most) == (["oslo", "rome"], ["compare"], 2)
    # Each sees the task, its step and the results that the step needs, and nothing else.
    told = dict(models.done)
    assert "Which fare is lower?" in told["rome"]
    assert "oslo" not in told["rome"]
    assert "rome is done" in told["compare"]
    assert "oslo is done" in told["compare"]
    assert "fare: The fare to a city." in json.dumps(models.planned[0].messages)
    assert models.planned[0].body["response_format"]["json_schema"]["schema"]["required"] == ["steps"]
    assert "You are a clerk." in models.summed[0].system
    assert "compare is done" in models.summed[0].last
    [tasks] = await tasks_of(service)
    assert (tasks["content"], tasks["meta"]) == ("Which fare is lower?", {"status": "done", "team": "clerk"})
    assert statuses(tasks) == {"1": ("done", 1), "2": ("done", 1), "3": ("done", 1)}
    assert [(each["previous_id"], each["next_id"]) for each in tasks["tasks"]] == [(None, "2"), ("1", "3"), ("2", None)]

    # The second task makes a plan of its own, and knows what was said, but not what was done for the first.
    await ask(service, "clerk", "And Bern?")
    assert "Here is the answer." in json.dumps(models.planned[1].messages)
    assert "compare" not in json.dumps(models.planned[1].messages)
    assert "compare" not in json.dumps(models.summed[1].messages)
    assert [statuses(each) for each in await tasks_of(service)] == [{"1": ("done", 1)}]


async def test_the_answer_is_streamed_and_nothing_else_is_text(service: Service, model: ModelServer) -> None:
    Models(model, DIAMOND)
    body = {"model": "clerk", "messages": [{"role": "user", "content": "Go."}], "stream": True}
    answer = await service.http.post("/v1/chat/completions", json=body)
    data = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for each in map(json.loads, data) for choice in each["choices"]]
    pieces = [each["content"] for each in deltas if each.get("content")]
    assert "".join(pieces) == "Here is the answer."
    assert len(pieces) > 1
    assert "rome is done" in "".join(each.get("reasoning_content") or "" for each in deltas)


async def test_a_step_is_tried_again_and_the_plan_is_changed(service: Service, model: ModelServer) -> None:
    def do(step: str, request: ModelRequest) -> str:
        return "FAILED: closed" if step == "shop" else f"{step} is done"

    first = plan(("1", "walk", []), ("2", "shop", ["1"]), ("3", "home", ["2"]))
    models = Models(model, first, plan(("4", "web", ["1"])), do=do)
    await ask(service, "clerk")
    assert models.steps == ["walk", "shop", "shop", "shop", "shop", "web"]
    assert "An earlier attempt at your step failed: closed" in models.done[2][1]
    assert "An earlier attempt" not in models.done[1][1]
    again = models.planned[1].last
    assert "Step 2 failed: closed" in again
    assert "Step 1 (done): walk\nwalk is done" in again
    assert "ids from 4 on" in again
    [tasks] = await tasks_of(service)
    assert statuses(tasks) == {"1": ("done", 1), "2": ("failed", 4), "3": ("replaced", 0), "4": ("done", 1)}
    assert tasks["meta"]["status"] == "done"


async def test_an_error_of_the_model_is_a_failed_attempt(service: Service, model: ModelServer) -> None:
    failures = [Failure(500)]

    def do(step: str, request: ModelRequest) -> Any:
        return failures.pop() if step == "oslo" and failures else "ok"

    models = Models(model, DIAMOND, do=do)
    assert (await ask(service, "clerk"))["content"] == "Here is the answer."
    assert sorted(models.steps) == ["compare", "oslo", "oslo", "rome"]
    assert (
        "An earlier attempt at your step failed: the model gave no answer: an error of the server (HTTP 500)"
        in models.done[2][1]
    )


async def test_a_step_says_that_the_plan_has_to_be_another_one(service: Service, model: ModelServer) -> None:
    def do(step: str, request: ModelRequest) -> str:
        return "REPLAN: no flights" if step == "rome" else "ok"

    models = Models(model, DIAMOND, plan(("7", "rail", [])), do=do)
    await ask(service, "clerk")
    assert sorted(models.steps) == ["oslo", "rail", "rome"]
    assert "no flights" in models.planned[1].last


async def test_the_limit_of_steps(service: Service, model: ModelServer) -> None:
    def do(step: str, request: ModelRequest) -> str:
        return "FAILED: no" if step == "a" else "ok"

    Models(model, plan(("1", "a", []), ("2", "b", []), ("3", "c", [])), do=do)
    said = await ask(service, "short")
    note = "Not everything was done: step 1 failed; step 3 was not done, because the limit of 3 steps was reached."
    assert said["content"] == f"Here is the answer.\n\n{note}"
    [tasks] = await tasks_of(service)
    assert statuses(tasks) == {"1": ("failed", 2), "2": ("done", 1), "3": ("skipped", 0)}
    assert tasks["meta"]["status"] == "incomplete"
    run = (await service.http.get("/v1/threads/t", params={"user": "u"})).json()["run_id"]
    ended = (await service.http.get(f"/v1/runs/{run}", params={"user": "u"})).json()
    assert (ended["status"], ended["stop_reason"]) == ("completed", note)


async def test_a_plan_that_cannot_be_followed_goes_back(service: Service, model: ModelServer) -> None:
    models = Models(model, plan(("1", "a", ["2"]), ("2", "b", ["1"])), "Hm.", plan(("1", "a", [])))
    assert (await ask(service, "clerk"))["content"] == "Here is the answer."
    assert "'1', '2' wait for each other" in models.planned[1].last
    assert "no JSON object" in models.planned[2].last
    models.plans = ["?", "?", "?"]
    said = await ask(service, "clerk", "Once more.")
    note = "Nothing was done: no plan could be made."
    assert said["content"] == f"Here is the answer.\n\n{note}"
    thread = (await service.http.get("/v1/threads/t", params={"user": "u"})).json()
    assert thread["tasks"][-1]["meta"]["status"] == "incomplete"
    ended = (await service.http.get(f"/v1/runs/{thread['run_id']}", params={"user": "u"})).json()
    assert ended["stop_reason"] == note
    assert "No plan could be made" in said["reasoning_content"]
    assert len(models.planned) == 6


async def test_a_task_without_steps(service: Service, model: ModelServer) -> None:
    models = Models(model, plan())
    assert (await ask(service, "clerk", "Hello"))["content"] == "Here is the answer."
    assert [each["content"] for each in models.summed[0].messages[1:]] == ["Hello"]
    [tasks] = await tasks_of(service)
    assert (tasks["tasks"], tasks["meta"]["status"]) == ([], "done")


async def test_a_person_checks_the_plan(service: Service, model: ModelServer) -> None:
    models = Models(model, DIAMOND, plan(("4", "rail", [])), plan(("1", "x", [])), plan(("1", "y", [])))
    said = await ask(service, "careful")
    assert "3. compare (needs 1, 2)" in said["content"]
    assert models.steps == []
    [tasks] = await tasks_of(service)
    assert tasks["meta"]["status"] == "planned"
    assert {status for status, _ in statuses(tasks).values()} == {"waiting"}
    # What is neither of the words is what the user wants instead.
    said = await ask(service, "careful", "By rail, please.")
    assert "4. rail" in said["content"]
    assert "By rail, please." in models.planned[1].last
    said = await ask(service, "careful", 'edit {"steps": [{"id": "4", "do": "bus", "needs": ["9"]}]}')
    assert "needs step '9', which is not there" in said["content"]
    said = await ask(service, "careful", 'edit {"steps": [{"id": "4", "do": "bus", "needs": []}]}')
    assert said["content"] == "Here is the answer."
    assert models.steps == ["bus"]
    [tasks] = await tasks_of(service)
    assert statuses(tasks) == {"1": ("replaced", 0), "2": ("replaced", 0), "3": ("replaced", 0), "4": ("done", 1)}

    await ask(service, "careful", "Next.")
    assert (await ask(service, "careful", "approve"))["content"] == "Here is the answer."
    assert models.steps == ["bus", "x"]
    await ask(service, "careful", "Next.")
    said = await ask(service, "careful", "reject")
    assert said["content"] == "The plan was rejected, so nothing was done."
    assert (len(models.planned), len(models.summed)) == (4, 2)
    [tasks] = await tasks_of(service)
    assert (tasks["meta"]["status"], statuses(tasks)) == ("rejected", {"1": ("skipped", 0)})


async def test_the_ids_of_a_rejected_plan_are_free(service: Service, model: ModelServer) -> None:
    """A model counts from 1 again; the steps that it means so never ran."""
    models = Models(model, DIAMOND, plan(("1", "rail", []), ("2", "bus", ["1"])))
    await ask(service, "careful")
    said = await ask(service, "careful", "By rail, please.")
    assert "1. rail" in said["content"]
    said = await ask(service, "careful", 'edit {"steps": [{"id": "2", "do": "bus", "needs": []}]}')
    assert (said["content"], models.steps, len(models.planned)) == ("Here is the answer.", ["bus"], 2)
    [tasks] = await tasks_of(service)
    assert statuses(tasks) == {"3": ("replaced", 0), "2": ("done", 1)}


async def test_steps_that_wait_give_their_ids_to_another_plan(service: Service, model: ModelServer) -> None:
    """Those that have run keep them."""
    replanned = plan(("2", "rail", ["1"]), ("3", "bus", ["1"]))
    models = Models(model, DIAMOND, plan(("1", "again", [])), replanned, do=lambda step, _: (
        "REPLAN: no flights" if step == "oslo" else "ok"
    ))  # fmt: skip
    model.script("You make the plan", lambda request: models.make(request) if models.plans else plan(("4", "bus", [])))
    assert "Here is the answer." in (await ask(service, "clerk"))["content"]
    assert "step '1' has the id of an earlier step" in models.planned[2].last
    [tasks] = await tasks_of(service)
    assert statuses(tasks) == {"1": ("done", 1), "2": ("failed", 1), "3": ("replaced", 0), "4": ("done", 1)}


async def test_a_run_that_did_nothing_never_says_that_it_is_done(service: Service, model: ModelServer) -> None:
    Models(model, DIAMOND, "?", "?", "?")
    await ask(service, "careful")
    said = await ask(service, "careful", "By rail, please.")
    note = "Nothing was done: no plan could be made."
    assert said["content"] == f"Here is the answer.\n\n{note}"
    thread = (await service.http.get("/v1/threads/t", params={"user": "u"})).json()
    ended = (await service.http.get(f"/v1/runs/{thread['run_id']}", params={"user": "u"})).json()
    assert (ended["stop_reason"], thread["tasks"][0]["meta"]["status"]) == (note, "incomplete")


async def test_a_plan_that_is_rejected_after_some_steps(service: Service, model: ModelServer) -> None:
    def do(step: str, request: ModelRequest) -> str:
        return "REPLAN: no flights" if step == "oslo" else "ok"

    models = Models(model, plan(("1", "rome", []), ("2", "oslo", ["1"])), plan(("3", "rail", [])), do=do)
    await ask(service, "careful")
    said = await ask(service, "careful", "yes")
    assert "3. rail" in said["content"]
    note = "Not everything was done: step 3 was not done."
    assert (await ask(service, "careful", "no"))["content"] == f"Here is the answer.\n\n{note}"
    assert models.steps == ["rome", "oslo"]
    assert "Step 1 (done): rome\nok" in models.summed[0].last


async def test_a_plan_that_was_never_answered_is_no_part_of_the_next_task(service: Service, model: ModelServer) -> None:
    models = Models(model, plan(("1", "rome", [])), plan(("1", "bern", [])))
    await ask(service, "careful", "To Rome.")
    await service.http.post("/v1/threads/t/cancel", json={"user": "u"})
    await ask(service, "careful", "To Bern.")
    assert (await ask(service, "careful", "approve"))["content"] == "Here is the answer."
    assert models.steps == ["bern"]
    assert "To Rome." not in models.done[0][1]


async def test_a_team_that_was_changed_between_two_tasks(serve: Serve, model: ModelServer) -> None:
    models = Models(model, DIAMOND, DIAMOND)
    for at_once in (3, 1):

        def team(context: RunContext, at_once: int = at_once) -> PlanExecuteTeam:
            return PlanExecuteTeam(context.model_client(), name="team", at_once=at_once)

        service = await serve({"team": lambda context, team=team: team(context)})
        assert (await ask(service, "team"))["content"] == "Here is the answer."
        [tasks] = await tasks_of(service)
        assert statuses(tasks) == {"1": ("done", 1), "2": ("done", 1), "3": ("done", 1)}
    assert models.steps[3:] == ["rome", "oslo", "compare"]
    assert "Here is the answer." in json.dumps(models.planned[1].messages)


async def test_a_tool_that_needs_approval_repeats_its_step_alone(service: Service, model: ModelServer) -> None:
    def do(step: str, request: ModelRequest) -> Any:
        if request.messages[-1]["role"] == "tool":
            return request.last
        name, argument = ("pay", "what") if step == "rome" else ("fare", "city")
        return Reply(tool_calls=[ToolCall(name, {argument: step})])

    models = Models(model, DIAMOND, do=do)
    await ask(service, "clerk")
    [tasks] = await tasks_of(service)
    assert statuses(tasks) == {"1": ("running", 1), "2": ("running", 1), "3": ("waiting", 0)}
    assert (sorted(models.steps), PAID) == (["oslo", "rome"], [])
    assert (await ask(service, "clerk", "approve"))["content"] == "Here is the answer."
    # No model is asked again for what was done in the turn before the question.
    assert (sorted(models.steps), PAID, len(models.planned)) == (["compare", "oslo", "rome"], ["rome"], 1)
    assert "paid rome" in models.summed[0].last


async def test_inside_another_team(service: Service, model: ModelServer) -> None:
    models = Models(model, DIAMOND)
    said = await ask(service, "crew")
    assert "rome" not in said["content"]
    assert said["content"].count("Here is the answer.") == 2
    [tasks] = await tasks_of(service)
    assert statuses(tasks)["3"] == ("done", 1)
    # The other one hears the answer, and nothing of how it was found.
    assert "compare" not in json.dumps(models.summed[1].messages)
    assert "Here is the answer." in json.dumps(models.summed[1].messages)


async def test_as_a_tool_of_an_agent(service: Service, model: ModelServer) -> None:
    models = Models(model, DIAMOND)

    def boss(request: ModelRequest) -> Any:
        if request.messages[-1]["role"] == "tool":
            return request.last
        return Reply(tool_calls=[ToolCall("clerk", {"task": "Compare the fares."})])

    model.script("You are the boss", boss)
    said = await ask(service, "boss")
    assert said["content"].endswith("Here is the answer.")
    assert "compare is done" not in said["content"]
    assert "Compare the fares." in models.done[0][1]


@pytest.mark.parametrize("way", ["json_schema", "json_object", "function", "text"])
async def test_how_a_model_is_asked_for_a_plan(serve: Serve, model: ModelServer, way: str) -> None:
    def team(context: RunContext) -> PlanExecuteTeam:
        client = context.model_client()
        known = {**client.model_info, "structured_output": way == "json_schema"}
        known |= {"json_output": way in ("json_schema", "json_object"), "function_calling": way == "function"}
        client.inner._model_info = known  # type: ignore[attr-defined]  # as of a model of one's own
        return PlanExecuteTeam(client, name="team")

    service = await serve({"team": team})
    models = Models(model, DIAMOND)
    if way == "function":
        models.plans = [Reply(tool_calls=[ToolCall("make_plan", DIAMOND)])]  # type: ignore[list-item]
    assert (await ask(service, "team"))["content"] == "Here is the answer."
    body = models.planned[0].body
    assert body.get("response_format", {}).get("type") == (way if way.startswith("json") else None)
    assert [each["function"]["name"] for each in body.get("tools", ())] == (["make_plan"] if way == "function" else [])
    assert len(models.steps) == 3


async def test_what_a_person_says_meanwhile(service: Service, model: ModelServer) -> None:
    """Steered: the steps that follow are told; cancelled: the plan says so, and the next task makes another one."""
    began, go = threading.Event(), threading.Event()  # The model has a loop of its own.

    async def do(step: str, request: ModelRequest) -> str:
        if step == "rome":
            began.set()
            await asyncio.to_thread(go.wait, 30)
        return f"{step} is done"

    first = plan(("1", "rome", []), ("2", "compare", ["1"]))
    models = Models(model, first, first, plan(("1", "bern", [])), do=do)

    async def started() -> asyncio.Task[Any]:
        began.clear()
        go.clear()
        asked = asyncio.create_task(ask(service, "clerk"))
        assert await asyncio.to_thread(began.wait, 30)
        return asked

    first_run = await started()
    steered = asyncio.create_task(ask(service, "clerk", "By train.", on_busy="steer"))
    async with asyncio.timeout(30):
        while (await service.http.get("/v1/threads/t", params={"user": "u"})).json()["queued"] == 0:  # noqa: ASYNC110 - of another loop
            await asyncio.sleep(0.01)
    go.set()
    assert (await first_run)["content"].endswith("Here is the answer.")
    await steered
    assert "The user has added meanwhile:\nBy train." in dict(models.done)["compare"]
    assert "By train." in json.dumps(models.summed[0].messages)

    second_run = await started()
    cancelled = await service.http.post("/v1/threads/t/cancel", json={"user": "u"})
    assert cancelled.status_code < 300, cancelled.text
    go.set()
    await second_run
    [tasks] = await tasks_of(service)
    assert (tasks["meta"]["status"], set(statuses(tasks).values())) == ("stopped", {("skipped", 1), ("skipped", 0)})

    assert (await ask(service, "clerk", "Bern then."))["content"] == "Here is the answer."
    assert [statuses(each) for each in await tasks_of(service)] == [{"1": ("done", 1)}]


@pytest.mark.both_databases
async def test_what_a_program_has_stored_of_tasks_stands(service: Service, model: ModelServer) -> None:
    Models(model, DIAMOND)
    await ask(service, "clerk")
    name = {"user_id": "u", "thread_id": "t"}
    [thread] = await service.drsai.db.get(Thread, filters=name)
    thread.title = "Fares"
    await service.drsai.db.upsert(thread)
    assert statuses((await tasks_of(service))[0])["3"] == ("done", 1)
    thread.tasks = [{"mine": 1}]
    await service.drsai.db.upsert(thread)
    assert await tasks_of(service) == [{"mine": 1}]
    thread.tasks = None
    await service.drsai.db.upsert(thread)
    [tasks] = await tasks_of(service)
    assert statuses(tasks)["3"] == ("done", 1)


@pytest.mark.both_databases
async def test_a_thread_that_goes_back_has_the_statuses_of_then(service: Service, model: ModelServer) -> None:
    Models(model, DIAMOND)
    await ask(service, "clerk")
    turns = (await service.http.get("/v1/threads/t/turns", params={"user": "u"})).json()["data"]
    by_status: list[set[str]] = []
    for turn in turns[-1:0:-1]:
        back = await service.http.post("/v1/threads/t/rewind", json={"user": "u", "turn": turn["turn"]})
        assert back.status_code < 300, back.text
        by_status.append({status for each in await tasks_of(service) for status, _ in statuses(each).values()})
    assert by_status[0] == {"done"}
    assert {"skipped"} in by_status


async def test_a_run_costs_per_step_what_it_did_at_first(service: Service, model: ModelServer) -> None:
    """However much was said in the thread before, and however long the plan is."""
    chain = plan(*((str(n), f"do {n}", [str(n - 1)] if n > 1 else []) for n in range(1, 13)))
    chance = Random(1)  # so that it is not short when it is compressed
    models = Models(model, *[chain] * 3, do=lambda step, request: f"{step} is done. {chance.randbytes(1000).hex()}")
    sizes: list[list[int]] = []
    for _ in range(3):
        await ask(service, "clerk")
        [thread] = await service.drsai.db.get(Thread, filters={"user_id": "u", "thread_id": "t"})
        entries = await service.drsai.db.get(JournalEntry, filters={"run_id": thread.run_id}, order="turn")
        sizes.append([len(entry.payload) for entry in entries])
    assert len(models.steps) == 36
    # Without the first turns, which have the team's whole state, or a snapshot.
    assert max(sizes[-1][-6:-2]) <= 1.2 * max(sizes[0][3:7]) < 1000, sizes
