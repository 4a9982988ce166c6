"""The schema of a file of model profiles says what stands in it: an error names the field and what it must be."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from drsai_backend.config.values import Endpoint
from drsai_backend.json_types import JsonObject
from drsai_backend.models.endpoints.continuation import ContinueForm
from drsai_backend.models.endpoints.message_rules import MessageForm

Provider: TypeAlias = Literal[
    "openai", "azure", "anthropic", "ollama", "gemini", "qwen", "deepseek", "mistral", "vllm", "demo", "default"
]
"""Whose interface an endpoint has. `default`: what the process asks without profiles; `demo`: the offline model."""

ENDPOINTS: Final[dict[Provider, str]] = {
    "ollama": "http://127.0.0.1:11434/v1",
    "gemini": "https://generativelanguage.googleapis.com/v1beta/openai",
    "qwen": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "mistral": "https://api.mistral.ai/v1",
}
"""Where a provider is, if its profile does not say it."""
KEYS: Final[dict[Provider, str]] = {
    "openai": "OPENAI_API_KEY",
    "azure": "AZURE_OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "gemini": "GEMINI_API_KEY",
    "qwen": "DASHSCOPE_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "mistral": "MISTRAL_API_KEY",
}
"""The variable that a provider's key is in, if its profile does not say it."""
_NEEDS_ENDPOINT: Final = ("azure", "vllm")
_NO_AUDIO: Final = ("anthropic", "demo", "default")
_CLIENTS_OWN: Final = ("model", "messages", "stream", "stream_options", "tools", "tool_choice")


def _check_name(name: str) -> str:
    if name != name.strip() or not name or len(name) > 100 or not name.isprintable():
        raise ValueError("must be 1 to 100 printable characters without white space around them")
    return name


Name: TypeAlias = Annotated[str, AfterValidator(_check_name)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Limits(_Part):
    """What a model is asked at most. None: no bound."""

    concurrency: int | None = Field(default=None, ge=1, description="Calls at a time, per process.")
    rpm: float | None = Field(default=None, gt=0, description="Calls per minute, per process.")
    context: int | None = Field(default=None, ge=1, description="Tokens of a request and its answer.")


class Can(_Part):
    """What a model can do. None: what AutoGen knows of it, or what is usual."""

    vision: bool | None = None
    audio: bool = Field(default=False, description="True: recordings of users are sent as `input_audio`.")
    tools: bool | None = None
    json_output: bool | None = Field(default=None, alias="json")
    structured_output: bool | None = None
    strict_tools: bool | None = Field(default=None, description="False: tools are sent without `strict`.")
    thinking: bool | None = Field(default=None, description="False: `reasoning_effort` is not sent.")
    continuation: ContinueForm | None = None
    multiple_system_messages: bool | None = None


class Price(_Part):
    """What a million tokens cost, in whatever currency all profiles have."""

    prompt: float = Field(ge=0)
    completion: float = Field(default=0.0, ge=0)


class CacheRule(_Part):
    """Answers are kept for `ttl` seconds. Another `seed` has answers of its own."""

    ttl: float = Field(gt=0, le=366 * 86400)
    seed: int = 0


class BreakerRule(_Part):
    """After so many failures in a row an endpoint is left alone for `seconds`; each failed probe doubles them."""

    failures: int = Field(default=5, ge=1)
    seconds: float = Field(default=15.0, gt=0, le=3600)


class Route(_Part):
    """Which requests another profile answers: those for which all that is said here is so.

    Attributes:
        use: the profile.
        tokens_over: the request has more tokens (counted or estimated).
        images: it has images, or none.
        language: most of the newest message's letters are of its script: `zh`, `ja`, `ko`, `ru`, `ar`, `el`, `he`,
            `hi`, `th`, or `latin`.
        tools: tools are offered, or none.
        cost_over: its prompt would cost more with this profile's `price`.
    """

    use: Name
    tokens_over: int | None = Field(default=None, ge=1)
    images: bool | None = None
    language: Literal["zh", "ja", "ko", "ru", "ar", "el", "he", "hi", "th", "latin"] | None = None
    tools: bool | None = None
    cost_over: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.model_fields_set <= {"use"}:
            raise ValueError("must say which requests it is for: tokens_over, images, language, tools or cost_over")
        return self


class Profile(_Part):
    """One named model: see docs/models.md for each field."""

    provider: Provider = "openai"
    model: str | None = Field(default=None, min_length=1, description="Its name at the endpoint.")
    endpoint: Endpoint = None
    key_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    api_version: str | None = Field(default=None, description="Azure's.")
    family: str | None = None
    parameters: JsonObject = Field(default_factory=dict)
    limits: Limits = Limits()
    can: Can = Can()
    messages: MessageForm | None = None
    timeout: float | None = Field(default=None, gt=0, description="Seconds to an answer, or between pieces of one.")
    retries: int = Field(default=1, ge=0, le=10)
    breaker: BreakerRule = BreakerRule()
    fallback: tuple[Name, ...] = Field(default=(), max_length=16)
    routes: tuple[Route, ...] = Field(default=(), max_length=32)
    cache: CacheRule | None = None
    prompt_cache: bool = Field(default=False, description="Mark what the provider may keep of a prompt.")
    price: Price | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.model is None and self.provider not in ("demo", "default"):
            raise ValueError(f"model: is missing: the name of the model at {self.provider}")
        if self.endpoint is None and self.provider in _NEEDS_ENDPOINT:
            raise ValueError(f"endpoint: is missing: {self.provider} has an address of one's own")
        if self.provider == "azure" and self.api_version is None:
            raise ValueError("api_version: is missing, such as 2024-10-21")
        if self.provider in ("demo", "default") and (self.endpoint or self.key_env):
            raise ValueError(f"provider: {self.provider} has no endpoint and no key of its own")
        if self.can.audio and self.provider in _NO_AUDIO:
            raise ValueError(f"can: audio: {self.provider} takes no recordings here")
        if taken := [name for name in _CLIENTS_OWN if name in self.parameters]:
            raise ValueError(f"parameters: {taken[0]} is no parameter; it comes with each request")
        if any(rule.cost_over is not None for rule in self.routes) and self.price is None:
            raise ValueError("price: is missing, which cost_over counts with")
        return self


class CacheBounds(_Part):
    """How much is kept, per tenant."""

    max_entries: int = Field(default=10_000, ge=1)
    max_bytes: int = Field(default=64 * 1024 * 1024, ge=1024)


class Profiles(_Part):
    """A whole file: profiles by name, and the one that stands in where no model is named."""

    default: Name | None = None
    profiles: dict[Name, Profile] = Field(default_factory=dict)
    cache: CacheBounds = CacheBounds()

    @model_validator(mode="after")
    def _names_are_there(self) -> Self:
        known = self.profiles.keys()
        if self.default is not None and self.default not in known:
            raise ValueError(f"default: there is no profile {self.default!r}")
        for name, profile in self.profiles.items():
            for place, other in enumerate(profile.fallback):
                if other not in known or other == name:
                    wrong = "is the profile itself" if other == name else "is no profile"
                    raise ValueError(f"profiles.{name}.fallback.{place}: {other!r} {wrong}")
            for place, rule in enumerate(profile.routes):
                if rule.use not in known:
                    raise ValueError(f"profiles.{name}.routes.{place}.use: {rule.use!r} is no profile")
        return self
