"""The main pages of the console look as they did: pictures of them are compared with those in `pictures`.

They are to be equal on another machine, and different where a part has moved or gone. So the page's clock stands, texts
that differ from run to run are replaced by others of a fixed length, and all is written in the font that comes with
Pillow, whichever fonts are installed. What is compared is how light each square of 8 pixels is, not each pixel: edges
of letters may be smoothed otherwise.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent
from autogen_agentchat.base import Response
from autogen_core.tools import FunctionTool
from numpy.typing import NDArray
from PIL import Image, ImageFont
from playwright.async_api import Page, expect

from drsai_backend import RunContext
from drsai_backend.agents import requires_approval
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.base import NewFile, NewStore
from drsai_backend.features.knowledge.extension import Knowledge
from tests.console.conftest import Console, Open
from tests.support.threads import until

PICTURES = Path(__file__).parent / "pictures"
SQUARE = 8
"""Pixels."""
LIGHTER = 32
"""Of 255: a square that is lighter or darker by more is another."""
MOST = 8
"""Squares that may be others: what Pillow's font lacks, as the mark of what is cut, is of another one."""
PAUSE = 150
"""Milliseconds between two pictures."""
WAIT = 0.01
"""Seconds of a tool's call and between two words of the model: what takes none has no place on a line of time."""
COLORS = 24
"""Of a picture that is kept: so it has some 10 KB."""
LOOKS: list[dict[str, Any]] = [
    {"color_scheme": "light", "viewport": {"width": 1280, "height": 800}},
    {"color_scheme": "dark", "viewport": {"width": 390, "height": 800}},
]
NO_MODEL: dict[str, Any] = {"OPENAI_BASE_URL": None, "OPENAI_API_KEY": None}
SAME = [
    [r"\brun_\w{18,}", "run_" + "0" * 18],
    ["\u2630", "="],
    [r"\b(\d+ [hm] )?\d+(\.\d+)? (ms|s|m)\b", "1.0 s"],
]
"""Of texts: what differs from run to run, and what is shown in its place."""
STYLE = """
:root { --font: still !important; --mono: still !important; }
* { caret-color: transparent !important; }
.bar:not(.attempt) { left: 0 !important; width: 40% !important; }
"""
STILL = """([font, style, same]) => {
    const bytes = Uint8Array.from(atob(font), (each) => each.charCodeAt(0));
    document.fonts.add(new FontFace("still", bytes.buffer));
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(style);
    document.adoptedStyleSheets = [sheet];
    const words = same.map(([found, put]) => [new RegExp(found, "g"), put]);
    const still = (node) => {
        const text = words.reduce((text, [found, put]) => text.replace(found, put), node.data);
        if (text !== node.data) node.data = text;
    };
    new MutationObserver(() => {
        const texts = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
        while (texts.nextNode()) still(texts.currentNode);
    }).observe(document, { subtree: true, childList: true, characterData: true });
}"""
ANSWER = """The sum of both is **42**.

| month | sales |
|---|---|
| May | 17 |
| June | 25 |

```python
print(17 + 25)
```
"""


def helper(context: RunContext) -> AssistantAgent:
    async def add(expression: str) -> str:
        await asyncio.sleep(WAIT)
        return "408"

    tools = [FunctionTool(add, "Calculates.", name="calculator")]
    client = context.model_client()
    return AssistantAgent(
        "helper", client, description="Helps.", tools=tools, reflect_on_tool_use=True, model_client_stream=True
    )


def payer(context: RunContext) -> AssistantAgent:
    async def pay(to: str, amount: int) -> str:
        return f"paid {amount} to {to}"

    tool = requires_approval(deadline=timedelta(hours=2))(FunctionTool(pay, "Pays."))
    return AssistantAgent("payer", context.model_client(), description="Pays bills.", tools=[tool])


class Broken(AssistantAgent):
    async def on_messages(self, *_: object) -> Response:
        raise ValueError("its file is missing")

    on_messages_stream = BaseChatAgent.on_messages_stream


def broken(context: RunContext) -> AssistantAgent:
    return Broken("broken", context.model_client())


TEAMS: dict[str, Callable[[RunContext], AssistantAgent]] = {"helper": helper, "payer": payer, "broken": broken}
CREW: dict[str, Any] = {
    "agents": {
        "writer": {"prompt": "You write.", "tools": ["calculator"], "description": "Writes."},
        "critic": {"prompt": "You judge.", "description": "Judges."},
    },
    "teams": {"crew": {"kind": "round_robin", "participants": ["writer", "critic"], "max_turns": 2}},
}
WEATHER: dict[str, Any] = {
    "description": "The weather of a place.",
    "parameters": [{"name": "city", "type": "string", "description": "Its name.", "required": True}],
    "endpoint": {"url": "https://weather.example/{city}"},
}


async def fill(console: Console, http: httpx.AsyncClient) -> dict[str, str]:
    """Have all pages show something, the same each time. Returns the addresses of the pages, by their names."""

    async def post(path: str, **body: Any) -> httpx.Response:
        answer = await http.post(path, json=body)
        assert answer.status_code < 300 or body.get("model") == "broken", answer.text
        return answer

    async def say(model: str, thread: str, text: str, **more: Any) -> httpx.Response:
        return await post(
            "/v1/chat/completions", model=model, thread_id=thread, messages=[{"role": "user", "content": text}], **more
        )

    said = [
        {"role": "user", "content": "What were the sales of May and June?"},
        {"role": "assistant", "content": ANSWER},
    ]
    await post("/v1/threads/sales/history", model="helper", messages=said)
    asked = await say("helper", "sales", "And what is 17 * 24?")
    for number in range(4):
        await say("helper", f"notes {number}", f"Note {number}: the garden is watered on Mondays.")
    await say("broken", "broken", "Does it work?")
    for number, whom in enumerate(("Ann", "the printer")):
        await say("payer", f"bill {number}", f'Pay {40 + number} to "{whom}".', background=True)

        async def waits(most: int = number + 1) -> bool:
            return len((await http.get("/v1/input-requests")).json()["data"]) == most

        await until(waits)
    await post("/v1/agents", name="crew", definition=CREW)
    await post("/v1/tools", name="weather", config=WEATHER)
    for kind, text in (("preference", "Ann likes tea."), ("fact", "Ann lives in Bonn."), ("fact", "Ann has a dog.")):
        await post("/v1/memories", text=text, kind=kind)
    owner, knowledge = Owner("default", "ann"), console.drsai.extension(Knowledge)
    for name in ("handbook", "recipes"):
        file = await console.drsai.files.create(owner, f"{name}.md", b"Everybody has thirty days of leave.")
        store = await knowledge.create(owner, NewStore(name=name), [NewFile(file_id=file.file_id)])

        async def is_read(store_id: str = store.store_id) -> bool:
            return (await knowledge.get(owner, store_id)).status == "completed"

        await until(is_read)
    pages = ("runs", "approvals", "agents", "tools", "knowledge", "memory", "operations")
    return {"chat": "chat/sales", "run": f"runs/{asked.headers['x-run-id']}", **{name: name for name in pages}}


async def picture_of(page: Page) -> Image.Image:
    """What is shown once all is loaded: two pictures in a row are equal."""
    await expect(page.locator("main .skeleton")).to_have_count(0)
    await page.evaluate("document.fonts.ready.then(() => true)")
    before, now = b"", await page.screenshot(animations="disabled")
    while before != now:
        await page.wait_for_timeout(PAUSE)
        before, now = now, await page.screenshot(animations="disabled")
    return Image.open(io.BytesIO(now)).convert("RGB")


def squares(image: Image.Image) -> NDArray[np.int16]:
    """How light each square is, 0 to 255."""
    size = (image.width // SQUARE, image.height // SQUARE)
    return np.asarray(image.convert("L").resize(size, Image.Resampling.BOX), dtype=np.int16)


def difference(was: Image.Image, now: Image.Image) -> str | None:
    """Say how much is other, and where; None: nothing."""
    if was.size != now.size:
        return f"has {now.size} pixels, not {was.size}"
    others = abs(squares(was) - squares(now)) > LIGHTER
    if others.sum() <= MOST:
        return None
    rows, columns = np.nonzero(others)
    left, top, right, bottom = (
        int(each) * SQUARE for each in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    )
    return f"{others.sum()} squares differ, between {left}, {top} and {right}, {bottom}"


async def test_the_pages_look_as_they_did(opened: Open, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    console = await opened(TEAMS, auth="required", memory=True, demo_delay=WAIT, **NO_MODEL)
    made = await console.drsai.keys.create(Owner("default", "ann"), ["admin"])
    headers = {"authorization": f"Bearer {made.key.get_secret_value()}"}
    async with httpx.AsyncClient(base_url=console.url, headers=headers, timeout=60) as http:
        paths = await fill(console, http)
    font = base64.b64encode(ImageFont.load_default(16).font_bytes).decode()
    told: list[str] = []
    for look in LOOKS:
        context = (await console.turn_to(timezone_id="UTC", reduced_motion="reduce", **look)).context
        await context.add_init_script(f"({STILL})({json.dumps([font, STYLE, SAME])})")
        # All was an hour ago, whichever way it is rounded.
        await context.clock.set_fixed_time(datetime.now().astimezone() + timedelta(minutes=90))
        await console.sign_in("", "ann", "admin")
        for name, path in paths.items():
            image = await picture_of(await console.open(path))
            file = PICTURES / f"{name}-{look['color_scheme']}.png"
            if request.config.getoption("--write-pictures"):
                image.quantize(COLORS).save(file, optimize=True)
            elif (other := difference(Image.open(file).convert("RGB"), image)) is not None:
                image.save(tmp_path / file.name)
                told.append(f"{file.name} {other}; it is now {tmp_path / file.name}")
    assert not told, "after a change that is meant: pytest tests/console --write-pictures\n" + "\n".join(told)
