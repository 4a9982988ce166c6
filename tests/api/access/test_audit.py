"""The audit log over HTTP: every act has the id of its request, and is found by its thread and its time."""

from __future__ import annotations

import httpx

from drsai_backend import DrSai
from drsai_backend.datamodel.owner import Owner
from tests.support.threads import settings


async def test_acts_on_a_thread_have_their_request_and_are_found(database_url: str) -> None:
    async with DrSai(None, database_url, settings=settings()) as drsai:
        key = (await drsai.keys.create(Owner("default", "root"), ["admin"])).key.get_secret_value()
        headers = {"Authorization": f"Bearer {key}"}
        transport = httpx.ASGITransport(app=drsai.app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:

            async def act(number: int, method: str, path: str, **more: object) -> None:
                response = await http.request(method, path, headers={"X-Request-Id": f"req_{number}"}, **more)  # type: ignore[arg-type]
                assert response.is_success, response.text

            history = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
            for thread in ("t", "other"):
                await act(1, "POST", f"/v1/threads/{thread}/history", json={"messages": history, "model": "assistant"})
                await act(2, "POST", f"/v1/threads/{thread}/shares", json={"with_user": "bob", "right": "read"})
                await act(3, "DELETE", f"/v1/threads/{thread}/shares", params={"with_user": "bob"})
                await act(4, "DELETE", f"/v1/threads/{thread}")

            async def found(**asked: object) -> list[tuple[str, str, str]]:
                response = await http.get("/v1/audit", params={"limit": 100, **asked})  # type: ignore[dict-item]
                return [(each["action"], each["thread_id"], each["request_id"]) for each in response.json()["data"]]

            acts = ["thread.deleted", "thread.unshared", "thread.shared", "thread.history_loaded"]
            assert await found(thread_id="t") == [(act, "t", f"req_{4 - n}") for n, act in enumerate(acts)]
            now = (await http.get("/v1/audit")).json()["data"][0]["at"]
            assert len(await found(action="thread", since=now - 60)) == 8
            assert await found(since=now + 60) == await found(until=now - 60) == []
            assert (await http.get("/v1/audit", params={"since": -1})).json()["error"]["param"] == "since"
