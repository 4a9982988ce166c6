"""The page of runs: many of them, one that is watched while it runs, fails, or loses its worker, and what can be done
with them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_core.tools import FunctionTool
from playwright.async_api import Page, Route, expect

from drsai_backend import AssistantAgent, RoundRobinGroupChat, RunContext, RunStatus
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.all_runs import said
from tests.console.conftest import Console, Open
from tests.features.all_runs.conftest import store
from tests.support.commands import Commands
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import QUICK

HOSTILE = '<img src=x onerror="document.title=1">\u202e[x](javascript:alert(1))'
TEAM = HOSTILE.replace("\u202e", "")
"""Names are of characters that are printed."""
MANY = 10_000


async def ask(console: Console, team: str, text: str, thread: str = "t", **more: Any) -> str:
    """Send a message; returns its run. Waits for the answer, unless it is asked for in the background."""
    async with httpx.AsyncClient(base_url=console.url, timeout=60) as http:
        body = {"model": team, "thread_id": thread, "messages": [{"role": "user", "content": text}], **more}
        answer = await http.post("/v1/chat/completions", json=body)
        return answer.headers["x-run-id"]


async def rows_of(page: Page) -> int:
    return await page.locator(".table-row, .rows-row").count()


TYPED_MEANWHILE = """() => {
    const put = history.replaceState.bind(history);
    history.replaceState = (...given) => {
        history.replaceState = put;
        put(...given);
        const field = document.querySelector("input[type=text]");
        field.value += "c";
        field.dispatchEvent(new Event("input", { bubbles: true }));
    };
}"""
"""A key is hit at the moment at which what was typed goes into the address."""


async def test_what_is_typed_while_a_search_begins_is_searched_for(console: Console) -> None:
    page = await console.open("runs")
    await page.evaluate(TYPED_MEANWHILE)
    team = page.get_by_label("Team")
    await team.fill("ab")
    await expect(page).to_have_url(re.compile(r"team=abc$"))
    await expect(team).to_have_value("abc")


async def test_ten_thousand_runs_are_listed_and_scrolled(opened: Open) -> None:
    console = await opened(**QUICK)
    now = utcnow()
    made = [
        {
            "tenant": "default",
            "user": "anonymous",
            "thread": f"t{number % 20}",
            "team": TEAM if number == 0 else "crew",
            "status": RunStatus.ERROR if number % 500 == 0 else RunStatus.COMPLETED,
            "error_message": f"Team 'crew' failed (model_timeout): {HOSTILE} " + "x" * 100_000 if number == 0 else None,
            "created_at": now - timedelta(seconds=number),
        }
        for number in range(MANY)
    ]
    await console.drsai.database.write(lambda session: store(session, made))
    page = await console.open("runs")
    table = page.get_by_role("table", name="Runs")
    await expect(table.get_by_role("link", name="run_000000")).to_contain_text("<img src=x")
    await console.is_accessible()
    # The end is scrolled to again and again, as it moves away with each page that comes.
    await table.evaluate(
        """async (table) => {
            while (!table.querySelector("[href$='run_009999']")) {
                table.scrollTop = table.scrollHeight;
                await new Promise(requestAnimationFrame);
            }
        }"""
    )
    await expect(table).to_have_attribute("aria-rowcount", str(MANY + 1))
    assert await rows_of(page) < 100
    await page.get_by_label("Status").select_option("error")
    await expect(table).to_have_attribute("aria-rowcount", str(MANY // 500 + 1))
    await page.reload()
    await expect(table).to_have_attribute("aria-rowcount", str(MANY // 500 + 1))
    await page.get_by_role("link", name="Errors").click()
    groups = page.get_by_role("table", name="Errors")
    await expect(groups.get_by_role("row")).to_have_count(3)
    await expect(groups).to_contain_text("<img src=x")
    await console.is_accessible()
    await groups.get_by_role("link", name="model_timeout").click()
    await expect(table.get_by_role("link", name="run_000000")).to_be_visible()
    assert "error_code=model_timeout" in page.url
    await expect(table).to_have_attribute("aria-rowcount", "2")
    await table.get_by_role("link", name="run_000000").click()
    await expect(page.locator("main")).to_contain_text("model_timeout")
    await console.is_accessible()


def gated(done: asyncio.Event) -> Callable[[RunContext], RoundRobinGroupChat]:
    """A team that looks twice, in vain and not, and then waits for `done`."""

    async def look(where: str) -> str:
        if where == "fails":
            raise ValueError(HOSTILE)
        await done.wait()
        return "found"

    def crew(context: RunContext) -> RoundRobinGroupChat:
        tools = [FunctionTool(look, "Look somewhere.")]
        agent = AssistantAgent("ann", context.model_client(), tools=tools, reflect_on_tool_use=True)
        return RoundRobinGroupChat([agent], termination_condition=MaxMessageTermination(20), max_turns=3)

    return crew


def looks(request: ModelRequest) -> Reply | str:
    results = [each for each in request.messages if each["role"] == "tool"]
    if request.tools and len(results) < 2:
        return Reply(tool_calls=[ToolCall("look", {"where": "there" if results else "fails"})])
    return "Nothing there."


async def test_a_run_is_watched_while_it_runs(opened: Open, model: ModelServer) -> None:
    done = asyncio.Event()
    model.script(None, looks)
    console = await opened({"crew": gated(done)}, calls_keep="true")
    run = await ask(console, "crew", HOSTILE, background=True)
    page = await console.open(f"runs/{run}")
    line = page.get_by_role("listbox", name="Timeline")
    await expect(line.get_by_role("option", name="look ann").nth(1)).to_be_visible()
    before = await line.get_by_role("option").count()
    await page.get_by_role("button", name="First error").click()
    details = page.get_by_role("complementary", name="Details")
    await expect(details).to_contain_text("<img src=x")
    await expect(page.get_by_role("button", name="Pause")).to_be_visible()
    await console.is_accessible()
    done.set()
    await expect(line.get_by_role("option", name="end Completed")).to_be_visible()
    await expect(line.get_by_role("option", name="model gpt-4o-mini")).to_have_count(5)
    await expect(line.get_by_role("option", name="Turn 3")).to_be_visible()
    assert await line.get_by_role("option").count() > before
    await line.focus()
    await line.press("Home")
    await expect(details.get_by_role("heading", name="Attempt 1")).to_be_visible()
    # The log, and one event of it.
    await page.get_by_role("link", name="Events").click()
    await page.get_by_label("Type").select_option("end")
    await page.get_by_role("listbox", name="Events").get_by_role("option").click()
    await expect(details).to_contain_text("finish_reason")
    await page.get_by_label("Type").select_option("")
    await page.get_by_label("Search").fill("javascript")
    await expect(page.get_by_role("listbox", name="Events").get_by_role("option").first).to_contain_text("<img")
    await console.is_accessible()
    # What a model was sent, and how two calls differ.
    await page.get_by_role("link", name="Model calls").click()
    calls = page.get_by_role("listbox", name="Model calls")
    await calls.get_by_role("option").nth(1).click()
    await expect(details.get_by_role("listitem").filter(has_text="<img src=x").first).to_be_visible()
    await details.get_by_role("button", name="Difference").click()
    await expect(details.get_by_role("group", name="Difference")).to_contain_text("Added: ")
    await details.get_by_role("button", name="Raw JSON").click()
    await expect(details).to_contain_text("gpt-4o-mini")
    await console.is_accessible()
    await page.get_by_role("link", name="Messages").click()
    await page.get_by_role("option", name="ToolCallRequestEvent").first.click()
    await expect(details).to_contain_text("arguments")
    assert (await page.title()) != "1"


async def test_turns_are_compared_forked_and_gone_back_to(opened: Open, model: ModelServer) -> None:
    model.script(None, lambda request: f"Heard {len(request.messages)}.")
    console = await opened(context={"color_scheme": "dark"})
    first = await ask(console, "assistant", "One.")
    second = await ask(console, "assistant", "Two.")
    page = await console.open(f"runs/{second}?tab=state")
    details = page.get_by_role("complementary", name="Details")
    await page.get_by_role("option", name="Turn 2").click()
    change = details.get_by_role("group", name="State")
    await expect(change.locator(".came", has_text="content: Two.").first).to_be_visible()
    await expect(change.locator(".came", has_text="One.")).to_have_count(0)
    await console.is_accessible()
    # Back to the first run's turn, from where another message goes on.
    await console.open(f"runs/{first}?tab=state&at=1")
    await details.get_by_role("button", name="Go back to here").click()
    await page.get_by_role("dialog").get_by_role("button", name="Go back to here").click()
    await expect(page.get_by_text("The thread is back there.")).to_be_visible()
    third = await ask(console, "assistant", "Three.")
    await console.open(f"runs/{third}?tab=branches")
    left, right = page.get_by_role("region", name="Branch 0"), page.get_by_role("region", name="Branch 1")
    await expect(left).to_contain_text("Two.")
    await expect(left).not_to_contain_text("Three.")
    await expect(right).to_contain_text("Three.")
    await expect(page.get_by_text("They part after message 2.")).to_be_visible()
    await console.is_accessible()
    # The messages of a run on a branch that was left.
    await console.open(f"runs/{second}?tab=messages")
    await expect(page.get_by_role("option", name="Two.")).to_be_visible()
    await page.get_by_role("button", name="Run again on a copy").click()
    await expect(page.locator(".page-head code")).not_to_have_text(second)
    await expect(page.get_by_role("option", name="input Two.")).to_be_visible()
    copies = await console.drsai.list_threads(limit=10)
    assert len(copies.items) == 2
    await page.get_by_role("link", name="Model calls").click()
    await page.get_by_role("listbox", name="Model calls").get_by_role("option").first.click()
    await expect(details).to_contain_text("DRSAI_CALLS_KEEP")


async def test_many_are_cancelled_and_each_outcome_told(opened: Open, model: ModelServer) -> None:
    model.script(None, lambda _: Reply("Late.", delay=600))
    console = await opened(**QUICK)
    made = [await ask(console, "assistant", "Wait.", f"t{number}", background=True) for number in range(4)]
    page = await console.open("runs?status=running")
    table = page.get_by_role("table", name="Runs")
    await expect(table.get_by_role("checkbox")).to_have_count(4)
    for run in made[:2]:
        await page.get_by_label(f"Select {run}").check()
    await expect(page.get_by_text("2 selected")).to_be_visible()
    await page.get_by_role("button", name="Cancel run").click()
    dialog = page.get_by_role("dialog", name="Cancel runs")
    await expect(dialog).to_contain_text("2 runs can be changed so.")
    await console.is_accessible()
    await dialog.get_by_role("button", name="Cancel run").click()
    await expect(dialog.get_by_role("status")).to_contain_text("2 ")
    await expect(dialog.get_by_role("listitem")).to_have_count(2)
    await dialog.get_by_role("button", name="Close").click()
    await expect(table.get_by_role("checkbox")).to_have_count(2)
    await page.get_by_role("button", name="Cancel run").click()
    await expect(dialog).to_contain_text("2 runs can be changed so.")
    await dialog.get_by_role("button", name="Cancel run").click()
    await expect(dialog.get_by_role("listitem")).to_have_count(2)
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.get_by_text("No run is like that.")).to_be_visible()
    runs = await console.drsai.list_runs(None, limit=10)
    assert {run.status for run in runs.items} == {RunStatus.STOPPED}


async def test_a_run_whose_worker_is_killed_goes_on_under_the_eyes(
    opened: Open, model: ModelServer, commands: Commands, migrated_sqlite: str, tmp_path: Path
) -> None:
    is_killed = asyncio.Event()
    model.script(None, lambda _: "Done." if is_killed.is_set() else Reply("Late.", delay=600))
    console = await opened(**QUICK)
    environment = {"DRSAI_DATABASE_URL": migrated_sqlite, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"}
    environment |= {"DRSAI_SECRET_KEY": "test", "DRSAI_LEASE_SECONDS": "1", "DRSAI_HEARTBEAT_SECONDS": "0.3"}
    worker = commands.start("serve", "--port", "0", cwd=tmp_path, env=environment)
    url = await asyncio.to_thread(worker.base_url)
    async with httpx.AsyncClient(timeout=60) as http:
        body = {"model": "assistant", "thread_id": "t", "messages": [{"role": "user", "content": "Go."}]}
        asking = asyncio.create_task(http.post(f"{url}/chat/completions", json=body))
        page = await console.open("runs")
        await page.get_by_role("link", name="assistant run_").click()
        line = page.get_by_role("listbox", name="Timeline")
        await expect(line.get_by_role("option", name="Attempt 1")).to_be_visible()
        await page.evaluate("window.isTheSame = true")
        is_killed.set()
        worker.kill()
        with pytest.raises(httpx.HTTPError):
            await asking
    await expect(line.get_by_role("option", name="Attempt 2")).to_be_visible(timeout=30_000)
    await expect(line.get_by_role("option", name="Done.")).to_be_visible()
    await expect(page.locator(".fact-line")).to_contain_text("Completed")
    assert await page.evaluate("window.isTheSame")


async def test_others_runs_show_nothing_of_what_was_said(opened: Open, model: ModelServer) -> None:
    model.script(None, lambda _: "A secret.")
    console = await opened(auth="required")
    run = (await console.drsai.user("ann").run("assistant", "Tell.")).run_id
    for role, name in (("operator", "olga"), ("viewer", "ann")):
        made = await console.drsai.keys.create(Owner("default", name), [role])
        page = await console.open(f"runs/{run}")
        await page.get_by_label("API key or token").fill(made.key.get_secret_value())
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator(".fact-line")).to_contain_text("Completed")
        if role == "operator":
            await expect(page.get_by_text("for its owner only")).to_be_visible()
            await expect(page.get_by_role("listbox")).to_have_count(0)
        else:
            await expect(page.get_by_role("option", name="A secret.")).to_be_visible()
            await expect(page.get_by_role("button", name="Run again on a copy")).to_have_count(0)
            await expect(page.locator(".fact-line").get_by_role("link")).to_have_count(0)
        await page.get_by_role("button", name="Sign out").click()


async def test_runs_are_found_by_what_was_said(
    opened: Open, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(said, "MOST_RUNS", 2)
    model.script(None, lambda request: f"Heard: {request.messages[-1]['content']}")
    console = await opened()
    runs = [
        (await console.drsai.user(f"u{n}").run("assistant", "Lamp!" if n < 2 else "Tell.")).run_id for n in range(7)
    ]
    page = await console.open("runs?text=lamp")
    table = page.get_by_role("table", name="Runs")
    # They are behind pages in which nothing is found.
    for run in runs[:2]:
        await expect(table.get_by_role("link", name=str(run))).to_be_visible()
    await expect(table).to_have_attribute("aria-rowcount", "3")
    await expect(page.get_by_text("All that are found:")).to_have_count(0)
    await console.is_accessible()
    await page.get_by_label("Tool that was called").fill("look")
    await expect(page.get_by_text("No run is like that.")).to_be_visible()
    assert "tool=look" in page.url
    await page.get_by_role("button", name="Clear").click()
    await expect(table).to_have_attribute("aria-rowcount", "8")
    await expect(page.get_by_text("All that are found:")).to_be_visible()


async def test_runs_that_leave_the_list_are_still_those_that_are_meant(opened: Open, model: ModelServer) -> None:
    model.script(None, lambda _: Reply("Late.", delay=600))
    console = await opened(**QUICK)
    meant, other = [await ask(console, "assistant", "Wait.", f"t{number}", background=True) for number in range(2)]
    page = await console.open("runs?status=running")
    await page.get_by_label(f"Select {meant}").check()
    await page.get_by_role("button", name="Cancel run").click()
    dialog = page.get_by_role("dialog", name="Cancel runs")
    await expect(dialog).to_contain_text("1 runs can be changed so.")
    # Meanwhile it ends, and so the list has it no more.
    await console.drsai.cancel_run(meant)
    await expect(page.get_by_label(f"Select {meant}")).to_have_count(0)
    await dialog.get_by_role("button", name="Cancel run").click()
    await expect(dialog.get_by_role("status")).to_be_visible()
    await expect(dialog.get_by_role("listitem")).to_contain_text([meant])
    assert (await console.drsai.get_run(other)).status is RunStatus.RUNNING


async def test_a_page_is_shown_that_takes_longer_than_the_pause_between_two(opened: Open) -> None:
    console = await opened()
    run = (await console.drsai.user("anonymous").run("assistant", "Hello!")).run_id
    asked = 0

    async def slow(route: Route) -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(4)
        await route.continue_()

    await console.page.route(f"**/v1/runs/{run}", slow)
    page = await console.open(f"runs/{run}")
    await expect(page.locator(".fact-line")).to_contain_text("Completed")
    assert asked == 1


async def test_a_list_whose_newest_page_meets_nothing_that_is_shown_lacks_no_row(opened: Open) -> None:
    console = await opened()
    now = utcnow()

    async def made(first: int, count: int) -> None:
        rows = [
            {
                "tenant": "default",
                "user": "anonymous",
                "thread": f"t{first}",
                "run_id": f"run_{first + number}",
                "created_at": now + timedelta(seconds=first + number),
            }
            for number in range(count)
        ]
        await console.drsai.database.write(lambda session: store(session, rows))

    await made(0, 120)
    page = await console.open("runs")
    table = page.get_by_role("table", name="Runs")
    await expect(table.get_by_role("link", name="run_119")).to_be_visible()
    await made(1000, 150)
    await expect(table.get_by_role("link", name="run_1149")).to_be_visible()
    to_end = "each => { each.scrollTop = each.scrollHeight; return each.getAttribute('aria-rowcount') }"
    for _ in range(100):
        if await table.evaluate(to_end) != "-1":
            break
        await asyncio.sleep(0.1)
    await expect(table).to_have_attribute("aria-rowcount", "271")


async def test_of_a_log_of_which_the_newest_is_kept_one_entry_is_chosen(opened: Open) -> None:
    console = await opened()
    run = (await console.drsai.user("anonymous").run("assistant", "Hello!")).run_id
    told = "".join(f"event: note\nid: 1-{n}\ndata: {{}}\n\n" for n in range(20_003))
    answers: list[dict[str, Any]] = [{"status": 200, "content_type": "text/event-stream", "body": told}]

    async def events(route: Route) -> None:
        await (route.fulfill(**answers.pop()) if answers else route.fulfill(status=204))

    await console.page.route(f"**/v1/runs/{run}/events", events)
    page = await console.open(f"runs/{run}?tab=events")
    await expect(page.get_by_text("20K rows")).to_be_visible()
    entries = page.get_by_role("listbox", name="Events")
    await entries.focus()
    await entries.press("End")
    await expect(entries.get_by_role("option", selected=True)).to_contain_text("1-20002")
    await entries.press("ArrowUp")
    await expect(entries.get_by_role("option", selected=True)).to_contain_text("1-20001")


async def test_words_that_are_searched_for_keep_their_spaces(console: Console) -> None:
    page = await console.open("runs")
    await page.get_by_role("button", name="More filters").click()
    said = page.get_by_label("What was said")
    await said.press_sequentially("budget ")
    await expect(page).to_have_url(re.compile("text=budget"))
    await said.press_sequentially("meeting")
    await expect(said).to_have_value("budget meeting")


async def test_the_list_has_the_focus_again_once_an_entry_is_closed(console: Console) -> None:
    run = await ask(console, "assistant", "Hello!")
    page = await console.open(f"runs/{run}?tab=messages")
    messages = page.get_by_role("listbox", name="Messages")
    await messages.press("ArrowDown")
    await page.get_by_role("button", name="Close").press("Enter")
    await expect(page.get_by_role("complementary", name="Details")).to_have_count(0)
    await expect(messages).to_be_focused()


async def test_where_the_browser_has_no_clipboard_nothing_is_offered_to_copy(console: Console) -> None:
    run = await ask(console, "assistant", "Hello!")
    page = await console.open(f"runs/{run}")
    await expect(page.get_by_role("button", name="Copy", exact=True)).to_be_visible()
    await page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    await page.reload()
    await expect(page.get_by_role("heading", name="assistant")).to_be_visible()
    await expect(page.get_by_role("button", name="Copy", exact=True)).to_have_count(0)


PLACES = "cells => cells.filter(each => each.offsetParent).map(each => Math.round(each.getBoundingClientRect().x))"


async def test_on_a_phone_heads_stand_over_their_columns(opened: Open) -> None:
    console = await opened(context={"viewport": {"width": 390, "height": 800}})
    await ask(console, "assistant", "x" * 60, thread="a-thread-of-a-long-name" * 4)
    page = await console.open("runs")
    row = page.locator(".table-row").first
    await expect(row).to_be_visible()
    heads = await page.locator(".table-head > [role=columnheader]").evaluate_all(PLACES)
    cells = await row.locator("> [role=cell]").evaluate_all(PLACES)
    assert heads == cells
    assert len(cells) > 1
