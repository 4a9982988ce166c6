"""Tokens are counted without ever waiting for the network.

AutoGen counts with tiktoken, which downloads its vocabulary on first use, without a time limit and inside the event
loop. Here the vocabulary is loaded by a thread of its own, once per process; until it is there, and for good when it
cannot be had, tokens are estimated. A vocabulary in tiktoken's cache (`TIKTOKEN_CACHE_DIR`) is there at once.

The estimate is utf-8 bytes / 4, at least one per text, plus 3 per message, as OpenAI's own rule of thumb has it. It is
within a quarter of the truth for English prose, and too high for code and for scripts outside ASCII: the safe side.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import compress, repeat
from operator import attrgetter, is_, not_
from typing import Final

import tiktoken
from autogen_core import FunctionCall
from autogen_core.models import AssistantMessage, FunctionExecutionResult, LLMMessage
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.openai import _model_info  # its table of limits is exported nowhere else

from drsai_backend.errors import ConfigurationError
from drsai_backend.estimates import estimate_text

logger = logging.getLogger(__name__)

TOKENS_PER_MESSAGE = 3
TOKENS_PER_IMAGE = 765
"""What OpenAI charges for a picture of 1024 x 1024 in high detail."""
_CONTENT: Final[Callable[[LLMMessage], str | Sequence[object]]] = attrgetter("content")
_THOUGHT: Final[Callable[[AssistantMessage], str | None]] = attrgetter("thought")
FIRST_WAIT_SECONDS = 1.0
"""Longest wait for a vocabulary, once per process and vocabulary. Reading one from the disk takes about 0.3 s."""


def estimate_content(content: str | Sequence[object], thought: str | None = None) -> int:
    """Estimated tokens of a text, or of the parts of a message: texts, images, tool calls and their results."""
    tokens = estimate_text(thought) if thought else 0
    for part in [content] if isinstance(content, str) else content:
        match part:
            case str():
                tokens += estimate_text(part)
            case FunctionCall(name=name, arguments=arguments):
                tokens += estimate_text(name) + estimate_text(arguments)
            case FunctionExecutionResult(content=result):
                tokens += estimate_text(result)
            case _:
                tokens += TOKENS_PER_IMAGE
    return tokens


def estimate_tokens(messages: Sequence[LLMMessage], *, tools: Sequence[Tool | ToolSchema] = ()) -> int:
    """Estimated tokens of a request: every text, tool call and tool schema in it, 765 per image. Texts are looked at in
    C: with a budget, all that a thread holds is, before each model call."""
    contents = [*map(_CONTENT, messages)]
    are_texts = [*map(is_, map(type, contents), repeat(str))]
    answers = compress(messages, map(is_, map(type, messages), repeat(AssistantMessage)))
    texts = [*compress(contents, are_texts), *filter(None, map(_THOUGHT, answers))]
    sizes = map(len, map(str.encode, texts, repeat("utf-8"), repeat("replace")))
    said = sum(map(int.__floordiv__, map(int.__add__, sizes, repeat(3)), repeat(4)))  # each as `estimate_text`
    said += sum(map(estimate_content, compress(contents, map(not_, are_texts))))
    schemas = (json.dumps(tool.schema if isinstance(tool, Tool) else tool) for tool in tools)
    return TOKENS_PER_MESSAGE * (1 + len(messages)) + said + sum(estimate_text(schema) for schema in schemas)


class Vocabularies:
    """Which of tiktoken's vocabularies are loaded in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked_for: set[str] = set()
        self._ready: set[str] = set()

    def ready(self, model: str) -> bool:
        """True when tiktoken can count for `model` at once. The first call for a vocabulary may wait a second."""
        try:
            name = tiktoken.encoding_name_for_model(model)
        except KeyError:
            name = "cl100k_base"  # what AutoGen falls back to
        if name in self._ready:
            return True
        with self._lock:
            if name in self._asked_for:
                return False
            self._asked_for.add(name)
        thread = threading.Thread(target=self._load, args=(name,), name=f"tiktoken-{name}", daemon=True)
        thread.start()
        thread.join(FIRST_WAIT_SECONDS)
        return name in self._ready

    def _load(self, name: str) -> None:
        try:
            tiktoken.get_encoding(name)
        except Exception as error:  # noqa: BLE001  # end of a thread: requests, OSError and ValueError all mean "not to be had"
            logger.info("tiktoken's %s is not available (%s); token counts are estimates", name, type(error).__name__)
        else:
            self._ready.add(name)


VOCABULARIES = Vocabularies()
"""Process-wide, as tiktoken's own cache is."""


def count_tokens(
    exact: Callable[..., int], model: str, messages: Sequence[LLMMessage], tools: Sequence[Tool | ToolSchema]
) -> int:
    """Tokens of a request, by AutoGen's counter `exact` when its vocabulary is loaded, else estimated."""
    if VOCABULARIES.ready(model):
        # AutoGen's counter knows plain tool schemas only: a `$ref` in an `anyOf`, say, is a KeyError.
        with suppress(AssertionError, AttributeError, KeyError, TypeError):
            return exact(messages, tools=tools)
    return estimate_tokens(messages, tools=tools)


def remaining_tokens(used: int, model: str, context_size: int | None = None) -> int:
    """Tokens left of `context_size`, or of what AutoGen knows for the model.

    Raises:
        ConfigurationError: neither is known.
    """
    try:
        return (context_size or _model_info.get_token_limit(model)) - used
    except KeyError:
        raise ConfigurationError(
            f"the context size of the model {model} is not known; set DRSAI_MODEL_CONTEXT"
        ) from None
