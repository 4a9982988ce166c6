"""The base of recorded classes is what one says of its state, where AutoGen's `save_state` says nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dis import get_instructions
from types import FunctionType, NoneType
from typing import Any, ClassVar, Final, Protocol, cast

_LIBRARIES: Final = ("autogen_", "drsai_backend")
_PLAIN: Final = (NoneType, bool, int, float, str, list, dict, set, tuple)


@dataclass(frozen=True, slots=True)
class Field:
    """An attribute that is stored with the thread.

    Attributes:
        attribute: its name.
        dump: makes a JSON value of it, which is copied. None: it is one, and is replaced, never changed in place.
        load: makes the attribute of what `dump` gave. None: it is that.
    """

    attribute: str
    dump: Callable[[Any], Any] | None = None
    load: Callable[[Any], Any] | None = None

    def read(self, owner: object) -> object:
        """The attribute of `owner` as JSON, not copied."""
        value = getattr(owner, self.attribute)
        return value if self.dump is None else self.dump(value)

    def write(self, owner: object, value: object) -> None:
        """Set the attribute of `owner` to what `read` gave."""
        setattr(owner, self.attribute, value if self.load is None else self.load(value))


class Durable(Protocol):
    """An agent, or the manager of a group chat, that declares what of it is stored at every turn boundary.

    What AutoGen's `save_state` gives of an object of a class is stored in any case; `durable_fields` is for attributes
    that it leaves out. They are names of attributes with JSON values, or `Field`s; those of base classes count too.
    """

    durable_fields: ClassVar[Sequence[str | Field]]


def fields_of(owner: object) -> Mapping[str, Field]:
    """The fields that the class of `owner` declares, by the names under which they are stored."""
    declared: dict[str, Field] = {}
    for cls in reversed(type(owner).__mro__):
        for each in cast("Sequence[str | Field]", vars(cls).get("durable_fields", ())):
            field = Field(each, _as_it_is) if isinstance(each, str) else each
            declared[field.attribute] = field
    return declared


def unsaved(agent: object) -> list[str]:
    """The attributes of an agent of somebody's own class that seem to be a state and are stored nowhere: values that
    its methods set, and containers that begin empty. None of a class that says itself what is stored."""
    own = [cls for cls in type(agent).__mro__ if not cls.__module__.startswith(_LIBRARIES)]
    if any({"save_state", "durable_fields"} & vars(cls).keys() for cls in own):
        return []
    first, later = set[str](), set[str]()
    for name, method in (item for cls in own for item in vars(cls).items()):
        if isinstance(method, FunctionType) and name != "bind_run":
            names = {each.argval for each in get_instructions(method) if each.opname == "STORE_ATTR"}
            (first if name == "__init__" else later).update(names)
    values = vars(agent).items()
    set_later = {name for name, value in values if name in later and isinstance(value, _PLAIN)}
    return sorted(set_later | {name for name, value in values if name in first and value in ([], {}, set())})


def _as_it_is(value: object) -> object:
    return value
