"""Which messages an endpoint takes: most take any, some chat templates (Gemma's, Mistral's behind vLLM) few.

What a model takes is said by the settings, known of its family, or learnt from the endpoint's first refusal.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeAlias

from autogen_core.models import ChatCompletionClient, ModelFamily
from openai import APIError

log = logging.getLogger("drsai.models")

MessageForm: TypeAlias = Literal["any", "alternating", "no_system"]
"""What an endpoint takes. `any`: whatever AutoGen sends. `alternating`: at most one system message, first, then user
and assistant in turns, the user first and last; no `name`. `no_system`: the same without a system message, whose text
begins the first user message."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What an endpoint asks of messages. `alternate` and `system` as in `MessageForm`; `names`: `name` is taken."""

    alternate: bool = False
    system: bool = True
    names: bool = True

    def __or__(self, other: Rules) -> Rules:
        """Both."""
        return Rules(self.alternate or other.alternate, self.system and other.system, self.names and other.names)


ANY: Final = Rules()
ALTERNATING: Final = Rules(alternate=True, names=False)
NO_SYSTEM: Final = Rules(alternate=True, system=False, names=False)
_FORMS: Final[Mapping[str, Rules]] = {"any": ANY, "alternating": ALTERNATING, "no_system": NO_SYSTEM}

_FAMILIES: Final[tuple[tuple[re.Pattern[str], Rules], ...]] = (
    # Gemma 3 and later know a system prompt: their template puts it into the first user message.
    (re.compile(r"(?<![a-z])gemma-?[3-9](?!b)"), ALTERNATING),
    (re.compile(r"(?<![a-z])(code)?gemma"), NO_SYSTEM),
    (re.compile(r"(?<![a-z])((mis|mix|minis|magis|devs|pix)tral|codestral)"), ALTERNATING),
    (re.compile(r"(?<![a-z])llama-?2(?![\d.])"), ALTERNATING),
)
_MISTRAL: Final = frozenset(
    {
        ModelFamily.MISTRAL,
        ModelFamily.MINISTRAL,
        ModelFamily.PIXTRAL,
        ModelFamily.CODESRAL,
        ModelFamily.OPEN_CODESRAL_MAMBA,
    }
)

_NO_SYSTEM_REFUSAL: Final = re.compile(
    r"system (role|messages?|prompts?|instructions?)\b[^.]{0,40}\b(not|isn't|aren't|un)\W?(support|allow|enabl)"
    r"|not support\W[^.]{0,20}\bsystem\b|developer instruction is not enabled",
    re.IGNORECASE,
)
_ORDER_REFUSAL: Final = re.compile(
    r"\balternat|\binterleav|successive (user|assistant)|consecutive (user|assistant|messages)"
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
_KEPT: Final = 1024

Where: TypeAlias = tuple[str, str]
"""An endpoint's address and a model's name there."""


class MessageRules:
    """What is known of the endpoints of one process.

    Args:
        forms: by model name, which may hold `*`; the first that fits counts, and nothing is learnt against `any`.
    """

    def __init__(self, forms: Mapping[str, MessageForm] | None = None) -> None:
        self._forms: dict[str, MessageForm] = dict(forms or {})
        self._learnt: OrderedDict[Where, Rules] = OrderedDict()

    def of(self, where: Where, family: str = ModelFamily.UNKNOWN, form: MessageForm | None = None) -> Rules:
        """The rules for a model. `form` is its own client's setting, which wins over those by name."""
        form = form or self._form(where[1])
        if form == "any":
            return ANY
        known = _of_family(where[1], family) if form is None else _FORMS[form]
        learnt = self._learnt.get(where)
        return known if learnt is None else known | learnt

    def learn(self, where: Where, used: Rules, error: Exception, form: MessageForm | None = None) -> Rules | None:
        """What a refusal of messages that followed `used` teaches; None: nothing, for it refuses something else."""
        lesson = None if (form or self._form(where[1])) == "any" else _lesson(used, error)
        if lesson is None or lesson == used:
            return None
        if where not in self._learnt:
            if len(self._learnt) >= _KEPT:
                self._learnt.popitem(last=False)
            log.warning("model %s at %s has refused messages as they are: %s", where[1], where[0], _told(lesson))
        self._learnt[where] = lesson | self._learnt.get(where, ANY)
        return lesson

    def _form(self, model: str) -> MessageForm | None:
        return next((form for name, form in self._forms.items() if fnmatchcase(model, name)), None)


def where_of(client: ChatCompletionClient) -> Where:
    """The endpoint and model of a client, as far as it tells."""
    url = getattr(getattr(client, "_client", None), "base_url", None)
    arguments: Any = getattr(client, "_create_args", None)
    model = str(arguments.get("model", "")) if isinstance(arguments, Mapping) else ""  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    return str(url or type(client).__qualname__), model


def _of_family(model: str, family: str) -> Rules:
    name = model.lower()
    for pattern, rules in _FAMILIES:
        if pattern.search(name):
            return rules
    return ALTERNATING if family in _MISTRAL else ANY


def _lesson(used: Rules, error: Exception) -> Rules | None:
    status = getattr(error, "status_code", None)
    # llama.cpp answers 500 where a template refuses; what comes inside of a stream has no status at all.
    if not isinstance(error, APIError) and not (isinstance(status, int) and status >= 400):
        return None
    text = str(error)
    if _NO_SYSTEM_REFUSAL.search(text):
        return used | NO_SYSTEM
    if _ORDER_REFUSAL.search(text):
        # Where turns are refused although they alternate, it is the system message that is one too many.
        return used | (NO_SYSTEM if used.alternate else ALTERNATING)
    if "messages" in text and _NAME_REFUSAL.search(text):
        return used | Rules(names=False)
    return None


def _told(rules: Rules) -> str:
    if not rules.alternate:
        return "they are sent without `name` from now on"
    system = "with one system message" if rules.system else "without a system message"
    return f"they are sent in turns, {system}, from now on"
