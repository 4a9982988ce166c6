"""Clients that show a conversation otherwise than its thread has it: changed answers, questions in other words,
and other models."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from autogen_core import FunctionCall

from drsai_backend import AssistantAgent, DrSai, requires_approval
from tests.e2e.test_histories import URL, Models, Window, process, turns_of
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings as settings_with


@pytest.mark.parametrize("where", ["a window", "a thread"])
async def test_a_client_that_resends_its_questions_in_other_words(database_url: str, where: str) -> None:
    """The thread continues, with all that its team knows; and nothing is imported anew with each turn."""
    is_window = where == "a window"
    named: dict[str, Any] = {} if is_window else {"thread_id": "c"}
    async with AsyncExitStack() as stack:
        models = Models()
        http = [await stack.enter_async_context(await process(stack, database_url, models)) for _ in range(2)]
        window = Window(http, models, chat="c" if is_window else None, around="\n\n[Found: 1]")
        for number, text in enumerate(("use a tool", "two", "three")):
            await window.say(text, number % 2, **named)
            window.around = f"\n\n[Found: {number}]"
        assert len(await turns_of(database_url, "c")) == 3
        branches = "/v1/threads/c/branches?user=ann"
        assert len((await http[0].get(branches)).json()["data"]) == 1
        del window.messages[-1]
        await window.ask(1, **named)  # Answered anew: from where the second answer is.
        await window.say("four", **named)
        assert len((await http[0].get(branches)).json()["data"]) == 2
        # Quite other words are an edit.
        window.messages[-2]["content"] = "5"
        headers = {"X-OpenWebUI-Chat-Id": "c"} if is_window else {}
        body = {"model": "team", "user": "ann", **named}
        body["messages"] = [*window.messages, {"role": "user", "content": "six"}]
        assert (await http[1].post(URL, json=body, headers=headers)).status_code == 200
        said = [text for kind, text in models.asked[-1] if kind == "UserMessage"]
        assert said[-2:] == ["5", "six"]


async def test_an_approval_of_what_was_asked_for_in_other_words(database_url: str) -> None:
    paid: list[str] = []

    def clerk() -> AssistantAgent:
        @requires_approval
        def pay(amount: str) -> str:
            """Pay."""
            paid.append(amount)
            return "paid"

        def rule(messages: Any, _: Any) -> Any:
            return [FunctionCall("1", '{"amount": "1"}', "pay")] if "pay" in str(messages[-1].content) else "Hello."

        return AssistantAgent("clerk", ScriptedClient(rule), tools=[pay])

    async with AsyncExitStack() as stack:
        drsai = await stack.enter_async_context(DrSai({"team": clerk}, database_url, settings=settings_with()))
        app = httpx.ASGITransport(app=drsai.app())
        http = await stack.enter_async_context(httpx.AsyncClient(transport=app, base_url="http://127.0.0.1"))
        messages: list[dict[str, str]] = []
        for text in ("one", "please pay", "approve"):
            sent = [*messages, {"role": "user", "content": f"{text}{'' if text == 'approve' else ' [today]'}"}]
            response = await http.post(URL, json={"model": "team", "thread_id": "t", "messages": sent})
            assert response.status_code == 200, response.text
            answer = response.json()["choices"][0]["message"]["content"]
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
        assert paid == ["1"]


async def test_another_model_answers_anew(database_url: str) -> None:
    """Each sees what the window shows: not the answer that it stands for, and nothing of a branch that was left."""
    async with AsyncExitStack() as stack:
        models = Models()
        http = [await stack.enter_async_context(await process(stack, database_url, models)) for _ in range(2)]
        window = Window(http, models, chat="c")
        await window.say("use a tool")
        await window.say("two")
        del window.messages[-1]
        window.model, window.by_text = "other", True
        await window.ask(1)
        await window.say("three")
        # And back, on the branch where the first one knows what its tool has found.
        window.model, window.by_text = "team", False
        del window.messages[-4:]
        await window.say("two, edited", 1)
        del window.messages[:]
        window.model = "other"
        await window.say("ONE")
        refusing = await stack.enter_async_context(await process(stack, database_url, models, other_model="refuse"))
        body = {"model": "team", "user": "ann", "messages": [{"role": "user", "content": "x"}]}
        refused = await refusing.post(URL, json=body, headers={"X-OpenWebUI-Chat-Id": "c"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "other_model")
        assert await turns_of(database_url, "c") == ["ONE"]


async def test_an_answer_that_the_client_has_changed(database_url: str) -> None:
    """What comes after the last common point is as the client shows it; what was before is as the team knows it."""
    async with AsyncExitStack() as stack:
        models = Models()
        http = await stack.enter_async_context(await process(stack, database_url, models))
        window = Window([http], models, chat="c")
        await window.say("use a tool")
        second = await window.say("more")
        window.messages[-1]["content"] = "changed"
        known = models.told[window.messages[-3]["content"]]
        models.told["changed"] = (*known, ("UserMessage", "more"), ("AssistantMessage", "changed"))
        await window.say("and?")
        assert second not in str(models.asked[-1])
        assert await turns_of(database_url, "c") == ["use a tool", "more", "and?"]
        # The branch that was left is there.
        branches = (await http.get("/v1/threads/c/branches?user=ann")).json()["data"]
        assert len(branches) == 2


def said_by(models: Models) -> list[str]:
    return [text for kind, text in models.asked[-1] if kind == "UserMessage"]


async def test_a_question_that_its_client_has_edited(database_url: str) -> None:
    """A client that names its thread: the models read what it shows, and what it shows no more is on a branch."""
    async with AsyncExitStack() as stack:
        models = Models()
        models.rule = lambda messages, _: (
            models.asked.append(  # type: ignore[method-assign]
                tuple((type(each).__name__, str(each.content)) for each in messages)
            )
            or f"to {len(messages)}"
        )
        http = await stack.enter_async_context(await process(stack, database_url, models))

        async def ask(thread: str, *texts: str) -> str:
            messages = [
                {"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)
            ]
            body = {"model": "team", "user": "ann", "thread_id": thread, "messages": messages}
            response = await http.post(URL, json=body)
            assert response.status_code == 200, response.text
            return response.json()["choices"][0]["message"]["content"]

        async def branches(thread: str) -> int:
            return len((await http.get(f"/v1/threads/{thread}/branches?user=ann")).json()["data"])

        a = await ask("first", "Ada")
        await ask("first", "Ada", a, "More")
        await ask("first", "Eve", a, "More")
        assert said_by(models) == ["Eve", "More"]
        assert await branches("first") == 2
        # A question that has become longer is another one; one that has lost what was put around it is not.
        a = await ask("later", "Hello")
        b = await ask("later", "Hello", a, "Book it [found]")
        c = await ask("later", "Hello", a, "Book it", b, "And?")
        assert (said_by(models), await branches("later")) == (["Hello", "Book it [found]", "And?"], 1)
        await ask("later", "Hello", a, "Book it for Tuesday", b, "And?", c, "So?")
        assert (said_by(models), await branches("later")) == (["Hello", "Book it for Tuesday", "And?", "So?"], 2)
        # A window, or a summary in place of the rest, is no edit.
        a = await ask("window", "one")
        b = await ask("window", "one", a, "two")
        c = await ask("window", "one", a, "two", b, "three")
        d = await ask("window", "three", c, "four")
        await ask("window", "A summary: one, two", d, "five")
        assert (said_by(models), await branches("window")) == (["one", "two", "three", "four", "five"], 1)


async def test_a_window_that_begins_with_an_answer_like_the_first_one(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        models = Models()
        models.rule = lambda messages, _: (
            models.asked.append(  # type: ignore[method-assign]
                tuple((type(each).__name__, str(each.content)) for each in messages)
            )
            or "ok"
        )
        http = await stack.enter_async_context(await process(stack, database_url, models))
        for sent in (["one"], ["one", "ok", "two"], ["two", "ok", "three"], ["two", "ok", "three", "ok", "four"]):
            messages = [
                {"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(sent)
            ]
            body = {"model": "team", "user": "ann", "thread_id": "t", "messages": messages}
            assert (await http.post(URL, json=body)).status_code == 200
        assert said_by(models) == ["one", "two", "three", "four"]
