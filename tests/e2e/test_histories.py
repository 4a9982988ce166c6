"""Clients that resend the whole conversation and name no thread: their threads continue, fork and are rewound so that
the models see what the client shows, with all that the team knows of it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_core import FunctionCall
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend import AssistantAgent, DrSai, Thread, requires_approval
from drsai_backend.runs.history.digest import plain, plain_answer
from tests.e2e.test_recordings import as_asked
from tests.recordings import recording
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings as settings_with

pytestmark = pytest.mark.both_databases

URL = "/v1/chat/completions"
Context = tuple[tuple[str, str], ...]
Acts = list[tuple[tuple[str, str, int], int, int]]
"""What a user does, in which of two windows, and which of two processes is asked."""


@dataclass
class Models:
    """What the models of a test are asked, and what they answer: never the same twice."""

    asked: list[Context] = field(default_factory=list)
    told: dict[str, Context] = field(default_factory=dict)
    """By answer: what its model knew then, the answer included."""

    def rule(self, messages: Sequence[Any], options: dict[str, Any]) -> Any:
        context = tuple((type(each).__name__, str(each.content)) for each in messages)
        self.asked.append(context)
        if "tool" in str(messages[-1].content) and type(messages[-1]).__name__ == "UserMessage":
            return [FunctionCall(str(len(self.asked)), '{"what": "x"}', "look_up")]
        answer = f"**Answer** {len(self.asked)}\n\nto {messages[-1].content!s:.40}"
        self.told[answer] = (*context, ("AssistantMessage", answer))
        return answer

    def team(self) -> AssistantAgent:
        def look_up(what: str) -> str:
            """Look something up."""
            return f"{what} is found"

        return AssistantAgent(
            "ann", ScriptedClient(self.rule), tools=[look_up], reflect_on_tool_use=True, system_message="S"
        )


@dataclass
class Window:
    """A chat window. It resends its branch of the conversation, as changed on the way as windows change it."""

    http: list[httpx.AsyncClient]
    models: Models
    chat: str | None = None
    model: str = "team"
    user: str = "ann"
    around: str = ""
    """What it puts after its newest question, and does not show later."""
    by_text: bool = False
    """What its models were asked is compared as it shows it: they are not told what others' tools have found."""
    messages: list[dict[str, str]] = field(default_factory=list)
    thread: str | None = None

    async def ask(self, process: int = 0, **values: Any) -> str:
        """Send the conversation, and add the answer to it; check what the model was asked."""
        headers = {} if self.chat is None else {"X-OpenWebUI-Chat-Id": self.chat}
        sent = [{**each, "content": changed(each["content"], number)} for number, each in enumerate(self.messages)]
        sent[-1]["content"] += self.around
        body = {"model": self.model, "user": self.user, "messages": sent, **values}
        asked = len(self.models.asked)
        response = await self.http[process].post(URL, json=body, headers=headers)
        assert response.status_code == 200, response.text
        answer = response.json()
        self.thread = answer["thread_id"]
        text = answer["choices"][0]["message"]["content"]
        before = self.messages[-2]["content"] if len(self.messages) > 1 else None
        context = (("SystemMessage", "S"),) if before is None else self.models.told[before]
        expected = (*context, ("UserMessage", sent[-1]["content"]))
        if self.by_text:
            assert _shown(self.models.asked[asked]) == _shown(expected)
        else:
            assert self.models.asked[asked] == expected
        self.messages.append({"role": "assistant", "content": text})
        return text

    async def say(self, text: str, process: int = 0, **values: Any) -> str:
        self.messages.append({"role": "user", "content": text})
        return await self.ask(process, **values)


def _shown(context: Context) -> list[bytes]:
    """What of a context a window shows."""
    said = [plain(text) if kind == "UserMessage" else plain_answer(text) for kind, text in context if kind in _SHOWN]
    return [each for each in said if not each.startswith(b"[FunctionCall")]


_SHOWN = ("UserMessage", "AssistantMessage")


def changed(text: str, number: int) -> str:
    """A text as a client may send it back."""
    if number % 4 == 1:
        return f"<details type='reasoning'>\nso <b>many</b>\n</details>\n\n**ann**\n\n{text}\n"
    return text.replace("\n\n", "\n \n") if number % 2 else text


texts = st.sampled_from(["yes", "no", "use a tool", "go  on\n", "écoute\u00a0", "x" * 300])
acts = st.one_of(
    st.tuples(st.just("say"), texts, st.just(0)),
    st.tuples(st.just("say"), texts, st.just(0)),
    st.tuples(st.just("again"), st.just(""), st.integers(0, 5)),
    st.tuples(st.just("edit"), texts, st.integers(0, 5)),
)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.sampled_from(["", "named", "models", "[today]"]),
    st.lists(st.tuples(acts, st.integers(0, 1), st.integers(0, 1)), min_size=2, max_size=9),
)
def test_the_models_see_what_the_client_shows(sqlite_template: bytes, kind: str, acted: Acts) -> None:
    """Two windows of one user, in front of two processes, say, regenerate and edit at random. They name no thread, or
    their chat; or that, and ask one of two models, or send their newest question with more than they show later."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "a.db"
        file.write_bytes(sqlite_template)
        asyncio.run(_converse(f"sqlite:///{file}", acted, kind))


async def _converse(url: str, acted: Acts, kind: str) -> None:
    named, around = bool(kind), kind if kind.startswith("[") else ""
    async with AsyncExitStack() as stack:
        models = Models()
        http = [await stack.enter_async_context(await process(stack, url, models)) for _ in range(2)]
        windows = [
            Window(http, models, f"chat{number}" if named else None, around=around, by_text=kind == "models")
            for number in range(2)
        ]
        for (act, text, place), which, where in acted:
            window = windows[which]
            before, thread = len(window.messages), window.thread
            window.model = "other" if kind == "models" and where else "team"
            if act == "say":
                await window.say(text, where)
            elif window.messages:
                # Back to one of its questions, which is asked anew or changed.
                index = 2 * (place % (before // 2))
                if around:
                    index = max(index, before - 8)  # Farther back, it is imported as it is shown.
                question = text if act == "edit" else window.messages[index]["content"]
                del window.messages[index:]
                await window.say(question, where)
            if thread is not None and act == "say":
                assert window.thread == thread, "it is the head of its thread"
            elif thread is not None and not named:
                assert window.thread != thread


async def process(stack: AsyncExitStack, url: str, models: Models, **values: Any) -> httpx.AsyncClient:
    teams = {"team": models.team, "other": models.team}
    drsai = await stack.enter_async_context(DrSai(teams, url, settings=settings_with(**values)))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=drsai.app()), base_url="http://127.0.0.1", timeout=60)


async def turns_of(url: str, thread_id: str, user: str = "ann") -> list[str]:
    async with DrSai({}, url, settings=settings_with(), worker=False) as drsai:
        [thread] = await drsai.db.get(Thread, filters={"thread_id": thread_id, "user_id": user})
        return [message["content"] for message in thread.messages if message["source"] == "user"]


async def test_equal_conversations_part_where_they_differ(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        models = Models()
        models.rule = lambda messages, _: f"to {messages[-1].content}"  # type: ignore[method-assign]
        http = await stack.enter_async_context(await process(stack, database_url, models))
        bodies = [[{"role": "user", "content": "hello"}] for _ in range(2)]

        async def ask(number: int, text: str | None = None) -> str:
            if text is not None:
                bodies[number].append({"role": "user", "content": text})
            response = await http.post(URL, json={"model": "team", "user": "ann", "messages": bodies[number]})
            answer = response.json()
            bodies[number].append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
            return answer["thread_id"]

        first, second = await ask(0), await ask(1)
        assert first != second
        # The newest of both continues; then only one is left that stands there.
        assert [await ask(0, "left"), await ask(1, "right")] == [second, first]
        assert [await ask(0, "on"), await ask(1, "on")] == [second, first]
        # A third window, with what was said in the first one: a fork, which knows nothing of the rest.
        bodies.append([*bodies[0][:4]])
        fork = await ask(2, "elsewhere")
        assert fork not in (first, second)
        assert await turns_of(database_url, fork) == ["hello", "left", "elsewhere"]
        assert await turns_of(database_url, second) == ["hello", "left", "on"]


async def test_users_and_models_never_meet(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        models = Models()
        http = await stack.enter_async_context(await process(stack, database_url, models))
        mine = Window([http], models)
        await mine.say("use a tool")
        for stranger in (Window([http], models, user="bob"), Window([http], models, model="other")):
            messages = [*mine.messages, {"role": "user", "content": "and?"}]
            body = {"model": stranger.model, "user": stranger.user, "messages": messages}
            asked = len(models.asked)
            answer = (await http.post(URL, json=body)).json()
            assert answer["thread_id"] != mine.thread
            # Its texts are imported; what the tool had found is not.
            kinds = [kind for kind, _ in models.asked[asked]]
            assert kinds == ["SystemMessage", "UserMessage", "AssistantMessage", "UserMessage"]


async def test_an_approval_is_typed_into_a_window_that_names_no_thread(database_url: str) -> None:
    sent: list[str] = []

    def clerk() -> AssistantAgent:
        @requires_approval
        def send(to: str) -> str:
            """Send a mail."""
            sent.append(to)
            return f"sent to {to}"

        def rule(messages: Any, _: Any) -> Any:
            if type(messages[-1]).__name__ == "FunctionExecutionResultMessage":
                return "It is sent."
            return [FunctionCall("1", '{"to": "ada"}', "send")]

        return AssistantAgent("clerk", ScriptedClient(rule), tools=[send], reflect_on_tool_use=True)

    async with AsyncExitStack() as stack:
        windows: list[httpx.AsyncClient] = []
        for _ in range(2):
            drsai = await stack.enter_async_context(DrSai({"clerk": clerk}, database_url, settings=settings_with()))
            app = httpx.ASGITransport(app=drsai.app())
            windows.append(
                await stack.enter_async_context(httpx.AsyncClient(transport=app, base_url="http://127.0.0.1"))
            )
        messages: list[dict[str, str]] = []
        threads: set[str] = set()
        for number, text in enumerate(("Write to Ada.", "approve", "Once more.", "deny")):
            messages.append({"role": "user", "content": text})
            response = await windows[number % 2].post(URL, json={"model": "clerk", "messages": messages})
            assert response.status_code == 200, response.text
            answer = response.json()
            threads.add(answer["thread_id"])
            messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        assert sent == ["ada"]
        assert len(threads) == 1


async def test_the_same_history_twice_at_once_is_never_mixed(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        models = Models()
        http = [await stack.enter_async_context(await process(stack, database_url, models)) for _ in range(2)]
        window = Window(http, models)
        await window.say("hello")
        messages = [*window.messages, {"role": "user", "content": "and?"}]
        body = {"model": "team", "user": "ann", "messages": messages}
        answers = await asyncio.gather(*(http[number % 2].post(URL, json=body) for number in range(6)))
        assert [each.status_code for each in answers] == [200] * 6
        threads = {each.json()["thread_id"] for each in answers}
        assert window.thread in threads
        assert len(threads) == 6
        for thread in threads:
            assert await turns_of(database_url, thread) == ["hello", "and?"]


async def test_another_model_takes_the_thread_over(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        models = Models()
        http = [await stack.enter_async_context(await process(stack, database_url, models)) for _ in range(2)]

        async def ask(model: str, text: str, number: int = 0) -> str:
            body = {"model": model, "thread_id": "t", "messages": [{"role": "user", "content": text}]}
            response = await http[number].post(URL, json=body)
            assert response.status_code == 200, response.text
            return response.json()["choices"][0]["message"]["content"]

        first = await ask("team", "use a tool")
        # Its process knows the thread by heart, the other one does not.
        for number, model in enumerate(("other", "team", "other")):
            asked = len(models.asked)
            await ask(model, f"question {number}", number % 2)
            said = [content for kind, content in models.asked[asked] if kind == "UserMessage"]
            assert said == ["use a tool", *(f"question {each}" for each in range(number + 1))]
            assert models.asked[asked][2] == ("AssistantMessage", first)
        # And then as any thread of that model.
        await ask("other", "last", 1)
        assert [kind for kind, _ in models.asked[-1]].count("UserMessage") == 5
        refusing = await stack.enter_async_context(await process(stack, database_url, models, other_model="refuse"))
        body = {"model": "team", "thread_id": "t", "messages": [{"role": "user", "content": "x"}]}
        refused = await refusing.post(URL, json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "other_model")


async def test_a_history_may_be_imported_all_the_same(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        models = Models()
        http = await stack.enter_async_context(await process(stack, database_url, models))
        off = await stack.enter_async_context(await process(stack, database_url, models, resume_by_history=False))
        window = Window([http], models)
        await window.say("hello")
        messages = [*window.messages, {"role": "user", "content": "and?"}]
        body = {"model": "team", "user": "ann", "messages": messages}
        answers = [await http.post(URL, json={**body, "history": "import"}), await off.post(URL, json=body)]
        assert all(each.json()["thread_id"] != window.thread for each in answers)
        assert (await http.post(URL, json=body)).json()["thread_id"] == window.thread
        assert (await http.post(URL, json={**body, "history": "x"})).json()["error"]["param"] == "history"


async def test_a_question_whose_run_has_failed_is_asked_once(database_url: str) -> None:
    async with AsyncExitStack() as stack:
        models = Models()
        http = await stack.enter_async_context(await process(stack, database_url, models))
        for chat in (None, "c"):
            window = Window([http], models, chat=chat)
            await window.say("hello")
            rule, models.rule = models.rule, lambda *_: RuntimeError("down")  # type: ignore[method-assign]
            body = {"model": "team", "user": "ann", "messages": [*window.messages, {"role": "user", "content": "why?"}]}
            headers = {} if chat is None else {"X-OpenWebUI-Chat-Id": chat}
            assert (await http.post(URL, json=body, headers=headers)).status_code == 424
            models.rule = rule  # type: ignore[method-assign]
            await window.say("why?")


WHERE = {
    "another_model": "aa",
    # Its beginning is gone, until a summary stands for the same beginning again.
    "compaction": "abcc",
    "document": "aa",
    # Another first question begins another conversation.
    "edit_a_question": "aabb",
    # What the client has changed is told as it shows it.
    "edit_an_answer": "ab",
    "fork": "aab",
    "group_chat": "aa",
    # What tools found is put around a question in the request that asks it; the next one has the question alone.
    "legacy_tools": "aa",
    "named_two_turns": "aa",
    "regenerate": "aabb",
    "settings": "aa",
    # It has received less than it was sent.
    "stop": "ab",
    "temporary_chat": "aa",
    "thoughts": "aa",
    "two_turns": "aa",
}
"""Of recorded scenes, by letters: on which thread each of the chat requests is run."""


async def test_what_open_webui_really_sends(migrated_sqlite: str) -> None:
    async with AsyncExitStack() as stack:
        models = Models()
        http = await stack.enter_async_context(await process(stack, migrated_sqlite, models))
        for scene, where in WHERE.items():
            chats = [each for each in recording(f"openwebui/{scene}").exchanges if each.kind == "chat"]
            threads: list[str] = []
            wrapped: dict[str, str] = {}
            for chat in chats:
                models.rule = partial(_as_recorded, models, chat.answer["content"])  # type: ignore[method-assign]
                headers = {name: value for name, value in chat.headers.items() if name.startswith("x-openwebui")}
                # Each scene is another user's: some begin with the same words.
                body = {**chat.body, "model": "team", "stream": False, "user": scene}
                answer = await http.post(URL, json=body, headers=headers)
                assert answer.status_code == 200, (scene, answer.text)
                threads.append(answer.json()["thread_id"])
                seen = [(kind.removesuffix("Message").lower(), text) for kind, text in models.asked[-1]]
                sent = [(each["role"], each["content"]) for each in as_asked(chat.body["messages"], wrapped)]
                assert seen == [("system", "S"), *sent], scene
            known = list(dict.fromkeys(threads))
            assert "".join("abcd"[known.index(each)] for each in threads) == where, scene


def _as_recorded(models: Models, answer: str, messages: Sequence[Any], _: dict[str, Any]) -> str:
    models.asked.append(tuple((type(each).__name__, str(each.content)) for each in messages))
    return answer
