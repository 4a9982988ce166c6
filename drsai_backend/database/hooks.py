"""Hooks are storage functions of features that are part of a transaction of the core: the end of a run, the deletion of
a user. What has none of them runs no line of this module.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from typing import Final, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.backends.errors import RACES, sqlstate_of, translate
from drsai_backend.database.backends.prepared import Charge, Step
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.owner import Owner, ThreadName
from drsai_backend.errors import DatabaseUnavailable
from drsai_backend.json_types import JsonObject

log = logging.getLogger("drsai.extensions")


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended, or its part in a process.

    Attributes:
        name: the thread.
        thread_key: its number.
        run_id: the run. What else is known of it, its row says, in the same transaction.
        epoch: with the run it names this end, also of a run that ends again after a retry.
        status: `is_final`: it is over; else it waits for a person, or is paused.
    """

    name: ThreadName
    thread_key: int
    run_id: str
    epoch: int
    status: RunStatus


class MadeCall(NamedTuple):
    """A model call that was answered.

    Attributes:
        number: of the call in its process, among those of its run.
        at: when the answer was there.
        record: what is known of it, as `drsai_backend.models.endpoints.answers.AnsweredCall` has it; `exchange` in it,
            where somebody wants that (`Hooks.exchanges`), is packed by `drsai_backend.models.calls.exchanges`.
        tool: the tool that has asked; None: none has.
    """

    number: int
    at: datetime
    record: Mapping[str, object]
    tool: str | None = None


@dataclass(frozen=True, slots=True)
class CallsOf:
    """Whose model calls are stored, and what they were made for.

    Attributes:
        owner: who asked.
        kind: `run`, or what a call beside runs is for.
        epoch: with the run and a call's number it names the call.
        turn: the thread's turn under way.
        key_id: the API key that the run was asked for with.
        thread: where the run is, on whosever thread.
    """

    owner: Owner
    kind: str = "run"
    team: str | None = None
    thread_id: str | None = None
    run_id: str | None = None
    epoch: int = 0
    turn: int | None = None
    key_id: str | None = None
    thread: ThreadName | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that asks a model, and is about to be stored.

    Attributes:
        owner: who asks.
        key_id: with which API key; None: with none.
        tokens: estimates what the first model call of its run uses; None: it begins and resumes none, but asks for a
            title, or for embeddings.
        thread: where its run is; None: on a new one.
    """

    owner: Owner
    key_id: str | None
    tokens: Callable[[], int] | None = None
    thread: ThreadName | None = None


Charged: TypeAlias = Callable[[Asked], "Charge | None"]
CallsMade: TypeAlias = Callable[[CallsOf, Sequence[MadeCall]], Sequence[Step]]
RunEnded: TypeAlias = Callable[[Session, EndedRun], None]
Draw: TypeAlias = Callable[[str, int, "int | None"], Awaitable[Callable[[bool], None]]]
"""Draws what a model call may use, before it is made: by the model's name, the estimated tokens of its prompt and those
of the longest answer, None where nobody says. What it returns is called at the end of the call, with whether there is
an answer. Raises BudgetReached: it is not to be made."""
Drawn: TypeAlias = Callable[[Owner, "str | None", ThreadName, str], "Draw | None"]
UserDeleted: TypeAlias = Callable[[Session, Owner], int]
KeysDeleted: TypeAlias = Callable[[Session, Owner, Sequence[str]], None]
FileDeleted: TypeAlias = Callable[[Session, Owner, str], None]
Wanting: TypeAlias = Callable[[str], bool]
ToolGiven: TypeAlias = Callable[[Session, Owner, str, JsonObject], None]
ExportUser: TypeAlias = Callable[[Session, Owner], Iterable[tuple[str, bytes]]]


@dataclass(frozen=True, slots=True)
class Hooks:
    """What features do in transactions of the core, by their names; only those that do anything.

    Attributes:
        run_ended: is called in the last write of a run.
        user_deleted: deletes some of what is a user's, and returns how many of what it counts.
        export_user: files of a user's, names and contents, for their archive.
        file_deleted: forgets what was made of a file of a user's, by its id.
        tool_given: looks at a tool that a request gives to its agent, by its name and arguments.
        calls_made: returns statements that store model calls.
        charged: returns what a request is charged, if anything.
        exchanges: say of a team whether `calls_made` is to have what its models are sent and answer.
        drawn: returns what draws the model calls of a run, if anything. Features come and go in it.
        keys_deleted: forget what there is of a user's API keys, by their ids.
        tables: tables of features whose rows belong to a user, by their columns `tenant` and `user_id`.
    """

    run_ended: Mapping[str, RunEnded] = field(default_factory=dict[str, RunEnded])
    user_deleted: Mapping[str, UserDeleted] = field(default_factory=dict[str, UserDeleted])
    export_user: Mapping[str, ExportUser] = field(default_factory=dict[str, ExportUser])
    tables: Sequence[sa.Table] = ()
    file_deleted: Mapping[str, FileDeleted] = field(default_factory=dict[str, FileDeleted])
    tool_given: Mapping[str, ToolGiven] = field(default_factory=dict[str, ToolGiven])
    calls_made: Mapping[str, CallsMade] = field(default_factory=dict[str, CallsMade])
    charged: Mapping[str, Charged] = field(default_factory=dict[str, Charged])
    exchanges: Sequence[Wanting] = ()
    drawn: Mapping[str, Drawn] = field(default_factory=dict[str, Drawn])
    keys_deleted: Sequence[KeysDeleted] = ()

    def charges(self, asked: Asked) -> Sequence[Charge]:
        """Return what a request is charged, by all. Raises what one does that refuses it."""
        made = (hook(asked) for hook in self.charged.values())
        return [each for each in made if each is not None]

    def check_given(self, session: Session, owner: Owner, tools: JsonObject) -> None:
        """Call `tool_given` of all for each of the tools, by their names. Raises what one of them does."""
        for (name, arguments), hook in product(tools.items(), self.tool_given.values()):
            hook(session, owner, name, arguments)

    def of_calls(self, of: CallsOf, calls: Sequence[MadeCall]) -> list[Step]:
        """Return what stores model calls, by all: statements of the write that stores what their run has used. What one
        of the hooks raises is logged, and its statements are missing."""
        found: list[Step] = []
        for name, hook in self.calls_made.items() if calls else ():
            try:
                found += hook(of, calls)
            except Exception:
                # Foreign code may raise anything, and the run is to be stored.
                log.exception("the extension %s has missed model calls", name)
        return found

    def tell_end(self, session: Session, ended: EndedRun) -> None:
        """Call `run_ended` of all, each in a savepoint of its own: what one raises undoes what that one has written,
        is logged, and nothing else. What the whole transaction would be repeated for is raised."""
        names = {"run_id": ended.run_id, "thread_id": ended.name.thread_id}
        for name, hook in self.run_ended.items():
            with apart(session, f"the extension {name} has missed the end of a run", **names):
                hook(session, ended)


@contextmanager
def apart(session: Session, missed: str, **names: str) -> Generator[None]:
    """Have what is raised here undo what was written here, and be logged as what was `missed`, with `names`. What the
    whole transaction would be repeated for is raised."""
    try:
        with session.begin_nested():
            yield
    except Exception as error:
        # Foreign code may raise anything. A database that is away, or a deadlock, is no fault of its.
        if isinstance(translate(error), DatabaseUnavailable) or sqlstate_of(error) in RACES:
            raise
        log.exception(missed, extra=names)


NO_HOOKS: Final = Hooks()
