"""What a run is asked to do, and the ids of what that makes: the contract between the engine and all who ask it."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, TypeAlias

from autogen_agentchat.messages import BaseChatMessage, MultiModalMessage
from autogen_core import FunctionCall, Image
from pydantic import SecretStr

from drsai_backend.access.principal import Principal
from drsai_backend.database.runs.reads import Seen
from drsai_backend.database.runs.values import Also
from drsai_backend.database.webhooks import Kind as WebhookKind
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import DrSaiError, InvalidRequest
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
    digits: list[str] = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))


def new_run_id() -> str:
    """`run_` and 18 characters: 9 of the time in milliseconds, so that ids sort by age, and 45 random bits.

    Short, because every message row carries it.
    """
    return f"run_{_base32(int(time.time() * 1000), 9)}{_base32(secrets.randbits(45), 9)}"


def run_ids_since(seconds: float) -> str:
    """What is less than the ids of all runs of the last so many seconds."""
    return f"run_{_base32(int((time.time() - seconds) * 1000), 9)}"


def new_thread_id() -> str:
    """`thread_` and 26 characters: 50 bits of time and 80 random ones. Knowing one tells nothing of others."""
    return f"thread_{_base32(int(time.time() * 1000), 10)}{_base32(secrets.randbits(80), 16)}"


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
    who of several users speaks.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str | list[str | Image]
    message: BaseChatMessage | None = None
    calls: Sequence[FunctionCall] = ()
    call_id: str | None = None
    name: str | None = None
    thought: str | None = None

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
class RunRequest:
    """A user input for a thread of `principal`, as whom it runs.

    `messages` is the conversation as the client sent it, oldest first, history included; the engine takes what follows
    the last message that the thread knows. `thread_id=None` starts a new thread with a generated id. `raw_messages` are
    the same messages in OpenAI's shape, stored in `UserInput.user_messages` from the same point on. With `background`
    the input is queued, and some worker runs it. `answer` answers a question by its id; then there are no messages.
    `on_question=None`: as the settings say. `limits` may only lower what the team is allowed. `owner` is the user whose
    thread it is, of the same tenant; None: it is the principal's own. `client_tools` are those that the client offers;
    None: the request says nothing of tools. `tool_results` are those of the calls that a run waits for, which it
    resumes; the history in `messages` ends with them. `repeated`: how often a client that repeats requests by itself
    has sent this one before, as far as it says so; None: it is no such client's. `digest` is what the engine then knows
    it by (`runs.intake.repeats`). `webhook_url`, of a background run, is told when it has ended or waits; None: the URL
    of the API key, if it has one. `webhook_kind` is what it is called there. `also` is done in the transaction that
    stores the request; of one that was served before, or joins another try, it is not. `fingerprint` says what makes it
    the same request as another one with its idempotency key; None: what it asks. `own_key`: where the client has named
    no key, what it is told is kept under this one, which nobody else knows. `continues`: the conversation ends with
    this answer, which is no more in `messages`, and the run's answer is that and what follows.

    A history that is known continues its thread, or a fork of it, unless `history` is "import". `resends`: the client
    sends the whole conversation with every request, so that a history without answers is one, too. `known` is for the
    engine. With `fork_of`, which is for programs that may read that thread, the new thread begins as that one was.
    `imported`: there are conversations that look like its history, and it cannot be told whether they are the same.
    `shown` says whose messages are the answer; None: as its form and the team have it (`teams.shown`).
    """

    team: str
    messages: Sequence[InputMessage]
    principal: Principal = field(default_factory=Principal)
    thread_id: str | None = None
    params: ModelParams = field(default_factory=ModelParams)
    api_key: SecretStr | None = None
    stream: bool = False
    n: int | None = None
    extra: JsonObject = field(default_factory=dict)
    raw_messages: Sequence[JsonObject] = ()
    idempotency_key: str | None = None
    on_busy: OnBusy = "enqueue"
    on_question: OnQuestion | None = None
    background: bool = False
    answer: Answer | None = None
    limits: RunLimits = NO_LIMITS
    owner: str | None = None
    repeated: int | None = None
    digest: str | None = None
    client_tools: ClientTools | None = None
    tool_results: Sequence[ToolOutput] = ()
    history: UseOfHistory = "continue"
    resends: bool = False
    known: KnownHistory | None = None
    fork_of: ForkOf | None = None
    webhook_url: str | None = None
    webhook_kind: WebhookKind = "run"
    also: Also | None = None
    fingerprint: str | None = None
    own_key: str | None = None
    continues: str | None = None
    imported: bool = False
    shown: ShownChoice | None = None

    @property
    def name(self) -> ThreadName:
        """What finds the thread, which has an id by now."""
        assert self.thread_id is not None
        whose = self.principal.owner if self.owner is None else Owner(self.principal.tenant, self.owner)
        return whose.thread(self.thread_id)

    @property
    def author(self) -> str | None:
        """Who sends it, where the thread is another user's; kept in the metadata of its messages."""
        return None if self.owner in (None, self.principal.user_id) else self.principal.user_id
