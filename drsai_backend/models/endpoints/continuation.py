"""The continuation of an answer is left to models that can: which they are, how their endpoints are asked, and the
client that asks.

Most endpoints answer a conversation that ends with an answer by another one, or refuse it. The protocols of those that
continue it: vLLM and SGLang take `continue_final_message`; Mistral's and DeepSeek's APIs `prefix` in that message;
llama.cpp, Ollama and Anthropic's models up to Claude 4.5 continue it unasked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit

from autogen_core.models import AssistantMessage, ChatCompletionClient, CreateResult, LLMMessage
from autogen_ext.models.openai import BaseOpenAIChatCompletionClient

from drsai_backend.json_types import JsonObject
from drsai_backend.models.answer import Items, ModelCall, asked, result_of
from drsai_backend.models.endpoints.message_rules import form_of, where_of
from drsai_backend.models.endpoints.thoughts import with_thought

ContinueForm: TypeAlias = Literal["no", "plain", "prefix", "vllm"]
"""How a model is asked to continue an answer. `no`: it cannot. `plain`: the answer is the last message. `prefix`: and
that has `prefix: true`. `vllm`: and the request has `continue_final_message: true`."""

# Its later ones refuse it: "This model does not support assistant message prefill."
_CLAUDE: Final = re.compile(r"claude-(2|3|instant)|claude-(opus|sonnet|haiku)-4(-[0-5])?(-\d{8})?$")
_FIELDS: Final[JsonObject] = {"continue_final_message": True, "add_generation_prompt": False}
_NOT_OFFERED: Final = ("tools", "tool_choice")


class ContinueRules:
    """How the models of one process continue answers.

    Args:
        forms: by model name, which may hold `*`; the first that fits counts. What fits none is known by its endpoint,
            or cannot.
    """

    def __init__(self, forms: Mapping[str, ContinueForm] | None = None) -> None:
        self._forms: dict[str, ContinueForm] = dict(forms or {})

    def of(self, client: ChatCompletionClient) -> ContinueForm:
        """Return how the model of a client continues an answer. `client` is no `RunModelClient`."""
        url, model = where_of(client)
        form = form_of(self._forms, model) or _known(url, model)
        is_openai = isinstance(client, BaseOpenAIChatCompletionClient)
        return "no" if form in ("prefix", "vllm") and not is_openai else form


def _known(url: str, model: str) -> ContinueForm:
    """Return what is certain of an endpoint by its address."""
    where = urlsplit(url)
    if where.hostname == "api.mistral.ai" or (
        where.hostname == "api.deepseek.com" and where.path.strip("/").startswith("beta")
    ):
        return "prefix"
    # Not by its API that is like OpenAI's, which has a path.
    is_own = where.hostname == "api.anthropic.com" and not where.path.strip("/")
    return "plain" if is_own and _CLAUDE.match(model) else "no"


class ContinuingClient:
    """Makes one model call whose answer continues `text`. Its result is the whole message, its pieces are the rest.

    No tools are offered: the answer that is continued is in words, and ends so.
    """

    def __init__(self, inner: ChatCompletionClient, form: ContinueForm, text: str) -> None:
        self._inner = inner
        self._form = form
        self._text = text
        self.is_over = False
        """Whether the answer is there."""

    async def create(self, messages: Sequence[LLMMessage], **options: object) -> CreateResult:
        """Do as the client's own; after the answer, the same."""
        return await result_of(self._items(ModelCall(messages, options, streams=False)))

    def create_stream(self, messages: Sequence[LLMMessage], **options: object) -> Items:
        """Do as the client's own; after the answer, the same."""
        return self._items(ModelCall(messages, options, streams=True))

    def _items(self, call: ModelCall) -> Items:
        return asked(self._inner, call) if self.is_over else self._rest(asked(self._inner, self._continuing(call)))

    async def _rest(self, items: Items) -> Items:
        said: list[str] = []
        # What may yet turn out to be the text once more. Mistral's answers begin with it.
        held: str | None = "" if self._form == "prefix" else None
        async with aclosing(items):
            async for item in items:
                if isinstance(item, CreateResult):
                    if held:
                        yield held
                    yield self._whole(with_thought(item, said))
                    return
                said.append(item)
                if held is not None:
                    held += item
                    if len(held) < len(self._text) and self._text.startswith(held):
                        continue
                    item, held = held.removeprefix(self._text), None
                if item:
                    yield item

    def _continuing(self, call: ModelCall) -> ModelCall:
        messages = [*call.messages, AssistantMessage(content=self._text, source="assistant")]
        options = {name: value for name, value in call.options.items() if name not in _NOT_OFFERED}
        inner = self._inner
        if self._form == "plain" or not isinstance(inner, BaseOpenAIChatCompletionClient):
            return ModelCall(messages, options, call.streams)
        args: JsonObject = {**options.get("extra_create_args", {})}
        args.pop("parallel_tool_calls", None)  # Refused where there are no tools.
        fields: JsonObject = _FIELDS if self._form == "vllm" else {"messages": self._marked(inner, messages)}
        args["extra_body"] = {**_body_of(inner), **args.get("extra_body", {}), **fields}
        return ModelCall(messages, {**options, "extra_create_args": args}, call.streams)

    def _marked(self, inner: BaseOpenAIChatCompletionClient, messages: Sequence[LLMMessage]) -> list[JsonObject]:
        """The messages in OpenAI's shape, as AutoGen makes them, which knows no `prefix`."""
        made = inner._process_create_args(messages, (), "auto", None, {})  # pyright: ignore[reportPrivateUsage]
        wire = cast("list[JsonObject]", list(made.messages))
        return [*wire[:-1], {**wire[-1], "prefix": True}]

    def _whole(self, result: CreateResult) -> CreateResult:
        self.is_over = True
        if not isinstance(result.content, str):
            return result
        rest = result.content.removeprefix(self._text) if self._form == "prefix" else result.content
        return result.model_copy(update={"content": self._text + rest})


def _body_of(client: BaseOpenAIChatCompletionClient) -> JsonObject:
    """The extra fields that a client was made with, which those of a call would replace."""
    return cast(JsonObject, client._create_args.get("extra_body") or {})  # pyright: ignore[reportPrivateUsage]
