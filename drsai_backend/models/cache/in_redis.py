"""Answers are kept in Redis here, or in what speaks its protocol. The package `redis` is an extra."""

from __future__ import annotations

import time
from typing import Any, Final, cast

from drsai_backend.datamodel.owner import Owner
from drsai_backend.errors import ConfigurationError
from drsai_backend.models.cache.base import AnswerStore
from drsai_backend.models.profiles.schema import CacheBounds

_PREFIX: Final = "drsai:answers"
_SECONDS: Final = 2.0
"""How long it may take to answer; a cache that is slower than that is none."""

# An index of each tenant's answers, by when they are over, bounds them; its members name digest, size and user.
_PUT: Final = """
local answer, index, size = KEYS[1], KEYS[2], KEYS[3]
local text, ttl, now, member, prefix = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
local most, most_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
local function drop(members)
  for _, each in ipairs(members) do
    local digest, bytes = string.match(each, '^(%x+)|(%d+)|')
    redis.call('ZREM', index, each)
    redis.call('DECRBY', size, bytes)
    redis.call('DEL', prefix .. digest)
  end
end
drop(redis.call('ZRANGEBYSCORE', index, '-inf', now))
if redis.call('SET', answer, text, 'PX', math.floor(ttl * 1000), 'NX') then
  redis.call('ZADD', index, now + ttl, member)
  redis.call('INCRBY', size, #text)
end
while redis.call('ZCARD', index) > most or tonumber(redis.call('GET', size) or '0') > most_bytes do
  local first = redis.call('ZRANGE', index, 0, 0)
  if #first == 0 then break end
  drop(first)
end
"""
_FORGET: Final = """
local index, size, prefix, user = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local count = 0
for _, each in ipairs(redis.call('ZRANGE', index, 0, -1)) do
  local digest, bytes, whose = string.match(each, '^(%x+)|(%d+)|(.*)$')
  if whose == user then
    redis.call('ZREM', index, each)
    redis.call('DECRBY', size, bytes)
    redis.call('DEL', prefix .. digest)
    count = count + 1
  end
end
return count
"""


class RedisAnswers(AnswerStore):
    """Keys `drsai:answers:{tenant}:…` of one Redis, shared by all processes.

    Args:
        url: `redis://`, `rediss://` or `unix://`; may hold a password.

    Raises:
        ConfigurationError: the package is missing, or the URL cannot be used.
    """

    def __init__(self, url: str) -> None:
        try:
            from redis.asyncio import Redis
        except ImportError:
            raise ConfigurationError(
                "DRSAI_MODEL_CACHE_URL needs a package: pip install 'drsai-backend[redis]'"
            ) from None
        try:
            made: Any = Redis.from_url(url, socket_timeout=_SECONDS, socket_connect_timeout=_SECONDS)  # pyright: ignore[reportUnknownMemberType] - as it is typed there
        except ValueError:
            raise ConfigurationError("DRSAI_MODEL_CACHE_URL must begin with redis://, rediss:// or unix://") from None
        self._redis = made

    async def get(self, asker: Owner, digest: str) -> str | None:
        """See `AnswerStore`."""
        found = cast("bytes | None", await self._redis.get(_names(asker)[2] + digest))
        return None if found is None else found.decode()

    async def put(self, asker: Owner, digest: str, answer: str, ttl: float, bounds: CacheBounds) -> None:
        """See `AnswerStore`."""
        index, size, prefix = _names(asker)
        member = f"{digest}|{len(answer.encode())}|{asker.user_id}"
        given = (answer, ttl, time.time(), member, prefix, bounds.max_entries, bounds.max_bytes)
        await self._redis.eval(_PUT, 3, prefix + digest, index, size, *given)

    async def forget(self, asker: Owner) -> int:
        """See `AnswerStore`."""
        index, size, prefix = _names(asker)
        return int(await self._redis.eval(_FORGET, 2, index, size, prefix, asker.user_id))

    async def close(self) -> None:
        """Close its connections."""
        await self._redis.aclose()


def _names(asker: Owner) -> tuple[str, str, str]:
    """Index, size, and what the names of answers begin with; in braces, so that a cluster keeps them together."""
    base = f"{_PREFIX}:{{{asker.tenant}}}"
    return f"{base}:index", f"{base}:bytes", f"{base}:answer:"
