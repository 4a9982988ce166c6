"""Operations of an OpenAPI document become HTTP tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, cast

from drsai_backend.errors import ConfigurationError
from drsai_backend.json_types import JsonObject
from drsai_backend.net.transport import Resolve
from drsai_backend.tools.http.config import HttpToolConfig
from drsai_backend.tools.http.tool import HttpTool
from drsai_backend.tools.schema import simplified

_METHODS: Final = ("get", "put", "post", "delete", "patch", "head")
_MAX_DEPTH: Final = 32
_OF_OPENAPI: Final = ("nullable", "example", "xml", "externalDocs")
"""Keywords of OpenAPI's schemas that JSON Schema does not have."""
_NO_PARAMETERS: Final = ("accept", "content-type", "authorization")
"""Headers that the document says elsewhere: as parameters, OpenAPI wants them ignored."""


def openapi_tools(
    document: Mapping[str, object],
    operations: Sequence[str],
    secrets: Mapping[str, str] | None = None,
    *,
    server: str | None = None,
    allowed_addresses: tuple[str, ...] = (),
    resolve: Resolve | None = None,
) -> list[HttpTool]:
    """Tools of some operations of a document (OpenAPI 3.0 or 3.1).

    Args:
        document: as parsed. Only references inside it are followed; nothing is fetched.
        operations: which ones: `operationId`s, or `GET /path`.
        secrets: credentials by the names of the document's security schemes (`apiKey`, `http` bearer and basic, whose
            value is the whole of what follows the word). Only these are ever sent: the document names whom to send
            them to, and is not the operator's.
        server: the URL to call; default: the document's first.
        allowed_addresses, resolve: as of `HttpTool`.

    Raises:
        ConfigurationError: there is no such operation, or it cannot be called: the text says why.
    """
    found = {name: each for each in _operations(document) for name in each.names}
    tools: list[HttpTool] = []
    for wanted in operations:
        if wanted not in found:
            known = ", ".join(sorted(each.names[0] for each in _operations(document))[:20])
            raise ConfigurationError(
                f"the document has no operation {wanted!r}; there are: {known}", param="operations"
            )
        config = found[wanted].config(server)
        try:
            checked = HttpToolConfig.model_validate(config)
        except ValueError as error:
            raise ConfigurationError(
                f"the operation {wanted!r} cannot be a tool: {error}", param="operations"
            ) from None
        tools.append(HttpTool(checked, secrets or {}, allowed_addresses=allowed_addresses, resolve=resolve))
    return tools


def _operations(document: Mapping[str, object]) -> Iterator[_Operation]:
    paths = cast("Mapping[str, object]", document.get("paths") or {})
    for path, item in paths.items():
        resolved = cast("JsonObject", _resolve(document, item))
        for method in _METHODS:
            if isinstance(resolved.get(method), dict):
                yield _Operation(document, path, method, resolved[method], resolved)


class _Operation:
    """One operation of a document."""

    def __init__(
        self, document: Mapping[str, object], path: str, method: str, operation: JsonObject, item: JsonObject
    ) -> None:
        self._document = document
        self._path = path
        self._method = method.upper()
        self._operation = operation
        self._item = item
        self._defs: JsonObject = {}
        self._defs_of: dict[str, str] = {}
        by_path = f"{self._method} {path}"
        given = operation.get("operationId")
        self.names = [given, by_path] if isinstance(given, str) else [by_path]

    def config(self, server: str | None) -> JsonObject:
        """The config of an HTTP tool."""
        properties: JsonObject = {}
        required: list[str] = []
        endpoint: JsonObject = {"method": self._method, "url": self._url(server), "headers": {}, "query": {}}
        for parameter in self._parameters():
            name, place = str(parameter["name"]), parameter.get("in")
            if place == "header" and name.lower() in _NO_PARAMETERS:
                continue
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name) or name in properties:
                raise ConfigurationError(f"{self.names[0]}: the parameter {name!r} cannot be an argument")
            if place in ("header", "query"):
                endpoint["headers" if place == "header" else "query"][name] = f"{{{name}}}"
            elif place != "path":
                raise ConfigurationError(
                    f"{self.names[0]}: the parameter {name!r} is in {place!r}, which is not supported"
                )
            schema = self._schema(parameter.get("schema") or {"type": "string"})
            about = parameter.get("description")
            properties[name] = {**schema, "description": about} if about else schema
            if parameter.get("required") or place == "path":
                required.append(name)
        self._add_body(endpoint, properties, required)
        self._add_security(endpoint)
        name = re.sub(r"[^A-Za-z0-9_-]+", "_", self.names[0]).strip("_")[:64]
        told = [self._operation.get("summary"), self._operation.get("description")]
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        if self._defs:
            parameters["$defs"] = self._defs
        return {
            "name": name,
            "description": "\n\n".join(str(each) for each in told if each)[:4000] or name,
            "parameters": parameters,
            "endpoint": endpoint,
        }

    def _url(self, server: str | None) -> str:
        servers: list[JsonObject] = []
        for each in (self._document, self._item, self._operation):  # The nearest counts.
            servers = cast("list[JsonObject]", each.get("servers") or servers)
        if server is None and not servers:
            raise ConfigurationError("the document names no server: give `server`", param="server")
        base = server or self._of_variables(servers[0])
        if "{secret:" in base + self._path:
            raise ConfigurationError(f"{self.names[0]}: its URL names a credential, which a document must not")
        return base.rstrip("/") + self._path

    @staticmethod
    def _of_variables(server: JsonObject) -> str:
        url = str(server.get("url", ""))
        variables: dict[str, JsonObject] = server.get("variables") or {}
        for name, variable in variables.items():
            url = url.replace(f"{{{name}}}", str(variable.get("default", "")))
        return url

    def _parameters(self) -> Iterator[JsonObject]:
        given: list[object] = self._operation.get("parameters") or []
        own = [self._resolved(each) for each in given]
        places = {(each.get("name"), each.get("in")) for each in own}
        yield from (
            each
            for each in map(self._resolved, self._item.get("parameters") or [])
            if (each.get("name"), each.get("in")) not in places  # The operation's own go before the path's.
        )
        yield from own

    def _add_body(self, endpoint: JsonObject, properties: JsonObject, required: list[str]) -> None:
        body = self._resolved(self._operation.get("requestBody") or {})
        content = cast("JsonObject", body.get("content") or {})
        if not content:
            return
        if "application/json" not in content:
            raise ConfigurationError(f"{self.names[0]}: its body is {next(iter(content))}; only JSON is supported")
        schema = self._schema(content["application/json"].get("schema") or {})
        fields = cast("JsonObject", schema.get("properties") or {})
        plain = all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name) for name in fields)
        if fields and plain and not fields.keys() & properties.keys():
            properties |= fields
            required += list(schema.get("required") or []) if body.get("required", False) else []
            endpoint["body"] = {name: f"{{{name}}}" for name in fields}
            return
        if "body" in properties:
            raise ConfigurationError(f"{self.names[0]}: a parameter is called `body`, as its body would be")
        properties["body"] = schema
        required += ["body"] if body.get("required") else []
        endpoint["body"] = "{body}"

    def _add_security(self, endpoint: JsonObject) -> None:
        wanted: list[JsonObject] = self._operation.get("security", self._document.get("security")) or []
        if not wanted or {} in wanted:
            return
        components = cast("JsonObject", self._document.get("components") or {})
        schemes = cast("JsonObject", components.get("securitySchemes") or {})
        for name in wanted[0]:
            scheme = self._resolved(schemes.get(name) or {})
            kind, place = scheme.get("type"), scheme.get("in")
            if kind == "apiKey" and place in ("header", "query"):
                endpoint["headers" if place == "header" else "query"][str(scheme["name"])] = f"{{secret:{name}}}"
            elif kind == "http" and str(scheme.get("scheme")).lower() in ("bearer", "basic"):
                word = str(scheme["scheme"]).capitalize()
                endpoint["headers"]["Authorization"] = f"{word} {{secret:{name}}}"
            elif kind in ("oauth2", "openIdConnect"):
                endpoint["headers"]["Authorization"] = f"Bearer {{secret:{name}}}"
            else:
                raise ConfigurationError(f"{self.names[0]}: its security scheme {name!r} is not supported")

    def _resolved(self, value: object) -> JsonObject:
        return cast("JsonObject", _resolve(self._document, value))

    def _def_of(self, reference: str) -> str:
        """The name in `$defs` of what a reference names: its last part, and a number where another one has that."""
        if reference not in self._defs_of:
            last = name = reference.rpartition("/")[2].replace("~1", "_").replace("~0", "_")
            number = 1
            while name in self._defs_of.values():
                number += 1
                name = f"{last}_{number}"
            self._defs_of[reference] = name
        return self._defs_of[reference]

    def _schema(self, schema: object) -> JsonObject:
        """A schema with all it refers to."""
        used: JsonObject = {}

        def walk(node: object) -> object:
            if isinstance(node, list):
                return [walk(item) for item in cast("list[object]", node)]
            if not isinstance(node, dict):
                return node
            given = cast("JsonObject", node)
            reference = given.get("$ref")
            if isinstance(reference, str):
                name = self._def_of(reference)
                if name not in used:
                    used[name] = {}
                    used[name] = walk(_resolve(self._document, {"$ref": reference}))
                return {"$ref": f"#/$defs/{name}"}
            kept = {key: _walked(walk, key, value) for key, value in given.items() if key not in _OF_OPENAPI}
            if given.get("nullable") is True and isinstance(kept.get("type"), str):  # of OpenAPI 3.0
                kept["type"] = [kept["type"], "null"]
            for bound, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
                if isinstance(exclusive := kept.get(bound), bool):  # of OpenAPI 3.0
                    del kept[bound]
                    if exclusive and limit in kept:
                        kept[bound] = kept.pop(limit)
            return kept

        walked = cast("JsonObject", walk(_resolve(self._document, schema)))
        found = simplified({**walked, "$defs": used} if used else walked)
        self._defs |= found.pop("$defs", {})
        return found


def _walked(walk: Callable[[object], object], key: str, value: object) -> object:
    """Return what is below a keyword. Of `properties` the keys are names, and values of an `enum` are no schemas."""
    if key in ("properties", "patternProperties") and isinstance(value, Mapping):
        return {name: walk(each) for name, each in cast("JsonObject", value).items()}
    return value if key in ("enum", "const", "default", "examples", "required") else walk(value)


def _resolve(document: Mapping[str, object], value: object) -> object:
    """Return what a reference names. Raises ConfigurationError: it leads out of the document, to nothing, or in a
    circle."""
    for _ in range(_MAX_DEPTH):
        reference = cast("JsonObject", value).get("$ref") if isinstance(value, dict) else None
        if not isinstance(reference, str):
            return cast("object", value)
        if not reference.startswith("#/"):
            raise ConfigurationError(f"the reference {reference!r} leads out of the document; nothing is fetched")
        value = document
        for part in reference[2:].split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(value, Mapping) or key not in value:
                raise ConfigurationError(f"the reference {reference!r} leads to nothing")
            value = cast("JsonObject", value)[key]
    raise ConfigurationError("references of the document lead in a circle")
