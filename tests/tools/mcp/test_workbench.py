"""The tools of MCP servers, of real ones, which are killed and hang."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import signal
import sys
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from autogen_core.tools import ImageResultContent, ToolResult
from mcp_types import ToolListChangedNotification

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.errors import ConfigurationError, NotInstalled
from drsai_backend.teams.context import problems
from drsai_backend.teams.registry import read_module
from drsai_backend.tools import approval_of, is_idempotent
from drsai_backend.tools.marks import Approval
from drsai_backend.tools.mcp import McpHttp, McpServers, McpStdio, McpWorkbench
from drsai_backend.tools.mcp.connection import Connection
from drsai_backend.tools.mcp.failures import ServerFailed
from drsai_backend.tools.mcp.host import McpHost, mcp_host, pool
from drsai_backend.tools.mcp.pool import Pool
from drsai_backend.tools.mcp.servers import read_server
from tests.support.processes import is_gone
from tests.tools.mcp.conftest import SERVER, processes, soon, stdio


async def text(workbench: McpWorkbench, name: str, **arguments: Any) -> str:
    result = await workbench.call_tool(name, arguments)
    assert not result.is_error, result.to_text()
    return result.to_text()


async def failure(workbench: McpWorkbench, name: str, **arguments: Any) -> str:
    result = await workbench.call_tool(name, arguments)
    assert result.is_error
    return result.to_text()


async def names(workbench: McpWorkbench) -> list[str]:
    return [schema["name"] for schema in await workbench.list_tools()]


async def test_a_server_that_gives_a_name_twice(tmp_path: Path) -> None:
    """Or that of a tool by which its resources are read: endpoints refuse a request with two tools of one name."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in ("look", "look", "list_resources")]
    about = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "x", "version": "1"}}
    answers: dict[str, Any] = {
        "initialize": {**about, "capabilities": {"tools": {}, "resources": {}}},
        "tools/list": {"tools": tools},
        "tools/call": {"content": [{"type": "text", "text": "its own"}]},
        "resources/list": {"resources": []},
        "resources/templates/list": {"resourceTemplates": []},
    }
    server = tmp_path / "server.py"
    server.write_text(
        f"import json, sys\nanswers = {answers!r}\n"
        "for line in sys.stdin:\n"
        "    asked = json.loads(line)\n"
        "    if 'id' in asked:\n"
        "        found = answers.get(asked['method'])\n"
        "        said = {'error': {'code': -32601, 'message': 'no'}} if found is None else {'result': found}\n"
        "        print(json.dumps({'jsonrpc': '2.0', 'id': asked['id'], **said}), flush=True)\n"
    )
    workbench = McpWorkbench([McpStdio(name="n", command=sys.executable, args=(str(server),), resources=True)])
    look, own, extra, read = await names(workbench)
    assert (look, own, read) == ("n__look", "n__list_resources", "n__read_resource")
    assert re.fullmatch(r"n__list_resources_[0-9a-f]{8}", extra)
    assert (await text(workbench, own), await text(workbench, extra)) == ("its own", "[]")


async def test_arguments_that_are_fixed() -> None:
    workbench = McpWorkbench([stdio(arguments={"double": {"number": 4}})])
    schemas = {schema["name"]: schema for schema in await workbench.list_tools()}
    parameters: Any = schemas["n__double"]["parameters"]
    assert (parameters["properties"], parameters["required"]) == ({}, [])
    assert await text(workbench, "n__double") == await text(workbench, "n__double", number=5) == "8"
    assert await text(McpWorkbench([stdio()]), "n__double", number=5) == "10", "by the same connection"
    for wrong, said in (
        ({"doubel": {"number": 4}}, "arguments.doubel: it has no such tool; did you mean 'double'"),
        ({"double": {"numbr": 4}}, "arguments.double.numbr: the tool has no such parameter; did you mean 'number'"),
        ({"double": {"number": "x"}}, "arguments.double.number: is no value of this parameter"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            await McpWorkbench([stdio(arguments=wrong)]).list_tools()


@pytest.mark.parametrize("field", ["timeout", "connect_timeout", "max_bytes", "max_output"])
def test_true_is_no_number(field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'n': {field}: must be a number"):
        read_server("n", {"url": "https://a.example/", field: True})


async def test_what_a_server_has(http: McpHttp) -> None:
    """Texts, images, resources and prompts, over stdio and HTTP, by one connection each."""
    workbench = McpWorkbench([stdio(resources=True, prompts=True), http])
    schemas = {schema["name"]: schema for schema in await workbench.list_tools()}
    assert {"n__double", "n__read_resource", "n__get_prompt", "web__double"} <= set(schemas)
    assert "web__read_resource" not in schemas
    assert "$defs" in schemas["n__norm"]["parameters"]
    assert await text(workbench, "n__norm", point={"x": 1, "y": 2}) == "3"
    assert "no such thing" not in await failure(workbench, "n__fail")
    assert await failure(workbench, "n__nothing")
    assert await failure(workbench, "elsewhere__double") == "there is no tool 'elsewhere__double'"
    result = await workbench.call_tool("n__picture")
    assert isinstance(result.result[0], ImageResultContent)
    assert ToolResult.model_validate(result.model_dump(mode="json")).result[0].type == "ImageResultContent"
    assert "note://hello" in await text(workbench, "n__list_resources")
    assert await text(workbench, "n__read_resource", uri="note://hello") == "Hello."
    assert await failure(workbench, "n__read_resource") == "the argument `uri` must be a string"
    assert (
        "Greet Ann."
        in (await workbench.call_tool("n__get_prompt", {"name": "greet", "arguments": {"name": "Ann"}})).to_text()
    )
    several = await asyncio.gather(*(text(McpWorkbench([stdio()]), "n__pid") for _ in range(10)))
    assert {*several, await text(workbench, "n__pid")} == {str(processes()[0].pid)}
    assert await text(workbench, "web__double", number=4) == "8"


async def test_what_is_offered_of_a_server() -> None:
    workbench = McpWorkbench([stdio(include=("double", "pid"), exclude=("pid",), trust_hints=True)])
    assert await names(workbench) == ["n__double"]
    assert await failure(workbench, "n__pid") == "there is no tool 'n__pid'"
    assert is_idempotent(workbench.find_tool("n__double"))
    other = McpWorkbench([stdio(requires_approval=True)])
    await other.list_tools()
    assert not is_idempotent(other.find_tool("n__double"))
    assert approval_of(other.find_tool("n__double")) is not None
    guarded = [stdio(permission="tools:register")]
    assert "needs the scope" in await failure(McpWorkbench(guarded), "n__double", number=1)
    who = Principal(scopes=frozenset({Scope.TOOLS_REGISTER}))
    assert await text(McpWorkbench(guarded, principal=who), "n__double", number=1) == "2"


async def test_a_server_that_dies_is_an_error_and_starts_again() -> None:
    workbench = McpWorkbench([stdio()])
    first = await text(workbench, "n__pid")
    assert "closed the connection" in await failure(workbench, "n__die")
    second = await text(workbench, "n__pid")
    assert second != first
    os.kill(int(second), signal.SIGKILL)  # while nobody asks it
    await soon(lambda: is_gone(int(second)))
    await asyncio.sleep(0.1)
    assert await text(workbench, "n__double", number=2) == "4"


async def test_a_call_is_not_made_twice(tmp_path: Path) -> None:
    """The server is killed while it is asked."""
    workbench, made = McpWorkbench([stdio()]), tmp_path / "made"
    pid = int(await text(workbench, "n__pid"))
    calling = asyncio.create_task(workbench.call_tool("n__count", {"path": str(made), "wait": 30}))
    await soon(made.exists)
    os.kill(pid, signal.SIGKILL)
    assert (await calling).is_error
    assert await text(workbench, "n__count", path=str(made))
    assert len(made.read_text().splitlines()) == 2


@pytest.mark.parametrize("kind", ["stdio", "http"])
async def test_a_refusal_is_none_of_other_calls(kind: str, http: McpHttp, tmp_path: Path) -> None:
    server = stdio() if kind == "stdio" else http.model_copy(update={"name": "n"})
    file = tmp_path / "file"
    file.touch()
    waiting = asyncio.create_task(text(McpWorkbench([server]), "n__wait", path=str(file)))
    before = await text(McpWorkbench([server]), "n__pid")
    said = await failure(McpWorkbench([server]), "n__refuse")
    assert said == "the MCP server n answered with an error: order numbers are not negative"
    file.unlink()
    assert await waiting == "gone"
    assert await text(McpWorkbench([server]), "n__pid") == before


class Sessions:
    """A server of the protocol's earlier kind, which can forget its sessions."""

    def __init__(self) -> None:
        self.last = self.oldest = 0

    def answer(self, method: str, session: int, params: dict[str, Any]) -> dict[str, Any]:
        if method == "initialize":
            self.last += 1
            about: dict[str, Any] = {"capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
            return {"result": {"protocolVersion": params["protocolVersion"], **about}}
        if method == "tools/list":
            return {"result": {"tools": [{"name": "any", "inputSchema": {"type": "object"}}]}}
        if method == "tools/call" and session >= self.oldest:
            return {"result": {"content": [{"type": "text", "text": str(session)}]}}
        code, text = (-32600, "Session not found") if method == "tools/call" else (-32601, "no such method")
        return {"error": {"code": code, "message": text}}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        named = dict(line.split(b": ", 1) for line in head.split(b"\r\n") if b": " in line)
        asked = json.loads(await reader.readexactly(int(named.get(b"content-length", b"0"))) or b"{}")
        status, body = b"405 Method Not Allowed" if head.startswith(b"get") else b"202 Accepted", b""
        if "id" in asked:
            answer = self.answer(asked["method"], int(named.get(b"mcp-session-id", b"0")), asked.get("params", {}))
            status = b"404 Not Found" if "error" in answer else b"200 OK"
            body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}).encode()
        about = b"Content-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n" % len(body)
        if asked.get("method") == "initialize":
            about += b"Mcp-Session-Id: %d\r\n" % self.last
        writer.write(b"HTTP/1.1 " + status + b"\r\n" + about + b"\r\n" + body)
        await writer.drain()
        writer.close()


async def test_a_session_that_its_server_has_forgotten_is_replaced() -> None:
    sessions = Sessions()
    async with await asyncio.start_server(sessions.serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        workbench = McpWorkbench([McpHttp(name="n", url=url)])  # pyright: ignore[reportArgumentType]
        assert await text(workbench, "n__any") == "1"
        sessions.oldest = 2
        assert "closed the connection: Session not found" in await failure(workbench, "n__any")
        assert await text(workbench, "n__any") == "2"
        await pool().close()


async def test_a_list_that_changes_while_it_is_read_is_read_again() -> None:
    connection = Connection(stdio())
    await connection.ready()
    read, changed = connection.request, ToolListChangedNotification()

    async def changing(*args: Any) -> Any:
        tools = await read(*args)
        await connection._heard(changed)
        return tools[:1]

    connection.request = changing
    assert len(await connection.tools(20)) == 1
    connection.request = read
    assert len(await connection.tools(20)) > 1
    connection.close_soon()
    await connection.closed()


async def test_a_server_that_hangs_is_an_error_in_its_time() -> None:
    """Stopped, it reads and writes nothing, and does not end by itself. The third time another one is started."""
    workbench = McpWorkbench([stdio(timeout=0.3)])
    pid = int(await text(workbench, "n__pid"))
    os.kill(pid, signal.SIGSTOP)
    for _ in range(3):
        began = time.monotonic()
        assert "did not answer within 0.3 s" in await failure(workbench, "n__double", number=1)
        assert time.monotonic() - began < 2
    assert int(await text(McpWorkbench([stdio(timeout=20)]), "n__pid")) != pid
    await soon(lambda: len(processes()) == 1)


async def test_many_pictures_are_read_within_the_time_of_the_call() -> None:
    """A process looks at each of them."""
    many = await failure(McpWorkbench([stdio(timeout=2)]), "n__many", pictures=1_000, texts=0)
    assert many == "n answered with what cannot be read within 2 seconds"
    result = await McpWorkbench([stdio(timeout=60)]).call_tool("n__many", {"pictures": 1, "texts": 150})
    assert [each.type for each in result.result[:2]] == ["ImageResultContent", "TextResultContent"]
    assert result.to_text().endswith("98\n[51 more parts are left out, of 151]")


async def test_answers_are_bounded(http: McpHttp) -> None:
    for server in (stdio(max_bytes=50_000), http.model_copy(update={"name": "n", "max_bytes": 50_000})):
        workbench = McpWorkbench([server])
        await text(workbench, "n__double", number=1)
        before = psutil.Process().memory_info().rss
        assert "50000 bytes" in await failure(workbench, "n__long", size=100_000)
        assert await failure(workbench, "n__long", size=40_000_000)
        assert psutil.Process().memory_info().rss - before < 30_000_000
        assert await text(workbench, "n__double", number=2) == "4"


async def test_a_backup_stands_for_what_cannot_be_reached(http: McpHttp) -> None:
    gone = McpHttp(name="n", url="http://127.0.0.1:1/mcp", backup=http)  # pyright: ignore[reportArgumentType]
    workbench = McpWorkbench([gone])
    assert "n__double" in await names(workbench)
    assert await text(workbench, "n__double", number=3) == "6"
    alone = McpWorkbench([gone.model_copy(update={"backup": None}), stdio(name="m")])
    assert "cannot be reached" in await failure(alone, "n__double", number=3)
    offered = await names(alone)
    assert {name.partition("__")[0] for name in offered} == {"m", "n"}
    assert [name for name in offered if name.startswith("n__")] == ["n__unavailable"]
    with pytest.raises(ServerFailed):
        await McpWorkbench([gone.model_copy(update={"backup": None, "required": True})]).list_tools()
    missing = McpWorkbench([McpStdio(name="x", command="no-such-program")])
    assert "there is no program" in await failure(missing, "x__y")


async def test_the_pool_is_bounded_and_closes_what_is_idle() -> None:
    own, one, two = Pool(most=1, idle_seconds=0.1), stdio(), stdio(env={"A": "b"})
    async with own.connection(one):
        with pytest.raises(ServerFailed, match="no more may be"):
            async with own.connection(two):
                pass
    async with own.connection(two):
        assert own.count <= 2
    await soon(lambda: own.count == 0)


async def test_a_tenant_has_a_quarter_of_the_pool(http: McpHttp) -> None:
    """However many servers they have registered; those of the operator are nobody's."""
    own = Pool(most=8)

    def of(tenant: str | None, number: int) -> McpHttp:
        return http.model_copy(update={"tenant": tenant, "headers": {"x-number": str(number)}})

    async with AsyncExitStack() as used:
        for tenant, many in (("acme", 2), (None, 3), ("other", 2)):
            for number in range(many):
                await used.enter_async_context(own.connection(of(tenant, number)))
        for tenant in ("acme", "other"):
            with pytest.raises(ServerFailed, match="2 MCP servers of this tenant are in use, and no more may be"):
                await used.enter_async_context(own.connection(of(tenant, 7)))
            await used.enter_async_context(own.connection(of(tenant, 0)))  # One that is open is shared.
        await used.enter_async_context(own.connection(of("third", 0)))
        with pytest.raises(ServerFailed, match="8 MCP servers are in use"):
            await used.enter_async_context(own.connection(of("third", 1)))
    async with own.connection(of("acme", 7)):  # In place of one that nobody uses any more.
        pass
    await own.close()


async def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """The parent is killed, and cannot close anything."""
    script = (
        "import asyncio, sys\n"
        "from drsai_backend.tools.mcp import McpStdio, McpWorkbench\n"
        "async def main():\n"
        "    own = McpWorkbench([McpStdio(name='n', command=sys.executable, args=(sys.argv[1],))])\n"
        "    print((await own.call_tool('n__pid')).to_text(), flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(SERVER), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    os.kill(pid, signal.SIGSTOP)  # It cannot see the end of its input.
    parent.kill()
    await parent.wait()
    await soon(lambda: is_gone(pid))


async def test_two_hundred_calls_leave_nothing() -> None:
    descriptors = psutil.Process().num_fds
    async with McpWorkbench([stdio()]) as workbench:
        await text(workbench, "n__double", number=1)
        before = descriptors()
        for number in range(200):
            assert await text(McpWorkbench([stdio()]), "n__double", number=number) == str(2 * number)
        assert descriptors() <= before + 1
    assert pool().count == 0


def on_shelf(host: McpHost) -> None:
    """As while a team is built; a test has a context of its own."""
    mcp_host.set(host)


async def test_only_servers_of_the_operator_are_named(tmp_path: Path) -> None:
    file = tmp_path / "servers.yaml"
    file.write_text("mcpServers:\n  files: {command: cat}\n  web: {url: 'https://x.example/mcp', type: sse}\n")
    on_shelf(McpHost(McpServers.read(file)))
    workbench = McpWorkbench(["files", "web"])
    component = workbench.dump_component()
    assert component.config == {"servers": ["files", "web"]}
    assert McpWorkbench.load_component(component).dump_component() == component
    with pytest.raises(ConfigurationError, match="there is no MCP server 'other'"):
        McpWorkbench(["other"])
    with pytest.raises(ConfigurationError):
        McpWorkbench([stdio()]).dump_component()
    with pytest.raises(ConfigurationError, match="'a': url"):
        read_server("a", {"url": "ftp:/x"})
    with pytest.raises(ConfigurationError, match="comand"):
        read_server("a", {"command": "x", "comand": "y"})


@pytest.mark.parametrize("key", ["mcp_servers", "mcpServers", None])
async def test_a_file_may_have_a_list_of_servers_and_switch_one_off(tmp_path: Path, key: str | None) -> None:
    shared = stdio().model_dump(mode="json", exclude={"name", "backup", "requires_approval"})
    servers = [
        {"name": "on", **shared, "enabled": True},
        {"name": "off", "command": "no-such-program", "enabled": False},
    ]
    file = tmp_path / "servers.json"
    file.write_text(json.dumps(servers if key is None else {key: servers}))
    host = McpHost(McpServers.read(file))
    on_shelf(host)
    workbench = McpWorkbench(["on", "off"], host=host)
    try:
        assert {name.partition("__")[0] for name in await names(workbench)} == {"on"}
        assert await failure(workbench, "off__double", number=1) == "there is no tool 'off__double'"
        assert await names(McpWorkbench(["off"], host=host)) == []
        assert workbench.dump_component().config == {"servers": ["on", "off"]}
    finally:
        await host.pool.close()


@pytest.mark.parametrize(
    ("slip", "said"),
    [("notby", "; did you mean 'not_by'?"), ("role", "; there are by, not_by, deadline"), (1, "; there are ")],
)
def test_a_misspelt_key_of_an_approval_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, slip: object, said: str
) -> None:
    """Earlier releases passed it over: the file that has one is served on."""
    approval = {"by": "role:treasurer", slip: "asker", "deadline": 60}
    text = yaml.safe_dump({"pay": {"command": "cat", "requires_approval": approval, "backup": {"command": "cat"}}})
    (tmp_path / "servers.yaml").write_text(text)
    [server] = McpServers.read(tmp_path / "servers.yaml")
    assert server.requires_approval == Approval(by="role:treasurer", deadline=timedelta(minutes=1))
    [line] = caplog.messages
    assert f"the MCP server 'pay': requires_approval.{slip}: there is no such field{said}" in line
    with pytest.raises(ConfigurationError, match="requires_approval"):
        read_server("pay", {"command": "cat", "requires_approval": {"by": 1}})


def test_a_file_of_servers_that_is_not_there_is_told_with_its_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as raised:
        McpServers.read(tmp_path / "no.yaml")
    assert raised.value.message == f"DRSAI_MCP_SERVERS: {tmp_path}/no.yaml cannot be read: No such file or directory"


@pytest.mark.parametrize(
    ("servers", "wrong"),
    [
        ([{"command": "cat"}], "the MCP server '': name: String should match"),
        ([{"name": "a", "command": "cat"}, {"name": "a", "command": "dog"}], "another MCP server with the name 'a'"),
        (["files"], "servers.json must hold an object for each server, by name, or with its `name`"),
        ([], "must hold an object for each server"),
        ([{"name": "a", "command": "cat", "enabled": "perhaps"}], "the MCP server 'a': enabled: Input should be"),
    ],
)
def test_what_is_wrong_in_a_list_of_servers(tmp_path: Path, servers: Any, wrong: str) -> None:
    file = tmp_path / "servers.json"
    file.write_text(json.dumps(servers))
    with pytest.raises(ConfigurationError, match=re.escape(wrong)):
        McpServers.read(file)


async def test_another_release_of_its_package_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "drsai_backend.tools.mcp.connection", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.client.client", None)  # as in mcp 1
    with pytest.raises(NotInstalled, match=re.escape("need mcp 2.3 or later (pip install 'drsai-backend[mcp]')")):
        await McpWorkbench([stdio()]).list_tools()


def test_autogens_own_workbench_says_which_release_it_needs(tmp_path: Path) -> None:
    """AutoGen 0.7.5 imports names of mcp 1; where it can be used, nothing has to be said."""
    try:
        importlib.import_module("autogen_ext.tools.mcp")
    except ImportError:
        pass
    else:
        pytest.skip("this environment has mcp 1")
    wanted = re.escape("autogen_ext.tools.mcp of AutoGen 0.7.5 needs mcp 1 (pip install 'mcp<2')")
    part = {"provider": "autogen_ext.tools.mcp.McpWorkbench", "config": {"server_params": {"command": "x"}}}
    config = {"provider": "autogen_agentchat.agents.AssistantAgent", "config": {"name": "a", "workbench": [part]}}
    assert any(re.search(wanted, each) for each in problems(config))
    file = tmp_path / "team.py"
    file.write_text("from autogen_ext.tools.mcp import McpWorkbench\n")
    with pytest.raises(ConfigurationError, match=wanted) as told:
        read_module(str(file))
    assert "drsai_backend.tools.mcp.McpWorkbench (docs/mcp.md)" in str(told.value)


async def test_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, http: McpHttp) -> None:
    secret = http.model_copy(update={"headers": {"Authorization": "Bearer ${THE_TOKEN}"}})
    assert "THE_TOKEN, which is not set" in await failure(McpWorkbench([secret]), "web__double", number=1)
    monkeypatch.setenv("THE_TOKEN", "t")
    other = secret.model_copy(update={"headers": {"X-Other": "${THE_TOKEN}"}})
    assert await text(McpWorkbench([other]), "web__double", number=1) == "2"


DYING = "import sys; sys.stderr.write('no licence found'); sys.exit(3)"


async def test_a_program_that_dies_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """What it said is in the log, and the model is told that there are no tools, and why."""
    workbench = McpWorkbench([stdio(args=("-c", DYING)), stdio(name="m")])
    listed = {schema["name"]: schema.get("description", "") for schema in await workbench.list_tools()}
    assert "m__double" in listed
    assert "the tools of n are missing, as the MCP server n cannot be reached" in listed["n__unavailable"]
    assert [name for name in listed if name.startswith("n__")] == ["n__unavailable"]
    assert await failure(workbench, "n__unavailable")
    await soon(lambda: "the MCP server n has ended (3). It said: no licence found" in caplog.text)
