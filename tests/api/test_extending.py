"""A router of the user's own, in the application: what surrounds the package's routes surrounds it, too."""

from __future__ import annotations

from typing import Annotated

import httpx
import pytest
from fastapi import APIRouter, FastAPI, HTTPException

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from tests.api.fakes import FakeEngine

Reader = Annotated[Principal, allowed(Scope.THREADS_READ)]


@pytest.fixture(autouse=True)
def titles(app: FastAPI, engine: FakeEngine) -> None:
    router = APIRouter(prefix="/v1/titles")

    @router.get("/{thread_id}")
    async def get_title(thread_id: str, who: Reader) -> dict[str, str | None]:
        return {"title": (await engine.get_thread(who, thread_id)).title}

    @router.delete("/{thread_id}")
    async def delete_title(thread_id: str) -> None:
        raise HTTPException(403, f"the title of {thread_id!r} is for good")

    app.include_router(router)


async def test_a_route_is_answered(http: httpx.AsyncClient, engine: FakeEngine) -> None:
    engine.threads["ann", "t1"] = 7
    response = await http.get("/v1/titles/t1", params={"user": "ann"}, headers={"X-Request-Id": "abc"})
    assert (response.status_code, response.json()) == (200, {"title": "Title 7"})
    assert response.headers["x-request-id"] == "abc"


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "text"),
    [
        ("GET", "/v1/titles/t1", 404, "not_found", "there is no thread 't1'"),
        ("GET", "/v1/titles/t1?user=a%00b", 400, "invalid_request", "`user` must be printable"),
        ("GET", "/v1/titles/t1?order=asc", 400, "invalid_request", "`order` is no query parameter"),
        ("DELETE", "/v1/titles/t1", 403, "invalid_request", "the title of 't1' is for good"),
        ("POST", "/v1/titles/t1", 405, "method_not_allowed", "use DELETE, GET"),
        ("GET", "/v1/titles/t1/x", 404, "not_found", "there is no '/v1/titles/t1/x' here"),
    ],
)
async def test_its_errors_are_those_of_the_interface(
    http: httpx.AsyncClient, method: str, path: str, status: int, code: str, text: str
) -> None:
    response = await http.request(method, path)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert text in error["message"]


async def test_it_is_in_the_openapi_document(http: httpx.AsyncClient) -> None:
    operation = (await http.get("/openapi.json")).json()["paths"]["/v1/titles/{thread_id}"]
    assert set(operation["get"]["responses"]) == {"200", "400", "401", "403", "404", "429", "500", "503"}
    assert "409" in operation["delete"]["responses"]
