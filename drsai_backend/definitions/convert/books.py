"""Books are the format `action-books`: basic_settings, action_books and tools that are HTTP endpoints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from pydantic import Field

from drsai_backend.definitions.check import suggestion
from drsai_backend.definitions.convert.base import Draft, Format, Theirs
from drsai_backend.definitions.source import DefinitionError, FieldPath
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.builtin import NAMES
from drsai_backend.tools.http.placeholders import CONTEXT

_BY_SYSTEM: Final = "todo_autofill_by_system"
"""What stands for a value that the system knows by the name of the field."""
_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")


class BasicSettings(Theirs):
    name: str = Field(min_length=1)
    description: str = ""
    background: str = ""
    language: str = ""
    tone: str = ""
    chatbot_id: str | None = None


class ActionBook(Theirs):
    condition: str = Field(min_length=1)
    action: str = Field(min_length=1)
    tools: list[str] = Field(default_factory=list)


class Endpoint(Theirs):
    url: str
    method: str = "GET"
    headers: dict[str, str] = Field(default_factory=dict)
    body: object = None
    query_params: JsonObject = Field(default_factory=dict)
    timeout: float | None = None


class Tool(Theirs):
    name: str
    description: str
    parameters: JsonObject = Field(default_factory=dict)
    endpoint: Endpoint


class Books(Theirs):
    basic_settings: BasicSettings
    action_books: list[ActionBook] = Field(default_factory=list)
    tools: list[Tool] = Field(default_factory=list)


def _convert(draft: Draft) -> None:
    books = draft.read(Books)
    settings = books.basic_settings
    place: FieldPath = ("basic_settings",)
    draft.call(settings.name, " ".join((settings.description or "").split()), (*place, "name"))
    _check_names(draft, books)
    draft.put("prompt", draft.prompt(_prompt(books), place), place)
    used = {tool.name for tool in books.tools}
    for index, tool in enumerate(books.tools):
        _tool(draft, tool, ("tools", index), settings.chatbot_id)
    for number, book in enumerate(books.action_books):
        for index, name in enumerate(book.tools):
            if name not in used:
                draft.add_tool(name, ("action_books", number, "tools", index))
        draft.rest(book, ("action_books", number))
    if settings.chatbot_id is not None:
        hint = "it is written where tools send it as `chatbotId`"
        draft.homeless(settings.chatbot_id, (*place, "chatbot_id"), hint)
    draft.rest(settings, place)
    draft.rest(books)


def _check_names(draft: Draft, books: Books) -> None:
    problems = [
        draft.problem(f"the tool {tool.name!r} is there twice", ("tools", index, "name"))
        for index, tool in enumerate(books.tools)
        if tool.name in [each.name for each in books.tools[:index]]
    ]
    known = [*(tool.name for tool in books.tools), *NAMES]
    problems += [
        draft.problem(f"there is no tool {name!r}{suggestion(name, known)}", ("action_books", number, "tools", index))
        for number, book in enumerate(books.action_books)
        for index, name in enumerate(book.tools)
        if name not in known
    ]
    if problems:
        raise DefinitionError(problems)


def _prompt(books: Books) -> str:
    """The settings and the rules as a system message."""
    settings = books.basic_settings
    parts = [f"You are {settings.name}." + (f" {settings.description.strip()}" if settings.description else "")]
    if settings.background:
        parts.append(f"Background:\n{settings.background.strip()}")
    manner = [f"Answer in {settings.language}."] if settings.language else []
    manner += [f"Tone: {settings.tone}."] if settings.tone else []
    if manner:
        parts.append(" ".join(manner))
    if books.action_books:
        rules = [
            f"{number}. When: {book.condition.strip()}\n   Do: {book.action.strip()}"
            + (f"\n   Use: {', '.join(book.tools)}" if book.tools else "")
            for number, book in enumerate(books.action_books, 1)
        ]
        parts.append("Follow these rules:\n" + "\n".join(rules))
    return "\n\n".join(parts)


def _tool(draft: Draft, tool: Tool, origin: FieldPath, chatbot: str | None) -> None:
    where: FieldPath = (*origin, "endpoint")
    listed: object = tool.parameters.get("properties")
    writer = _Templates(
        draft, set(cast("Mapping[str, object]", listed)) if isinstance(listed, Mapping) else set(), chatbot
    )
    given = tool.endpoint
    endpoint: JsonObject = {"method": given.method.upper(), "url": writer.value(given.url, (*where, "url"), "url")}
    for ours, theirs, value in (
        ("headers", "headers", given.headers),
        ("query", "query_params", given.query_params),
        ("body", "body", given.body),
    ):
        if value not in (None, {}):
            endpoint[ours] = writer.value(value, (*where, theirs), "")
    if given.timeout is not None:
        endpoint["timeout"] = given.timeout
    config: JsonObject = {
        "name": draft.text(tool.name, (*origin, "name")),
        "description": draft.text(tool.description, (*origin, "description")),
        "endpoint": endpoint,
    }
    if tool.parameters:
        config["parameters"] = draft.plain(tool.parameters, (*origin, "parameters"))
    draft.add_tool({"http": config}, origin)
    at: FieldPath = ("tools", len(draft.agent["tools"]) - 1, "http")
    draft.origins[at] = origin
    draft.origins[*at, "endpoint", "query"] = (*where, "query_params")
    draft.rest(tool, origin)
    draft.rest(given, where)


class _Templates:
    """Writes what an endpoint is sent: placeholders stay, other braces are doubled, secrets are named."""

    def __init__(self, draft: Draft, parameters: set[str], chatbot: str | None) -> None:
        self._draft = draft
        self._names = parameters | CONTEXT.keys()
        self._chatbot = chatbot

    def value(self, value: object, path: FieldPath, key: str) -> object:
        if isinstance(value, Mapping):
            named = cast("Mapping[str, object]", value)
            return {
                self._draft.secrets.hidden(name): self.value(each, (*path, name), name) for name, each in named.items()
            }
        if isinstance(value, list):
            return [self.value(each, (*path, index), key) for index, each in enumerate(cast("list[object]", value))]
        if not isinstance(value, str):
            name = self._draft.secrets.at(path)
            return value if name is None else f"{{secret:{name}}}"
        return self._by_system(path, key) if value == _BY_SYSTEM else self._text(value, path)

    def _by_system(self, path: FieldPath, key: str) -> str:
        if key in CONTEXT:
            return f"{{{key}}}"
        if key == "chatbotId" and self._chatbot is not None:
            return self._text(self._chatbot, path)
        known = ", ".join(CONTEXT)
        self._draft.note(f"the system does not know {key!r}, so this text is sent as it is; it knows {known}", path)
        return _BY_SYSTEM

    def _text(self, text: str, path: FieldPath) -> str:
        written = ""
        for secret, piece in self._draft.secrets.parts(text, path):
            if secret:
                written += f"{{secret:{piece}}}"
                continue
            end = 0
            for found in _PLACEHOLDER.finditer(piece):
                written += _doubled(piece[end : found.start()]) + self._placeholder(found[0], found[1], path)
                end = found.end()
            written += _doubled(piece[end:])
        # A dollar would begin a variable of the file.
        return written.replace("$", "$$") if re.search(r"\$[${]", written) else written

    def _placeholder(self, written: str, name: str, path: FieldPath) -> str:
        if name in self._names:
            return written
        if name == "chatbotId" and self._chatbot is not None:
            return _doubled(self._draft.secrets.hidden(self._chatbot))
        near = suggestion(name, self._names)
        raise DefinitionError([self._draft.problem(f"{written} is no parameter and no variable{near}", path)])


def _doubled(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


FORMAT = Format(
    "action-books",
    "basic_settings, action_books, tools with HTTP endpoints",
    ("basic_settings", "action_books"),
    _convert,
)
