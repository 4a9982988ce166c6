"""A server of the release before deletes a user beside today's: what it does not know of goes with the housekeeping."""

from __future__ import annotations

from pathlib import Path

import httpx
import sqlalchemy as sa

from drsai_backend import DrSai
from drsai_backend.database import migrations
from drsai_backend.datamodel import KnowledgeStore, MemoryPerson, SearchIndex, StoredMemory, WorkJob, table_of
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.base import NewFile, NewStore
from drsai_backend.features.knowledge.extension import Knowledge
from drsai_backend.features.memory.base import NewMemory
from drsai_backend.features.memory.extension import Memory
from tests.chaos.rollout import REVISION
from tests.support import invariants
from tests.support.commands import Commands
from tests.support.model_server import ModelServer
from tests.support.threads import LATE, settings

ANN, BOB = Owner("default", "ann"), Owner("default", "bob")


async def test_what_it_leaves_of_a_user_goes(before: Commands, database_url: str, tmp_path: Path) -> None:
    migrations.downgrade(database_url, REVISION)
    with ModelServer() as model:
        told = {"DRSAI_DATABASE_URL": database_url, "OPENAI_BASE_URL": model.base_url, "OPENAI_API_KEY": "k"}
        server = before.start("serve", "--port", "0", cwd=tmp_path, env=told)
        async with httpx.AsyncClient(base_url=server.base_url(), timeout=60) as http:
            migrations.upgrade(database_url)
            async with DrSai({}, database_url, settings=settings(**LATE)) as drsai:
                for owner in (ANN, BOB):
                    await drsai.extension(Memory).add(owner, NewMemory(text="Tea is good."))
                    file = await drsai.files.create(owner, "a.txt", b"Tea")
                    store = await drsai.extension(Knowledge).create(owner, NewStore(name="s"))
                    await drsai.extension(Knowledge).attach(owner, store.store_id, [NewFile(file_id=file.file_id)])
                deleted = await http.delete("/users/ann")
                assert deleted.status_code == 200, deleted.text
                assert await _whose(drsai) == {"ann", "bob"}, "it knows these tables"
                await drsai.engine.prune()
                assert await _whose(drsai) == {"bob"}
        server.die()
    invariants.check(database_url)


async def _whose(drsai: DrSai) -> set[str]:
    """Whose rows there are."""
    found: set[str] = set()
    for table in map(table_of, (StoredMemory, MemoryPerson, KnowledgeStore, SearchIndex, WorkJob)):
        query = sa.select(table.c.user_id)
        found |= {*await drsai.database.read(lambda session, query=query: [*session.execute(query).scalars()])}
    return found
