"""The tools' pages: tools are registered, tried, changed and deleted, and MCP servers are asked whether they answer."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.async_api import Page, expect

from drsai_backend.datamodel.owner import Owner
from drsai_backend.tools.mcp import health
from tests.console.conftest import Console, Open
from tests.support.threads import until
from tests.tools.http.conftest import Said, Site
from tests.tools.mcp.conftest import SERVER

LOCAL: dict[str, Any] = {"allowed_addresses": ["127.0.0.0/8"]}
HOSTILE = "<img src=x onerror=\"document.title='stolen'\"> javascript:alert(1) \u202eevil " + "w" * 2_000


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def config(site: Site, **values: Any) -> dict[str, Any]:
    endpoint = {"url": site.url + "/w/{city}", "headers": {"K": "{secret:KEY}"}, "query": {"days": "{days}"}}
    parameters = [
        {"name": "city", "type": "string", "description": "Its name.", "required": True},
        {"name": "days", "type": "integer"},
    ]
    return {"description": "The weather.", "parameters": parameters, "endpoint": endpoint, **values}


async def register(console: Console, name: str, **body: Any) -> None:
    async with httpx.AsyncClient(base_url=console.url, timeout=30) as http:
        answer = await http.post("/v1/tools", json={"name": name, **body})
        assert answer.status_code == 201, answer.text


async def save(page: Page) -> None:
    await page.get_by_role("button", name="Save").click()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_tool_from_its_registration_to_its_end(opened: Open, site: Site, scheme: str) -> None:
    console = await opened(context={"color_scheme": scheme}, **LOCAL)
    page = await console.open("tools")
    await expect(page.get_by_text("No tool is registered yet")).to_be_visible()
    await expect(page.get_by_role("region", name="Tools of the server")).to_contain_text("calculator")
    await console.is_accessible()
    await page.get_by_role("link", name="Register a tool").click()
    await page.get_by_label("Name").fill("weather")
    editor = page.get_by_role("textbox", name="Config")
    await editor.fill('{"description": }')
    await expect(page.get_by_text("This is not a JSON object")).to_be_visible()
    await expect(page.get_by_role("button", name="Save")).to_be_disabled()
    # What the server refuses is underlined where it is.
    await editor.fill(json.dumps(config(site, retries=99), indent=2))
    await page.get_by_role("button", name="Add a credential").click()
    await page.get_by_label("Name of credential 1").fill("KEY")
    await page.get_by_label("Value of credential 1").fill("hunter2")
    await save(page)
    await expect(page.get_by_role("alert")).to_contain_text("config.retries")
    await expect(page.locator(".cm-lintRange-error")).to_have_text('"retries": 99')
    await console.is_accessible()
    await editor.fill(json.dumps(config(site), indent=2))
    await save(page)
    await expect(page.get_by_role("heading", name="weather")).to_be_visible()
    assert "hunter2" not in await page.content()

    # By its schema, with the types that it has.
    await page.get_by_label("city").fill("Rome")
    await page.get_by_label("days").fill("3")
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_role("status", name="Result")).to_be_visible()
    assert site.requests[-1].target == "/w/Rome?days=3"
    await console.is_accessible()
    await console.drsai.engine.tools.statistics.flush()
    await page.reload()
    await expect(page.locator("dl").get_by_text("1", exact=True)).to_be_visible()

    await page.get_by_role("textbox", name="Config").fill(json.dumps(config(site, description="It rains."), indent=2))
    await page.get_by_label("Value of credential 1").fill("hunter3")
    await save(page)
    await expect(page.get_by_text("Version 2 by")).to_be_visible()
    await page.get_by_role("button", name="Delete", exact=True).click()
    await page.get_by_role("dialog").get_by_role("button", name="Delete tool").click()
    await expect(page.get_by_text("No tool is registered yet")).to_be_visible()


async def test_an_mcp_server_is_asked_whether_it_answers(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "SHARED_SECONDS", 0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(sys.executable, str(SERVER), "http", str(port))

    async def listens() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    try:
        await until(listens)
        console = await opened(**LOCAL)
        url = f"http://127.0.0.1:{port}/mcp"
        await register(console, "numbers", type="mcp", config={"url": url, "include": ["double", "norm"]})
        page = await console.open("tools")
        servers = page.get_by_role("region", name="MCP servers")
        await servers.get_by_role("button", name="Does numbers answer?").click()
        await expect(servers.get_by_role("status")).to_contain_text("Tools: 2 · version 7.1")
        await console.is_accessible()
        await page.get_by_role("link", name="numbers").click()
        await page.get_by_role("button", name="Does numbers answer?").click()
        await expect(page.get_by_text("Tools: 2 · version 7.1")).to_be_visible()
        await page.get_by_role("button", name="List its tools").click()
        await expect(page.get_by_text("Connected. Tools: 2")).to_be_visible()
        await page.get_by_label("Tool of the server").select_option("numbers__double")
        await page.get_by_label("Arguments as JSON").fill('{"number": 21}')
        await page.get_by_role("button", name="Call", exact=True).click()
        await expect(page.get_by_role("status", name="Result")).to_contain_text("42")
        await console.is_accessible()
    finally:
        process.kill()
        await process.wait()
    # A call tells that it is gone; then its tools cannot be listed any more, and the page says why.
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_role("status", name="The tool failed")).to_contain_text("closed the connection")
    await page.get_by_role("button", name="List its tools").click()
    await expect(page.get_by_role("alert")).to_contain_text("numbers")
    await expect(page.get_by_text("Connected.")).to_have_count(0)
    await page.get_by_role("button", name="Does numbers answer?").click()
    await expect(page.get_by_role("status").get_by_text("the MCP server numbers cannot be reached")).to_be_visible()


async def test_whoever_may_not_register_looks_only(opened: Open, site: Site) -> None:
    console = await opened(auth="required", **LOCAL)
    ann = await console.drsai.keys.create(Owner("default", "ann"), ["user"])
    admin = console.drsai.user("root")
    await admin.tools.put("weather", config(site), secrets={"KEY": "hunter2"})
    page = await console.open("tools")
    await page.get_by_label("API key or token").fill(ann.key.get_secret_value())
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("table")).to_contain_text("The weather.")
    await expect(page.get_by_role("link", name="Register a tool")).to_have_count(0)
    await page.get_by_role("link", name="weather").click()
    await expect(page.get_by_text("it needs the scope tools:register")).to_be_visible()
    for name in ("Save", "Delete", "Call"):
        await expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


async def test_hostile_words_stay_words(opened: Open, site: Site) -> None:
    console = await opened(**LOCAL)
    parameters = [{"name": "city", "type": "string", "description": HOSTILE}]
    given = config(site, description=HOSTILE, parameters=parameters, endpoint={"url": site.url + "/echo"})
    await register(console, "weather", config=given)
    site.answer = lambda _: Said(HOSTILE)
    page = await console.open("tools")
    await expect(page.get_by_role("table")).to_contain_text("<img src=x")
    await page.get_by_role("link", name="weather").click()
    await page.get_by_role("button", name="Call", exact=True).click()
    await expect(page.get_by_role("status", name="Result")).to_contain_text("<img src=x")
    assert await page.title() != "stolen"
    assert await page.locator("main img, main a[href^=javascript]").count() == 0


async def test_what_is_typed_outlasts_what_somebody_else_stores(opened: Open, site: Site) -> None:
    console = await opened(**LOCAL)
    await register(console, "weather", type="http", config=config(site), secrets={"KEY": "hunter2"})
    page = await console.open("tools/weather")
    editor = page.get_by_role("textbox", name="Config")
    await editor.fill(json.dumps(config(site, description="Mine."), indent=2))
    await page.get_by_label("Value of credential 1").fill("hunter3")
    await page.get_by_label("city").fill("Rome")
    async with httpx.AsyncClient(base_url=console.url) as http:
        body = {"type": "http", "config": config(site, description="Theirs."), "secrets": {"KEY": "hunter4"}}
        assert (await http.put("/v1/tools/weather", json=body)).status_code == 200
    told = page.get_by_role("alert")
    await expect(told).to_contain_text("has stored version 2 meanwhile")
    await expect(editor).to_contain_text("Mine.")
    await expect(page.get_by_label("Value of credential 1")).to_have_value("hunter3")
    await expect(page.get_by_label("city")).to_have_value("Rome")
    await told.get_by_role("button", name="take version 2").click()
    await expect(editor).to_contain_text("Theirs.")
    await expect(told).to_have_count(0)
    await editor.fill(json.dumps(config(site, description="Mine."), indent=2))
    await page.get_by_label("Value of credential 1").fill("hunter3")
    await save(page)
    await expect(page.get_by_text("Version 3 by")).to_be_visible()
    await expect(told).to_have_count(0)
