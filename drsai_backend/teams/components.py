"""Teams as AutoGen component configs: checked when they are read, loaded for a run."""

from __future__ import annotations

import copy
import difflib
import importlib
import inspect
from collections.abc import Mapping
from typing import Any, cast, get_args

from autogen_agentchat.base import ChatAgent, Team
from autogen_core import ComponentLoader, ComponentModel, is_component_class
from autogen_core._component_config import WELL_KNOWN_PROVIDERS
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from drsai_backend.models import DefaultModelClient


def load_team_component(config: Mapping[str, Any]) -> object:
    """A fresh agent or team from a component config. A `model_client` that was left out is the run's own.

    Raises whatever the component's own loading raises.
    """
    return ComponentLoader.load_component(ComponentModel(**completed(config)), expected=object)


def completed(config: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a component config with what AutoGen wants to have spelled out: model clients and plain defaults.

    AutoGen's config classes require fields such as `description` or `reflect_on_tool_use` that their constructors
    have defaults for; a person who writes a config by hand leaves them out.
    """
    result = copy.deepcopy(dict(config))
    _complete(result)
    return result


def problems(config: object, where: str = "") -> list[str]:
    """What is wrong with a component config and the configs inside it, one sentence each; empty when it can be used."""
    if not isinstance(config, Mapping):
        return [f"{where or 'the team'} is not a component config (a mapping with `provider` and `config`)"]
    component = cast("Mapping[str, Any]", config)
    provider = component.get("provider")
    if not isinstance(provider, str):
        return [f"{where or 'the team'} has no `provider`"]
    if not isinstance(component.get("config"), Mapping):
        return [f"{provider} has no `config`"]
    try:
        schema = _schema(provider)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        return [f"{provider} cannot be used: {error}"]
    found: list[str] = []
    if not where:
        if not issubclass(_class(provider), ChatAgent | Team):
            found.append(f"{provider} is neither an agent nor a team")
        found += _violations(provider, ComponentModel, component)  # of inner ones, the outer schema has it
    found += _violations(provider, schema, completed(component)["config"])
    for name, value in cast("Mapping[str, Any]", component["config"]).items():
        for part in cast("list[object]", value) if isinstance(value, list) else [value]:
            if _is_component(part):
                found.extend(problems(part, f"{where}.{name}" if where else name))
    return found


def _violations(provider: str, schema: type[BaseModel], value: object) -> list[str]:
    """What a schema says of a value. Fields that it does not have are refused; AutoGen leaves them aside in silence."""
    try:
        schema.model_validate(value, extra=None if schema.model_config.get("extra") == "allow" else "forbid")
    except ValidationError as error:
        return [
            f"{provider}: {_explain(item, schema)}" for item in error.errors(include_input=False, include_url=False)
        ]
    return []


def _explain(item: ErrorDetails, schema: type[BaseModel]) -> str:
    field = ".".join(str(part) for part in item["loc"])
    if item["type"] != "extra_forbidden":
        return f"{field}: {item['msg']}"
    near = difflib.get_close_matches(field, schema.model_fields, 1)
    return f"{field}: there is no such field" + (f"; did you mean `{near[0]}`?" if near else "")


def _is_component(value: object) -> bool:
    return isinstance(value, Mapping) and "provider" in value and "config" in value


def _class(provider: str) -> type[Any]:
    path = WELL_KNOWN_PROVIDERS.get(provider, provider)
    module, _, name = path.rpartition(".")
    if not module:
        raise ValueError("a provider is written package.module.Class")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, type) or not is_component_class(found):
        raise TypeError("it is not an AutoGen component class")
    return cast("type[Any]", found)


def _schema(provider: str) -> type[BaseModel]:
    return cast("type[BaseModel]", _class(provider).component_config_schema)


def _complete(component: dict[str, Any]) -> None:
    config = component.get("config")
    if not isinstance(config, dict):
        return
    values = cast("dict[str, Any]", config)
    for value in list(values.values()):
        for part in cast("list[object]", value) if isinstance(value, list) else [value]:
            if _is_component(part):
                _complete(cast("dict[str, Any]", part))
    try:
        cls = _class(str(component.get("provider")))
        fields = cast("type[BaseModel]", cls.component_config_schema).model_fields
    except (ImportError, AttributeError, TypeError, ValueError):
        return  # loading it will say why
    defaults = inspect.signature(cls.__init__).parameters
    for name, field in fields.items():
        if not field.is_required() or values.get(name) is not None:
            continue
        if name == "model_client":
            values[name] = {"provider": DefaultModelClient.component_provider_override, "config": {}}
        elif name in defaults and isinstance(defaults[name].default, str | int | float | bool):
            values[name] = defaults[name].default
        elif type(None) in get_args(field.annotation):
            values[name] = None  # AutoGen's own dumps leave such fields out
        elif field.annotation is bool and name in defaults and defaults[name].default is None:
            values[name] = False  # `None` there means "decide later", and later it is False without an output type
