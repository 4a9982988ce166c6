"""A team that attempts a task until a judge is content, over HTTP: what models are asked, and what clients see."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from drsai_backend import ReflexionTeam, RoundRobinGroupChat, RunContext
from drsai_backend.agents import DrSaiAgent
from drsai_backend.definitions import DefinitionPolicy, load
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import Failure, ModelRequest, ModelServer, Reply, ToolCall

FILE = """
agents:
  writer:
    prompt: You are writer.
    strategy: {kind: reflexion, criteria: It rhymes., %s}
    tools: [calculator]
    max_iterations: 4
  editor: {prompt: You are editor.}
teams:
  both: {kind: round_robin, participants: [writer, editor], max_turns: 2}
serve: [writer, both]
"""
JUDGE = "You judge an attempt"


def verdict(score: Any, **more: str) -> dict[str, Any]:
    return {"score": score, "reasons": f"Why {score}.", "reflection": f"Better than {score}.", **more}


async def served(serve: Serve, tmp_path: Path, options: str = "max_attempts: 3") -> Service:
    file = tmp_path / "team.yaml"
    file.write_text(FILE % options)
    return await serve(load(str(file), DefinitionPolicy()))


def script(model: ModelServer, attempts: Sequence[Any], verdicts: Sequence[Any]) -> None:
    model.script("You are writer.", list(attempts))
    model.script(JUDGE, [Reply(each) if isinstance(each, (dict, str)) else each for each in verdicts])


async def ask(service: Service, text: str = "Write.", team: str = "writer", thread: str = "t") -> dict[str, Any]:
    body = {"model": team, "messages": [{"role": "user", "content": text}], "thread_id": thread}
    answer = await service.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def asked(model: ModelServer, whom: str) -> list[ModelRequest]:
    return [each for each in model.requests if each.system.startswith(whom)]


async def test_the_best_attempt_answers(serve: Serve, model: ModelServer, tmp_path: Path) -> None:
    service = await served(serve, tmp_path)
    script(model, ["First.", "Second.", "Third."], [verdict(0.2), verdict(0.6), verdict(0.5)])
    said = await ask(service)
    message = said["choices"][0]["message"]
    assert message["content"] == "Second."
    thoughts = message["reasoning_content"]
    for part in ("First.", "Score: 0.20", "Reflection: Better than 0.2.", "Second.", "Third."):
        assert part in thoughts
    assert "The maximum number of attempts, 3, is reached: the best one, attempt 2, was scored 0.60." in thoughts
    run = (await service.http.get("/v1/threads/t/runs")).json()["data"][0]
    assert run["stop_reason"].startswith("The maximum number of attempts, 3, is reached")
    second = asked(model, "You are writer.")[1].messages
    assert [each["role"] for each in second] == ["system", "user", "assistant", "user"]
    assert "Better than 0.2." in second[-1]["content"]
    assert "attempt 2 of 3" in second[-1]["content"]
    for number, request in enumerate(asked(model, JUDGE)):
        assert request.body["response_format"]["json_schema"]["name"] == "Verdict"
        text = request.messages[-1]["content"]
        assert [each["role"] for each in request.messages] == ["system", "user"]
        assert (
            text
            == f"# Task\n\nWrite.\n\n# Criteria\n\nIt rhymes.\n\n# Attempt\n\n{('First.', 'Second.', 'Third.')[number]}"
        )


async def test_a_second_task_begins_anew(serve: Serve, model: ModelServer, tmp_path: Path) -> None:
    service = await served(serve, tmp_path, "max_attempts: 2")
    script(model, ["One.", "Two.", "Three."], [verdict(0.6), verdict(0.5), verdict(0.9)])
    assert (await ask(service))["choices"][0]["message"]["content"] == "One."
    assert (await ask(service, "Now that."))["choices"][0]["message"]["content"] == "Three."
    assert asked(model, JUDGE)[2].messages[-1]["content"].startswith("# Task\n\nNow that.\n\n")
    last = asked(model, "You are writer.")[2].messages
    assert last[-2]["content"] == "Two."
    assert "number 1 was given as the answer" in last[-1]["content"]
    assert last[-1]["content"].endswith("Now that.")


async def test_attempts_are_streamed_as_thoughts(serve: Serve, model: ModelServer, tmp_path: Path) -> None:
    service = await served(serve, tmp_path)
    attempts = [Reply("A first try.", chunks=["A first", " try."], reasoning="Let me see."), "Good."]
    script(model, attempts, [verdict(0.1), verdict(1)])
    stream = await service.client.chat.completions.create(
        model="writer", messages=[{"role": "user", "content": "Write."}], stream=True
    )
    pieces: list[tuple[str, str]] = []
    async for chunk in stream:
        for choice in chunk.choices:
            if thought := getattr(choice.delta, "reasoning_content", None):
                pieces.append(("thought", thought))
            if choice.delta.content:
                pieces.append(("text", choice.delta.content))
    thoughts = "".join(text for kind, text in pieces if kind == "thought")
    assert thoughts.startswith("Let me see.\n\nA first try.\n\nScore: 0.10")
    assert thoughts.count("A first try.") == thoughts.count("Let me see.") == 1
    assert ("thought", "\n\nA first") in pieces
    assert "".join(text for kind, text in pieces if kind == "text") == "Good."


async def test_tools_are_called_in_each_attempt(serve: Serve, model: ModelServer, tmp_path: Path) -> None:
    service = await served(serve, tmp_path)
    call = Reply(tool_calls=[ToolCall("calculator", {"expression": "1+1"})])
    script(model, [call, "It is 3.", call, "It is 2."], [verdict(0), verdict(0.7)])
    assert (await ask(service))["choices"][0]["message"]["content"] == "It is 2."


@pytest.mark.parametrize(
    ("said", "asks"),
    [
        (["I like it.", '```json\n{"score": "80%", "reasons": ["a", "b"]}\n```'], 2),
        (["Score: 9/10, well done."], 1),
        (["No.", {"score": 8}, {"score": None}], 3),
    ],
    ids=["repaired", "words", "never"],
)
async def test_a_judge_that_does_not_keep_to_the_form(
    serve: Serve, model: ModelServer, tmp_path: Path, said: list[Any], asks: int
) -> None:
    service = await served(serve, tmp_path)
    script(model, ["Done."], said)
    message = (await ask(service))["choices"][0]["message"]
    assert message["content"] == "Done."
    assert len(asked(model, JUDGE)) == asks
    assert ("could not be judged" in message["reasoning_content"]) == (asks == 3)


@pytest.mark.parametrize("verdicts", [[0.6], []], ids=["the second", "the first"])
async def test_a_judge_whose_model_fails(
    serve: Serve, model: ModelServer, tmp_path: Path, verdicts: list[float]
) -> None:
    """What was scored so far is not thrown away; the next task is judged again."""
    service = await served(serve, tmp_path)
    script(model, ["First.", "Second."], [*map(verdict, verdicts), *[Failure(500)] * 8])
    message = (await ask(service))["choices"][0]["message"]
    assert message["content"] == "First."
    assert f"Attempt {len(verdicts) + 1} could not be judged." in message["reasoning_content"]
    script(model, ["Third."], [verdict(0.9)])
    assert (await ask(service, "Again."))["choices"][0]["message"]["content"] == "Third."


async def test_inside_another_team(serve: Serve, model: ModelServer, tmp_path: Path) -> None:
    """The others hear the answer alone."""
    service = await served(serve, tmp_path)
    script(model, ["Bad.", "Good."], [verdict(0.1), verdict(0.8)])
    model.script("You are editor.", ["Printed."])
    said = await ask(service, team="both")
    assert said["choices"][0]["message"]["content"] == "**writer**\n\nGood.\n\n**editor**\n\nPrinted."
    [heard] = asked(model, "You are editor.")[0].messages[1:]
    assert heard["content"] == "Write.\n\nwriter said:\nGood."


async def test_the_answer_has_the_form_that_is_asked_for(serve: Serve, model: ModelServer, tmp_path: Path) -> None:
    """The attempts have it, and the judge has its own; nor do parameters of the request go to the judge."""
    service = await served(serve, tmp_path)
    script(model, ['{"a": 1}', '{"a": 2}'], [verdict(0), verdict(1)])
    form = {"type": "json_schema", "json_schema": {"name": "A", "schema": {"type": "object"}}}
    messages = [{"role": "system", "content": "You are a pirate."}, {"role": "user", "content": "Write."}]
    body = {"model": "writer", "messages": messages, "response_format": form}
    answer = await service.http.post("/v1/chat/completions", json={**body, "stop": ["}}"]})
    assert answer.json()["choices"][0]["message"]["content"] == '{"a": 2}'
    assert [each.body["response_format"]["json_schema"]["name"] for each in model.requests] == [
        *("A", "Verdict", "A", "Verdict")
    ]
    assert ["stop" in each.body for each in model.requests] == [True, False, True, False]
    assert ["pirate" in str(each.messages) for each in model.requests] == [True, False, True, False]


def written(context: RunContext) -> ReflexionTeam:
    """A team as the actor."""
    agents = [
        DrSaiAgent(name, context.model_client(), system_message=f"You are {name}.") for name in ("poet", "writer")
    ]
    return ReflexionTeam(
        RoundRobinGroupChat(list(agents), max_turns=2, name="pair"), context.model_client(), max_attempts=2
    )


async def test_a_team_as_the_actor(serve: Serve, model: ModelServer) -> None:
    service = await serve({"writer": written})
    script(model, ["Bad.", "Good."], [verdict(0.1), verdict(0.8)])
    model.script("You are poet.", ["A line.", "Another."])
    assert (await ask(service))["choices"][0]["message"]["content"].endswith("Good.")
    assert "Another." not in asked(model, JUDGE)[1].messages[-1]["content"]
