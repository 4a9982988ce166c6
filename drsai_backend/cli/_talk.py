"""Whom `drsai chat` talks to: teams in this process, or a server through the `openai` client. Both tell the same."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

import openai

from drsai_backend.api.openai.speech import Piece, Speech
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.drsai import DrSai
from drsai_backend.errors import Conflict, DrSaiError, NotFound
from drsai_backend.runs import MessageDone, RunEnded, TextDelta
from drsai_backend.runs.views import ThreadSummary


@dataclass(frozen=True, slots=True)
class Ended:
    """How an answer ended. `error` is one line; None: there was none."""

    status: RunStatus
    thread_id: str | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Resumed:
    """A thread that is gone on with. `question`: what it waits for a person to answer."""

    team: str | None
    messages: int
    title: str | None
    question: str | None


class Talk(Protocol):
    """A conversation with one thread. Pieces of text are those that a plain chat window would be shown; in a group chat
    the first piece of a message begins with its speaker's heading."""

    thread_id: str | None

    async def models(self) -> list[str]: ...
    async def where(self) -> list[tuple[str, str]]:
        """What the conversation runs on, as labels and values."""
        ...

    async def resume(self, thread_id: str) -> Resumed | None:
        """Go on with a thread. None: there is no such thread, and the first message begins it."""
        ...

    def say(self, model: str, text: str) -> AsyncIterator[Piece | Ended]: ...
    async def stop(self) -> bool:
        """End the run under way; `say` then comes to its end. False: this cannot be done from here."""
        ...

    async def threads(self, limit: int) -> list[ThreadSummary]: ...
    async def close(self) -> None: ...


def _with_cause(error: DrSaiError) -> str:
    """Here the team is the user's own, who is told what its factory raised."""
    return error.message if error.__cause__ is None else f"{error.message}: {error.__cause__}"


class LocalTalk:
    """Runs the teams in this process."""

    def __init__(self, drsai: DrSai, teams: list[str], database: str, user_id: str) -> None:
        self.thread_id: str | None = None
        self._drsai = drsai
        self._teams = teams
        self._database = database
        self._user_id = user_id

    async def models(self) -> list[str]:
        return self._teams

    async def where(self) -> list[tuple[str, str]]:
        models = self._drsai.models
        answers = "OFFLINE DEMO MODEL (fixed rules, no language model)" if models.is_demo else models.describe()
        return [("answers", answers), ("database", self._database)]

    async def resume(self, thread_id: str) -> Resumed | None:
        self.thread_id = thread_id
        filters = {"user_id": self._user_id, "thread_id": thread_id}
        rows = await self._drsai.db.get(Thread, filters, load_messages=False, load_state=False)
        if not rows:
            return None
        return Resumed(rows[0].team, rows[0].last_seq, rows[0].title, _question(rows[0].input_request))

    async def say(self, model: str, text: str) -> AsyncIterator[Piece | Ended]:
        try:
            handle = await self._drsai.start(model, text, user_id=self._user_id, thread_id=self.thread_id)
        except DrSaiError as error:
            yield Ended(RunStatus.ERROR, self.thread_id, _with_cause(error))
            return
        self.thread_id = handle.thread_id
        speech = Speech(marks=True)
        async for event in handle.events():
            if isinstance(event, TextDelta):
                pieces = speech.delta(event)
            elif isinstance(event, MessageDone):
                pieces = speech.done(event)
            elif not isinstance(event, RunEnded):
                continue
            else:
                request = event.input_request
                if request is None:
                    last = speech.end()
                else:
                    queued = event.queued_behind is not None
                    last = speech.question(request["source"], request["prompt"], queued=queued)
                for piece in last:
                    yield piece
                error = event.error_message
                if error is not None and handle.failure is not None and not isinstance(handle.failure, DrSaiError):
                    # This is the person whose team it is: what was raised is theirs to read.
                    error = f"{error} ({type(handle.failure).__name__}: {handle.failure})"
                yield Ended(event.status, self.thread_id, error)
                return
            for piece in pieces:
                yield piece

    async def stop(self) -> bool:
        if self.thread_id is not None:
            with contextlib.suppress(Conflict, NotFound):  # it has just ended
                await self._drsai.stop(self._user_id, self.thread_id)
        return True

    async def threads(self, limit: int) -> list[ThreadSummary]:
        return (await self._drsai.engine.list_threads(self._user_id, after=None, limit=limit)).items

    async def close(self) -> None:
        await self._drsai.close()


class RemoteTalk:
    """Asks a server that was started with `drsai serve`."""

    def __init__(self, base_url: str, user_id: str) -> None:
        self.thread_id: str | None = None
        self._base_url = base_url
        self._user_id = user_id
        # No key: OPENAI_API_KEY is for the model's endpoint, not for this server. No time limit: a run has none.
        self._client = openai.AsyncOpenAI(
            base_url=base_url, api_key="none", max_retries=0, timeout=openai.Timeout(None, connect=10)
        )

    async def models(self) -> list[str]:
        return [model.id async for model in self._client.models.list()]

    async def where(self) -> list[tuple[str, str]]:
        return [("server", self._base_url)]

    async def resume(self, thread_id: str) -> Resumed | None:
        self.thread_id = thread_id
        try:
            thread = await self._get(f"/threads/{thread_id}", {"user": self._user_id})
        except openai.NotFoundError:
            return None
        return Resumed(
            thread.get("team"), thread.get("message_count", 0), thread.get("title"), _question(thread["input_request"])
        )

    async def say(self, model: str, text: str) -> AsyncIterator[Piece | Ended]:
        extra = {} if self.thread_id is None else {"thread_id": self.thread_id}
        status, ended = RunStatus.ERROR, "the connection broke before the answer was complete"
        try:
            stream = await self._client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": text}],
                stream=True,
                user=self._user_id,
                extra_body=extra,
            )
            async with stream:
                async for chunk in stream:
                    more = chunk.model_extra or {}
                    self.thread_id = more.get("thread_id") or self.thread_id
                    for choice in chunk.choices:
                        details = more.get("drsai", {})
                        if choice.delta.content:
                            yield Piece(str(details.get("source") or model), choice.delta.content)
                        if choice.finish_reason is not None:
                            status, ended = RunStatus(details.get("status", "completed")), None
        except openai.APIError as error:
            status, ended = RunStatus.ERROR, describe_api_error(error, self._base_url)
        yield Ended(status, self.thread_id, ended)

    async def stop(self) -> bool:
        return False  # a server goes on with a run whose client has left

    async def threads(self, limit: int) -> list[ThreadSummary]:
        page = await self._get("/threads", {"user": self._user_id, "limit": limit})
        return [ThreadSummary.model_validate({**item, "thread_id": item["id"]}) for item in page["data"]]

    async def close(self) -> None:
        await self._client.close()

    async def _get(self, path: str, query: dict[str, Any]) -> dict[str, Any]:
        return cast("dict[str, Any]", await self._client.get(path, cast_to=object, options={"params": query}))


def describe_api_error(error: openai.APIError, base_url: str) -> str:
    """An error of the `openai` client in one line."""
    if isinstance(error, openai.APIConnectionError):
        return f"no answer from {base_url}: is `drsai serve` running there?"
    body = error.body
    message = cast("dict[str, Any]", body).get("message") if isinstance(body, dict) else None
    return str(message or error.message)


def _question(request: dict[str, Any] | None) -> str | None:
    return None if request is None else str(request.get("prompt") or "")
