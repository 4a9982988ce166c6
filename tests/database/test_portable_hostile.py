"""Files of threads that somebody has tampered with: refused with a reason, within bounds, and nothing is stored."""

from __future__ import annotations

import asyncio
import base64
import copy
import hashlib
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
import zstandard
from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.orm import Session

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.datamodel import RunStatus, Thread
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.owner import DEFAULT_TENANT, ThreadName
from drsai_backend.errors import DamagedState, DrSaiError, InvalidRequest
from drsai_backend.runs.threads import queries
from drsai_backend.state import decode_document
from drsai_backend.state.codec import decode_value, encode_value
from drsai_backend.state.portable import export_thread, import_thread
from tests.support.every_row import add_thread
from tests.support.scripted import counting
from tests.support.teams.scenarios import agent

Path_ = tuple[str | int, ...]
_MISSING = object()


def _sealed(content: dict[str, Any]) -> bytes:
    body = zstandard.ZstdCompressor().compress(orjson.dumps(content))
    kind = (1).to_bytes(2) + len(body).to_bytes(8)
    return b"drsai-thread" + kind + hashlib.sha256(kind + body).digest() + body


def _opened(data: bytes) -> dict[str, Any]:
    return orjson.loads(zstandard.ZstdDecompressor().decompress(data[54:]))


_NAME = ThreadName(DEFAULT_TENANT, "ada", "t")


@pytest.fixture(scope="module")
def home(sqlite_template: bytes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = tmp_path_factory.mktemp("hostile") / "drsai.db"
    path.write_bytes(sqlite_template)
    database = Database(f"sqlite:///{path}")
    yield database
    database.close_sync()


def _asked(path: Path) -> bytes:
    """A thread of three agents that waits for a person."""

    async def work() -> bytes:
        def team() -> RoundRobinGroupChat:
            inner = RoundRobinGroupChat([UserProxyAgent("person"), agent("ann", False, counting("ann"))], name="inner")
            return RoundRobinGroupChat([agent("bob", True, counting("bob")), inner], max_turns=2)

        settings = Settings(_env_file=None)  # pyright: ignore[reportCallIssue]
        async with DrSai({"team": team}, f"sqlite:///{path}", settings=settings) as drsai:
            result = await drsai.user("ada").run("team", "Start.", thread_id="t")
            assert result.status is RunStatus.AWAITING_INPUT
            return await drsai.database.read(lambda session: export_thread(session, _NAME))

    return asyncio.run(work())


def _rewound(path: Path) -> bytes:
    """A thread that has gone back and continued, twice."""

    async def work() -> bytes:
        settings = Settings(_env_file=None)  # pyright: ignore[reportCallIssue]
        async with DrSai(
            {"team": lambda: agent("bob", True, counting("bob"))}, f"sqlite:///{path}", settings=settings
        ) as drsai:
            for turn in (None, 1, 1):
                if turn is not None:
                    await drsai.user("ada").rewind("t", turn=turn)
                for text in ("One.", "Two."):
                    await drsai.user("ada").run("team", text, thread_id="t")
            return await drsai.database.read(lambda session: export_thread(session, _NAME))

    return asyncio.run(work())


def _rowful(session: Session) -> bytes:
    """A thread with a row in every table."""
    add_thread(session, "ada", "t")
    for name in ("journalentry", "threadsnapshot"):
        session.execute(sa.text(f"DELETE FROM {name}"))
    data = export_thread(session, _NAME)
    raise _Result(data)


class _Result(Exception):
    """Takes a value out of a transaction that is to be rolled back."""


def _in_vain(database: Database, work: Any) -> Any:
    with pytest.raises(_Result) as result:
        database.write_sync(work)
    return result.value.args[0]


@pytest.fixture(scope="module")
def files(home: Database, tmp_path_factory: pytest.TempPathFactory, sqlite_template: bytes) -> list[dict[str, Any]]:
    """The content of three real exports, their documents decoded."""
    made: list[bytes] = []
    for make in (_asked, _rewound):
        path = tmp_path_factory.mktemp("made") / "drsai.db"
        path.write_bytes(sqlite_template)
        made.append(make(path))
    contents = [_opened(each) for each in (made[0], _in_vain(home, _rowful), made[1])]
    for content in contents:
        if content["document"] is not None:
            content["document"] = decode_value(content["document"])
    return contents


def _paths(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """Every place in a value, containers included."""
    if path:
        yield path
    kind = type(value)
    items: Any = value.items() if kind is dict else enumerate(value) if kind is list else ()
    for key, item in items:
        yield from _paths(item, (*path, key))


_texts = st.sampled_from(
    ["", " ", "a\nb", "\x1b]0;owned\x07", "\x00", "x" * 300, "run_1", "completed", "running", "nan"]
)
_times = st.sampled_from(
    ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"]
)
_numbers = st.sampled_from([0, 1, -1, 2, 7, 2**31 - 1, 2**31, 2**63 - 1, -(2**63), 0.5, 1e308]) | st.integers(-5, 5)
_small = st.none() | st.booleans() | _numbers | _texts | _times | st.text(max_size=5)
_values = _small | st.lists(_small, max_size=2) | st.dictionaries(st.text(max_size=3), _small, max_size=2)
_changes = st.sampled_from(["set", "set", "set", "drop", "add", "repeat"])


def _mutate(data: st.DataObject, content: dict[str, Any]) -> None:
    paths = list(_paths(content))
    path = data.draw(st.sampled_from(paths), label="path")
    parent: Any = content
    for key in path[:-1]:
        parent = parent[key]
    change = data.draw(_changes, label="change")
    here, kind = parent[path[-1]], type(parent[path[-1]])
    if change == "drop":
        del parent[path[-1]]
    elif change == "add" and kind is dict:
        here[data.draw(st.text(max_size=3))] = data.draw(_values)
    elif change == "add" and kind is list:
        here.append(data.draw(_values))
    elif change == "repeat" and type(parent) is list:
        parent.append(copy.deepcopy(here))
    else:
        parent[path[-1]] = data.draw(_values, label="value")


def _same(given: Any, stored: Any) -> bool:
    if given is _MISSING or given == stored:
        return type(given) is type(stored) or given is _MISSING or isinstance(given, float | int)
    try:
        return datetime.fromisoformat(given) == datetime.fromisoformat(stored)
    except (TypeError, ValueError):
        return False


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_changed_file_is_the_same_thread_or_refused(
    home: Database, files: list[dict[str, Any]], data: st.DataObject
) -> None:
    content = copy.deepcopy(data.draw(st.sampled_from(files), label="file"))
    for _ in range(data.draw(st.integers(1, 2))):
        _mutate(data, content)
    sealed = dict(content)
    if isinstance(document := content.get("document"), dict):
        sealed["document"] = encode_value(document)
    file = _sealed(sealed)

    def store(session: Session) -> None:
        name = import_thread(session, file)
        queries.list_threads(session, name.owner, None, 10)
        queries.list_messages(session, name, 0, 100)
        queries.list_runs(session, name.owner, name.thread_id, None, 10)
        raise _Result(name, export_thread(session, name))

    with pytest.raises((DrSaiError, _Result)) as outcome:
        home.write_sync(store)
    if isinstance(outcome.value, DrSaiError):
        assert outcome.value.param == "file", outcome.value
        assert home.read_sync(lambda session: session.execute(sa.select(table_of(Thread))).all()) == []
        return
    (_, user_id, thread_id), exported = outcome.value.args
    again = _opened(exported)
    assert (user_id, thread_id) == (content["user_id"], content["thread_id"])
    if document is None:
        assert again["document"] is None
    else:
        assert decode_document(again["document"]).to_json() == decode_document(sealed["document"]).to_json()
    for name, value in content["thread"].items():
        assert _same(value, again["thread"][name]), name
    for table, rows in content["tables"].items():
        assert len(again["tables"][table]) == len(rows), table
        for row in rows:
            matches = (
                all(_same(row.get(name, _MISSING), value) for name, value in other.items())
                for other in again["tables"][table]
            )
            assert any(matches), (table, row)


_WRONG: list[tuple[Callable[[Any], Any], str]] = [
    (lambda it: it["thread"].update(last_seq=2_147_483_647), "last_seq must be from 0"),
    (lambda it: it["thread"].update(last_seq=1_999_999_999), "not numbered"),
    (lambda it: it["thread"].update(epoch="4"), "thread: epoch must be an integer"),
    (lambda it: it["thread"].update(turn=True), "thread: turn must be an integer"),
    (lambda it: it["thread"].update(run_id="run_elsewhere"), "thread.run_id is no run"),
    (lambda it: it["thread"].update(input_request={"prompt": 5}), "thread.input_request.prompt"),
    (lambda it: it.update(thread_id="a\nb\x1b[2J"), "`thread_id` must be printable"),
    (lambda it: it.update(user_id="u" * 256), "`user_id` must have 1 to 255"),
    (lambda it: it["tables"]["run"][0].update(run_id="run\r\nSet-Cookie: x"), "run: `run_id` must be printable"),
    (lambda it: it["tables"]["run"][0].update(usage={"prompt_tokens": "many"}), "run.usage"),
    (lambda it: it["tables"]["run"].append(it["tables"]["run"][0]), "two rows of run have the same"),
    (lambda it: it["tables"]["run"][0].update(created_at="2026-01-01T00:00:00"), "run: created_at .* time zone"),
    (
        lambda it: it["tables"]["run"][0].update(created_at="0001-01-01T00:00:00+14:00"),
        "run: created_at .* of the years",
    ),
    (
        lambda it: it["tables"]["autogenmessage"][0]["config"].update(source=["ann"]),
        "autogenmessage.config.source must be a text",
    ),
]


@pytest.mark.parametrize(("change", "words"), _WRONG)
def test_what_is_wrong_is_named(home: Database, files: list[dict[str, Any]], change: Any, words: str) -> None:
    content = copy.deepcopy(files[0])
    content["document"] = encode_value(content["document"])
    change(content)
    with pytest.raises(DamagedState, match=words) as refused:
        home.write_sync(lambda session: import_thread(session, _sealed(content)))
    assert refused.value.param == "file"
    assert home.read_sync(lambda session: session.execute(sa.select(table_of(Thread))).all()) == []


def test_names_that_are_given_are_checked(home: Database, files: list[dict[str, Any]]) -> None:
    content = {**files[1], "thread_id": "a\nb"}
    for user_id, thread_id, param in (
        (None, "c\nd", "thread_id"),
        ("ada", "", "thread_id"),
        ("\x1b[2J", "t", "user_id"),
    ):

        def store(session: Session, user_id: str | None = user_id, thread_id: str = thread_id) -> None:
            import_thread(session, _sealed(content), user_id=user_id, thread_id=thread_id)

        with pytest.raises(InvalidRequest) as refused:
            home.write_sync(store)
        assert refused.value.param == param

    def renamed(session: Session) -> None:
        raise _Result(import_thread(session, _sealed(content), thread_id="t"))

    assert _in_vain(home, renamed) == ("default", "ada", "t")


def test_a_larger_limit_is_the_callers_to_give(home: Database, files: list[dict[str, Any]]) -> None:
    file = _sealed(files[1])
    for limit in (len(file) - 1, len(orjson.dumps(files[1])) - 1):
        with pytest.raises(DamagedState, match=f"more than {limit} bytes"):
            home.write_sync(lambda session, limit=limit: import_thread(session, file, max_bytes=limit))


# --- bombs ----------------------------------------------------------------------------------------------------------

_CHILD = """
import resource, sys
from pathlib import Path
from drsai_backend.database import Database
from drsai_backend.errors import DamagedState
from drsai_backend.state.portable import import_thread

database = Database(sys.argv[1])
database.read_sync(lambda session: None)
size = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (size + 700 * 2**20,) * 2)
for file in sys.argv[2:]:
    data = Path(file).read_bytes()
    try:
        database.write_sync(lambda session: import_thread(session, data))
    except DamagedState as error:
        print(Path(file).name, error.message)
"""


def _frame(*parts: tuple[bytes, int]) -> bytes:
    """A zstd frame of repeated parts, made without holding them."""
    compressor = zstandard.ZstdCompressor(level=1).compressobj(size=sum(len(part) * times for part, times in parts))
    packed: list[bytes] = []
    for part, times in parts:
        block = max(1, 2**20 // len(part))
        while times:
            now = min(block, times)
            packed.append(compressor.compress(part * now))
            times -= now
    return b"".join((*packed, compressor.flush()))


def _file(frame: bytes) -> bytes:
    kind = (1).to_bytes(2) + len(frame).to_bytes(8)
    return b"drsai-thread" + kind + hashlib.sha256(kind + frame).digest() + frame


def _bomb(kind: str, content: dict[str, Any]) -> bytes:
    half = orjson.dumps({**content, "document": None})[:-1]
    whole = 64 * 2**20 - len(half)
    if kind == "long":
        return _file(_frame((half, 1), (b" ", 4 * 2**30), (b"}", 1)))
    if kind == "lists":
        return _file(_frame((half, 1), (b',"x":[[]', 1), (b",[]", whole // 3 - 10), (b"]}", 1)))
    if kind == "objects":
        return _file(_frame((half, 1), (b',"x":[{}', 1), (b',{"a":0}', whole // 8 - 10), (b"]}", 1)))
    if kind == "no size":
        frame = zstandard.ZstdCompressor(write_content_size=False).compress(b" " * 2**20)
        return _file(frame)
    # In the document, which is a frame of its own.
    body = _frame((b'{"a":[[]', 1), (b",[]", 20_000_000), (b"]}", 1))
    head = bytes((1, 1))
    raw = b"DS" + head + zlib.crc32(body, zlib.crc32(head)).to_bytes(4, "little") + body
    return _sealed({**content, "document": base64.b64encode(raw).decode()})


def test_bombs_are_refused_within_bounds(files: list[dict[str, Any]], sqlite_template: bytes, tmp_path: Path) -> None:
    """In a process that may take 700 MiB more than it has."""
    (tmp_path / "drsai.db").write_bytes(sqlite_template)
    kinds = dict.fromkeys(("long", "lists", "objects", "no size"), "unpacks to, more than 67108864 bytes")
    kinds["document"] = "claims to be larger than any"
    for kind in kinds:
        (tmp_path / kind).write_bytes(_bomb(kind, files[1]))
        assert (tmp_path / kind).stat().st_size < 1_000_000
    # As many values as are allowed, each as dear as can be.
    largest = {**files[1], "mood": [{"a": 0}] * 2_000_000}
    kinds["largest"] = "does not have the parts"
    (tmp_path / "largest").write_bytes(_sealed(largest))
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, f"sqlite:///{tmp_path / 'drsai.db'}", *(str(tmp_path / kind) for kind in kinds)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for line, (kind, words) in zip(done.stdout.splitlines(), kinds.items(), strict=True):
        assert line.startswith(kind)
        assert words in line
