"""One model at one endpoint, as a profile names it: asked with the profile's parameters, by its endpoint's rules."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import lru_cache
from typing import Any, Final

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo
from autogen_core.tools import Tool
from pydantic import SecretStr

from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import Items, ModelAnswer, ModelCall, ReasonedResult
from drsai_backend.models.calls.params import PARAMETERS, ModelParams
from drsai_backend.models.calls.run_client import RunModelClient
from drsai_backend.models.facts import facts_of
from drsai_backend.models.fallback.asker import Asker
from drsai_backend.models.fallback.breaker import Breaker, Breakers
from drsai_backend.models.fallback.failures import Truncated
from drsai_backend.models.fallback.limits import Limiter
from drsai_backend.models.profiles.providers import Providers
from drsai_backend.models.profiles.schema import Profile
from drsai_backend.models.tokens import estimate_tokens

_KEYS: Final = 64
"""Clients of requests' own keys that are kept at a time."""
_OF_PLACE: Final = {"provider", "model", "api_version", "family", "parameters", "can", "messages"}


class Target:
    """The model of a profile, for all runs of a `DrSai`.

    Args:
        name: the profile's.
        profile: what it says.
        providers: makes its clients.
        breakers: has that of its endpoint.
        seconds: how long an answer, or the first piece of one, may take, if the profile does not say it.

    Attributes:
        info: what the model can do.
        context_length: tokens of a request and its answer; None: it is not known.
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
        self._providers = providers
        self._breakers = breakers
        self._made = lru_cache(_KEYS)(self._make)
        self._unstrict = profile.can.strict_tools is False
        said = {key: value for key, value in profile.parameters.items() if key in PARAMETERS}
        self._said = {key: value for key, value in said.items() if key != "response_format"}
        self.info: ModelInfo = self.client(None).model_info
        self.context_length: int | None = profile.limits.context or facts_of(self.client(None)).context_length
        self.place: JsonObject = {**profile.model_dump(mode="json", include=_OF_PLACE), "endpoint": self._endpoint}

    def client(self, api_key: SecretStr | None) -> ChatCompletionClient:
        """The model's client, with a request's own key where that is sent there."""
        return self._made(api_key if self.takes_key else None)

    def _make(self, api_key: SecretStr | None) -> ChatCompletionClient:
        return self._providers.client(self.name, self.profile, api_key)

    def breaker(self, api_key: SecretStr | None) -> Breaker:
        """That of its endpoint, which other profiles may share. A request's own key has one of its own: where its limit
        is used up, others are served."""
        own = api_key if self.takes_key else None
        whose = "" if own is None else hashlib.sha256(own.get_secret_value().encode()).hexdigest()
        return self._breakers.of(self._endpoint, self.profile.model or "", whose)

    def slot(self) -> AbstractAsyncContextManager[None]:
        """A call's place within the profile's limits.

        Raises:
            Busy: there is none in time.
        """
        return self._limiter.slot(self.seconds)

    def has_room_for(self, messages: Sequence[LLMMessage], options: Mapping[str, Any]) -> bool:
        """Whether a request fits into the model's context, as far as that is known. Counts may be estimates."""
        size, tools = self.context_length, options.get("tools", ())
        # A token is a byte at least, and an estimate a quarter of the bytes: counting takes longer.
        if size is None or 4 * estimate_tokens(messages, tools=tools) < size:
            return True
        return self.client(None).count_tokens(messages, tools=tools) < size

    async def answer(self, call: ModelCall, asker: Asker, api_key: SecretStr | None) -> Items:
        """Make one call.

        Raises:
            TimeoutError: nothing came in time.
            Exception: what the model's client raises.
        """
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
        items = client.items(ModelCall(call.messages, options, call.streams))
        try:
            async with asyncio.timeout(self.seconds):
                item = await anext(items, None)
            while item is not None:
                yield item
                item = await anext(items, None)
        finally:
            await items.aclose()

    def made(self, result: CreateResult, attempts: int, *, shown: bool) -> ModelAnswer:
        """The result as an answer of this profile.

        Raises:
            Truncated: it has no end, and nothing of it was shown.
        """
        if not shown and result.finish_reason == "unknown" and not _is_whole(result):
            raise Truncated
        values: JsonObject = {name: getattr(result, name, None) for name in ReasonedResult.model_fields}
        model = self.profile.model or self._endpoint
        return ModelAnswer(**values, profile=self.name, model=model, attempts=attempts)


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


def _without_strict(tool: Tool | Mapping[str, Any]) -> JsonObject:
    schema = dict(tool.schema if isinstance(tool, Tool) else tool)
    schema.pop("strict", None)
    return schema
