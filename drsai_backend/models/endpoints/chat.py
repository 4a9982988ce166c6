"""The chat clients are for OpenAI-compatible endpoints and Azure: the package sends, and what comes is read here.

Authentication, retries, time-outs, proxies and addresses stay the package's, as do `beta`, `with_raw_response` and
`with_streaming_response`; only `chat.completions.create` is another one.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from openai import APIConnectionError, APIError, APITimeoutError, AsyncAzureOpenAI, AsyncOpenAI, AsyncStream

from openai import NotGiven, Omit  # isort: skip
from openai._base_client import make_request_options  # what every call of the package makes its options with
from openai._models import FinalRequestOptions
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from drsai_backend.json_types import JsonObject
from drsai_backend.models.endpoints.answers import NOTES, CallNotes
from drsai_backend.models.endpoints.bounded import AnswerLength
from drsai_backend.models.endpoints.chunks import answer_of, chunk_of, loads
from drsai_backend.models.endpoints.forms import dumps
from drsai_backend.models.endpoints.streams import Noted, Read, is_helped
from drsai_backend.models.endpoints.thoughts import mark_thought

if TYPE_CHECKING:
    import httpx2 as http

_PATH: Final = "/chat/completions"
_OPTIONS: Final = ("extra_headers", "extra_query", "extra_body", "timeout")
_KNOWN: Final = inspect.signature(make_request_options).parameters
_SECURITY: Final[JsonObject] = {"security": {"bearer_auth": True}} if "security" in _KNOWN else {}
_STREAM_FAILED: Final = "An error occurred during streaming"


class _Completions(AsyncCompletions):
    async def create(self, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its overloads
        """Do as the package's own: the same body, but not walked by type hints, and the same fields of an answer."""
        if is_helped(options.get("extra_headers")):
            return cast(object, await super().create(**options))
        asked = make_request_options(**{name: options.pop(name) for name in _OPTIONS if name in options}, **_SECURITY)
        body = {name: value for name, value in options.items() if not isinstance(value, NotGiven | Omit)}
        stream = bool(body.get("stream"))
        answer = await self._client.post(
            _PATH, body=body, options=asked, cast_to=bytes, stream=stream, stream_cls=_ReadStream
        )
        if isinstance(answer, bytes):
            read = answer_of(answer)
            (NOTES.get() or CallNotes()).take(read)
            mark_thought(read)
            return read
        return answer


class _Chat(AsyncChat):
    @cached_property
    def completions(self) -> AsyncCompletions:  # pyright: ignore[reportIncompatibleMethodOverride] - a cached property, too
        """Where they are made."""
        return _Completions(self._client)


class _Noting(AsyncOpenAI):
    @cached_property
    def chat(self) -> AsyncChat:  # pyright: ignore[reportIncompatibleMethodOverride] - a cached property there, too
        """Where chats are asked for."""
        return _Chat(self)

    async def post(self, path: str, **options: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - its overloads
        """Do as the package's own."""
        notes = NOTES.get() or CallNotes()
        notes.begin()
        if path == _PATH and options.get("stream_cls") not in (None, _ReadStream):
            options["stream_cls"] = _NotedStream
        answer = await super().post(path, **options)
        if isinstance(answer, ChatCompletion):
            notes.take(answer)
            mark_thought(answer)
        return answer

    def _build_request(self, options: FinalRequestOptions, *, retries_taken: int = 0) -> http.Request:
        """Build the request after Azure has taken its model's name out of the body, and with the fields of
        `extra_body`."""
        body: object = options.json_data
        if options.method == "post" and options.url.endswith(_PATH) and isinstance(body, Mapping):
            merged: JsonObject = {**cast(JsonObject, body), **(options.extra_json or {})}
            if (notes := NOTES.get()) is not None and notes.returns_thoughts:
                merged["messages"] = [_with_thought(each, notes.thoughts) for each in merged["messages"]]
            made = dumps({name: each for name, each in merged.items() if not isinstance(each, Omit)})
            if notes is not None:
                made = notes.instead or made
                notes.sent = "openai", made
            options.json_data, options.extra_json = made, None
        return super()._build_request(options, retries_taken=retries_taken)


class NotingOpenAI(_Noting):
    """The openai package's client; what answers say of themselves goes to the notes of the call. It needs a
    `bounded_client`, which gives events whole."""


class NotingAzure(AsyncAzureOpenAI, _Noting):  # after Azure's: see `_build_request`
    """The same for Azure."""


class _Chunks(AsyncStream[ChatCompletionChunk]):
    """By itself, as the package looks for what a stream is made of among the bases of one class."""


class _NotedStream(Noted, _Chunks):
    is_begun = is_finished = False

    def note(self, piece: ChatCompletionChunk, length: AnswerLength) -> None:
        self.notes.take(piece)
        if piece.choices:
            self.is_begun, self.is_finished = True, self.is_finished or bool(piece.choices[0].finish_reason)
        length.of_openai(piece)


class _ReadStream(Read, _NotedStream):
    ends = (b"[DONE]",)
    timed_out, broken = APITimeoutError, APIConnectionError

    def check_end(self) -> None:
        if self.is_begun and not self.is_finished:
            raise APIConnectionError(request=self.response.request)

    def piece(self, name: bytes, data: bytes) -> ChatCompletionChunk | None:
        if not data:
            return None
        found = loads(data)
        error: object = cast(JsonObject, found).get("error") if isinstance(found, dict) else None
        if not error:
            return chunk_of(cast(JsonObject, found))
        message: object = cast(JsonObject, error).get("message") if isinstance(error, dict) else None
        told = message if message and isinstance(message, str) else _STREAM_FAILED
        raise APIError(told, request=self.response.request, body=cast(object, error))


def _with_thought(message: JsonObject, thoughts: Mapping[str, str]) -> JsonObject:
    """A message, with what the model has thought beside the calls in it. Where that is not known, as of earlier runs,
    it is blank: endpoints that want it back want it beside all calls."""
    if not (calls := message.get("tool_calls")):
        return message
    return {**message, "reasoning_content": thoughts.get(calls[0]["id"]) or " "}
