"""Permissions of a team are the scopes and roles of those who may ask it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.datamodel.audit import By
from drsai_backend.errors import Forbidden, InsufficientScope

_ROLE: Final = "role:"
_FORM: Final = re.compile(r"role:\S(.{0,126}\S)?")


def wrong_permissions(given: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield those that can be given to nobody: place and sentence."""
    for index, each in enumerate(given):
        if each not in set(Scope) and _FORM.fullmatch(each) is None:
            yield index, f"must be a scope ({', '.join(Scope)}), or `role:` and the name of a role, and is {each!r}"


def lacks(who: Principal, permissions: Iterable[str]) -> str | None:
    """The first that somebody lacks, of whom all are asked for. A program and the command line are trusted."""
    if who.by is not By.USER:
        return None
    for each in permissions:
        has = each in who.names if each.startswith(_ROLE) else each in set(Scope) and who.may(Scope(each))
        if not has:
            return each
    return None


def check_permissions(who: Principal, name: str, permissions: Iterable[str]) -> None:
    """Raise InsufficientScope or Forbidden where somebody may not ask the team of that name."""
    missing = lacks(who, permissions)
    if missing is None:
        return
    if missing.startswith(_ROLE):
        text = f"model {name!r} is for the role {missing.removeprefix(_ROLE)!r}, which you do not have"
        raise Forbidden(text, param="model")
    raise InsufficientScope(f"model {name!r} needs the scope `{missing}`", scope=missing, param="model")
