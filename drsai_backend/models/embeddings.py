"""Embeddings are asked for at the configured endpoint in OpenAI's way, checked, and given in the encoding that was
asked for, whichever the endpoint knows.

Nothing is computed or downloaded here: without an endpoint there are none.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import struct
import time
from collections.abc import Sequence
from typing import Annotated, Final, Literal, NamedTuple, NoReturn, TypeAlias, cast

import openai
import orjson
from openai import AsyncOpenAI, Timeout
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from drsai_backend.config import Settings
from drsai_backend.errors import EndpointBusy, EndpointFailed, EndpointTimeout, InvalidRequest, UnknownModel
from drsai_backend.models.endpoints.answers import CallRecord
from drsai_backend.models.endpoints.bounded import bounded_client
from drsai_backend.models.openai import CONNECT_SECONDS, OPENAI_URL

MAX_INPUTS: Final = 2048
"""Inputs of a request, as at OpenAI."""
_MAX_BYTES: Final = 128 * 2**20
"""Of an endpoint's answer: 2048 vectors of 3072 numbers as text."""
_AT_ONCE: Final = 8
"""Requests of a process that the endpoint is asked at a time; the others wait, so that answers of this size are few."""
KIND: Final = "embeddings"
"""Of these calls, for whoever counts them."""
_REFUSALS: Final = frozenset({400, 413, 422})

Encoding: TypeAlias = Literal["float", "base64"]
Tokens: TypeAlias = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, max_length=100_000)]
Text: TypeAlias = Annotated[str, Field(min_length=1)]
_Many: Final = Field(min_length=1, max_length=MAX_INPUTS)
Inputs: TypeAlias = Text | Tokens | Annotated[list[Text], _Many] | Annotated[list[Tokens], _Many]


class EmbeddingsRequest(NamedTuple):
    """What is asked for. `inputs` are texts, or tokens of the endpoint's model; `api_key` is used in place of the
    server's, `model` in place of that of the settings."""

    inputs: Inputs
    encoding: Encoding = "float"
    dimensions: int | None = None
    api_key: SecretStr | None = None
    model: str | None = None

    @property
    def vectors(self) -> int:
        """How many vectors it asks for."""
        single = isinstance(self.inputs, str) or isinstance(self.inputs[0], int)
        return 1 if single else len(self.inputs)


class EmbeddingsAnswer(NamedTuple):
    """What an endpoint has answered: `body` is JSON that OpenAI's API would answer with; its `data` has a vector for
    each input, in order."""

    body: bytes
    model: str | None
    prompt_tokens: int
    seconds: float

    def record(self) -> CallRecord:
        """Return what is known of the call, for whoever counts it."""
        used = {"prompt_tokens": self.prompt_tokens, "seconds": round(self.seconds, 3)}
        return cast(CallRecord, {"model": self.model, **used})


class _Loose(BaseModel):
    model_config = ConfigDict(hide_input_in_errors=True)


class _Vector(_Loose):
    index: int
    embedding: list[float] | str


class _Used(_Loose):
    prompt_tokens: int = 0
    total_tokens: int = 0


class _Answer(_Loose):
    data: list[_Vector]
    usage: _Used | None = None


class Embeddings:
    """Asks one endpoint for embeddings of one model (`DRSAI_EMBEDDINGS_MODEL`). Its connections are opened at the first
    request. For one event loop."""

    def __init__(self, settings: Settings) -> None:
        self.model = settings.embeddings_model
        """The name that requests say; None: there are no embeddings."""
        self._settings = settings
        self._own_url = settings.embeddings_base_url
        key = settings.embeddings_api_key
        if key is None and self._own_url is None:
            key = settings.openai_api_key  # of another endpoint it is none
        is_there = self._own_url is not None or key is not None or settings.openai_base_url is not None
        self._key = key
        self._url = (self._own_url or settings.openai_base_url or OPENAI_URL) if is_there else None
        self._pool: AsyncOpenAI | None = None
        self._places = asyncio.Semaphore(_AT_ONCE)

    @property
    def endpoint(self) -> str | None:
        """The URL that is asked; None: there are no embeddings, for which `check` has the words."""
        return None if self.model is None else self._url

    def check(self, model: str) -> None:
        """Raise UnknownModel unless there are embeddings of that model."""
        if self.model is None:
            raise UnknownModel("there are no embeddings here: DRSAI_EMBEDDINGS_MODEL is not set", param="model")
        if model != self.model:
            raise UnknownModel(f"there are no embeddings of {model!r} here; there are of {self.model!r}", param="model")
        if self._url is None:
            text = "there are no embeddings here: DRSAI_EMBEDDINGS_BASE_URL or OPENAI_API_KEY is not set"
            raise UnknownModel(text, param="model")

    async def create(self, request: EmbeddingsRequest) -> EmbeddingsAnswer:
        """Return the vectors.

        Raises:
            InvalidRequest: the endpoint refuses the input or the dimensions; or a key came with the request, and the
                endpoint is not that of the models, whose keys are meant by that.
            EndpointTimeout, EndpointBusy, EndpointFailed: the endpoint does not answer, or not with embeddings.
        """
        if request.api_key is not None and self._own_url is not None:
            text = "the embeddings have an endpoint of their own, which gets no keys of requests: leave it out"
            raise InvalidRequest(text, param="X-Model-Api-Key")
        seconds, since = self._settings.model_timeout, time.monotonic()
        try:
            async with asyncio.timeout(seconds), self._places:
                body = await self._ask(request)
                told, tokens = await asyncio.to_thread(read_answer, body, request, self.model)
                return EmbeddingsAnswer(told, request.model or self.model, tokens, time.monotonic() - since)
        except (openai.APITimeoutError, TimeoutError):
            raise EndpointTimeout(f"the embeddings endpoint did not answer within {seconds:g} seconds") from None

    async def close(self) -> None:
        """Close all connections. It can be used again afterwards."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    async def _ask(self, request: EmbeddingsRequest) -> bytes:
        key = request.api_key or self._key
        client = self._client().with_options(api_key="none" if key is None else key.get_secret_value())
        asked = client.embeddings.with_streaming_response.create(
            model=request.model or self.model or "",
            input=request.inputs,
            encoding_format=request.encoding,
            dimensions=openai.omit if request.dimensions is None else request.dimensions,
        )
        try:
            async with asked as response:
                return await response.read()
        except (openai.APITimeoutError, EndpointFailed):
            raise
        except openai.APIStatusError as error:
            raise _failure(error) from error
        except (openai.APIConnectionError, OSError) as error:
            raise EndpointFailed("the embeddings endpoint cannot be reached") from error
        except Exception as error:  # httpx's or httpx2's, whichever the package uses: a cut connection
            raise EndpointFailed("the embeddings endpoint broke its answer off") from error

    def _client(self) -> AsyncOpenAI:
        if self._pool is None:
            self._pool = AsyncOpenAI(
                api_key="none",  # each request brings its own
                base_url=self._url,
                timeout=Timeout(self._settings.model_timeout, connect=CONNECT_SECONDS),
                max_retries=self._settings.model_max_retries,
                http_client=bounded_client(_MAX_BYTES, _too_long),
            )
        return self._pool


def _too_long(_: bytes) -> NoReturn:
    raise EndpointFailed(f"the embeddings endpoint answers with more than {_MAX_BYTES} bytes")


def _failure(error: openai.APIStatusError) -> EndpointFailed | EndpointBusy | InvalidRequest:
    """Return what the endpoint's refusal is to the client. Its own words can hold keys and addresses, and stay in the
    log."""
    status = error.status_code
    if status in _REFUSALS:
        field = error.param if error.param in ("input", "dimensions", "encoding_format") else None
        what = f"`{field}`" if field else "`input` or `dimensions`"
        return InvalidRequest(
            f"the embeddings endpoint refuses the request (HTTP {status}): look at {what}", param=field
        )
    if status == 429:
        return EndpointBusy("the embeddings endpoint's rate limit or quota is used up (HTTP 429)")
    if status in (401, 403):
        return EndpointFailed(f"the embeddings endpoint refused the API key (HTTP {status})")
    return EndpointFailed(f"the embeddings endpoint answered with HTTP {status}")


def read_answer(body: bytes, request: EmbeddingsRequest, model: str | None) -> tuple[bytes, int]:
    """Return the endpoint's answer, checked and in the encoding that was asked for, and the tokens of the inputs. Takes
    long: call it in a thread."""
    try:
        answer = _Answer.model_validate(orjson.loads(body))
        vectors = sorted(answer.data, key=lambda vector: vector.index)
        if [vector.index for vector in vectors] != list(range(request.vectors)):
            raise ValueError("not one vector for each input")
        data = [_encoded(vector.embedding, request.encoding) for vector in vectors]
    except (ValidationError, ValueError, binascii.Error, struct.error) as error:
        text = "the embeddings endpoint answered with something else than the embeddings"
        raise EndpointFailed(text) from error
    used = answer.usage or _Used()
    told = {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(data)],
        "model": model,
        "usage": {"prompt_tokens": used.prompt_tokens, "total_tokens": used.total_tokens},
    }
    return orjson.dumps(told), used.prompt_tokens


def _encoded(vector: Sequence[float] | str, encoding: Encoding) -> Sequence[float] | str:
    """A vector as numbers, or as base64 of 32-bit floats, least significant byte first."""
    if isinstance(vector, str):
        packed = base64.b64decode(vector, validate=True)
        numbers = struct.unpack(f"<{len(packed) // 4}f", packed)
        return vector if encoding == "base64" else list(numbers)
    return vector if encoding == "float" else base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
