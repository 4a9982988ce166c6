"""LiteLLM: the SDK, and its proxy in front of the server, as other clients reach it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
from common import API_KEY, BASE_URL, case, conversation, main, seen, tag

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network at import

import litellm

TO = {"api_base": BASE_URL, "api_key": API_KEY}


def ask(text: str, model: str = "solo", **more: Any) -> dict[str, Any]:
    return {"model": f"openai/{model}", "messages": [{"role": "user", "content": text}], **TO, **more}


def summed(usage: Any) -> list[int]:
    return [usage.prompt_tokens, usage.completion_tokens, usage.total_tokens]


def whole(answer: Any) -> dict[str, Any]:
    choice = answer.choices[0]
    return {"text": choice.message.content, "finish": choice.finish_reason, "usage": summed(answer.usage)}


@case
def plain() -> Any:
    return whole(litellm.completion(**ask("Hello.")))


@case
def stream() -> Any:
    chunks = list(
        litellm.completion(**ask("Hello again, in pieces."), stream=True, stream_options={"include_usage": True})
    )
    return {**whole(litellm.stream_chunk_builder(chunks)), "pieces": len(chunks) > 3}


@case
async def async_plain() -> Any:
    return whole(await litellm.acompletion(**ask("Hello.")))


@case
def group() -> Any:
    return whole(litellm.completion(**ask("Write.", "pair")))


@case
def history() -> Any:
    first = litellm.completion(**ask("My name is Ada.")).choices[0].message.content
    answer = litellm.completion(model="openai/solo", messages=conversation(first), **TO)
    return seen(answer.choices[0].message.content)


FIELDS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": FIELDS}}


def _tools(complete: Any) -> Any:
    messages: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    first = complete(messages=messages, tools=[WEATHER]).choices[0]
    calls = first.message.tool_calls or []
    done = [{"role": "tool", "tool_call_id": call.id, "content": "21 degrees"} for call in calls]
    text = (
        complete(messages=[*messages, first.message, *done], tools=[WEATHER]).choices[0].message.content
        if calls
        else None
    )
    named = [[call.function.name, json.loads(call.function.arguments)] for call in calls]
    return {"finish": first.finish_reason, "calls": named, "text": text}


@case
def tools() -> Any:
    return _tools(lambda **more: litellm.completion(model="openai/solo", **TO, **more))


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORM: Any = {"type": "json_schema", "json_schema": {"name": "Person", "schema": PERSON, "strict": True}}


@case
def structured() -> Any:
    answer = litellm.completion(**ask("Who wrote the first program?"), response_format=FORM)
    return json.loads(answer.choices[0].message.content)


def caught(call: Any) -> Any:
    try:
        call()
    except openai.APIStatusError as error:
        return {"class": type(error).__name__, "status": error.status_code}
    return None


@case
def unknown_key() -> Any:
    return caught(lambda: litellm.completion(**{**ask("Hello."), "api_key": "sk-nobody"}))


@case
def unknown_model() -> Any:
    return caught(lambda: litellm.completion(**ask("Hello.", "nobody")))


@case
def bad_value() -> Any:
    return caught(lambda: litellm.completion(**ask("Hello.", temperature=7)))


@case
def responses() -> Any:
    answer = litellm.responses(model="openai/solo", input="Hello, responses.", **TO)
    return "".join(part.text for item in answer.output if item.type == "message" for part in item.content)


MASTER_KEY = "sk-of-the-proxy-0123456789abcdef0123456789abcdef"

# --- the proxy ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def proxy() -> Iterator[str]:
    with socket.socket() as found, tempfile.TemporaryDirectory() as folder:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
        found.close()
        models = [
            {"model_name": name, "litellm_params": {"model": f"openai/{name}", **TO}}
            for name in ("solo", "pair", "nobody")
        ]
        config = Path(folder) / "config.yaml"
        config.write_text(json.dumps({"model_list": models}))  # JSON is YAML
        command = [
            Path(sys.executable).parent / "litellm",
            "--config",
            config,
            "--port",
            str(port),
            "--host",
            "127.0.0.1",
        ]
        environment = {**os.environ, "LITELLM_MASTER_KEY": MASTER_KEY}
        log = (Path(folder) / "log.txt").open("w+")
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5).read()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        log.seek(0)
                        raise RuntimeError(f"the proxy did not start: {log.read()[-2000:]}") from None
                    time.sleep(0.3)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(20)


def through(url: str) -> None:
    client = openai.OpenAI(base_url=url, api_key=MASTER_KEY, max_retries=0)

    def say(text: str, model: str = "solo", **more: Any) -> Any:
        return client.chat.completions.create(model=model, messages=[{"role": "user", "content": text}], **more)

    @case
    def proxy_plain() -> Any:
        return whole(say("Hello."))

    @case
    def proxy_stream() -> Any:
        chunks = list(say("Hello again, in pieces.", stream=True))
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    @case
    def proxy_group() -> Any:
        return whole(say("Write.", "pair"))

    @case
    def proxy_history() -> Any:
        first = say("My name is Ada.").choices[0].message.content
        answer = client.chat.completions.create(model="solo", messages=conversation(first))  # type: ignore[arg-type]
        return seen(answer.choices[0].message.content or "")

    @case
    def proxy_tools() -> Any:
        return _tools(lambda **more: client.chat.completions.create(model="solo", **more))

    @case
    def proxy_structured() -> Any:
        return json.loads(say("Who wrote the first program?", response_format=FORM).choices[0].message.content)

    @case
    def proxy_unknown_model() -> Any:
        return (caught(lambda: say("Hello.", "nobody")) or {}).get("status")

    @case
    def proxy_failing_model() -> Any:
        """The proxy repeats by itself what it takes for a passing fault."""
        word = tag("proxy")
        error = caught(lambda: say(f"Fail {word} please"))
        return {"raised": error is not None, "asked": say(f"How often {word}").choices[0].message.content}


if __name__ == "__main__":
    with proxy() as at:
        through(at)
        main()
