"""Operations in the console: how things stand, what was used, and what operators set, with its history."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.agents import AssistantAgent
from playwright.async_api import expect

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import SwitchedOff
from tests.console.conftest import Console, Open
from tests.support.model_server import ModelServer, Reply
from tests.support.scripted import ScriptedClient

_HOSTILE = '<img src=x onerror="document.title=1">'
_TABS = ("overview", "usage", "limits", "switches", "settings", "keys", "users", "audit", "webhooks")


def _done(*_: object) -> str:
    return "Done."


async def _sure(console: Console, button: str) -> None:
    """Confirm what was asked."""
    await console.page.get_by_role("dialog").get_by_role("button", name=button, exact=True).click()
    await expect(console.page.get_by_role("dialog")).to_have_count(0)


async def test_limits_and_budgets_are_set_seen_and_removed(console: Console) -> None:
    await console.drsai.budgets.set("user", "bob", tenant="default", tokens_day=1_000_000)
    await console.drsai.user("bob").run("assistant", "Hello!")
    page = await console.open("operations/limits")
    budgets = page.get_by_role("region", name="Budgets")
    used = budgets.get_by_role("row", name="bob")
    await expect(used.get_by_role("meter")).to_be_visible()
    await expect(used).to_contain_text("of 1M")
    limits = page.get_by_role("region", name="Limits")
    await limits.get_by_role("button", name="Set a limit").click()
    await page.get_by_label("Name of the user").fill("ada")
    await page.get_by_label("Requests a minute").fill("many")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("many is no number.")
    await page.get_by_label("Requests a minute").fill("60")
    await page.get_by_label("Runs at once").fill("0")
    await page.get_by_role("button", name="Save").click()
    ada = limits.get_by_role("row", name="ada")
    await expect(ada).to_contain_text("60")
    await expect(ada).to_contain_text("no bound")
    await ada.get_by_role("button", name="Edit").click()
    await page.get_by_label("Requests a minute").fill("70")
    await page.get_by_role("button", name="Save").click()
    await expect(ada).to_contain_text("70")
    [rule] = (await console.drsai.limits.list("default")).items
    assert (rule.name, rule.requests, rule.runs) == ("ada", 70, 0)
    await ada.get_by_role("button", name="Remove").click()
    await _sure(console, "Remove")
    await expect(limits.get_by_text("Nothing was set")).to_be_visible()
    await page.get_by_role("link", name="Audit").click()
    acts = page.get_by_role("table").get_by_role("row")
    await expect(acts.nth(1)).to_contain_text("limit.removed")
    await page.get_by_label("Act").select_option("budget")
    await expect(acts).to_have_count(2)
    await acts.nth(1).get_by_role("button", name="Open").click()
    await expect(page.get_by_role("dialog")).to_contain_text("tokens_day")


async def test_a_narrow_page_shows_its_tab_and_what_is_set(opened: Open) -> None:
    console = await opened(context={"viewport": {"width": 390, "height": 800}})
    await console.drsai.limits.set("user", "ada", tenant="default", runs=7)
    page = await console.open("operations/limits")
    await expect(page.get_by_role("row", name="ada").get_by_text("7", exact=True)).to_be_visible()
    page = await console.open("operations/webhooks")
    await expect(page.get_by_role("link", name="Webhooks")).to_be_in_viewport(ratio=1)


async def test_a_team_is_switched_off_and_on(console: Console) -> None:
    page = await console.open("operations/switches")
    await expect(page.get_by_text("Nothing is off")).to_be_visible()
    await page.get_by_role("button", name="Switch off").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("assistant")
    await dialog.get_by_label("What who asks").fill("It rests <b>until six</b>.")
    await dialog.get_by_label("Until").fill("2027-06-01T18:00")
    await dialog.get_by_role("button", name="Switch off").click()
    row = page.get_by_role("row", name="assistant")
    await expect(row).to_contain_text("It rests <b>until six</b>.")
    with pytest.raises(SwitchedOff, match="It rests"):
        await console.drsai.user("ada").run("assistant", "Hello!")
    await row.get_by_role("button", name="Switch on").click()
    await _sure(console, "Switch on")
    await expect(page.get_by_text("Nothing is off")).to_be_visible()


async def test_a_setting_is_changed_and_rolled_back(console: Console) -> None:
    page = await console.open("operations/settings")
    await expect(page.get_by_text("Nothing is stored")).to_be_visible()

    async def change(name: str, value: str) -> None:
        await page.get_by_role("button", name="Change a setting").click()
        await page.get_by_role("dialog").get_by_label("Setting").select_option(name)
        await page.get_by_label("Value").fill(value)
        await page.get_by_role("button", name="Save").click()

    await change("max_turns", "many")
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("max_turns")
    await page.get_by_label("Value").fill("30")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_text("Version 1")).to_be_visible()
    await change("max_turns", "40")
    history = page.get_by_role("region", name="History").get_by_role("listitem")
    await expect(history.nth(0)).to_contain_text("- max_turns: 30")
    await expect(history.nth(0)).to_contain_text("+ max_turns: 40")
    await expect(history.nth(0)).to_contain_text("anonymous")
    await history.nth(1).get_by_role("button", name="Roll back").click()
    await _sure(console, "Roll back")
    await expect(history.nth(0)).to_contain_text("restores version 1")
    assert (await console.drsai.config.get()).values == {"max_turns": 30}
    # Somebody else has changed it meanwhile: what they did is not undone unseen.
    await console.drsai.config.set({"max_turns": 50})
    await change("max_turns", "60")
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("version")
    await page.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Another environment").click()
    await page.get_by_label("Environment").last.fill("prod")
    await page.get_by_role("dialog").get_by_role("button", name="Open").click()
    await expect(page.get_by_text("Nothing is stored")).to_be_visible()
    assert page.url.endswith("settings?environment=prod")


async def test_a_key_is_made_shown_once_used_and_revoked(opened: Open) -> None:
    console = await opened(auth="required")
    page = await console.sign_in("operations/keys", "root", "admin")
    await page.get_by_role("button", name="Make a key").click()
    dialog = page.get_by_role("dialog")
    await dialog.get_by_role("textbox", name="User").fill("ada")
    await dialog.get_by_label("Name").fill("laptop")
    await dialog.get_by_label("Further scopes").fill("metrics:read")
    await dialog.get_by_role("button", name="Make a key").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("`metrics:read` is not of a tenant")
    await dialog.get_by_label("Further scopes").fill("")
    await dialog.get_by_role("button", name="Make a key").click()
    key = await dialog.locator("code").inner_text()
    await dialog.get_by_role("button", name="Close").click()
    row = page.get_by_role("row", name="laptop")
    await expect(row).to_contain_text("Active")
    assert key not in await page.content()
    async with httpx.AsyncClient(base_url=console.url, headers={"Authorization": f"Bearer {key}"}) as http:
        assert (await http.get("/v1/me")).json()["user"] == "ada"
        await row.get_by_role("button", name="Revoke").click()
        await _sure(console, "Revoke")
        await expect(row).to_contain_text("Revoked")
        assert (await http.get("/v1/me")).status_code == 401


async def test_a_user_is_deleted_once_the_name_is_typed(opened: Open) -> None:
    console = await opened(auth="required")
    await console.drsai.user(_HOSTILE).run("assistant", "Hello!")
    page = await console.sign_in("operations/users", "root", "admin")
    row = page.get_by_role("row", name="<img")
    await row.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog")
    sure = dialog.get_by_role("button", name="Delete user")
    await dialog.get_by_role("textbox").fill("somebody")
    await expect(sure).to_be_disabled()
    await dialog.get_by_role("textbox").fill(_HOSTILE)
    await sure.click()
    await expect(page.get_by_role("status").filter(has_text="was deleted")).to_contain_text("threads: 1")
    await expect(row).to_have_count(0)
    # Nobody deletes themselves.
    await expect(page.get_by_role("row", name="root")).to_be_visible()
    await expect(page.get_by_role("row", name="root").get_by_role("button")).to_have_count(0)


async def test_a_viewer_sees_none_of_what_its_scopes_do_not_allow(opened: Open) -> None:
    console = await opened(auth="required")
    asked: list[str] = []
    console.page.on("request", lambda request: asked.append(request.url))
    page = await console.sign_in("operations", "ann", "viewer")
    tabs = page.get_by_role("navigation", name="Operations").get_by_role("link")
    await expect(tabs).to_have_text(["Usage", "Webhooks"])
    await expect(page.get_by_text("Only yours")).to_be_visible()
    for name in ("keys", "settings", "limits"):
        await console.open(f"operations/{name}")
        await expect(page.get_by_text("There is no such page.")).to_be_visible()
    of_others = ("keys", "config", "limits", "budgets", "admin", "audit", "users", "switches")
    refused = ("/metrics", *(f"/v1/{name}" for name in of_others))
    assert not [url for url in asked if any(path in url for path in refused)]


async def test_the_overview_has_figures_and_what_runs(opened: Open) -> None:
    client = ScriptedClient(_done)
    console = await opened({"slow": lambda: AssistantAgent("ann", client)}, metrics=True)
    await console.drsai.user("ada").run("slow", "First.")
    client.hold()
    run = asyncio.create_task(console.drsai.user(_HOSTILE).run("slow", "Second."))
    await client.asked.wait()
    page = await console.open("operations")
    await expect(page.get_by_role("link", name="Overview")).to_have_attribute("aria-current", "page")
    live = page.locator("dl > div", has_text="Live runs")
    await expect(live.locator("dd").first).to_have_text("1")
    await expect(page.locator("dl > div", has_text="Workers").locator("dd").first).to_have_text("1")
    await expect(page.locator("dl > div", has_text="Turn latency").locator("dd").first).to_contain_text("s")
    await expect(page.get_by_role("figure")).to_have_count(6)
    await expect(page.get_by_role("figure").first.locator("canvas")).to_be_visible()
    rows = page.get_by_role("region", name="Runs under way").get_by_role("row")
    await expect(rows).to_have_count(2)
    await expect(rows.nth(1)).to_contain_text("<img")
    client.release()
    await run
    await expect(live.locator("dd").first).to_have_text("0")
    await expect(page.get_by_text("Nothing runs")).to_be_visible()


async def test_the_overview_leads_to_the_runs_that_it_does_not_show(opened: Open) -> None:
    client = ScriptedClient(_done)
    console = await opened({"slow": lambda: AssistantAgent("ann", client)})
    client.hold()
    runs = [asyncio.create_task(console.drsai.user(f"user-{n}").run("slow", "Go.")) for n in range(21)]
    page = await console.open("operations")
    live = page.get_by_role("region", name="Runs under way")
    await expect(live).to_contain_text("Running: the newest 20 are shown.")
    await live.get_by_role("link", name="See all").click()
    await expect(page.get_by_label("Status")).to_have_value("running")
    await expect(page.get_by_role("table")).to_have_attribute("aria-rowcount", "22")
    client.release()
    await asyncio.gather(*runs)


async def test_where_nothing_is_counted_it_says_how(console: Console, opened: Open) -> None:
    page = await console.open("operations/overview")
    await expect(page.get_by_text("DRSAI_METRICS=true")).to_be_visible()
    await expect(page.get_by_text("Nothing runs")).to_be_visible()


async def test_unknown_cost_is_never_nothing(opened: Open, model: ModelServer, tmp_path: Path) -> None:
    model.script(None, lambda _: Reply("Hello!", prompt_tokens=1000, completion_tokens=100))
    console = await opened(model="house-1")
    for name in ("=1+1", "ada"):
        await console.drsai.user(name).run("assistant", "Hello!")
    page = await console.open("operations/usage?by=user")
    rows = page.get_by_role("table").get_by_role("row")
    await expect(rows).to_have_count(3)
    await expect(rows.nth(1)).to_contain_text("unknown")
    await expect(page.get_by_text("Cost: unknown")).to_be_visible()
    await expect(page.get_by_role("figure")).to_contain_text("Tokens by day")
    async with page.expect_download() as download:
        await page.get_by_role("button", name="CSV").click()
    await (await download.value).save_as(tmp_path / "usage.csv")
    lines = (tmp_path / "usage.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("user,calls,prompt_tokens")
    assert sorted(line.split(",")[0] for line in lines[1:]) == ["'=1+1", "ada"], "no formula"
    assert all(line.split(",")[8] == "" for line in lines[1:]), "no cost"
    await page.get_by_label("From").fill("2020-01-02")
    await page.get_by_label("To", exact=True).fill("2020-01-01")
    await expect(page.get_by_text("The first day is after the last one.")).to_be_visible()


async def test_a_webhook_is_sent_again(opened: Open) -> None:
    console = await opened(auth="required", allowed_addresses=["127.0.0.1"])
    page = await console.sign_in("operations/webhooks", "ann", "user")
    await expect(page.get_by_text("Nothing was sent")).to_be_visible()
    made = await console.drsai.keys.create(Owner("default", "ann"), ["user"])
    body: dict[str, Any] = {
        "model": "assistant",
        "messages": [{"role": "user", "content": "Hello!"}],
        "background": True,
        "webhook_url": "http://127.0.0.1:9/hook",
    }
    async with httpx.AsyncClient(
        base_url=console.url, headers={"Authorization": f"Bearer {made.key.get_secret_value()}"}
    ) as http:
        await http.post("/v1/webhooks/secret")
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 202
    row = page.get_by_role("row", name="run.completed")
    await expect(row).to_contain_text("Waiting")
    await row.get_by_role("button", name="Send again").click()
    await expect(row).to_contain_text("127.0.0.1:9")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_each_tab_has_no_violation(opened: Open, theme: str) -> None:
    console = await opened(metrics=True, context={"color_scheme": theme})
    drsai = console.drsai
    await drsai.user(_HOSTILE).run("assistant", "Hello!")
    await drsai.limits.set("user", _HOSTILE, tenant="default", requests=60)
    await drsai.budgets.set("user", _HOSTILE, tenant="default", tokens_day=100)
    await drsai.switches.off("tool", _HOSTILE, tenant="default", message=f"{_HOSTILE} \u202egnp.exe")
    await drsai.config.set({"max_turns": 40})
    await drsai.config.set({"budget_message": _HOSTILE})
    for tab in _TABS:
        page = await console.open(f"operations/{tab}")
        shown = {
            "overview": "Runs under way",
            "usage": "gpt-4o-mini",
            "settings": "Version 2",
            "keys": "Nothing here yet",
            "webhooks": "Nothing was sent",
        }
        await expect(page.get_by_role("main").get_by_text(shown.get(tab, "<img")).first).to_be_visible()
        await console.is_accessible()
        assert await page.title() != "1"


async def test_what_is_no_number_lifts_no_bound(opened: Open) -> None:
    console = await opened(auth="required")
    await console.drsai.limits.set("user", "ada", tenant="default", requests=60, runs=2)
    page = await console.sign_in("operations/limits", "root", "admin")
    ada = page.get_by_role("region", name="Limits").get_by_role("row", name="ada")
    await ada.get_by_role("button", name="Edit").click()
    await page.get_by_label("Requests a minute").fill("6o")
    await page.get_by_label("Runs at once").fill("3")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("6o is no number.")
    [rule] = (await console.drsai.limits.list("default")).items
    assert (rule.requests, rule.runs) == (60, 2)
    await console.open("operations/keys")
    await page.get_by_role("button", name="Make a key").click()
    await page.get_by_role("textbox", name="User").last.fill("ada")
    await page.get_by_label("Days").fill("30d")
    await page.get_by_role("dialog").get_by_role("button", name="Make a key").click()
    await expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("30d is no number.")


async def test_a_list_that_could_not_be_read_anew_is_read_again(opened: Open) -> None:
    console = await opened(auth="required")
    await console.drsai.keys.create(Owner("default", "ada"), ["user"])
    page = await console.sign_in("operations/keys", "root", "admin")
    row = page.get_by_role("row", name="ada")
    await expect(row).to_contain_text("Active")
    await page.route("**/v1/keys?*", lambda route: route.abort())
    await row.get_by_role("button", name="Revoke").click()
    await _sure(console, "Revoke")
    again = page.get_by_role("button", name="Try again")
    await expect(again).to_be_visible()
    await page.unroute_all()
    await again.click()
    await expect(row).to_contain_text("Revoked")


async def test_what_is_older_than_a_minute_is_not_counted_as_of_the_last_one(opened: Open) -> None:
    console = await opened(metrics=True)
    await console.page.clock.install()
    page = await console.open("operations")
    requests = page.locator("dl > div", has_text="Requests")
    await expect(requests.locator("dd").nth(1)).to_have_text("0 in the last minute")
    await page.clock.fast_forward("00:05")
    await expect(requests.locator("dd").nth(1)).not_to_have_text("0 in the last minute")
    # As after the machine has slept.
    before = await requests.locator("dd").first.inner_text()
    await page.clock.fast_forward("10:00")
    await expect(requests.locator("dd").first).not_to_have_text(before)
    await expect(requests.locator("dd").nth(1)).to_have_text("0 in the last minute")


async def test_plots_show_more_than_the_first_minutes(opened: Open) -> None:
    console = await opened(metrics=True)
    read: list[str] = []
    console.page.on("response", lambda each: read.append(each.url) if each.url.endswith("/metrics") else None)
    await console.page.clock.install()
    page = await console.open("operations")
    while len(read) < 70:
        await page.clock.run_for(5000)
    await expect(page.get_by_role("figure").filter(has_text="Requests a second")).to_contain_text(re.compile(r"all \d"))


async def test_a_year_that_is_being_typed_is_no_year_yet(console: Console) -> None:
    asked: list[str] = []
    console.page.on("request", lambda request: asked.append(request.url))
    page = await console.open("operations/usage")
    first = page.get_by_label("From")
    await first.focus()
    await page.keyboard.type("01022026")
    await expect(page).to_have_url(re.compile("from=2026-01-02"))
    await expect(first).to_have_value("2026-01-02")
    assert not [url for url in asked if "from=-" in url]


async def test_a_table_without_links_is_scrolled_by_keys(opened: Open) -> None:
    console = await opened(context={"viewport": {"width": 1280, "height": 500}})
    for number in range(8):
        await console.drsai.user(f"user{number}").run("assistant", "Hello!")
    page = await console.open("operations/usage?by=user")
    table = page.get_by_role("table")
    await expect(table.get_by_role("row")).to_have_count(9)
    await page.get_by_role("button", name="CSV").focus()
    await page.keyboard.press("Tab")
    await expect(table).to_be_focused()
    last = table.get_by_role("row").last
    await expect(last).not_to_be_in_viewport()
    await page.keyboard.press("End")
    await expect(last).to_be_in_viewport()


async def test_all_environments_can_be_chosen(console: Console) -> None:
    for number in range(101):
        await console.drsai.config.set({"max_turns": 40}, f"e{number:03}")
    page = await console.open("operations/settings")
    await expect(page.get_by_label("Environment").get_by_role("option")).to_have_count(102)
