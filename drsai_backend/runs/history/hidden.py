"""The hidden words of a conversation are what its clients sent and its digest leaves out. System messages, what chat
windows put around questions and fold away in answers, and calls and results of the clients' tools.

Two conversations of one user may look alike and be two people's. The thread that is meant is one whose hidden words all
stand in the history that came: whoever sends them knows them. A word is kept as its kind and a hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, TypeAlias

from drsai_backend.database.runs.history import containing
from drsai_backend.database.runs.paths import Line
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.history.digest import History, flat, flat_dump, left_out, plain
from drsai_backend.runs.messages import FOUND
from drsai_backend.runs.requests import InputMessage
from drsai_backend.runs.transcript import said_to
from drsai_backend.teams.client_tools.definitions import THE_USER_ADDS
from drsai_backend.teams.imported import imported_calls, imported_results, imported_role
from drsai_backend.teams.messages import aside_of, is_received

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

Words: TypeAlias = frozenset[bytes]
NONE: Final[Words] = frozenset()
_SIZE: Final = 12
_PROMPT: Final = b"s"
_MARKS: Final = ('"system"', '"drsai.imported"', FOUND, '"UserInputReceivedEvent"')
"""One of them is in each stored message that may hold hidden words."""


def told_before(history: History) -> Words:
    """The hidden words that a thread has which was told all of a history up to its last answer, but for those that not
    every client sends again: what tools have returned, and what is folded away in answers."""
    length = 0 if history.last is None else history.last.length
    prompts = [*_prompts(history.messages[index].text for index in history.systems)]
    questions = (flat(history.messages[index].content) for index in history.found if index < length)
    return Words([*prompts[-1:], *(word for text in questions for word in _question(text))])


def stand_in(history: History, words: Words) -> bool:
    """Whether all these hidden words stand in a history."""
    missing, kinds = words, {word[:1] for word in words}
    if _PROMPT in kinds:
        missing = missing.difference(_prompts(history.messages[index].text for index in history.systems))
    if kinds - {_PROMPT}:
        missing = missing.difference(_in_turns(history.messages))
    return not missing


def hidden_in(messages: Sequence[InputMessage]) -> Words:
    """The hidden words of messages, as a thread that takes them will have them."""
    if all(each.role == "user" and isinstance(each.content, str) for each in messages):
        return Words(word for each in messages if FOUND in each.content for word in _question(str(each.content)))
    prompts = [*_prompts(each.text for each in messages if each.role == "system")]
    return Words([*prompts[-1:], *_in_turns(messages)])


def read_hidden(session: Session, line: Line) -> Words:
    """The hidden words of a stored path."""
    return Words(word for config in containing(session, line, _MARKS) for word in _stored(config))


def _stored(config: JsonObject) -> Iterator[bytes]:
    role = imported_role(config)
    if is_received(config):
        yield from _question(said_to(config))
        given: JsonObject = config.get("arguments") or {}
        if config.get("decision") == "results":
            yield from _results(given.get("results", ()))
        elif config.get("decision") == "edit":
            yield _word(b"e", json.dumps(given))
    elif role == "system" or (role is None and config.get("source") == "system"):
        yield from _prompts([flat_dump(config)])
    elif role in ("calls", "tool"):
        yield from _results(imported_results(config).values())
        yield from _calls(imported_calls(config))
        yield from _folded(flat_dump(config))
    elif role == "assistant":
        yield from _folded(flat_dump(config))
    elif config.get("source") == "user" and aside_of(config) is None:
        yield from _question(flat_dump(config))


def _in_turns(messages: Sequence[InputMessage]) -> Iterator[bytes]:
    for message in messages:
        if message.role == "user":
            yield from _question(flat(message.content))
        elif message.role == "assistant":
            yield from _folded(flat(message.content))
            yield from _calls((call.name, call.arguments) for call in message.calls)
        elif message.role == "tool":
            yield from _results([message.text])


def _prompts(texts: Iterable[str]) -> Iterator[bytes]:
    """A word for each beginning of the system's messages: a thread may have been told of as many."""
    together = blake2b(digest_size=_SIZE)
    for text in texts:
        if text.strip():
            together.update(plain(text))
            yield _PROMPT + together.digest()


def _question(text: str) -> Iterator[bytes]:
    if text.startswith(FOUND):
        yield _word(b"u", text)


def _folded(text: str) -> Iterator[bytes]:
    return (_word(b"a", part) for part in left_out(text))


def _calls(calls: Iterable[tuple[str, str]]) -> Iterator[bytes]:
    return (_word(b"c", f"{name}\0{arguments}") for name, arguments in calls)


def _results(texts: Iterable[object]) -> Iterator[bytes]:
    return (_word(b"t", str(text).partition(THE_USER_ADDS)[0]) for text in texts)


def _word(kind: bytes, text: str) -> bytes:
    return kind + blake2b(plain(text), digest_size=_SIZE).digest()
