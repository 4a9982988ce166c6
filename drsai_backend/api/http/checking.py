"""Bodies are checked, and what is wrong with them is said in the words of an API. Nothing here needs a server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from pydantic import ValidationError

from drsai_backend.errors import InvalidRequest
from drsai_backend.explain import LONGEST_PLACE, DataPath, Wrong, explain, slip_of

_T = TypeVar("_T")
_REASONS: Final = {
    "missing": "is required",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be an integer"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be a string",
    "list_type": "must be a list",
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be an object"),
    "greater_than": "must be more than {gt:g}",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
    "string_too_short": "must not be empty",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least one entry",
    "too_long": "must have at most {max_length} entries",
    **dict.fromkeys(("literal_error", "enum"), "must be {expected}"),
    "union_tag_not_found": "is required",
    "union_tag_invalid": "must be one of {expected_tags}",
    "extra_forbidden": "is not known here",
    "value_error": "{error}",
}
"""What pydantic's errors say, in the words of an API and without the value (it may be a secret)."""


def path_of(location: DataPath) -> str:
    """`("messages", 0, "content")` as `messages[0].content`, bounded: its keys may be those of a request."""
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path[:LONGEST_PLACE]


def checked(validate: Callable[[object], _T], body: object, texts: Mapping[str, str] | None = None) -> _T:
    """Return a body as `validate` makes it.

    Args:
        validate: `model_validate` of a model, or `validate_python` of an adapter.
        texts: what says it better: by the name of a field of the body, whatever is wrong in it, or as `tools.name`, by
            that and the name of the field that is wrong.

    Raises:
        InvalidRequest: names the first field that is wrong; of a union, by the alternative that got furthest.
    """
    try:
        return validate(body)
    except ValidationError as error:
        found = _meant(list(explain(error, body)))
    first = found[0].path
    # Of a text or a number, say, what is wrong with a text that is one, and not that it is no number.
    worst = max(
        (each for each in found if each.path[: len(first)] == first),
        key=lambda each: (len(each.path), not each.type.endswith(("_type", "_parsing"))),
    )
    path, texts = worst.path, texts or {}
    if reason := texts.get(str(path[0])):
        raise InvalidRequest(f"`{path[0]}` {reason}", param=str(path[0]))
    raise refused(path, worst.type, worst.values, texts.get(f"{path[0]}.{path[-1]}"))


def _meant(found: list[Wrong]) -> list[Wrong]:
    """Leave out what the alternatives of a union say whose `type` is another one, where one of its `type` says more."""
    others = {
        each.loc[:-1]: each.path[:-1]
        for each in found
        if each.path[-1:] == ("type",) and each.type in ("literal_error", "string_pattern_mismatch")
    }
    said = [each for each in found if not any(each.loc[: len(other)] == other for other in others)]
    within = {each.path[: len(place)] for each in said for place in others.values() if len(each.path) > len(place)}
    return said if within.intersection(others.values()) else found


def check_names(names: Iterable[str], own: Iterable[str]) -> None:
    """Refuse a field that would be kept for the agents, and is a slip of the pen for one of this server's own: it would
    be without effect, in silence. All other fields are the client's.

    Raises:
        InvalidRequest: it names the field, and the one that was meant.
    """
    for name in names:
        if (meant := slip_of(name, own)) is not None:
            name = name[:LONGEST_PLACE]
            raise InvalidRequest(f"`{name}` is not known here; did you mean `{meant}`?", param=name)


def refused(path: DataPath, kind: str, values: Mapping[str, object], reason: str | None = None) -> InvalidRequest:
    """Make the error of one thing that is wrong, as pydantic tells it: where, its name for it, and the values of that;
    `reason` says it in other words."""
    param = path_of(path)
    reason = reason or _REASONS.get(kind, "is not valid").format_map(values)
    return InvalidRequest(f"`{param}` {reason}", param=param or None)
