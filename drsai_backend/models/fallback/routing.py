"""Routing finds the profile that a request is for, and those of a list that can answer it."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from autogen_core import Image
from autogen_core.models import LLMMessage, ModelInfo, UserMessage

from drsai_backend.models.profiles.schema import Price, Route

_SCRIPTS: Final = {
    "CJK": "zh",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "CYRILLIC": "ru",
    "ARABIC": "ar",
    "GREEK": "el",
    "HEBREW": "he",
    "DEVANAGARI": "hi",
    "THAI": "th",
    "LATIN": "latin",
}
_LOOKED_AT: Final = 2000
"""Letters of a message by which its language is told."""


def has_images(messages: Sequence[LLMMessage]) -> bool:
    """Whether a request has images."""
    contents = (each.content for each in messages if isinstance(each, UserMessage))
    return any(isinstance(part, Image) for content in contents if not isinstance(content, str) for part in content)


def language_of(messages: Sequence[LLMMessage]) -> str | None:
    """The language, by its script, of the newest message of a user; None: it has no letters. Text with any kana counts
    as Japanese."""
    newest = next((each for each in reversed(messages) if isinstance(each, UserMessage)), None)
    if newest is None:
        return None
    content = newest.content
    text = content if isinstance(content, str) else " ".join(part for part in content if isinstance(part, str))
    counts: dict[str, int] = {}
    for letter in text[:_LOOKED_AT]:
        if letter.isalpha():
            language = _SCRIPTS.get(unicodedata.name(letter, "").partition(" ")[0])
            if language is not None:
                counts[language] = counts.get(language, 0) + 1
    if not counts:
        return None
    if "ja" in counts and counts.get("zh", 0) + counts["ja"] >= counts.get("latin", 0):
        return "ja"
    return max(counts, key=lambda each: counts[each])


def route_of(
    routes: Sequence[Route],
    messages: Sequence[LLMMessage],
    options: Mapping[str, object],
    tokens: Callable[[], int],
    price: Price | None,
) -> str | None:
    """The profile that the first fitting rule names; None: no rule fits. `tokens` counts those of the request."""
    return next((rule.use for rule in routes if _fits(rule, messages, options, tokens, price)), None)


def _fits(
    rule: Route,
    messages: Sequence[LLMMessage],
    options: Mapping[str, object],
    tokens: Callable[[], int],
    price: Price | None,
) -> bool:
    if rule.images is not None and rule.images != has_images(messages):
        return False
    if rule.tools is not None and rule.tools != bool(options.get("tools")):
        return False
    if rule.language is not None and rule.language != language_of(messages):
        return False
    if rule.tokens_over is not None and tokens() <= rule.tokens_over:
        return False
    return rule.cost_over is None or (price is not None and tokens() * price.prompt / 1e6 > rule.cost_over)


def form_asked(options: Mapping[str, object]) -> str | None:
    """The form of the answer that a request asks for by `response_format`: `json_object` or `json_schema`; None: none,
    or text."""
    args = cast("Mapping[str, object]", options.get("extra_create_args") or {})
    given = args.get("response_format")
    kind = cast("Mapping[str, object]", given).get("type") if isinstance(given, Mapping) else None
    return kind if isinstance(kind, str) and kind != "text" else None


def lacks(info: ModelInfo, messages: Sequence[LLMMessage], options: Mapping[str, object]) -> bool:
    """Whether a request asks for something that a model cannot do, besides a `response_format`: that is sent to models
    of which AutoGen knows nothing, too, as vLLM's."""
    if options.get("tools") and not info["function_calling"]:
        return True
    output = options.get("json_output")
    if isinstance(output, type) and not info.get("structured_output", False):
        return True
    if output is True and not info["json_output"]:
        return True
    return not info["vision"] and has_images(messages)
