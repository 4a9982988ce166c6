"""Files of a user's chat are in the work folder of code, and files that tools make are parts of messages and steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import TextMessage

from drsai_backend import AssistantAgent, RunContext, tool
from drsai_backend.datamodel.file import FILES, MessageFile, files_of, to_note
from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs import Answer
from drsai_backend.tools.code import CodeLimits, CodeResult, code_interpreter
from drsai_backend.tools.results import FileOutput
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelServer, Reply, ToolCall

pytestmark = pytest.mark.both_databases
LOOK = Reply(tool_calls=[ToolCall("code_interpreter", {"code": "look"})])


def files_in(folder: Path) -> list[Path]:
    return [*folder.iterdir()]


def told(file: Path) -> tuple[str, int]:
    """What it says, and who may write to it."""
    return file.read_text(), file.stat().st_mode & 0o222


class Looking:
    """Runs nothing, and tells what is in its folder."""

    name = "looking"
    knows = "Nothing."
    has_folder = True
    repeatable = True

    def missing(self) -> str | None:
        return None

    async def probe(self) -> str | None:
        return None

    async def run(self, code: str, folder: Path | None, limits: CodeLimits) -> CodeResult:
        assert folder is not None
        return CodeResult(stdout=json.dumps({each.name: told(each) for each in files_in(folder)}))


def coder_in(folder: Path) -> Any:
    def coder(context: RunContext) -> AssistantAgent:
        limits = CodeLimits(disk=4096)
        tools = [code_interpreter(Looking(), folder=folder, limits=limits)]
        return AssistantAgent("coder", context.model_client(), tools=tools, max_tool_iterations=3)

    return {"coder": coder}


def looked(model: ModelServer) -> tuple[dict[str, Any], str]:
    """What the last result of the tool tells of its folder, and the line after it."""
    text = str(next(each["content"] for each in reversed(model.requests[-1].messages) if each["role"] == "tool"))
    first, _, rest = text.partition("\n")
    return json.loads(first), rest


async def ask(service: Service, content: Any, *, thread: str = "t", model: str = "coder", **more: Any) -> Any:
    body = {"model": model, "messages": [{"role": "user", "content": content}], "thread_id": thread, **more}
    answer = await service.http.post("/v1/chat/completions", json={"user": "ann", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def upload(service: Service, name: str, data: bytes, user: str = "ann") -> str:
    return (await service.drsai.files.create(Owner("default", user), name, data)).file_id


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
async def test_files_of_a_chat_are_in_the_folder_in_every_process(
    serve: Serve, model: ModelServer, tmp_path: Path, dialect: str
) -> None:
    service = await serve(coder_in(tmp_path / "one"))
    file_id = await upload(service, "sales.csv", b"a,b\n1,2\n", user="anonymous")
    path, kind, part, more = {
        "chat": ("chat/completions", "messages", {"type": "file", "file": {"file_id": file_id}}, {}),
        "responses": ("responses", "input", {"type": "input_file", "file_id": file_id}, {}),
        "anthropic": (
            "messages",
            "messages",
            {"type": "document", "source": {"type": "file", "file_id": file_id}},
            {"max_tokens": 100},
        ),
    }[dialect]
    model.script(None, [LOOK, "Seen.", LOOK, "Seen again."])
    text = {"type": "input_text" if dialect == "responses" else "text", "text": "Look."}
    said: list[dict[str, Any]] = [{"role": "user", "content": [text, part]}]
    asked: dict[str, Any] = {"model": "coder", "metadata": {"thread_id": "t"}, kind: said, **more}
    answer = await service.http.post(f"/v1/{path}", json=asked)
    assert answer.status_code == 200, answer.text
    thread = answer.headers["x-thread-id"]
    assert looked(model)[0] == {"sales.csv": ["a,b\n1,2\n", 0]}
    messages = (await service.http.get(f"/v1/threads/{thread}/messages")).json()["data"]
    assert [untold(each["files"]) for each in messages if each["source"] == "user"] == [
        [{"filename": "sales.csv", "bytes": 8, "media_type": "text/csv", "call_id": None}]
    ]
    other = await serve(coder_in(tmp_path / "two"))
    await ask(other, "And again?", thread=thread, user=None)
    assert looked(model)[0] == {"sales.csv": ["a,b\n1,2\n", 0]}


async def test_a_file_is_read_only_restored_and_gone_when_it_is_deleted(
    serve: Serve, model: ModelServer, tmp_path: Path
) -> None:
    service = await serve(coder_in(tmp_path))
    old, new = await upload(service, "sales.csv", b"old"), await upload(service, "sales.csv", b"new")
    model.script(None, [LOOK, "1"] * 4)
    await ask(service, [{"type": "text", "text": "Look."}, {"type": "file", "file": {"file_id": old}}])
    assert looked(model) == ({"sales.csv": ["old", 0]}, "Of the user, in the work folder and read-only: sales.csv.")
    [folder] = [each for each in files_in(tmp_path) if each.is_dir()]
    (folder / "work" / "sales.csv").unlink()
    (folder / "work" / "sales.csv").symlink_to("/etc/passwd")
    await ask(service, [{"type": "text", "text": "Another."}, {"type": "file", "file": {"file_id": new}}])
    assert looked(model) == ({"sales.csv": ["new", 0]}, ""), "the newest of the name, and no link is followed"
    await service.drsai.files.delete(Owner("default", "ann"), new)
    await ask(service, "Again.")
    assert looked(model)[0] == {"sales.csv": ["old", 0]}
    await ask(service, "Elsewhere.", thread="other")
    assert looked(model) == ({}, "")


async def test_no_more_than_a_quarter_of_the_disk_and_no_folder_is_replaced(
    serve: Serve, model: ModelServer, tmp_path: Path
) -> None:
    service = await serve(coder_in(tmp_path))
    named = [
        {"type": "file", "file": {"file_id": await upload(service, name, data)}}
        for name, data in (("a.txt", b"a" * 600), ("b.txt", b"b" * 600), ("c.txt", b"c"))
    ]
    model.script(None, [LOOK, "1"] * 2)
    await ask(service, [{"type": "text", "text": "Look."}, *named])
    found, _ = looked(model)
    assert sorted(found) == ["a.txt", "c.txt"]
    assert sum(len(text) for text, _ in found.values()) <= 1024


async def test_a_message_that_waits_in_the_queue_keeps_its_files(
    serve: Serve, model: ModelServer, tmp_path: Path
) -> None:
    service = await serve(coder_in(tmp_path))
    part = {"type": "file", "file": {"file_id": await upload(service, "a.txt", b"a")}}
    model.script(None, [LOOK, "Seen."])
    body = {"model": "coder", "user": "ann", "background": True, "messages": [{"role": "user", "content": [part]}]}
    answer = await service.http.post("/v1/chat/completions", json=body)
    assert answer.status_code == 202, answer.text
    run = answer.headers["x-run-id"]
    await service.http.get(f"/v1/runs/{run}/events", params={"user": "ann"})  # It ends with the run.
    assert looked(model)[0] == {"a.txt": ["a", 0]}


async def test_files_of_others_are_in_no_folder_but_those_that_they_send_into_a_shared_thread(
    serve: Serve, model: ModelServer, tmp_path: Path
) -> None:
    service = await serve(coder_in(tmp_path))
    theirs = await upload(service, "bob.txt", b"bob's", user="bob")
    part = {"type": "file", "file": {"file_id": theirs}}
    body = {"model": "coder", "user": "ann", "messages": [{"role": "user", "content": [part]}]}
    assert (await service.http.post("/v1/chat/completions", json=body)).status_code == 404
    model.script(None, [LOOK, "1"] * 3)
    noted = MessageFile(id=theirs, filename="bob.txt", bytes=5, media_type="text/plain")
    made_up = TextMessage(content="Look.", source="user", metadata=to_note([noted]))
    await service.drsai.user("ann").run("coder", made_up, thread_id="t")
    assert looked(model) == ({}, ""), "a message does not say whose a file is"
    shared = {"with_user": "bob", "right": "write"}
    given = await service.http.post("/v1/threads/t/shares", json=shared, params={"user": "ann"})
    assert given.status_code == 200, given.text
    await ask(service, [{"type": "text", "text": "Look."}, part], user="bob", thread_owner="ann")
    assert looked(model)[0] == {"bob.txt": ["bob's", 0]}


@tool
def export(text: str) -> FileOutput:
    """Write a file.

    Args:
        text: what it says.
    """
    return FileOutput("report.txt", text.encode())


@tool(requires_approval=True)
def send() -> str:
    """Send it."""
    return "Sent."


def writer(context: RunContext) -> AssistantAgent:
    return AssistantAgent("writer", context.model_client(), tools=[export, send], max_tool_iterations=4)


def untold(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in each.items() if name != "id"} for each in files]


MADE = [{"filename": "report.txt", "bytes": 5, "media_type": "text/plain", "call_id": "c1"}]


async def test_files_of_tools_are_parts_of_messages_steps_and_results(serve: Serve, model: ModelServer) -> None:
    service = await serve({"writer": writer})
    model.script(None, [Reply(tool_calls=[ToolCall("export", {"text": "Hello"}, id="c1")]), "Done."])
    result = await service.drsai.user("ann").run("writer", "Write.", thread_id="t")
    assert untold(result.files) == MADE
    [file] = result.files
    assert await service.drsai.files.read(Owner("default", "ann"), file["id"]) == b"Hello"
    for process in (service, await serve({"writer": writer})):
        answer = await process.http.get("/v1/threads/t/messages", params={"user": "ann"})
        given = {each["type"]: each["files"] for each in answer.json()["data"]}
        assert given == {"TextMessage": [], "ToolCallRequestEvent": [], "ToolCallExecutionEvent": [file]}
        assert f"id {file['id']}]" in answer.text, "the text says it as before"
        steps = (await process.http.get(f"/v1/runs/{result.run_id}/steps", params={"user": "ann"})).json()["data"]
        assert [each["files"] for each in steps] == [[file], []]
        thread = (await process.http.get("/v1/threads/t", params={"user": "ann"})).json()
        assert thread["team_result"]["files"] == [file]
        events = (await process.http.get(f"/v1/runs/{result.run_id}/events", params={"user": "ann"})).text
        assert events.count(json.dumps({"files": [file]}, separators=(",", ":"))[1:-1]) == 1


async def test_a_file_is_told_while_its_turn_waits_and_after_it_is_repeated_elsewhere(
    serve: Serve, model: ModelServer
) -> None:
    service = await serve({"writer": writer})
    write, approve = ToolCall("export", {"text": "Hello"}, id="c1"), ToolCall("send", {}, id="c2")
    model.script(None, [Reply(tool_calls=[write]), Reply(tool_calls=[approve]), "Done."])
    asked = await service.drsai.user("ann").run("writer", "Write and send.", thread_id="t")
    assert asked.input_request is not None
    listed = await service.drsai.user("ann").steps(asked.run_id or "")
    assert [untold([file.model_dump() for file in each.files]) for each in listed.items] == [MADE, []]
    other = await serve({"writer": writer})
    handle = await other.drsai.user("ann").answer("t", Answer(asked.input_request["id"], decision="approve"))
    async for _ in handle.events():
        pass
    answer = await other.http.get("/v1/threads/t/messages", params={"user": "ann"})
    assert [untold(each["files"]) for each in answer.json()["data"] if each["files"]] == [MADE]


@pytest.mark.parametrize("note", [None, 1, "nonsense", '{"id": 1}', '[{"id": "x"}]'])
def test_what_is_no_list_of_files_is_none(note: Any) -> None:
    """Messages of the release before have none, and those of an import may have anything."""
    assert files_of({"metadata": {} if note is None else {FILES: note}}) == []
    assert files_of({"metadata": note}) == []
