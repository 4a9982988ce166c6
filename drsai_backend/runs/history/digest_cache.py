"""The cache of digests has those of earlier histories, by their texts, or by the hash of these."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Collection, Iterator, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast

from cachetools import LRUCache

if TYPE_CHECKING:
    from drsai_backend.runs.history.digest import HistoryPoint

_FEW: Final = 16
"""Messages that are digested faster than it is found out whether they were digested before."""
HASHED: Final = 1_000_000
"""Characters of a history above which it is not hashed in the event loop (half a millisecond), and bytes of one above
which its texts are not kept."""
_FIRST: Final = 4
"""Messages by which a history is looked up."""
_JOINED: Final = 256
"""Messages whose texts are kept joined."""
_BETWEEN: Final = f"\0{secrets.token_hex(16)}\0"
"""Stands between texts that are joined. Nobody knows it, so no text has it, and no two lists of texts are the same one
when they are joined."""
_ENTRY: Final = 8
"""Bytes that a message takes besides its text."""

_Key: TypeAlias = tuple[bytes, int]
"""Whose history it is, with which model, and a hash of its beginning."""


class Prefix(NamedTuple):
    """What is known of the first `length` messages of a history: their last point, and the rest as in `History`."""

    length: int
    last: HistoryPoint
    systems: list[int]
    found: list[int]
    has_results: bool


class _Kept(NamedTuple):
    """The texts of a prefix, by which it is known again, and about how many bytes they are. Joined, since texts that
    came with many requests lie about in the memory: to read them there takes longer than to join those of this one."""

    prefix: Prefix
    roles: Sequence[str]
    texts: Sequence[str]
    size: int

    def begins(self, roles: Sequence[str], contents: Sequence[object]) -> bool:
        """Whether a history begins with these."""
        length = self.prefix.length
        if roles[:length] != self.roles:
            return False
        try:
            texts = _joined(cast("Sequence[str]", contents), 0, length)
            return all(text == known for text, known in zip(texts, self.texts, strict=True))
        except TypeError:
            return False  # There are images now.


class _Hashed(NamedTuple):
    """The hash of a prefix, by which it is known again where its texts are not kept."""

    prefix: Prefix
    fingerprint: int


class _KeptTexts(LRUCache[_Key, _Kept]):
    """The newest texts; of those that make room for others the hash stays."""

    def __init__(self, size: int, hashed: LRUCache[_Key, _Hashed]) -> None:
        super().__init__(size, lambda kept: kept.size)
        self._hashed = hashed

    def popitem(self) -> tuple[_Key, _Kept]:
        key, kept = super().popitem()
        texts = [text for each in kept.texts for text in each.split(_BETWEEN)]
        self._hashed[key] = _Hashed(kept.prefix, hash_of(kept.roles, texts, kept.prefix.length))
        return key, kept


class Found(NamedTuple):
    """Under which key a history is kept, and what is known of it; `kept`: by its texts."""

    key: _Key
    prefix: Prefix | None
    kept: _Kept | None = None

    @property
    def length(self) -> int:
        """How many of its messages are known."""
        return 0 if self.prefix is None else self.prefix.length


class KeptHistories:
    """The texts of the newest histories, `most` bytes of them, and of each of `size` others 16 bytes and a hash. May be
    used from several threads."""

    def __init__(self, size: int, most: int) -> None:
        self._hashed: LRUCache[_Key, _Hashed] = LRUCache(size)
        self._kept = _KeptTexts(most, self._hashed)
        self._most = min(HASHED, most)
        self._lock = Lock()

    def forget(self, seeds: Collection[bytes]) -> None:
        """Drop the texts of some owners' conversations."""
        with self._lock:
            for key in [key for key in self._kept if key[0] in seeds]:
                del self._kept[key]

    def find(
        self, seed: bytes, roles: Sequence[str], contents: Sequence[object], *, by_hash: bool = True
    ) -> Found | None:
        """Return what is known of a history. None: it is too short to be kept, or begins with images."""
        if len(contents) <= _FEW or not all(isinstance(each, str) for each in contents[:_FIRST]):
            return None
        key = (seed, hash(tuple(contents[:_FIRST])))
        with self._lock:
            kept, hashed = self._kept.get(key), self._hashed.get(key)
        if kept is not None and kept.begins(roles, contents):
            return Found(key, kept.prefix, kept)
        if hashed is None or not by_hash or hashed.fingerprint != hash_of(roles, contents, hashed.prefix.length):
            return Found(key, None)
        return Found(key, hashed.prefix)

    def keep(self, found: Found, prefix: Prefix, roles: Sequence[str], texts: Sequence[str]) -> None:
        """Keep what is known of a history now."""
        before = () if found.kept is None else found.kept.texts[: found.length // _JOINED]
        pieces = [*before, *_joined(texts, len(before) * _JOINED, prefix.length)]
        size = sum(map(sys.getsizeof, pieces)) + _ENTRY * prefix.length
        with self._lock:
            if size > self._most:
                self._kept.pop(found.key, None)
                self._hashed[found.key] = _Hashed(prefix, hash_of(roles, texts, prefix.length))
            else:
                self._kept[found.key] = _Kept(prefix, roles[: prefix.length], pieces, size)
                self._hashed.pop(found.key, None)


def _joined(texts: Sequence[str], begin: int, end: int) -> Iterator[str]:
    """Texts, so many at a time joined."""
    return (_BETWEEN.join(texts[at : min(at + _JOINED, end)]) for at in range(begin, end, _JOINED))


def hash_of(roles: Sequence[str], contents: Sequence[object], count: int) -> int:
    """Return a hash of the first messages of a history, which holds in this process."""
    return hash((tuple(roles[:count]), tuple(contents[:count])))
