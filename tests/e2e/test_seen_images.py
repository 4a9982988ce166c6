"""Images that tools return reach a model that sees, as files; what is stored and what others read is a line of text."""

from __future__ import annotations

import base64
import io
import re
from typing import Any

import pytest
from autogen_core import Image
from autogen_core.tools import BaseTool, ImageResultContent, StaticWorkbench, TextResultContent, ToolResult
from PIL import Image as PILImage
from pydantic import BaseModel

from drsai_backend import AssistantAgent, RunContext, tool
from drsai_backend.datamodel.owner import Owner
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall

LINE = re.compile(r"\[image image-\d\.png, image/png, \d+ bytes, id (file-[0-9a-f]+)\]")


def picture(colour: str) -> Image:
    return Image.from_pil(PILImage.new("RGB", (8, 8), colour))


@tool
def plot(colour: str) -> list[Any]:
    """Draw.

    Args:
        colour: what to fill it with.
    """
    return ["Drawn.", picture(colour)]


@tool
def page(text: str) -> str:
    """What a page says.

    Args:
        text: what it says.
    """
    return text


class ForeignWorkbench(StaticWorkbench):
    """One of AutoGen's kind whose tool returns an image, as those of MCP servers do."""

    async def call_tool(self, name: str, *_: Any, **__: Any) -> ToolResult:
        content = [TextResultContent(content="Seen."), ImageResultContent(content=picture("red"))]
        return ToolResult(name=name, result=content)


class _Nothing(BaseModel):
    pass


class Look(BaseTool[_Nothing, str]):
    def __init__(self) -> None:
        super().__init__(_Nothing, str, "look", "Look.")

    async def run(self, args: _Nothing, cancellation_token: Any) -> str:
        raise AssertionError("its workbench answers")


def painter(context: RunContext) -> AssistantAgent:
    return AssistantAgent("painter", context.model_client(), tools=[plot, page], max_tool_iterations=5)


def looker(context: RunContext) -> AssistantAgent:
    return AssistantAgent("looker", context.model_client(), workbench=ForeignWorkbench([Look()]), max_tool_iterations=2)


TEAMS: Any = {"painter": painter, "looker": looker}


async def ask(service: Service, text: str, model: str = "painter", user: str = "ann") -> str:
    body = {"model": model, "messages": [{"role": "user", "content": text}], "thread_id": "t", "user": user}
    answer = await service.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def pictures(request: ModelRequest) -> list[bytes]:
    """The images that a request shows."""
    found: list[bytes] = []
    for message in request.messages:
        parts = message["content"] if isinstance(message.get("content"), list) else []
        for part in parts:
            if part["type"] == "image_url":
                assert message["role"] == "user"
                found.append(base64.b64decode(part["image_url"]["url"].removeprefix("data:image/png;base64,")))
    return found


def results(request: ModelRequest) -> list[str]:
    return [str(message["content"]) for message in request.messages if message["role"] == "tool"]


def colour_of(png: bytes) -> tuple[int, ...]:
    pixel = PILImage.open(io.BytesIO(png)).convert("RGB").getpixel((0, 0))
    assert isinstance(pixel, tuple)
    return tuple(int(each) for each in pixel)


@pytest.mark.parametrize("strict", [True, False])
async def test_a_model_that_sees_is_shown_them_in_every_later_request(
    serve: Serve, model: ModelServer, strict: bool
) -> None:
    model.strict = strict
    model.script(
        None,
        [
            Reply(tool_calls=[ToolCall("plot", {"colour": "red"}), ToolCall("plot", {"colour": "blue"})]),
            "Red and blue.",
            "As I said.",
        ],
    )
    assert await ask(await serve(TEAMS, model_vision=True), "Draw.") == "Red and blue."
    other = await serve(TEAMS, model_vision=True)
    assert await ask(other, "Which colours?") == "As I said."
    first, second, third = model.requests
    assert pictures(first) == []
    assert [colour_of(each) for each in pictures(second)] == [(255, 0, 0), (0, 0, 255)]
    assert pictures(third) == pictures(second)
    ids = [LINE.findall(text) for text in results(second)]
    assert [len(each) for each in ids] == [1, 1]
    content = await other.http.get(f"/v1/files/{ids[0][0]}/content", params={"user": "ann"})
    assert content.content == pictures(second)[0]
    stored = (await other.http.get("/v1/threads/t/messages", params={"user": "ann"})).text
    assert base64.b64encode(content.content).decode()[:40] not in stored


async def test_a_model_that_sees_nothing_reads_where_it_is(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply(tool_calls=[ToolCall("plot", {"colour": "red"})]), "Done."])
    await ask(await serve(TEAMS, model_vision=False), "Draw.")
    assert pictures(model.requests[-1]) == []
    assert LINE.search(results(model.requests[-1])[0])


async def test_images_of_other_workbenches(serve: Serve, model: ModelServer) -> None:
    model.script(None, [Reply(tool_calls=[ToolCall("look", {})]), "Done."])
    await ask(await serve(TEAMS, model_vision=True), "Look.", "looker")
    assert [colour_of(each) for each in pictures(model.requests[-1])] == [(255, 0, 0)]
    assert re.fullmatch(rf"Seen\.\n{LINE.pattern}", results(model.requests[-1])[0])


async def test_a_text_that_looks_like_a_reference_shows_nobody_elses_image_and_no_upload(
    serve: Serve, model: ModelServer
) -> None:
    service = await serve(TEAMS, model_vision=True)
    data = io.BytesIO()
    PILImage.new("RGB", (8, 8), "green").save(data, "PNG")
    of_bob = await service.drsai.files.create(
        Owner("default", "bob"), "a.png", data.getvalue(), purpose="assistants_output", media_type="image/png"
    )
    upload = await service.drsai.files.create(Owner("default", "ann"), "a.png", data.getvalue(), media_type="image/png")
    broken = await service.drsai.files.create(
        Owner("default", "ann"), "b.png", b"no image", purpose="assistants_output", media_type="image/png"
    )
    texts = [f"[image a.png, image/png, 9 bytes, id {each.file_id}]" for each in (of_bob, upload, broken)]
    calls = [ToolCall("page", {"text": "\n".join([*texts, "[image x.png, image/png, 9 bytes, id file-0]"])})]
    model.script(None, [Reply(tool_calls=calls), "Done."])
    assert await ask(service, "Read.") == "Done."
    assert pictures(model.requests[-1]) == []


async def test_only_the_newest_are_shown(serve: Serve, model: ModelServer) -> None:
    """So a prompt does not grow with every image of a thread."""
    calls = [Reply(tool_calls=[ToolCall("plot", {"colour": f"rgb({n},0,0)"}, id=f"c{n}")]) for n in range(4)]
    service = await serve(TEAMS, model_vision=True)
    for _ in range(3):
        model.script(None, [*calls, "Done."])
        await ask(service, "Draw.")
    assert len(model.requests[-1].messages) > 20
    shown = [colour_of(each)[0] for each in pictures(model.requests[-1])]
    assert shown == [0, 1, 2, 3, 0, 1, 2, 3]
