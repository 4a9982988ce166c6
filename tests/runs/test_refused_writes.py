"""A database that takes no writes for a while, as its disk is full or it was made read-only: clients are told so, what
is under way waits, and nothing is lost or done twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.support.teams.crew import Crew
from tests.support.threads import Make, ended, request, sources

LONG = "x" * 20_000
"""More than fits into what a file has left over."""
FULL = "CREATE OR REPLACE FUNCTION no_room() RETURNS trigger AS $$ BEGIN RAISE 'full' USING ERRCODE = '53100'; END $$ "
READ_ONLY = "it is read-only, sqlite"
USER = "anonymous"
CHAT = {"model": "crew", "thread_id": "refused", "messages": [{"role": "user", "content": LONG}]}
TABLES = ("thread", "run", "autogenmessage", "journalentry", "worker")


def _said(statement: str, held: list[Any]) -> Callable[[Session], None]:
    """Statements for a session, whose connection is noted."""

    def fn(session: Session) -> None:
        held.append(session.connection().connection.driver_connection)
        session.execute(sa.text(statement))

    return fn


def _all(statement: str) -> list[str]:
    return [statement.format(table) for table in TABLES]


TROUBLES: dict[str, tuple[list[str], list[str], str]] = {
    "the disk is full, sqlite": (["PRAGMA max_page_count=1"], ["PRAGMA max_page_count=1000000"], "disk .* is full"),
    READ_ONLY: (["PRAGMA query_only=1"], ["PRAGMA query_only=0"], "read-only"),
    "the disk is full, postgresql": (
        [
            FULL + "LANGUAGE plpgsql",
            *_all("CREATE TRIGGER no_room BEFORE INSERT OR UPDATE ON {} EXECUTE FUNCTION no_room()"),
        ],
        _all("DROP TRIGGER no_room ON {}"),
        "53100",
    ),
}
"""What makes it so, what ends it, and what clients read. PostgreSQL's words are those of its server: no disk is full
there."""


@pytest.fixture(params=TROUBLES)
def trouble(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, trouble: str) -> Any:
    return request.getfixturevalue("migrated_sqlite" if trouble.endswith("sqlite") else "migrated_postgres")


async def test_clients_are_told_and_nothing_is_lost(make: Make, trouble: str, caplog: pytest.LogCaptureFixture) -> None:
    begin, end, words = TROUBLES[trouble]
    crew = Crew()
    crew.ann.hold()
    drsai = await make({"crew": crew}, heartbeat_seconds=0.1)
    transport = httpx.ASGITransport(drsai.app())
    handle = await drsai.engine.start(*request())
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as http:
        held: list[Any] = []
        for statement in begin:  # One lock at a time: heartbeats write meanwhile.
            await drsai.database.write(_said(statement, held=held))
        refused = await http.post("/v1/chat/completions", json=CHAT)
        assert refused.status_code == 503, refused.text
        assert refused.json()["error"]["code"] == "database_unavailable"
        assert re.search(words, refused.json()["error"]["message"])
        crew.ann.release()
        assert (await http.get("/v1/threads/t")).status_code == 200, "what is stored can be read"
        assert (await http.get("/v1/threads/refused")).status_code == 404
        if trouble == READ_ONLY:  # It begins no transaction.
            held[0].execute(*end).fetchall()
        else:
            for statement in end:
                await drsai.database.write(_said(statement, held=held))
        await handle.wait()
        assert sources(await ended(drsai)) == ["user", "ann", "bob", "eve"]
        assert crew.calls == (1, 1, 1), "nobody was asked twice"
        again = await http.post("/v1/chat/completions", json=CHAT)
        assert (again.status_code, len(await drsai.user(USER).list_messages("refused"))) == (200, 4)
    assert not [record for record in caplog.records if "internal_error" in record.getMessage()]
