"""An assistant that remembers you next week, offline: its model is scripted, and so is the one that learns."""

import asyncio
import json
import re
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, ModelInfo, RequestUsage
from pydantic import SecretStr

from drsai_backend import DrSai
from drsai_backend.config import Settings
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.memory.extension import Memory

NONE = RequestUsage(prompt_tokens=0, completion_tokens=0)
IMPORTANT = {"complexity": 0.2, "density": 0.9, "emotion": 0.5, "intent": 0.9}


class Model(ChatCompletionClient):
    """Answers from what it is shown. In place of it, set OPENAI_BASE_URL or OPENAI_API_KEY."""

    model_info: Any = ModelInfo(
        vision=False, function_calling=False, json_output=True, family="unknown", structured_output=False
    )
    capabilities: Any = model_info

    def answer(self, messages: Sequence[LLMMessage]) -> str:
        shown = "\n".join(str(each.content) for each in messages)
        last = str(messages[-1].content)
        if "worth remembering" in shown:  # It is asked to learn.
            found = re.search(r"my name is (\w+)", last)
            name = {"text": f"The user is called {found[1]}.", "message": 1, "quote": found[0]} if found else None
            return json.dumps({"facts": [{**name, **IMPORTANT}] if name else []})
        if found := re.search(r"my name is (\w+)", last):
            return f"Nice to meet you, {found[1]}."
        found = re.search(r"The user is called (\w+)", shown)
        return f"You are called {found[1]}." if found else "I do not know."

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:
        return CreateResult(finish_reason="stop", content=self.answer(messages), usage=NONE, cached=False)

    async def create_stream(self, messages: Sequence[LLMMessage], **_: Any) -> AsyncGenerator[str | CreateResult]:
        yield await self.create(messages)

    def count_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:
        return 0

    def remaining_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:
        return 100_000

    def actual_usage(self) -> RequestUsage:
        return NONE

    def total_usage(self) -> RequestUsage:
        return NONE

    async def close(self) -> None: ...


class Provider:
    """Gives that model to all."""

    def client(self, model: str | None = None, api_key: SecretStr | None = None) -> ChatCompletionClient:
        return Model()

    def describe(self) -> str:
        return "scripted"

    async def close(self) -> None: ...


async def main() -> None:
    url = f"sqlite:///{Path(tempfile.mkdtemp()) / 'memory.db'}"
    settings = Settings(memory=True, sweep_seconds=0.05)
    async with DrSai(None, url, settings=settings, model_provider=Provider()) as drsai:
        memory, ada, owner = drsai.extension(Memory), drsai.user("ada"), Owner("default", "ada")
        print("today      ", (await ada.run("assistant", "Hello, my name is Ada.", thread_id="today")).text)
        known = []
        while not known:  # The job learns in the background.
            known = (await memory.list(owner)).items
            await asyncio.sleep(0.05)
        print("learnt     ", known[0].text)
        question = "What am I called?"
        print("next week  ", (await ada.run("assistant", question, thread_id="next week")).text)
        await memory.delete_all(owner)
        print("forgotten  ", (await ada.run("assistant", question, thread_id="later")).text)


asyncio.run(main())
