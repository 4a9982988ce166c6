"""`/v1/threads`: a user's own conversations. Those of others do not exist here."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import Response

from drsai_backend.api._backend import Engine
from drsai_backend.api._objects import (
    MESSAGE_SCHEMA,
    SUMMARY_SCHEMA,
    THREAD_SCHEMA,
    After,
    Limit,
    Status,
    ThreadId,
    User,
    answers,
    json_response,
    list_response,
    message_object,
    page_of,
    thread_object,
)
from drsai_backend.api.auth import check_name, user_of

_DELETED: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["id", "object", "deleted"],
    "properties": {"id": {"type": "string"}, "object": {"const": "thread.deleted"}, "deleted": {"const": True}},
}


class _ThreadName(PathConvertor):
    """A thread by itself, and nothing of it: what else has a path of its own is answered there, or is a 405."""

    regex = ".+" + "".join(
        f"(?<!/{part})" for part in ("messages", "runs", "events", "cancel", "pause", "resume", "input")
    )


register_url_convertor("thread", _ThreadName())


def thread_routes(engine: Engine) -> APIRouter:
    router = APIRouter(prefix="/v1/threads", tags=["threads"])

    @router.get("", responses=answers(200, page_of(SUMMARY_SCHEMA)))
    async def list_threads(
        user: User = None,
        limit: Limit = 20,
        after: After = None,
        status: Status = None,
    ) -> Response:
        """The user's threads, newest first."""
        page = await engine.list_threads(user_of(user), after=after, limit=limit, status=status)
        return list_response([thread_object(item) for item in page.items], page.next)

    @router.get("/{thread_id:path}/messages", responses=answers(200, page_of(MESSAGE_SCHEMA)))
    async def list_messages(
        thread_id: ThreadId,
        user: User = None,
        after: Annotated[int, Query(ge=0, le=2**31 - 1, description="The `seq` to go on after.")] = 0,
        limit: Limit = 100,
    ) -> Response:
        """The messages of a thread, oldest first."""
        # One more than asked for tells whether there are more.
        messages = await engine.list_messages(
            user_of(user), check_name(thread_id, "thread_id"), after=after, limit=limit + 1
        )
        shown = messages[:limit]
        following = shown[-1].seq if len(messages) > limit else None
        return list_response([message_object(item) for item in shown], following)

    @router.get("/{thread_id:thread}", responses=answers(200, THREAD_SCHEMA))
    async def get_thread(thread_id: ThreadId, user: User = None) -> Response:
        """A thread, without its messages and state."""
        return json_response(thread_object(await engine.get_thread(user_of(user), check_name(thread_id, "thread_id"))))

    @router.delete("/{thread_id:thread}", responses=answers(200, _DELETED))
    async def delete_thread(thread_id: ThreadId, user: User = None) -> Response:
        """Delete a thread with all that belongs to it. 409 while a run is live."""
        await engine.delete_thread(user_of(user), check_name(thread_id, "thread_id"))
        return json_response({"id": thread_id, "object": "thread.deleted", "deleted": True})

    return router
