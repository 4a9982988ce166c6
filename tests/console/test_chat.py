"""The console's chat: what people see of an answer while it is made, and what they can do about it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.messages import BaseChatMessage, TextMessage
from autogen_agentchat.teams import DiGraphBuilder, GraphFlow, RoundRobinGroupChat
from autogen_core import CancellationToken
from playwright.async_api import Browser, Locator, Page, Route, expect

from drsai_backend import RunContext
from drsai_backend.agents import requires_approval
from drsai_backend.datamodel.owner import Owner
from tests.console.conftest import Open
from tests.support.commands import Command, Commands
from tests.support.listening import listening_socket
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import until

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "[a](javascript:alert(1)) ![b](http://elsewhere.example/x.png)",
    "\u202egnp.exe\u202c \ufffd",
    '"><svg onload=alert(1)>',
    "[[`${alert(1)}`]] {{constructor.constructor('alert(1)')()}}",
]
ENDLESS = Reply("Half of it" + " and on" * 3000, chunk_delay=0.02)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def pair(context: RunContext) -> RoundRobinGroupChat:
    agents = [
        AssistantAgent(name, context.model_client(), system_message=f"I am {name}.", model_client_stream=True)
        for name in ("writer", "critic")
    ]
    return RoundRobinGroupChat([*agents], termination_condition=MaxMessageTermination(3))


async def look(x: str) -> str:
    """Looks."""
    return x


def solo(context: RunContext) -> AssistantAgent:
    client = context.model_client()
    return AssistantAgent("solo", client, tools=[look], reflect_on_tool_use=True, model_client_stream=True)


def blocks(page: Page) -> Locator:
    return page.get_by_role("article")


def status_of(page: Page, status: str) -> Locator:
    return page.locator(".page-head").get_by_text(status)


async def say(page: Page, text: str) -> None:
    field = page.get_by_role("textbox", name="Message").last
    await field.fill(text)
    await expect(page.get_by_role("button", name="Send").last).to_be_enabled()
    await field.press("Enter")


async def test_two_agents_answer_and_a_reload_shows_the_same(opened: Open, model: ModelServer) -> None:
    model.script(
        "I am writer.", [Reply("# Rain\n\nIt `falls`.\n\n| a | b |\n|---|---|\n| 1 | 2 |", reasoning="drops first")]
    )
    model.script("I am critic.", ["Good. ```py\nprint(1)\n```"])
    console = await opened({"pair": pair})
    page = await console.open("chat")
    field = page.get_by_role("textbox", name="Message")
    await expect(field).to_be_focused()
    await field.fill("Write")
    await field.press("Shift+Enter")
    await field.press_sequentially("about rain")
    # The Enter that ends the composition of a character sends nothing.
    await field.evaluate(
        "each => each.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true}))"
    )
    await expect(field).to_have_value("Write\nabout rain")
    await field.press("Enter")
    await expect(blocks(page).nth(2)).to_contain_text("print(1)")
    for _ in range(2):
        await expect(blocks(page)).to_have_count(3)
        await expect(blocks(page).nth(0)).to_contain_text("Write\nabout rain")
        await expect(blocks(page).nth(1).get_by_text("writer", exact=True)).to_be_visible()
        await expect(blocks(page).nth(1).get_by_role("heading", name="Rain")).to_be_visible()
        await expect(blocks(page).nth(1).get_by_role("cell", name="2")).to_be_visible()
        await expect(blocks(page).nth(1).get_by_text("drops first")).to_be_hidden()  # folded
        await expect(blocks(page).nth(2).get_by_text("critic", exact=True)).to_be_visible()
        await expect(page.get_by_role("textbox", name="Message")).to_be_focused()
        await page.reload()
    await blocks(page).nth(1).get_by_text("Thoughts").click()
    await expect(blocks(page).nth(1).get_by_text("drops first")).to_be_visible()
    await expect(page.get_by_role("complementary").get_by_role("link", name="Write about rain")).to_have_attribute(
        "aria-current", "page"
    )
    await console.is_accessible()


async def test_an_answer_is_stopped_edited_and_gone_back_to(opened: Open, model: ModelServer) -> None:
    model.script(None, [ENDLESS, "second answer", "third answer"])
    console = await opened({"solo": solo})
    page = await console.open("chat")
    await say(page, "first question")
    await expect(blocks(page).nth(1)).to_contain_text("Half of it")
    await page.get_by_role("button", name="Stop").click()
    await expect(status_of(page, "Stopped")).to_be_visible()
    await expect(blocks(page).nth(1)).to_contain_text("Half of it")
    await blocks(page).nth(0).hover()
    await blocks(page).nth(0).get_by_role("button", name="Edit").click()
    await blocks(page).nth(0).get_by_role("textbox").fill("better question")
    await console.is_accessible()
    await blocks(page).nth(0).get_by_role("textbox").press("Enter")
    await expect(blocks(page).nth(1)).to_contain_text("second answer")
    await expect(blocks(page)).to_have_count(2)
    assert model.requests[-1].last == "better question"
    # Answered again: the same question on one more branch.
    await blocks(page).nth(1).hover()
    await blocks(page).nth(1).get_by_role("button", name="Answer again").click()
    await expect(blocks(page).nth(1)).to_contain_text("third answer")
    assert model.requests[-1].last == "better question"
    await page.get_by_role("button", name="Branches").click()
    tree = page.get_by_role("dialog")
    await expect(tree.get_by_role("listitem")).to_have_count(3)
    await console.is_accessible()
    first = tree.get_by_role("listitem").filter(has_text="First line").first
    await first.get_by_role("button", name="Show").first.click()
    await expect(page.get_by_text("You see First line, which the chat has left.")).to_be_visible()
    await expect(blocks(page).nth(0)).to_contain_text("first question")
    await page.reload()
    await expect(blocks(page).nth(1)).to_contain_text("Half of it")
    await page.get_by_role("button", name="Continue here").click()
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    await expect(blocks(page).nth(0)).to_contain_text("first question")
    assert "branch" not in page.url


async def test_what_anybody_writes_is_text(opened: Open, model: ModelServer) -> None:
    word = "w" * 100_000
    said = "\n\n".join([*HOSTILE, word])
    model.script(None, [Reply(tool_calls=[ToolCall("look", {"x": "\n".join(HOSTILE)}, id="c1")]), said])
    console = await opened({"solo": solo}, context={"viewport": {"width": 390, "height": 800}})
    page = await console.open("chat/" + "%2F".join(["a", "%3Cimg%20src%3Dx%3E", "..b"]))
    await expect(page.get_by_role("alert")).to_be_visible()  # No such thread; nothing of its name is markup.
    await page.goto(f"{console.url}/console/chat")
    await page.locator("input[type=file]").set_input_files(
        [
            {"name": HOSTILE[0] + ".txt", "mimeType": "text/plain", "buffer": HOSTILE[1].encode()},
            {"name": "p.png", "mimeType": "image/png", "buffer": PIXEL},
        ]
    )
    await expect(page.get_by_text(HOSTILE[0] + ".txt")).to_be_visible()
    await expect(page.get_by_role("button", name="Send")).to_be_disabled()
    await say(page, said)
    await expect(blocks(page).nth(1)).to_contain_text("<script>alert(1)</script>")
    await expect(status_of(page, "Completed")).to_be_visible()
    await page.reload()
    await expect(blocks(page).nth(1)).to_contain_text("<script>alert(1)</script>")
    await expect(blocks(page).nth(0).get_by_role("img")).to_have_count(1)
    await blocks(page).nth(1).get_by_text("look").click()
    await expect(blocks(page).nth(1).get_by_text("Result")).to_be_visible()
    assert await page.locator("main script, main svg, main a[href^='javascript:'], main img[src^='http']").count() == 0
    assert await page.evaluate("document.querySelector('main').scrollWidth <= innerWidth")
    async with page.expect_download() as started:
        await blocks(page).nth(0).get_by_role("button", name=".txt").click()
    download = await (await started.value).path()
    assert download.read_bytes() == HOSTILE[1].encode()
    await console.is_accessible()
    assert console.faults == []


class Librarian(BaseChatAgent):
    """Says where it has read something, and what it was reminded of."""

    noted: dict[str, str]

    @property
    def produced_message_types(self) -> Sequence[type[BaseChatMessage]]:
        return (TextMessage,)

    async def on_messages(self, messages: Sequence[BaseChatMessage], cancellation_token: CancellationToken) -> Response:
        text = "\U0001f327 Rain falls. \u30100a1b2c3d\u3011 So they say."
        return Response(chat_message=TextMessage(content=text, source=self.name, metadata=self.noted))

    async def on_reset(self, cancellation_token: CancellationToken) -> None:
        pass


async def test_sources_are_named_and_memories_forgotten(opened: Open) -> None:
    def librarian() -> Librarian:
        agent = Librarian("librarian", "Knows books.")
        agent.noted = noted
        return agent

    console = await opened({"librarian": librarian}, auth="required")
    key = (await console.drsai.keys.create(Owner("default", "ann"), ["user"])).key.get_secret_value()
    async with httpx.AsyncClient(base_url=console.url, headers={"authorization": f"Bearer {key}"}) as http:
        memory = (await http.post("/v1/memories", json={"text": f"Ada likes {HOSTILE[0]}"})).json()
        cited = {"index": 14, "file_id": "file-1", "filename": HOSTILE[4], "page": 7}
        noted = {"drsai.citations": json.dumps([cited]), "drsai.recalled": memory["version_id"]}
        page = await console.open("chat")
        await page.get_by_label("API key or token").fill(key)
        await page.get_by_role("button", name="Sign in").click()
        await say(page, "Does it rain?")
        answer = blocks(page).nth(1)
        await expect(answer).to_contain_text("Rain falls. 1 So they say.")
        await expect(answer.get_by_role("list", name="Sources")).to_contain_text(f"1. {HOSTILE[4]}, p. 7")
        await answer.get_by_text("Memory shown to the model (1)").click()
        await expect(answer.get_by_text(f"Ada likes {HOSTILE[0]}")).to_be_visible()
        await console.is_accessible()
        await answer.get_by_role("button", name="Forget").click()
        await expect(answer.get_by_text("Forgotten")).to_be_visible()
        assert (await http.get("/v1/memories")).json()["data"] == []


async def test_of_many_memories_all_can_be_seen(opened: Open) -> None:
    def librarian() -> Librarian:
        agent = Librarian("librarian", "Knows books.")
        agent.noted = {"drsai.recalled": " ".join([*(f"memv_{n:024x}" for n in range(100)), memory["version_id"]])}
        return agent

    console = await opened({"librarian": librarian}, auth="required")
    page = await console.sign_in("chat", "ann", "user")
    key = (await console.drsai.keys.create(Owner("default", "ann"), ["user"])).key.get_secret_value()
    async with httpx.AsyncClient(base_url=console.url, headers={"authorization": f"Bearer {key}"}) as http:
        memory = (await http.post("/v1/memories", json={"text": "Ada likes rain."})).json()
    await say(page, "Does it rain?")
    answer = blocks(page).nth(1)
    await answer.get_by_text("Memory shown to the model (101)").click()
    await answer.get_by_role("button", name="More").click()
    await expect(answer.get_by_text("Ada likes rain.")).to_be_visible()


async def test_a_server_that_is_killed_and_started_again_under_the_page(
    browser: Browser, commands: Commands, model: ModelServer, migrated_sqlite: str, tmp_path: Path
) -> None:
    model.script(None, [ENDLESS, "The whole answer."])
    with listening_socket() as free:
        port = free.getsockname()[1]
    environment = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k", "DRSAI_DATABASE_URL": migrated_sqlite}

    async def serve() -> Command:
        process = commands.start("serve", "--port", str(port), cwd=tmp_path, env=environment)
        await asyncio.to_thread(process.base_url)
        return process

    process = await serve()
    page = await (await browser.new_context(locale="en")).new_page()
    await page.goto(f"http://127.0.0.1:{port}/console/chat")
    await say(page, "question")
    await expect(blocks(page).nth(1)).to_contain_text("Half of it")
    await page.evaluate("window.isSame = true")
    await asyncio.to_thread(process.die)
    await expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached")
    await serve()
    await expect(blocks(page).nth(1)).to_contain_text("The whole answer.")
    await expect(blocks(page).nth(1)).not_to_contain_text("Half of it")
    await expect(page.get_by_role("alert")).to_have_count(0)
    await expect(status_of(page, "Completed")).to_be_visible()
    await expect(blocks(page)).to_have_count(2)
    assert await page.evaluate("window.isSame")


async def test_a_long_thread_is_read_backwards(opened: Open) -> None:
    console = await opened({"solo": solo})
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(450)]
    async with httpx.AsyncClient(base_url=console.url) as http:
        body: dict[str, Any] = {"model": "solo", "messages": messages}
        assert (await http.post("/v1/threads/long%2Fone/history", json=body)).status_code == 200
    page = await console.open("chat/long%2Fone")
    await expect(blocks(page).get_by_text("message 449", exact=True)).to_be_in_viewport()
    assert await blocks(page).count() <= 200
    log = page.locator(".log")
    for _ in range(8):
        if await blocks(page).get_by_text("message 0", exact=True).count():
            break
        before = await blocks(page).count()
        await log.evaluate("each => each.scrollTo(0, 0)")
        await expect(blocks(page)).not_to_have_count(before)
    await log.evaluate("each => each.scrollTo(0, 0)")
    await expect(blocks(page).get_by_text("message 0", exact=True)).to_be_in_viewport()
    await expect(blocks(page)).to_have_count(450)
    await page.get_by_role("button", name="To the newest").click()
    await expect(blocks(page).get_by_text("message 449", exact=True)).to_be_in_viewport()


async def test_a_second_tab_follows(opened: Open, model: ModelServer) -> None:
    model.script(None, ["first answer", "second answer", ENDLESS, Reply("another answer", delay=0.5)])
    console = await opened({"solo": solo})
    one = await console.open("chat")
    await say(one, "first question")
    await expect(blocks(one).nth(1)).to_contain_text("first answer")
    two = console.watch(await one.context.new_page())
    await two.goto(one.url)
    await expect(blocks(two).nth(1)).to_contain_text("first answer")
    # What is said in one of them is heard in the other, while it is made.
    await say(two, "second question")
    for tab in (one, two):
        await expect(blocks(tab).nth(2)).to_contain_text("second question")
        await expect(blocks(tab).nth(3)).to_contain_text("second answer")
    await say(one, "third question")
    for tab in (two, one):
        await expect(blocks(tab).nth(5)).to_contain_text("Half of it and on")
    await two.get_by_role("button", name="Stop").click()
    for tab in (one, two):
        await expect(status_of(tab, "Stopped")).to_be_visible()

    # Where one goes back, the other goes, too; what is said while it reads the branch is not lost.
    async def late(route: Route) -> None:
        read = await route.fetch()
        await asyncio.sleep(1.5)
        await route.fulfill(response=read)

    await two.route("**/messages?*", late)
    await blocks(one).nth(2).hover()
    await blocks(one).nth(2).get_by_role("button", name="Edit").click()
    await blocks(one).nth(2).get_by_role("textbox").fill("other question")
    await blocks(one).nth(2).get_by_role("textbox").press("Enter")
    for tab in (two, one):
        await expect(blocks(tab).nth(3)).to_contain_text("another answer")
        await expect(blocks(tab).nth(2)).to_contain_text("other question")
        await expect(blocks(tab)).to_have_count(4)
        await expect(status_of(tab, "Completed")).to_be_visible()
    await two.unroute_all(behavior="wait")
    await one.get_by_role("button", name="Delete").click()
    await one.get_by_role("dialog").get_by_role("button", name="Delete").click()
    await expect(one.get_by_text("What can the team do for you?")).to_be_visible()
    await expect(two.get_by_role("alert")).to_be_visible()


@pytest.mark.parametrize("right", ["read", "answer", "write"])
async def test_what_is_shared_is_read_answered_or_written_to(opened: Open, model: ModelServer, right: Any) -> None:
    model.script(None, ["first answer", "second answer"])
    console = await opened({"solo": solo}, auth="required")
    ann = console.drsai.user("ann")
    await ann.run("solo", "Ann's question", thread_id="t")
    await ann.share_thread("t", with_user="bob", right=right)
    page = await console.sign_in("chat?list=shared", "bob", "user")
    await page.get_by_role("link", name="Ann's question").click()
    await expect(blocks(page).nth(1)).to_contain_text("first answer")
    await expect(page.get_by_role("button", name="Delete")).to_have_count(0)
    message = page.get_by_role("textbox", name="Message")
    if right == "write":
        await say(page, "Bob's question")
        await expect(blocks(page).nth(3)).to_contain_text("second answer")
        await expect(blocks(page).nth(2).get_by_role("heading")).to_have_text("bob")
        return
    await expect(page.get_by_text("You may read this chat and not write to it.")).to_be_visible()
    await expect(message).to_have_count(0)
    await blocks(page).nth(1).hover()
    for name in ("Edit", "Answer again", "Stop"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    await console.is_accessible()
    # What Ann says is followed; a copy is one's own.
    await ann.run("solo", "What else?", thread_id="t")
    await expect(blocks(page).nth(3)).to_contain_text("second answer")
    await blocks(page).nth(1).get_by_role("button", name="Continue in a new chat").click()
    await expect(message).to_be_visible()
    await expect(blocks(page)).to_have_count(2)
    await ann.unshare_thread("t", with_user="bob")
    await page.go_back()
    await expect(page.get_by_role("alert")).to_contain_text("no thread 't'")


async def test_a_question_is_no_readers_to_answer(opened: Open, model: ModelServer) -> None:
    def asks(context: RunContext) -> AssistantAgent:
        tool = requires_approval()(look)
        return AssistantAgent("clerk", context.model_client(), tools=[tool], reflect_on_tool_use=True)

    model.script(None, [Reply(tool_calls=[ToolCall("look", {"x": "there"})]), "It is there."])
    console = await opened({"clerk": asks}, auth="required")
    ann = console.drsai.user("ann")
    await ann.run("clerk", "Look!", thread_id="t")
    await ann.share_thread("t", with_user="bob", right="read")
    page = await console.sign_in("chat/t?owner=ann", "bob", "user")
    question = page.get_by_role("group", name="Approval")
    await expect(question).to_contain_text("This is for others to answer.")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    await ann.share_thread("t", with_user="bob", right="answer")
    await page.reload()
    await question.get_by_role("button", name="Approve", exact=True).click()
    await expect(blocks(page).last).to_contain_text("It is there.")
    await expect(page.get_by_text("You may read this chat and not write to it.")).to_be_visible()


async def test_files_of_a_message_that_is_edited_come_with_it_again(opened: Open, model: ModelServer) -> None:
    console = await opened({"solo": solo})
    page = await console.open("chat")
    await page.locator("input[type=file]").set_input_files(
        [
            {"name": "a.txt", "mimeType": "text/plain", "buffer": b"Plain words."},
            {"name": "b<.txt", "mimeType": "text/plain", "buffer": "Größe in Köln".encode("latin-1")},
            {"name": "p.png", "mimeType": "image/png", "buffer": PIXEL},
        ]
    )
    await expect(page.get_by_text("p.png")).to_be_visible()
    await say(page, "What do they say?")
    await expect(blocks(page).nth(1)).to_contain_text("ok")

    async def answered(count: int) -> Any:
        """What was asked, once that many answers are there."""

        async def is_there() -> bool:
            return len(model.requests) == count

        await until(is_there)
        await expect(status_of(page, "Completed")).to_be_visible()
        return model.requests[-1].messages[-1]["content"]

    asked = await answered(1)
    assert "Größe in Köln" in str(asked)
    await blocks(page).nth(1).hover()
    await blocks(page).nth(1).get_by_role("button", name="Answer again").click()
    await expect(page.get_by_role("button", name="Branches")).to_be_visible()
    assert await answered(2) == asked
    question = blocks(page).nth(0)
    await expect(question.get_by_role("list", name="Files").get_by_role("listitem")).to_have_count(2)
    await question.hover()
    await question.get_by_role("button", name="Edit").click()
    await expect(question.get_by_role("textbox")).to_have_value("What do they say?")
    await question.get_by_role("button", name="Remove a.txt").click()
    await question.get_by_role("textbox").fill("What does it say?")
    await console.is_accessible()
    await question.get_by_role("textbox").press("Enter")
    await expect(question).to_contain_text("What does it say?")
    await expect(question.get_by_role("list", name="Files")).to_have_text(re.compile("^b<.txt"))
    await expect(question.get_by_role("img")).to_have_count(1)
    last = str(await answered(3))
    assert "Größe in Köln" in last
    assert "Plain words" not in last
    # A file that is no more stays the text that it became.
    owner, files = Owner("default", "anonymous"), console.drsai.files
    [file] = [each for each in (await files.list(owner)).items if each.filename.startswith("b")]
    await files.delete(owner, file.file_id)
    await question.hover()
    await question.get_by_role("button", name="Edit").click()
    await expect(question.get_by_role("textbox")).to_have_value(re.compile("Größe in Köln"))
    await question.get_by_role("textbox").press("Enter")
    assert "Größe in Köln" in str(await answered(4))
    await expect(question.get_by_role("list", name="Files")).to_have_count(0)


async def test_branches_are_switched_where_they_part(opened: Open, model: ModelServer) -> None:
    def answer(request: ModelRequest) -> str:
        return f"answer to {request.last}"

    model.script(None, answer)
    console = await opened({"solo": solo})
    page = await console.open("chat")

    async def edit(place: int, text: str) -> None:
        await blocks(page).nth(place).hover()
        await blocks(page).nth(place).get_by_role("button", name="Edit").click()
        await blocks(page).nth(place).get_by_role("textbox").fill(text)
        await blocks(page).nth(place).get_by_role("textbox").press("Enter")
        await expect(blocks(page).nth(place + 1)).to_contain_text(f"answer to {text}")

    async def shows(*texts: str) -> None:
        await expect(blocks(page)).to_have_count(2 * len(texts))
        for number, text in enumerate(texts):
            await expect(blocks(page).nth(2 * number)).to_contain_text(text)

    def switch(place: int) -> Locator:
        return blocks(page).nth(place).get_by_role("group", name="Branches")

    await say(page, "A")
    await expect(blocks(page).nth(1)).to_contain_text("answer to A")
    await say(page, "B")
    await expect(blocks(page).nth(3)).to_contain_text("answer to B")
    await expect(switch(0)).to_have_count(0)
    await edit(2, "B2")
    await edit(0, "A2")
    await edit(0, "A3")
    await expect(switch(0)).to_contain_text("3/3")
    await console.is_accessible()
    await switch(0).get_by_role("button", name="The branch before").click()
    await shows("A2")
    await expect(switch(0)).to_contain_text("2/3")
    await switch(0).get_by_role("button", name="The branch before").click()
    await shows("A", "B")
    await expect(switch(0).get_by_role("button", name="The branch before")).to_be_disabled()
    await expect(switch(2)).to_contain_text("1/2")
    await switch(2).get_by_role("button", name="The next branch").click()
    await shows("A", "B2")
    await page.get_by_role("button", name="Continue here").click()
    await expect(page.get_by_role("textbox", name="Message")).to_be_visible()
    await expect(switch(0)).to_contain_text("1/3")
    await expect(switch(2)).to_contain_text("2/2")
    await switch(2).get_by_role("button", name="The branch before").click()
    await shows("A", "B")
    await switch(2).get_by_role("button", name="The next branch").click()
    await shows("A", "B2")
    assert "branch" not in page.url


async def test_what_could_not_be_sent_again_is_not_lost(opened: Open, model: ModelServer) -> None:
    model.script(None, lambda request: f"answer to {request.last}")
    console = await opened({"solo": solo})
    page = await console.open("chat")
    await page.locator("input[type=file]").set_input_files(
        [{"name": "a.txt", "mimeType": "text/plain", "buffer": b"Plain words."}]
    )
    await say(page, "question")
    await expect(blocks(page).nth(1)).to_contain_text("answer to")
    await page.route("**/v1/chat/completions", lambda route: route.abort())
    question, field = blocks(page).nth(0), page.locator(".composer textarea")
    await field.fill("And then?")
    await question.hover()
    await question.get_by_role("button", name="Edit").click()
    await question.get_by_role("textbox").fill("a better question")
    await question.get_by_role("textbox").press("Enter")
    # The thread has gone back before it, so it stands where messages are written.
    await expect(blocks(page)).to_have_count(0)
    await expect(field).to_have_value("a better question\n\nAnd then?")
    await expect(page.get_by_role("list", name="Files").get_by_role("listitem")).to_contain_text(["a.txt"])
    await page.unroute_all()
    await field.press("Enter")
    await expect(blocks(page).nth(1)).to_contain_text("answer to a better question")
    await expect(field).to_have_value("")
    assert "Plain words." in str(model.requests[-1].messages[-1]["content"])
    # The same for an answer that is asked for again.
    await expect(status_of(page, "Completed")).to_be_visible()
    await page.route("**/v1/chat/completions", lambda route: route.abort())
    await blocks(page).nth(1).hover()
    await blocks(page).nth(1).get_by_role("button", name="Answer again").click()
    await expect(field).to_have_value("a better question\n\nAnd then?")
    await expect(page.get_by_role("list", name="Files").get_by_role("listitem")).to_contain_text(["a.txt"])


async def test_what_is_being_written_outlasts_a_question(opened: Open, model: ModelServer) -> None:
    def asks(context: RunContext) -> AssistantAgent:
        tool = requires_approval()(look)
        return AssistantAgent("clerk", context.model_client(), tools=[tool], reflect_on_tool_use=True)

    goes_on = threading.Event()

    async def answer(request: ModelRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("It is there.")
        await asyncio.to_thread(goes_on.wait)
        return Reply(tool_calls=[ToolCall("look", {"x": "there"})])

    model.script(None, answer)
    console = await opened({"clerk": asks})
    page = await console.open("chat")
    await say(page, "Look!")
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await page.locator("input[type=file]").set_input_files(
        [{"name": "a.txt", "mimeType": "text/plain", "buffer": b"Plain words."}]
    )
    await page.get_by_role("textbox", name="Message").fill("And then?")
    goes_on.set()
    await page.get_by_role("button", name="Approve", exact=True).click()
    await expect(blocks(page).last).to_contain_text("It is there.")
    await expect(page.get_by_role("textbox", name="Message")).to_have_value("And then?")
    await expect(page.get_by_role("list", name="Files").get_by_role("listitem")).to_contain_text(["a.txt"])


async def test_speakers_that_work_at_once_are_told_apart(opened: Open, model: ModelServer) -> None:
    ends = {name: asyncio.Event() for name in ("bob", "eve")}

    def crew(context: RunContext) -> GraphFlow:
        async def work(name: str) -> str:
            await ends[name].wait()
            return f"done by {name}"

        def worker(name: str) -> AssistantAgent:
            client = context.model_client()
            return AssistantAgent(
                name,
                client,
                system_message=f"I am {name}.",
                tools=[work],
                model_client_stream=True,
                reflect_on_tool_use=True,
            )

        first = AssistantAgent("ann", context.model_client(), system_message="I am ann.")
        members = [first, worker("bob"), worker("eve")]
        builder = DiGraphBuilder()
        for member in members:
            builder.add_node(member)
        for member in members[1:]:
            builder.add_edge(first, member)
        return GraphFlow([*members], graph=builder.build())

    def worked(name: str) -> Any:
        def answer(request: ModelRequest) -> Reply:
            if request.messages[-1]["role"] == "tool":
                return Reply(f"{name} has " + "worked and " * 30 + "ended.", chunk_delay=0.02)
            return Reply(tool_calls=[ToolCall("work", {"name": name}, id=f"call-{name}")])

        return answer

    for name in ends:
        model.script(f"I am {name}.", worked(name))
    model.script("I am ann.", ["Begin."])
    console = await opened({"crew": crew})
    page = await console.open("chat")
    await say(page, "Go.")
    works = page.locator(".tool .status.running")
    await expect(works).to_have_count(2)
    log = console.watch(await page.context.new_page())
    run = await page.locator(".page-head").get_by_role("link", name="Run").get_attribute("href")
    await log.goto(f"{console.url}/console/{run}?tab=events")
    await expect(log.get_by_role("listbox", name="Events")).to_be_visible()
    ends["bob"].set()
    await expect(works).to_have_count(1)
    ends["eve"].set()
    await expect(status_of(page, "Completed")).to_be_visible()
    await expect(works).to_have_count(0)
    await expect(page.get_by_text("done", exact=True)).to_have_count(2)
    # In the log of the run, what each has said is one entry, and no bar stays open.
    await log.get_by_label("Type").select_option("delta")
    await expect(log.get_by_role("listbox", name="Events").get_by_role("option")).to_have_count(2)
    await log.get_by_role("link", name="Timeline").click()
    await expect(log.get_by_role("option", name="end Completed")).to_be_visible()
    await expect(log.locator(".bar.open")).to_have_count(0)


async def test_a_message_has_more_branches_than_a_page(opened: Open) -> None:
    console = await opened({"solo": solo})
    async with httpx.AsyncClient(base_url=console.url) as http:
        for number in range(105):
            if number:
                assert (await http.post("/v1/threads/t/rewind", json={"at": 1})).status_code == 200
            messages = [{"role": "user", "content": f"question {number}"}, {"role": "assistant", "content": "answer"}]
            answer = await http.post("/v1/threads/t/history", json={"model": "solo", "messages": messages})
            assert answer.status_code == 200, answer.text
    page = await console.open("chat/t")
    switch = blocks(page).nth(0).get_by_role("group", name="Branches")
    await expect(switch).to_contain_text("105/105")
    await switch.get_by_role("button", name="The branch before").click()
    await expect(blocks(page).nth(0)).to_contain_text("question 103")
    await expect(switch).to_contain_text("104/105")


async def test_all_of_a_long_result_can_be_seen(opened: Open, model: ModelServer) -> None:
    async def lines(count: int) -> str:
        """Lines of a text."""
        return json.dumps([f"line {number}" for number in range(count)])

    def reader(context: RunContext) -> AssistantAgent:
        return AssistantAgent("reader", context.model_client(), tools=[lines], reflect_on_tool_use=True)

    console = await opened({"reader": reader})
    model.script(None, [Reply(tool_calls=[ToolCall("lines", {"count": 300})]), "That is all."])
    page = await console.open("chat")
    await say(page, "Look.")
    await expect(page.get_by_text("That is all.")).to_be_visible()
    await page.locator("summary").filter(has_text="lines").click()
    last = page.get_by_text('"line 299"', exact=True)
    await expect(last).to_have_count(0)
    await page.get_by_role("button", name="Show all").click()
    await expect(last).to_be_visible()


async def test_where_a_thread_has_gone_back_is_looked_for_until_it_is_read(opened: Open, model: ModelServer) -> None:
    console = await opened({"solo": solo})
    model.script(None, ["One.", "Two."])
    for _ in range(2):
        await console.drsai.user("anonymous").run("solo", "Go on.", thread_id="t")
    page = await console.open("chat/t")
    await expect(page.get_by_text("Two.")).to_be_visible()
    async with httpx.AsyncClient(base_url=console.url) as http:
        messages = (await http.get("/v1/threads/t/messages")).json()["data"]
        [_, second] = [each["seq"] for each in messages if each["source"] == "user"]
        assert (await http.post("/v1/threads/t/rewind", json={"at": second})).status_code == 200
    await page.route("**/v1/threads/t/messages?*", lambda route: route.fulfill(status=500, json={}))
    looked = "document.dispatchEvent(new Event('visibilitychange'))"
    async with page.expect_response("**/v1/threads/t/messages?*"):
        await page.evaluate(looked)
    await page.unroute_all()
    await page.evaluate(looked)
    await expect(page.get_by_text("Two.")).to_have_count(0)
    await expect(page.get_by_text("One.")).to_be_visible()
