"""The sampling parameters of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ModelParams:
    """Sampling parameters of a request, applied to the model calls of the agents. None: the model's default.

    Attributes:
        temperature: 0 to 2 at most endpoints.
        max_tokens: most tokens of one answer of the model.
        top_p: share of the probability mass that tokens are drawn from, 0 to 1.
        seed: for endpoints that can repeat an answer.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def create_args(self) -> dict[str, Any]:
        """The parameters that are set, by their OpenAI names."""
        values = {
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "top_p": self.top_p,
            "seed": self.seed,
        }
        return {name: value for name, value in values.items() if value is not None}
