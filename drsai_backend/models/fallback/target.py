"""A target is one model at one endpoint, as a profile names it: it is asked with the profile's parameters, by its
endpoint's rules."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from typing import Final

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo
from autogen_core.tools import Tool, ToolSchema
from pydantic import SecretStr

from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import Items, ModelAnswer, ModelCall, ReasonedResult
from drsai_backend.models.calls.heard import Recordings
from drsai_backend.models.calls.params import PARAMETERS, ModelParams
from drsai_backend.models.calls.run_client import AgentCalls, RunModelClient, takes_parameter
from drsai_backend.models.endpoints.answers import NOTES
from drsai_backend.models.endpoints.continuation import ContinuingClient
from drsai_backend.models.endpoints.message_rules import where_of
from drsai_backend.models.facts import facts_of
from drsai_backend.models.fallback.asker import Asker
from drsai_backend.models.fallback.breaker import Breaker, Breakers
from drsai_backend.models.fallback.failures import Busy, Truncated, failure_of
from drsai_backend.models.fallback.routing import form_asked, lacks
from drsai_backend.models.profiles.providers import Providers
from drsai_backend.models.profiles.schema import Limits, Profile
from drsai_backend.models.tokens import estimate_tokens

log = logging.getLogger("drsai.model")
_KEYS: Final = 64
"""Clients of requests' own keys that are kept at a time."""
_OF_PLACE: Final = {"provider", "model", "api_version", "family", "parameters", "can", "messages"}


class Limiter:
    """Lets calls pass, or makes them wait, for one event loop.

    Calls per minute are spaced: each moves the moment of the next one, and up to a quarter of a minute's calls may come
    at once after a pause.
    """

    def __init__(self, limits: Limits) -> None:
        self._slots = asyncio.Semaphore(limits.concurrency) if limits.concurrency is not None else None
        self._gap = 60.0 / limits.rpm if limits.rpm is not None else 0.0
        self._burst = max(0.0, 15.0 - self._gap)
        self._next = 0.0

    @asynccontextmanager
    async def slot(self, seconds: float) -> AsyncGenerator[None]:
        """A call's place, to be held until it has ended.

        Raises:
            Busy: there is none within so many seconds.
        """
        started = time.monotonic()
        if self._slots is not None:
            try:
                async with asyncio.timeout(seconds):
                    await self._slots.acquire()
            except TimeoutError:
                raise Busy from None
        try:
            if self._gap:
                await self._wait(seconds - (time.monotonic() - started))
            yield
        finally:
            if self._slots is not None:
                self._slots.release()

    async def _wait(self, seconds: float) -> None:
        now = time.monotonic()
        due = max(self._next, now - self._burst)
        if due - now > seconds:
            raise Busy
        self._next = due + self._gap
        if due > now:
            await asyncio.sleep(due - now)


class Target:
    """The model of a profile, for all runs of a `DrSai`.

    Args:
        name: the profile's.
        profile: what it says.
        providers: makes its clients.
        breakers: has that of its endpoint.
        seconds: how long an answer, or the first piece of one, may take, if the profile does not say it.

    Attributes:
        model: its name.
        info: what the model can do.
        context_length: tokens of a request and its answer; None: it is not known.
        takes: names of parameters of requests that are sent.
        place: who is asked, how, for the response cache.
        takes_key: whether a request's own key is sent there.
    """

    def __init__(self, name: str, profile: Profile, providers: Providers, breakers: Breakers, seconds: float) -> None:
        self.name = name
        self.profile = profile
        self.seconds = profile.timeout or seconds
        self.takes_key = providers.uses_request_key(profile)
        self._limiter = Limiter(profile.limits)
        self._endpoint = providers.endpoint(profile)
        self.model = profile.model or self._endpoint
        self._breakers = breakers
        # Without this object in it: as the last run ends that has a former profile, its target goes.
        self._made = lru_cache(_KEYS)(partial(providers.client, name, profile))
        self._unstrict = profile.can.strict_tools is False
        said = {key: value for key, value in profile.parameters.items() if key in PARAMETERS}
        self._said = {key: value for key, value in said.items() if key != "response_format"}
        self.info: ModelInfo = self.client(None).model_info
        self.context_length: int | None = profile.limits.context or facts_of(self.client(None)).context_length
        taken = frozenset(name for name in PARAMETERS if takes_parameter(self.client(None), name))
        if unsent := sorted(name for name in profile.parameters if name in PARAMETERS and name not in taken):
            log.warning("profile %s: parameters that its model does not take are left out: %s", name, ", ".join(unsent))
        self.takes = taken - ({"reasoning_effort"} if profile.can.thinking is False else set())
        # Answers that were kept before there was `audio` are given again.
        newer = None if profile.can.audio else {"can": {"audio"}}
        place = profile.model_dump(mode="json", include=_OF_PLACE, exclude=newer)
        self.place: JsonObject = {**place, "endpoint": self._endpoint}
        if profile.provider == "default":  # What that is, the settings say, and may say otherwise the next time.
            self.place["default"] = [providers.default_name, *where_of(self.client(None))]

    def can(self, messages: Sequence[LLMMessage], options: JsonObject) -> bool:
        """Whether the model can do what a request asks for. A form of the answer it cannot give if the profile says
        so."""
        said = {"json_object": self.profile.can.json_output, "json_schema": self.profile.can.structured_output}
        return said.get(form_asked(options) or "") is not False and not lacks(self.info, messages, options)

    def client(self, api_key: SecretStr | None) -> ChatCompletionClient:
        """The model's client, with a request's own key where that is sent there."""
        return self._made(api_key if self.takes_key else None)

    def breaker(self, api_key: SecretStr | None) -> Breaker:
        """Return the breaker of its endpoint, which other profiles may share. A request's own key has one of its own:
        where its limit is used up, others are served."""
        own = api_key if self.takes_key else None
        whose = "" if own is None else hashlib.sha256(own.get_secret_value().encode()).hexdigest()
        return self._breakers.of(self._endpoint, self.profile.model or "", whose)

    def has_room_for(self, messages: Sequence[LLMMessage], options: JsonObject) -> bool:
        """Whether a request fits into the model's context, as far as that is known. Counts may be estimates."""
        size, tools = self.context_length, options.get("tools", ())
        # A token is a byte at least, and an estimate a quarter of the bytes: counting takes longer.
        if size is None or 4 * estimate_tokens(messages, tools=tools) < size:
            return True
        return self.client(None).count_tokens(messages, tools=tools) < size

    async def answer(
        self,
        call: ModelCall,
        asker: Asker,
        api_key: SecretStr | None,
        allowed: tuple[Breaker, int],
        attempts: int,
        continuing: ContinuingClient | None = None,
    ) -> Items:
        """Make one call, within the profile's limits, and tell the breaker how it ended. `allowed`: the breaker, and
        the epoch that it has said. `continuing`: makes it, in place of the model's client.

        Raises:
            Busy: there is no place for it in time.
            TimeoutError: nothing came in time.
            Truncated: the answer has no end, and nothing of it was shown.
            Exception: what the model's client raises.
        """
        breaker, epoch = allowed
        is_open, shown = True, False
        by: JsonObject = {"profile": self.name, "model": self.model, "attempts": attempts}
        if (notes := NOTES.get()) is not None:
            notes.by = by
        try:
            if self.profile.can.audio and asker.files is not None:
                owners = [each for each in (asker.owner, asker.thread_owner) if each is not None]
                call = call._replace(messages=await Recordings(asker.files, owners).heard(call.messages))
            items = self._asked(call, asker, api_key, continuing)
            try:
                async with self._limiter.slot(self.seconds):
                    async with asyncio.timeout(self.seconds):
                        item = await anext(items, None)
                    while isinstance(item, str):
                        shown = True
                        yield item
                        item = await anext(items, None)
                    if item is None or not (shown or item.finish_reason != "unknown" or _is_whole(item)):
                        raise Truncated
                    values: JsonObject = {name: getattr(item, name, None) for name in ReasonedResult.model_fields}
                    answer = ModelAnswer(**values, **by)
                    breaker.succeeded()
                    is_open = False
                    yield answer
            except Exception as error:
                failure = failure_of(error)
                if is_open and failure is not None and failure.is_of_endpoint:
                    breaker.failed(epoch, self.profile.breaker, retry_after=failure.retry_after)
                    is_open = False
                raise
            finally:
                await items.aclose()
        finally:
            if is_open:
                breaker.released(epoch)

    def _asked(
        self, call: ModelCall, asker: Asker, api_key: SecretStr | None, continuing: ContinuingClient | None
    ) -> Items:
        """The model's answer to a call, by the profile's parameters and the endpoint's rules."""
        args: JsonObject = dict(call.options.get("extra_create_args", {}))
        given = {key: args.pop(key) for key in PARAMETERS if key in args and key != "response_format"}
        params = {**self._said, **given}
        if self.profile.can.thinking is False:
            params.pop("reasoning_effort", None)
        options: JsonObject = {**call.options, "extra_create_args": args}
        if self._unstrict and (tools := call.options.get("tools")):
            options["tools"] = [_without_strict(tool) for tool in tools]
        form = asker.form or self.profile.messages
        client = RunModelClient(self.client(api_key), params=ModelParams(**params), rules=asker.rules, messages=form)
        if continuing is not None:
            client = client.with_steps(AgentCalls(asks=continuing))
        return client.items(ModelCall(call.messages, options, call.streams))


def _is_whole(result: CreateResult) -> bool:
    """Whether an answer without a reason for its end can be one that has ended."""
    if isinstance(result.content, str):
        return bool(result.content)
    try:
        for call in result.content:
            json.loads(call.arguments or "{}")
    except ValueError:
        return False
    return True


def _without_strict(tool: Tool | ToolSchema) -> JsonObject:
    schema = dict(tool.schema if isinstance(tool, Tool) else tool)
    schema.pop("strict", None)
    return schema
