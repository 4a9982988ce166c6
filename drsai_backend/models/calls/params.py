"""The parameters of a request have their OpenAI names here (`openai.types.chat`), and it is told which model calls they
reach."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Self

from autogen_core.models import ModelFamily

from drsai_backend.json_types import JsonObject

_COLUMNS: Final = frozenset({"temperature", "max_tokens", "top_p", "seed"})
"""What has a column of its own in `UserInput`."""
_OF_SPEECH: Final = frozenset(
    {"stop", "logit_bias", "prediction", "verbosity", "modalities", "presence_penalty", "frequency_penalty"}
)
"""What shapes the words of an answer. A group chat's own calls, which choose speakers and keep plans in a form that a
program reads, do not get it."""

_RENAMES_MAX_TOKENS: Final = frozenset({ModelFamily.O1, ModelFamily.O3, ModelFamily.O4, ModelFamily.GPT_5})
_RENAMED_MODEL: Final = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])")


@dataclass(frozen=True, slots=True)
class ModelParams:
    """Parameters of a request, applied to the model calls of the agents. None: the model's default.

    The values are those of OpenAI's Chat Completions, and what an endpoint takes is for the endpoint to say: nothing is
    checked here.

    Attributes:
        temperature: 0 to 2 at most endpoints.
        max_tokens: most tokens of one answer of the model, its reasoning included. Sent as `max_completion_tokens`
            where the model wants that name.
        top_p: share of the probability mass that tokens are drawn from, 0 to 1.
        seed: for endpoints that can repeat an answer.
        stop: a text, or a list of texts, at which an answer ends.
        presence_penalty: -2 to 2.
        frequency_penalty: -2 to 2.
        logit_bias: -100 to 100 by token id.
        reasoning_effort: `none`, `minimal`, `low`, `medium`, `high` and what else the model knows.
        verbosity: `low`, `medium`, `high`.
        service_tier: the endpoint's name of a tier.
        prediction: what most of the answer will be, `{"type": "content", "content": …}`.
        modalities: `["text"]`.
        parallel_tool_calls: sent with the calls that offer tools.
        response_format: `text`, `json_object` or `json_schema`, as OpenAI writes it: the form of the answering
            agent's messages (see `drsai_backend.teams.team_tree.answering_agent`), and of nobody else's.
    """

    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, int] | None = None
    reasoning_effort: str | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    prediction: JsonObject | None = None
    modalities: list[str] | None = None
    parallel_tool_calls: bool | None = None
    response_format: JsonObject | None = None
    _given: JsonObject = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = {name: value for name in PARAMETERS if (value := getattr(self, name)) is not None}
        object.__setattr__(self, "_given", given)

    def create_args(self) -> JsonObject:
        """The parameters that are set, by their OpenAI names."""
        return dict(self._given)

    def without_columns(self) -> JsonObject:
        """Return those of them that have no column in `UserInput`: its `extra_requests` keeps them."""
        return {name: value for name, value in self._given.items() if name not in _COLUMNS}

    @classmethod
    def of_stored(cls, columns: Mapping[str, float | None], extra: Mapping[str, object]) -> tuple[Self, JsonObject]:
        """The parameters that a `UserInput` keeps, and what else is in its `extra_requests`."""
        kept = {name: value for name, value in extra.items() if name in PARAMETERS and name not in _COLUMNS}
        return cls(**columns, **kept), {name: value for name, value in extra.items() if name not in kept}  # pyright: ignore[reportArgumentType] - columns are typed by the table


PARAMETERS: Final = tuple(each.name for each in fields(ModelParams) if each.init)
"""The names of all of them."""


def of_a_manager(args: Mapping[str, object]) -> JsonObject:
    """Return what of the arguments of an agent's calls a group chat's own calls get."""
    return {name: value for name, value in args.items() if name not in _OF_SPEECH}


def renames_max_tokens(url: str, model: str, family: str) -> bool:
    """Whether a model refuses that name, as the reasoning models do; elsewhere it is the one that all know."""
    return "api.openai.com" in url or family in _RENAMES_MAX_TOKENS or bool(_RENAMED_MODEL.search(model))
