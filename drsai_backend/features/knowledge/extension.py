"""`Knowledge` is the feature: its verbs, `drsai.extension(Knowledge).search(…)`, its jobs and its routes."""

from __future__ import annotations

from collections.abc import Sequence

from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.agents import ForAgents
from drsai_backend.features.knowledge.base import Findings, Question, StoreInfo


class Knowledge(ForAgents):
    """Stores of users, with files that are searched. What another user has does not exist here (NotFound); a store
    that is shared with the tenant is found by all of its users."""

    name = "knowledge"

    async def resolve(self, owner: Owner, names: Sequence[str]) -> list[StoreInfo]:
        """Return stores by their names or ids, in order: the user's own of a name go before those of the tenant.

        Raises:
            NotFound: there is none of that name, or its time is over; the text names it.
            InvalidRequest: there are several of the same name; the text has their ids.
        """
        raise NotImplementedError

    async def search(self, owner: Owner, stores: Sequence[str], question: Question) -> Findings:
        """Search stores, named as in `resolve`, as if they were one. Without an embedding model, or where its endpoint
        gives no answer, it is by keywords alone, and the findings say so.

        Raises:
            NotFound, InvalidRequest: as `resolve`; or the question cannot be asked.
        """
        raise NotImplementedError
