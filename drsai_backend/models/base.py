"""A model provider makes the clients that `RunContext.model_client()` gives to teams."""

from __future__ import annotations

from abc import abstractmethod
from typing import Protocol

from autogen_core.models import ChatCompletionClient
from pydantic import SecretStr


class ModelProvider(Protocol):
    """Makes the model clients of one process, in one event loop: `DrSai(model_provider=...)`.

    Runs share its clients. Each run wraps them to count tokens and to record answers, and closes none of them. A client
    with an attribute `takes_params` gets the request's parameters (`ModelParams`) in `extra_create_args`, by their
    OpenAI names: all of them where it is true, those that it names where it is a collection of names. AutoGen's OpenAI
    clients always get all. A client of a request is told which parameters nobody takes.
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
        """Return what answers, in a few words for a console. Never holds a key or a password."""
        return type(self).__name__

    async def close(self) -> None:
        """Close what the clients share. The provider may be used again afterwards."""
