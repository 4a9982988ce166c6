"""Digests are made of conversations as their clients see them.

A conversation is what the user said and what was answered, in turns. The digest after an answer chains over the turns
up to it, from a seed of whose conversation it is with which model: H(n) = BLAKE2b-128(H(n-1), user texts, answer).
So 16 bytes name a point of one owner's conversations, and a continued one costs the digest of its last turn.

Clients change texts on the way. White space, reasoning and details that chat windows fold (`<think>…</think>`,
`<details>…</details>`), and the headings of speakers (`**name**` alone on its line) do not count, nor do empty answers,
how texts are spread over consecutive messages of one role, messages of the system and of tools. Of a question that Open
WebUI has put into what its documents and tools found, the question counts: later requests have it alone. Images count
by a hash of their bytes.

All of it takes time that is linear in the texts, however they are spread over messages.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final, NamedTuple, Self, cast

import orjson
from autogen_core import Image

from drsai_backend.database.runs.reads import Seen
from drsai_backend.datamodel.owner import Owner
from drsai_backend.json_types import JsonObject
from drsai_backend.runs.history.digest_cache import HASHED, Found, KeptHistories, Prefix
from drsai_backend.runs.messages import FOUND, asked_in
from drsai_backend.runs.requests import InputMessage, KnownHistory

_SIZE: Final = 16
_ASCII_SPACE: Final = b" \t\n\r\v\f\x1c\x1d\x1e\x1f"
"""What `str.split` takes for white space in ASCII text."""
_FOLDED: Final = re.compile(r"<(/?)(?:think|details)(?![\w-])[^<>]*>", re.IGNORECASE)
_HEADING: Final = re.compile(r"^[ \t]*\*\*[^*\n]+\*\*[ \t]*\r?$", re.MULTILINE)
_HEAVY: Final = 100_000
"""Characters above which what is new of a history is digested beside the event loop."""
_PIECE: Final = 1 << 16
"""Characters that are looked at in one go: no list of all words of a long text is made, and other threads get on."""


def seed_of(owner: Owner, team: str) -> bytes:
    """Return where the digests of an owner's conversations with a team begin."""
    return blake2b(orjson.dumps([owner.tenant, owner.user_id, team]), digest_size=_SIZE).digest()


def plain(text: str) -> bytes:
    """Return what counts of a user's text."""
    if text.isascii():
        return text.encode().translate(None, _ASCII_SPACE)
    pieces = (text[begin : begin + _PIECE] for begin in range(0, len(text), _PIECE))
    return b"".join("".join(piece.split()).encode(errors="surrogatepass") for piece in pieces)


def plain_answer(text: str) -> bytes:
    """Return what counts of an answer, or a part of one that ends with its line."""
    if "</" in text:
        text = _unfolded(text)
    if "**" in text:
        text = _HEADING.sub("", text)
    return plain(text)


def left_out(text: str) -> list[str]:
    """Return what does not count of an answer: what is folded away, and headings."""
    if "</" not in text and "**" not in text:
        return []
    return [*(text[begin:end] for begin, end in _folds(text)), *_HEADING.findall(_unfolded(text))]


def _unfolded(text: str) -> str:
    """The text without what chat windows fold."""
    kept, at = list[str](), 0
    for begin, end in _folds(text):
        kept.append(text[at:begin])
        at = end
    return "".join([*kept, text[at:]])


def _folds(text: str) -> Iterator[tuple[int, int]]:
    """Yield where what chat windows fold begins and ends. In one pass, whatever the text is."""
    depth, opened = 0, 0
    for tag in _FOLDED.finditer(text):
        if not tag[1]:
            opened = opened if depth else tag.start()
            depth += 1
        elif depth:
            depth -= 1
            if not depth:
                yield opened, tag.end()


def flat(content: str | Sequence[str | Image]) -> str:
    """The content of a message as one text, with what stands for its images."""
    if isinstance(content, str):
        return content
    return "".join(part if isinstance(part, str) else picture(part.to_base64()) for part in content)


def flat_dump(config: Mapping[str, object]) -> str:
    """Return what `flat` makes of the message of a dump as it came."""
    content = config.get("content")
    if not isinstance(content, list):
        return str(content or "")
    parts = cast("list[str | JsonObject]", content)
    return "".join(part if isinstance(part, str) else picture(part.get("data", "")) for part in parts)


def picture(base64: str) -> str:
    """Return what stands for an image in a text."""
    return f"\0{blake2b(base64.encode(), digest_size=_SIZE).hexdigest()}"


@dataclass(slots=True)
class Conversation:
    """A conversation as far as it went. `digest` is the point up to which it is digested, `said` and `answered` are the
    turn after that: what counts of the user's texts, and of the answer."""

    digest: bytes
    said: bytearray = field(default_factory=bytearray)
    answered: bytearray = field(default_factory=bytearray)

    @classmethod
    def begin(cls, owner: Owner, team: str) -> Self:
        """The beginning of any conversation of that owner with that team."""
        return cls(seed_of(owner, team))

    @property
    def point(self) -> bytes:
        """The digest after the last answer."""
        if not self.answered:
            return self.digest
        chained = blake2b(self.digest, digest_size=_SIZE)
        for part in (b"%d:" % len(self.said), self.said, self.answered):
            chained.update(part)
        return chained.digest()

    @property
    def point_said(self) -> bytearray:
        """What the user has said since the last answer."""
        return bytearray() if self.answered else self.said

    def copy(self) -> Self:
        """The same, which may be continued on its own."""
        return type(self)(self.digest, self.said[:], self.answered[:])

    def closed(self) -> Self:
        """The same without the texts of the last answer, which is over."""
        return type(self)(self.point, self.point_said[:])

    def user(self, text: str) -> bool:
        """The user has said this. Whether that ends an answer, so that `digest` is the point after it."""
        said = plain(asked_in(text))
        ends = bool(said and self.answered)
        if ends:
            self.digest, self.said, self.answered = self.point, bytearray(), bytearray()
        self.said += said
        return ends

    def answer(self, text: str) -> bool:
        """Take what was answered, or a part of the answer. Returns whether it counts."""
        answered = plain_answer(text)
        self.answered += answered
        return bool(answered)

    def heard(self, messages: Sequence[InputMessage]) -> Self:
        """The conversation with these messages after it."""
        return self.copy().hear(messages)

    def hear(self, messages: Sequence[InputMessage]) -> Self:
        """Take these messages after it. Returns itself."""
        for message in messages:
            if message.role == "user":
                self.user(flat(message.content))
            elif message.role == "assistant":
                self.answer(flat(message.content))
        return self


class HistoryPoint(NamedTuple):
    """A point of a history: `length` messages come before it."""

    length: int
    digest: bytes


class Turn(NamedTuple):
    """A turn that has an answer: the point before it, what counts of its texts, and how many messages there are up to
    its end."""

    before: bytes
    said: bytearray
    answered: bytearray
    end: int

    def is_of(self, said: bytearray) -> bool:
        """Whether the question may be what a client has kept of the one that a thread has as `said`."""
        return bool(self.said) and self.said in said


@dataclass(frozen=True, slots=True)
class History:
    """A history that came with a request. `seed` says whose it is. `last`: the point of its last answer; None: it has
    none. `conversation` is the whole of it. `asked`: the user's messages since, by index, each with how much of
    `conversation.said` is before it. `turns`: its last ones that have an answer, as many as were digested now.
    `systems`: the messages of the system, by index; `found`: those of the user where a chat window has put a question
    into what it found; `has_results`: there are messages of tools."""

    seed: bytes
    messages: Sequence[InputMessage]
    last: HistoryPoint | None
    conversation: Conversation
    asked: Sequence[tuple[int, int]]
    turns: Sequence[Turn]
    systems: Sequence[int]
    found: Sequence[int]
    has_results: bool

    def known(self, new_from: int, seen: Seen | None = None, newest: bytes | None = None) -> KnownHistory:
        """Return what a thread is told of it that knows all before message `new_from`."""
        return KnownHistory(new_from, self.conversation, seen, self.systems, newest)

    @property
    def point(self) -> bytes:
        """Where it ends: the digest after its last answer, or of its beginning."""
        return self.seed if self.last is None else self.last.digest

    @property
    def first_turn(self) -> Turn:
        """The first turn, of a history that has answers."""
        return Histories(1).digest(self.seed, self.messages).turns[0]

    def last_turns(self, count: int) -> Sequence[Turn]:
        """The last turns that have an answer; fewer, if there are not as many."""
        turns = self.turns
        if len(turns) < count:
            turns = Histories(1).digest(self.seed, self.messages).turns
        return turns[-count:]

    def met_in_other_words(self, point: bytes, said: Sequence[bytearray], drop: int) -> int | None:
        """Return how many messages lead to a thread's point, which is the one after a turn of this history but for the
        words of the newest questions: the thread has them as `said`, and what the history has of each is a part of
        that. The last `drop` turns are left aside. None: it is another point.

        Only what was `said` must be known of the thread: the answers, and all that was before, are the same if the
        digest is.
        """
        turns = self.last_turns(len(said) + drop)
        turns = turns[: len(turns) - drop]
        if not said or len(turns) < len(said):
            return None
        if not all(turn.is_of(known) for turn, known in zip(turns, said, strict=True)):
            return None
        digest = turns[0].before
        for turn, known in zip(turns, said, strict=True):
            digest = Conversation(digest, known, turn.answered).point
        return turns[-1].end if digest == point else None

    def first_new(self, said: bytes | bytearray = b"") -> int | None:
        """The index of the first message of the user after the last answer that comes after `said`, which the thread
        knows already; None: they do not begin with that, or end with it."""
        begins_so = self.conversation.point_said.startswith(said)
        return next((index for index, before in self.asked if begins_so and before == len(said)), None)

    def new_to(self, conversation: Conversation) -> int | None:
        """The index of the first message that is new to a thread which has that conversation: it stands where the
        history ends, or where an answer of the history is, and what comes after that is new to it. None: it stands
        elsewhere."""
        if conversation.point == self.conversation.point:
            return self.first_new(conversation.point_said)
        if conversation.point_said:
            return None
        lengths = {each.digest: each.length for each in points(self.seed, self.messages)}
        return lengths.get(conversation.point)


def points(seed: bytes, messages: Sequence[InputMessage]) -> list[HistoryPoint]:
    """The points of a history, one for each answer, oldest first."""
    found: list[HistoryPoint] = []
    conversation, count = Conversation(seed), 0
    for index, message in enumerate(messages):
        if message.role == "user":
            if conversation.user(flat(message.content)):
                found.append(HistoryPoint(count, conversation.digest))
        elif message.role == "assistant" and conversation.answer(flat(message.content)):
            count = index + 1
    if conversation.answered:
        found.append(HistoryPoint(count, conversation.point))
    return found


def began(messages: Sequence[InputMessage]) -> bytearray:
    """Return what counts of what the user has said before the first answer of a history."""
    conversation = Conversation(b"")
    for message in messages:
        if message.role == "user":
            if conversation.answered and plain(flat(message.content)):
                break
            conversation.user(flat(message.content))
        elif message.role == "assistant":
            conversation.answer(flat(message.content))
    return conversation.said


class Histories:
    """Digests histories. What was digested of one before is not digested again: only its last turn is.

    The texts of the newest histories are kept, `most` bytes of them: to compare them takes a fraction of the time that
    it takes to hash texts which just came. Of each of `size` others, 16 bytes and a hash. May be used from several
    threads.
    """

    def __init__(self, size: int = 10_000, most: int = 32_000_000) -> None:
        self._kept = KeptHistories(size, most)

    def forget(self, seeds: Collection[bytes]) -> None:
        """Drop the texts of some owners' conversations."""
        self._kept.forget(seeds)

    async def digested(self, seed: bytes, messages: Sequence[InputMessage]) -> History:
        """Do as `digest`, beside the event loop where that takes long."""
        contents, roles = [each.content for each in messages], [each.role for each in messages]
        # Whether all but the last turn was digested before takes less time than the way to another thread and back.
        found = self._kept.find(seed, roles, contents, by_hash=False)
        new = contents if found is None else contents[found.length :]
        if any(not isinstance(each, str) for each in new):
            return await asyncio.to_thread(self.digest, seed, messages)  # There may be images.
        texts = cast("list[str]", contents)
        if found is not None and not found.length:
            found = self._kept.find(seed, roles, texts) if sum(map(len, texts)) < HASHED else None
        begin = 0 if found is None else found.length
        if sum(map(len, texts[begin:])) < _HEAVY:
            return self._digest(seed, messages, roles, texts, found)
        return await asyncio.to_thread(self._digest, seed, messages, roles, texts, found)

    def digest(self, seed: bytes, messages: Sequence[InputMessage]) -> History:
        """Digest a history of which `seed` says whose it is."""
        contents = [each.content if isinstance(each.content, str) else flat(each.content) for each in messages]
        return self._digest(seed, messages, [each.role for each in messages], contents, None)

    def _digest(
        self,
        seed: bytes,
        messages: Sequence[InputMessage],
        roles: Sequence[str],
        contents: Sequence[str],
        found: Found | None,
    ) -> History:
        found = found or self._kept.find(seed, roles, contents)
        known = (found and found.prefix) or Prefix(0, HistoryPoint(0, seed), [], [], False)
        begin, (end, digest), systems, wrapped, has_results = known
        conversation, systems, wrapped = Conversation(digest), systems[:], wrapped[:]
        prefix: Prefix | None = None
        asked: list[tuple[int, int]] = []
        turns: list[Turn] = []
        for index in range(begin, len(roles)):
            role = roles[index]
            if role == "user":
                asked.append((index, len(conversation.point_said)))
                turn = Turn(conversation.digest, conversation.said, conversation.answered, end)
                if conversation.user(contents[index]):
                    point = HistoryPoint(end, conversation.digest)
                    prefix = Prefix(index, point, systems[:], wrapped[:], has_results)
                    turns.append(turn)
                if contents[index].startswith(FOUND):
                    wrapped.append(index)
            elif role == "assistant":
                if conversation.answer(contents[index]):
                    asked.clear()
                    end = index + 1
            elif role == "system":
                systems.append(index)
            else:
                has_results = True
        if found is not None and prefix is not None:
            # Up to a message of the user: an answer before that may still be continued by the next message.
            self._kept.keep(found, prefix, roles, contents)
        if conversation.answered:
            turns.append(Turn(conversation.digest, conversation.said, conversation.answered, end))
        last = HistoryPoint(end, conversation.point) if end else None
        return History(seed, messages, last, conversation, asked, turns, systems, wrapped, has_results)
