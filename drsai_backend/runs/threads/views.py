"""Views are what is shown of stored threads and runs, by the API, the command line and `DrSai`: small read models.

`runs.threads.queries` reads them.
"""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from drsai_backend.datamodel import Right, RunStatus, Thread
from drsai_backend.datamodel.file import MessageFile
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page
from drsai_backend.runs.events import Position


class ThreadSummary(BaseModel):
    """A thread as a list shows it, with the `status` of its latest run. Times are aware and in UTC."""

    thread_id: str
    title: str | None = Field(default=None, description="The first words of the first user message.")
    status: RunStatus
    team: str | None = Field(default=None, description="Model id of the team that ran last.")
    created_at: datetime
    updated_at: datetime
    message_count: int = Field(
        default=0, description="All that are stored, events such as tool calls and branches that were left included."
    )


class ThreadDetail(ThreadSummary):
    """A thread with everything short that is known of it; its messages and state are read apart."""

    error_message: str | None = Field(default=None, description="Why its latest run failed; safe to show.")
    input_request: JsonObject | None = Field(default=None, description="What a person is asked, when it waits.")
    team_result: JsonObject | None = Field(default=None, description="The `TeamResult` of its latest run.")
    tasks: list[JsonObject] | JsonObject | None = Field(
        default=None,
        description="The plans of the latest run, with the statuses of their steps; or what a program has stored.",
    )
    meta: JsonObject | None = Field(default=None, description="For programs of one's own.")
    run_id: str | None = Field(default=None, description="The latest run.")
    control: str | None = Field(default=None, description="What the live run is asked to do and has not done yet.")
    queued: int = Field(default=0, description="User inputs that wait for the live run to end.")
    branch: int | None = Field(default=None, description="The current branch; null: the thread was never rewound.")
    forked_from: JsonObject | None = Field(
        default=None, description="Of a fork: `user_id` and `thread_id` of its source, and `seq`, its newest message."
    )
    position: str | None = Field(
        default=None, description="Where its log stands: `after` of who has read its messages and follows its events."
    )
    right: Right | None = Field(
        default=None, description="Where one thread is read that somebody else shares: what they may do who read it."
    )


class RunView(BaseModel):
    """A run as it is shown. `status` is CREATED while its input waits in the queue. Times are aware and in UTC."""

    run_id: str
    thread_id: str
    team: str = Field(description="The name that it is served under.")
    status: RunStatus
    attempt: int = Field(default=1, description="1, and one more for each time that another worker had to take it up.")
    background: bool = Field(default=False, description="Whether it was queued for whichever process has time.")
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    usage: dict[str, int] | None = Field(default=None, description="Tokens so far, in all processes.")
    calls: list[JsonObject] | None = Field(
        default=None,
        description="Its newest model calls, oldest first, as `drsai_backend.models.CallRecord`; null: none.",
    )
    stop_reason: str | None = Field(default=None, description="Why it ended.")
    stop_code: str | None = Field(default=None, description="The bound that ended it, e.g. `max_turns`.")
    finish_reason: str | None = Field(
        default=None, description="Once it is over: why the model call that gave its last answer ended; see `RunEnded`."
    )
    turns: int = Field(default=0, description="Turns that are stored, those of nested teams included.")
    seconds: float = Field(default=0.0, description="For how long it ran; waiting does not count.")
    limits: JsonObject | None = Field(default=None, description="The bounds that its request asked for.")
    error_message: str | None = Field(default=None, description="Why it failed; safe to show.")
    error_detail: str | None = Field(
        default=None, description="What was raised: its class and text, keys masked. For admins, of one run."
    )
    input_request: JsonObject | None = Field(
        default=None, description="The question that it waits for, also where another run asked it."
    )
    queued_behind: str | None = Field(
        default=None, description="While its input waits in the queue: the thread's run, which is not over."
    )
    joined: str | None = Field(
        default=None, description="The run that took this one's input up: steered by it, or answered."
    )
    first_seq: int = Field(default=0, description="`seq` of its first message; 0: it has none yet.")
    last_seq: int = 0


RunPage = Page[RunView]  # The name of earlier releases.


ThreadPage = Page[ThreadSummary]  # The name of earlier releases.


class InputRequestView(BaseModel):
    """A question that waits for a person. `input_request` is what the thread says of it."""

    thread_id: str
    run_id: str
    team: str | None = Field(default=None, description="The name that it is served under.")
    title: str | None = Field(default=None, description="That of the thread.")
    owner: str = Field(description="The user whose thread it is.")
    input_request: JsonObject


InputRequestPage = Page[InputRequestView]  # The name of earlier releases.


class SharedThread(ThreadSummary):
    """A thread that another user shares with the one who asks."""

    owner: str = Field(description="The user whose thread it is.")
    right: Right = Field(description="What they may do with it.")


SharedThreadPage = Page[SharedThread]  # The name of earlier releases.


class ShareView(BaseModel):
    """With whom a thread is shared: a user (`with_user`), or all of the tenant who have a role (`with_role`)."""

    with_user: str | None = None
    with_role: str | None = None
    right: Right = Field(description="What they may do with it.")
    created_at: datetime
    created_by: str = Field(description="The user who shared it, or changed the right last.")


class StoredMessage(BaseModel):
    """A message of a thread, of the agent `source` and AutoGen's class `type`. `content` is its text form, `message`
    the full AutoGen dump."""

    seq: int
    id: str | None = Field(default=None, description="AutoGen's message id.")
    source: str
    type: str
    content: str
    created_at: datetime
    run_id: str | None = None
    shown: bool | None = Field(default=None, description="Whether a chat window shows it; null: not known.")
    files: list[MessageFile] = Field(
        default_factory=list, description="What the user has sent with it by `file_id` or URL, or tools have made."
    )
    message: JsonObject


def detail_of(thread: Thread) -> ThreadDetail:
    """A thread row, as the manager gives it, as shown."""
    shown = ThreadDetail.model_validate(thread, from_attributes=True)
    shown.message_count = thread.last_seq
    shown.tasks, shown.meta = shown.tasks or None, shown.meta or None
    shown.position = str(Position(thread.last_seq, thread.epoch))
    return shown
