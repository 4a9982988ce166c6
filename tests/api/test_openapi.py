"""The OpenAPI document is true: requests made from it, good and bad, are answered as it says.

`DRSAI_HUNT=60` makes so many random examples of each operation, by `DRSAI_SEED`, and bad requests with large bodies,
too, instead of a fixed few.
"""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import schemathesis
import uvicorn
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.engine.run import PhaseName
from schemathesis.generation.meta import TestPhase

from drsai_backend import DrSai
from drsai_backend.datamodel.owner import Owner
from tests.support.listening import listening_socket
from tests.support.threads import settings

HUNT: Final = int(os.environ.get("DRSAI_HUNT", "0"))
SEED: Final = int(os.environ.get("DRSAI_SEED", "1"))
_KEYS: Final = "^/v1/keys"
_LARGE: Final = "^/v1/(chat|completions|messages|embeddings|responses|conversations|threads/[^/]*/(input|fork|history))"
"""Operations whose body has a large schema, made of the model that checks it: there are thousands of bad requests."""
_ALIKE: Final = (
    "^/(v1/(messages/count_tokens|responses/compact|threads/[^/]*/(pause|resume))|api/v1/agent/execute-stream)"
)
"""Operations whose body is that of another one, or a part of it."""
_HELLO: Final[dict[str, Any]] = {"model": "assistant", "messages": [{"role": "user", "content": "Hello"}]}
_ASKED: Final[dict[str, dict[str, Any]]] = {
    "POST /v1/chat/completions": _HELLO,
    "POST /v1/completions": {"model": "assistant", "prompt": "Hello"},
    "POST /v1/messages": _HELLO,
    "POST /v1/messages/count_tokens": _HELLO,
    "POST /v1/threads/{thread_id}/history": _HELLO,
    "POST /v1/responses": {"model": "assistant", "input": "Hello"},
    "POST /v1/responses/compact": {"model": "assistant", "input": "Hello"},
}
"""By operation: what a team can answer."""
_APART: Final = (
    *("tools", "tool_choice", "functions", "function_call", "conversation", "previous_response_id", "webhook_url"),
    *("thread_id", "thread_owner", "shown", "include", "text", "on_busy"),
)
"""Fields that are good by themselves, and not with each other or in a new thread."""
_TOOL: Final = {"description": "Asks.", "endpoint": {"url": "https://example.org/"}}
_THERE: Final = {"after_id": "assistant", "before_id": "assistant", "branch": 0}
"""Parameters of queries that name what there must be, and a value."""
_MOST: Final = {"at": 0, "turn": 0, "branch": 0, "max_turns": 9, "max_run_seconds": 9, "max_run_tokens": 9999}
"""By field: the greatest number that every thread has, and that the server's own limits allow."""


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
    """A good request, made good where no schema can say that it is not: two things must agree or exclude each other,
    or something must be there."""
    for header in ("X-Thread-Id", "X-OpenWebUI-Chat-Id"):
        (case.headers or {}).pop(header, None)
    if case.meta.phase.name is not TestPhase.COVERAGE:
        (case.headers or {}).pop("Idempotency-Key", None)  # Chance would give several requests one key.
    if not case.meta.generation.mode.is_positive:
        return case
    query = {name: _THERE.get(name, value) for name, value in (case.query or {}).items()}
    if case.operation.label == "DELETE /v1/threads/{thread_id}/shares" and ("with_user" in query) == (
        "with_role" in query
    ):
        query["with_user"] = "bob"
        query.pop("with_role", None)
    if "starting_after" in query:
        query["stream"] = True
    if (
        case.operation.label.endswith(("items", "GET /v1/files", "GET /v1/usage", "GET /v1/admin/runs"))
        or "vector_stores" in case.operation.label
    ):
        query.pop("after", None)  # An item, a file, a store; of a report with the same groups, runs in the same order.
        query.pop("before", None)
    if case.operation.label == "GET /v1/threads/{thread_id}/state":
        query.pop("turn", None)  # One that the thread has.
    case.body = _sayable(case.body)
    if case.operation.label in ("POST /v1/agents", "PUT /v1/agents/{name}"):
        name = case.body.get("name") or (case.path_parameters or {}).get("name")
        case.body["definition"] = {"agents": {name: {}}}  # Whose form is GET /v1/agents/schema.
    if case.operation.label in ("POST /v1/tools", "PUT /v1/tools/{name}"):
        case.body |= {"type": "http", "config": _TOOL, "secrets": {}}  # Its fields depend on each other.
    if case.operation.label == "POST /v1/files":
        case.body = {name: value for name, value in case.body.items() if name in ("file", "purpose")}
    if case.operation.label.endswith("/file_batches"):
        case.body = {"file_ids": ["file-none"]}  # Or `files`, and not both.
    if isinstance(case.body, dict):
        _fit(case.body, case.operation.label)
        if query:
            case.body.pop("user", None)
        if case.body.get("api_key"):
            (case.headers or {}).pop("X-Model-Api-Key", None)
    # Of the many good requests of this phase none starts a run, which takes long.
    if case.meta.phase.name is not TestPhase.COVERAGE:
        for name in ("user", "owner"):  # What is made is found again.
            query.pop(name, None)
        if isinstance(case.body, dict) and case.operation.label != "POST /v1/keys":
            for name in ("user", *(_APART if case.operation.label in _ASKED else ())):
                case.body.pop(name, None)
            case.body.update(_ASKED.get(case.operation.label, {}))
    if case.operation.label.endswith(
        ("/v1/limits", "/v1/budgets")
    ):  # One is named, and nobody who asks here is bounded.
        most = {"runs": 1000} if case.operation.label.endswith("limits") else {"cost_month": 1000.5}
        query = {"of_user": "zoe"} if case.operation.label.startswith("DELETE") else query
        case.body = {"user": "zoe", **most} if case.operation.label.startswith("PUT") else case.body
    if case.operation.label.endswith("/v1/switches"):  # Of no team that somebody asks here.
        none = {"kind": "team", "name": "none"}
        query = none if case.operation.label.startswith("DELETE") else query
        case.body = {**none, "message": "No."} if case.operation.label.startswith("PUT") else case.body
    if case.operation.label == "PATCH /v1/config/{environment}":  # Each setting has a form of its own.
        case.body["values"] = {"engine_steps": 9}
    case.query = query
    return case


def _fit(body: dict[str, Any], label: str) -> None:
    for name in ("chat_id", "metadata", "background", "thread_owner"):
        body.pop(name, None)
    if "chunking_strategy" in body:
        body["chunking_strategy"] = {"type": "auto"}  # Of the others, the overlap must be at most half of the size.
    if isinstance(seed := body.get("seed"), int):
        body["seed"] = seed % 2**63  # Compared as a float, 2^63 is not above the greatest 64-bit integer.
    for name, most in _MOST.items():
        if isinstance(number := body.get(name), int | float):
            body[name] = min(number, most)
    if "with_user" in body:
        body["with_user"] = "somebody else"
    if label.startswith("POST /api/v1/agent/execute") and body.get("tools"):
        body["tools"] = ["calculator"]
    if isinstance(url := body.get("webhook_url"), str):
        body["webhook_url"] = re.sub(r"^https?://[^/?]+", "https://example.org", url)
    if label.endswith("/history"):
        body |= _HELLO
        body.pop("after", None)  # As many messages as the thread has.
    if label.startswith("POST /v1/conversations"):
        for item in body.get("items") or ():
            item |= {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Hello"}, *_parts(item)],
            }


def _parts(item: dict[str, Any]) -> list[Any]:
    return item["content"] if isinstance(item.get("content"), list) else []


def _sayable(value: Any) -> Any:
    """A value without what is JSON and refused: NUL characters, and integers written as 1.0. Images, recordings and
    files, which nobody draws at random, become text; so do refusals, which only assistants may write."""
    if isinstance(value, str):
        return value.replace("\0", "")
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_sayable(each) for each in value]
    if isinstance(value, dict):
        if value.get("type") in ("input_audio", "audio_url", "video_url"):
            return {"type": "text", "text": "Hello"}
        if value.get("type") in ("input_image", "input_file", "image_url", "image", "file", "refusal"):
            return {"type": "input_text" if value["type"].startswith("input") else "text", "text": "Hello"}
        return {_sayable(key): _sayable(each) for key, each in value.items()}
    return value


async def _admins_key(url: str) -> tuple[str, str]:
    """The id of a key, and the key."""
    async with DrSai(settings=settings(database_url=url), worker=False) as drsai:
        made = await drsai.keys.create(Owner("default", "ann"), ["admin", "metrics:read", "config:admin"])
        return made.info.key_id, made.key.get_secret_value()


def _config(auth: str, headers: dict[str, str]) -> SchemathesisConfig:
    """What is tried. Where keys are needed: all of those, and a little of the rest, whether it needs one."""
    examples = HUNT or 2
    # An environment of which all was deleted is there as one of which nothing was ever stored.
    operations: list[dict[str, Any]] = [
        {"include-path-regex": "^/v1/(users|webhooks|audit|config)", "phases": {"stateful": {"enabled": False}}}
    ]
    if not HUNT and auth == "auto":
        good = {"coverage": {"generation": {"mode": "positive"}}}
        operations.append({"include-path-regex": _ALIKE, "phases": {"coverage": {"enabled": False}}})
        operations.append({"include-path-regex": _LARGE, "phases": good})
    elif not HUNT:
        operations.append({"exclude-path-regex": _KEYS, "phases": {"coverage": {"enabled": False}}})
    # PATCH of these is one of a memory that has such a name.
    named = {"coverage": {"unexpected-methods": ["put"]}}
    operations.append({"include-path-regex": "^/v1/memories/(export|search|settings)$", "phases": named})
    phases = {
        "coverage": {"unexpected-methods": ["patch"]},
        # The document's own links, and none that are guessed.
        "stateful": {"max-steps": 6, "generation": {"max-examples": 16 * examples}, "inference": {"algorithms": []}},
    }
    return SchemathesisConfig.from_dict(
        {
            "seed": SEED,
            "request-timeout": 20,
            "headers": headers,
            "generation": {"max-examples": examples, "mode": "all", "deterministic": not HUNT},
            # A request without its key still has the one of `headers`; `ignored_auth` takes that away, too.
            "checks": {"enabled": True, "missing_required_header": {"enabled": False}},
            "phases": phases,
            "operations": operations,
        }
    )


# Hypothesis warns of it where it tells of a slow draw: the schema is large.
@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@pytest.mark.timeout(360 + 30 * HUNT)
@pytest.mark.parametrize("auth", ["auto", "required"])
def test_what_the_document_says_is_true(sqlite_template: bytes, tmp_path: Path, auth: str) -> None:
    file = tmp_path / "a.db"
    file.write_bytes(sqlite_template)
    url = f"sqlite:///{file}"
    own, key = asyncio.run(_admins_key(url)) if auth == "required" else ("", "")
    headers = {"Authorization": f"Bearer {key}"} if key else {}

    def keeping_its_key(context: Any, case: Any) -> Any:
        """As `agreeing`; nothing revokes the key that all requests have."""
        if (case.path_parameters or {}).get("key_id") == own:
            case.path_parameters["key_id"] = "key_none"
        return agreeing(context, case)

    failures: dict[str, str] = {}
    checked: set[str] = set()
    followed: set[str] = set()
    with served(url, auth=auth, metrics=True) as address:
        schema = schemathesis.openapi.from_url(f"{address}/openapi.json", config=_config(auth, headers))
        operations = {
            f"{method.upper()} {path}"
            for path, item in schema.raw_schema["paths"].items()
            for method in item
            if auth == "required" or not re.match(_KEYS, path)
        }
        if auth == "auto":
            schema = schema.exclude(path_regex=_KEYS)  # With the first key, all else would need one.
        schema.hooks.register_hook_with_name(keeping_its_key, "map_case")
        for event in from_schema(schema).execute():
            if isinstance(event, events.NonFatalError):
                raise AssertionError(f"{event.label}: {event.info.format()}")
            assert not isinstance(event, events.FatalError), event
            if not isinstance(event, events.ScenarioFinished):
                continue
            for case_id, checks in event.recorder.checks.items():
                label = event.recorder.cases[case_id].value.operation.label
                answer = event.recorder.interactions[case_id].response
                checked.add(label)
                if event.phase is PhaseName.STATEFUL_TESTING and answer is not None and answer.status_code < 300:
                    followed.add(label)
                for check in checks:
                    if check.failure_info is not None:
                        text = answer.content[:300] if answer is not None and answer.content else b""
                        what = f"{check.failure_info.failure}\n{text!r}\n{check.failure_info.code_sample[:2000]}"
                        failures[f"{label}: {check.name}"] = what
    assert not failures, "\n\n".join(f"{name}\n{what}" for name, what in failures.items())
    assert checked == operations
    # What one request has made, another one has found.
    assert any("{" in label for label in followed), followed
