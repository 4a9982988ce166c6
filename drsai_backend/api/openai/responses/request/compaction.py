"""A compaction item holds a conversation as one sealed text, which only its user can send again."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import orjson
import zstandard
from pydantic import ValidationError

from drsai_backend.api.openai.responses.request.body import MAX_ITEMS, Item, MessageItem
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.requests import new_run_id

_MOST: Final = 64 * 1024 * 1024
"""Bytes that an opened compaction may have."""


def seal(secrets: SecretBox, owner: Owner, messages: Sequence[MessageItem]) -> JsonObject:
    """The item that holds these messages. Nothing of them is stored, and nothing is left out: what of a conversation an
    agent's model is shown is for the agent's model context to decide.

    Raises:
        InvalidRequest: they are too long.
        ConfigurationError: this server has no secret to seal them with.
    """
    data = orjson.dumps({"owner": list(owner), "items": [each.model_dump(mode="json") for each in messages]})
    text = base64.b64encode(zstandard.compress(data)).decode()
    sealed = secrets.encrypt(text)
    if len(data) > _MOST or len(sealed) > 10_485_760:
        raise InvalidRequest("`input` is too long for one item", param="input")
    return {"type": "compaction", "id": f"cmp_{new_run_id().removeprefix('run_')}", "encrypted_content": sealed}


def open_compaction(secrets: SecretBox, owner: Owner, sealed: str, path: str) -> list[Item]:
    """The items that `seal` was given.

    Raises:
        InvalidRequest: it was not sealed here, or for another user.
    """
    try:
        data = base64.b64decode(secrets.decrypt(sealed))
        opened: JsonObject = orjson.loads(zstandard.ZstdDecompressor().decompress(data, max_output_size=_MOST))
        if opened["owner"] == list(owner) and len(opened["items"]) <= MAX_ITEMS:
            return [MessageItem.model_validate(each) for each in opened["items"]]
    except (ConfigurationError, ValueError, KeyError, TypeError, zstandard.ZstdError, ValidationError):
        pass
    reason = "it was not made by this server, or for another user"
    raise InvalidRequest(f"`{path}.encrypted_content` cannot be opened: {reason}", param=f"{path}.encrypted_content")
