"""Asking puts a question of the model to the person who talks to the thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.function import tool
from drsai_backend.tools.marks import check_approvers
from drsai_backend.tools.running import ToolRun

MAX_QUESTION = 4_000
"""Characters of a question."""
MAX_CHOICES = 20
_Choice = Annotated[str, Field(min_length=1, max_length=200)]


def ask_person(
    *,
    deadline: timedelta | float | None = None,
    by: str | None = None,
    not_by: Literal["asker"] | None = None,
) -> ToolBase:
    """A tool that asks the person who talks to the thread, and gives their answer as its result.

    The run ends as one that waits for input, as with an approval: no process waits, and whichever finds the answer
    continues the run, the model not being asked again.

    Args:
        deadline: how long an answer is waited for, a number being seconds; then the run is stopped. None: for ever.
        by: who may answer, and nobody else: a user (`user:bob`) or a role (`role:treasurer`) of the thread's tenant.
            Default: the owner of the thread, and with whom it is shared.
        not_by: `"asker"`: not the user who asked the team.

    Raises:
        ConfigurationError: `by` or `not_by` names nobody, or the deadline is not in the future.
    """
    check_approvers(by, not_by)
    patience = timedelta(seconds=deadline) if isinstance(deadline, int | float) else deadline
    if patience is not None and patience <= timedelta():
        raise ConfigurationError("deadline: a person needs more than no time to answer")

    # A call that was cut has asked, and done nothing else.
    @tool(name="ask_person", idempotent=True)
    async def ask(
        question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)],
        run: ToolRun,
        choices: Annotated[Sequence[_Choice], Field(max_length=MAX_CHOICES)] | None = None,
    ) -> str:
        """Ask the person you work for a question, and wait for the answer. Use it where you cannot decide without them.

        Args:
            question: what you want to know, complete: they may not see what you did before
            choices: the answers that are accepted, where it is one of a few; leave it out for any answer
        """
        return run.ask(question, choices=list(choices) if choices else None, deadline=patience, by=by, not_by=not_by)

    return ask
