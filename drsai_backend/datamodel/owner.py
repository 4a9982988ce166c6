"""An owner says whose a row is, and a name finds a thread."""

from __future__ import annotations

from typing import Final, NamedTuple

DEFAULT_TENANT: Final = "default"
"""The tenant of whoever names none, and of all rows from before there were tenants."""


class Owner(NamedTuple):
    """A user of a tenant. Nobody else sees their rows."""

    tenant: str
    user_id: str

    def thread(self, thread_id: str) -> ThreadName:
        """The name of one of the owner's threads."""
        return ThreadName(*self, thread_id)


class ThreadName(NamedTuple):
    """What finds a thread: each user of each tenant has thread ids of their own."""

    tenant: str
    user_id: str
    thread_id: str

    @property
    def owner(self) -> Owner:
        """Whose thread it is."""
        return Owner(self.tenant, self.user_id)
