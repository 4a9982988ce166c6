"""Model calls beside runs (titles, embeddings, extraction) are charged and stored here, by the features that count
them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from drsai_backend.database.backends.prepared import Step, due, pay, run_guarded
from drsai_backend.database.engine import Database
from drsai_backend.database.hooks import NO_HOOKS, Asked, CallsOf, Hooks, MadeCall
from drsai_backend.datamodel import utcnow
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import DatabaseError

log = logging.getLogger("drsai.calls")


class Calls:
    """Stores model calls that were made beside runs."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._hooks = NO_HOOKS

    def start(self, hooks: Hooks) -> None:
        """Have `hooks` store them from now on; until then nobody does."""
        self._hooks = hooks

    async def charge(self, asked: Asked) -> None:
        """Charge a request that begins no run. Raises what a feature does that refuses it."""
        if dues := due(self._hooks.charges(asked), 0, ""):
            await self._database.write(lambda session: pay(session.connection(), dues), short=True)

    def statements(self, owner: Owner, kind: str, record: Mapping[str, object]) -> list[Step]:
        """Return what stores a call, for a transaction that stores what has come of it.

        Args:
            owner: for whom it was made.
            kind: what for: one word of at most 16 characters.
            record: what is known of it, as `drsai_backend.models.endpoints.answers.CallRecord` has it.
        """
        return self._hooks.of_calls(CallsOf(owner, kind), [MadeCall(0, utcnow(), record)])

    async def store(self, owner: Owner, kind: str, record: Mapping[str, object]) -> None:
        """Store a call. Where the database cannot, the call is lost, as the log says: its answer is not.

        Args:
            owner: for whom it was made.
            kind: what for: one word of at most 16 characters.
            record: what is known of it, as `drsai_backend.models.endpoints.answers.CallRecord` has it.
        """
        if not (steps := self.statements(owner, kind, record)):
            return
        try:
            await self._database.write(lambda session: run_guarded(session.connection(), None, steps, is_last=True))
        except DatabaseError as error:
            log.warning("a model call (%s) is not counted: %s", kind, error.message)
