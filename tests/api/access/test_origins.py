"""A browser adds its cookies to what any page has it send. What a page of another site asks for changes nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from drsai_backend import DrSai
from tests.api.access.conftest import APP, OPERATIONS
from tests.support.threads import settings

UNSAFE = [(method, path) for method, path, _ in OPERATIONS if method not in ("get", "head", "options")]
FORM = {"Content-Type": "multipart/form-data; boundary=x"}
EVIL = "https://evil.example"
FOREIGN = (
    {"Origin": EVIL},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "https://sister.example"},
    {"Sec-Fetch-Site": "cross-site", "Cookie": "session=ann", "Authorization": "Basic YW5u"},
)
OWN = (
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": EVIL},
    {"Sec-Fetch-Site": "none"},
    {"Origin": "http://localhost"},
    {"Sec-Fetch-Site": "cross-site", "Origin": EVIL, "Authorization": "Bearer sk-drsai-none"},
    {"Origin": EVIL, "X-Api-Key": "sk-drsai-none"},
)


@pytest.fixture
async def http(migrated_sqlite: str) -> AsyncIterator[httpx.AsyncClient]:
    async with DrSai(None, migrated_sqlite, settings=settings(cors_origins=["https://ui.example"])) as drsai:
        transport = httpx.ASGITransport(app=drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


def code_of(response: httpx.Response) -> str | None:
    return response.json()["error"]["code"] if response.status_code == 403 else None


async def test_a_foreign_page_changes_nothing(http: httpx.AsyncClient) -> None:
    assert len(UNSAFE) > 40
    assert APP.routes
    for method, path in UNSAFE:
        refused = await http.request(method.upper(), path, headers={**FORM, "Origin": EVIL}, content=b"--x--")
        assert code_of(refused) == "origin_not_allowed", (method, path, refused.text)


async def test_what_is_refused_is_told_to_a_bound(http: httpx.AsyncClient) -> None:
    """What is told stands in the log, too, and anybody may make it as long as a request's head can be."""
    refused = await http.post("/v1/files", headers={"Origin": "https://" + "a.-" * 20_000})
    assert code_of(refused) == "origin_not_allowed"
    assert len(refused.text) < 500
    for path in ("/healthz", "/v1/threads"):
        refused = await http.get(path, params={"a-" * 20_000: ""})
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, "a-" * 100)
        assert len(refused.text) < 1_000
    refused = await http.post("/v1/keys", json={"user": "ann", "b" * 100_000: 1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "b" * 200)
    assert len(refused.text) < 1_000


@pytest.mark.parametrize("path", ["/v1/files", "/v1/webhooks/secret", "/v1/chat/completions"])
async def test_which_pages_are_foreign(http: httpx.AsyncClient, path: str) -> None:
    for headers in FOREIGN:
        assert code_of(await http.post(path, headers=headers, content=b"")) == "origin_not_allowed", headers
    for headers in (
        *OWN,
        {"Origin": "https://ui.example"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://ui.example"},
    ):
        assert code_of(await http.post(path, headers=headers, content=b"")) is None, headers
    assert (await http.get("/v1/models", headers={"Origin": EVIL, "Sec-Fetch-Site": "cross-site"})).status_code == 200
