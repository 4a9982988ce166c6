"""What tests of `drsai serve` serve, and what they ask of it."""

from __future__ import annotations

from typing import Any

import httpx
import openai

TEAMS = """
from drsai_backend import AssistantAgent, RoundRobinGroupChat

def parrot(context):
    \"\"\"Says it again.\"\"\"
    return AssistantAgent("parrot", context.model_client(), system_message="You are a parrot.")

def pair(context):
    members = [AssistantAgent(name, context.model_client(), model_client_stream=True) for name in ("ann", "bob")]
    return RoundRobinGroupChat(members, max_turns=2)

teams = {"parrot": parrot, "pair": pair}
mine = {"only": parrot}
"""


def ask(url: str, model: str, text: str = "Hello.", **more: Any) -> str:
    with openai.OpenAI(base_url=url, api_key="unused", max_retries=0, timeout=20) as client:
        answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **more)
    return answer.choices[0].message.content or ""


def models(url: str) -> list[str]:
    return [item["id"] for item in httpx.get(f"{url}/models").json()["data"]]
