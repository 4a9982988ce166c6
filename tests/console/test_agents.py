"""The agents' pages: definitions are written, checked, stored, tried, compared and rolled back, and teams are drawn."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import httpx
import pytest
from playwright.async_api import Locator, Page, Route, expect

from drsai_backend.datamodel.owner import Owner
from tests.console.conftest import Console, Open
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import until

MISTAKEN = "agents:\n  poet:  # writes\n    promt: You are a poet.\n    tools: [calculator]\n"
RIGHT = MISTAKEN.replace("promt", "prompt")
TEAM: dict[str, Any] = {
    "agents": {
        "writer": {"prompt": "You write.", "tools": ["calculator"], "description": "Writes."},
        "critic": {"prompt": "You judge.", "knowledge": ["handbook"]},
    },
    "teams": {"crew": {"kind": "round_robin", "participants": ["writer", "critic"], "max_turns": 2}},
}
HOSTILE = "<img src=x onerror=\"document.title='stolen'\"> [link](javascript:alert(1)) \u202eevil " + "w" * 100_000


async def put(console: Console, name: str, definition: dict[str, Any]) -> None:
    async with httpx.AsyncClient(base_url=console.url) as http:
        body: dict[str, Any] = {"definition": definition}
        answer = await http.post("/v1/agents", json={"name": name, **body})
        if answer.status_code == 409:
            answer = await http.put(f"/v1/agents/{name}", json=body)
        assert answer.status_code in (200, 201), answer.text


def tried(page: Page) -> Locator:
    """What was said to try a team, and what it answered."""
    return page.get_by_role("complementary", name="Try it").get_by_role("article")


async def say(page: Page, text: str) -> None:
    await page.get_by_role("textbox", name="Message").fill(text)
    await page.get_by_role("button", name="Send").click()


async def test_a_definition_from_a_mistake_to_a_rollback(console: Console, model: ModelServer) -> None:
    page = await console.open("agents")
    await page.get_by_role("link", name="New definition").click()
    await page.get_by_label("Name").fill("poet")
    editor = page.get_by_role("textbox", name="Definition")
    await editor.fill(MISTAKEN)
    # The server's words, underlined where they are about.
    troubles = page.get_by_role("list", name="What is wrong")
    await expect(troubles).to_contain_text("agents.poet.promt there is no such field; did you mean 'prompt'?")
    await expect(page.locator(".cm-lintRange-error")).to_have_text("promt: You are a poet.")
    await console.is_accessible()
    await troubles.get_by_role("button", name="Line 3").click()
    await expect(editor).to_be_focused()
    await editor.fill(RIGHT)
    await expect(page.get_by_text("No problems")).to_be_visible()
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="poet")).to_be_visible()
    await expect(page.get_by_text("Version 1", exact=True)).to_be_visible()

    model.script(None, ["Roses are **red**."])
    await say(page, "A line, please.")
    await expect(tried(page).nth(1).locator("strong")).to_have_text("red")
    [asked] = model.requests
    assert "You are a poet." in asked.system

    await editor.fill(RIGHT.replace("a poet", "a great poet"))
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Version 2", exact=True)).to_be_visible()
    await page.get_by_role("link", name="Versions").click()
    change = page.get_by_role("group", name="From version 1 to 2")
    await expect(change.locator(".went")).to_contain_text("You are a poet.")
    await expect(change.locator(".came")).to_contain_text("You are a great poet.")
    await console.is_accessible()
    await page.get_by_role("button", name="Roll back: Version 1").click()
    await page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    await expect(page.get_by_text("as version 1", exact=True)).to_be_visible()
    await page.get_by_role("link", name="Definition", exact=True).click()
    await expect(editor).to_contain_text("You are a poet.")

    await page.get_by_role("button", name="Delete").click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete definition").click()
    await expect(page.get_by_text("No definition is stored yet")).to_be_visible()
    # What was said to try it is gone with the page.
    async with httpx.AsyncClient(base_url=console.url) as http:

        async def is_gone() -> bool:
            return not (await http.get("/v1/threads")).json()["data"]

        await until(is_gone)


async def test_the_editor_completes_from_the_schema(console: Console) -> None:
    await put(console, "crew", TEAM)
    page = await console.open("agents/crew?for=user")
    editor = page.get_by_role("textbox", name="Definition")
    choices = page.get_by_role("listbox").get_by_role("option")
    await editor.fill("agents:\n  writer:\n    max_it")
    await editor.press("Control+Space")
    await expect(choices.first).to_contain_text("max_iterations")
    await expect(page.locator(".cm-completionInfo")).to_contain_text("Answers of its model in one turn")
    await choices.first.click()
    await expect(editor).to_contain_text("max_iterations: ")
    # Values of a field, and names of the definition and of tools.
    for text, offered in (
        ("agents: {writer: {strategy: pl", "plan_execute"),
        ("agents: {writer: {tools: [calc", "calculator"),
        ("agents: {writer: {}}\nteams: {crew: {kind: swarm, participants: [wri", "writer"),
        ('{"teams": {"crew": {"ki', "kind"),
    ):
        await editor.fill(text)
        await editor.press("Control+Space")
        await expect(choices.first).to_contain_text(offered)
        await editor.press("Escape")


async def test_a_conflict_says_who_was_faster_and_stores_nothing(console: Console) -> None:
    await put(console, "crew", TEAM)
    page = await console.open("agents/crew?for=user")
    editor = page.get_by_role("textbox", name="Definition")
    await expect(editor).to_contain_text("You judge.")
    theirs = {**TEAM, "agents": {**TEAM["agents"], "critic": {"prompt": "You judge harshly."}}}
    await put(console, "crew", theirs)
    mine = {**TEAM["agents"], "writer": {"prompt": "You write briefly."}}
    await editor.fill(json.dumps({**TEAM, "agents": mine}, indent=2))
    await page.get_by_role("button", name="Save").click()
    conflict = page.get_by_role("alert").filter(has_text="stored version 2 meanwhile")
    await expect(conflict.locator(".went").filter(has_text="You judge harshly.")).to_be_visible()
    await console.is_accessible()
    await conflict.get_by_role("button", name="Discard mine, take version 2").click()
    await expect(editor).to_contain_text("You judge harshly.")
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_team_is_drawn_and_says_who_speaks(opened: Open, model: ModelServer, scheme: str) -> None:
    console = await opened(context={"color_scheme": scheme})
    await put(console, "crew", TEAM)
    goes_on = threading.Event()

    def answer(request: ModelRequest) -> Reply | str:
        if "You judge." in request.system:
            goes_on.wait(20)
            return "Good."
        return "A draft."

    model.script(None, answer)
    page = await console.open("agents/crew?for=user&tab=team")
    graph = page.get_by_role("group", name="Who takes part")
    await expect(graph.get_by_role("button")).to_have_count(3)
    writer, critic = (
        graph.get_by_role("listitem").filter(has=page.get_by_role("button", name=f"{name} calls"))
        for name in ("writer", "critic")
    )
    await expect(writer).to_contain_text("Then critic.")
    await expect(writer).to_contain_text("Tool: calculator")
    await expect(critic).to_contain_text("Knowledge: handbook")
    await console.is_accessible()
    # By keyboard: what is chosen is shown, and the address has it.
    await writer.get_by_role("button").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article")).to_contain_text("You write.")
    await expect(page).to_have_url(f"{console.url}/console/agents/crew?for=user&tab=team&node=writer")
    try:
        await say(page, "Go.")
        await expect(writer).to_contain_text("messages: 1")
    finally:
        goes_on.set()
    await expect(critic).to_contain_text("messages: 1")
    await expect(page.get_by_text("Completed")).to_be_visible()


async def test_whoever_may_read_only_is_offered_nothing_else(opened: Open) -> None:
    console = await opened(auth="required")
    await console.drsai.user("ann").agents.put("crew", TEAM)
    made = await console.drsai.keys.create(Owner("default", "ann"), ["viewer"])
    page = await console.open("agents/crew")
    await page.get_by_label("API key or token").fill(made.key.get_secret_value())
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator(".cm-content")).to_contain_text("You judge.")
    await expect(page.get_by_text("Read only: your key may not change this.")).to_be_visible()
    for name in ("Save", "Delete", "Send"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)


async def test_hostile_words_stay_words(console: Console, model: ModelServer) -> None:
    definition: dict[str, Any] = {
        "agents": {"writer": {"description": HOSTILE[:4000], "prompt": HOSTILE}},
        "teams": {
            "crew": {"kind": "round_robin", "participants": ["writer"], "max_turns": 1, "description": HOSTILE[:4000]}
        },
    }
    await put(console, "crew", definition)
    model.script(None, [HOSTILE])
    page = await console.open("agents")
    await expect(page.get_by_role("table")).to_contain_text("<img src=x")
    await page.get_by_role("link", name="crew").first.click()
    await expect(page.locator(".cm-content")).to_contain_text("onerror")
    await say(page, HOSTILE[:1000])
    await expect(tried(page).nth(1)).to_contain_text("evil")
    await page.get_by_role("link", name="Team").click()
    await page.get_by_role("group", name="Who takes part").get_by_role("button", name="writer calls").click()
    await expect(page.locator(".beside-main").get_by_role("article")).to_contain_text("<img src=x")
    assert await page.title() != "stolen"
    assert await page.locator("main img, main a[href^=javascript]").count() == 0


async def test_keys_do_what_is_focused(console: Console, model: ModelServer) -> None:
    for text in ("a poet", "a great poet"):
        await put(console, "poet", {"agents": {"poet": {"prompt": f"You are {text}."}}})
    page = await console.open("agents/poet?tab=versions")
    await page.get_by_label("Compare from version 1").focus()
    await page.keyboard.press("ArrowUp")
    await expect(page.get_by_label("Compare from version 2")).to_be_checked()
    model.script(None, [Reply("A line" + " and one more" * 3000, chunk_delay=0.02)])
    page = await console.open("agents/poet")
    await say(page, "A line, please.")
    await expect(tried(page).nth(1)).to_contain_text("A line and one")
    await page.get_by_role("button", name="Stop").press("Enter")
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)


async def test_what_is_tried_is_seen_as_in_a_chat(console: Console, model: ModelServer) -> None:
    await put(console, "writer", {"agents": {"writer": {"prompt": "You write.", "tools": ["calculator"]}}})
    model.script(None, [Reply(tool_calls=[ToolCall("calculator", {"expression": "6 * 7"})]), "It is 42.", "42."])
    page = await console.open("agents/writer")

    async def once_over(route: Route) -> None:
        async def is_over() -> bool:
            async with httpx.AsyncClient() as http:
                return (await http.get(route.request.url)).json()["status"] == "completed"

        await until(is_over)
        await route.continue_()

    # The answer may be there before the page has looked at it.
    await page.route(re.compile("/v1/threads/try-[0-9a-f]+$"), once_over)
    await say(page, "How much?")
    answer = tried(page).nth(1)
    await expect(answer).to_contain_text("It is 42.")
    await expect(tried(page)).to_have_count(2)
    await page.unroute_all()
    await answer.get_by_text("calculator").click()
    await expect(answer).to_contain_text("6 * 7")
    await console.is_accessible()
    await page.get_by_role("button", name="Clear").click()
    await expect(tried(page)).to_have_count(0)
    await say(page, "Again?")
    await expect(tried(page)).to_have_count(2)


async def test_what_is_typed_outlasts_a_look_at_another_tab(console: Console) -> None:
    await put(console, "crew", TEAM)
    page = await console.open("agents/crew?for=user")
    editor = page.get_by_role("textbox", name="Definition")
    await editor.fill(json.dumps({**TEAM, "agents": {**TEAM["agents"], "writer": {"prompt": "You write briefly."}}}))
    await page.get_by_role("link", name="Team", exact=True).click()
    await expect(page.get_by_role("group", name="Who takes part")).to_be_visible()
    await page.get_by_role("link", name="Definition", exact=True).click()
    await expect(editor).to_contain_text("You write briefly.")
    await page.get_by_role("button", name="Discard changes").click()
    await expect(editor).not_to_contain_text("briefly")
    # Also what is no YAML, and cannot be stored.
    await editor.fill("agents: [")
    await page.get_by_role("button", name="Discard changes").click()
    await expect(editor).not_to_contain_text("[")
