"""An event is sent in the shape of OpenAI's own webhooks (https://platform.openai.com/docs/guides/webhooks), and signed
as Standard Webhooks say (https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md):
HMAC-SHA256 over `id.timestamp.body`, with a secret written as `whsec_` and base64.

It names the run and holds nothing of it: who may read that asks for it.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

import orjson

from drsai_backend.database.webhooks import Due

PREFIX: Final = "whsec_"
_BYTES: Final = 32
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
    kind, data = due.type, {"id": due.run_id, "thread_id": due.thread_id}
    if due.kind == "response":
        kind, data = _OF_RESPONSES[due.type], {"id": f"resp_{due.run_id.removeprefix('run_')}"}
    at = int(due.created_at.timestamp())
    return orjson.dumps({"id": due.event_id, "object": "event", "type": kind, "created_at": at, "data": data})


def make_secret() -> str:
    """A new secret of 256 random bits."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_BYTES)).decode()


def signed_headers(event_id: str, timestamp: int, body: bytes, signing: Iterable[str]) -> dict[str, str]:
    """The three headers of an attempt.

    Args:
        event_id: the same in all attempts.
        timestamp: of this attempt, in Unix seconds.
        body: what is sent.
        signing: the secrets; each gives a signature, and a receiver takes whichever it knows.
    """
    content = f"{event_id}.{timestamp}.".encode() + body
    made = (hmac.digest(base64.b64decode(secret.removeprefix(PREFIX)), content, sha256().name) for secret in signing)
    signatures = " ".join(f"v1,{base64.b64encode(each).decode()}" for each in made)
    return {"webhook-id": event_id, "webhook-timestamp": str(timestamp), "webhook-signature": signatures}
