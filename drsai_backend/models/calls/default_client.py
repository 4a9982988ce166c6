"""The default client is the run's own model client, as component configs and factories name it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self, TypeAlias

from autogen_core import Component, ComponentModel
from pydantic import BaseModel

from drsai_backend.errors import ConfigurationError
from drsai_backend.models.calls.run_client import RunModelClient
from drsai_backend.models.endpoints.message_rules import MessageForm

ClientMaker: TypeAlias = Callable[[str | None, MessageForm | None], RunModelClient]
"""Makes the run's client for a model name, or for the default model: `RunContext.model_client`."""

_current: ContextVar[ClientMaker | None] = ContextVar("drsai_run_model_client", default=None)


@contextmanager
def run_model_clients(maker: ClientMaker) -> Generator[None]:
    """While a team is being built: what `DefaultModelClient` stands for."""
    token = _current.set(maker)
    try:
        yield
    finally:
        _current.reset(token)


class DefaultModelClientConfig(BaseModel):
    """The component config: `model` and `messages` as in `RunContext.model_client`."""

    model: str | None = None
    messages: MessageForm | None = None


class DefaultModelClient(RunModelClient, Component[DefaultModelClientConfig]):
    """The run's own model client, with the request's parameters and key. Only while a team is being built.

    In a component config (`config` may also be `{}`, or `model_client` left out)::

        model_client:
          provider: drsai_backend.models.DefaultModelClient
          config: {model: gpt-4o-mini}

    Raises:
        ConfigurationError: used outside of a team factory.
    """

    component_type = "model"
    component_config_schema = DefaultModelClientConfig
    component_provider_override = "drsai_backend.models.DefaultModelClient"

    def __init__(self, model: str | None = None, messages: MessageForm | None = None) -> None:
        maker = _current.get()
        if maker is None:
            raise ConfigurationError("DefaultModelClient stands for the client of a run: use it inside a team factory")
        made = maker(model, messages)
        super().__init__(made.inner, params=made.params, meter=made.meter, rules=made.rules, messages=made.messages)
        self._asked_for = model

    def dump_component(self) -> ComponentModel:
        """Itself, not the wrapped client: loaded again, it is the client of that run."""
        return super(RunModelClient, self).dump_component()

    def _to_config(self) -> DefaultModelClientConfig:
        return DefaultModelClientConfig(model=self._asked_for, messages=self.messages)

    @classmethod
    def _from_config(cls, config: DefaultModelClientConfig) -> Self:
        return cls(model=config.model, messages=config.messages)
