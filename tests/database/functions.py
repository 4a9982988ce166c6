"""Storage functions, to be given to a `Database`."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from drsai_backend.datamodel import UserInput


def add(name: str) -> Any:
    def fn(session: Session) -> str:
        session.add(UserInput(user_id="u", thread_id=name))
        return name

    return fn


def names(session: Session) -> list[str]:
    return sorted(session.scalars(sa.select(UserInput.thread_id)))


def pause(session: Session, seconds: float) -> None:
    """Waits where a storage function may: on PostgreSQL it runs in the event loop's thread."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(sa.text(f"SELECT pg_sleep({seconds})"))
    else:
        time.sleep(seconds)


def boom(session: Session) -> None:
    add("boom")(session)
    session.flush()
    raise KeyError("boom")


def duplicate(session: Session) -> None:
    add("same")(session)
    session.flush()
    add("same")(session)
