"""Stored definitions are those of agents and teams that came over the API: synchronous functions of a `Session`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.database.documents import Documents, Identity, Version
from drsai_backend.database.owned import of_thread
from drsai_backend.database.pages import Cursor
from drsai_backend.datamodel import Run, StoredDefinition, Thread, table_of
from drsai_backend.datamodel.audit import Action
from drsai_backend.datamodel.lifecycle import UNFINISHED
from drsai_backend.datamodel.owner import Owner, ThreadName

_definition = table_of(StoredDefinition)
_run = table_of(Run)
_thread = table_of(Thread)


@dataclass(frozen=True, slots=True)
class DefinitionVersion(Version):
    """A version of a definition. `restores` is the older version that it is equal to, if it was made of one."""

    restores: int | None


definitions: Final = Documents(
    table=_definition,
    version=DefinitionVersion,
    noun="agent",
    article="an",
    listed=Cursor(
        (_definition.c.name, _definition.c.id),
        r"^[A-Za-z_][A-Za-z0-9_]{0,63}\.[0-9]{1,18}$",
        join=".",
        newest_first=False,
    ),
    lock="definitions",
    created=Action.AGENT_CREATED,
    changed=Action.AGENT_UPDATED,
    deleted=Action.AGENT_DELETED,
    told=("restores",),
    full="there are {} definitions",
    has_history=True,
    is_used=sa.exists().where(_run.c.definition == _definition.c.id, _run.c.status.in_(UNFINISHED)),
)
"""A version is kept while a run that is not over began with it."""


def known_names(session: Session, keys: Collection[tuple[Owner, str]]) -> dict[tuple[Owner, str], bool]:
    """Return, of somebody and a name each, those where they may use a definition of that name, or might when a run
    began that is not over: it may wait for an answer, which is sent to that name."""
    found: dict[tuple[Owner, str], bool] = {}
    is_known = sa.or_(definitions.is_served, definitions.is_used)
    for who, name in keys:
        theirs = (definitions.are_of(*definitions.places(who)), _definition.c.name == name)
        if session.connection().execute(sa.select(sa.exists().where(*theirs, is_known))).scalar():
            found[who, name] = True
    return found


def by_id(session: Session, key: int) -> DefinitionVersion | None:
    """A version by its key, whether it is served or not."""
    return next(iter(definitions.rows(session, _definition.c.id == key)), None)


def of_unfinished_run(session: Session, thread: ThreadName, team: str) -> DefinitionVersion | None:
    """The definition that the run of a thread began with, if it is not over and its team has that name."""
    begun = sa.select(_run.c.definition).join(_thread, _thread.c.run_id == _run.c.run_id)
    begun = begun.where(*of_thread(_thread, thread), _run.c.team == team, _run.c.status.in_(UNFINISHED))
    return next(iter(definitions.rows(session, _definition.c.id == begun.scalar_subquery())), None)


def list_identities(session: Session, places: Collection[Owner], limit: int) -> dict[Identity, int]:
    """The definitions of these places that are served, and their keys."""
    d = _definition.c
    query = sa.select(d.tenant, d.user_id, d.name, d.version, d.created_at, d.id)
    rows = session.connection().execute(query.where(definitions.are_of(*places), definitions.is_served).limit(limit))
    return {(Owner(row[0], row[1]), row[2], row[3], row[4]): row[5] for row in rows}


def by_ids(session: Session, keys: Collection[int]) -> list[DefinitionVersion]:
    """The versions of these keys, as far as they are there."""
    return definitions.rows(session, _definition.c.id.in_(keys))
