"""The base of rules says for whom one is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

from pydantic import BaseModel, Field

from drsai_backend.datamodel.owner import Owner, ThreadName

Kind: TypeAlias = Literal["key", "user", "tenant", "all", "thread"]
KINDS: Final[tuple[Kind, ...]] = ("key", "user", "tenant", "all")
"""Those that any rule may be for."""
WHOM: Final[Mapping[str, str]] = {
    "key": "this API key",
    "user": "you",
    "tenant": "your tenant",
    "all": "all users together",
    "thread": "this thread",
    "address": "your address",
}


# A request asks for those of its user, key and tenant again and again: quoting was half of what its limits cost.
@lru_cache(10_000)
def _subject(who: Who) -> str:
    return "/".join(quote(each, safe="") for each in who)


class Who(NamedTuple):
    """For whom a rule is, by a `Kind`, or of an address; what does not name them is empty."""

    kind: str
    tenant: str = ""
    name: str = ""

    @property
    def subject(self) -> str:
        """Return what is stored of theirs, by which name."""
        return _subject(self)


class RuleInfo(BaseModel):
    """What was set for somebody. None: as the settings say; 0: nothing bounds it."""

    measures: ClassVar[tuple[str, ...]]
    kind: Kind
    tenant: str = Field(description="Empty: of all.")
    name: str = Field(description="The id of the key, or the user; of a thread `USER/THREAD`; else empty.")
    set_at: datetime

    @property
    def who(self) -> Who:
        return Who(self.kind, self.tenant, self.name)

    @property
    def given(self) -> Mapping[str, float]:
        """Return what stands in place of the settings."""
        return {name: most for name in self.measures if (most := getattr(self, name)) is not None}


def everybody(owner: Owner, key_id: str | None) -> list[Who]:
    """Return for whom rules are that a request of a user counts for."""
    found = [Who("user", *owner), Who("tenant", owner.tenant), Who("all")]
    return found if key_id is None else [Who("key", owner.tenant, key_id), *found]


def of_thread(name: ThreadName) -> Who:
    """Return for whom the rule of a thread is: `ann/t`, where neither name has a `/`."""
    user, thread = (each.replace("%", "%25").replace("/", "%2F") for each in name[1:])
    return Who("thread", name.tenant, f"{user}/{thread}")


def thread_of(who: Who) -> ThreadName | None:
    """Return the thread that a rule is for; None: it names none."""
    user, is_one, thread = (each.replace("%2F", "/").replace("%25", "%") for each in who.name.partition("/"))
    return ThreadName(who.tenant, user, thread) if is_one else None
