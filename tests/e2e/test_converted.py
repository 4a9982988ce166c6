"""A converted agent is what it was: it sends its model what the same agent in Python sends."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_core.tools import StaticStreamWorkbench

from drsai_backend import ReactAgent, RunContext, ToolAgent
from drsai_backend.agents.contexts import TokenBufferedContext
from drsai_backend.definitions import DefinitionPolicy, load
from drsai_backend.definitions.convert import convert
from drsai_backend.models import ModelParams
from drsai_backend.tools.builtin import builtin_tools
from drsai_backend.tools.http import HttpTool
from tests.e2e.conftest import Serve
from tests.support.model_server import ModelServer, Reply, ToolCall

ENTITY: dict[str, Any] = {
    "provider": "openai",
    "model": "gpt-4o",
    "strategy": "function_call",
    "max_iteration": 5,
    "tools": [{"tool_name": "calculator", "provider_id": "math", "provider_type": "builtin", "tool_parameters": {}}],
    "prompt": {"simple_prompt_template": "You help {{who}} for $5, and not ${6}."},
}
FUNCTIONS: dict[str, Any] = {
    "llm": {
        "model": "gpt-4o",
        "model_type": "oai",
        "api_key": "sk-abcdefghijklmnop",
        "generate_cfg": {
            "temperature": 0.7,
            "top_p": 0.8,
            "max_tokens": 2000,
            "max_input_tokens": 6000,
            "seed": 42,
            "stop": ["<|end|>"],
            "function_choice": "required",
            "parallel_function_calls": True,
        },
    },
    "function_list": ["calculator", {"name": "current_time", "zone": "UTC"}],
    "system_message": "You are an assistant.",
    "name": "entity",
}
BOOKS: dict[str, Any] = {
    "basic_settings": {"name": "Eva", "description": "You sell.", "language": "English", "tone": "Calm"},
    "action_books": [{"condition": "A demo is wanted", "action": "Save it", "tools": ["save"]}],
    "tools": [
        {
            "name": "save",
            "description": "Save a customer.",
            "parameters": {"type": "object", "properties": {"email": {"type": "string"}}, "required": ["email"]},
            "endpoint": {"url": "https://crm.invalid/add", "method": "POST", "body": {"email": "{email}"}},
        }
    ],
}


def _tools(context: RunContext, prompt: str, tools: list[Any], **values: Any) -> ToolAgent:
    client = values.pop("model_client", None) or context.model_client("gpt-4o")
    values.setdefault("max_iterations", 10)
    workbench = [StaticStreamWorkbench(tools)]
    return ToolAgent("entity", client, workbench=workbench, system_message=prompt, model_client_stream=True, **values)


def function_call(context: RunContext) -> ToolAgent:
    prompt = "You help Ada for $5, and not ${6}."
    return _tools(context, prompt, builtin_tools(["calculator"]), max_iterations=5)


def cot(context: RunContext) -> ReactAgent:
    return ReactAgent(
        "entity",
        context.model_client("gpt-4o"),
        workbench=[StaticStreamWorkbench([*builtin_tools(["calculator"])])],
        system_message="You help Ada for $5, and not ${6}.",
        model_client_stream=True,
        max_steps=5,
        description="entity",
    )


def functions(context: RunContext) -> ToolAgent:
    params = ModelParams(
        temperature=0.7, top_p=0.8, max_tokens=2000, seed=42, stop=["<|end|>"], parallel_tool_calls=True
    )
    return _tools(
        context,
        "You are an assistant.",
        builtin_tools(["calculator", "current_time"]),
        model_client=context.model_client("gpt-4o", defaults=params),
        model_context=TokenBufferedContext(6000),
        tool_choice="required",
    )


def books(context: RunContext) -> ToolAgent:
    prompt = (
        "You are Eva. You sell.\n\nAnswer in English. Tone: Calm.\n\n"
        "Follow these rules:\n1. When: A demo is wanted\n   Do: Save it\n   Use: save"
    )
    client = context.model_client()
    return _tools(context, prompt, [HttpTool(BOOKS["tools"][0])], model_client=client)


CASES: dict[str, tuple[dict[str, Any], Callable[[RunContext], Any]]] = {
    "function_call": (ENTITY, function_call),
    "cot": ({**ENTITY, "strategy": "cot"}, cot),
    "functions": (FUNCTIONS, functions),
    "books": (BOOKS, books),
}


def _answer(request: Any) -> Any:
    messages = request.body["messages"]
    tools = [each["function"]["name"] for each in request.body.get("tools", ())]
    if "calculator" in tools and messages[-1]["role"] == "user":
        return Reply(tool_calls=[ToolCall("calculator", {"expression": "1+1"})])
    if not tools and "Observation" not in str(messages[-1]):
        return 'Thought: I count.\nAction: calculator\nAction Input: {"expression": "1+1"}\n'
    return "Final Answer: Two." if not tools else "Two."


@pytest.mark.parametrize("name", CASES)
async def test_the_models_are_sent_the_same(serve: Serve, model: ModelServer, tmp_path: Path, name: str) -> None:
    data, factory = CASES[name]
    file = tmp_path / "bot.yaml"
    made = convert(json.dumps(data), "bot.json")
    file.write_text(made.yaml())
    [agent] = made.definitions.agents
    model.script(None, _answer)
    sent: list[Any] = []
    for teams in load(str(file), DefinitionPolicy()), {agent: factory}:
        service = await serve(teams)
        model.requests.clear()
        for text in ("Go.", "And now?"):
            body = {
                "model": agent,
                "messages": [{"role": "user", "content": text}],
                "thread_id": f"t{len(sent)}",
                "context": {"who": "Ada"},
            }
            answer = await service.http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200, answer.text
        sent.append([request.body for request in model.requests])
    assert sent[0] == sent[1]
    assert len(sent[0]) >= (2 if name == "books" else 3)
