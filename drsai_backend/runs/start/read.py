"""Read takes what is stored of a thread, as far as the start of a run needs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import cast

from sqlalchemy.orm import Session

from drsai_backend.catalog import Catalog
from drsai_backend.config import Settings
from drsai_backend.database import DatabaseManager
from drsai_backend.database.hooks import Hooks
from drsai_backend.database.runs.history import which_are_shown
from drsai_backend.database.runs.reads import (
    RunRow,
    StoredState,
    ThreadHead,
    is_thread,
    read_run,
    read_state,
    users_joined,
)
from drsai_backend.database.runs.steps import read_steps
from drsai_backend.database.runs.values import StepRow
from drsai_backend.database.runs.whole import read_whole
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.encrypted import texts_of
from drsai_backend.datamodel.lifecycle import UNFINISHED
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.files import Files
from drsai_backend.json_types import JsonObject
from drsai_backend.models import ModelClientFactory
from drsai_backend.runs.feed.live_run import Watcher
from drsai_backend.runs.history.digest import Conversation
from drsai_backend.runs.history.stored import read_conversation
from drsai_backend.runs.requests import Placed
from drsai_backend.runs.warm import WarmThread, WarmThreads
from drsai_backend.teams.imported import Role, imported_among
from drsai_backend.teams.messages import aside_of, is_received
from drsai_backend.teams.recall import RecallSource
from drsai_backend.teams.resources import Resources
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.mcp.host import McpHost
from drsai_backend.tools.registered.registry import ToolRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What an engine starts its runs with.

    Attributes:
        worker_id: the process's, in leases.
        lease: for how long one holds.
        settings: those of the server; teams that are built read them, too.
        catalog: finds the team of a run that has begun.
        resources: what teams hold open.
        files, tools: those of users, and the registered ones of tenants.
        own_tools: those of extensions, by name.
        sources: what extensions recall for agents, by their names.
        mcp: the operator's MCP servers, and the connections to all.
        hooks: are told of the ends of runs.
        watchers: are told what runs of this process tell.
        on_events: is called when events for webhooks may be there.
        may_move: a thread may go over to another team.
        is_worker: False: it starts none, and finds out before what there is to be refused.
    """

    db: DatabaseManager
    models: ModelClientFactory
    settings: Settings
    catalog: Catalog
    warm: WarmThreads
    worker_id: str
    lease: timedelta
    resources: Resources
    files: Files
    tools: ToolRegistry
    own_tools: Mapping[str, ToolBase]
    sources: Mapping[str, RecallSource]
    mcp: McpHost
    hooks: Hooks
    watchers: Sequence[Watcher]
    on_events: Callable[[], None]
    may_move: bool
    is_worker: bool


@dataclass(frozen=True, slots=True)
class StoredThread:
    """What is stored of a thread. `state=None`: the warm state stands for it. `run` is the row of one that is not over;
    `user_texts` are the user's newest, oldest first, `conversation` what its client has. `steered_by`:
    of a question that who asked may not answer, the users whose messages the run took up after it had begun. `shown`:
    of a thread of another team, by number whether a message is shown. `imported`: the dumps of messages that were said
    elsewhere, each with its role."""

    head: ThreadHead
    user_texts: list[str]
    system_text: str | None
    state: StoredState | None
    run: RunRow | None = None
    steps: Sequence[StepRow] = ()
    warm: WarmThread | None = None
    steered_by: frozenset[str] = frozenset()
    conversation: Conversation | None = None
    shown: Mapping[int, bool | None] = field(default_factory=dict[int, bool | None])
    imported: Sequence[tuple[Role, JsonObject]] = ()

    @property
    def is_known(self) -> bool:
        """Whether anything was said on it. Of one that was rewound, nothing may be left."""
        return self.head.last_seq > 0 if self.state is None else bool(self.state.configs)

    @property
    def has_answers(self) -> bool:
        """Whether answers were loaded into it that no turn has taken up."""
        return any(role in ("assistant", "calls") for role, _ in self.imported)


async def read(services: Services, given: Placed, *, trust_warm: bool) -> StoredThread | None:
    """The thread, warm or from the database; None: it does not exist."""
    name = given.name
    warm = services.warm.take(name)
    # Of a run that is resumed, its row is wanted, too.
    if warm is not None and trust_warm and warm.head.status is not RunStatus.AWAITING_INPUT:
        # Believed for now: the first write is guarded by this head.
        return StoredThread(
            warm.head, warm.user_texts, warm.system_text, None, warm=warm, conversation=warm.conversation
        )
    database = services.db.database
    # Most threads that this process does not know are new, which costs no hop to find out. A PostgreSQL is far.
    if database.dialect == "sqlite" and not await database.read(lambda session: is_thread(session, name), short=True):
        return None
    texts = len(given.ask.messages)
    # What is known of a history tells the conversation, too.
    has_history = given.known is not None
    reads = read_thread if database.text_keys is None else _read_own
    return await database.read(lambda session: reads(session, name, texts, given.ask.team, has_history))


def _read_own(
    session: Session, name: ThreadName, texts: int, team: str, has_history: bool = False
) -> StoredThread | None:
    """`read_thread`, where texts are encrypted: refuse those of another tenant."""
    with texts_of(name.tenant):
        return read_thread(session, name, texts, team, has_history)


def read_thread(
    session: Session, name: ThreadName, texts: int, team: str, has_history: bool = False
) -> StoredThread | None:
    """Read everything about a thread in one go, with that many of the user's texts, and unless `has_history` the
    conversation as a client of `team` has it; None: it does not exist."""
    whole = read_whole(session, name)
    if whole is None:
        return None
    head = whole.head
    is_unfinished = head.status in UNFINISHED and head.run_id is not None
    run = read_run(session, head.run_id or "") if is_unfinished else None
    asks_others = run is not None and (head.input_request or {}).get("not_by") is not None
    steered_by = frozenset(users_joined(session, head) if asks_others else ())
    # Of a run that is over as well: somebody may have ended it by hand.
    steps = read_steps(session, head.key) if whole.has_steps else ()
    state = whole.state or read_state(session, head.line)
    # Clients' system messages that were stored before there was a mark are part of the conversation.
    imported = imported_among(state.configs.values())
    prompt = next((config for role, config in reversed(imported) if role == "system"), None)
    return StoredThread(
        head,
        _newest_user_texts(state, texts),
        None if prompt is None else _text(prompt),
        state,
        run,
        steps,
        steered_by=steered_by,
        conversation=None if has_history else read_conversation(session, head, team, whole.point)[0],
        shown={} if head.team in (None, team) else which_are_shown(session, head.line),
        imported=imported,
    )


def _newest_user_texts(state: StoredState, limit: int) -> list[str]:
    found: list[str] = []
    for config in reversed(state.configs.values()):
        if len(found) == limit:
            break
        if config.get("source") == "user" and not is_received(config) and aside_of(config) is None:
            found.append(_text(config))
    return found[::-1]


def _text(config: Mapping[str, object]) -> str:
    content = config.get("content")
    if isinstance(content, list):
        return "\n\n".join(part for part in cast("list[object]", content) if isinstance(part, str))
    return str(content)
