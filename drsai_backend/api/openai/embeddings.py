"""Embeddings (`POST /v1/embeddings`) are passed to the configured endpoint."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import Field, SecretStr
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from drsai_backend.access.principal import Principal, Scope
from drsai_backend.api.auth import Body, allowed, asked_again, described
from drsai_backend.api.http.body import Bodies, headers_of
from drsai_backend.api.http.checking import checked
from drsai_backend.api.http.json import ERROR_CONTENT, answers
from drsai_backend.api.http.parameters import new_router
from drsai_backend.api.http.stream import ClientLeft, Watch
from drsai_backend.api.openai.chat.inputs import MODEL_KEY, model_key, text_headers
from drsai_backend.database.calls import Calls
from drsai_backend.database.hooks import Asked
from drsai_backend.models import ModelClientFactory
from drsai_backend.models.embeddings import KIND, MAX_INPUTS, EmbeddingsRequest, Encoding, Inputs

Asker = Annotated[Principal, allowed(Scope.CHAT)]

_TEXTS = {
    "input": f"must be a text, a list of tokens, or a list of 1 to {MAX_INPUTS} of them, none of them empty",
    "encoding_format": "must be 'float' or 'base64'",
}
_SCHEMA = {
    "type": "object",
    "required": ["object", "data", "model", "usage"],
    "properties": {
        "object": {"const": "list"},
        "data": {"type": "array", "items": {"type": "object"}},
        "model": {"type": "string"},
        "usage": {"type": "object"},
    },
}
_FAILURES = {
    404: {"description": "There are no embeddings of that model.", "content": ERROR_CONTENT},
    429: {"description": "A limit is reached, here or at the endpoint.", "content": ERROR_CONTENT},
    502: {"description": "The endpoint gives no embeddings.", "content": ERROR_CONTENT},
    504: {"description": "The endpoint did not answer in time.", "content": ERROR_CONTENT},
}


class EmbeddingsBody(Body):
    """A request for embeddings."""

    model: str = Field(min_length=1, max_length=255)
    input: Inputs
    encoding_format: Encoding | None = None
    dimensions: int | None = Field(None, ge=1, le=2**20)
    user: str | None = Field(None, max_length=1024, description="OpenAI's tag of an end user; it is not passed on.")


def embedding_routes(models: ModelClientFactory, bodies: Bodies, calls: Calls, *, ping: float) -> APIRouter:
    """The route. `calls` stores what is asked for; `ping`: seconds between looks whether the client is still there."""
    embeddings, switches = models.embeddings, models.switches
    router = new_router("/v1/embeddings", tags=["embeddings"])

    @router.post("", responses={**answers(200, _SCHEMA), **_FAILURES}, openapi_extra=described(EmbeddingsBody))
    async def create_embedding(request: Request, who: Asker) -> Response:
        """Vectors of texts, by the configured endpoint (`DRSAI_EMBEDDINGS_MODEL`)."""
        async with bodies.read(request.scope, request.receive) as fields:
            asked = checked(EmbeddingsBody.model_validate, fields, _TEXTS)
            embeddings.check(asked.model)
            if switches.off:
                switches.check(who.tenant, "model", asked.model)
            key: SecretStr | None = model_key(None, text_headers(headers_of(request.scope), MODEL_KEY))
            await calls.charge(Asked(who.owner, who.key_id))
            given = EmbeddingsRequest(asked.input, asked.encoding_format or "float", asked.dimensions, key)
            try:
                with Watch(request.receive, ping, still=asked_again(request, Scope.CHAT, who)):
                    answer = await embeddings.create(given)
            except ClientLeft:
                raise ClientDisconnect from None
            await calls.store(who.owner, KIND, answer.record())
            return Response(answer.body, media_type="application/json")

    return router
