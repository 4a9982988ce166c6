"""A trial is the stored state of a thread, loaded into its team as it is now, and nothing is run: before a deployment
it tells which threads the next request would find in order."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final, NamedTuple

from drsai_backend.access.principal import Principal
from drsai_backend.database.runs.reads import ThreadHead, heads_after, read_state
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import DrSaiError
from drsai_backend.runs.start.build import build_team_of
from drsai_backend.runs.start.read import Services
from drsai_backend.state.store import decode_stored
from drsai_backend.teams.context import RunContext
from drsai_backend.teams.resources import HeldResources
from drsai_backend.teams.session import TeamSession

_AT_ONCE: Final = 100
"""Threads whose names are read at a time; their states are read one by one."""
_LONGEST: Final = 300


class Trial(NamedTuple):
    """What came of one thread.

    Attributes:
        thread: its name.
        team: the team that it is of.
        wrong: why its state cannot be loaded; None: it can.
        left_out: what of the state the team has no place for any more.
    """

    thread: ThreadName
    team: str
    wrong: str | None = None
    left_out: Sequence[str] = ()


async def try_threads(services: Services) -> AsyncGenerator[Trial]:
    """Try all threads that have a state, in the order in which they were made. Each team is built as for a run, by its
    factory, and no model is asked."""
    after = 0
    while heads := await services.db.database.read(lambda session, after=after: heads_after(session, after, _AT_ONCE)):
        after = heads[-1].key
        for head in heads:
            if head.team is not None and head.last_seq > 0:
                yield await _try(services, head, head.team)


async def _try(services: Services, head: ThreadHead, team: str) -> Trial:
    name, held = ThreadName(head.tenant, head.user_id, head.thread_id), HeldResources()
    try:
        stored = await services.db.database.read(lambda session: read_state(session, head.line))
        document = decode_stored(stored)
        if document is None:
            return Trial(name, team)
        who = Principal(head.user_id, head.tenant)
        recipe = await services.catalog.find(who, team, name)
        tree = await build_team_of(services, recipe, _context(services, who, name), held)
        session = TeamSession(tree.team, next_seq=head.last_seq + 1, known=tree)
        await session.prepare()
        try:
            return Trial(name, team, None, await session.load(document, stored.configs))
        finally:
            session.close()
    except (DrSaiError, ValueError) as error:  # ValueError: what AutoGen says of a state that is none of its own.
        said = error.message if isinstance(error, DrSaiError) else f"{type(error).__name__}: {error}"
        cause = f" ({error.__cause__})" if error.__cause__ is not None else ""
        return Trial(name, team, " ".join(f"{said}{cause}".split())[:_LONGEST])
    finally:
        services.resources.release(held)


def _context(services: Services, who: Principal, name: ThreadName) -> RunContext:
    return RunContext(
        who,
        thread_id=name.thread_id,
        run_id="",
        input_values={},
        db_manager=services.db.of_tenant(who.tenant),
        models=services.models,
        owner=name.owner,
        files=services.files,
        tools=services.tools,
        settings=services.settings,
        own_tools=services.own_tools,
        sources=services.sources,
        mcp=services.mcp,
    )
