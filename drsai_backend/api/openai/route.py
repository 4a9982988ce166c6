"""A route says something to a team: its request is read into an `Exchange`, its run is started, and what happens is
sent as it comes, or when it is over.

From the start of its run on, that is the engine's, whatever the client does.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, aclosing, suppress
from functools import partial
from typing import Final, NamedTuple

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.events import still_reads
from drsai_backend.api.http.errors import InternalError, RunMoved
from drsai_backend.api.http.json import json_response
from drsai_backend.api.http.parameters import check_query
from drsai_backend.api.http.stream import PING, ClientLeft, EventStream, Frames, Still, Watch
from drsai_backend.api.joining import Web
from drsai_backend.api.objects import headers_of_answer
from drsai_backend.api.openai.files.contents import Noted
from drsai_backend.api.openai.files.request_files import with_files
from drsai_backend.api.openai.messages import is_heavy
from drsai_backend.datamodel import RunStatus
from drsai_backend.errors import DrSaiError, IllegalTransition, InvalidRequest, NotFound, ParameterRefused, RunFailed
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Engine, Handle, RunEnded, RunEvent

_log = logging.getLogger(__name__)
DONE: Final = b"data: [DONE]\n\n"
"""What OpenAI's streams end with."""
BROKEN: Final = frozenset({RunStatus.ERROR, RunStatus.RUNNING})
"""What a run ends with when there is no answer: it failed, or it continues where it cannot be heard."""


def failure(ended: RunEnded) -> DrSaiError:
    """The error of a run that ended without an answer (`BROKEN`)."""
    if ended.status is RunStatus.RUNNING:
        return RunMoved(ended.error_message or "the run continues, but not where this server can follow it")
    if ended.error_code == ParameterRefused.code:
        return ParameterRefused.stored(ended.error_message or "")
    return RunFailed(ended.error_message or "the run failed")


class Sender(NamedTuple):
    """Who has sent a request, known before it is read: as whom it asks, whom it names, and its headers. `tag`: what it
    says of its end user, in place of a name, where the key may not act as others. `noted`: as `with_files` gives it."""

    who: Principal
    user: str | None
    tag: str | None
    headers: Mapping[bytes, bytes]
    noted: Noted = {}

    @property
    def repeated(self) -> int:
        """How often OpenAI's clients say that they have sent the request before. What says so is a hint, not an
        input."""
        text = self.headers.get(b"x-stainless-retry-count", b"")
        return int(text) if text.isdigit() and len(text) < 6 else 0


class StreamWriter(ABC):
    """Writes a run as the frames of a stream."""

    @abstractmethod
    def opening(self) -> bytes:
        """Return what the stream begins with."""

    @abstractmethod
    def frames(self, events: Sequence[RunEvent]) -> bytes:
        """The frames of events, in order; empty when nothing of them can be shown yet."""

    @abstractmethod
    def failing(self, body: JsonObject) -> bytes:
        """The frame that ends a stream which failed. `body`: the error as OpenAI has it."""


class WholeWriter(ABC):
    """Gathers a run for an answer in one piece. `ended` is the run's end, once it was taken."""

    ended: RunEnded | None

    @abstractmethod
    def take(self, events: Iterable[RunEvent]) -> None:
        """Hear events, in order."""

    @abstractmethod
    def body(self, ended: RunEnded) -> JsonObject:
        """The answer, after all events were taken."""


class Exchange(ABC):
    """A request that was understood, and how it is answered."""

    @property
    @abstractmethod
    def stream(self) -> bool:
        """Whether the answer is shown as it comes."""

    @abstractmethod
    async def start(self, engine: Engine, who: Principal) -> Handle | None:
        """Start its run; None: it gets none, and is answered aside. Raises as `Engine.start`."""

    async def aside(self, scope: ASGIScope, receive: Receive, send: Send, ping: float, still: Still) -> None:
        """Answer a request that gets no run, after `start`. A client that leaves ends that; so does one that may
        not ask any more (`still`)."""
        raise NotImplementedError

    @abstractmethod
    def ignored(self, handle: Handle) -> Sequence[str]:
        """The fields of the request with which nothing is done."""

    @abstractmethod
    def streamed(self, handle: Handle) -> StreamWriter:
        """Return what writes the answer as a stream."""

    @abstractmethod
    async def accepted(self, engine: Engine, who: Principal, handle: Handle, scope: ASGIScope) -> Response | None:
        """The answer of one whose run is not waited for; None: it is."""

    @abstractmethod
    def whole(self, handle: Handle) -> WholeWriter:
        """Return what writes the answer in one piece."""

    @abstractmethod
    def error_response(self, error: DrSaiError, code: str | None) -> Response:
        """The answer of a run that has failed. `code` stands in for the error's own."""

    def stops(self, engine: Engine) -> bool:
        """Whether its run is stopped when the client leaves."""
        return False

    def listening(self, engine: Engine, handle: Handle) -> AbstractContextManager[None]:
        """Return what is entered while the answer is sent."""
        return engine.repeats.listening(handle)


class RunRoute(APIRoute):
    """A route of that kind. FastAPI describes it, and a plain ASGI application answers: FastAPI's own way costs more
    than all the rest of a short answer. What differs from dialect to dialect is `describe`, `sender` and `read`."""

    scope = Scope.CHAT

    query: tuple[str, ...] = ()
    """The query parameters that it takes."""
    keep_alive = PING
    """What a stream says when there is nothing to say."""

    def __init__(self, web: Web) -> None:
        super().__init__(**self.describe())
        self.app = self._answer
        self._engine, self._access, self._bodies = web.engine, web.access, web.bodies
        self._max_messages, self._ping = web.max_messages, web.ping

    def describe(self) -> JsonObject:
        """The arguments of `APIRoute`."""
        raise NotImplementedError

    def sender(self, caller: Principal | None, body: JsonObject, scope: ASGIScope) -> Sender:
        """Return who has sent a body."""
        raise NotImplementedError

    def read(self, body: JsonObject, sender: Sender) -> Exchange:
        """The request, understood; called in a thread where that takes long. Raises InvalidRequest."""
        raise NotImplementedError

    async def _answer(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        with ExitStack() as held:
            await self._exchange(scope, receive, send, held)

    async def _exchange(self, scope: ASGIScope, receive: Receive, send: Send, held: ExitStack) -> None:
        """Answer a request; `held` is left when that is over."""
        caller = await self._access.authenticate(scope, self.scope)
        check_query(scope, self.query)
        async with (
            self._bodies.read(scope, receive) as body,
            with_files(self._bodies, self._engine, body, (sender := self.sender(caller, body, scope)).who) as noted,
        ):
            who, sender = sender.who, sender._replace(noted=noted)
            named, is_keyed = partial(self._engine.check_name, who, body), b"idempotency-key" in sender.headers
            await named(later=is_keyed)
            try:
                reading = partial(self.read, body, sender)
                exchange = await self._bodies.off_loop(reading) if is_heavy(body) else reading()
                if exchange.stream:
                    held.enter_context(self._access.streaming(who))
                handle = await exchange.start(self._engine, who)
            except InvalidRequest:
                await named()  # One with a key may have been served before its model was deleted; this one was not.
                raise
        still = partial(self._look_again, scope, caller, who, handle)
        if handle is None:
            await exchange.aside(scope, receive, send, self._ping, still)
            return
        headers = headers_of_answer(handle)
        if ignored := exchange.ignored(handle):
            headers.append((b"x-ignored-fields", ", ".join(ignored).encode()))
        try:
            with exchange.listening(self._engine, handle):
                if exchange.stream:
                    writer = exchange.streamed(handle)
                    stream = EventStream(
                        headers,
                        opening=writer.opening(),
                        failing=writer.failing,
                        what=f"the answer of run {handle.run_id}",
                        ping=self._ping,
                        still=still,
                        keep_alive=self.keep_alive,
                    )
                    await stream.send(_frames(handle, writer), receive, send)
                    return
                response = await exchange.accepted(self._engine, who, handle, scope)
                if response is None:
                    response = await self._whole(
                        exchange, handle, Watch(receive, self._ping, still=still), is_keyed=is_keyed
                    )
        except ClientLeft:
            if exchange.stops(self._engine) and self._engine.repeats.withdraw(handle):
                await self._cancel(who, handle)
            return
        response.raw_headers.extend(headers)
        await response(scope, receive, send)

    async def _look_again(
        self, scope: ASGIScope, caller: Principal | None, who: Principal, handle: Handle | None
    ) -> None:
        """Raise where who reads an answer may not do so any more: their key is revoked, or the share taken back of
        somebody else's thread that they have written to."""
        if handle is None or handle.name.owner == who.owner:
            await self._access.check_again(scope, self.scope, caller)
        else:
            await still_reads(self._engine, handle.name, Request(scope), self.scope, who)()

    async def _whole(self, exchange: Exchange, handle: Handle, watch: Watch, *, is_keyed: bool) -> Response:
        writer = exchange.whole(handle)
        with watch:
            async with aclosing(handle.events()) as events:
                async for event in events:
                    writer.take((event, *handle.poll()))
                    if writer.ended is not None:
                        break
        ended = writer.ended
        if ended is None:
            raise InternalError("the run ended without a result")
        if ended.status not in BROKEN:
            return json_response(writer.body(ended))
        error = failure(ended)
        response = exchange.error_response(error, ended.error_code)
        if isinstance(error, RunMoved) and not is_keyed:
            # The input is stored: to send it again by itself, as OpenAI's clients do, would say it twice.
            response.headers["x-should-retry"] = "false"
        return response

    async def _cancel(self, who: Principal, handle: Handle) -> None:
        try:
            with suppress(IllegalTransition, NotFound):  # it has just ended
                await self._engine.cancel_run(who, handle.run_id)
        except DrSaiError as error:
            _log.warning("run %s was not cancelled when its client left: %s", handle.run_id, error.message)
        except Exception:  # noqa: BLE001 - nobody is left to be told
            _log.exception("run %s was not cancelled when its client left", handle.run_id)


async def _frames(handle: Handle, writer: StreamWriter) -> Frames:
    """One write for all events that are ready."""
    async with aclosing(handle.events()) as events:
        async for event in events:
            batch = [event, *handle.poll()]
            last = isinstance(batch[-1], RunEnded)
            if (frames := writer.frames(batch)) or last:
                yield frames, not last
            if last:
                return
    raise InternalError("the run ended without a result")
