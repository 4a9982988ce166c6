"""The OpenAPI document and the help of every command, without what the versions of FastAPI, pydantic and typer say."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any
from zlib import crc32

import typer
import typer.models

from drsai_backend import DrSai
from drsai_backend.cli.app import app as command_line
from tests.golden.lines import flat
from tests.support.threads import settings

_UNORDERED = {"enum", "required", "tags", "type"}


def document() -> Iterator[str]:
    """The OpenAPI document. Titles, which pydantic makes of names, and the release are left out."""
    found = DrSai(None, "sqlite://", settings=settings()).app().openapi()
    for path, item in sorted(found["paths"].items()):
        for method, operation in sorted(item.items()):
            yield from flat(_operation(operation), f"{method.upper()} {path}", whole=_is_leaf)
    for kind, components in sorted(found["components"].items()):
        for name, component in sorted(components.items()):
            yield from flat(_plain(component), f"{kind} {name}", whole=_is_leaf)


def _operation(operation: dict[str, Any]) -> Any:
    """Errors, which have one form, by their descriptions; of what is JSON, its schema."""
    found = _plain(operation)
    for status, answer in found["responses"].items():
        if status >= "400":
            found["responses"][status] = answer["description"]
    for holder in (found.get("requestBody", {}), *filter(_is_object, found["responses"].values())):
        for kind, each in list(holder.get("content", {}).items()):
            holder[kind.removeprefix("application/")] = each.get("schema", each)
        holder.pop("content", None)
    return found


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_leaf(value: Any) -> bool:
    """A schema that holds no other one is one value, and so is a list of plain ones."""
    parts = value.values() if _is_object(value) else value
    inner = (part for each in parts for part in (each if isinstance(each, list) and _is_object(value) else [each]))
    return not any(isinstance(each, dict | list) for each in inner)


def _plain(value: Any, *, named: bool = False) -> Any:
    """Parameters by their names, and alternatives of one type as one value. `named`: the keys are names of fields."""
    if isinstance(value, list):
        if all(isinstance(each, dict) and {"name", "in"} <= each.keys() for each in value):
            return {f"{each.pop('in')} {each.pop('name')}": each for each in map(_plain, value)}
        return [_plain(each) for each in value]
    if isinstance(value, str) and len(value) > 100 and value.startswith("^"):
        return f"{value[:20]}… {crc32(value.encode()):08x}"  # A pattern of characters that names may have.
    if not isinstance(value, dict):
        return value
    kept = {key: each for key, each in value.items() if named or key != "title"}
    return {
        key: sorted(map(str, each))
        if key in _UNORDERED and isinstance(each, list) and not named
        else _plain(each, named=not named and key in ("properties", "responses", "content", "mapping"))
        for key, each in kept.items()
    }


def commands() -> Iterator[str]:
    """What each command does and takes. How it is laid out, and what is added to it, is typer's."""
    yield from flat(command_line.info.help, "drsai")
    yield from _commands(command_line, "drsai")


def _commands(group: typer.Typer, path: str) -> Iterator[str]:
    for each in sorted(group.registered_commands, key=_name):
        assert each.callback is not None
        yield from _command(each.callback, f"{path} {_name(each)}")
    if group.registered_callback is not None and callable(callback := group.registered_callback.callback):
        yield from _command(callback, path)
    for inner in sorted(group.registered_groups, key=lambda each: str(each.name)):
        assert inner.typer_instance is not None
        yield from flat(inner.typer_instance.info.help, f"{path} {inner.name}")
        yield from _commands(inner.typer_instance, f"{path} {inner.name}")


def _name(command: Any) -> str:
    return command.name or command.callback.__name__.replace("_", "-")


def _command(does: Callable[..., Any], path: str) -> Iterator[str]:
    yield from flat((inspect.getdoc(does) or "").split("\n"), path)
    for name, each in inspect.signature(does, eval_str=True).parameters.items():
        for info in getattr(each.annotation, "__metadata__", ()):
            facts = {name: getattr(info, name) for name in ("help", "metavar", "min", "max", "envvar", "hidden")}
            facts["names"] = info.param_decls
            facts["takes"] = str(each.annotation.__origin__).replace("typing.", "")
            facts["default"] = None if each.default is None else repr(each.default)
            said = {key: value for key, value in facts.items() if value not in (None, (), False)}
            said["names"] = [*(facts["names"] or ())]
            kind = "argument" if isinstance(info, typer.models.ArgumentInfo) else "option"
            yield from flat(said, f"{path} {kind} {name}")
