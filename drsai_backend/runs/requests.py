"""Requests say what a run is asked to do, and have the ids of what that makes: the contract between the engine and all
who ask it."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias

from autogen_agentchat.messages import BaseChatMessage, MultiModalMessage
from autogen_core import FunctionCall, Image
from pydantic import SecretStr

from drsai_backend.access.principal import Principal
from drsai_backend.catalog import Recipe
from drsai_backend.database.backends.prepared import Charge
from drsai_backend.database.runs.reads import Seen
from drsai_backend.database.runs.values import StoredWithRequest
from drsai_backend.database.webhooks import Kind as WebhookKind
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import DrSaiError, InvalidRequest
from drsai_backend.estimates import estimate_text
from drsai_backend.json_types import JsonObject
from drsai_backend.models import ModelParams
from drsai_backend.state.travel import Place
from drsai_backend.teams.client_tools.definitions import ClientTools, ToolOutput
from drsai_backend.teams.limits import NO_LIMITS, RunLimits
from drsai_backend.teams.shown import ShownChoice

if TYPE_CHECKING:
    from drsai_backend.runs.history.digest import Conversation

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32, https://www.crockford.com/base32.html


def _base32(number: int, length: int) -> str:
    return "".join([_ALPHABET[number >> 5 * place & 31] for place in reversed(range(length))])


def new_run_id() -> str:
    """`run_` and 18 characters: 9 of the time in milliseconds, so that ids sort by age, and 45 random bits.

    Short, because every message row carries it.
    """
    return f"run_{_base32(int(time.time() * 1000) << 45 | secrets.randbits(45), 18)}"


def run_ids_since(seconds: float) -> str:
    """Return what is less than the ids of all runs of the last so many seconds."""
    return f"run_{_base32(int((time.time() - seconds) * 1000), 9)}"


def new_thread_id() -> str:
    """`thread_` and 26 characters: 50 bits of time and 80 random ones. Knowing one tells nothing of others."""
    return f"thread_{_base32(int(time.time() * 1000) << 80 | secrets.randbits(80), 26)}"


def thread_of_key(owner: Owner, key: str) -> str:
    """The id of the new thread of a request with an idempotency key: the same for each of its tries."""
    text = "\0".join((*owner, key))
    return f"thread_{hashlib.sha256(text.encode()).hexdigest()[:26]}"


OnBusy: TypeAlias = Literal["enqueue", "reject", "interrupt", "steer", "rollback"]
"""What becomes of a user input whose thread has a live run: it waits for the end, is refused, ends the run at once and
is run then, is handed to all agents of the run at its next turn boundary, or takes the place of the run's own input:
the run is ended, and its thread goes back to where it was before."""


OnQuestion: TypeAlias = Literal["wait", "answer"]
"""What a user input that waits in the queue is to a question that a run asks meanwhile: it was written before the
question, so it waits on; or it is the answer."""

UseOfHistory: TypeAlias = Literal["continue", "import"]
"""What an earlier conversation in a request is: a point of one that is stored, which continues, or texts for a thread
that does not know them."""

Task: TypeAlias = str | BaseChatMessage | Sequence[BaseChatMessage]
"""The user's new message: text, or chat messages of any type."""


@dataclass(frozen=True, slots=True)
class InputMessage:
    """One message of a request. `role` is OpenAI's; `content` is text, or text parts and images in order.

    `message`: it is this AutoGen message, which the team is given as it is, and `content` only says what is in it. Such
    messages are all new to the thread, whatever it knows. `calls` are those of the client's tools in an assistant's
    message, `thought` is what was thought beside them; a `tool`'s message is the result of the call `call_id`. `name`:
    who of several users speaks. `noted`: the files that came with it, as metadata (`datamodel.file.to_note`).
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[str | Image]
    message: BaseChatMessage | None = None
    calls: Sequence[FunctionCall] = ()
    call_id: str | None = None
    name: str | None = None
    thought: str | None = None
    noted: Mapping[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def of(cls, message: BaseChatMessage) -> Self:
        """The input that is an AutoGen message."""
        content = message.content if isinstance(message, MultiModalMessage) else message.to_text()
        return cls("user", content, message)

    @classmethod
    def of_task(cls, task: Task) -> list[Self]:
        """The inputs that a task of `DrSai.run` is. They hold copies, which do not change with the caller's objects.

        Raises:
            InvalidRequest: it is empty, or something else.
        """
        if isinstance(task, str):
            return [cls("user", task)]
        if not isinstance(task, BaseChatMessage | Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            # In AutoGen, None continues what was stopped.
            text = f"a task is text or chat messages, not {type(task).__name__}: to continue, say so ('Continue.')"
            raise InvalidRequest(text, param="task")
        messages = [task] if isinstance(task, BaseChatMessage) else list(task)
        if not messages:
            raise InvalidRequest("the task is empty", param="task")
        for message in messages:
            if not isinstance(message, BaseChatMessage):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidRequest(f"a task is text or chat messages, not {type(message).__name__}", param="task")
        return [cls.of(message.model_copy()) for message in messages]

    @property
    def text(self) -> str:
        """The text parts, joined by a blank line."""
        if isinstance(self.content, str):
            return self.content
        return "\n\n".join(part for part in self.content if isinstance(part, str))

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing, as an answer that only called tools."""
        return self.message is None and isinstance(self.content, str) and not self.content.strip()


@dataclass(frozen=True, slots=True)
class Answer:
    """A person's answer to an input request, by its id.

    `content` answers a question. An approval is answered by a `decision` ("approve", "deny" with a `reason`, "edit"
    with the `arguments` to call the tool with), a tool call that may have happened by "run", "result" with the result
    as `content`, or "stop". Calls of the client's tools are answered by their `results`, all of them at once.
    """

    request_id: str
    content: str | None = None
    decision: str | None = None
    reason: str | None = None
    arguments: JsonObject | None = None
    results: Sequence[ToolOutput] | None = None


@dataclass(frozen=True, slots=True)
class NoAnswer(Answer):
    """What an approval gets that nobody has answered in time: the call is denied."""


@dataclass(frozen=True, slots=True)
class KnownHistory:
    """What was found out of a request's history (`runs.history`): its messages from index `new_from` on are new to the
    thread, answers among them included, and `conversation` is all that its client has. `seen`: where the thread
    was for which this is true; None: nobody else knows the thread yet. `systems` are the messages of the
    system, by index. `newest`: no query has chosen the thread; the first write must find that this point, which the
    request's history ends at, is the thread's, and that no newer one is equal to it. `by_words`: the client has named
    no thread, so that a system message which it does not send any more holds no more. `hidden` are the thread's hidden
    words (`runs.history.hidden`); None: they are not known."""

    new_from: int
    conversation: Conversation
    seen: Seen | None
    systems: Sequence[int]
    newest: bytes | None = None
    by_words: bool = False
    hidden: frozenset[bytes] | None = None


class ForkOf(NamedTuple):
    """What a new thread begins as: another one, as it was at a place. `problem`: why it cannot; raised where the
    request joins no other try of it."""

    source: ThreadName
    place: Place
    problem: DrSaiError | None = None


@dataclass(frozen=True, slots=True)
class Where:
    """Whose thread an input is for.

    Attributes:
        thread_id: None: a new thread, with an id that is made up.
        owner: the user whose thread it is, of the same tenant; None: it is one's own.
        fork_of: the new thread begins as that one was; for programs that may read it.
        known: what was found out of the request's history. For the engine.
        imported: there are conversations that look like the history, and it cannot be told whether they are the same.
            For the engine.
    """

    thread_id: str | None = None
    owner: str | None = None
    fork_of: ForkOf | None = None
    known: KnownHistory | None = None
    imported: bool = False

    def owner_of(self, who: Principal) -> Owner:
        """The owner of the thread of who asks."""
        return who.owner if self.owner is None else Owner(who.tenant, self.owner)

    def name_of(self, who: Principal) -> ThreadName:
        """Return what finds the thread, which has an id by now."""
        assert self.thread_id is not None
        return ThreadName(who.tenant, self.owner or who.user_id, self.thread_id)


@dataclass(frozen=True, slots=True)
class How:
    """How an input is served.

    Attributes:
        on_busy: what becomes of it where a run is live on its thread.
        on_question: None: as the settings say.
        background: it is queued, and some worker runs it.
        limits: what the run may use; they may only lower what the team is allowed.
    """

    on_busy: OnBusy = "enqueue"
    on_question: OnQuestion | None = None
    background: bool = False
    limits: RunLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Origin:
    """What a request is known again by, and who is told of its run.

    Attributes:
        key: its idempotency key.
        own_key: where the client has named no key, what it is told is kept under this one, which nobody else knows.
        fingerprint: what makes it the same request as another one with its key; None: what it asks.
        repeated: how often a client that repeats requests by itself has sent this one before, as far as it says so;
            None: it is no such client's.
        webhook_url: is told when a run of the background has ended or waits; None: the URL of the API key, if it has
            one.
        webhook_kind: what the run is called there.
        also: is done in the transaction that stores the request; of one that was served before, or joins another try,
            it is not.
    """

    key: str | None = None
    own_key: str | None = None
    fingerprint: str | None = None
    repeated: int | None = None
    webhook_url: str | None = None
    webhook_kind: WebhookKind = "run"
    also: StoredWithRequest | None = None


@dataclass(frozen=True, slots=True)
class Ask:
    """What somebody asks a team.

    Attributes:
        team: its name.
        messages: the conversation as the client sent it, oldest first, history included; the engine takes what follows
            the last message that the thread knows.
        raw_messages: the same in OpenAI's shape, stored in `UserInput.user_messages` from the same point on.
        params: the parameters of the model calls.
        api_key: the client's own, for its models.
        stream: the answer is shown as it comes.
        n, extra: fields of the request that are kept with it.
        client_tools: those that the client offers; None: the request says nothing of tools.
        tool_results: those of the calls that a run waits for, which it resumes; the history in `messages` ends with
            them.
        answer: answers a question by its id; then there are no messages.
        continues: the conversation ends with this answer, which is no more in `messages`, and the run's answer is that
            and what follows.
        shown: whose messages are the answer; None: as its form and the team have it (`teams.shown`).
        history: a history that is known continues its thread, or a fork of it, unless this is "import".
        resends: the client sends the whole conversation with every request, so that a history without answers is one,
            too.
        trace: of an input that was stored, the span that it belongs to (`log_context.trace`).
        where: the thread.
        how: how it is served.
        origin: what it is known again by.
    """

    team: str
    messages: Sequence[InputMessage] = ()
    raw_messages: Sequence[JsonObject] = ()
    params: ModelParams = field(default_factory=ModelParams)
    api_key: SecretStr | None = None
    stream: bool = False
    n: int | None = None
    extra: JsonObject = field(default_factory=dict)
    client_tools: ClientTools | None = None
    tool_results: Sequence[ToolOutput] = ()
    answer: Answer | None = None
    continues: str | None = None
    shown: ShownChoice | None = None
    history: UseOfHistory = "continue"
    resends: bool = False
    trace: str | None = None
    where: Where = Where()
    how: How = How()
    origin: Origin = Origin()


def estimate(ask: Ask) -> int:
    """Estimate the tokens of the first model call of what is asked: those of its messages, and of the longest answer
    that it allows, where it says one."""
    return sum(estimate_text(each.text) for each in ask.messages) + (ask.params.max_tokens or 0)


@dataclass(frozen=True, slots=True)
class Admitted:
    """An input that was let in.

    Attributes:
        ask: what is asked.
        who: who asks, and as whom it runs.
        recipe: the team.
        where: the thread: as it is asked, with what was found out of it since.
        on_question: as `How.on_question`, or as the settings say.
        digest: what the request of a client that repeats its requests by itself is known by (`runs.intake.repeats`).
        charges: what it is charged where it is stored.
    """

    ask: Ask
    who: Principal
    recipe: Recipe
    where: Where
    on_question: OnQuestion
    digest: str | None = None
    charges: Sequence[Charge] = ()

    def but(self, **changes: object) -> Self:
        """Return the same with other fields of what is asked."""
        return replace(self, ask=replace(self.ask, **changes))

    def at(self, **found: object) -> Self:
        """Return the same with what was found of its thread: other fields of its `Where`."""
        return replace(self, where=replace(self.where, **found))

    @property
    def name(self) -> ThreadName:
        """What finds the thread, which has an id by now."""
        return self.where.name_of(self.who)


@dataclass(frozen=True, slots=True)
class ResumeOptions:
    """How a run is resumed.

    Attributes:
        attempt: 1 where its worker was lost.
        retries: the deaths in the turn after `retry_turn`.
        control: what it is asked to do at once.
        ran: for how many seconds it ran since it stored anything.
        is_suspect: it is handed over once it has come through a turn.
    """

    attempt: int = 0
    retries: int = 0
    retry_turn: int | None = None
    control: str | None = None
    ran: float = 0.0
    is_suspect: bool = False


@dataclass(frozen=True, slots=True)
class Placed:
    """An input on its thread, which is to be run.

    Attributes:
        ask, who, recipe, on_question, digest, charges: as admitted; a stored run that is resumed was, too.
        name: what finds the thread.
        known: what was found out of the request's history.
        is_new: the thread's id was just made up.
        queued: the run_id of an input that comes from the queue.
        answers: it is what the thread's run asks for.
        resume: how a run is resumed.
    """

    ask: Ask
    who: Principal
    recipe: Recipe
    name: ThreadName
    known: KnownHistory | None = None
    on_question: OnQuestion = "wait"
    digest: str | None = None
    is_new: bool = False
    queued: str | None = None
    answers: bool = False
    resume: ResumeOptions = ResumeOptions()
    charges: Sequence[Charge] = ()

    @property
    def author(self) -> str | None:
        """Who sends it, where the thread is another user's; kept in the metadata of its messages."""
        return None if self.name.user_id == self.who.user_id else self.who.user_id
