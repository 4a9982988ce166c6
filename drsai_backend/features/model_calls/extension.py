"""`ModelCalls` is the feature: model calls of runs are kept, where that is asked for, listed, and sent again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from drsai_backend.database.retention import time_before
from drsai_backend.errors import ConfigurationError, DrSaiError, InvalidRequest, RunFailed
from drsai_backend.features.base import Host, RoutedExtension, each_hour, end

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from drsai_backend.database.backends.prepared import Step
    from drsai_backend.database.hooks import CallsOf, MadeCall
    from drsai_backend.datamodel.owner import Owner
    from drsai_backend.features.model_calls.base import CallDetail, ModelCall
    from drsai_backend.json_types import JsonObject
    from drsai_backend.page import Page
    from drsai_backend.runs import Engine

log = logging.getLogger("drsai.calls")


class ModelCalls(RoutedExtension):
    """Model calls of runs, with what the models were sent and have answered where that is kept."""

    name = "model_calls"

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._pruning: asyncio.Task[None] | None = None
        settings = host.settings
        folded = settings.usage_days or settings.calls_keep_days
        if self.is_on and not (settings.usage and folded >= settings.calls_keep_days):
            raise ConfigurationError(
                "DRSAI_CALLS_KEEP needs calls that are counted: leave DRSAI_USAGE on, DRSAI_USAGE_DAYS unset or not "
                "below DRSAI_CALLS_KEEP_DAYS"
            )

    @property
    def is_on(self) -> bool:
        """Whether anything is kept (`DRSAI_CALLS_KEEP`)."""
        return bool(self.host.settings.calls_keep)

    # --- verbs --------------------------------------------------------------------------------------------------------

    async def list(self, owner: Owner, run_id: str, after: str | None = None, limit: int = 20) -> Page[ModelCall]:
        """Return a page of the model calls of a run of a user's, in the order of their answers.

        Args:
            owner: whose thread the run is on.
            run_id: the run.
            after: `next` of the page before.
            limit: how many at most.

        Raises:
            NotFound: the user has no such run.
            InvalidRequest: `after` is no `next` of such a list.
        """
        from drsai_backend.features.model_calls.rows import list_calls

        return await self.host.database.read(lambda session: list_calls(session, owner, run_id, after, limit))

    async def get(self, owner: Owner, run_id: str, call_id: str) -> CallDetail:
        """Return a model call of a run of a user's. Raises NotFound."""
        from drsai_backend.features.model_calls.rows import get_call

        return await self.host.database.read(lambda session: get_call(session, owner, run_id, call_id))

    async def replay(
        self, call: CallDetail, owner: Owner, model: str | None = None, system: str | None = None
    ) -> JsonObject:
        """Send the request of a call again. Tools are offered and not executed, and nothing is stored but what the call
        has used, as of the kind `replay`.

        Args:
            call: the call, as `get` returns it.
            owner: who is said to have used it.
            model: a profile, or a model of the default endpoint, in place of the one that has answered.
            system: in place of the system message that the request begins with, or before its messages.

        Returns:
            The `request`, the `model` that was asked, and its `answer`, as AutoGen's result.

        Raises:
            InvalidRequest: the request is not kept as a whole, or is of another form than the model's requests.
            SwitchedOff: an operator has switched off the model, the owner's tenant or all.
            RunFailed: the model has failed; `run_code` says how.
        """
        from drsai_backend.models.calls.exchanges import ask_again, changed
        from drsai_backend.runs.failures import safe_message

        models, since = self.host.models, time.monotonic()
        if call.form is None or models is None:
            raise InvalidRequest(call.reason or "there are no models here", param="call_id")
        asked = model or (call.profile if call.profile in models.profiles.profiles else call.model)
        client = models.create(asked)
        # Of a profile its own model, and no other one in its place.
        client = getattr(client, "continuing_client", lambda: client)()
        name: str | None = getattr(client, "_create_args", {}).get("model", model)
        for each in filter(None, (asked, name)) if models.switches.off else ():
            models.switches.check(owner.tenant, "model", each)
        request = changed(call.model_dump(), system, model and name)
        try:
            answer, notes = await ask_again(client, call.form, request)
        except DrSaiError:
            raise
        except Exception as error:
            # An endpoint's client may raise anything.
            code, text = safe_message(error)
            raise RunFailed(f"the model could not answer: {text}", run_code=code) from error
        used = {**vars(answer.usage), **notes.usage, "seconds": round(time.monotonic() - since, 3), "model": name}
        await self.host.calls.store(owner, "replay", used)
        return {"request": request, "model": name, "answer": answer.model_dump(mode="json")}

    async def prune(self, older_than: timedelta) -> int:
        """Delete what was kept of calls that are older, in parts; return of how many. The calls stay listed. Raises
        InvalidRequest where `older_than` reaches back before the first year."""
        from drsai_backend.features.model_calls.rows import prune

        before, total = time_before(older_than), 0
        while deleted := await self.host.database.write(partial(prune, before=before)):
            total += deleted
        return total

    # --- hooks --------------------------------------------------------------------------------------------------------

    def wants_exchanges(self, team: str) -> bool:
        """Keep those of all teams, or of some."""
        return not {"*", team}.isdisjoint(self.host.settings.calls_keep)

    def calls_made(self, of: CallsOf, calls: Sequence[MadeCall]) -> Sequence[Step]:
        """Keep the calls of which it is told what was sent."""
        from drsai_backend.features.model_calls.rows import insert_call

        shared = {"run_id": of.run_id, "epoch": of.epoch, "tenant": of.owner.tenant}
        return [
            (insert_call, {**shared, "number": each.number, "at": each.at, "data": data})
            for each in calls
            if (data := each.record.get("exchange")) is not None
        ]

    def export_user(self, session: Session, owner: Owner) -> Iterable[tuple[str, bytes]]:
        """Return what is kept of a user's calls, a file each."""
        from drsai_backend.features.model_calls.rows import files_of

        return files_of(session, owner)

    async def open(self, engine: Engine) -> None:
        """Delete what was kept for long enough (`DRSAI_CALLS_KEEP_DAYS`), where calls are kept."""
        if self.is_on:
            prune = partial(self.prune, timedelta(days=self.host.settings.calls_keep_days))
            self._pruning = asyncio.create_task(each_hour(prune, log, "model calls are kept no longer"))

    async def close(self) -> None:
        await end(self._pruning)
