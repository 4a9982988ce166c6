"""Signatures of Standard Webhooks, https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/
standard-webhooks.md: HMAC-SHA256 over `id.timestamp.body`, with a secret written as `whsec_` and base64."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

PREFIX: Final = "whsec_"
_BYTES: Final = 32


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
