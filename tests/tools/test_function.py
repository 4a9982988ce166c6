"""`@tool`: schema, validation, dependencies, results and errors."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from autogen_core import CancellationToken
from autogen_core.tools import StaticStreamWorkbench, ToolResult
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from drsai_backend.access.principal import Principal
from drsai_backend.errors import ConfigurationError, ToolError, TransientToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools import (
    Depends,
    FileOutput,
    FileRef,
    ToolRun,
    cached,
    call_tool,
    dependency_overrides,
    register_tool,
    registered_tool,
    tool,
)
from drsai_backend.tools.checking import check_against
from drsai_backend.tools.classes import parameters_schema
from drsai_backend.tools.fixed import wrong_arguments
from drsai_backend.tools.threads import ToolThreads


class Colour(Enum):
    RED = "red"


class Node(BaseModel):
    title: str
    children: list[Node] = []


class Point(BaseModel):
    x: int = Field(description="to the right")


class Files:
    def __init__(self) -> None:
        self.kept: list[bytes] = []

    async def save(self, name: str, data: bytes, media_type: str) -> FileRef:
        self.kept.append(data)
        return FileRef(f"file_{len(self.kept)}", name, len(data), media_type)

    async def read(self, file_id: str) -> bytes:
        raise NotImplementedError


def text(result: ToolResult) -> str:
    return result.to_text()


@pytest.mark.parametrize(
    "doc",
    [
        "Draw.\n\nArgs:\n    point: where\n",
        "Draw.\n\nParameters\n----------\npoint : Point\n    where\n",
        "Draw.\n\n:param point: where\n",
    ],
    ids=["google", "numpy", "rest"],
)
def test_schema(doc: str) -> None:
    def draw(point: Point, node: Node, colour: Colour, size: Literal[1, 2] = 1, note: str | None = None) -> None: ...

    draw.__doc__ = doc
    made = tool(draw)
    assert (made.name, made.description) == ("draw", "Draw.")
    found = made.parameters
    assert found["properties"]["point"] == {
        "type": "object",
        "properties": {"x": {"type": "integer", "description": "to the right"}},
        "required": ["x"],
        "description": "where",
    }
    assert (
        found["properties"]["colour"] == {"enum": ["red"], "type": "string"}
        or found["properties"]["colour"]["const"] == "red"
    )
    assert found["required"] == ["point", "node", "colour"]
    assert list(found["$defs"]) == ["Node"], "only what refers to itself stays"
    assert "title" in found["$defs"]["Node"]["properties"], "a property of that name is no title"


async def test_strict() -> None:
    @tool(strict=True)
    async def find(word: str, limit: int = 3) -> str:
        return f"{word} {limit}"

    assert find.parameters["required"] == ["word", "limit"]
    assert find.parameters["properties"]["limit"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert text(await call_tool(find, {"word": "a", "limit": None})) == "a 3"
    with pytest.raises(ConfigurationError, match="any keys"):
        tool(strict=True)(lambda_of_dict)


async def lambda_of_dict(values: dict[str, int]) -> None: ...


values = st.one_of(st.none(), st.integers(), st.text(max_size=5), st.booleans(), st.lists(st.integers(), max_size=2))


@given(st.dictionaries(st.sampled_from(["amount", "colour", "note", "other"]), values))
def test_what_is_accepted_fits_the_schema(arguments: dict[str, Any]) -> None:
    @tool
    async def pay(amount: Annotated[int, Field(ge=1)], colour: Literal["a"] = "a", note: str | None = None) -> None: ...

    refused = None
    try:
        check_against(pay.parameters, pay.check(arguments))
    except ToolError as error:
        refused = error.message
    if refused is not None:
        assert "`pay` are not valid" in refused
        assert any(f"`{name}`" in refused for name in ("amount", "colour", "note", "other"))


async def test_dependencies() -> None:
    log: list[str] = []

    def number() -> int:
        log.append("number")
        return 4

    async def opened(value: Annotated[int, Depends(number)]) -> AsyncIterator[int]:
        log.append("open")
        try:
            yield value
        finally:
            log.append("close")

    def threaded() -> Iterator[int]:
        yield 1
        log.append("threaded")

    @tool
    async def add(
        n: int, who: Principal, run: ToolRun, db: Annotated[int, Depends(opened)], more: int = Depends(threaded)
    ) -> str:
        if n < 0:
            raise ValueError("secret")
        return f"{n + db + more} {who.user_id} {run.call_id}"

    assert list(add.parameters["properties"]) == ["n"]
    run = ToolRun(call_id="c", provided={Principal: Principal("ada")})
    assert text(await call_tool(add, {"n": 1}, run)) == "6 ada c"
    failed = await call_tool(add, {"n": -1}, run)
    assert failed.is_error
    assert "secret" not in text(failed)
    assert log == ["number", "open", "threaded", "close", "open", "close"]
    with dependency_overrides({opened: lambda: 10}):
        assert text(await call_tool(add, {"n": 1}, run)) == "12 ada c"
    assert (await call_tool(add, {"n": 1})).is_error, "nobody is there to be injected"


async def test_results() -> None:
    files = Files()
    run = ToolRun(files=files)

    @tool(max_output=100)
    async def give(kind: str) -> Any:
        return {"none": None, "model": Point(x=1), "long": "x" * 250, "file": FileOutput("a.csv", b"1")}[kind]

    assert text(await call_tool(give, {"kind": "none"})) == ""
    assert text(await call_tool(give, {"kind": "model"})) == '{"x":1}'
    cut = text(await call_tool(give, {"kind": "long"}, run))
    assert cut.startswith("x" * 100 + "\n[")
    assert "file_1" in cut
    assert files.kept == [b"x" * 250]
    assert "file_2" not in cut


async def test_partial_results_and_retries() -> None:
    seen: list[object] = []

    @tool
    async def count(to: int) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    assert text(await call_tool(count, {"to": 3}, ToolRun(emit=seen.append))) == "2"
    assert seen == [0, 1]
    tries: list[int] = []

    @tool(retries=1)
    async def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise TransientToolError("busy")
        return "done"

    assert text(await call_tool(flaky, {})) == "done"


async def test_a_thread_that_hangs_is_replaced() -> None:
    pool, began, release = ToolThreads(1), threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        release.wait()

    hanging = asyncio.create_task(pool.run(hang))
    await asyncio.to_thread(began.wait)
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
    assert await pool.run(lambda: 7) == 7
    assert pool.hanging == 1
    release.set()


async def test_permission_and_middleware() -> None:
    calls: list[int] = []

    @tool(permission="pay", idempotent=True)
    async def pay(amount: int) -> int:
        calls.append(amount)
        return amount

    assert "pay" in text(await call_tool(pay, {"amount": 1}, ToolRun(allows=lambda scope: False)))
    run = ToolRun(middleware=[cached()], allows=lambda scope: True)
    assert [text(await call_tool(pay, {"amount": 2}, run)) for _ in range(2)] == ["2", "2"]
    assert calls == [2]
    for who in (Principal("b/c", "a"), Principal("c", "a/b")):
        run = ToolRun(provided={Principal: who}, asker=f"{who.tenant}/{who.user_id}", middleware=run.middleware)
        await call_tool(pay, {"amount": 3}, run)
    assert calls == [2, 3, 3], "a name may hold any character"


async def test_in_workbenches_of_autogen() -> None:
    @tool
    def double(n: int) -> int:
        return 2 * n

    assert double(2) == 4
    workbench = StaticStreamWorkbench([double])
    assert text(await workbench.call_tool("double", {"n": 2}, CancellationToken())) == "4"
    wrong = await workbench.call_tool("double", {"n": "x"})
    assert wrong.is_error
    assert "`n`" in text(wrong)


async def test_registered_class() -> None:
    @register_tool("tests_weather", author="Ada")
    class Weather:
        """The weather."""

        parameters = [{"name": "city", "type": "string", "description": "its name", "required": True}]

        async def call(self, arguments: dict[str, Any], run: ToolRun) -> str:
            return f"sun in {arguments['city']}"

    made = registered_tool("tests_weather")
    assert (made.identity.author, made.description) == ("Ada", "The weather.")
    assert text(await call_tool(made, {"city": "Rome"})) == "sun in Rome"
    assert "city" in text(await call_tool(made, {}))
    with pytest.raises(ConfigurationError, match="did you mean"):
        registered_tool("test_weather")


async def test_a_text_is_the_description() -> None:
    @tool("Pay somebody.", name="pay", retries=1)
    async def money(amount: int) -> str:
        """For those who read the code."""
        return f"paid {amount}"

    assert (money.name, money.description, money.options.retries) == ("pay", "Pay somebody.", 1)
    assert text(await call_tool(money, {"amount": 2})) == "paid 2"
    assert await money(3) == "paid 3"

    @tool("")
    def silent() -> None:
        """Not said."""

    assert silent.description == ""
    with pytest.raises(ConfigurationError, match="two descriptions: 'a' and description='b'"):
        tool("a", description="b")  # type: ignore[call-overload]


def test_a_registered_class_may_be_replaced_where_that_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Old:
        """Old."""

        def call(self, arguments: JsonObject, run: ToolRun) -> str:
            return "old"

    class New(Old):
        """New."""

        name = "tests_replaced"

    register_tool("tests_replaced")(Old)
    with pytest.raises(ConfigurationError, match="take another name, or say allow_overwrite=True"):
        register_tool("tests_replaced")(New)
    assert registered_tool("tests_replaced").description == "Old."
    register_tool("tests_replaced", allow_overwrite=True)(New)
    assert registered_tool("tests_replaced").description == "New."
    assert "registered anew" in caplog.text
    with pytest.raises(
        ConfigurationError, match=r"New\.name is 'tests_replaced', and it is registered as 'tests_other'"
    ):
        register_tool("tests_other", allow_overwrite=True)(New)
    with pytest.raises(ConfigurationError, match="no tool 'tests_other'"):
        registered_tool("tests_other")


def doubled(depth: int) -> JsonObject:
    """What refers twice to what refers twice to the next."""
    defs: JsonObject = {
        f"a{n}": {"properties": {name: {"$ref": f"#/$defs/a{n + 1}"} for name in "xy"}} for n in range(depth)
    }
    return {"properties": {"a": {"$ref": "#/$defs/a0"}}, "$defs": {**defs, f"a{depth}": {"type": "integer"}}}


def nested(depth: int, key: str) -> JsonObject:
    made: JsonObject = {}
    for _ in range(depth):
        made = {key: made}
    return made


LOOP: JsonObject = {
    "properties": {"a": {"$ref": "#/$defs/l"}},
    "$defs": {
        "l": {"anyOf": [{"properties": {"n": {"$ref": "#/$defs/l"}}, "required": [each]} for each in ("y", "z")]}
    },
}


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (doubled(60), {"x": {"y": 1}}, None),
        (LOOP, nested(60, "n"), "they take too long to check"),
        ({"properties": {"a": {"pattern": "^(a|aa)+$"}}}, "a" * 100 + "!", "too long|does not match"),
        ({"properties": {"a": {"patternProperties": {"(a|aa)+$": {}}}}}, {"a" * 100 + "!": 1}, "too long"),
        ({"properties": {"a": {"uniqueItems": True}}}, [{"x": n} for n in range(20_000)], None),
        ({"properties": {"a": {"uniqueItems": True}}}, [{"x": 1, "y": 2}, {"y": 2, "x": 1}], "an item twice"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, 1, "too long"),
        ({"properties": {"a": {"patternProperties": {"^b": {}}, "additionalProperties": False}}}, {"c": 1}, "'c' was"),
    ],
)
def test_no_schema_makes_a_check_long(schema: JsonObject, value: object, said: str | None) -> None:
    """A schema comes from whoever may register a tool, and arguments from the model. All wait for the check."""
    began = time.process_time()
    checked = parameters_schema(schema)
    if said is None:
        assert check_against(checked, {"a": value}) == {"a": value}
    else:
        with pytest.raises(ToolError, match=said):
            check_against(checked, {"a": value})
    assert time.process_time() - began < 4


def test_defaults_share_the_time_of_their_check() -> None:
    """Each of them, and each fixed argument, could take as long as a check may."""
    slow = {"$ref": "#/$defs/l", "default": nested(60, "n")}
    schema: JsonObject = {"properties": {f"p{n}": slow for n in range(40)}, "$defs": LOOP["$defs"]}
    began = time.process_time()
    with pytest.raises(ToolError, match="they take too long to check"):
        check_against(schema, {})
    assert time.process_time() - began < 8
    assert len(list(wrong_arguments(schema, {f"p{n}": slow["default"] for n in range(40)}))) == 40
    assert time.process_time() - began < 16


def test_a_default_whose_pattern_is_none_is_left_out() -> None:
    schema = {
        "properties": {"a": {"pattern": "(", "default": "x"}, "b": {"$ref": "#/properties/c", "default": 1}, "c": {}}
    }
    assert check_against(schema, {}) == {"b": 1}


@pytest.mark.parametrize(
    "parameters",
    [
        {"properties": 5},
        {"$defs": 5},
        {"properties": {"a": nested(600, "items")}},
        {"properties": {"a": {"properties": [1]}}},
        [{"name": "a", "type": ["x"]}],
    ],
)
def test_parameters_that_are_no_schema(parameters: Any) -> None:
    with pytest.raises(ConfigurationError):
        parameters_schema(parameters)
