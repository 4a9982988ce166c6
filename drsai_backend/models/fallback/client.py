"""The client of a profile asks its model, and where that gives no answer the next one of its list."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast

from autogen_core import CancellationToken, ComponentModel
from autogen_core.models import (
    ChatCompletionClient,
    LLMMessage,
    ModelCapabilities,  # pyright: ignore[reportDeprecated]
    ModelInfo,
    RequestUsage,
)
from autogen_core.tools import Tool, ToolSchema
from pydantic import SecretStr

from drsai_backend.errors import EndpointBusy, EndpointFailed, EndpointTimeout, ParameterRefused
from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import Items, ModelAnswer, ModelCall, result_of
from drsai_backend.models.cache.cache import ResponseCache
from drsai_backend.models.cache.request_key import request_key
from drsai_backend.models.endpoints.answers import NOTES
from drsai_backend.models.endpoints.continuation import ContinueForm, ContinuingClient
from drsai_backend.models.endpoints.message_rules import where_of
from drsai_backend.models.fallback.asker import Asker
from drsai_backend.models.fallback.failures import Failure, failure_of
from drsai_backend.models.fallback.routing import form_asked, route_of
from drsai_backend.models.fallback.target import Target

log = logging.getLogger("drsai.model")

FIRST_DELAY: Final = 0.5
LONGEST_DELAY: Final = 20.0
MAX_RETRY_AFTER: Final = 30.0
"""Longest `Retry-After` that is waited for; an endpoint that asks for more is given up for this call."""


@dataclass(slots=True)
class _Course:
    """How a call goes: what failed so far."""

    attempts: int = 0
    failures: list[tuple[str, Failure]] = field(default_factory=list[tuple[str, Failure]])
    error: Exception | None = None


class ProfileClient(ChatCompletionClient):
    """AutoGen's client for a named profile. Its results are `ModelAnswer`s.

    A call goes to the profile's model, or where a rule says so to another profile's; then through the list `fallback`.
    A failure is tried again `retries` times after a random wait, then at the next model. Nothing is tried again once a
    piece of the answer was shown: that failure is raised.

    Args:
        targets: the profile, then those of its list; and by name those that its rules lead to.
        cache: the process's response cache; None: there is none.
        asker: for whom it asks.

    Raises (by `create`, `create_stream`):
        SwitchedOff: all of its models are.
        ParameterRefused: of the models that a rule leads to none takes the form that is asked for.
        EndpointFailed, EndpointTimeout, EndpointBusy: no model has answered; `__cause__` is the last failure.
    """

    component_type = "model"
    conforms = True
    """Messages are made to fit each endpoint here, and not before."""

    def __init__(
        self,
        targets: Sequence[Target],
        routed: Mapping[str, Sequence[Target]],
        cache: ResponseCache | None = None,
        asker: Asker | None = None,
        api_key: SecretStr | None = None,
        continuing: ContinuingClient | None = None,
    ) -> None:
        self._targets = targets
        self._continuing = continuing
        self._routed = routed
        self._cache = cache
        self._asker = asker if asker is not None else Asker()
        self._api_key = api_key
        everyone = [*targets, *(each for chain in routed.values() for each in chain)]
        self._info = dict(targets[0].info)
        for name in ("vision", "function_calling", "json_output", "structured_output"):
            self._info[name] = any(each.info.get(name, False) for each in everyone)
        self.takes_params = frozenset[str]().union(*(each.takes for each in everyone))
        """Parameters of requests that any of its models takes."""

    @property
    def profile(self) -> str:
        """The name of the profile."""
        return self._targets[0].name

    @property
    def model(self) -> str:
        """The name of its own model."""
        return self._targets[0].model

    @property
    def primary(self) -> Target:
        """Its own model, which continues answers."""
        return self._targets[0]

    @property
    def context_length(self) -> int | None:
        """Tokens of a request and its answer, of its own model; None: it is not known."""
        return self._targets[0].context_length

    def continuing_client(self) -> ChatCompletionClient:
        """The client of its own model, without fallback: others do not continue what it has said."""
        return self._targets[0].client(self._api_key)

    def continuing(self, form: ContinueForm, text: str) -> ProfileClient:
        """The same client, whose first answer continues a text: its own model gives it, or none."""
        first = ContinuingClient(self.continuing_client(), form, text)
        return ProfileClient(self._targets, self._routed, self._cache, self._asker, self._api_key, first)

    @property
    def _continues(self) -> ContinuingClient | None:
        """What asks for the answer that is continued; None: it is none, or is there."""
        return None if self._continuing is None or self._continuing.is_over else self._continuing

    async def create(self, messages: Sequence[LLMMessage], **options: object) -> ModelAnswer:  # pyright: ignore[reportIncompatibleMethodOverride] - options are handed on
        """One answer. Options are those of AutoGen's `create`."""
        return cast(ModelAnswer, await result_of(self._items(ModelCall(messages, options, streams=False))))

    def create_stream(self, messages: Sequence[LLMMessage], **options: object) -> Items:  # pyright: ignore[reportIncompatibleMethodOverride] - options are handed on
        """Pieces of text, then the result. Options are those of AutoGen's `create_stream`."""
        return self._items(ModelCall(messages, options, streams=True))

    async def _items(self, call: ModelCall) -> Items:
        course = _Course()
        candidates = self._candidates(call)
        for place, target in enumerate(candidates):
            is_last = place == len(candidates) - 1
            if not is_last and not target.has_room_for(call.messages, call.options):
                course.failures.append((target.name, Failure("overflow")))
                continue
            is_answered = False
            async with aclosing(self._of_target(target, call, course)) as items:
                async for item in items:
                    is_answered = True
                    yield item
            if is_answered:
                return
            if not is_last:
                told = course.failures[-1][1].text()
                log.warning("model profile %r: %s gives no answer (%s)", self.profile, target.name, told)
        raise self._exhausted(course) from course.error

    def _of_target(self, target: Target, call: ModelCall, course: _Course) -> Items:
        """Return what one model answers, out of the cache if it is there; nothing, and the reason in `course`, if it
        does not."""
        rule, cache, owner = target.profile.cache, self._cache, self._asker.owner if self._asker.caches else None
        if cache is not None and rule is not None and owner is not None and self._continues is None:
            key = request_key(self._place(target), call.messages, call.options)
            if key is not None:
                ask = partial(self._attempts, target, call, course)
                return cache.answered(owner, key, ask, streams=call.streams, ttl=rule.ttl, seconds=target.seconds)
        return self._attempts(target, call, course)

    async def _attempts(self, target: Target, call: ModelCall, course: _Course) -> Items:
        """The attempts at one model."""
        for attempt in range(target.profile.retries + 1):
            breaker = target.breaker(self._api_key)
            epoch = breaker.allows()
            if epoch is None:
                if attempt == 0:
                    course.failures.append((target.name, Failure("open")))
                return
            course.attempts += 1
            shown = False
            allowed = breaker, epoch
            items = target.answer(call, self._asker, self._api_key, allowed, course.attempts, self._continues)
            try:
                async for item in items:
                    shown = True
                    yield item
                return
            except Exception as error:
                failure = failure_of(error)
                if failure is None or shown:
                    raise
                course.failures.append((target.name, failure))
                course.error = error
            finally:
                await items.aclose()
            if (notes := NOTES.get()) is not None:
                notes.failed()
            wait = _wait_for(failure, attempt)
            if attempt == target.profile.retries or wait is None:
                return
            await _sleep(wait, call.options.get("cancellation_token"))

    def _candidates(self, call: ModelCall) -> list[Target]:
        """Return who is asked, in order. Who takes no form of the answer is left out where one is asked for; who cannot
        do what is asked, if there is anybody who can."""
        first = self._targets[0]
        messages, options, _ = call
        tools: Sequence[Tool | ToolSchema] = options.get("tools", ())
        routes, price = first.profile.routes, first.profile.price
        if self._continues is not None:
            chain = self._targets[:1]
        else:
            use = route_of(routes, messages, options, lambda: self.count_tokens(messages, tools=tools), price)
            chain = self._targets if use is None else self._routed[use]
        if self._asker.rules.switches.off:
            chain = self._left_on(chain)
        name = "response_format"
        if form_asked(options) and name in self.takes_params:
            chain = [each for each in chain if name in each.takes]
            if not chain:
                raise ParameterRefused.of(name)  # It was accepted, as others of its models take it.
        return [each for each in chain if each.can(messages, options)] or [*chain]

    def _left_on(self, chain: Sequence[Target]) -> Sequence[Target]:
        """Return those that are not switched off, by the names of their profiles or models. Raises SwitchedOff: all
        are."""
        switches, owner = self._asker.rules.switches, self._asker.owner
        tenant, left, refusal = "" if owner is None else owner.tenant, list[Target](), None
        for target in chain:
            names = (target.name, where_of(target.client(self._api_key))[1])
            found = next(filter(None, (switches.find("model", name, tenant) for name in names)), None)
            refusal = refusal or found
            left += [] if found is not None else [target]
        if not left and refusal is not None:
            raise refusal
        return left

    def _place(self, target: Target) -> JsonObject:
        """Return what of a target's request the cache tells apart, besides the request."""
        place = {**target.place, "seed": self._asker.seed_of(target.profile), "form": self._asker.form}
        if self._api_key is not None and target.takes_key:
            # Who has no key that works must not get what another's key has paid for.
            place["key"] = hashlib.sha256(self._api_key.get_secret_value().encode()).hexdigest()
        return place

    def _exhausted(self, course: _Course) -> EndpointFailed:
        told: dict[str, str] = {name: failure.text() for name, failure in course.failures}
        text = f"model profile {self.profile!r}: no answer: " + "; ".join(
            f"{name}: {why}" for name, why in told.items()
        )
        kinds = {failure.kind for _, failure in course.failures} - {"open"}
        if kinds and kinds <= {"rate_limit", "busy"}:
            return EndpointBusy(text)
        return EndpointTimeout(text) if kinds == {"timeout"} else EndpointFailed(text)

    def with_key(self, api_key: SecretStr) -> ProfileClient:
        """The same client with a request's own key, for those of its models that it is for."""
        return ProfileClient(self._targets, self._routed, self._cache, self._asker, api_key)

    def check_on(self) -> None:
        """Raise SwitchedOff: all of its models are, for whom it asks."""
        self._left_on(self._targets)

    def bound(self, asker: Asker) -> ProfileClient:
        """The same client, asking for somebody."""
        return ProfileClient(self._targets, self._routed, self._cache, asker, self._api_key)

    def count_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens of a request, as its own model counts them or as they are estimated."""
        return self._targets[0].client(self._api_key).count_tokens(messages, tools=tools)

    def remaining_tokens(self, messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
        """Tokens left of the context of its own model.

        Raises:
            ConfigurationError: its size is not known.
        """
        size = self.context_length
        if size is not None:
            return size - self.count_tokens(messages, tools=tools)
        return self._targets[0].client(self._api_key).remaining_tokens(messages, tools=tools)

    def actual_usage(self) -> RequestUsage:
        """Return nothing: the run's meter counts."""
        return RequestUsage(prompt_tokens=0, completion_tokens=0)

    def total_usage(self) -> RequestUsage:
        """Return nothing: the run's meter counts."""
        return RequestUsage(prompt_tokens=0, completion_tokens=0)

    @property
    def capabilities(self) -> ModelCapabilities:  # pyright: ignore[reportDeprecated]
        return self._targets[0].client(self._api_key).capabilities  # pyright: ignore[reportDeprecated]

    @property
    def model_info(self) -> ModelInfo:
        """What any of its models can do; the family of its own."""
        return self._info  # pyright: ignore[reportReturnType] - a copy of such a dict

    async def close(self) -> None:
        """Do nothing: connections belong to the process."""

    def dump_component(self) -> ComponentModel:
        """Return a component that is this profile again, inside a team factory."""
        provider = "drsai_backend.models.DefaultModelClient"
        return ComponentModel(provider=provider, component_type="model", config={"model": self.profile})


def asking_for(client: ChatCompletionClient, asker: Asker) -> ChatCompletionClient:
    """Return the client, asking for somebody if it is a profile's."""
    return client.bound(asker) if isinstance(client, ProfileClient) else client


def _wait_for(failure: Failure, attempt: int) -> float | None:
    """Seconds until the same endpoint is asked again; None: it is not. Exponential, with full jitter."""
    if failure.kind in ("overflow", "busy"):
        return None
    if failure.retry_after is not None:
        return failure.retry_after if failure.retry_after <= MAX_RETRY_AFTER else None
    return random.uniform(0, min(LONGEST_DELAY, FIRST_DELAY * 2**attempt))


async def _sleep(seconds: float, token: CancellationToken | None) -> None:
    """Wait, no longer than until the call is cancelled."""
    # A timer may come a little early, and the breaker would find that too soon.
    waiting = asyncio.ensure_future(asyncio.sleep(seconds + 0.005))
    if token is not None:
        token.link_future(waiting)
    await waiting
