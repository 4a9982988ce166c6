"""A server of an earlier release was killed, and the database is upgraded: today's server continues all that is in it.

`tests/recordings/release_0020` has the databases, what the clients of that server had noted, and the program that made
both.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import sqlalchemy as sa

from drsai_backend.database import migrations
from tests.recordings.databases import FOLDER, restore
from tests.recordings.release_0020.script import Script
from tests.recordings.release_0020.teams import KINDS, MODES, PROFILES, SETTINGS, STRATEGIES, TEAMS, definitions
from tests.support import invariants
from tests.support.commands import Commands
from tests.support.effects import Site
from tests.support.model_server import ModelRequest, ModelServer
from tests.support.peer import Peer

Json = dict[str, Any]
WORLDS = [*KINDS, *(f"of_{each}" for each in STRATEGIES), *(f"team_of_{each}" for each in TEAMS)]
BEGIN_ANEW = {"plan", "reflexion", "magentic", "router", "of_plan_execute", "of_reflexion", "of_router"}
BEGIN_ANEW |= {"team_of_magentic_one"}
"""Teams that begin a new task with each message, and are told what was said before, and not what tools returned."""


@dataclass
class House:
    """Today's server on a recorded database; `noted` is what the clients of the old one had."""

    database_url: str
    noted: Json
    model: ModelServer
    peer: Peer
    effects: Path
    script: Script = field(default_factory=Script)
    clients: dict[str, httpx.AsyncClient] = field(default_factory=dict)

    async def call(
        self, method: str, path: str, body: Any = None, *, who: str = "ada", **options: Any
    ) -> httpx.Response:
        return await self.clients[who].request(method, path, json=body, **options)

    async def get(self, path: str, who: str = "ada") -> Json:
        answer = await self.call("GET", path, who=who)
        assert answer.status_code == 200, (path, answer.text)
        return answer.json()

    async def post(self, path: str, body: Any = None, *, who: str = "ada", **headers: str) -> Json:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await self.call("POST", path, body, who=who, headers=named)
        assert answer.is_success, (path, answer.text)
        return {"thread_id": answer.headers.get("x-thread-id"), **answer.json()}

    async def chat(self, text: str, thread: str | None = None, model: str = "talk", **headers: str) -> Json:
        body: Json = {"model": model, "messages": [{"role": "user", "content": text}]}
        return await self.post(
            "/v1/chat/completions", body | ({} if thread is None else {"thread_id": thread}), **headers
        )

    async def respond(self, text: Any, **values: Any) -> Json:
        return await self.post("/v1/responses", {"model": "talk", "input": text, **values})

    async def all_over(self) -> None:
        """Wait until no run waits for its turn, and none is under way; a minute at most, as those that do not end are
        found by who looks at them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(60):
                for status in ("created", "running"):
                    while (await self.get(f"/v1/runs?limit=1&status={status}"))["data"]:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)

    async def thread(self, thread: str, status: str = "completed") -> Json:
        """The thread, which has that status once its run is over."""
        async with asyncio.timeout(120):
            while (found := await self.get(f"/v1/threads/{thread}"))["status"] == "running":  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        assert found["status"] == status, found
        return found

    async def runs(self, thread: str) -> list[Json]:
        """Those of a thread, oldest first."""
        return (await self.get(f"/v1/threads/{thread}/runs"))["data"][::-1]

    async def said(self, thread: str) -> list[tuple[str, str]]:
        """Who has said what, without what agents did on the way."""
        found = (await self.get(f"/v1/threads/{thread}/messages?limit=100"))["data"]
        return [(each["source"], each["content"]) for each in found if not each["type"].endswith("Event")]

    def asked(self, text: str) -> list[ModelRequest]:
        """The requests to the model whose newest message is this text."""
        return [each for each in self.model.requests if each.model == "talk" and each.last == text]

    def made(self) -> list[str]:
        """The effects of tools, then and now."""
        lines = self.effects.read_text().splitlines() if self.effects.exists() else []
        return [*self.noted["effects"], *(f"{each['tool']} {each['token']}" for each in map(json.loads, lines))]

    def paid(self, thread: str) -> list[str]:
        """The payments of a thread, then and now."""
        return [each for each in self.made() if each.startswith(f"pay {thread}~")]

    async def answer_of(self, thread: str) -> str:
        """The newest that an agent has said there."""
        return (await self.said(thread))[-1][1]

    def rows(self, statement: str) -> list[Any]:
        with migrations.connecting(self.database_url, write=False) as connection:
            return [tuple(row) for row in connection.execute(sa.text(statement))]


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(120):
        while not true():  # noqa: ASYNC110 - it comes from another process
            await asyncio.sleep(0.05)


async def _each(calls: Sequence[Awaitable[None]], names: Sequence[str]) -> None:
    """Await all, and raise what has failed."""

    async def one(call: Awaitable[None], name: str) -> None:
        try:
            await call
        except Exception as error:
            error.add_note(f"in {name}")
            raise

    found = dict(zip(names, await asyncio.gather(*map(one, calls, names), return_exceptions=True), strict=True))
    if errors := {name: each for name, each in found.items() if isinstance(each, Exception)}:
        raise ExceptionGroup(f"not continued: {', '.join(errors)}", [*errors.values()])


CHECKS: list[Callable[[House], Awaitable[None]]] = []


def check(one: Callable[[House], Awaitable[None]]) -> Callable[[House], Awaitable[None]]:
    CHECKS.append(one)
    return one


# --- runs that were cut ----------------------------------------------------------------------------------------------


async def _settled(house: House, world: str) -> None:
    """The run completes, what was recorded of it is not asked again, and each payment is made once."""
    thread = f"cut-{world}"
    await house.thread(thread)
    first, *queued = await house.runs(thread)
    assert (first["status"], first["attempt"] > 1) == ("completed", True)
    numbers = () if world in ("of_simple", "task-simple") else (1, 2, 3, 4)
    assert sorted(house.paid(thread)) == [f"pay {thread}~{number}" for number in numbers]
    assert await house.answer_of(thread) in ("All is paid.", "It is done.", '{"note":"All is paid."}')
    # Who is asked about a task that was queued behind it is asked once, as all is paid.
    asked = house.noted["asked"].get(world, 0) + house.script.answered[world]
    assert asked == house.noted["whole"][world] + len(queued)


async def teams_of_each_kind_settle_what_was_cut(house: House) -> None:
    await _each([_settled(house, world) for world in WORLDS], WORLDS)


async def tasks_of_each_mode_settle_what_was_cut(house: House) -> None:
    """One was queued behind another."""
    await _each([_settled(house, f"task-{mode}") for mode in MODES], MODES)
    for mode in MODES:
        first, *_ = await house.runs(f"cut-task-{mode}")
        task = await house.get(f"/api/v1/agent/tasks/{first['run_id']}")
        assert (task["mode"], task["status"]) == (mode, "success")
        calls = [each for each in task["steps"] if each["action"] == "pay"]
        assert len(calls) == (0 if mode == "simple" else 4)
    said = [text for source, text in await house.said("cut-task-tools") if source == "user"]
    assert said == ["Settle it [task-tools].", "Settle it [task-tools], too."]


CUT = [teams_of_each_kind_settle_what_was_cut, tasks_of_each_mode_settle_what_was_cut]


@check
async def each_kind_of_team_knows_its_thread(house: House) -> None:
    """A run that was over: the next message is answered with what the agents know, so nothing is paid again."""

    async def one(world: str) -> None:
        before = house.paid(f"whole-{world}")
        answer = await house.chat("Is it settled?", f"whole-{world}", world)
        assert answer["drsai"]["status"] == "completed"
        assert house.paid(f"whole-{world}") == before or world in BEGIN_ANEW

    await _each([one(world) for world in WORLDS], WORLDS)


@check
async def a_call_under_way_is_asked_about(house: House) -> None:
    waits = await house.thread("digs", "awaiting_input")
    answer = {"id": waits["input_request"]["id"], "decision": "result", "text": "It was dug."}
    await house.post("/v1/threads/digs/input", answer)
    await house.thread("digs")
    assert (await house.said("digs"))[-1] == ("sam", "It gave: It was dug.")
    assert house.made().count("dig it") == 1


@check
async def a_key_finds_its_run_that_was_cut(house: House) -> None:
    again = await house.chat("Hold and repeat.", "cut-keyed", idempotency_key="k2")
    assert again["choices"][0]["message"]["content"] == "You said: Hold and repeat."
    assert await house.said("cut-keyed") == [("user", "Hold and repeat."), ("sam", "You said: Hold and repeat.")]
    assert len(house.asked("Hold and repeat.")) == 1


# --- inputs that wait in the queue -----------------------------------------------------------------------------------


@check
async def queued_inputs_are_answered_in_order(house: House) -> None:
    """By chat with an image and a parameter, by Responses, Messages, in the background, and by a program."""
    await house.thread("busy")
    texts = ["Hold the line.", "By chat.", "By responses.", "By messages.", "By background.", "By Python."]
    said = await house.said("busy")
    assert [source for source, _ in said] == ["user", "sam"] * len(texts)
    assert [text for source, text in said if source == "sam"] == [f"You said: {text}" for text in texts]
    [by_chat] = house.asked("By chat.")
    assert by_chat.parameters["temperature"] == 0.5
    [_, image] = by_chat.messages[-1]["content"]
    sent = base64.b64decode(image["image_url"]["url"].partition(",")[2])
    assert sent.startswith(b"\x89PNG")
    assert house.asked("By messages.")[0].parameters["max_tokens"] == 100
    run = await house.get(f"/v1/runs/{house.noted['queued_background']}")
    assert (run["status"], run["thread_id"]) == ("completed", "busy")
    assert [each["status"] for each in await house.runs("busy")] == ["completed"] * len(texts)


@check
async def a_word_in_between_reaches_the_next_speaker(house: House) -> None:
    """`on_busy: steer`, taken up at the boundary after the turn that was cut."""
    await house.thread("steered")
    assert [source for source, _ in await house.said("steered")] == ["user", "ann", "user", "bob"]
    [asked] = [each for each in house.model.requests if each.last.endswith("Be brief.")]
    assert asked.system == "You are bob."


@check
async def a_run_that_was_paused_or_about_to_be_is_resumed(house: House) -> None:
    for thread in ("paused", "pausing"):
        await house.thread(thread, "paused")
        assert [source for source, _ in await house.said(thread)] == ["user", "ann"]
        await house.post(f"/v1/threads/{thread}/resume", {})
        await house.thread(thread)
        assert [source for source, _ in await house.said(thread)] == ["user", "ann", "bob"]


# --- what waits for somebody -----------------------------------------------------------------------------------------


@check
async def an_approval_is_given_and_another_denied(house: House) -> None:
    for thread, decision in (("approval", "approve"), ("denial", "deny")):
        waits = await house.thread(thread, "awaiting_input")
        assert waits["input_request"]["tool"]["name"] == "wire", waits["input_request"]
        await house.post(
            f"/v1/threads/{thread}/input", {"id": waits["input_request"]["id"], "decision": decision, "reason": "no"}
        )
        await house.thread(thread)
    assert house.made().count("wire 7") == 1
    assert (await house.said("approval"))[-1] == ("sam", "It gave: wire 7 done")
    assert "wire 7 done" not in (await house.said("denial"))[-1][1]


@check
async def questions_are_answered(house: House) -> None:
    waits = await house.thread("question", "awaiting_input")
    assert waits["input_request"]["prompt"] == "Which one?"
    answer = await house.chat("The blue one.", "question")
    assert answer["choices"][0]["message"]["content"] == "It gave: The blue one."
    await house.thread("person", "awaiting_input")
    await house.chat("It is me.", "person", "person")
    assert (await house.said("person"))[-1] == ("person", "It is me.")


@check
async def the_clients_tools_return(house: House) -> None:
    """By the ids of the calls: of a chat, a response, and Anthropic's messages."""
    calls = [{"id": house.noted["look_chat"], "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    messages = [
        {"role": "user", "content": "Look at it."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": house.noted["look_chat"], "content": "a tree"},
    ]
    chat = await house.post("/v1/chat/completions", {"model": "talk", "messages": messages})
    assert chat["choices"][0]["message"]["content"] == "It gave: a tree"
    assert chat["thread_id"] == "looks-chat"
    noted = house.noted["look_responses"]
    output = {"type": "function_call_output", "call_id": noted["call"], "output": "a house"}
    response = await house.respond([output], previous_response_id=noted["response"])
    assert _text(response) == "It gave: a house"
    used = {"type": "tool_use", "id": house.noted["look_messages"], "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": house.noted["look_messages"], "content": "a road"}
    messages = [
        {"role": "user", "content": "Look at it."},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [result]},
    ]
    answer = await house.post("/v1/messages", {"model": "talk", "max_tokens": 100, "messages": messages})
    assert answer["content"][-1]["text"] == "It gave: a road"
    assert answer["thread_id"] == "looks-messages"


# --- what is stored --------------------------------------------------------------------------------------------------


def _text(response: Json) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


@check
async def responses_are_retrieved_and_continued(house: House) -> None:
    first, second = [await house.get(f"/v1/responses/{each}") for each in house.noted["responses"]]
    assert (_text(first), first["metadata"]) == ("You said: Answer me.", {"a": "b"})
    assert (_text(second), second["previous_response_id"]) == ("You said: And now?", first["id"])
    [item] = (await house.get(f"/v1/responses/{second['id']}/input_items"))["data"]
    assert item["content"][0]["text"] == "And now?"
    third = await house.respond("And then?", previous_response_id=second["id"])
    assert _text(third) == "You said: And then?"
    [asked] = house.asked("And then?")
    assert _users(asked) == ["Answer me.", "And now?", "And then?"]
    aside = await house.respond("Or what?", previous_response_id=first["id"])
    assert _text(aside) == "You said: Or what?"
    [asked] = house.asked("Or what?")
    assert _users(asked) == ["Answer me.", "Or what?"]


def _users(asked: ModelRequest) -> list[str]:
    return [each["content"] for each in asked.messages if each["role"] == "user"]


@check
async def a_conversation_continues(house: House) -> None:
    noted = house.noted["conversation"]
    found = await house.get(f"/v1/conversations/{noted['id']}")
    assert found["metadata"] == {"topic": "rain"}
    items = (await house.get(f"/v1/conversations/{noted['id']}/items?order=asc"))["data"]
    texts = [item["content"][0]["text"] for item in items]
    assert texts[:2] == ["I speak first.", "Do you hear?"]
    await house.respond("Still there?", conversation=noted["id"])
    [asked] = house.asked("Still there?")
    assert "I speak first." in json.dumps(asked.messages)
    assert "Do you hear?" in json.dumps(asked.messages)


@check
async def webhooks_are_told(house: House) -> None:
    """Of what had ended when nobody could be told, and of the response that was cut; signed as before."""
    response, run = house.noted["told_of"]
    held = house.noted["held_response"]
    expected = {(response, "response.completed"), (run, "run.completed"), (held, "response.completed")}
    await _until(lambda: len(_hooks(house)) >= len(expected))
    assert {(each.event["data"]["id"], each.event["type"]) for each in _hooks(house)} == expected
    assert len({each.id for each in _hooks(house)}) == 3
    with openai.OpenAI(api_key="unused", webhook_secret=house.noted["webhook_secret"]) as client:
        for each in _hooks(house):
            client.webhooks.unwrap(each.body, each.headers)
    assert _text(await house.get(f"/v1/responses/{held}")) == "You said: Hold this response."
    async with asyncio.timeout(120):
        while await _states(house) != ["delivered"] * 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def _states(house: House) -> list[str]:
    return [each["state"] for each in (await house.get("/v1/webhooks/deliveries"))["data"]]


def _hooks(house: House) -> list[Any]:
    return [each for each in house.peer.told if each.path in ("/over", "/held")]


@check
async def stored_definitions_are_served(house: House) -> None:
    listed = (await house.get("/v1/agents?limit=100"))["data"]
    found = {each["id"]: each["definition"] for each in listed}
    assert {name: found[name] for name in definitions()} == definitions()
    poet = await house.get("/v1/agents/poet")
    assert (poet["version"], poet["visibility"]) == (2, "tenant")
    await house.chat("Another poem.", "poem", "poet")
    assert house.asked("Another poem.")[0].system == "You are new."
    assert _users(house.asked("Another poem.")[0]) == ["A poem.", "Another poem."]
    made = await house.post("/v1/agents/poet/rollback", {"to": 1, "visibility": "tenant"})
    assert (made["version"], made["restores"]) == (3, 1)
    await house.chat("An old poem.", None, "poet")
    assert house.asked("An old poem.")[0].system == "You are old."


@check
async def registered_tools_are_called(house: House) -> None:
    """Their credentials can be decrypted."""
    tool = await house.get("/v1/tools/ring")
    assert tool["secrets"] == ["WORD"]
    result = await house.post("/v1/tools/ring/invoke", {"arguments": {}})
    assert result["is_error"] is False
    [ring] = [each for each in house.peer.told if each.path == "/ring"]
    assert ring.headers["x-word"] == "the word"
    assert (await house.get("/v1/tools/pay"))["statistics"]["calls"] > 0


@check
async def files_have_their_bytes(house: House) -> None:
    listed = [each["filename"] for each in (await house.get("/v1/files"))["data"]]
    assert sorted(listed) == ["long.txt", "notes.txt"]
    for name, content in (("file", b"The notes of Ada.\n"), ("long_file", b"0123456789abcdef" * 40_000)):
        read = await house.call("GET", f"/v1/files/{house.noted[name]}/content")
        assert read.content == content
    theirs = await house.call("GET", f"/v1/files/{house.noted['file']}/content", who="bob")
    assert theirs.status_code == 404


@check
async def forks_and_rewinds_have_their_history(house: House) -> None:
    await house.chat("Who am I in the fork?", "forked")
    assert _users(house.asked("Who am I in the fork?")[0]) == ["My name is Ada.", "Who am I in the fork?"]
    forked = await house.get("/v1/threads/forked")
    assert forked["forked_from"]["thread_id"] == "told"
    assert len((await house.get("/v1/threads/rewound/branches"))["data"]) == 2
    await house.chat("Five.", "rewound")
    assert _users(house.asked("Five.")[0]) == ["One.", "Four.", "Five."]
    await house.post("/v1/threads/rewound/rewind", {"branch": 0})
    await house.chat("Six.", "rewound")
    assert _users(house.asked("Six.")[0]) == ["One.", "Two.", "Three.", "Six."]
    # The fork is shared with those who have Bob's role.
    body: Json = {"model": "talk", "messages": [{"role": "user", "content": "It is Bob."}], "thread_id": "forked"}
    await house.post("/v1/chat/completions", {**body, "thread_owner": "ada"}, who="bob")
    assert _users(house.asked("It is Bob.")[0]) == ["My name is Ada.", "Who am I in the fork?", "It is Bob."]
    await house.chat("What was it?", "loaded")
    assert _users(house.asked("What was it?")[0]) == ["Old words.", "What was it?"]


@check
async def keys_and_shares_hold(house: House) -> None:
    assert (await house.call("GET", "/v1/threads", who="gone")).status_code == 401
    shared = {each["id"]: each["right"] for each in (await house.get("/v1/threads?shared=true", who="bob"))["data"]}
    assert shared == {"told": "read", "forked": "write"}
    body: Json = {"model": "talk", "messages": [{"role": "user", "content": "It is Bob."}], "thread_owner": "ada"}
    refused = await house.call("POST", "/v1/chat/completions", {**body, "thread_id": "told"}, who="bob")
    assert refused.status_code == 403
    assert (await house.call("GET", "/v1/threads/approval?owner=ada", who="bob")).status_code == 404
    actions = [each["action"] for each in (await house.get("/v1/audit?limit=100"))["data"]]
    assert {"key.created", "key.revoked", "thread.shared"} <= set(actions), set(actions)


@check
async def a_history_finds_its_thread(house: House) -> None:
    """`Run.point`: a client that resends all and names no thread."""
    noted = house.noted["unnamed"]
    messages = [
        {"role": "user", "content": "Nobody names me."},
        {"role": "assistant", "content": noted["said"]},
        {"role": "user", "content": "Do you know me?"},
    ]
    answer = await house.post("/v1/chat/completions", {"model": "talk", "messages": messages})
    assert answer["thread_id"] == noted["thread"]
    texts = [text for _, text in await house.said(noted["thread"])]
    assert texts == ["Nobody names me.", noted["said"], "Do you know me?", "You said: Do you know me?"]


@check
async def a_request_finds_its_run(house: House) -> None:
    """`Run.fingerprint`: by its key, with which another request is refused; and without one, by the same digest."""
    again = await house.chat("Do it once.", "keyed", idempotency_key="k1")
    assert again["drsai"]["run_id"] == house.noted["keyed"]["run"]
    assert again["choices"][0]["message"]["content"] == house.noted["keyed"]["said"]
    assert house.asked("Do it once.") == []
    body = {"model": "talk", "messages": [{"role": "user", "content": "Do it twice."}], "thread_id": "keyed"}
    other = await house.call("POST", "/v1/chat/completions", body, headers={"Idempotency-Key": "k1"})
    assert other.status_code == 409
    # A client that repeats by itself does so within minutes of its first try.
    await house.chat("Try it.", "tried", x_stainless_retry_count="0")
    fingerprints = house.rows(
        "SELECT fingerprint FROM run JOIN thread ON thread.id = run.thread_key WHERE thread.thread_id = 'tried'"
    )
    assert len(fingerprints) == 2
    assert fingerprints[0][0] is not None
    assert len(set(fingerprints)) == 1


@check
async def a_kept_answer_is_given_again(house: House) -> None:
    answer = await house.chat("Keep this answer.", None, "cached", x_thread_id="kept-again")
    assert answer["choices"][0]["message"]["content"] == "You said: Keep this answer."
    assert house.asked("Keep this answer.") == []


@check
async def what_was_done_is_told(house: House) -> None:
    """Rows of runs that were over before: their steps and events."""
    run = house.noted["keyed"]["run"]
    events = await house.call("GET", f"/v1/runs/{run}/events")
    assert "You said: Do it once." in events.text
    [whole, *_] = await house.runs("whole-agent")
    steps = (await house.get(f"/v1/runs/{whole['run_id']}/steps"))["data"]
    assert [each["tool"] for each in steps if each.get("tool")] == ["pay"] * 4


@check
async def a_thread_from_a_file_continues(house: House) -> None:
    await house.chat("And in the file?", "moved")
    assert _users(house.asked("And in the file?")[0]) == ["My name is Ada.", "I like rain.", "And in the file?"]


# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'drsai.db'}"
    else:
        yield request.getfixturevalue("empty_postgres")


async def test_all_of_it_continues(commands: Commands, empty_url: str, tmp_path: Path) -> None:
    noted = json.loads((FOLDER / "noted" / f"{empty_url.partition(':')[0]}.json").read_text())
    effects, profiles = tmp_path / "effects", tmp_path / "models.json"
    profiles.write_text(json.dumps(PROFILES))
    with ModelServer() as model, Peer() as peer, Site(effects) as site:
        restore(empty_url, SITE=site.url.removeprefix("http://"), PEER=f"127.0.0.1:{peer.port}")
        migrations.upgrade(empty_url)
        house = House(empty_url, noted, model, peer, effects)
        model.script(None, house.script)
        environment = {
            **SETTINGS,
            "DRSAI_DATABASE_URL": empty_url,
            "DRSAI_MODELS": str(profiles),
            "DRSAI_SWEEP_SECONDS": "0.1",
            "DRSAI_WEBHOOK_KEEP_DAYS": "36500",  # The recorded ones are as old as this file.
            "OPENAI_BASE_URL": model.base_url,
            "CHAOS_TOOLS": str(effects),
        }
        server = commands.start("serve", str(FOLDER / "teams.py"), "--port", "0", cwd=tmp_path, env=environment)
        file = ("threads", "import", str(FOLDER / "told.thread"), "--thread-id", "moved")
        imported = commands.start(*file, cwd=tmp_path, env=environment)
        url = server.base_url(120).removesuffix("/v1")
        assert imported.wait(120) == 0, imported.stderr
        async with AsyncExitStack() as stack:
            for user, key in noted["keys"].items():
                client = httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=120)
                house.clients[user] = await stack.enter_async_context(client)
            await house.all_over()
            # Those that count what models are asked, before others ask them.
            failed: list[Exception] = []
            for checks in (CUT, CHECKS):
                try:
                    await _each([each(house) for each in checks], [each.__name__ for each in checks])
                except ExceptionGroup as errors:
                    failed.append(errors)
            if failed:
                raise ExceptionGroup("not all of it continues", failed)
        server.die()
    invariants.check(empty_url, but=invariants.COUNTED)
