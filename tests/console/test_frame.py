"""The frame of the console: who may see what, in which words, and what is left of a key."""

from __future__ import annotations

import httpx
import pytest
from playwright.async_api import Request, Route, expect

from drsai_backend.datamodel.owner import Owner
from tests.console.conftest import Console, Open


async def test_an_open_server_just_opens(console: Console) -> None:
    page = await console.open()
    menu = page.get_by_role("navigation", name="Main").get_by_role("link")
    await expect(menu).to_have_text(
        ["Chat", "Runs", "Approvals", "Agents", "Tools", "Knowledge", "Memory", "Operations"]
    )
    await expect(menu.first).to_have_attribute("aria-current", "page")


async def test_a_key_is_asked_for_and_never_stored_in_clear(opened: Open) -> None:
    console = await opened(auth="required")
    made = await console.drsai.keys.create(Owner("default", "ann"), ["viewer"])
    key = made.key.get_secret_value()
    page = await console.open()
    field = page.get_by_label("API key or token")
    await field.fill("sk-wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_contain_text("not valid here")
    await console.is_accessible()
    await field.fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("link", name="Runs")).to_be_visible()
    # A viewer may not chat, so the console does not offer it.
    await expect(page.get_by_role("link", name="Chat")).to_have_count(0)
    assert key not in await page.evaluate("JSON.stringify([location.href, {...localStorage}, {...sessionStorage}])")
    await page.reload()
    await expect(page.get_by_role("link", name="Runs")).to_be_visible()
    await page.get_by_role("button", name="Sign out").click()
    await expect(field).to_be_visible()
    await page.reload()
    await expect(field).to_be_visible()


async def test_chinese_and_dark(opened: Open) -> None:
    console = await opened(context={"locale": "zh-CN", "color_scheme": "dark"})
    page = await console.open("nowhere")
    await expect(page.get_by_text("没有这个页面。")).to_be_visible()
    await console.is_accessible()
    await page.get_by_label("语言").select_option("en")
    await expect(page.get_by_text("There is no such page.")).to_be_visible()


@pytest.mark.parametrize("width", [390, 1280, 2560])
async def test_the_frame_has_no_violation(opened: Open, width: int) -> None:
    console = await opened(context={"viewport": {"width": width, "height": 800}})
    await console.open()
    await console.is_accessible()


async def test_the_page_asks_nobody_else_and_runs_nothing_else(console: Console) -> None:
    async with httpx.AsyncClient(base_url=console.url) as http:
        page = await http.get("/console/runs/run_1")
        policy = dict(each.strip().split(" ", 1) for each in page.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["trusted-types"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert "unsafe" not in page.headers["content-security-policy"]
        assert (await http.get("/console")).headers["location"] == "/console/"
        assert (await http.get("/console/assets/..%2findex.html")).status_code == 404
        assert (await http.get("/console/assets/nothing.js")).status_code == 404


async def test_the_skip_link_leads_to_the_content_of_the_page(console: Console) -> None:
    page = await console.open("runs")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#main")).to_be_focused()
    assert page.url.endswith("/console/runs")


async def test_a_page_of_a_server_that_was_replaced_is_loaded_anew(console: Console) -> None:
    page = await console.open("nowhere")
    is_new = False

    async def script(route: Route) -> None:
        await (route.continue_() if is_new else route.fulfill(status=404))

    def loaded(request: Request) -> None:
        nonlocal is_new
        is_new = is_new or request.resource_type == "document"

    await page.route("**/assets/*.js", script)
    page.on("request", loaded)
    await page.get_by_role("link", name="Runs").click()
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    console.faults.clear()


async def test_an_address_that_no_browser_writes_names_nothing(console: Console) -> None:
    page = await console.open("chat/%E0")
    await expect(page.get_by_role("alert")).to_contain_text("no thread")


async def test_a_browser_that_keeps_nothing_shows_the_page(console: Console) -> None:
    blocked = (
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError') } })"
    )
    await console.page.add_init_script(blocked)
    page = await console.open("nowhere")
    await page.get_by_label("Theme").select_option("dark")
    await page.get_by_label("Language").select_option("zh")
    await expect(page.get_by_text("没有这个页面。")).to_be_visible()


async def test_who_signs_in_again_goes_on_with_what_they_were_doing(opened: Open) -> None:
    console = await opened(auth="required")
    made = await console.drsai.keys.create(Owner("default", "ann"), ["user"])
    again = await console.drsai.keys.create(Owner("default", "ann"), ["user"])
    await console.drsai.user("ann").run("assistant", "Hello!", thread_id="t")
    page = await console.enter("chat/t", made.key.get_secret_value())
    field = page.get_by_role("textbox", name="Message")
    await field.fill("A long message")
    await console.drsai.keys.revoke("default", made.info.key_id)
    dialog = page.get_by_role("dialog", name="Sign in")
    await expect(dialog.get_by_role("alert")).to_contain_text("not valid here")
    # What is typed at this moment does not become the key.
    await page.keyboard.type("and on")
    await expect(dialog.get_by_label("API key or token")).to_have_value("")
    await console.is_accessible()
    await page.keyboard.press("Escape")
    await expect(field).to_have_value("A long message")
    await field.press("Enter")
    await expect(page.get_by_role("article")).to_have_count(3)
    await page.locator("#main").get_by_role("button", name="Sign in").click()
    for token in ("sk-wrong", again.key.get_secret_value()):
        await expect(dialog.get_by_role("alert")).to_contain_text("not valid here")
        await dialog.get_by_label("API key or token").fill(token)
        await dialog.get_by_role("button", name="Sign in").click()
    await expect(dialog).to_have_count(0)
    await expect(page.get_by_role("article")).to_have_count(4)
    await expect(page.get_by_role("article").nth(2)).to_contain_text("A long message")
    # The list of chats and the events of this one are followed with the new key as well.
    await field.fill("Another")
    await field.press("Enter")
    await expect(page.get_by_role("article")).to_have_count(6)


async def test_nothing_of_a_user_is_done_as_another_who_signs_in_after_them(opened: Open) -> None:
    console = await opened(auth="required")
    made = await console.drsai.keys.create(Owner("default", "ann"), ["user"])
    other = await console.drsai.keys.create(Owner("default", "bob"), ["user"])
    page = await console.enter("chat", made.key.get_secret_value())
    await page.get_by_role("textbox", name="Message").fill("A secret of hers")
    await console.drsai.keys.revoke("default", made.info.key_id)
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.get_by_role("textbox", name="Message").press("Enter")
    await page.locator("#main").get_by_role("button", name="Sign in").click()
    await page.get_by_role("dialog").get_by_label("API key or token").fill(other.key.get_secret_value())
    await page.get_by_role("dialog").get_by_role("button", name="Sign in").click()
    await expect(page.get_by_text("bob, tenant default")).to_be_visible()
    await expect(page.get_by_role("textbox", name="Message")).to_have_value("")
    await expect(page.get_by_text("No chats yet")).to_be_visible()
    assert (await console.drsai.user("bob").list_threads()).items == []


async def test_whom_the_application_signs_in_goes_on_once_it_has(console: Console) -> None:
    page = await console.open("chat")
    field = page.get_by_role("textbox", name="Message")
    await field.fill("A long message")
    refusal = {"error": {"message": "nobody is signed in", "code": "invalid_api_key"}}
    await page.route("**/v1/**", lambda route: route.fulfill(status=401, json=refusal))
    await expect(page.get_by_role("dialog", name="Sign in")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.unroute_all()
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("button", name="Sign in")).to_have_count(0)
    await field.press("Enter")
    await expect(page.get_by_role("article").first).to_contain_text("A long message")


async def test_what_a_button_met_is_told_in_the_language_of_the_page(opened: Open) -> None:
    console = await opened(context={"locale": "zh-CN"})
    run = (await console.drsai.user("anonymous").run("assistant", "Hello!", thread_id="t")).run_id
    page = await console.open("chat/t")
    await expect(page.get_by_role("article").nth(1)).to_be_visible()
    await page.route("**/v1/threads/t/fork", lambda route: route.abort())
    await page.get_by_role("article").nth(1).hover()
    await page.get_by_role("button", name="在新对话中继续").click()
    await expect(page.locator(".toasts")).to_contain_text("无法连接服务器。")
    assert run
