"""Tools of which something is fixed: the model neither sees nor changes it, and approvals are added, never taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import Approval, ToolRun, approval_of, call_tool, requires_approval, tool
from drsai_backend.tools.base import ToolIdentity
from drsai_backend.tools.checking import check_against
from drsai_backend.tools.classes import ClassTool
from drsai_backend.tools.fixed import FixedTool


@tool
async def send(to: str, text: str, copies: int = 1) -> str:
    """Send a text."""
    return f"{to}:{text}:{copies}"


async def said(tool: Any, **arguments: Any) -> str:
    return (await call_tool(tool, arguments)).to_text()


class Echo:
    """Echo."""

    parameters = [
        {"name": "a", "type": "integer", "required": True},
        {"name": "b", "type": "integer", "default": 7},
        {"name": "c", "type": "integer", "default": "no number"},
        {"name": "d", "type": "string", "default": None},
        {"name": "e", "type": "string", "required": True, "default": "x"},
    ]

    async def call(self, arguments: dict[str, Any], run: ToolRun) -> str:
        return str(sorted(arguments.items()))


NAMES = st.sampled_from(["to", "text", "copies"])
VALUES = {"to": st.text(), "text": st.text(), "copies": st.integers(0, 9)}


@given(fixed=st.sets(NAMES), data=st.data())
def test_what_is_fixed_is_neither_seen_nor_changed(fixed: set[str], data: st.DataObject) -> None:
    wanted = {name: data.draw(VALUES[name]) for name in ("to", "text", "copies")}
    others = {name: data.draw(VALUES[name]) for name in ("to", "text", "copies")}
    made = FixedTool(send, {name: wanted[name] for name in fixed})
    shown = made.schema["parameters"]
    assert set(shown["properties"]) == {"to", "text", "copies"} - fixed
    assert set(shown["required"]) == {"to", "text"} - fixed
    called = others | {name: wanted[name] for name in fixed}
    # Also where a model gives what it was not shown.
    assert asyncio.run(said(made, **others)) == f"{called['to']}:{called['text']}:{called['copies']}"


@pytest.mark.parametrize(("arguments", "text"), [({"too": "x"}, "did you mean 'to'"), ({"to": 1}, "not of type")])
def test_what_the_tool_does_not_take(arguments: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        FixedTool(send, arguments)


class Whatever:
    """Take anything, or nothing."""

    parameters = {"properties": {"any": True, "none": False}}

    async def call(self, arguments: dict[str, Any], run: ToolRun) -> str:
        return str(arguments)


def test_a_parameter_of_which_nothing_is_said_takes_anything() -> None:
    """Its schema is `true`."""
    made = FixedTool(ClassTool(ToolIdentity("any"), Whatever()), {"any": [1]})
    assert asyncio.run(said(made)) == "{'any': [1]}"
    with pytest.raises(ConfigurationError, match=r"arguments\.none: is no value of this parameter"):
        FixedTool(ClassTool(ToolIdentity("any"), Whatever()), {"none": 1})


def test_approvals_are_added_and_never_taken() -> None:
    by = Approval("role:treasurer")
    assert FixedTool(send, {}, by).options.approval({}) == by
    assert FixedTool(send, {}, True).options.approval({}) == Approval()
    assert FixedTool(send, {"to": "x"}).options.approval({}) is None

    # A rule of the tool's own sees what is fixed, and goes first.
    @tool(requires_approval=lambda arguments: by if arguments.get("to") == "boss" else False)
    async def mail(to: str) -> str:
        """Mail."""
        return to

    assert FixedTool(mail, {"to": "boss"}, True).options.approval({}) == by
    assert FixedTool(mail, {"to": "boss"}, True).options.approval({"to": "ann"}) == by
    assert FixedTool(mail, {}, True).options.approval({"to": "ann"}) == Approval()

    @requires_approval(by="role:treasurer")
    @tool
    async def pay(to: str) -> str:
        """Pay."""
        return to

    assert approval_of(FixedTool(pay, {}, True)) == by


async def test_a_bound_of_calls_at_once_is_the_tools_own() -> None:
    now, most = 0, 0

    @tool(concurrency=1)
    async def slow(text: str) -> str:
        """Be slow."""
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        return text

    await asyncio.gather(*(said(FixedTool(slow, {"text": str(each)})) for each in range(3)))
    assert most == 1


async def test_defaults_are_sent() -> None:
    echo = ClassTool(ToolIdentity("echo"), Echo())
    # One that does not fit its parameter, or is null, is not.
    assert await said(echo, a=1) == "[('a', 1), ('b', 7), ('e', 'x')]"
    assert await said(echo, a=1, b=2, c=3, e="y") == "[('a', 1), ('b', 2), ('c', 3), ('e', 'y')]"
    assert "`a`" in await said(echo) or "'a'" in await said(echo)
    fixed = FixedTool(echo, {"b": 9})
    assert await said(fixed, a=1) == "[('a', 1), ('b', 9), ('e', 'x')]"


def test_a_default_is_no_reason_to_refuse() -> None:
    """A schema may allow one of two parameters, and have defaults for both."""
    number = {"type": "integer", "default": 1}
    schema = {
        "type": "object",
        "properties": {"a": number, "b": number},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    assert check_against(schema, {"a": 2}) == {"a": 2, "b": 1}
    first = check_against({"properties": {"a": {"type": "array", "default": []}}}, {})
    first["a"].append(1)
    assert check_against({"properties": {"a": {"type": "array", "default": []}}}, {}) == {"a": []}, "each its own"
