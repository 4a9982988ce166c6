"""What a model provider is: where the clients come from that `RunContext.model_client()` gives to teams."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from autogen_core.models import ChatCompletionClient
from pydantic import SecretStr


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

    def create_args(self) -> dict[str, float]:
        """The parameters that are set, by their OpenAI names."""
        return {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}


class ModelProvider(Protocol):
    """Makes the model clients of one process, in one event loop: `DrSai(model_provider=...)`.

    Runs share its clients. Each run wraps them to count tokens and to record answers, and closes none of them. A client
    with a true attribute `takes_params` gets the request's sampling parameters in `extra_create_args`, by their OpenAI
    names; AutoGen's OpenAI clients always do.
    """

    @abstractmethod
    def client(self, model: str | None, api_key: SecretStr | None) -> ChatCompletionClient:
        """The client for a model; asked for by every agent of every run, so make each once.

        Args:
            model: the name that a team asks for; None: the provider's default.
            api_key: the request's own key, to be used instead of the provider's. It must reach no other endpoint.

        Raises:
            InvalidRequest: the request asks for something that cannot be had.
        """

    def describe(self) -> str:
        """What answers, in a few words for a console. Never holds a key or a password."""
        return type(self).__name__

    async def close(self) -> None:
        """Close what the clients share. The provider may be used again afterwards."""
