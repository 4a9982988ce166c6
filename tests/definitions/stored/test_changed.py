"""A thread whose team changed shape between runs: it keeps what fits, and says what did not."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from pydantic import SecretStr

from drsai_backend import DrSai, RunStatus
from drsai_backend.datamodel import AutoGenMessage
from drsai_backend.errors import InvalidRequest
from drsai_backend.models import ModelProvider
from tests.support.scripted import Answer, ScriptedClient, user_count
from tests.support.threads import settings


def counts(messages: Sequence[Any], options: dict[str, Any]) -> Answer:
    """How many messages of users, or other agents, its context has."""
    return f"{user_count(messages)}"


class Models(ModelProvider):
    def client(self, model: str | None, api_key: SecretStr | None) -> ScriptedClient:
        return ScriptedClient(counts)

    async def close(self) -> None:
        pass


def crew(*names: str) -> dict[str, Any]:
    team = {"kind": "round_robin", "participants": [*names], "termination": {"max_messages": len(names) + 1}}
    return {"agents": {name: {} for name in names}, "teams": {"crew": team}}


@pytest.mark.parametrize("is_restarted", [False, True], ids=["warm", "restarted"])
async def test_what_fits_is_kept_and_the_rest_is_told(
    migrated_sqlite: str, caplog: pytest.LogCaptureFixture, is_restarted: bool
) -> None:
    def make() -> DrSai:
        return DrSai({}, migrated_sqlite, settings=settings(), model_provider=Models())

    drsai = make()
    await drsai.open()
    await drsai.agents.put("crew", crew("ann", "bob"))
    await drsai.run("crew", "one", thread_id="t")
    await drsai.agents.put("crew", crew("ann", "cat"))
    if is_restarted:
        await drsai.close()
        drsai = make()
        await drsai.open()
    with caplog.at_level(logging.WARNING, "drsai.run"):
        second = await drsai.run("crew", "two", thread_id="t")
    told = "The team was changed since the last run. What it has no place for is left out: bob is gone."
    assert any(told in record.getMessage() for record in caplog.records)
    rows = await drsai.db.get(AutoGenMessage, {"thread_id": "t"})
    notes = [row for row in rows if row.config.get("content") == told]
    assert [(row.config["source"], row.shown) for row in notes] == [("drsai", False)]
    answers = [row.config["content"] for row in rows if row.config["source"] in ("ann", "cat")]
    assert answers == ["1", "3", "5"]  # Ann remembers; the new one knows what was said.
    assert second.text == "5"
    caplog.clear()
    assert (await drsai.run("crew", "three", thread_id="t")).text == "7"
    assert not [record for record in caplog.records if "changed" in record.getMessage()]
    await drsai.close()


async def test_what_is_refused_today_and_was_stored_before_is_served(migrated_sqlite: str) -> None:
    """A termination of a name that nobody has: a run's bounds end it, as before."""
    endless = crew("ann", "bob")
    endless["teams"]["crew"]["termination"] = {"text_message": "eve"}
    async with DrSai({}, migrated_sqlite, settings=settings(), model_provider=Models()) as drsai:
        with pytest.raises(InvalidRequest, match="would never end"):
            await drsai.agents.put("crew", endless)
        await drsai.agents.put("crew", crew("ann", "bob"))
    engine = sa.create_engine(migrated_sqlite)
    with engine.begin() as connection:
        changed = connection.execute(
            sa.text("UPDATE storeddefinition SET definition = :text"), {"text": json.dumps(endless)}
        )
        assert changed.rowcount == 1
    engine.dispose()
    async with DrSai({}, migrated_sqlite, settings=settings(max_turns=3), model_provider=Models()) as drsai:
        result = await drsai.run("crew", "one", thread_id="t")
    assert result.status is RunStatus.STOPPED
    assert len(result.task_result["messages"]) > 3
