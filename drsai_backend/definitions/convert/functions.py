"""Function lists are the format `function-list`: llm with generate_cfg, function_list, system_message, files and
rag_cfg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, cast

from pydantic import Field, ValidationError

from drsai_backend.definitions.convert.base import Draft, Format, Theirs
from drsai_backend.definitions.convert.models import (
    finish_profile,
    name_key,
    name_model,
    name_provider,
    put_parameters,
)
from drsai_backend.definitions.convert.tools import add_tool, named_tool, tool_options
from drsai_backend.definitions.schema import Knowledge, ModelChoice
from drsai_backend.definitions.source import DefinitionError, FieldPath
from drsai_backend.errors import ConfigurationError
from drsai_backend.explain import explain
from drsai_backend.json_types import JsonObject
from drsai_backend.models.profiles.schema import ENDPOINTS
from drsai_backend.tools.mcp.servers import read_server

_OURS: Final = {
    name: f"model.{name}"
    for name in ModelChoice.model_fields
    if name not in ("profile", "messages", "cache_seed", "parallel_tool_calls")
} | {"parallel_function_calls": "model.parallel_tool_calls", "max_completion_tokens": "model.max_tokens"}
_THRESHOLD: Final = 0.7
"""The least cosine, where they say nothing."""
_FOLDER: Final = re.compile(r"[\\/]")
_CUT: Final = "how files are cut is said where they are put into the store"
_OF_STORES: Final[dict[str, tuple[FieldPath, str]]] = {
    "files": (("files",), "`drsai knowledge add` puts files into a store"),
    "chunk_size": (("rag_cfg", "chunk_size"), _CUT),
    "chunk_overlap": (("rag_cfg", "chunk_overlap"), _CUT),
    "embeddings": (("rag_cfg", "embedding_model"), "stores are embedded by the server's model"),
}
"""Of knowledge, what is said of its stores: where, and what to do about it."""
_NO_STORE: Final = (
    "belongs to `knowledge`, and is left out: put the files into a store (`drsai knowledge add`), and name that in "
    "`knowledge.stores`"
)
_RETRIEVAL: Final = {
    "hybrid": "hybrid",
    "vector": "vector",
    "semantic": "vector",
    "keyword": "keyword",
    "bm25": "keyword",
}
_KNOWLEDGE: Final = {
    "chunk_size": "chunk_size",
    "chunk_overlap": "chunk_overlap",
    "top_k": "top_k",
    "score_threshold": "min_score",
    "embedding_model": "embeddings",
}


class Llm(Theirs):
    model: str = Field(min_length=1)
    model_type: str | None = None
    model_server: str | None = None
    api_key: str | int | None = None
    generate_cfg: JsonObject = Field(default_factory=dict)
    use_raw_api: bool | None = None
    cache_dir: str | None = None


class FunctionListAgent(Theirs):
    llm: Llm | None = None
    function_list: list[str | JsonObject] | None = None
    system_message: str | None = None
    name: str | None = None
    description: str | None = None
    files: list[str] | None = None
    rag_cfg: JsonObject | None = None
    extra_generate_cfg: JsonObject | None = None


def _convert(draft: Draft) -> None:
    given = draft.read(FunctionListAgent)
    if given.name:
        draft.call(given.name, given.description, ("name",))
    elif given.description:
        draft.put("description", given.description, ("description",))
    if given.system_message:
        draft.put("prompt", draft.prompt(given.system_message, ("system_message",)), ("system_message",))
    if given.llm is not None:
        _model(draft, given.llm)
    if given.llm is not None:
        _parameters(draft, given.llm.generate_cfg, ("llm", "generate_cfg"))
    _parameters(draft, given.extra_generate_cfg or {}, ("extra_generate_cfg",))
    if given.llm is not None:
        finish_profile(draft)
    for index, entry in enumerate(given.function_list or ()):
        _tool(draft, entry, ("function_list", index))
    _knowledge(draft, given)
    draft.rest(given)


def _model(draft: Draft, llm: Llm) -> None:
    where: FieldPath = ("llm",)
    name_model(draft, llm.model, (*where, "model"))
    server = llm.model_server
    if llm.model_type:
        name_provider(draft, llm.model_type, (*where, "model_type"))
    elif server and "://" not in server:
        name_provider(draft, server, (*where, "model_server"))
    if server and "://" in server:
        if draft.secrets.hidden(server) != server or not server.startswith(("http://", "https://")):
            draft.homeless(server, (*where, "model_server"), "the endpoint of a profile is a URL without secrets")
        elif server.rstrip("/") != ENDPOINTS.get(draft.profile.get("provider", "openai")):
            draft.profile["endpoint"] = server.rstrip("/")
    elif server and llm.model_type:
        draft.homeless(server, (*where, "model_server"), "the endpoint of a profile is a URL")
    if llm.api_key is not None:
        name_key(draft, llm.api_key, (*where, "api_key"))
    if llm.use_raw_api is not None:
        hint = "functions are always called by the endpoint's own interface; strategy `react` calls them as text"
        draft.homeless(llm.use_raw_api, (*where, "use_raw_api"), hint)
    if llm.cache_dir is not None:
        hint = "answers are kept in the database where the profile says `cache: {ttl: SECONDS}`"
        draft.homeless(llm.cache_dir, (*where, "cache_dir"), hint)
    draft.rest(llm, where)


def _parameters(draft: Draft, given: JsonObject, origin: FieldPath) -> None:
    left = dict(given)
    if (tokens := left.pop("max_input_tokens", None)) is not None:
        draft.put("context", {"kind": "token_buffered", "max_tokens": tokens}, (*origin, "max_input_tokens"))
        draft.origins["context", "max_tokens"] = (*origin, "max_input_tokens")
    if (retries := left.pop("max_retries", None)) is not None:
        if type(retries) is not int or not 0 <= retries <= 10:
            message = "must be a whole number from 0 to 10"
            raise DefinitionError([draft.problem(message, (*origin, "max_retries"))])
        draft.profile["retries"] = retries
    if (choice := left.pop("function_choice", None)) is not None:
        draft.put("tool_choice", choice, (*origin, "function_choice"))
    if (inside := left.pop("thought_in_content", None)) is not None:
        hint = "thoughts are shown as `reasoning_content`, and never in the content"
        draft.homeless(inside, (*origin, "thought_in_content"), hint)
    if (form := left.pop("fncall_prompt_type", None)) is not None:
        hint = "functions are called by the endpoint's own interface; strategy `react` calls them as text"
        draft.homeless(form, (*origin, "fncall_prompt_type"), hint)
    put_parameters(draft, left, _OURS, origin)


def _tool(draft: Draft, entry: str | JsonObject, origin: FieldPath) -> None:
    if isinstance(entry, str):
        if not entry:
            raise DefinitionError([draft.problem("must not be empty", origin)])
        add_tool(draft, named_tool(draft, entry, origin), {}, origin, origin, fixed=False)
        return
    if isinstance(servers := entry.get("mcpServers"), dict):
        for server, fields in cast("JsonObject", servers).items():
            _server(draft, server, fields, (*origin, "mcpServers", server))
        tool_options(draft, {key: value for key, value in entry.items() if key != "mcpServers"}, origin)
        return
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        known = "is required" if name is None else "must be a text"
        raise DefinitionError([draft.problem(known, (*origin, "name"))])
    where, options = (*origin, "name"), {key: value for key, value in entry.items() if key != "name"}
    add_tool(draft, named_tool(draft, name, where), options, where, origin, fixed=False)


def _server(draft: Draft, name: str, fields: object, origin: FieldPath) -> None:
    """The tools of an MCP server, one of the operator's here. One that cannot be used is named and left out."""
    try:
        read_server(name, cast("JsonObject", fields) if isinstance(fields, dict) else {})
    except ConfigurationError as error:
        draft.homeless(cast("object", fields), origin, f"it is left out, as it cannot be used: {error.message}")
        return
    draft.add_tool({"mcp": draft.text(name, origin)}, origin)
    draft.note(f"servers are the operator's: {name!r} belongs into the file of DRSAI_MCP_SERVERS", origin)


def _knowledge(draft: Draft, given: FunctionListAgent) -> None:
    """Return how documents are looked through. `index_path` names a store of them; without one it is to be made."""
    place: JsonObject = dict(_said(draft, given))
    if not place:
        return
    try:
        Knowledge.model_validate(place)
    except ValidationError as error:
        theirs = {ours: name for name, ours in _KNOWLEDGE.items()}
        wrong = next(explain(error))
        field = str(wrong.path[0]) if wrong.path else "chunk_overlap"
        path: FieldPath = ("files",) if field == "files" else ("rag_cfg", theirs.get(field, field))
        raise DefinitionError([draft.problem(wrong.text, path)]) from None
    if "stores" in place:
        _of_store(draft, place)
        return
    draft.later["knowledge"] = place
    for name in ("files", "rag_cfg"):
        if getattr(given, name):
            draft.note(_NO_STORE, (name,))


def _said(draft: Draft, given: FunctionListAgent) -> Iterator[tuple[str, object]]:
    """Yield what is said of knowledge, by our names."""
    if given.files:
        yield "files", draft.plain(given.files, ("files",))
    for name, value in (given.rag_cfg or {}).items():
        where: FieldPath = ("rag_cfg", name)
        if name == "retrieval_type" and isinstance(value, str) and value in _RETRIEVAL:
            yield "retrieval", _RETRIEVAL[value]
        elif name == "index_path" and isinstance(value, str) and (store := _FOLDER.split(value.rstrip("/\\"))[-1]):
            yield "stores", [draft.plain(store, where)]
        elif name in _KNOWLEDGE:
            yield _KNOWLEDGE[name], draft.plain(value, where)
        else:
            draft.homeless(value, where)


def _of_store(draft: Draft, place: JsonObject) -> None:
    """The agent's knowledge; what is said of the store itself has its place where that is made."""
    of_store = {name: place.pop(name) for name in _OF_STORES if name in place}
    draft.put("knowledge", {"min_score": _THRESHOLD, **place}, ("rag_cfg",))
    draft.note(
        f"is the store {place['stores'][0]!r}: `drsai knowledge add` puts files into it", ("rag_cfg", "index_path")
    )
    for field, value in of_store.items():
        where, hint = _OF_STORES[field]
        draft.homeless(value, where, hint)


FORMAT = Format(
    "function-list",
    "llm with generate_cfg, function_list, system_message, files, rag_cfg",
    ("llm", "function_list", "rag_cfg", "system_message"),
    _convert,
)
