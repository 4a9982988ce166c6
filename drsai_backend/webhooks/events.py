"""What is sent: an event in the shape of OpenAI's own webhooks (https://platform.openai.com/docs/guides/webhooks). It
names the run and holds nothing of it: who may read that asks for it."""

from __future__ import annotations

from typing import Final

import orjson

from drsai_backend.database.webhooks import Due
from drsai_backend.json_types import JsonObject

# What a response is told to be by the Responses API when its run is that.
_OF_RESPONSES: Final = {
    "run.completed": "response.completed",
    "run.awaiting_input": "response.completed",
    "run.stopped": "response.cancelled",
    "run.failed": "response.failed",
    "run.paused": "response.incomplete",
}


def body_of(due: Due) -> bytes:
    """The body, the same in all attempts."""
    data: JsonObject = {"id": due.run_id, "thread_id": due.thread_id}
    kind = due.type
    if due.kind == "response":
        kind, data = _OF_RESPONSES[due.type], {"id": f"resp_{due.run_id.removeprefix('run_')}"}
    at = int(due.created_at.timestamp())
    return orjson.dumps({"id": due.event_id, "object": "event", "type": kind, "created_at": at, "data": data})
