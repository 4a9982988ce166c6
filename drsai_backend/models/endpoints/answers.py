"""Answers of endpoints say more than their text: what AutoGen's `CreateResult` has no place for, and what a run's calls
have used."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, cast

from autogen_core.models import CreateResult, RequestUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic import BaseModel

from drsai_backend.datamodel.run import shortened
from drsai_backend.errors import EndpointFailed
from drsai_backend.json_types import JsonObject
from drsai_backend.models.endpoints.bounded import DEFAULT, AnswerBounds, AnswerLength, bounded
from drsai_backend.net.bodies import Packed

if TYPE_CHECKING:
    from drsai_backend.models.answer import ModelCall

DETAILS: Final[dict[str, tuple[str, ...]]] = {
    "prompt_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "completion_tokens_details": ("reasoning_tokens", "accepted_prediction_tokens", "rejected_prediction_tokens"),
}
"""The details of usage that are counted, as `openai.types.CompletionUsage` has them."""
MAX_RECORDS: Final = 32
"""Calls of a run that are kept one by one."""
MOST_TOKENS: Final = 1 << 31
"""No call has so many."""
_ODD: Final = (LookupError, TypeError, AttributeError, ValueError, Packed)
"""What the packages raise at an answer that is not made as they expect."""
_DETAILS: Final = tuple(name for names in DETAILS.values() for name in names)


FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "tool_calls"]
"""Why an answer ended, as OpenAI names it."""
_REASONS: Final[dict[str, FinishReason]] = {"length": "length", "content_filter": "content_filter"}


def make_counts(usage: object, *names: str) -> None:
    """Have usage say 0, which is nothing, where what an endpoint has said is no count of tokens."""
    for name in names:
        said: object = getattr(usage, name, None)
        if said is not None:
            is_count = isinstance(said, int | float) and 0 <= said < MOST_TOKENS and said == int(said)
            setattr(usage, name, int(cast("float", said)) if is_count else 0)


class Finish(NamedTuple):
    """How the model call that gave an answer finished: why, and what the endpoint says of itself (None: nothing)."""

    reason: FinishReason = "stop"
    service_tier: str | None = None
    system_fingerprint: str | None = None

    def stored(self) -> dict[str, str] | None:
        """Return what `Run.finish` keeps: what is not usual; None: nothing."""
        tells = (("service_tier", self.service_tier), ("system_fingerprint", self.system_fingerprint))
        told = {name: value for name, value in tells if value is not None}
        return ({} if self.reason == "stop" else {"finish_reason": self.reason}) | told or None


@dataclass(slots=True)
class CallNotes:
    """What the endpoint has said of one call: `usage` has those of `DETAILS` that are not 0; `reported` the tokens of
    prompt and answer, and `lost` both of attempts that came to nothing, and of answers that were asked for again, where
    they were reported. `thoughts` are what its agent's model has thought in this run beside calls of tools, by the ids
    of the calls; they are sent back to an endpoint that wants them (`returns_thoughts`). `signed` are the thinking
    blocks of an answer of Anthropic's, and `signed_before` those of answers before it, by the ids of their calls: its
    endpoints want them back as they were."""

    bounds: AnswerBounds = DEFAULT
    thoughts: Mapping[str, str] = field(default_factory=dict[str, str])
    signed_before: Mapping[str, list[JsonObject]] = field(default_factory=dict[str, list[JsonObject]])
    usage: dict[str, int] = field(default_factory=dict[str, int])
    service_tier: str | None = None
    system_fingerprint: str | None = None
    reported: tuple[int, int] = (0, 0)
    lost: Counter[str] = field(default_factory=Counter[str])
    returns_thoughts: bool = False
    signed: list[JsonObject] = field(default_factory=list[JsonObject])
    asked: ModelCall | None = None
    """What was asked for last, as AutoGen has it."""
    sent: tuple[str, bytes] | None = None
    """The body that was sent for it, and whose form it has: `openai` or `anthropic`; None: its client does not say."""
    instead: bytes | None = None
    """A body that is sent in place of one that is made of what is asked for."""
    by: Mapping[str, str | int] = field(default_factory=dict[str, "str | int"])
    """Which profile is asked, of which model, and in which attempt, as `CallRecord` names them; empty: none is."""
    is_sent: bool = False
    """Whether its endpoint is asked by now: a profile's call may wait for that."""
    reason: FinishReason | None = None
    """Why the answer ended, where AutoGen's client does not know what its endpoint has said."""
    length: AnswerLength | None = None
    close_stream: Callable[[], Awaitable[None]] | None = None

    def begin(self) -> None:
        """A request is sent: its answer is measured anew."""
        self.length = AnswerLength(self.bounds)
        self.signed, self.reason = [], None

    def bounded(self, result: CreateResult) -> CreateResult:
        """The result with no more than it may have, and why it ended."""
        length, self.length = self.length, None
        if self.reason is not None and result.finish_reason == "unknown":
            result = result.model_copy(update={"finish_reason": self.reason})
        return bounded(result, self.bounds, over=length is not None and length.over)

    def whole_signed(self) -> list[JsonObject]:
        """The thinking blocks of the answer; none where what was thought is longer than a thought may be, and so is not
        whole. To be asked before `bounded`."""
        if not self.signed:
            return []
        text = "".join([text for block in self.signed for text in block.values()])
        is_cut = self.length is not None and self.length.is_thought_cut
        if is_cut or len(text.encode(errors="replace")) > self.bounds.thought:
            self.signed = []  # Also for the run's client, which asks after that of the attempt at a profile's model.
        return self.signed

    def spent(self, result: CreateResult) -> tuple[RequestUsage, Mapping[str, int]]:
        """Return what a call has used, and the details of it: of the answer, and of attempts before it as far as their
        endpoints have said it."""
        if not self.lost:
            return result.usage, self.usage
        lost = self.lost.copy()
        prompt = result.usage.prompt_tokens + lost.pop("prompt_tokens", 0)
        completion = result.usage.completion_tokens + lost.pop("completion_tokens", 0)
        lost.update(self.usage)
        return RequestUsage(prompt_tokens=prompt, completion_tokens=completion), {k: n for k, n in lost.items() if n}

    def unanswered(self, prompt: int, completion: int) -> tuple[RequestUsage, Mapping[str, int]]:
        """Return what a call without an answer has used, as far as endpoints have said it. `prompt`, `completion`: the
        estimates for what they did not say of the newest attempt."""
        asked, said = self.reported
        # Some say at the beginning how long the answer is so far.
        usage = RequestUsage(prompt_tokens=asked or prompt, completion_tokens=max(said, completion))
        return self.spent(CreateResult(finish_reason="unknown", content="", usage=usage, cached=False))

    def check_answer(self, error: BaseException | None) -> None:
        """Raise EndpointFailed where an error says that what an endpoint has answered is no answer."""
        if self.length is not None and isinstance(error, _ODD):
            raise EndpointFailed(f"The model endpoint's answer cannot be read ({type(error).__name__}).") from None

    async def close(self) -> None:
        """End an answer that is still streamed, and its request: AutoGen's client leaves that to the collector."""
        close, self.close_stream = self.close_stream, None
        if close is not None:
            await close()

    def failed(self) -> None:
        """The attempt came to nothing: what it has used counts, and the next one begins anew."""
        prompt, completion = self.reported
        self.lost.update({"prompt_tokens": prompt, "completion_tokens": completion, **self.usage})
        self.usage, self.reported, self.signed, self.is_sent = {}, (0, 0), [], False
        self.service_tier = self.system_fingerprint = None

    def asked_again(self) -> None:
        """The answer is none that can be used, and is asked for anew: what it has used counts."""
        self.failed()
        self.is_sent = not self.by  # A profile's call may wait once more.

    def finish(self, result: CreateResult) -> Finish:
        """Return how the call finished. An endpoint that does not say why counts as one that was done."""
        return Finish(_REASONS.get(result.finish_reason, "stop"), self.service_tier, self.system_fingerprint)

    def take(self, answer: ChatCompletion | ChatCompletionChunk) -> None:
        """Note what an answer, or a piece of one, says."""
        self.service_tier = answer.service_tier or self.service_tier
        self.system_fingerprint = answer.system_fingerprint or self.system_fingerprint
        if (usage := answer.usage) is not None:
            prompt, completion = usage.prompt_tokens, usage.completion_tokens
            if not (type(prompt) is type(completion) is int and 0 <= prompt < MOST_TOKENS > completion >= 0):
                make_counts(usage, "prompt_tokens", "completion_tokens")
            self.reported = (usage.prompt_tokens or 0, usage.completion_tokens or 0)
            for name, counted in DETAILS.items():
                details: BaseModel | None = getattr(usage, name, None)
                if details is not None:
                    found = {each: getattr(details, each, None) for each in counted}
                    self.usage |= {k: n for k, n in found.items() if type(n) is int and 0 < n < MOST_TOKENS}


class CallRecord(TypedDict, total=False):
    """One model call of a run, as `Run.calls` keeps it; what is 0 or not known is left out.

    `agent` and `step` say whose answer it was: `m0` is the first one of that agent in its turn. `model` answered, of
    that `profile` if it was one, after `attempts` calls. The tokens are named as in usage; those of attempts that came
    to nothing are in them where they were reported. `cached`: the answer came out of the response cache. `cut`: the
    call was cut off, or broke, before its answer was whole; its tokens are estimates where its endpoint has said none.
    """

    agent: str
    step: str
    profile: str
    model: str
    attempts: int
    cached: bool
    cut: bool
    seconds: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int


class AnsweredCall(CallRecord, total=False):
    """One model call of a run, as `UsageMeter.each` is told of it.

    `exchange`: what was sent and answered, packed by `models.calls.exchanges`, where it is to be kept.
    """

    exchange: bytes


Reserve: TypeAlias = Callable[[str, Callable[[], int], "int | None"], Awaitable["Callable[[bool], None] | None"]]
"""Takes the name of a model, what estimates the tokens of a prompt, and those of the longest answer; None: nobody says.
What it returns, if anything, is called at the end of the call, with whether there is an answer; what it raises ends the
run instead."""


@dataclass(slots=True)
class UsageMeter:
    """What the model calls of a run have used, over all its clients.

    A call that failed counts as far as its server has said what it used. So does one that was cut off, where what the
    server did not say is estimated, unless another process makes the call again (`is_made_again`). An answer without
    usage counts as a call of 0 tokens.

    Attributes:
        details: of `DETAILS`, what is not 0.
        finishes: by the name of an agent, how the call that gave its newest text finished.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    calls: int = 0
    details: dict[str, int] = field(default_factory=dict[str, int])
    finishes: dict[str, Finish] = field(default_factory=dict[str, Finish])
    thoughts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """By the name of an agent, what its model has thought beside calls of tools and is not told yet."""
    answered: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """By the name of an agent, which profile and model gave its newest answer, where a profile did."""
    records: deque[CallRecord] = field(default_factory=lambda: deque[CallRecord](maxlen=MAX_RECORDS))
    """The newest calls, those of earlier processes included."""
    short: deque[list[object] | Mapping[str, object]] = field(
        default_factory=lambda: deque[list[object] | Mapping[str, object]](maxlen=MAX_RECORDS)
    )
    """The same in their short form, which is stored again with each step of a turn."""
    each: Callable[[AnsweredCall], None] | None = field(default=None, compare=False, repr=False)
    """Called with every call that is counted."""
    keeps_exchanges: bool = field(default=False, compare=False, repr=False)
    """Whether `each` wants `exchange` in its records, where that can be had."""
    failed: Callable[[str, Exception], None] | None = field(default=None, compare=False, repr=False)
    """Called with the model and the error of a call that came to nothing."""
    check: Callable[[], None] | None = field(default=None, compare=False, repr=False)
    """Called before every model call of the run; what it raises ends the run instead."""
    tenant: str = field(default="", compare=False)
    """For whom models are asked; empty: it is not known."""
    reserve: Reserve | None = field(default=None, compare=False, repr=False)
    """Awaited before every model call of the run, with its model and what it may use (`Reserve`)."""
    reserves: Collection[str] = field(default=(), compare=False, repr=False)
    """For what: it is not asked where, and for as long as, there is nothing."""

    under_way: dict[object, Callable[[Any, bool], None]] = field(
        default_factory=dict[object, "Callable[[Any, bool], None]"], compare=False, repr=False
    )
    """Calls without an answer so far, and what counts them if none comes: the second argument says whether the call was
    cut off."""

    is_made_again: Callable[[], bool] | None = field(default=None, compare=False, repr=False)
    """Whether another process makes a call again that is cut off now: then nothing of it is estimated."""

    def cut_off(self) -> None:
        """Count the calls under way as cut off: the run is over here, and who has made them may be collected late."""
        while self.under_way:
            call, count = self.under_way.popitem()
            count(call, True)

    def add(self, usage: RequestUsage, details: Mapping[str, int] | None = None) -> None:
        """Count one finished call."""
        for name, count in (details or {}).items():
            self.details[name] = self.details.get(name, 0) + count
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.calls += 1

    def keep(self, call: CallRecord) -> None:
        """Make a call the newest one."""
        self.records.append(call)
        self.short.append(shortened(call))

    def start_from(self, usage: Mapping[str, int], calls: Iterable[CallRecord] | None = None) -> None:
        """Count on from what the run has used in other processes, that of recorded answers included."""
        for call in calls or ():
            self.keep(call)
        self.prompt_tokens += usage.get("prompt_tokens", 0)
        self.completion_tokens += usage.get("completion_tokens", 0)
        for name in _DETAILS:
            if count := usage.get(name):
                self.details[name] = self.details.get(name, 0) + count

    @property
    def total_tokens(self) -> int:
        """All tokens so far."""
        return self.prompt_tokens + self.completion_tokens

    def as_dict(self) -> dict[str, int]:
        """prompt_tokens, completion_tokens and total_tokens, as OpenAI names them, and the details that are not 0."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.total_tokens,
            **self.details,
        }


NOTES: Final[ContextVar[CallNotes | None]] = ContextVar("drsai_call_notes", default=None)
"""Those of the call that is being sent, where what its answer says goes, if its client notes it."""
