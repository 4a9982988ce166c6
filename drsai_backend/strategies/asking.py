"""Asking gets a model's answer that a run can do without."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage

from drsai_backend.errors import DrSaiError
from drsai_backend.json_types import JsonObject
from drsai_backend.teams.replay.steps import AgentSteps

_log = logging.getLogger("drsai.strategies")


async def ask(
    client: ChatCompletionClient, steps: AgentSteps | None, messages: Sequence[LLMMessage], options: JsonObject
) -> CreateResult | None:
    """A model's answer; None: it has failed, also where the turn is repeated and it would answer now.

    Args:
        steps: of the agent that asks; None outside of a run.

    Raises:
        DrSaiError: the run cannot continue, and neither where an answer could not be stored.
    """
    if steps is not None and steps.noted() is not None:
        return None
    try:
        return await client.create(messages, **options)
    except DrSaiError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a client raises
        if steps is not None:
            steps.turn.check()
            await steps.note({"failed": type(error).__name__})
        _log.warning("a model that a run can do without has failed", exc_info=error)
        return None
