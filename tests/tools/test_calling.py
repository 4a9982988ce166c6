"""A call of a tool: its options, its errors, and what it depends on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import pytest
from autogen_core import Image
from autogen_core.tools import ImageResultContent
from PIL import Image as Picture
from pydantic import BaseModel

from drsai_backend import Depends, FileOutput, ToolError, ToolRun, TransientToolError, tool
from drsai_backend.access.principal import Principal
from drsai_backend.errors import ConfigurationError, NotFound
from drsai_backend.tools import FileRef, ToolOptions, dependency_overrides
from drsai_backend.tools.calling import call_tool as call
from tests.support.threads import settings


class Kept:
    """Keeps files in memory."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    async def save(self, name: str, data: bytes, media_type: str | None = None) -> FileRef:
        self.files[f"file-{len(self.files)}"] = data
        return FileRef(f"file-{len(self.files) - 1}", name, len(data), media_type)

    async def read(self, file_id: str) -> bytes:
        return self.files[file_id]


async def text_of(made: Any, arguments: dict[str, Any] | None = None, run: ToolRun | None = None) -> str:
    result = await call(made, arguments or {}, run or ToolRun())
    return ("! " if result.is_error else "") + result.to_text(replace_image="[image]")


class Place(BaseModel):
    name: str


class TestResults:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("ü", "ü"),
            (None, ""),
            (1.5, "1.5"),
            ({"a": ["ü", Place(name="x")]}, '{"a":["ü",{"name":"x"}]}'),
            ([1, 2], "[1,2]"),
            (Place(name="x"), '{"name":"x"}'),
        ],
        ids=str,
    )
    async def test_values(self, value: Any, text: str) -> None:
        @tool
        async def give() -> Any:
            return value

        assert await text_of(give) == text

    async def test_parts(self) -> None:
        @tool
        async def draw() -> list[Any]:
            return ["A plot:", Image(Picture.new("RGB", (2, 2))), FileOutput("data.csv", b"1,2")]

        kept = Kept()
        result = await call(draw, {}, ToolRun(files=kept))
        assert isinstance(result.result[1], ImageResultContent)
        assert (
            result.to_text(replace_image="[image]") == "A plot:\n[image]\n[file data.csv, text/csv, 3 bytes, id file-0]"
        )
        assert kept.files == {"file-0": b"1,2"}
        assert "keeps no files" in await text_of(draw)

    async def test_a_long_output_is_cut_and_kept(self) -> None:
        @tool(max_output=100)
        async def give() -> str:
            return "x" * 150

        kept = Kept()
        text = await text_of(give, run=ToolRun(files=kept))
        assert text.startswith("x" * 100)
        assert text.count("x") < 110
        assert "file-0" in text
        assert kept.files == {"file-0": b"x" * 150}
        assert "file-0" not in await text_of(give)

    async def test_partial_results(self) -> None:
        shown: list[object] = []

        @tool
        async def count() -> AsyncIterator[int]:
            for number in range(3):
                yield number

        assert await text_of(count, run=ToolRun(emit=shown.append)) == "2"
        assert shown == [0, 1]


class TestErrors:
    async def test_what_a_tool_says_and_what_it_raises(self, caplog: pytest.LogCaptureFixture) -> None:
        @tool
        async def refuse() -> None:
            raise ToolError("There is no such place: give its city, too.")

        @tool
        async def break_() -> None:
            raise ValueError("password: hunter2")

        assert await text_of(refuse) == "! There is no such place: give its city, too."
        assert (await text_of(break_)).startswith("! The tool break_ failed (ValueError).")

        @tool
        async def find() -> str:
            raise NotFound("there is no file 'x'")

        assert await text_of(find) == "! there is no file 'x'"
        assert "hunter2" in caplog.text

    async def test_a_time_out_ends_a_generator_without_end(self) -> None:
        """It awaits nothing."""

        @tool(timeout=0.05)
        async def count() -> AsyncIterator[int]:
            number = 0
            while number < 2_000_000:
                yield (number := number + 1)

        assert "gave no answer within 0.05 seconds" in await text_of(count)

    async def test_a_time_out_ends_an_async_tool(self) -> None:
        ended = False

        @tool(timeout=0.05)
        async def hang() -> None:
            nonlocal ended
            try:
                await asyncio.sleep(60)
            finally:
                ended = True

        assert "gave no answer within 0.05 seconds" in await text_of(hang)
        assert ended

    async def test_a_time_out_of_its_own_is_its_error(self) -> None:
        @tool
        async def ask() -> None:
            raise TimeoutError

        assert "failed (TimeoutError)" in await text_of(ask)

    @pytest.mark.parametrize(("failures", "text"), [(2, "worked"), (3, "! busy")])
    async def test_transient_errors_are_tried_again(
        self, failures: int, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("drsai_backend.tools.calling._FIRST_PAUSE", 0.001)
        tries = 0

        @tool(retries=2)
        async def ask() -> str:
            nonlocal tries
            tries += 1
            if tries <= failures:
                raise TransientToolError("busy")
            return "worked"

        assert await text_of(ask) == text
        assert tries == min(failures + 1, 3)

    async def test_other_errors_are_not(self) -> None:
        tries = 0

        @tool(retries=5)
        async def ask() -> None:
            nonlocal tries
            tries += 1
            raise ToolError("no")

        await text_of(ask)
        assert tries == 1

    async def test_cancelling_ends_the_call(self) -> None:
        @tool
        async def hang() -> None:
            await asyncio.sleep(60)

        task = asyncio.create_task(call(hang, {}, ToolRun()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestTimes:
    """How long an attempt may take: operators have the last word by name, and the first where a tool says nothing."""

    @pytest.mark.parametrize(
        ("options", "said", "seconds"),
        [
            ({"timeout": 0.01}, {}, "0.01"),
            ({"timeout": 60}, {"hang": 0.02}, "0.02"),
            ({"timeout": None}, {"hang": 0.02, "*": 0.03}, "0.02"),
            ({}, {"*": 0.03}, "0.03"),
            ({"timeout": 0.01}, {"*": 60, "other": 60}, "0.01"),
        ],
    )
    async def test_of_a_call_that_hangs(self, options: dict[str, Any], said: dict[str, float], seconds: str) -> None:
        @tool(**options)
        async def hang() -> None:
            await asyncio.Event().wait()

        run = ToolRun(settings=settings(tool_timeouts=said))
        said_so = f"! The tool hang gave no answer within {seconds} seconds, and was stopped."
        assert await text_of(hang, run=run) == said_so

    @pytest.mark.parametrize(("seconds", "said"), [(0.01, {"slow": 0}), (None, {"*": 0.01}), (0.01, {"slow": 60})])
    async def test_of_one_that_is_given_more(self, seconds: float | None, said: dict[str, float]) -> None:
        @tool(timeout=seconds)
        async def slow() -> str:
            await asyncio.sleep(0.1)
            return "done"

        assert await text_of(slow, run=ToolRun(settings=settings(tool_timeouts=said))) == "done"


class TestOptions:
    @pytest.mark.parametrize("may", [True, False])
    async def test_permission(self, may: bool) -> None:
        asked: list[str] = []

        def allows(scope: str) -> bool:
            asked.append(scope)
            return may

        @tool(permission="threads:write")
        async def pay() -> str:
            return "paid"

        said = await text_of(pay, run=ToolRun(allows=allows))
        assert said == ("paid" if may else "! Who asks may not use pay: they lack threads:write.")
        assert asked == ["threads:write"]

    async def test_concurrency(self) -> None:
        now = most = 0

        @tool(concurrency=2)
        async def work() -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0.001)
            now -= 1

        await asyncio.gather(*(text_of(work) for _ in range(10)))
        assert most == 2

    @pytest.mark.parametrize(
        "values",
        [{"timeout": 0}, {"retries": -1}, {"ephemeral": -1}, {"max_output": 0}, {"concurrency": 0}],
        ids=str,
    )
    def test_values_that_cannot_be(self, values: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=next(iter(values))):
            ToolOptions(**values)


class Db:
    """Counts what is opened and closed."""

    opened = closed = 0


async def get_db() -> AsyncIterator[Db]:
    Db.opened += 1
    yield Db()
    Db.closed += 1


def get_name(who: Principal) -> str:
    return who.user_id


def get_greeting(name: Annotated[str, Depends(get_name)], db: Annotated[Db, Depends(get_db)]) -> str:
    return f"Hello {name}"


class TestDependencies:
    run = {Principal: Principal("ann")}

    async def test_they_are_filled_in_and_closed(self) -> None:
        Db.opened = Db.closed = 0

        @tool
        async def greet(word: str, greeting: str = Depends(get_greeting), *, db: Annotated[Db, Depends(get_db)]) -> str:
            assert (Db.opened, Db.closed) == (1, 0)
            return f"{greeting}, {word}"

        assert list(greet.parameters["properties"]) == ["word"]
        assert await text_of(greet, {"word": "x"}, ToolRun(provided=self.run)) == "Hello ann, x"
        assert (Db.opened, Db.closed) == (1, 1)

    @pytest.mark.parametrize("kind", ["sync", "async"])
    async def test_they_are_told_of_an_error_and_cannot_hide_it(self, kind: str) -> None:
        told: list[str] = []

        async def opened() -> AsyncIterator[int]:
            try:
                yield 1
            except ToolError as error:
                told.append(error.message)

        def opened_too() -> Iterator[int]:
            try:
                yield 1
            except ToolError as error:
                told.append(error.message)

        @tool
        async def fail(value: Annotated[int, Depends(opened if kind == "async" else opened_too)]) -> None:
            raise ToolError("no")

        assert await text_of(fail) == "! no"
        assert told == ["no"]

    async def test_they_are_closed_at_a_time_out(self) -> None:
        Db.opened = Db.closed = 0
        closed: list[bool] = []

        async def opened() -> AsyncIterator[int]:
            try:
                yield 1
            finally:
                closed.append(True)

        @tool(timeout=0.01)
        async def hang(value: Annotated[int, Depends(opened)]) -> None:
            await asyncio.sleep(60)

        await text_of(hang)
        assert closed == [True]

    async def test_values_are_made_once_per_run(self) -> None:
        made: list[int] = []

        async def get() -> int:
            await asyncio.sleep(0.001)
            made.append(1)
            return len(made)

        @tool
        async def show(value: Annotated[int, Depends(get)]) -> int:
            return value

        cache: dict[object, Any] = {}
        runs = [ToolRun(cache=cache), ToolRun(cache=cache), ToolRun()]
        assert sorted(await asyncio.gather(*(text_of(show, run=run) for run in runs))) == ["1", "1", "2"]

    async def test_a_dependency_that_failed_is_made_again(self) -> None:
        tries: list[int] = []

        def get() -> int:
            tries.append(1)
            if len(tries) == 1:
                raise ToolError("not yet")
            return 7

        @tool
        async def show(value: Annotated[int, Depends(get)]) -> int:
            return value

        run = ToolRun()
        assert [await text_of(show, run=run), await text_of(show, run=run)] == ["! not yet", "7"]

    async def test_overrides(self) -> None:
        @tool
        async def show(name: Annotated[str, Depends(get_name)]) -> str:
            return name

        def other() -> str:
            return "bob"

        assert await text_of(show, run=ToolRun(overrides={get_name: other})) == "bob"
        with dependency_overrides({get_name: lambda: "eve"}):
            assert await text_of(show, run=ToolRun(overrides={get_name: other})) == "eve"
        assert await text_of(show, run=ToolRun(provided=self.run)) == "ann"

    async def test_outside_a_run(self) -> None:
        @tool
        async def show(who: Principal) -> str:
            return who.user_id

        assert "needs a Principal" in await text_of(show)

    def test_a_dependency_that_nothing_fills_in(self) -> None:
        def get(text: str) -> str:
            return text

        with pytest.raises(ConfigurationError, match="get: nothing fills the parameter `text`"):

            @tool
            def show(text: Annotated[str, Depends(get)]) -> str:
                return text


async def test_a_sync_tool_does_not_hold_up_the_loop() -> None:
    @tool
    def work() -> str:
        time.sleep(0.2)
        return "done"

    task = asyncio.create_task(text_of(work))
    ticks = 0
    while not task.done():
        ticks += 1
        await asyncio.sleep(0.01)
    assert ticks > 3
    assert await task == "done"
