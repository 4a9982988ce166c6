"""Message rules say which messages an endpoint takes, and make messages fit it.

Most endpoints take any, some chat templates (Gemma's, Mistral's behind vLLM) few. What a model takes is said by the
settings, known of its family, or learnt from the endpoint's first refusal.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, TypeVar, cast

from autogen_core import Image
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelFamily,
    SystemMessage,
    UserMessage,
)
from openai import APIError

from drsai_backend.access.switchboard import Switchboard
from drsai_backend.json_types import JsonObject
from drsai_backend.models.endpoints.bounded import DEFAULT, AnswerBounds

T = TypeVar("T")
log = logging.getLogger("drsai.models")

MessageForm: TypeAlias = Literal["any", "alternating", "no_system", "reasoning"]
"""What an endpoint takes. `any`: whatever AutoGen sends. `alternating`: at most one system message, first, then user
and assistant in turns, the user first and last; no `name`. `no_system`: the same without a system message, whose text
begins the first user message. `reasoning`: what the model has thought beside its calls comes back with them, as
`reasoning_content`; no other endpoint gets it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an endpoint asks of messages. `alternate`, `system` and `reasoning` as in `MessageForm`; `names`: `name` is
    taken; `undeclared`: so are calls of tools in a request without tools."""

    alternate: bool = False
    system: bool = True
    names: bool = True
    undeclared: bool = True
    reasoning: bool = False

    def __or__(self, other: Rules) -> Rules:
        """Both."""
        return Rules(
            self.alternate or other.alternate,
            self.system and other.system,
            self.names and other.names,
            self.undeclared and other.undeclared,
            self.reasoning or other.reasoning,
        )


ANY: Final = Rules()
ALTERNATING: Final = Rules(alternate=True, names=False)
NO_SYSTEM: Final = Rules(alternate=True, system=False, names=False)
_FORMS: Final[Mapping[str, Rules]] = {
    "any": ANY,
    "alternating": ALTERNATING,
    "no_system": NO_SYSTEM,
    "reasoning": Rules(reasoning=True),
}

_FAMILIES: Final[tuple[tuple[re.Pattern[str], Rules], ...]] = (
    # Gemma 3 and later know a system prompt: their template puts it into the first user message.
    (re.compile(r"(?<![a-z])gemma-?[3-9](?!b)"), ALTERNATING),
    (re.compile(r"(?<![a-z])(code)?gemma"), NO_SYSTEM),
    (re.compile(r"(?<![a-z])((mis|mix|minis|magis|devs|pix)tral|codestral)"), ALTERNATING),
    (re.compile(r"(?<![a-z])llama-?2(?![\d.])"), ALTERNATING),
)
_NO_SYSTEM_REFUSAL: Final = re.compile(
    r"system (role|messages?|prompts?|instructions?)\b[^.]{0,40}\b(not|isn't|aren't|un)\W?(support|allow|enabl)"
    r"|not support\W[^.]{0,20}\bsystem\b|developer instruction is not enabled",
    re.IGNORECASE,
)
_ORDER_REFUSAL: Final = re.compile(
    r"\balternat\w*|\binterleav\w*|successive (user|assistant)|consecutive (user|assistant|messages)"
    r"|unexpected role\b|expected last role|last message[^.]{0,40}must be[^.]{0,20}user"
    r"|(one|single|multiple) system (message|prompt)"
    r"|system (message|prompt|role)s?\b[^.]{0,40}\b(first|beginning|start)",
    re.IGNORECASE,
)
_NAME_REFUSAL: Final = re.compile(
    r"\bname\b[^}]{0,80}(extra|forbidden|not permitted|not allowed|unsupported|not supported|unknown|unrecogni)"
    r"|(extra|forbidden|unsupported|unexpected|unknown|unrecogni)[^}]{0,80}\bname\b",
    re.IGNORECASE,
)
_TOOLS_REFUSAL: Final = re.compile(
    r"(must|need to) (define|declare|provide)\b[^.]{0,20}\btools|expects? the .?tools|toolConfig field must be defined",
    re.IGNORECASE,
)
# DeepSeek's and Moonshot's models that think between their calls.
_REASONING_REFUSAL: Final = re.compile(
    r"(missing|must|requires?|expects?)\b[^.]{0,80}\breasoning_content"
    r"|\breasoning_content\b[^.]{0,80}(missing|must|required|passed back)",
    re.IGNORECASE,
)
_REFUSALS: Final = (_NO_SYSTEM_REFUSAL, _ORDER_REFUSAL, _NAME_REFUSAL, _TOOLS_REFUSAL, _REASONING_REFUSAL)
_NO_LETTERS: Final = re.compile(r"\\+(u[0-9a-f]{4}|.)|[^A-Za-z\\]+", re.DOTALL)
"""What is not the same in a text and where it is quoted."""
_KEPT: Final = 1024
CONTINUE: Final = "Continue."
"""What the user says where a strict endpoint wants to hear it and nobody has spoken."""

Where: TypeAlias = tuple[str, str]
"""An endpoint's address and a model's name there."""


class MessageRules:
    """What is known of the endpoints of one process.

    Args:
        forms: by model name, which may hold `*`; the first that fits counts, and nothing is learnt against `any`.
        bounds: what their answers may have; readable as `bounds`.
        switches: which models and tools are switched off; readable as `switches`.
    """

    def __init__(
        self,
        forms: Mapping[str, MessageForm] | None = None,
        bounds: AnswerBounds = DEFAULT,
        switches: Switchboard | None = None,
    ) -> None:
        self.bounds = bounds
        self.switches = switches or Switchboard()
        self._forms: dict[str, MessageForm] = dict(forms or {})
        self._learnt: OrderedDict[Where, Rules] = OrderedDict()
        self.no_stop: set[object] = set()
        """Models that have refused stop sequences which the request had not asked for."""

    def of(self, where: Where, family: str = ModelFamily.UNKNOWN, form: MessageForm | None = None) -> Rules:
        """The rules for a model. `form` is its own client's setting, which wins over those by name."""
        form = form or form_of(self._forms, where[1])
        if form == "any":
            return ANY
        known = _of_family(where[1], family) if form is None else _FORMS[form]
        learnt = self._learnt.get(where)
        return known if learnt is None else known | learnt

    def lesson(self, where: Where, used: Rules, error: Exception, form: MessageForm | None = None) -> Rules | None:
        """Return what a refusal of messages that followed `used` teaches; None: nothing, for it refuses something
        else."""
        lesson = None if (form or form_of(self._forms, where[1])) == "any" else _lesson(used, error)
        return None if lesson == used else lesson

    def learn(self, where: Where, lesson: Rules) -> None:
        """Go by a lesson from now on, as its endpoint has taken messages that followed it."""
        if where not in self._learnt:
            if len(self._learnt) >= _KEPT:
                self._learnt.popitem(last=False)
            system = "with one system message" if lesson.system else "without a system message"
            told = "without calls of tools that are not there any more"
            if lesson.alternate or not lesson.names:
                told = f"in turns, {system}," if lesson.alternate else "without `name`"
            if lesson.reasoning:
                told = "with what the model has thought beside its calls"
            text = "model %s at %s has refused messages as they are: they are sent %s from now on"
            log.warning(text, where[1], where[0], told)
        self._learnt[where] = lesson | self._learnt.get(where, ANY)


def quotes(error: Exception, messages: Sequence[LLMMessage]) -> bool:
    """Whether a refusal says in words of the messages what would be a lesson: they may be anybody's, and not be meant
    by the endpoint."""
    said = _NO_LETTERS.sub("", str(messages))
    found = (match.group() for pattern in _REFUSALS for match in pattern.finditer(str(error)))
    return any(_NO_LETTERS.sub("", each) in said for each in found)


def form_of(forms: Mapping[str, T], model: str) -> T | None:
    """Return the form of the first name that fits a model, which may hold `*`; None: none fits."""
    return next((form for name, form in forms.items() if fnmatchcase(model, name)), None)


def where_of(client: ChatCompletionClient) -> Where:
    """The endpoint and model of a client, as far as it tells."""
    url = getattr(getattr(client, "_client", None), "base_url", None)
    arguments: object = getattr(client, "_create_args", None)
    model = str(cast(JsonObject, arguments).get("model", "")) if isinstance(arguments, Mapping) else ""
    return str(url or type(client).__qualname__), model


def _of_family(model: str, family: str) -> Rules:
    named = next((rules for pattern, rules in _FAMILIES if pattern.search(model.lower())), ANY)
    return ALTERNATING if named is ANY and ModelFamily.is_mistral(family) else named


def _lesson(used: Rules, error: Exception) -> Rules | None:
    status = getattr(error, "status_code", None)
    # llama.cpp answers 500 where a template refuses; what comes inside of a stream has no status at all.
    if not isinstance(error, APIError) and not (isinstance(status, int) and status >= 400):
        return None
    text = str(error)
    if _TOOLS_REFUSAL.search(text):
        return used | Rules(undeclared=False)
    if _REASONING_REFUSAL.search(text):
        return used | Rules(reasoning=True)
    if _NO_SYSTEM_REFUSAL.search(text):
        return used | NO_SYSTEM
    if _ORDER_REFUSAL.search(text):
        # Where turns are refused although they alternate, it is the system message that is one too many.
        return used | (NO_SYSTEM if used.alternate else ALTERNATING)
    if "messages" in text and _NAME_REFUSAL.search(text):
        return used | Rules(names=False)
    return None


def with_prompt(messages: Sequence[LLMMessage], prompt: str) -> list[LLMMessage]:
    """`messages` with one more system message after those that they begin with."""
    own = next((index for index, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
    return [*messages[:own], SystemMessage(content=prompt), *messages[own:]]


def question_at(messages: Sequence[LLMMessage]) -> int | None:
    """Return where the user has asked last; else where the agent was told something last. None: nothing was said."""
    told = [place for place, each in enumerate(messages) if isinstance(each, UserMessage)]
    asked = (place for place in reversed(told) if getattr(messages[place], "source", "") == "user")
    return next(asked, told[-1] if told else None)


def before_question(messages: Sequence[LLMMessage], text: str) -> list[LLMMessage]:
    """`messages` with a text before the question, which is no more than the user's word: what it quotes may come from
    anybody."""
    place = question_at(messages)
    if place is None:
        return [*messages]
    source = str(getattr(messages[place], "source", "user"))
    return [*messages[:place], UserMessage(content=text, source=source), *messages[place:]]


def without_calls(messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """The messages with calls of tools, and their results, told in words: for a request that has no tools."""
    told: list[LLMMessage] = []
    for each in messages:
        if isinstance(each, AssistantMessage) and not isinstance(each.content, str):
            calls = [f"[called {call.name}({call.arguments})]" for call in each.content]
            told.append(AssistantMessage(content="\n".join([each.thought or "", *calls]).strip(), source=each.source))
        elif isinstance(each, FunctionExecutionResultMessage):
            said = "\n\n".join(f"[{result.name} returned]\n{result.content}" for result in each.content)
            told.append(UserMessage(content=said, source="user"))
        else:
            told.append(each)
    return told


def conform(messages: Sequence[LLMMessage], rules: Rules, *, prefixed: bool = False) -> Sequence[LLMMessage]:
    """The messages as an endpoint with these rules takes them; the same object where it takes any.

    For one that wants turns: system messages are joined, messages of one role in a row are one, empty ones are left
    out. Calls of tools stay with their results. Where several people and agents speak as users and `name` is not taken,
    each but "user" is named in the text, as AutoGen does it (`prefixed`: the client does that by itself).
    """
    several = len({each.source for each in messages if isinstance(each, UserMessage)}) > 1
    if not rules.alternate:
        if rules.names or prefixed or not several:
            return messages
        return [_named(each) if isinstance(each, UserMessage) else each for each in messages]
    prompts = [each.content for each in messages if isinstance(each, SystemMessage) and each.content.strip()]
    said = [each for each in messages if not isinstance(each, SystemMessage) and not _is_empty(each)]
    prompt = "\n\n".join(prompts)
    if not said:
        return [UserMessage(content=prompt, source="user")] if prompt else messages
    turns = _turns(said, several, prefixed)
    if not isinstance(turns[0], UserMessage):
        turns.insert(0, UserMessage(content=CONTINUE, source="user"))
    if isinstance(turns[-1], AssistantMessage):
        turns.append(UserMessage(content=CONTINUE, source="user"))
    if not prompt:
        return turns
    if rules.system:
        return [SystemMessage(content=prompt), *turns]
    first = turns[0]
    assert isinstance(first, UserMessage)
    return [UserMessage(content=_joined([prompt, *_parts(first.content)]), source=first.source), *turns[1:]]


def _turns(said: Sequence[LLMMessage], several: bool, prefixed: bool) -> list[LLMMessage]:
    turns: list[LLMMessage] = []
    for each in said:
        last = turns[-1] if turns else None
        if isinstance(each, UserMessage):
            named = several and (isinstance(last, UserMessage) or not prefixed)
            parts = _parts(_named(each).content if named else each.content)
            if isinstance(last, FunctionExecutionResultMessage):
                # The agent's answer was the results themselves.
                said_so = "\n".join(result.content for result in last.content)
                turns.append(AssistantMessage(content=said_so or CONTINUE, source="assistant"))
            if isinstance(last, UserMessage):
                turns[-1] = UserMessage(content=_joined([*_parts(last.content), *parts]), source=last.source)
            else:
                turns.append(UserMessage(content=_joined(parts), source=each.source))
        elif (
            isinstance(each, AssistantMessage) and isinstance(last, AssistantMessage) and isinstance(last.content, str)
        ):
            turns[-1] = _both(last.content, last.thought, each)
        elif isinstance(each, FunctionExecutionResultMessage) and isinstance(last, FunctionExecutionResultMessage):
            turns[-1] = FunctionExecutionResultMessage(content=[*last.content, *each.content])
        else:
            turns.append(each)
    return turns


def _both(text: str, thought: str | None, then: AssistantMessage) -> AssistantMessage:
    """Two answers in a row. What is said before a call of tools goes with it, as models themselves do it."""
    if isinstance(then.content, str):
        return AssistantMessage(content=f"{text}\n\n{then.content}", thought=thought, source=then.source)
    before = text if not then.thought else f"{text}\n\n{then.thought}"
    return AssistantMessage(content=then.content, thought=before, source=then.source)


def _is_empty(message: LLMMessage) -> bool:
    return all(isinstance(part, str) and not part.strip() for part in _parts(message.content))


def _parts(content: str | Sequence[T]) -> Sequence[str | T]:
    return [content] if isinstance(content, str) else content


def _named(message: UserMessage) -> UserMessage:
    if message.source == "user":
        return message
    head, content = f"{message.source} said:\n", message.content
    if isinstance(content, str):
        return UserMessage(content=head + content, source=message.source)
    rest = [head + content[0], *content[1:]] if isinstance(content[0], str) else [head, *content]
    return UserMessage(content=rest, source=message.source)


def _joined(parts: Sequence[str | Image]) -> str | list[str | Image]:
    """One text, or, with images, the parts as they are, texts that touch as one."""
    joined: list[str | Image] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] = f"{joined[-1]}\n\n{part}"
        else:
            joined.append(part)
    return joined[0] if len(joined) == 1 and isinstance(joined[0], str) else joined
