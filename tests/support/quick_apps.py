"""Applications in a quarter of the time.

FastAPI looks at every function of a route, and makes a validator of each of its parameters, whenever an application is
made: 40 ms in each of a thousand tests. The functions are other ones each time, but of the same source: what FastAPI
finds out about them is kept here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from fastapi import routing
from fastapi.dependencies import utils

_signature = utils.get_typed_signature
_return = utils.get_typed_return_annotation
_analyze = utils.analyze_param
_signatures: dict[Any, inspect.Signature] = {}
_returns: dict[Any, tuple[Any, ...]] = {}
_analyzed: dict[Any, tuple[Any, ...]] = {}


def _source(call: Callable[..., Any]) -> tuple[Any, ...]:
    """The same for functions of one source that say the same."""
    said = (call.__defaults__ or (), (call.__kwdefaults__ or {}).values(), call.__annotations__.values())
    return call.__module__, call.__code__, *(tuple(map(id, values)) for values in said)


def _kept_signature(call: Callable[..., Any]) -> inspect.Signature:
    if not inspect.isfunction(call):
        return _signature(call)
    key = _source(call)
    if key not in _signatures:
        _signatures[key] = _signature(call)  # It holds what is said, whose ids stay theirs so.
    return _signatures[key]


def _kept_return(call: Callable[..., Any]) -> Any:
    if not inspect.isfunction(call):
        return _return(call)
    key = _source(call)
    if key not in _returns:
        _returns[key] = _return(call), call.__defaults__, call.__kwdefaults__, call.__annotations__  # Held, as above.
    return _returns[key][0]


def _kept_analysis(*, param_name: str, annotation: Any, value: Any, **path: Any) -> Any:
    """`path`: what of the route's path the parameter may be: `path_param_names`, in older releases `is_path_param`."""
    in_path = path.get("is_path_param", param_name in path.get("path_param_names", ()))
    key = (param_name, id(annotation), id(value), in_path)
    if key not in _analyzed:
        found = _analyze(param_name=param_name, annotation=annotation, value=value, **path)
        _analyzed[key] = (found, annotation, value)  # Held: their ids stay theirs.
    return _analyzed[key][0]


def install() -> None:
    """From now on. Nothing that an application does is different."""
    utils.get_typed_signature = _kept_signature
    routing.get_typed_return_annotation = _kept_return
    utils.analyze_param = _kept_analysis
