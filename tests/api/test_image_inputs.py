"""Pictures in a request: passed on as they came, or refused."""

from __future__ import annotations

import base64
import io

import httpx
import pytest
from autogen_agentchat.messages import MessageFactory, MultiModalMessage
from autogen_core import Image
from PIL import Image as PILImage

from drsai_backend.models.images import with_images
from tests.api.bodies import TEXT, URL, asked, image, png
from tests.api.fakes import FakeEngine


async def test_images_and_text_in_order(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    body = asked(TEXT, image(f"data:image/png;base64,{png()}"), {"type": "text", "text": "well?"})
    assert (await http.post(URL, json=body)).status_code == 200
    content = engine.requests[0].messages[0].content
    assert isinstance(content, list)
    first, picture, last = content
    assert (first, last) == ("look", "well?")
    assert isinstance(picture, Image)
    assert picture.image.size == (3, 2)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_an_image_is_passed_on_as_it_came(http: httpx.AsyncClient, engine: FakeEngine, kind: str) -> None:
    """Not encoded anew, neither where it is stored nor where it goes to a model, and not decoded to be read again."""
    buffer = io.BytesIO()
    PILImage.new("L", (3, 2), 7).save(buffer, kind)
    text = base64.b64encode(buffer.getvalue()).decode()
    url = f"data:image/{kind.lower()};base64,{text}"
    assert (await http.post(URL, json=asked(image(url)))).status_code == 200
    [picture] = engine.requests[0].messages[0].content
    assert isinstance(picture, Image)
    assert picture.to_openai_format()["image_url"]["url"] == url
    dumped = MultiModalMessage(source="user", content=[picture]).dump()
    assert dumped["content"] == [{"data": text}]
    [again] = MessageFactory().create(with_images(dumped)).content  # type: ignore[attr-defined]
    assert again.to_base64() == text
    assert again.image.size == (3, 2)


async def test_an_image_that_is_cut_off_is_refused(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    buffer = io.BytesIO()
    PILImage.effect_noise((300, 200), 50).save(buffer, "JPEG")
    text = base64.b64encode(buffer.getvalue()[:-2000]).decode()
    response = await http.post(URL, json=asked(image(f"data:image/jpeg;base64,{text}")))
    assert response.status_code == 400
    assert "not a readable image" in response.json()["error"]["message"]


async def test_pictures_that_would_fill_the_memory(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    buffer = io.BytesIO()
    PILImage.new("1", (6_000, 6_000)).save(buffer, "PNG")
    large = image(f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}")
    response = await http.post(URL, json=asked(large, large))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content[1].image_url"
    assert "pixels" in response.json()["error"]["message"]
