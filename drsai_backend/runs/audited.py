"""Audited acts of runs are that a gateway started one as somebody else, and who has answered what with which decision.
An ordinary run costs no row.

A gateway that acts as a user leaves one entry per run that it starts, in the transaction that stores the input; what it
reads leaves none. Answers, deletions and the like have entries of their own, which name it, too.
"""

from __future__ import annotations

from collections.abc import Sequence

from drsai_backend.database.audit import audit_step
from drsai_backend.database.backends.prepared import Step
from drsai_backend.datamodel.audit import Action
from drsai_backend.runs.requests import Placed
from drsai_backend.teams.messages import UserInputReceivedEvent


def started_as(given: Placed, run_id: str) -> Sequence[Step]:
    """The entry of a new run that one user's key starts as another user; of any other run none."""
    who = given.who
    if who.acted_by is None:
        return ()
    return (audit_step(who.actor, Action.RUN_STARTED_AS, run_id, given.name, {"team": given.ask.team}),)


def answered(given: Placed, run_id: str | None, received: UserInputReceivedEvent | None) -> Sequence[Step]:
    """The entry of an answer: who gave it, to which question, and what was decided. The text of an answer is not in it;
    `received` is None where a run is resumed without one."""
    if received is None:
        return ()
    question = received.input_request
    detail = {"run_id": run_id, "decision": received.decision, "reason": received.reason}
    if (tool := question.get("tool")) is not None:
        detail["tool"] = tool["name"]
    return (audit_step(given.who.actor, Action.INPUT_ANSWERED, str(question.get("id")), given.name, detail),)
