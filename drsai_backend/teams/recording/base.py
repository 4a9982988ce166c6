"""What a class says of its state, where AutoGen's `save_state` says nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, cast


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


def _as_it_is(value: object) -> object:
    return value
