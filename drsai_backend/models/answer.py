"""An answer that knows which model gave it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Self

from autogen_core.models import CreateResult, RequestUsage


class ModelAnswer(CreateResult):
    """AutoGen's result of a call by a profile.

    Attributes:
        profile: the profile whose model answered.
        model: that model's name at its endpoint.
        attempts: how many calls it took, those that failed included; 0 for one out of the cache.
    """

    profile: str
    model: str
    attempts: int = 1

    def from_cache(self) -> Self:
        """As it is given again: nothing was used, and calls of tools have ids of their own, as ids are unique in a
        conversation."""
        content = self.content
        if not isinstance(content, str):
            content = [type(call)(f"call_{secrets.token_hex(12)}", call.arguments, call.name) for call in content]
        usage = RequestUsage(prompt_tokens=0, completion_tokens=0)
        return self.model_copy(update={"content": content, "cached": True, "usage": usage, "attempts": 0})

    def pieces(self) -> Iterator[str]:
        """The text as a stream has it, word by word, with the thought in front; none where it calls tools."""
        if not isinstance(self.content, str):
            return
        if self.thought:
            yield f"<think>{self.thought}</think>\n"
        yield from re.findall(r"\s*\S+\s*$|\s*\S+|\s+", self.content)

    def by(self) -> dict[str, str]:
        """Who gave it, as the message that is made of it keeps it."""
        return {"model": self.model, "profile": self.profile, **({"cached": "true"} if self.cached else {})}
