"""Side calls are plain model calls beside the conversations: what chat windows ask about a chat
(`runs.side_calls.housekeeping`).

Nothing of them is stored: no thread, no run, no message. They are bounded in number and in time, and end with their
client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from autogen_core.models import AssistantMessage, CreateResult, LLMMessage, SystemMessage, UserMessage

from drsai_backend.access.principal import Principal
from drsai_backend.config import Settings
from drsai_backend.database.calls import Calls
from drsai_backend.database.hooks import Asked
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DrSaiError, RunFailed
from drsai_backend.models import ModelClientFactory, RunModelClient, UsageMeter
from drsai_backend.models.endpoints.answers import CallRecord
from drsai_backend.models.fallback.asker import Asker
from drsai_backend.models.fallback.client import asking_for
from drsai_backend.runs.failures import safe_message
from drsai_backend.runs.requests import Ask, InputMessage
from drsai_backend.runs.side_calls.housekeeping import Housekeeping

log = logging.getLogger("drsai.side_calls")

_SHARE: Final = 4
"""A user has at most this part of the places, rounded up."""
Finish: TypeAlias = Literal["stop", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class SideAnswer:
    """What the model has said; `usage` has prompt_tokens, completion_tokens and total_tokens."""

    text: str
    finish_reason: Finish
    usage: dict[str, int]


class SideCalls:
    """The side calls of one process.

    Args:
        models: makes the clients. Not closed here.
        settings: which prompts are housekeeping, which model answers them, how many at once and for how long.
        calls: stores them, for whoever counts.

    Raises:
        ConfigurationError: the rule cannot be used.
    """

    def __init__(self, models: ModelClientFactory, settings: Settings, calls: Calls) -> None:
        self._models = models
        self._calls = calls
        self._rule = Housekeeping(settings.housekeeping)
        self._settings = settings
        self._places = _Places(settings.tasks_at_once)

    def kind_of(self, messages: Sequence[InputMessage], said: bool | None = None) -> str | None:
        """Return what a conversation asks for, if it is housekeeping; `said`: whether it is, as the request itself
        says."""
        if said is not None:
            return (self._rule.kind_of(messages) or "other") if said else None
        return self._rule.kind_of(messages)

    async def ask(self, ask: Ask, who: Principal, kind: str, form: Mapping[str, object] | None = None) -> SideAnswer:
        """Ask the model what a request asks, with its parameters and its key. `form`: its `response_format`.

        Raises:
            RunFailed: the model has failed, or the time is over; `run_code` says which, and the text is safe to show.
            InvalidRequest: the key cannot be used.
            TooManyRequests: a limit is reached.
            SwitchedOff: an operator has switched off the model, the tenant or all.
        """
        if self._models.switches.off:  # What is off of a profile, the call finds out: it may have others.
            self._models.switches.check(who.tenant, "all", "")
        await self._calls.charge(Asked(who.owner, who.key_id))
        made: list[CallRecord] = []
        owner, meter, since = who.owner, UsageMeter(each=made.append, tenant=who.tenant), time.monotonic()
        code = "answered"
        try:
            async with asyncio.timeout(self._settings.task_seconds), self._places.of(owner):
                model = self._models.create(self._settings.task_model, ask.api_key)
                asker = Asker(owner, rules=self._models.rules, caches=False)
                client = RunModelClient(asking_for(model, asker), params=ask.params, meter=meter, rules=asker.rules)
                options = {} if form is None else {"extra_create_args": {"response_format": form}}
                result = await client.create(_as_model_messages(ask.messages), **options)
        except asyncio.CancelledError:
            code = "cancelled"
            raise
        except DrSaiError as error:
            code = error.code
            raise
        except Exception as error:
            code, text = safe_message(error)
            log.warning("housekeeping %r failed (%s)", kind, code, exc_info=error)
            raise RunFailed(f"the model could not answer ({kind}): {text}", run_code=code) from error
        finally:
            used = {"kind": kind, "user": owner.user_id, "tokens": meter.total_tokens, "result": code}
            log.info("side call", extra={**used, "duration": round(time.monotonic() - since, 3)})
            for each in made:  # Of one whose client went away as well.
                await self._calls.store(owner, kind, each)
        return SideAnswer(_text_of(result), _finish_of(result), meter.as_dict())


class _Places:
    """How many calls may be under way: of all users, and of each."""

    def __init__(self, total: int) -> None:
        self._each = -(-total // _SHARE)
        self._all = asyncio.Semaphore(total)
        self._of: dict[Owner, tuple[asyncio.Semaphore, list[None]]] = {}

    @asynccontextmanager
    async def of(self, owner: Owner) -> AsyncGenerator[None]:
        """A place; waits for one. Who has many calls waiting keeps nobody else from having theirs."""
        mine, waiting = self._of.setdefault(owner, (asyncio.Semaphore(self._each), []))
        waiting.append(None)
        try:
            async with mine, self._all:
                yield
        finally:
            waiting.pop()
            if not waiting:
                del self._of[owner]


def _as_model_messages(messages: Sequence[InputMessage]) -> list[LLMMessage]:
    found: list[LLMMessage] = []
    for each in messages:
        if each.is_empty:
            continue  # An answer that only called tools of the client's.
        if each.role == "system":
            found.append(SystemMessage(content=each.text))
        elif each.role == "assistant":
            found.append(AssistantMessage(content=each.text, source="assistant"))
        else:
            found.append(UserMessage(content=each.content, source="user"))
    return found


def _text_of(result: CreateResult) -> str:
    return result.content if isinstance(result.content, str) else ""


def _finish_of(result: CreateResult) -> Finish:
    return result.finish_reason if result.finish_reason in ("length", "content_filter") else "stop"
