"""The rows of switches are what is switched off; those whose time is over are none, and go with the next change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.access.switchboard import Target
from drsai_backend.database import followed
from drsai_backend.database.audit import audit, newest_by
from drsai_backend.database.locks import alone
from drsai_backend.database.pages import Cursor, given
from drsai_backend.datamodel import Switch, table_of, utcnow
from drsai_backend.datamodel.audit import Action, Actor, By
from drsai_backend.datamodel.switches import is_moved, is_of_move
from drsai_backend.errors import Conflict, Forbidden
from drsai_backend.features.switches.base import SwitchInfo
from drsai_backend.json_types import JsonObject
from drsai_backend.page import Page

_switch = table_of(Switch)
_list: Final = Cursor((_switch.c.id,))
MOST: Final = 10_000
"""How many switches a tenant's operators switch off: all processes read and know all of them."""


def changed(session: Session, known: object) -> tuple[object, Sequence[JsonObject] | None]:
    """Return all that is off, with what tells whether it changes; None: it is as it was `known`."""
    return followed.changed(session, known, _switch, _is_off())


def list_switches(session: Session, tenant: str | None, after: str | None, limit: int) -> Page[SwitchInfo]:
    """Return a page of what is off, the newest first. Raises InvalidRequest where `after` is no `next`."""
    query = sa.select(_switch).where(_is_off(), *given((tenant, _switch.c.tenant.__eq__)))
    return _list.page(session, query, after, limit).map(_info)


def switch_off(session: Session, target: Target, message: str, until: datetime | None, actor: Actor) -> SwitchInfo:
    """Switch something off, in place of how it was before. Raises Forbidden as `switch_on` does, and Conflict where a
    user does it, and `MOST` are off in the tenant already."""
    connection = session.connection()
    _check_own(session, target, actor)
    connection.execute(sa.delete(_switch).where(sa.or_(_of(target), sa.not_(_is_off()))))
    if actor.by is By.USER:
        of_tenant = sa.select(sa.func.count()).where(_switch.c.tenant == target.tenant)
        if connection.execute(of_tenant).scalar_one() >= MOST:
            raise Conflict(f"{MOST} switches are off in tenant {target.tenant!r} already: switch some on")
    row = {**target._asdict(), "message": message, "until": until, "at": utcnow()}
    made = connection.execute(sa.insert(_switch).values(**row).returning(*_switch.c)).mappings().one()
    detail = {"message": message, "until": None if until is None else until.isoformat()}
    audit(session, actor, Action.SWITCHED_OFF, _subject(target), target.tenant or None, detail=detail)
    return _info(dict(made))


def switch_on(session: Session, target: Target, actor: Actor) -> bool:
    """Switch something on, also a tenant that is moved. False: it is on. Raises Forbidden: the server's operator has
    switched it off, or a move of the tenant has, and the actor is one of the API's."""
    _check_own(session, target, actor)
    which = sa.or_(_of(target), is_of_move(target.name)) if target.kind == "tenant" else _of(target)
    if not session.connection().execute(sa.delete(_switch).where(which, _is_off())).rowcount:
        return False
    audit(session, actor, Action.SWITCHED_ON, _subject(target), target.tenant or None)
    return True


def _check_own(session: Session, target: Target, actor: Actor) -> None:
    """Raise Forbidden where a user is about to change what none of the API has switched off; nobody changes a switch
    meanwhile. The row does not say who has, but the audit log: what it does not know any more is the server's."""
    alone(session, "switches")
    if actor.by is not By.USER:
        return
    connection, what = session.connection(), f"the {_subject(target)} cannot be switched here"
    if target.kind == "tenant" and connection.execute(sa.select(is_moved(target.name))).scalar():
        raise Forbidden(f"{what}: it is being moved to another database")
    if connection.execute(sa.select(_switch.c.id).where(_of(target), _is_off())).first() is None:
        return
    if newest_by(session, Action.SWITCHED_OFF, _subject(target), target.tenant) is not By.USER:
        raise Forbidden(f"{what}: the server's operator has switched it off")


def _is_off() -> sa.ColumnElement[bool]:
    return sa.or_(_switch.c.until.is_(None), _switch.c.until > utcnow())


def _of(target: Target) -> sa.ColumnElement[bool]:
    return sa.and_(*(_switch.c[name] == value for name, value in target._asdict().items()))


def _subject(target: Target) -> str:
    return f"{target.kind} {target.name}".strip()


def _info(row: JsonObject) -> SwitchInfo:
    return SwitchInfo.model_validate({**row, "set_at": row["at"]})
