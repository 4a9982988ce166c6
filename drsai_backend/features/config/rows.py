"""The rows of config are versions of an environment's settings, each the whole set: synchronous functions of a
`Session`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, TypeAlias

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.orm import Session

from drsai_backend.config.settings import ENVIRONMENT
from drsai_backend.database.documents import NOBODY, OF_ALL, Change, Documents, Version
from drsai_backend.database.locks import alone
from drsai_backend.database.pages import Cursor
from drsai_backend.datamodel import StoredConfig, table_of
from drsai_backend.datamodel.audit import Action, Actor
from drsai_backend.errors import Conflict
from drsai_backend.features.config.base import ConfigInfo
from drsai_backend.page import Page

_config = table_of(StoredConfig)
_PLACES: Final = (OF_ALL,)
Values: TypeAlias = Mapping[str, JsonValue]

configs: Final = Documents(
    table=_config,
    version=Version,
    noun="environment",
    article="an",
    listed=Cursor((_config.c.name,), ENVIRONMENT, newest_first=False),
    lock="config",
    created=Action.CONFIG_CHANGED,
    changed=Action.CONFIG_CHANGED,
    deleted=Action.CONFIG_DELETED,
    full="there are {} environments",
    most_versions=1_000,
    kept=timedelta(days=36_500),
    path="config",
)
"""Settings are few and small: their history is kept."""


def changed_of(environment: str) -> Callable[[Session, object], tuple[object, Values | None]]:
    """Return what reads what is stored for an environment, with what tells whether it changes; None: it is as it was
    known."""

    def changed(session: Session, known: object) -> tuple[object, Values | None]:
        those = (configs.are_of(OF_ALL), _config.c.name == environment, configs.is_served)
        version = session.connection().execute(sa.select(_config.c.id).where(*those)).scalar() or 0
        if version == known:
            return version, None
        return version, get_config(session, environment, None).values

    return changed


def get_config(session: Session, environment: str, version: int | None) -> ConfigInfo:
    """Return what is stored for an environment, or an older version of it. Raises NotFound: there is none such."""
    if version is None and _found(session, environment) is None:
        return ConfigInfo(environment=environment, version=0, values={})
    return _info(configs.get(session, _PLACES, environment, version))


def list_configs(session: Session, after: str | None, limit: int) -> Page[ConfigInfo]:
    """Return a page of environments, by name. Raises InvalidRequest where `after` is no `next`."""
    return configs.served(session, _PLACES, after, limit).map(_info)


def list_versions(session: Session, environment: str, after: str | None, limit: int) -> Page[ConfigInfo]:
    """Return a page of what was stored for an environment, newest first. Raises NotFound: nothing was, and
    InvalidRequest where `after` is no `next`."""
    return configs.versions(session, _PLACES, environment, after, limit).map(_info)


def set_config(session: Session, environment: str, said: Values, expected: int | None, actor: Actor) -> ConfigInfo:
    """Store other values beside those that are stored; null: none any more. Raises Conflict: what is stored is not the
    `expected` version."""
    before = _alone_with(session, environment, expected)
    values = {name: value for name, value in {**before.values, **said}.items() if value is not None}
    return _stored(session, before, values, actor)


def roll_back(session: Session, environment: str, to: int, expected: int | None, actor: Actor) -> ConfigInfo:
    """Store what an older version has. Raises NotFound: there is none, and Conflict as `set_config`."""
    before = _alone_with(session, environment, expected)
    older = configs.get(session, _PLACES, environment, to, param="to")
    return _stored(session, before, older.definition["values"], actor, to)


def delete_config(session: Session, environment: str, expected: int | None, actor: Actor) -> None:
    """Delete all versions of an environment. Raises NotFound: nothing is stored, and Conflict as `set_config`."""
    configs.delete(session, OF_ALL, environment, actor=actor, expected=expected)
    session.connection().execute(sa.delete(_config).where(_config.c.name == environment))


def _alone_with(session: Session, environment: str, expected: int | None) -> ConfigInfo:
    """Lock what is stored to the end of the transaction, and return it."""
    alone(session, configs.lock, NOBODY)
    there = get_config(session, environment, None)
    if expected is not None and expected != there.version:
        text = (
            f"environment {environment!r} is at version {there.version} now, not {expected}: look at what was changed"
        )
        raise Conflict(text, param="version")
    return there


def _stored(
    session: Session, before: ConfigInfo, values: Values, actor: Actor, restores: int | None = None
) -> ConfigInfo:
    """Store all values of an environment; nothing, where they are stored already."""
    names = sorted({**before.values, **values})
    changed = {name: values.get(name) for name in names if values.get(name) != before.values.get(name)}
    if not changed:
        return before
    definition = {"values": {**values}, "changed": changed, "restores": restores}
    action = Action.CONFIG_CHANGED if restores is None else Action.CONFIG_ROLLED_BACK
    by = actor.user_id or f"({actor.by.value})"
    change = Change(OF_ALL, before.environment, definition, by, actor, action=action)
    return _info(configs.store(session, change))


def _found(session: Session, environment: str) -> Version | None:
    return configs.find(session, _PLACES, [environment]).get(environment)


def _info(row: Version) -> ConfigInfo:
    return ConfigInfo(
        environment=row.name, version=row.version, set_at=row.created_at, set_by=row.created_by, **row.definition
    )
