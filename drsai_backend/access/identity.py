"""Identity comes from the key or token of a request: it tells who asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from drsai_backend.access.principal import Principal
from drsai_backend.errors import Unauthenticated

if TYPE_CHECKING:
    from drsai_backend.access.key_store import ApiKeys
    from drsai_backend.access.tokens import TokenVerifier

_HOW: Final = "send an API key as `Authorization: Bearer sk-drsai-…`"


class Authenticator:
    """Tells who asks.

    Args:
        keys: the API keys.
        tokens: checks tokens; None: none are taken.
        required: False: nobody needs a key until the first one is made.
    """

    def __init__(self, keys: ApiKeys, tokens: TokenVerifier | None = None, *, required: bool = False) -> None:
        self._keys = keys
        self._tokens = tokens
        self.required = required or tokens is not None
        """Whether a key or token was needed from the first request on."""

    async def is_required(self) -> bool:
        """Whether who asks needs a key or a token now."""
        return self.required or await self._keys.any_exist()

    @property
    def was_open(self) -> bool:
        """Whether nobody needed a key or a token when that was looked at last."""
        return not self.required and self._keys.had_none

    async def identify(self, credential: str | None) -> Principal | None:
        """Return who brings this key or token. None: it does not matter, for no key is needed here.

        Raises:
            Unauthenticated: there is none, or it is not valid.
        """
        if not await self.is_required():
            return None
        if credential is None:
            raise Unauthenticated(f"this server needs an API key: {_HOW}")
        if self._tokens is not None and credential.count(".") == 2:
            return await self._tokens.verify(credential)
        return await self._keys.check(credential)
