"""Admission decides whether an input is let in, before anything of its thread is read."""

from __future__ import annotations

from dataclasses import dataclass

from drsai_backend.access.principal import Principal
from drsai_backend.catalog import Catalog
from drsai_backend.config import Settings
from drsai_backend.errors import InvalidRequest
from drsai_backend.runs.requests import Admitted, Ask, thread_of_key
from drsai_backend.teams.limits import NO_LIMITS
from drsai_backend.webhooks.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class Admission:
    """Lets inputs in, for one engine."""

    _catalog: Catalog
    _webhooks: Webhooks
    _settings: Settings

    async def admit(self, ask: Ask, who: Principal) -> Admitted:
        """Find the team of an input, and check what it asks of the server.

        Raises:
            UnknownModel, TeamBuildError: of the team.
            InsufficientScope, Forbidden: who asks may not ask that team, or may not name a `webhook_url`.
            InvalidRequest: fields do not go together, or more is asked for than the server allows.
        """
        where, how, url, tools = ask.where, ask.how, ask.origin.webhook_url, ask.client_tools
        if where.thread_id is not None:
            thread = where.name_of(who)
        else:  # Another try may have made it: its run keeps the team that it began with.
            key = ask.origin.key
            thread = None if key is None else who.owner.thread(thread_of_key(who.owner, key))
        recipe = await self._catalog.find(who, ask.team, thread)
        if how.limits != NO_LIMITS:
            recipe.limits.check(how.limits)
        if url is not None:
            if not how.background:
                text = "`webhook_url` is for runs of the background: say `background: true`"
                raise InvalidRequest(text, param="webhook_url")
            await self._webhooks.check(who, url)
        if how.background and how.on_busy != "enqueue":
            text = f"`on_busy: {how.on_busy}` cannot be combined with `background`, whose inputs wait in the queue"
            raise InvalidRequest(text, param="on_busy")
        if tools is not None and not tools.is_of_agent and recipe.client_tools.mode == "refuse":
            raise InvalidRequest(f"model {ask.team!r} takes no tools of its clients: leave them out", param="tools")
        if ask.continues is not None and how.background:
            text = "an answer is not continued in the background: leave `background` out"
            raise InvalidRequest(text, param="background")
        return Admitted(ask, who, recipe, where, how.on_question or self._settings.on_question)
