"""The digest of a request, 20 characters, is equal for its retries: it is of all of the request but the headers that
differ.

Nothing is left out for speed: requests of a batch often differ in one place far from their end. What was digested of a
long history before is not digested again.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

import orjson
from cachetools import LRUCache

from drsai_backend.datamodel.owner import Owner
from drsai_backend.runs.history.digest_cache import hash_of
from drsai_backend.runs.requests import Admitted, InputMessage

_SIZE: Final = 15
_FEW: Final = 16
"""Messages that are digested faster than it is found out whether they were digested before."""


class _Prefix(NamedTuple):
    """The first `length` messages of a history, known again by a hash, and the state after them."""

    length: int
    hash: int
    state: hashlib.blake2b


class RequestDigests:
    """Digests requests. Of each of the newest `size` long histories, a hash and the state of a digest are kept."""

    def __init__(self, size: int = 2_000) -> None:
        self._prefixes: LRUCache[int, _Prefix] = LRUCache(size)

    def of(self, request: Admitted) -> str:
        """The digest of a request: who asks whom on which thread, what is said, the client's tools, and all other
        fields but keys; or what it brings of its own to be known by. 20 characters that can stand in a URL."""
        ask, who = request.ask, request.who
        where, how, origin = ask.where, ask.how, ask.origin
        if origin.fingerprint is not None:
            return digest_of_own(who.owner, ask.team, origin.fingerprint)
        rest = (
            *(who.tenant, who.user_id, where.owner, where.thread_id, ask.team, len(ask.messages)),
            *(ask.params.create_args(), ask.extra, ask.n, ask.stream, how.limits.as_dict()),
            *(how.on_busy, request.on_question, how.background, origin.webhook_url, ask.history),
            None if ask.client_tools is None else ask.client_tools.to_json(),
            [each.is_error for each in ask.tool_results],
            *(() if ask.continues is None else (ask.continues,)),
            *(() if ask.shown is None else ({"shown": ask.shown},)),
        )
        digest = self._said(ask.messages)
        digest.update(orjson.dumps(rest, default=str))
        return base64.urlsafe_b64encode(digest.digest()).decode()

    def _said(self, messages: Sequence[InputMessage]) -> hashlib.blake2b:
        """The state of the digest after all messages."""
        if len(messages) <= _FEW:
            return _after(hashlib.blake2b(digest_size=_SIZE), messages)
        roles = [each.role for each in messages]
        values = [_value(each) for each in messages]
        key, begin, state = hash(tuple(values[:4])), 0, hashlib.blake2b(digest_size=_SIZE)
        known = self._prefixes.get(key)
        if known is not None and known.hash == hash_of(roles, values, known.length):
            begin, state = known.length, known.state.copy()
        # The client's next request has the same but for the last message, or more after it.
        length = len(messages) - 1
        state = _after(state, messages[begin:length])
        self._prefixes[key] = _Prefix(length, hash_of(roles, values, length), state.copy())
        return _after(state, messages[length:])


def digest_of_own(owner: Owner, team: str, fingerprint: str) -> str:
    """The digest of a request that brings a fingerprint of all that it says."""
    digest = hashlib.blake2b(orjson.dumps((*owner, team, fingerprint)), digest_size=_SIZE)
    return base64.urlsafe_b64encode(digest.digest()).decode()


def _after(state: hashlib.blake2b, messages: Sequence[InputMessage]) -> hashlib.blake2b:
    for message in messages:
        state.update(orjson.dumps((message.role, _value(message)), option=orjson.OPT_APPEND_NEWLINE))
    return state


def _value(message: InputMessage) -> Hashable:
    """Return what a message says; images by their bytes."""
    parts: Hashable
    match message.content:
        case str() as text:
            if message.call_id is None and message.name is None and not message.calls:
                return text
            parts = text  # A text is not a list of one text.
        case content:
            parts = tuple(part if isinstance(part, str) else ("image", part.to_base64()) for part in content)
    parts = parts if message.name is None else (message.name, parts)
    return parts, message.call_id, tuple((call.id, call.name, call.arguments) for call in message.calls)
