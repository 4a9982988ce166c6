"""What tests ask an engine, in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from drsai_backend.access.principal import Principal
from drsai_backend.catalog import Recipe
from drsai_backend.errors import UnknownModel
from drsai_backend.runs import Ask, How, InputMessage, Origin, Where
from drsai_backend.runs.requests import Admitted

Asked = tuple[Ask, Principal]
"""The arguments of `Engine.start`."""


def admitted(team: str, *given: Any, **values: Any) -> Admitted:
    """Return an input that was let in, to a team that is never built."""
    ask, who = asks(team, *given, **values)
    recipe = Recipe.gone(team, UnknownModel("it is never built"))
    return Admitted(ask, who, recipe, ask.where, ask.how.on_question)  # type: ignore[arg-type]


def asks(
    team: str,
    messages: Sequence[InputMessage] = (),
    principal: Principal | None = None,
    thread_id: str | None = None,
    **values: Any,
) -> Asked:
    """Return what is asked, and by whom; `values` are fields of an `Ask`, or of its parts."""
    given = {"thread_id": thread_id, **values}
    parts = {
        name: kind(**{each.name: given.pop(each.name) for each in fields(kind) if each.name in given})
        for name, kind in (("where", Where), ("how", How), ("origin", Origin))
    }
    return Ask(team, messages, **given, **parts), principal or Principal()
