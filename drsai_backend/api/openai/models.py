"""The models of `GET /v1/models` are the teams that can be asked, as OpenAI lists models, and with what chat windows
read besides.

An entry has OpenAI's fields; `name` (Open WebUI); `context_length`, `architecture` and `supported_parameters`, as
OpenRouter has them and LibreChat and LobeChat read them; `type`, `display_name`, `created_at`, `lifecycle`,
`max_input_tokens` and `capabilities` as Anthropic's API has them. What a model can do is that of the server's own,
which teams get from `RunContext.model_client()`; nothing is said where it is not known.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import allowed
from drsai_backend.api.http.json import json_response
from drsai_backend.api.http.parameters import new_router
from drsai_backend.catalog import ListedTeam
from drsai_backend.errors import InvalidRequest, UnknownModel
from drsai_backend.json_types import JsonObject
from drsai_backend.models import ModelClientFactory
from drsai_backend.models.facts import ModelFacts
from drsai_backend.runs import Engine

_PARAMETERS: Final = ("max_tokens", "temperature", "top_p", "seed")
_Limit = Annotated[int | None, Query(ge=1, le=1000, description="Most entries; default: all. Anthropic's.")]
_Id = Annotated[str | None, Query(min_length=1, max_length=255, description="The id of an entry. Anthropic's.")]


_Reader = Annotated[Principal, allowed(Scope.AGENTS_READ)]


def model_routes(engine: Engine, models: ModelClientFactory | None = None) -> APIRouter:
    """The routes. `models`: what is known of the model comes from there."""
    router = new_router("/v1/models", tags=["models"])

    def entry(offer: ListedTeam) -> JsonObject:
        name = offer.name
        created = engine.teams.created
        told = {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "drsai",
            "name": name,
            "description": offer.description,
            "type": "model",
            "display_name": name,
            "lifecycle": "active",
            "created_at": datetime.fromtimestamp(created, UTC).isoformat().replace("+00:00", "Z"),
        }
        facts = None if models is None else models.facts()
        return told if facts is None else told | _known(facts, offers=offer.client_tools.mode == "offer")

    @router.get("")
    async def list_models(who: _Reader, limit: _Limit = None, after_id: _Id = None, before_id: _Id = None) -> Response:
        """The teams that whoever asks may ask, as OpenAI and Anthropic list models."""
        offers = {offer.name: offer for offer in await engine.offers(who)}
        names = list(offers)
        for param, given in (("after_id", after_id), ("before_id", before_id)):
            if given is not None and given not in names:
                raise InvalidRequest(f"`{param}`: there is no model {given!r} here", param=param)
        first = 0 if after_id is None else names.index(after_id) + 1
        last = len(names) if before_id is None else names.index(before_id)
        if limit is not None and after_id is None and before_id is not None:
            first = max(first, last - limit)
        shown = names[first:last][:limit]
        body = {
            "object": "list",
            "data": [entry(offers[name]) for name in shown],
            "first_id": shown[0] if shown else None,
            "last_id": shown[-1] if shown else None,
            "has_more": len(names[first:last]) > len(shown) or (before_id is not None and first > 0),
        }
        return json_response(body)

    @router.get("/{model:path}")
    async def get_model(model: str, who: _Reader) -> Response:
        """One team."""
        for offer in await engine.offers(who):
            if offer.name == model:
                return json_response(entry(offer))
        raise UnknownModel(f"there is no model {model!r} here; GET /v1/models lists them", param="model")

    return router


_NO: Final[JsonObject] = {"supported": False}
_LACKING: Final[JsonObject] = {
    **dict.fromkeys(("batch", "citations", "code_execution", "context_management", "pdf_input"), _NO),
    "effort": {**_NO, **dict.fromkeys(("low", "medium", "high", "max"), _NO)},
    "server_tools": {**_NO, "code_execution": _NO, "web_search": _NO},
    "thinking": {
        **_NO,
        "types": {"disabled": {"supported": True}, **dict.fromkeys(("adaptive", "between_tools", "enabled"), _NO)},
    },
}
"""What Anthropic's clients are told of that no model has here."""


def _known(facts: ModelFacts, *, offers: bool) -> JsonObject:
    """Return what is known of a model. `offers`: the team lets its clients' tools be called."""
    tools = facts.tools and offers
    inputs = ["text", "image"] if facts.vision else ["text"]
    parameters = [*_PARAMETERS, *(("tools", "tool_choice", "parallel_tool_calls") if tools else ())]
    if facts.structured_output or facts.json_output:
        parameters.append("response_format")
    return {
        "context_length": facts.context_length,
        "max_input_tokens": facts.context_length,
        "architecture": {"input_modalities": inputs, "output_modalities": ["text"]},
        "supported_parameters": parameters,
        "capabilities": {
            "vision": facts.vision,
            "tools": tools,
            "image_input": {"supported": facts.vision},
            "structured_outputs": {"supported": facts.structured_output},
            **_LACKING,
        },
    }
