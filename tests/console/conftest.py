"""The console in a real browser, Debian's Chromium, against a real server whose model is a scripted endpoint."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from drsai_backend import DrSai
from drsai_backend.datamodel.owner import Owner
from tests.support.listening import PromptServer, listening_socket
from tests.support.model_server import ModelServer
from tests.support.threads import settings

STORED = """async () => {
    while (localStorage.getItem("drsai.key") === null) await new Promise(requestAnimationFrame);
}"""
CHROMIUM = shutil.which("chromium")
expect.set_options(timeout=15_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        missing = pytest.mark.skip(reason="WITHOUT chromium: apt-get installs it, as .ci/run does")
        for item in items:
            if "tests/console" in item.path.as_posix():
                item.add_marker(missing)


@dataclass
class Console:
    """A server and a browser's page that shows its console.

    Attributes:
        browser, held: the browser, and what ends before the server does.
        url: of the server, without a slash at its end.
        drsai: what is served.
        page: of whoever uses it.
        faults: what the browser has told of the page: errors, and what its policy has refused. A test that means one
            empties it; else it fails.
    """

    browser: Browser
    held: AsyncExitStack
    url: str
    drsai: DrSai
    page: Page = field(init=False)
    faults: list[str] = field(default_factory=list)

    async def turn_to(self, **options: Any) -> Page:
        """Have somebody use it from here on of whom the browser knows nothing; `options` are their context's."""
        context = await self.browser.new_context(**{"locale": "en", **options})
        self.held.push_async_callback(context.close)
        self.page = self.watch(await context.new_page())
        return self.page

    async def open(self, path: str = "") -> Page:
        """Show an address below `/console/`."""
        await self.page.goto(f"{self.url}/console/{path}")
        await expect(self.page.locator("main")).to_be_visible()
        return self.page

    async def sign_in(self, path: str, user: str, *scopes: str) -> Page:
        """Show an address below `/console/` as `user`, with a new key of these scopes, where keys are needed."""
        made = await self.drsai.keys.create(Owner("default", user), [*scopes])
        return await self.enter(path, made.key.get_secret_value())

    async def enter(self, path: str, token: str) -> Page:
        """Show an address below `/console/` to who has a key or token."""
        page = await self.open(path)
        await page.get_by_label("API key or token").fill(token)
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.locator("#main")).to_be_visible()
        # For the next address, which is a new page, it is stored a moment later.
        await page.evaluate(STORED)
        return page

    async def is_accessible(self) -> None:
        """Assert that axe finds nothing against what is shown."""
        found = (await Axe().run(self.page)).response["violations"]
        told = [(each["id"], [node["html"][:200] for node in each["nodes"]]) for each in found]
        assert told == []

    def watch(self, page: Page) -> Page:
        """Note what the browser tells of a page."""
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        return page

    def _heard(self, message: ConsoleMessage) -> None:
        # Answers such as 404 are told as errors, too; what the page makes of them is what is tested.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.faults.append(message.text)


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        yield await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


Open = Callable[..., Awaitable[Console]]


@pytest.fixture
async def opened(browser: Browser, migrated_sqlite: str, model: ModelServer) -> AsyncIterator[Open]:
    """`await opened(teams, port=…, context={…}, **settings)` serves teams (default: the built-in ones) and opens an
    empty page; `context` is the browser context's (`viewport`, `locale`, `color_scheme`)."""
    made: list[Console] = []
    async with AsyncExitStack() as stack:

        async def start(teams: Any = None, context: dict[str, Any] | None = None, **values: Any) -> Console:
            endpoint: dict[str, Any] = {"OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"}
            given = settings(**{**endpoint, **values})
            drsai = await stack.enter_async_context(DrSai(teams, migrated_sqlite, settings=given))
            port = listening_socket()
            server = PromptServer(uvicorn.Config(drsai.app(), lifespan="off", log_config=None))
            serving = asyncio.create_task(server.serve([port]))

            async def end() -> None:
                server.stop()
                await serving

            stack.push_async_callback(end)
            console = Console(browser, stack, f"http://127.0.0.1:{port.getsockname()[1]}", drsai)
            await console.turn_to(**(context or {}))
            made.append(console)
            return console

        yield start
    for each in made:
        assert each.faults == []


@pytest.fixture
async def console(opened: Open) -> Console:
    """The console of a server with the built-in teams, on which nobody needs a key."""
    return await opened()
