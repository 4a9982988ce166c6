"""A suspension asks a person: an agent's question ends the process's part of a run, and the answer comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Literal, cast

from drsai_backend.access.principal import Principal
from drsai_backend.errors import InvalidRequest
from drsai_backend.json_types import DEEPEST, MOST_ZEROS, JsonObject, is_deep, zeros_of

# How long a question asked in a thread may take to come out of the agent by itself.
_PATIENCE = 0.2

AskType = Literal["text_input", "approval", "tool_results"]
AskKind = Literal["agent", "handoff", "approval", "tool_retry", "client_tool"]


@dataclass(slots=True, eq=False)
class Branch:
    """A part of a turn that runs beside others: one of several speakers, or a tool call, which `call` names. `question`
    ends it alone. `is_over`: the result of the call is recorded; it is made for the states of its agents."""

    parent: Branch | None
    task: asyncio.Task[None] | None = None
    question: InputRequired | None = None
    call: str = ""
    is_over: bool = False

    def ended(self, _: asyncio.Task[None]) -> None:
        """Let go of its task, whose context has this branch: a cycle."""
        self.task = None

    def within(self, other: Branch) -> bool:
        """Whether this is `other` or a part of it."""
        branch: Branch | None = self
        while branch is not None and branch is not other:
            branch = branch.parent
        return branch is not None


current_branch: ContextVar[Branch | None] = ContextVar("current_branch", default=None)
"""The innermost branch that the running code belongs to; None: nothing runs beside it."""


class CallOver(Exception):
    """An agent that is a tool, or one of a team that is one, is about to do what it did not do before the end of its
    call came: its endpoint failed then, or its time was over. The result is recorded, so nobody is told of this."""


def check_over() -> None:
    """Raise CallOver where the running code, which does something new, is part of a call whose result is recorded."""
    branch = current_branch.get()
    while branch is not None and not branch.is_over:
        branch = branch.parent
    if branch is not None:
        raise CallOver("the call came to its end here, before the turn was repeated")


@dataclass(eq=False, repr=False)
class InputRequired(BaseException):
    """An agent needs a person's answer and there is none yet.

    A `BaseException`, so that it passes AutoGen's `except Exception` on its way out of the agent. What runs beside the
    agent comes to its end, the turn runtime ends the stream, the last turn boundary stands, and the turn is repeated
    once the answer is there. The attributes are what `Thread.input_request` tells of a question; `key` names it, or
    `place` says where in the turn it was asked. A `deadline` that is a length of time begins when the question is
    stored. `tool_calls` are those that the client is to make, `content` what was said along with them, and `thought`
    what was thought.
    """

    source: str
    prompt: str
    _: KW_ONLY
    key: str | None = None
    place: str | None = None
    type: AskType = "text_input"
    kind: AskKind = "agent"
    choices: Sequence[str] | None = None
    deadline: datetime | timedelta | None = None
    tool: JsonObject | None = None
    by: str | None = None
    not_by: str | None = None
    tool_calls: Sequence[JsonObject] | None = None
    content: str | None = None
    thought: str | None = None
    caught: bool = field(default=False, init=False)
    """It has come out of the agent by itself."""

    def __post_init__(self) -> None:
        super().__init__(f"{self.source} asks: {self.prompt}")


class RunPaused(InputRequired):
    """What a run may spend is used up: it is paused where it stands, as it would be by a question, and the turn is
    repeated once it is resumed. `code` says what is used up, and `prompt` tells it."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self.code = code


class StopRequested(BaseException):
    """A person wants the run to stop: it ends as STOPPED, with this text as its reason."""


Listener = Callable[[BaseException, Branch | None], None]


@dataclass(slots=True)
class InputBroker:
    """The answers a person has given for the turn in flight, in the order in which they were asked for.

    A turn may ask more than once (a nested team, several tools); after each answer it is repeated from its boundary and
    is given the earlier answers again. An answer is a dict of `source`, `content` and, where the question had one, its
    `key` or its `place`; a decision has `decision`, `reason` and `arguments` too (see `parse_decision`); what a
    client's tools have returned is in `results`: `key` of the call, `called` (the tool's name for the model), `content`
    and `is_error`; beside it, `told` has what clients were told of thoughts and texts with the calls. `asker` is who
    asked the team.
    """

    answers: list[JsonObject] = field(default_factory=list)
    asker: Principal | None = None
    _used: set[int] = field(default_factory=set)
    _asked: Counter[str] = field(default_factory=Counter[str])
    _listener: Listener | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def ask(  # noqa: PLR0913 - the form of a question, as agents ask it
        self,
        source: str,
        prompt: str,
        *,
        key: str | None = None,
        path: str | None = None,
        choices: Sequence[str] | None = None,
        deadline: datetime | timedelta | None = None,
        by: str | None = None,
        not_by: str | None = None,
    ) -> str:
        """The answer to `source`'s question. Raises InputRequired when the person has not answered it yet.

        Args:
            key: names the question, the same when the turn is repeated.
            path: of the agent that asks. Without a key, its questions are told apart by their order in the tool call
                that they are asked in, or outside of all; and those of no path by the source and their order.
        """
        place = None if path is None else self._place(path)
        answer = self.find(key) if key is not None else self._find(place) or self._next(source)
        if answer is None:
            raise self.report(  # It has no name here, as its traceback keeps this frame.
                InputRequired(
                    source, prompt, key=key, place=place, choices=choices, deadline=deadline, by=by, not_by=not_by
                )
            )
        return str(answer["content"])

    def find(self, key: str) -> JsonObject | None:
        """The answer to the question of that key, or None."""
        return next((answer for answer in self.answers if answer.get("key") == key), None)

    @property
    def results(self) -> list[JsonObject]:
        """What the client's tools have returned in the turn in flight."""
        return [result for answer in self.answers for result in answer.get("results", ())]

    def _place(self, path: str) -> str:
        """Return where in the turn an agent asks now. A call whose result is recorded is not made again, and asks
        nothing then; so its questions do not count with those of others."""
        branch = current_branch.get()
        while branch is not None and not branch.call:
            branch = branch.parent
        place = path if branch is None else f"{branch.call}>{path}"
        self._asked[place] += 1
        return f"{place}@{self._asked[place]}"

    def _find(self, place: str | None) -> JsonObject | None:
        return next((answer for answer in self.answers if place and answer.get("place") == place), None)

    def _next(self, source: str) -> JsonObject | None:
        """The next answer to a question without a name and a place, as releases before have stored them."""
        for position, answer in enumerate(self.answers):
            named = answer.get("key") is not None or answer.get("place") is not None
            if answer["source"] == source and not named and position not in self._used:
                self._used.add(position)
                return answer
        return None

    def report(self, question: InputRequired) -> InputRequired:
        """Have the branch that asks end, also where `question`, once raised, would be caught on its way. Any thread.
        Raises CallOver where the result of the call that asks is recorded."""
        check_over()
        loop, listener = self._loop, self._listener
        branch = current_branch.get()
        if branch is not None and branch.question is None:
            branch.question = question
        if listener is None or loop is None:
            return question
        if branch is None and not runs_here(loop):
            # Which branch a foreign thread works for is not known: it gets the time to find its way out.
            def later() -> None:
                loop.call_later(_PATIENCE, lambda: question.caught or listener(question, None))

            with contextlib.suppress(RuntimeError):  # the loop is closed: a thread that outlived its run
                loop.call_soon_threadsafe(later)
        else:
            # Not now: on its straight way out of the agent the exception gets there by itself.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(listener, question, branch)
        return question

    def end(self, stop: StopRequested) -> StopRequested:
        """Have the whole run end. Returns `stop`, which is to be raised."""
        if self._listener is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._listener, stop, None)
        return stop

    def on_question(self, listener: Listener) -> None:
        """Have `listener` called in this event loop, soon after a question that has no answer yet."""
        self._listener = listener
        self._loop = asyncio.get_running_loop()

    def turn_done(self) -> bool:
        """The turn is stored: its answers are used up. True when there were any."""
        had = bool(self.answers)
        self.give(())
        return had

    def give(self, answers: Iterable[JsonObject]) -> None:
        self.answers = list(answers)
        self._used = set()
        self._asked.clear()


def runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the calling code runs in that event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


# --- answers in plain words -----------------------------------------------------------------------------------------

_WORDS = {
    "approve": "approve, approved, yes, y, ok, okay, allow, go ahead, 是, 好, 可以, 批准, 同意",
    "deny": "deny, denied, no, n, reject, refuse, 否, 不, 不行, 拒绝, 不同意",
    "edit": "edit, change, 修改, 编辑",
    "run": "run, run again, retry, again, 重试, 再次运行, 运行",
    "result": "result, 结果",
    "stop": "stop, abort, 停止, 终止",
}
_STOPS = ".!\u3002\uff01"  # the full-width ones too
_COLONS = ":,-\uff1a\uff0c\u2013\u2014"
_FORMS = {
    "approve": "'approve'",
    "deny": "'deny: <reason>'",
    "edit": "'edit {<arguments as JSON>}'",
    "run": "'run'",
    "result": "'result: <text>'",
    "stop": "'stop'",
}


def parse_decision(text: str, input_request: Mapping[str, object]) -> JsonObject:
    """Return what a plain answer to `input_request` (or a question's attributes under its names) says.

    Returns:
        `content` (the text; of a question with choices, the choice as it was offered), and for an approval `decision`
        (one of the request's choices), `reason` (of `deny`) and `arguments` (of `edit`), None where there is none.

    Raises:
        InvalidRequest: the text is none of what may be answered; it says what may. `param` is "messages".
    """
    choices = cast("Sequence[str] | None", input_request.get("choices"))
    said = text.strip()
    if input_request.get("type") != "approval":
        chosen = text if not choices else next((c for c in choices if c.strip().casefold() == said.casefold()), None)
        if chosen is None:
            raise InvalidRequest(f"answer with one of: {', '.join(map(repr, choices or ()))}", param="messages")
        return {"content": chosen}
    choices = choices or ("approve", "deny", "edit")
    for choice in choices:
        rest = _rest(said, _WORDS.get(choice, choice).split(", "), bare=choice not in ("edit", "result"))
        if rest is None or (rest and choice not in ("edit", "result", "deny")):
            continue
        return {
            "decision": choice,
            "reason": (rest or None) if choice == "deny" else None,
            "arguments": _arguments(rest) if choice == "edit" else None,
            "content": rest if choice == "result" else text,
        }
    forms = ", ".join(_FORMS.get(choice, repr(choice)) for choice in choices)
    raise InvalidRequest(f"the run waits for a decision; answer with one of: {forms}", param="messages")


def is_decision(text: str, input_request: Mapping[str, object]) -> bool:
    """Whether a plain text can be nothing but an answer to `input_request`: a decision, or one of its choices."""
    with contextlib.suppress(InvalidRequest):
        wants_one = input_request.get("type") == "approval" or input_request.get("choices")
        return bool(wants_one and parse_decision(text, input_request))
    return False


def _rest(said: str, words: Sequence[str], *, bare: bool) -> str | None:
    """Return what follows one of `words` at the start of `said`; None when it starts with none. `bare`: the word may
    also stand alone, with a full stop."""
    folded = said.casefold()
    for word in sorted(words, key=len, reverse=True):
        if not folded.startswith(word):
            continue
        rest = said[len(word) :].strip()
        if not rest.strip(_STOPS):
            return "" if bare else None
        if rest[0] in _COLONS:
            return rest[1:].strip()
        if rest[0] == "{":
            return rest
    return None


def _arguments(text: str) -> JsonObject:
    deep = InvalidRequest(f"edited arguments are nested deeper than {DEEPEST} levels", param="messages")
    try:
        arguments: object = json.loads(text)
    except ValueError:
        arguments = None
    except RecursionError:
        raise deep from None
    if is_deep(arguments):
        raise deep
    if not isinstance(arguments, dict) or zeros_of(text.encode(errors="replace")) > MOST_ZEROS:
        raise InvalidRequest('edited arguments must be a JSON object: edit {"name": value}', param="messages")
    return cast("JsonObject", arguments)
