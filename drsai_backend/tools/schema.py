"""A schema is made of types, as model endpoints take it; what is wrong with arguments is put into words for the
model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, cast

from pydantic import ValidationError

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.explain import did_you_mean, explain
from drsai_backend.json_types import JsonObject

SHOWN_PROBLEMS: Final = 5
"""Of what is wrong with arguments."""
_SHOWN_INPUT: Final = 60
_NAMED: Final = ("properties", "$defs", "patternProperties", "dependentSchemas")
"""Keywords whose keys are names, which may be "title" or "$ref" as well."""
_PLAIN: Final = ("default", "const", "enum", "examples", "example", "required")
"""Keywords whose values are no schemas."""
_MOST_DEFS: Final = 300
_MOST_PARTS: Final = 20_000
"""Of a schema. One that refers twice to what refers twice to the next grows as a power of two."""


def simplified(schema: JsonObject) -> JsonObject:
    """A schema with its `$ref`s replaced by what they refer to and without titles. What refers to itself stays in
    `$defs`; where that would make it very long, so does all."""
    defs: JsonObject = schema.get("$defs", {})
    looping = _looping(schema, defs)
    result = cast("JsonObject", _plain({k: v for k, v in schema.items() if k != "$defs"}, defs, looping))
    kept: JsonObject = {}
    waiting = _refs(result)
    while waiting:
        name = waiting.pop()
        if name in defs and name not in kept:
            kept[name] = _plain(defs[name], defs, looping)
            waiting |= _refs(kept[name])
    return result | {"$defs": kept} if kept else result


def strict(schema: JsonObject, where: str = "") -> JsonObject:
    """A simplified schema as OpenAI's strict mode wants it: objects take no other properties, all of them are required,
    and those that were not may be null.

    Raises:
        ConfigurationError: it has what strict mode cannot say, an object with any keys.
    """
    made = {key: value for key, value in schema.items() if key not in ("default", "discriminator")}
    if "oneOf" in made:
        made["anyOf"] = made.pop("oneOf")
    if made.get("type") == "object":
        if "properties" not in made and made.get("additionalProperties", True) is not False:
            text = f"strict=True: {where or 'the schema'} has an object with any keys, which strict mode cannot say"
            raise ConfigurationError(text)
        needed = made.get("required", [])
        properties = cast("JsonObject", made.get("properties", {}))
        made["properties"] = {
            name: strict(each, name) if name in needed else _or_null(strict(each, name))
            for name, each in properties.items()
        }
        made |= {"required": [*properties], "additionalProperties": False}
    for key in ("anyOf", "allOf", "prefixItems"):
        if key in made:
            made[key] = [strict(each, where) for each in made[key]]
    if isinstance(made.get("items"), dict):
        made["items"] = strict(made["items"], where)
    if "$defs" in made:
        made["$defs"] = {name: strict(each, name) for name, each in made["$defs"].items()}
    return made


def refused(tool: str, error: ValidationError, known: Collection[str]) -> ToolError:
    """Return what pydantic found wrong with the arguments of a tool, as a sentence for the model."""
    listed = f"; there are {', '.join(known)}" if known else ""
    problems: list[str] = []
    for each in explain(error):
        if each.type == "missing":
            problems.append(f"`{each.place}` is missing")
        elif each.type == "extra_forbidden":
            problems.append(f"there is no parameter `{each.place}`{did_you_mean(each.place, known) or listed}")
        else:
            given = "" if each.given is None else f", not {_short(each.given)}"
            problems.append(f"`{each.place or 'arguments'}`: {each.phrase}{given}")
    return refusal(tool, problems)


def not_an_object(tool: str, arguments: object) -> ToolError:
    """The error for arguments that are no object."""
    return refusal(tool, [f"they must be a JSON object, not {_short(arguments)}"])


def refusal(tool: str, problems: Sequence[str]) -> ToolError:
    """The error for arguments with these problems, of which the first few are shown."""
    more = len(problems) - SHOWN_PROBLEMS
    text = "; ".join(problems[:SHOWN_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
    of = f" of `{tool}`" if tool else ""
    return ToolError(f"The arguments{of} are not valid: {text}. Correct them and call the tool again.")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_INPUT else text[: _SHOWN_INPUT - 1] + "…"


def _or_null(schema: JsonObject) -> JsonObject:
    if schema.get("type") == "null" or {"type": "null"} in schema.get("anyOf", ()):
        return schema
    rest = {key: value for key, value in schema.items() if key != "description"}
    kept = {"description": schema["description"]} if "description" in schema else {}
    return {
        "anyOf": [*rest["anyOf"], {"type": "null"}] if rest.keys() == {"anyOf"} else [rest, {"type": "null"}],
        **kept,
    }


def _plain(schema: object, defs: JsonObject, looping: set[str]) -> object:
    if isinstance(schema, list):
        return [_plain(each, defs, looping) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    found = cast("JsonObject", schema)
    name = _name(found)
    if name in defs and name not in looping:
        beside = {key: value for key, value in found.items() if key != "$ref"}
        return _plain({**defs[name], **beside}, defs, looping)
    made: JsonObject = {}
    for key, value in found.items():
        if key == "title" or (key == "discriminator" and _has_mapping(value)):
            continue
        if key in _NAMED:
            made[key] = {each: _plain(part, defs, looping) for each, part in value.items()}
        else:
            made[key] = value if key in _PLAIN else _plain(value, defs, looping)
    return made


def _has_mapping(discriminator: object) -> bool:
    return isinstance(discriminator, dict) and "mapping" in discriminator


def _name(schema: Mapping[str, object]) -> str:
    ref = schema.get("$ref")
    return ref.removeprefix("#/$defs/") if isinstance(ref, str) else ""


def _refs(schema: object) -> set[str]:
    if isinstance(schema, list):
        return {name for each in cast("list[object]", schema) for name in _refs(each)}
    if not isinstance(schema, dict):
        return set()
    found = cast("JsonObject", schema)
    own = {_name(found)} - {""}
    for key, value in found.items():
        if key in _NAMED:
            own |= {name for part in value.values() for name in _refs(part)}
        elif key not in _PLAIN:
            own |= _refs(value)
    return own


def _looping(schema: Mapping[str, object], defs: Mapping[str, object]) -> set[str]:
    """Return which of `defs` are not to be put in place of what refers to them."""
    if len(defs) > _MOST_DEFS:
        return {*defs}
    refs = {name: _refs(each) for name, each in defs.items()}
    looping = {name for name in defs if _reaches(name, refs)}
    sizes: dict[str, int] = {}

    def size(part: object) -> int:
        """Return the size of a part with all that is put into it."""
        if isinstance(part, list):
            return 1 + sum(map(size, cast("list[object]", part)))
        if not isinstance(part, dict):
            return 1
        found = cast("JsonObject", part)
        name, own = _name(found), 1 + sum(map(size, found.values()))
        if name not in defs or name in looping:
            return own
        if name not in sizes:
            sizes[name] = size(defs[name])
        return own + sizes[name]

    return {*defs} if size({key: value for key, value in schema.items() if key != "$defs"}) > _MOST_PARTS else looping


def _reaches(name: str, refs: Mapping[str, set[str]]) -> bool:
    seen: set[str] = set()
    waiting = set(refs[name])
    while waiting:
        each = waiting.pop()
        if each == name:
            return True
        if each not in seen and each in refs:
            seen.add(each)
            waiting |= refs[each]
    return False
