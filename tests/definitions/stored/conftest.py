"""A server whose users store definitions, and a model endpoint that says what it was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from drsai_backend import DrSai, DrSaiAgent, RunContext
from drsai_backend.datamodel.owner import Owner
from drsai_backend.models import ModelProvider
from tests.support.scripted import ScriptedClient
from tests.support.threads import settings

USERS = {
    "ann": ("acme", "operator"),
    "bob": ("acme", "user"),
    "cat": ("acme", "operator"),
    "root": ("acme", "admin"),
    "eve": ("other", "operator"),
}


def says(messages: Any, options: Any) -> str:
    """The model's answer is the system message, so that an answer tells which version it is of."""
    return str(messages[0].content) if messages and messages[0].type == "SystemMessage" else "no prompt"


def house(context: RunContext) -> DrSaiAgent:
    """The operator's own."""
    return DrSaiAgent("house", context.model_client(), system_message="the house")


class Models(ModelProvider):
    """Clients whose answer is what `says` says."""

    def client(self, model: str | None, api_key: SecretStr | None) -> ScriptedClient:
        return ScriptedClient(says)

    async def close(self) -> None:
        pass


def agent(name: str = "helper", prompt: str = "v1", **values: Any) -> dict[str, Any]:
    return {"agents": {name: {"prompt": prompt, **values}}}


class World:
    """A server and those who ask it."""

    def __init__(self, drsai: DrSai, http: httpx.AsyncClient, keys: dict[str, str]) -> None:
        self.drsai = drsai
        self._http = http
        self._keys = keys

    async def ask(self, method: str, path: str = "", body: Any = None, who: str = "ann") -> httpx.Response:
        return await self.call(method, f"/v1/agents{path}", body, who)

    async def call(self, method: str, path: str, body: Any = None, who: str = "ann") -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._keys[who]}"}
        return await self._http.request(method, path, json=body, headers=headers)

    async def put(self, name: str = "helper", prompt: str = "v1", who: str = "ann", **values: Any) -> httpx.Response:
        body = {"name": name, "definition": agent(name, prompt), **values}
        return await self.ask("POST", "", body, who)

    async def says(self, model: str = "helper", who: str = "ann", **values: Any) -> str:
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **values}
        answer = await self.call("POST", "/v1/chat/completions", body, who)
        assert answer.status_code == 200, answer.text
        text: str = answer.json()["choices"][0]["message"]["content"]
        return text


@asynccontextmanager
async def opened(url: str, **values: Any) -> AsyncIterator[World]:
    made = settings(**values)
    async with DrSai({"house": house}, url, settings=made, model_provider=Models()) as drsai:
        keys = {
            who: (await drsai.keys.create(Owner(tenant, who), [role])).key.get_secret_value()
            for who, (tenant, role) in USERS.items()
        }
        transport = httpx.ASGITransport(drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield World(drsai, http, keys)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    async with opened(database_url) as world:
        yield world


@pytest.fixture
async def sqlite_world(migrated_sqlite: str) -> AsyncIterator[World]:
    async with opened(migrated_sqlite) as world:
        yield world
