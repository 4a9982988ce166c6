"""Bodies of chat requests."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image as PILImage

HELLO: list[Any] = [{"role": "user", "content": "hello"}]
URL = "/v1/chat/completions"
JSON = {"content-type": "application/json"}


def chat(**fields: Any) -> dict[str, Any]:
    return {"model": "assistant", "messages": HELLO, **fields}


def asked(*content: Any, role: str = "user") -> dict[str, Any]:
    return chat(messages=[{"role": role, "content": list(content)}])


def png(**options: Any) -> str:
    buffer = io.BytesIO()
    PILImage.new("RGB", (3, 2), "red").save(buffer, "PNG", **options)
    return base64.b64encode(buffer.getvalue()).decode()


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def tool(**function: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", **function}}


def form(schema: dict[str, Any]) -> dict[str, Any]:
    return chat(response_format={"type": "json_schema", "json_schema": schema})


TEXT = {"type": "text", "text": "look"}
TOOL = {"role": "tool", "tool_call_id": "c1", "content": "42"}
ANSWER = {"role": "assistant", "content": "hi"}
