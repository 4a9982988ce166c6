"""Where in a thread's event log something stands: the ids of its events."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from drsai_backend.errors import InvalidRequest

STARTED: Final = 1
ENDED: Final = 2**31 - 1
PATTERN: Final = rf"^[0-9]{{1,9}}-[0-9]{{1,9}}-([0-9]{{1,9}}|{ENDED - 1}|{ENDED})$"
"""What an event's id looks like. Its numbers fit into the databases' integers. Just before the end of a run comes what
it ended with, a question or an error."""


class Position(NamedTuple):
    """A place in the log of a thread. Positions are compared as they stand and never change their order.

    `seq` is the newest message of the thread that was stored then, `epoch` that of the lease under which it happened.
    `n` is 0 for the message `seq` itself, 1 for the start of a run (or of its next attempt), then counts what is not
    stored: pieces of text and tool calls. The end of a run has the largest `n`.
    """

    seq: int = 0
    epoch: int = 0
    n: int = 0

    def __str__(self) -> str:
        return f"{self.seq}-{self.epoch}-{self.n}"

    @classmethod
    def parse(cls, text: str, param: str = "after") -> Position:
        """The position that an event's id names.

        Raises:
            InvalidRequest: it is no such id.
        """
        if re.fullmatch(PATTERN, text):
            return cls(*map(int, text.split("-")))
        raise InvalidRequest(f"`{param}` is not the id of an event", param=param)
