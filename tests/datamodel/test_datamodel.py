"""The tables as declared: column types, defaults, the lifecycle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from drsai_backend.datamodel import (
    TRANSITIONS,
    AutoGenMessage,
    RunStatus,
    Thread,
    UserInput,
    UTCDateTime,
    check_transition,
    utcnow,
)
from drsai_backend.datamodel.base import StatusType, to_epoch_us
from drsai_backend.errors import IllegalTransition

DIALECTS: list[Any] = [sqlite.dialect(), postgresql.dialect()]


@pytest.mark.parametrize(("current", "new"), list(product(RunStatus, RunStatus)))
def test_what_may_be_set_by_hand_is_the_documented_lifecycle_of_a_thread(current: RunStatus, new: RunStatus):
    allowed = {
        "created": "running",
        "running": "completed error stopped awaiting_input paused",
        "awaiting_input": "running stopped",
        "paused": "running stopped",
        "completed": "running",
        "stopped": "running",
        "error": "running",
    }
    if new.value in allowed[current.value].split():
        check_transition(current, new)
    else:
        with pytest.raises(IllegalTransition) as refused:
            check_transition(current, new)
        assert refused.value.param == "status"
        assert refused.value.status == 409


def test_a_queued_run_may_also_be_joined_or_dropped_and_one_that_waits_given_up():
    more = {
        (current.value, new.value)
        for current, new in product(RunStatus, RunStatus)
        if new in TRANSITIONS[current] and not _by_hand(current, new)
    }
    assert more == {
        *(("created", end) for end in ("completed", "stopped", "error")),
        ("awaiting_input", "error"),
        ("paused", "error"),
        ("running", "running"),
    }


def _by_hand(current: RunStatus, new: RunStatus) -> bool:
    try:
        check_transition(current, new)
    except IllegalTransition:
        return False
    return True


def test_final_means_that_only_new_input_goes_on():
    assert {status for status in RunStatus if status.is_final} == {
        RunStatus.COMPLETED,
        RunStatus.STOPPED,
        RunStatus.ERROR,
    }
    assert set(TRANSITIONS) == set(RunStatus)


@given(
    st.datetimes(timezones=st.timezones() | st.just(UTC), min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29))
)
def test_times_survive_as_microseconds(value: datetime):
    column = UTCDateTime()
    held = column.process_bind_param(value, DIALECTS[0])
    assert isinstance(held, int)
    back = column.process_result_value(held, DIALECTS[0])
    assert back == value.astimezone(UTC)  # A local time that never was equals nothing in another zone.
    assert back is not None
    assert back.tzinfo is UTC
    assert column.process_bind_param(value, DIALECTS[1]).tzinfo is UTC


def test_naive_times_are_utc():
    naive, aware = datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=UTC)
    assert to_epoch_us(naive) == to_epoch_us(aware) == to_epoch_us(aware.astimezone(timezone(timedelta(hours=5))))
    for dialect in DIALECTS:
        assert UTCDateTime().process_bind_param(naive, dialect) == UTCDateTime().process_bind_param(aware, dialect)
        assert UTCDateTime().process_bind_param(None, dialect) is None
        assert UTCDateTime().process_result_value(None, dialect) is None
    assert utcnow().tzinfo is UTC


def test_a_status_loads_as_a_status():
    column = StatusType()
    for dialect, status in product(DIALECTS, RunStatus):
        assert column.process_bind_param(status, dialect) == status.value
        assert column.process_bind_param(status.value, dialect) == status.value
        assert column.process_result_value(status.value, dialect) is status
    assert column.process_bind_param(None, DIALECTS[0]) is None
    assert column.process_result_value(None, DIALECTS[0]) is None
    with pytest.raises(ValueError, match="lost"):
        column.process_bind_param("lost", DIALECTS[0])


def test_declared_fields_of_a_thread():
    long = {"messages": [{"n": 1}], "state": "s", "user_input": {}, "tasks": [], "team_result": {}, "meta": {}}
    thread = Thread(user_id="u", thread_id="t", **long)
    assert {name: thread.model_dump()[name] for name in long} == long
    assert set(long) <= set(Thread.model_fields)
    fresh = Thread(user_id="u", thread_id="t")
    assert (fresh.messages, fresh.status, fresh.version) == ([], RunStatus.CREATED, "0.0.1")
    assert fresh.messages is not Thread(user_id="u", thread_id="t").messages


def test_an_api_key_is_in_no_dump():
    row = UserInput(user_id="u", thread_id="t", api_key="sk-planted")
    assert row.api_key == "sk-planted"
    shown = [row.model_dump(), row.model_dump_json(), repr(row), str(row), list(row.__repr_args__())]
    assert "sk-planted" not in str(shown)


def test_how_the_tables_look():
    def ddl(model: Any, dialect: Any) -> str:
        return str(CreateTable(model.__table__).compile(dialect=dialect))

    on_sqlite, on_postgresql = (ddl(AutoGenMessage, dialect) for dialect in DIALECTS)
    assert "id INTEGER NOT NULL" in on_sqlite  # The rowid, and no index of its own.
    assert "id BIGSERIAL" in on_postgresql
    assert "config JSONB NOT NULL" in on_postgresql
    assert "TIMESTAMP WITH TIME ZONE" in on_postgresql
    assert isinstance(sa.inspect(Thread).columns["messages"].default, type(None))
