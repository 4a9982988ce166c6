"""`/v1/threads`: a user's own conversations. Those of others do not exist here."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.responses import Response

from drsai_backend.api._backend import Engine
from drsai_backend.api._json import dumps
from drsai_backend.api.auth import user_of
from drsai_backend.runs.views import StoredMessage, ThreadSummary

User = Annotated[str | None, Query(max_length=255, description="Whose threads. Default: anonymous.")]
Limit = Annotated[int, Query(ge=1, le=100)]


def thread_routes(engine: Engine) -> APIRouter:
    router = APIRouter(prefix="/v1/threads", tags=["threads"])

    @router.get("")
    async def list_threads(
        user: User = None,
        limit: Limit = 20,
        after: Annotated[str | None, Query(max_length=512, description="`next` of the page before.")] = None,
    ) -> Response:
        """The user's threads, newest first."""
        page = await engine.list_threads(user_of(user), after=after, limit=limit)
        return _list([_thread(item) for item in page.items], has_more=page.next is not None, following=page.next)

    @router.get("/{thread_id:path}/messages")
    async def list_messages(
        thread_id: str,
        user: User = None,
        after: Annotated[int, Query(ge=0, le=2**31 - 1, description="The `seq` to go on after.")] = 0,
        limit: Limit = 100,
    ) -> Response:
        """The messages of a thread, oldest first."""
        # One more than asked for tells whether there are more.
        messages = await engine.list_messages(user_of(user), thread_id, after=after, limit=limit + 1)
        shown = messages[:limit]
        has_more = len(messages) > limit
        return _list(
            [_message(item) for item in shown], has_more=has_more, following=shown[-1].seq if has_more else None
        )

    @router.get("/{thread_id:path}")
    async def get_thread(thread_id: str, user: User = None) -> Response:
        """A thread, without its messages and state."""
        return _json(_thread(await engine.get_thread(user_of(user), thread_id)))

    @router.delete("/{thread_id:path}")
    async def delete_thread(thread_id: str, user: User = None) -> Response:
        """Delete a thread with all that belongs to it. 409 while a run is live."""
        await engine.delete_thread(user_of(user), thread_id)
        return _json({"id": thread_id, "object": "thread.deleted", "deleted": True})

    return router


def _json(body: Any) -> Response:
    return Response(dumps(body), media_type="application/json")


def _list(data: list[dict[str, Any]], *, has_more: bool, following: str | int | None) -> Response:
    body = {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
        "next": following,
    }
    return _json(body)


def _thread(thread: ThreadSummary) -> dict[str, Any]:
    """A thread in OpenAI's manner: `id`, `object`, times in Unix seconds."""
    fields = thread.model_dump(mode="json")
    times = {"created_at": _seconds(thread.created_at), "updated_at": _seconds(thread.updated_at)}
    return {"id": thread.thread_id, "object": "thread", **fields, **times}


def _message(message: StoredMessage) -> dict[str, Any]:
    fields = message.model_dump(mode="json")
    return {"object": "thread.message", **fields, "created_at": _seconds(message.created_at)}


def _seconds(time: datetime) -> int:
    return int(time.timestamp())
