"""The page of all routes is made of the OpenAPI document: `routes()`."""

from __future__ import annotations

from typing import Any

from drsai_backend import DrSai

HEAD = """# Routes

Made of the OpenAPI document, which a server has at `/openapi.json` and shows at `/docs`. What the routes have in
common, and what stands behind them, is in [HTTP interface](http.md).
"""


def routes() -> str:
    """Return the whole page.

    Raises:
        ValueError: a route says nothing of itself.
    """
    document = DrSai(database_url="sqlite://").app().openapi()
    chapters: dict[str, list[str]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f"{method.upper()} {path}"
            chapters.setdefault(operation["tags"][0], []).append(_route(name, operation))
    parts = [HEAD, *(part for tag, entries in chapters.items() for part in (f"## {tag.capitalize()}", *entries))]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _route(name: str, operation: dict[str, Any]) -> str:
    if not operation.get("description"):
        raise ValueError(f"{name} says nothing of itself")
    parameters = [_parameter(name, each) for each in operation.get("parameters", ())]
    table = ["| parameter | in | what |", "| --- | --- | --- |", *parameters] if parameters else []
    body = operation.get("requestBody", {}).get("content", {}).values()
    schemas = [each["schema"]["$ref"].rpartition("/")[2] for each in body if "$ref" in each.get("schema", {})]
    lines = [f"Body: {', '.join(f'`{each}`' for each in schemas)}."] if schemas else []
    lines.append("Answers: " + ", ".join(sorted(operation["responses"])) + ".")
    return "\n\n".join(filter(None, [f"### `{name}`", operation["description"], "\n".join(table), " ".join(lines)]))


def _parameter(name: str, parameter: dict[str, Any]) -> str:
    what = parameter.get("description") or parameter["schema"].get("description", "")
    return f"| `{parameter['name']}` | {parameter['in']} | {' '.join(what.split()).replace('|', chr(92) + '|')} |"
