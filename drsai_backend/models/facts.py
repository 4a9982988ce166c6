"""Facts are what is known of a model before it is asked anything."""

from __future__ import annotations

from typing import NamedTuple

from autogen_core.models import ChatCompletionClient


class ModelFacts(NamedTuple):
    """What a model can do, as its client says. `context_length`: tokens of a request and its answer; None: unknown."""

    context_length: int | None
    vision: bool
    tools: bool
    json_output: bool
    structured_output: bool


def facts_of(client: ChatCompletionClient) -> ModelFacts:
    """Return what the model of a client can do. Its attribute `context_length`, where it has one, is an int or None."""
    info = client.model_info
    size: object = getattr(client, "context_length", None)
    return ModelFacts(
        size if isinstance(size, int) else None,
        info["vision"],
        info["function_calling"],
        info["json_output"],
        info.get("structured_output", False),
    )
