"""The OpenAPI document is true: requests made from it, good and bad, are answered as it says."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import schemathesis
import uvicorn
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from drsai_backend import DrSai
from drsai_backend.datamodel.owner import Owner
from tests.support.listening import listening_socket
from tests.support.threads import settings


@contextmanager
def served(url: str, **values: Any) -> Iterator[str]:
    """The address of the real application, in which no log waits for what is still to come: a reader would for ever."""
    drsai = DrSai(None, url, settings=settings(**values))
    app = drsai.app()
    drsai.engine._feeds._closing = lambda: True
    drsai.keys.stale_seconds = 0  # No other process knows the keys of a user that is deleted.
    listening = listening_socket()
    server = uvicorn.Server(uvicorn.Config(app, ws="none", log_config=None))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def agreeing(_: Any, case: Any) -> Any:
    """No schema can say that what names the user, the thread or the model's key twice must name the same one, or that
    of two parameters of a query one is needed."""
    valid = case.meta.generation.mode.is_positive
    if valid and case.operation.label == "DELETE /v1/threads/{thread_id}/shares":
        given = {"with_user", "with_role"} & {*(case.query or {})}
        if len(given) != 1:
            case.query = {**(case.query or {}), "with_user": "bob"}
            case.query.pop("with_role", None)
    if isinstance(case.body, dict):
        if case.query:
            case.body.pop("user", None)
        if valid and isinstance(seed := case.body.get("seed"), int):
            case.body["seed"] = seed % 2**63  # Compared as a float, 2^63 is not above the greatest 64-bit integer.
        for name in ("chat_id", "metadata", "background"):
            case.body.pop(name, None)
        if case.body.get("api_key"):
            (case.headers or {}).pop("X-Model-Api-Key", None)
    for header in ("X-Thread-Id", "X-OpenWebUI-Chat-Id"):
        (case.headers or {}).pop(header, None)
    return case


async def _admins_key(url: str) -> str:
    async with DrSai(settings=settings(database_url=url), worker=False) as drsai:
        return (await drsai.keys.create(Owner("default", "ann"), ["admin"])).key.get_secret_value()


@pytest.mark.parametrize("auth", ["auto", "required"])
def test_what_the_document_says_is_true(sqlite_template: bytes, tmp_path: Path, auth: str) -> None:
    file = tmp_path / "a.db"
    file.write_bytes(sqlite_template)
    url = f"sqlite:///{file}"
    headers = {"Authorization": f"Bearer {asyncio.run(_admins_key(url))}"} if auth == "required" else {}
    config = SchemathesisConfig.from_dict(
        {
            "seed": 1,
            "request-timeout": 20,
            "headers": headers,
            "generation": {"max-examples": 20, "mode": "all", "deterministic": True},
            "checks": {"enabled": True},
            "phases": {"stateful": {"enabled": False}},
        }
    )
    failures: dict[str, str] = {}
    checked: set[str] = set()
    with served(url, auth=auth) as address:
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json", config=config)
        schema.hooks.register_hook_with_name(agreeing, "map_case")
        for event in from_schema(schema).execute():
            assert not isinstance(event, events.NonFatalError | events.FatalError), event
            if not isinstance(event, events.ScenarioFinished):
                continue
            for case_id, checks in event.recorder.checks.items():
                for check in checks:
                    checked.add(event.recorder.label)
                    if check.failure_info is not None:
                        answer = event.recorder.interactions[case_id].response
                        text = answer.content[:300] if answer is not None and answer.content else b""
                        what = f"{check.failure_info.failure}\n{text!r}\n{check.failure_info.code_sample[:2000]}"
                        failures[f"{event.recorder.label}: {check.name}"] = what
        operations = {
            f"{method.upper()} {path}" for path, item in schema.raw_schema["paths"].items() for method in item
        }
    assert not failures, "\n\n".join(f"{name}\n{what}" for name, what in failures.items())
    assert checked == operations
