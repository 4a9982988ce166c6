"""Ask a PDF, offline: a store reads it, an agent is shown what it says, and answers. The model is
scripted; leave `model_provider` out and set OPENAI_BASE_URL or OPENAI_API_KEY for a real one."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

from autogen_core.models import ChatCompletionClient, CreateResult, LLMMessage, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import SecretStr

from drsai_backend import AssistantAgent, DrSai, RunContext
from drsai_backend.config import Settings
from drsai_backend.datamodel.citations import passages_in
from drsai_backend.datamodel.owner import Owner
from drsai_backend.features.knowledge.base import NewFile, NewStore
from drsai_backend.features.knowledge.extension import Knowledge


class Model(ReplayChatCompletionClient):
    """Says the line of the best passage that has most of the question's words."""

    async def create(self, messages: Sequence[LLMMessage], *_: Any, **__: Any) -> CreateResult:
        said = [str(each.content) for each in messages]
        best = next(passages_in("\n".join(said)), {"text": "", "filename": "nothing"})
        asked = {*said[-1].lower().strip("?").split()}
        line = max(best["text"].split("\n"), key=lambda each: len(asked & {*each.lower().strip(".").split()}))
        answer = f"{line} ({best['filename']})"
        return CreateResult(finish_reason="stop", content=answer, usage=RequestUsage(0, 0), cached=False)

    async def create_stream(self, messages: Sequence[LLMMessage], **_: Any) -> AsyncGenerator[str | CreateResult]:
        yield await self.create(messages)


class Provider:
    """Gives that model to all."""

    def client(self, model: str | None = None, api_key: SecretStr | None = None) -> ChatCompletionClient:
        return Model([])

    def describe(self) -> str:
        return "scripted"

    async def close(self) -> None: ...


def pdf(*pages: str) -> bytes:
    """A PDF of a few words."""
    kids = " ".join(f"{3 + 2 * at} 0 R" for at in range(len(pages)))
    parts = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(pages)}>>"]
    font = "<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
    for at, text in enumerate(pages):
        drawn = f"BT /F 12 Tf 72 720 Td ({text}) Tj ET"
        size = "/MediaBox[0 0 612 792]"
        parts.append(f"<</Type/Page/Parent 2 0 R{size}/Resources{font}/Contents {4 + 2 * at} 0 R>>")
        parts.append(f"<</Length {len(drawn)}>>\nstream\n{drawn}\nendstream")
    made, places = "%PDF-1.4\n", list[int]()
    for at, part in enumerate(parts, 1):
        places.append(len(made))
        made += f"{at} 0 obj\n{part}\nendobj\n"
    table = "0000000000 65535 f \n" + "".join(f"{at:010} 00000 n \n" for at in places)
    count = len(parts) + 1
    end = f"trailer<</Root 1 0 R/Size {count}>>\nstartxref\n{len(made)}\n%%EOF"
    return f"{made}xref\n0 {count}\n{table}{end}".encode()


def librarian(context: RunContext) -> AssistantAgent:
    agent = AssistantAgent("librarian", context.model_client())
    context.recall(agent, "knowledge", {"stores": ["handbook"], "top_k": 1})
    return agent


async def main() -> None:
    url = f"sqlite:///{Path(tempfile.mkdtemp()) / 'pdf.db'}"
    settings = Settings(sweep_seconds=0.05)
    async with DrSai({"librarian": librarian}, url, settings=settings, model_provider=Provider()) as drsai:
        knowledge, ada = drsai.extension(Knowledge), Owner("default", "ada")
        content = pdf("Everybody has thirty days of leave a year.", "The treasurer approves flights.")
        file = await drsai.files.create(ada, "handbook.pdf", content)
        store = await knowledge.create(ada, NewStore(name="handbook"), [NewFile(file_id=file.file_id)])
        while store.status == "in_progress":  # A job reads it in the background.
            await asyncio.sleep(0.05)
            store = await knowledge.get(ada, store.store_id)
        print("read     ", (await knowledge.list_files(ada, store.store_id)).items[0].status)
        for question in ("Who approves flights?", "How many days of leave do I have?"):
            answer = await drsai.user("ada").run("librarian", question)
            print("question ", question)
            print("answer   ", answer.text)


asyncio.run(main())
