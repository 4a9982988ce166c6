"""The events of a task over HTTP: server-sent events whose data alone says what they are, and `[DONE]` at the end."""

from __future__ import annotations

from collections.abc import Iterable

from drsai_backend.api.engine.tasks import Told
from drsai_backend.api.events import LogStream
from drsai_backend.api.http.json import dumps

_DONE = b"data: [DONE]\n\n"


class TaskStream(LogStream[Told]):
    """What is told of a task. Of the events of one place, only the last one has its id: who read the others alone
    reads them again."""

    def told(self, logged: Told) -> Iterable[bytes]:
        """The frames of an event."""
        *before, newest = logged.objects
        for each in before:
            yield b"data: %b\n\n" % dumps(each)
        place = "" if logged.position is None else f"id: {logged.position}\n"
        yield b"%bdata: %b\n\n" % (place.encode(), dumps(newest))
        if logged.last:
            yield _DONE
