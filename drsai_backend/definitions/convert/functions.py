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
from drsai_backend.json_types import JsonObject, as_object
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
_OWN_STORE: Final = {"stores": "the files have a store of their own"}
_OF_FILES: Final = {"chunk_size": _CUT, "chunk_overlap": _CUT}
"""Of knowledge, what has no place beside files, and without them."""
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
    """Say how documents are looked through: files, or without them a store, which `index_path` names."""
    place: JsonObject = dict(_said(draft, given))
    theirs = {ours: name for name, ours in _KNOWLEDGE.items()} | {"stores": "index_path"}
    try:
        knowledge = Knowledge.model_validate(place)
    except ValidationError as error:
        wrong = next(explain(error))
        field = str(wrong.path[0]) if wrong.path else "chunk_overlap"
        path: FieldPath = wrong.path if field == "files" else ("rag_cfg", theirs.get(field, field))
        raise DefinitionError([draft.problem(wrong.text, path)]) from None
    if not (knowledge.files or knowledge.stores):
        if place:
            draft.homeless(given.rag_cfg, ("rag_cfg",), "name documents in `files`, or a store in `index_path`")
        return
    draft.agent["knowledge"] = {"min_score": _THRESHOLD, **place}
    draft.origins |= {("knowledge",): ("rag_cfg",), ("knowledge", "files"): ("files",)}
    if knowledge.files:
        draft.note("paths begin where the file of the definition is", ("files",))
    else:
        text = f"is the store {knowledge.stores[0]!r}: `drsai knowledge add` puts files into it"
        draft.note(text, ("rag_cfg", "index_path"))
    hints = {
        **(_OWN_STORE if knowledge.files else _OF_FILES),
        "embeddings": "stores are embedded by the server's model",
    }
    for field in [each for each in hints if each in place]:
        del draft.agent["knowledge"][field]
        draft.homeless(as_object(given.rag_cfg)[theirs[field]], ("rag_cfg", theirs[field]), hints[field])


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


FORMAT = Format(
    "function-list",
    "llm with generate_cfg, function_list, system_message, files, rag_cfg",
    ("llm", "function_list", "rag_cfg", "system_message"),
    _convert,
)
