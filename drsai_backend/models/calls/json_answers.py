"""A model is asked for JSON of a form, in the strongest way that it knows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from autogen_core.models import ChatCompletionClient, LLMMessage, SystemMessage, UserMessage
from pydantic import BaseModel, ValidationError

from drsai_backend.json_types import JsonObject
from drsai_backend.models.calls.run_client import RunModelClient, takes_parameter
from drsai_backend.models.endpoints.answers import CallRecord, UsageMeter
from drsai_backend.models.fallback.asker import Asker
from drsai_backend.models.fallback.client import asking_for

M = TypeVar("M", bound=BaseModel)


async def answer_json(
    client: ChatCompletionClient,
    asker: Asker,
    count: Callable[[CallRecord], Awaitable[None]],
    prompt: str,
    text: str,
    form: tuple[type[M], JsonObject],
) -> M | None:
    """Ask a model.

    Args:
        client: asks it.
        asker: for whom it asks, and what is known of endpoints.
        count: stores what the call has used.
        prompt: says what is wanted, and of what form.
        text: what it is about; data of whomever.
        form: what the answer is read as, and its members, as JSON Schema; all are required.

    Returns:
        The answer; None: it is not of that form.

    Raises:
        SwitchedOff: the model is, in their tenant or in all.
        Exception: what the model client raises.
    """
    kind, properties = form
    made: list[CallRecord] = []
    meter = UsageMeter(each=made.append, tenant="" if asker.owner is None else asker.owner.tenant)
    asking = RunModelClient(asking_for(client, asker), meter=meter, rules=asker.rules)
    messages: list[LLMMessage] = [SystemMessage(content=prompt), UserMessage(content=text, source="user")]
    options: dict[str, Any] = {}
    if asking.model_info.get("structured_output") and takes_parameter(asking, "response_format"):
        schema = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
        named = {"name": next(iter(properties)), "schema": schema, "strict": True}
        options = {"extra_create_args": {"response_format": {"type": "json_schema", "json_schema": named}}}
    elif asking.model_info["json_output"]:
        options = {"json_output": True}
    try:
        answer = await asking.create(messages, **options)
    finally:
        for each in made:
            await count(each)
    said = answer.content if isinstance(answer.content, str) else ""
    try:
        return kind.model_validate_json(said[said.find("{") : said.rfind("}") + 1])
    except ValidationError:
        return None
