"""The models of others are taken over by name, which the definition has; how one is reached is a profile's."""

from __future__ import annotations

from typing import Final, get_args

from pydantic import ValidationError

from drsai_backend.definitions.convert.base import Draft
from drsai_backend.definitions.source import FieldPath
from drsai_backend.explain import explain
from drsai_backend.json_types import JsonObject
from drsai_backend.models.profiles.schema import KEYS, Profile, Provider
from drsai_backend.tools.literals import reference_of

PROVIDERS: Final[tuple[str, ...]] = tuple(each for each in get_args(Provider) if each not in ("demo", "default"))
_SAME: Final = {
    "azure_openai": "azure",
    "dashscope": "qwen",
    "google": "gemini",
    "mistralai": "mistral",
    "oai": "openai",
    "openai_api_compatible": "openai",
    "qwen_dashscope": "qwen",
    "qwenvl_dashscope": "qwen",
    "qwenvl_oai": "openai",
    "tongyi": "qwen",
}


def name_model(draft: Draft, model: str, origin: FieldPath) -> None:
    """The model's name, which a profile may have."""
    draft.put("model.profile", model, origin)
    draft.profile["model"] = draft.secrets.hidden(model)


def name_provider(draft: Draft, provider: str, origin: FieldPath) -> None:
    """Note whose interface the model's endpoint has."""
    last = provider.rstrip("/").rpartition("/")[2]  # A plugin's has the names of its publisher before it.
    ours = last if last in PROVIDERS else _SAME.get(last.lower(), _SAME.get(provider.lower()))
    if ours is None:
        draft.profile["provider"] = "openai"
        known = ", ".join(PROVIDERS)
        draft.note(f"there is no provider {provider!r}: the profile says `openai`; there are {known}", origin)
        return
    draft.profile["provider"] = ours


def name_key(draft: Draft, key: object, origin: FieldPath) -> None:
    """The endpoint's key, by the variable that it is to be in."""
    variable = reference_of(key)
    provider = draft.profile.get("provider", "openai")
    usual = next((name for each, name in KEYS.items() if each == provider), "MODEL_API_KEY")
    if variable is None:
        found = draft.secrets.at(origin)
        if found is None:
            draft.homeless(key, origin, "it is no key")
            return
        variable = found
        draft.note(f"put the key into the variable {variable}; {usual} is the usual one", origin)
    draft.profile["key_env"] = variable


def finish_profile(draft: Draft) -> None:
    """Say what the profile still needs."""
    try:
        Profile.model_validate(draft.profile)
    except ValidationError as error:
        for each in explain(error):
            what = f"{each.place}: {each.text}" if each.path else each.text
            draft.note(f"the profile of the model still has to be completed: {what}", ())


def put_parameters(draft: Draft, given: JsonObject, known: dict[str, str], origin: FieldPath) -> None:
    """Parameters of the model's calls: those of a definition in their places, the provider's own into the profile.

    Args:
        known: by their name, that of the definition's field.
    """
    for name, value in given.items():
        if value is None:
            continue
        if name in known:
            draft.put(known[name], value, (*origin, name))
            continue
        draft.profile.setdefault("parameters", {})[draft.secrets.hidden(name)] = draft.plain(value, (*origin, name))
        draft.note("goes into the profile of the model, as the provider alone knows it", (*origin, name))
