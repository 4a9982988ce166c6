"""Exchanges are packed and read again to the letter, but for what is long and no text, and within their bound."""

from __future__ import annotations

import base64
import json
import os
from typing import Any

import pytest
from autogen_core import FunctionCall, Image
from autogen_core.models import CreateResult, RequestUsage, SystemMessage, UserMessage
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as Pictures
from pydantic import BaseModel

from drsai_backend.errors import InvalidRequest
from drsai_backend.models.answer import ModelCall
from drsai_backend.models.calls.exchanges import MOST, changed, exchange_of, read_exchange
from drsai_backend.models.endpoints.answers import CallNotes
from drsai_backend.models.endpoints.forms import dumps

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def result(content: Any = "Fine.") -> CreateResult:
    usage = RequestUsage(prompt_tokens=1, completion_tokens=1)
    return CreateResult(finish_reason="stop", content=content, usage=usage, cached=False)


def notes(body: dict[str, Any]) -> CallNotes:
    return CallNotes(sent=("openai", dumps(body)))


@given(body=st.dictionaries(st.text(), JSON, max_size=5), said=st.text(alphabet=st.characters(exclude_categories=())))
async def test_a_body_and_an_answer_are_what_they_were(body: dict[str, Any], said: str) -> None:
    packed = await exchange_of(notes(body), result(said))
    assert packed is not None
    read = read_exchange(packed)
    assert json.dumps(read["request"]) == json.dumps(body)
    assert (read["form"], read["left_out"], read["answer"]["content"]) == ("openai", 0, said)


async def test_images_are_left_out_and_said_so() -> None:
    long = base64.b64encode(os.urandom(3_000)).decode()
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{long}"}},
        {"type": "input_audio", "input_audio": {"data": long, "format": "wav"}},
        {"type": "text", "text": f"A word, {long} and another; " + "words of text, and more of them. " * 200},
    ]
    body = {"messages": [{"role": "user", "content": parts}]}
    packed = await exchange_of(notes(body), result())
    assert packed is not None
    read = read_exchange(packed)
    image, audio, text = read["request"]["messages"][0]["content"]
    assert image["image_url"]["url"] == "data:image/png;base64,[left out]"
    assert audio["input_audio"]["data"] == "[left out]"
    assert (text, read["left_out"]) == (parts[2], 2)
    with pytest.raises(InvalidRequest, match="without the images"):
        changed(read, "Be brief.", None)


async def test_what_is_too_long_is_not_kept() -> None:
    """Of a request as of an answer."""
    for body, said in (({"m": "word " * (MOST // 5)}, "Fine."), ({}, "word " * (MOST // 5))):
        assert await exchange_of(notes(body), result(said)) is None


class Form(BaseModel):
    """A form of an answer."""


async def test_a_call_of_a_client_that_does_not_say_what_it_sends() -> None:
    image = Image(Pictures.frombytes("RGB", (64, 64), os.urandom(64 * 64 * 3)))
    messages = [SystemMessage(content="Be brief."), UserMessage(content=["Look.", image], source="user")]
    args = {"temperature": 0.5, "extra_headers": {"Authorization": "Bearer sk-secret"}}
    options = {"json_output": Form, "extra_create_args": args, "cancellation_token": object(), "own": object()}
    call = CallNotes(asked=ModelCall(messages, options, streams=True))
    packed = await exchange_of(call, result([FunctionCall("1", "{}", "look")]))
    assert packed is not None
    read = read_exchange(packed)
    request = read["request"]
    assert (read["form"], read["left_out"]) == ("autogen", 1)
    assert request["messages"][0] == {"content": "Be brief.", "type": "SystemMessage"}
    assert request["extra_create_args"] == {"temperature": 0.5}
    assert (request["json_output"], request["own"], request["stream"], request["tools"]) == (
        *("ModelMetaclass", "object"),
        True,
        [],
    )
    assert read["answer"]["content"] == [{"id": "1", "arguments": "{}", "name": "look"}]


async def test_what_cannot_be_read_is_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    class Odd:
        def model_dump(self, **_: Any) -> Any:
            raise RuntimeError("odd")

    messages: Any = [Odd()]
    packed = await exchange_of(CallNotes(asked=ModelCall(messages, {}, streams=False)), result())
    assert packed is None
    assert "cannot be kept" in caplog.text


@pytest.mark.parametrize(
    ("form", "request_", "wanted"),
    [
        ("openai", {"messages": [{"role": "user", "content": "x"}]}, {"role": "system", "content": "New."}),
        ("autogen", {"messages": []}, {"type": "SystemMessage", "content": "New."}),
        (
            "openai",
            {"messages": [{"role": "developer", "content": "Old.", "name": "n"}, {"role": "system", "content": "b"}]},
            {"role": "developer", "content": "New.", "name": "n"},
        ),
    ],
)
def test_the_first_system_message_is_another_one(form: str, request_: Any, wanted: Any) -> None:
    made = changed({"form": form, "left_out": 0, "request": {**request_, "stream": True}}, "New.", "m")
    assert made["messages"][0] == wanted
    assert "stream" not in made
    assert "model" not in made, "where there was none"
