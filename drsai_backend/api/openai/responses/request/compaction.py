"""A compaction item holds a conversation as one sealed text, which only its user can send again."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Final

import orjson
import zstandard
from pydantic import TypeAdapter, ValidationError

from drsai_backend.api.openai.responses.request.body import Item
from drsai_backend.database.manager.secrets import SecretBox
from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError, InvalidRequest
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.requests import new_run_id

_ITEMS: Final[TypeAdapter[list[Item]]] = TypeAdapter(list[Item])


def seal(secrets: SecretBox, owner: Owner, said: Sequence[Item], most: int) -> JsonObject:
    """The item that holds these. Nothing of them is stored, and nothing is left out: what of a conversation an
    agent's model is shown is for the agent's model context to decide.

    Args:
        most: bytes that they may have as JSON: no request could bring more.

    Raises:
        InvalidRequest: they are too long.
        ConfigurationError: this server has no secret to seal them with.
    """
    data = orjson.dumps({"owner": list(owner), "items": [each.model_dump(mode="json") for each in said]})
    sealed = "" if len(data) > most else secrets.encrypt(base64.b64encode(zstandard.compress(data)).decode())
    if not sealed or len(sealed) > 10_485_760:
        raise InvalidRequest("`input` is too long for one item", param="input")
    return {"type": "compaction", "id": f"cmp_{new_run_id().removeprefix('run_')}", "encrypted_content": sealed}


def unseal(secrets: SecretBox, sealed: str, path: str) -> tuple[bytes, int]:
    """Return what `seal` has compressed, and how many bytes `open_compaction` makes of it.

    Raises:
        InvalidRequest: it was not sealed here.
    """
    try:
        packed = base64.b64decode(secrets.decrypt(sealed))
        size = zstandard.frame_content_size(packed)
    except (ConfigurationError, ValueError, zstandard.ZstdError):
        raise _foreign(path) from None
    if size < 0:  # It does not say how many: `seal` makes none of that kind.
        raise _foreign(path)
    return packed, size


def open_compaction(owner: Owner, packed: bytes, path: str) -> list[Item]:
    """The items that `seal` was given.

    Raises:
        InvalidRequest: they were sealed for another user.
    """
    try:
        opened: JsonObject = orjson.loads(zstandard.ZstdDecompressor().decompress(packed))
        if opened["owner"] == list(owner):
            return _ITEMS.validate_python(opened["items"])
    except (ValueError, KeyError, TypeError, zstandard.ZstdError, ValidationError):
        pass
    raise _foreign(path)


def _foreign(path: str) -> InvalidRequest:
    reason = "it was not made by this server, or for another user"
    return InvalidRequest(f"`{path}.encrypted_content` cannot be opened: {reason}", param=f"{path}.encrypted_content")
