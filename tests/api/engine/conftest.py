"""A server with one scripted model, and those who ask it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from autogen_core import FunctionCall
from autogen_core.models import ChatCompletionClient, FunctionExecutionResultMessage
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.requests import Request

from drsai_backend import DrSai
from drsai_backend.access.principal import Principal
from drsai_backend.models import ModelProvider
from tests.support.scripted import Answer, ScriptedClient
from tests.support.threads import settings


def adding(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    """A model that adds twice, and says what came of it; without tools it says so at once."""
    if not options["tools"]:
        return "I have no tools."
    since = [type(each).__name__ for each in messages][::-1].index("UserMessage")
    results = [each for each in messages[len(messages) - since :] if isinstance(each, FunctionExecutionResultMessage)]
    if len(results) == 2:
        return f"The sum is {results[-1].content[0].content}."
    return [FunctionCall(f"c{len(results)}", json.dumps({"expression": f"{len(results)} + 1"}), "calculator")]


TOOLS = ["calculator", "convert_units", "ask_person"]


class OneModel(ModelProvider):
    """Every agent asks the same scripted model."""

    def __init__(self, model: ScriptedClient) -> None:
        self._model = model

    def client(self, model: str | None, api_key: SecretStr | None) -> ChatCompletionClient:
        return self._model


class World:
    """A server that ann and bob ask, and eve of another tenant."""

    def __init__(self, http: httpx.AsyncClient, app: FastAPI, drsai: DrSai, model: ScriptedClient) -> None:
        self.http = http
        self.app = app
        self.drsai = drsai
        self.model = model

    async def ask(self, method: str, path: str, who: str = "ann@acme", **more: Any) -> httpx.Response:
        headers = {"x-who": who, **more.pop("headers", {})}
        return await self.http.request(method, f"/api/v1/agent{path}", headers=headers, **more)

    async def execute(self, who: str = "ann@acme", path: str = "/execute", **body: Any) -> httpx.Response:
        return await self.ask("POST", path, who, json={"task": "Add.", "mode": "tools", **body})

    async def events(self, path: str, method: str = "GET", **more: Any) -> list[tuple[str, Any]]:
        """Ids and objects."""
        answer = await self.ask(method, path, **more)
        assert answer.status_code in (200, 204), answer.text
        found: list[tuple[str, Any]] = []
        for frame in answer.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in frame.splitlines() if not line.startswith(":"))
            if "data" in lines:
                data = lines["data"]
                found.append((lines.get("id", ""), data if data == "[DONE]" else json.loads(data)))
        return found


def identify(request: Request) -> Principal:
    user, _, tenant = request.headers["x-who"].partition("@")
    return Principal(user, tenant)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    model = ScriptedClient(adding, thought="Hm.")
    drsai = DrSai(None, database_url, settings=settings(engine_tools=TOOLS), model_provider=OneModel(model))
    async with drsai:
        app = drsai.app(identify)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(http, app, drsai, model)
