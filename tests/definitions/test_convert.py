"""Agents of other frameworks as definitions: what becomes of each field, what is named, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drsai_backend.definitions import DefinitionError
from drsai_backend.definitions.check import parse_definitions
from drsai_backend.definitions.convert import Converted, convert
from drsai_backend.definitions.source import parse

ENTITY: dict[str, Any] = {"provider": "openai", "model": "gpt-4o", "strategy": "function_call", "max_iteration": 5}
LLM: dict[str, Any] = {"model": "qwen-plus", "model_type": "qwen_dashscope"}
HTTP: dict[str, Any] = {
    "name": "save",
    "description": "Save a customer.",
    "parameters": {"type": "object", "properties": {"email": {"type": "string"}}, "required": ["email"]},
    "endpoint": {"url": "https://api.example.com/add", "method": "POST", "body": {"email": "{email}"}},
}
BASIC: dict[str, Any] = {"name": "Eva", "description": "You sell."}
KEY = "sk-abcdefghijklmnop1234"


def books(**endpoint: Any) -> dict[str, Any]:
    return {"basic_settings": BASIC, "tools": [{**HTTP, "endpoint": {**HTTP["endpoint"], **endpoint}}]}


def with_llm(**values: Any) -> dict[str, Any]:
    return {"llm": {**LLM, **values}}


def made_of(data: dict[str, Any]) -> Converted:
    """The conversion, whose file is what it says it is, in YAML and JSON."""
    made = convert(json.dumps(data, indent=1), "bot.json")
    variables = {name: f"${{{name}}}" for name in made.secrets}
    for text in (made.yaml(), made.json()):
        again, wrong = parse_definitions(parse(text, "made", variables).data)
        assert (again, wrong) == (made.definitions, [])
    return made


# What is written, a path in the agent's definition, and what is there.
PLACES: dict[str, tuple[dict[str, Any], str, Any]] = {
    "a model": (ENTITY, "model", "gpt-4o"),
    "functions": (ENTITY, "strategy", "tools"),
    "thoughts": ({**ENTITY, "strategy": "cot"}, "strategy", "react"),
    "iterations": (ENTITY, "max_iterations", 5),
    "too many steps": ({**ENTITY, "strategy": "cot", "max_iteration": 99}, "max_iterations", 50),
    "a tool of the same name": ({**ENTITY, "tools": [{"tool_name": "calculator"}]}, "tools", ["calculator"]),
    "a tool of another name": ({**ENTITY, "tools": [{"tool_name": "google_search"}]}, "tools", ["web_search"]),
    "two that are one": (
        {**ENTITY, "tools": [{"tool_name": "google_search"}, {"tool_name": "bing_search"}]},
        "tools",
        ["web_search"],
    ),
    "a tool of theirs": (
        {**ENTITY, "tools": [{"tool_name": "weather", "provider_type": "api"}]},
        "tools",
        [{"registered": "weather"}],
    ),
    "parameters of a tool": (
        {**ENTITY, "tools": [{"tool_name": "weather", "tool_parameters": {"place": "$5 ${A}", "timeout": 3}}]},
        "tools",
        [{"builtin": "weather", "arguments": {"place": "$$5 $${A}"}, "options": {"timeout": 3}}],
    ),
    "parameters of a tool of theirs": (
        {**ENTITY, "tools": [{"tool_name": "w", "provider_type": "api", "tool_parameters": {"endpoint": "x"}}]},
        "tools",
        [{"registered": "w", "arguments": {"endpoint": "x"}}],
    ),
    "options of a function": (
        {"function_list": [{"name": "web_search", "timeout": 30, "max_results": 10}, {"name": "w", "timeout": 3}]},
        "tools",
        [{"builtin": "web_search", "options": {"timeout": 30, "count": 10}}, {"registered": "w"}],
    ),
    "what is a parameter and an option": (
        {**ENTITY, "tools": [{"tool_name": "weather", "tool_parameters": {"units": "imperial"}}]},
        "tools.0.arguments",
        {"units": "imperial"},
    ),
    "what is an option and a parameter": (
        {"function_list": [{"name": "weather", "units": "imperial"}]},
        "tools.0.options",
        {"units": "imperial"},
    ),
    "a parameter of a function": (
        {"function_list": [{"name": "time", "time_zone": "Asia/Tokyo"}]},
        "tools.0.arguments.time_zone",
        "Asia/Tokyo",
    ),
    "a template": (
        {**ENTITY, "prompt": {"simple_prompt_template": "You are {{ who }}."}},
        "prompt",
        "You are {{context.who}}.",
    ),
    "a dollar": ({**ENTITY, "prompt": {"simple_prompt_template": "$5 ${A} $$"}}, "prompt", "$$5 $${A} $$$$"),
    "an emoji": ({**ENTITY, "prompt": {"simple_prompt_template": "Hi 😀"}}, "prompt", "Hi 😀"),
    "messages": (
        {
            **ENTITY,
            "prompt": {
                "prompt_messages": [
                    {"role": "system", "text": "Be brief."},
                    {"role": "user", "text": "1+1?"},
                    {"role": "assistant", "content": "2"},
                ]
            },
        },
        "examples",
        [{"user": "1+1?", "assistant": "2"}],
    ),
    "parameters": (
        with_llm(generate_cfg={"temperature": 0, "top_p": 0.8, "stop": ["x"], "parallel_function_calls": True}),
        "model",
        {"profile": "qwen-plus", "temperature": 0, "top_p": 0.8, "stop": ["x"], "parallel_tool_calls": True},
    ),
    "more parameters": (
        {**with_llm(generate_cfg={"seed": 1}), "extra_generate_cfg": {"seed": 2}},
        "model",
        {"profile": "qwen-plus", "seed": 2},
    ),
    "input tokens": (
        with_llm(generate_cfg={"max_input_tokens": 600}),
        "context",
        {"kind": "token_buffered", "max_tokens": 600},
    ),
    "a choice": (with_llm(generate_cfg={"function_choice": "none"}), "tool_choice", "none"),
    "functions by name": (
        {"function_list": ["code_interpreter", {"name": "web_search"}, "doc_parser", "CustomTool()"]},
        "tools",
        ["code_interpreter", "web_search", "document_reader", {"registered": "CustomTool()"}],
    ),
    "servers of MCP": (
        {
            "function_list": [
                {"mcpServers": {"time": {"command": "t"}, "bad": {"args": 1}, "web": {"url": "https://x.io"}}}
            ]
        },
        "tools",
        [{"mcp": "time"}, {"mcp": "web"}],
    ),
    "a system message": ({"system_message": "Hi."}, "prompt", "Hi."),
    "the system's value": (
        books(body={"dialogId": "todo_autofill_by_system", "n": ["{email}"]}),
        "tools.0.http.endpoint.body",
        {"dialogId": "{dialogId}", "n": ["{email}"]},
    ),
    "braces": (books(body={"x": "{ {{email}} }"}), "tools.0.http.endpoint.body.x", "{{ {{{email}}} }}"),
    "a query": (books(query_params={"q": "{email}"}), "tools.0.http.endpoint.query", {"q": "{email}"}),
    "a key of a tool": (
        books(headers={"Authorization": f"Bearer {KEY}"}),
        "tools.0.http.endpoint.headers.Authorization",
        "Bearer {secret:HEADERS_AUTHORIZATION}",
    ),
    "a key that is an argument": (
        books(headers={"Authorization": "Bearer {email}"}),
        "tools.0.http.endpoint.headers.Authorization",
        "Bearer {email}",
    ),
    "rules": (
        {"basic_settings": BASIC, "action_books": [{"condition": "asked", "action": "add", "tools": ["calculator"]}]},
        "prompt",
        "You are Eva. You sell.\n\nFollow these rules:\n1. When: asked\n   Do: add\n   Use: calculator",
    ),
    "tools of rules": (
        {"basic_settings": BASIC, "action_books": [{"condition": "asked", "action": "add", "tools": ["calculator"]}]},
        "tools",
        ["calculator"],
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_what_has_a_place_is_there(name: str) -> None:
    data, path, expected = PLACES[name]
    found: Any = next(iter(made_of(data).data["agents"].values()))
    for step in path.split("."):
        found = found[int(step) if step.isdigit() else step]
    assert found == expected


# What is written, the field that is named, and what is said.
NAMED: dict[str, tuple[dict[str, Any], str, str]] = {
    "an unknown field": ({**ENTITY, "colour": "red"}, "colour", 'has no place in a definition (it was "red")'),
    "a field misspelt": ({**ENTITY, "tolls": []}, "tolls", "did you mean 'tools'?"),
    "a provider": ({**ENTITY, "provider": "acme"}, "provider", "there is no provider 'acme'"),
    "half a profile": ({**ENTITY, "provider": "azure_openai"}, "", "still has to be completed: endpoint: is missing"),
    "too many steps": (
        {**ENTITY, "strategy": "cot", "max_iteration": 60},
        "max_iteration",
        "at most 50 steps: it was 60",
    ),
    "a variable": (
        {**ENTITY, "prompt": {"simple_prompt_template": "{{a.b}}"}},
        "prompt.simple_prompt_template",
        "{{context.a_b}}",
    ),
    "a question alone": (
        {**ENTITY, "prompt": {"prompt_messages": [{"role": "user", "text": "1+1?"}]}},
        "prompt.prompt_messages[0]",
        "needs its answer",
    ),
    "an option of a tool": (
        {**ENTITY, "tools": [{"tool_name": "weather", "tool_parameters": {"unit": "K"}}]},
        "tools[0].tool_parameters.unit",
        'settings of the server (it was "K")',
    ),
    "an option that is misspelt": (
        {"function_list": [{"name": "web_search", "timout": 3}]},
        "function_list[0].timout",
        "did you mean 'timeout'? options of a tool are settings of the server (it was 3)",
    ),
    "an option that cannot be": (
        {"function_list": [{"name": "web_search", "max_results": 99}]},
        "function_list[0].max_results",
        "web_search: count: from 1 to 20 (it was 99)",
    ),
    "a parameter that cannot be": (
        {**ENTITY, "tools": [{"tool_name": "weather", "tool_parameters": {"days": "all"}}]},
        "tools[0].tool_parameters.days",
        "arguments.days: is no value of this parameter: 'all' is not of type 'integer' (it was \"all\")",
    ),
    "an option of a function of theirs": (
        {"function_list": [{"name": "w", "timeout": 3}]},
        "function_list[0].timeout",
        "settings of the server (it was 3)",
    ),
    "an option of a tool that is there": (
        {"function_list": ["google_search", {"name": "web_search", "timeout": 3}]},
        "function_list[1].timeout",
        "the tool is there already (it was 3)",
    ),
    "a cache": (with_llm(cache_dir="./c"), "llm.cache_dir", "cache: {ttl: SECONDS}"),
    "raw": (with_llm(use_raw_api=True), "llm.use_raw_api", "(it was true)"),
    "the provider's own": (with_llm(generate_cfg={"top_k": 5}), "llm.generate_cfg.top_k", "goes into the profile"),
    "thoughts inside": (
        with_llm(generate_cfg={"thought_in_content": True}),
        "llm.generate_cfg.thought_in_content",
        "reasoning_content",
    ),
    "a name": ({**with_llm(), "name": "专业助手"}, "name", "it is called 'bot'"),
    "an index": (
        {"system_message": "x", "rag_cfg": {"index_path": "./i"}},
        "rag_cfg.index_path",
        "is the store 'i': `drsai knowledge add`",
    ),
    "files": ({"system_message": "x", "files": ["a.pdf"]}, "files", "begin where the file of the definition is"),
    "an index of files": (
        {"system_message": "x", "files": ["a.pdf"], "rag_cfg": {"index_path": "./i"}},
        "rag_cfg.index_path",
        'the files have a store of their own (it was "./i")',
    ),
    "no documents": ({"system_message": "x", "rag_cfg": {"top_k": 3}}, "rag_cfg", "name documents in `files`"),
    "what the system does not know": (
        books(body={"orderId": "todo_autofill_by_system"}),
        "tools[0].endpoint.body.orderId",
        "the system does not know 'orderId'",
    ),
    "a bot's id": ({"basic_settings": {**BASIC, "chatbot_id": "c1"}}, "basic_settings.chatbot_id", 'it was "c1"'),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_has_no_place_is_named(name: str) -> None:
    data, field, said = NAMED[name]
    made = made_of(data)
    notes = [each for each in made.notes if each.field == field and said in each.message]
    assert len(notes) == 1, made.notes
    assert f"# - {notes[0]}" in made.yaml()
    assert notes[0].line is not None


def test_a_name_in_other_letters_is_told_by_the_description() -> None:
    """It cannot be an agent's name, and clients are shown the description."""
    name, about = "专业助手", "Knows it all."
    cases: list[tuple[dict[str, Any], str]] = [
        ({**with_llm(), "name": name}, name),
        ({"basic_settings": {"name": name}}, name),
        ({**with_llm(), "name": name, "description": about}, f"{name}: {about}"),
        ({**with_llm(), "name": "my bot", "description": about}, about),
    ]
    for data, description in cases:
        [made] = made_of(data).definitions.agents.values()
        assert made.description == description


def test_how_the_model_is_reached_is_a_profile() -> None:
    data = with_llm(
        api_key=KEY, model_server="http://10.0.0.1/v1/", generate_cfg={"max_retries": 3, "top_k": 5}, model_type="oai"
    )
    profile = {
        "model": "qwen-plus",
        "provider": "openai",
        "endpoint": "http://10.0.0.1/v1",
        "key_env": "LLM_API_KEY",
        "retries": 3,
        "parameters": {"top_k": 5},
    }
    made = made_of(data)
    assert made.profiles == {"profiles": {"qwen-plus": profile}}
    assert made.secrets == {"LLM_API_KEY": "llm.api_key"}
    assert made_of(with_llm(api_key="${MY_KEY}")).profiles["profiles"]["qwen-plus"]["key_env"] == "MY_KEY"


def test_knowledge_is_looked_up_in_the_store_of_an_index() -> None:
    rag = {
        "retrieval_type": "hybrid",
        "chunk_size": 500,
        "chunk_overlap": 50,
        "top_k": 5,
        "index_path": "./kb/handbook",
    }
    made = made_of({"system_message": "x", "rag_cfg": rag | {"embedding_model": "bge"}})
    [agent] = made.definitions.agents.values()
    assert agent.knowledge is not None
    told = agent.knowledge.stores, agent.knowledge.retrieval, agent.knowledge.top_k, agent.knowledge.min_score
    assert told == (["handbook"], "hybrid", 5, 0.7)
    noted = [each.field for each in made.notes]
    assert noted == [
        *("rag_cfg.index_path", "rag_cfg.chunk_size", "rag_cfg.chunk_overlap", "rag_cfg.embedding_model"),
    ]


def test_files_are_knowledge() -> None:
    rag = {"retrieval_type": "keyword", "chunk_size": 100, "chunk_overlap": 5, "top_k": 3, "index_path": "./i"}
    files = ["a $${B}.pdf", "https://example.org/a"]
    made = made_of({"system_message": "x", "files": files, "rag_cfg": rag})
    said = {"files": files, "retrieval": "keyword", "chunk_size": 100, "chunk_overlap": 5, "top_k": 3, "min_score": 0.7}
    [agent] = made.definitions.agents.values()
    assert agent.knowledge is not None
    assert agent.knowledge.model_dump(exclude_unset=True) == said
    [bare] = made_of({"system_message": "x", "files": files}).definitions.agents.values()
    assert bare.knowledge is not None
    assert bare.knowledge.model_dump(exclude_unset=True) == {"files": files, "min_score": 0.7}


SECRETS: dict[str, tuple[dict[str, Any], str]] = {
    "of a model": (with_llm(api_key="hunter22"), "hunter22"),
    "a short one": (with_llm(api_key="xyz"), '"xyz"'),
    "a number": (with_llm(api_key=12345678), "12345678"),
    "of an option": (
        {**ENTITY, "tools": [{"tool_name": "calculator", "tool_parameters": {"apiKey": "hunter22"}}]},
        "hunter22",
    ),
    "a parameter of a tool of theirs": (
        {**ENTITY, "tools": [{"tool_name": "w", "provider_type": "api", "tool_parameters": {"auth": {"token": KEY}}}]},
        KEY,
    ),
    "a short one of an option": (
        {**ENTITY, "tools": [{"tool_name": "calculator", "tool_parameters": {"api_key": "xyz"}}]},
        '"xyz"',
    ),
    "in credentials": (
        {**ENTITY, "tools": [{"tool_name": "calculator", "credentials": {"a": [{"b": "hunter22"}]}}]},
        "hunter22",
    ),
    "in a prompt": ({"system_message": f"Use {KEY} there."}, KEY),
    "again in a prompt": ({**with_llm(api_key="hunter22"), "system_message": "It is hunter22."}, "hunter22"),
    "in a description": ({"system_message": "x", "description": f"{KEY}"}, KEY),
    "in a header": (books(headers={"X-Api-Key": "hunter22"}), "hunter22"),
    "in a URL": (books(url="https://api.example.com/add?token=hunter22&x={email}"), "hunter22"),
    "in a body": (books(body={"client_secret": "hunter22", "email": "{email}"}), "hunter22"),
    "a number in a body": (books(body={"password": 998877, "email": "{email}"}), "998877"),
    "in the name of a field": ({"system_message": "x", KEY: 1}, KEY),
    "in the name of a tool": ({"function_list": [KEY]}, KEY),
    "of the endpoint": (with_llm(model_server="https://me:hunter22@example.com/v1"), "hunter22"),
    "of a parameter": (
        {**books(), "tools": [{**HTTP, "parameters": {"properties": {"email": {"default": KEY}}}}]},
        KEY,
    ),
    "of a function": ({"function_list": [{"name": "a", "parameters": {"api_key": "hunter22"}}]}, "hunter22"),
    "a default": (
        {
            **books(),
            "tools": [{**HTTP, "parameters": {"properties": {"email": {}, "pin_token": {"default": "hunter22"}}}}],
        },
        "hunter22",
    ),
    "an example": (
        {
            **books(),
            "tools": [{**HTTP, "parameters": {"properties": {"email": {}, "apiKey": {"examples": ["hunter22"]}}}}],
        },
        "hunter22",
    ),
    "a plain key": (
        {**ENTITY, "tools": [{"tool_name": "a", "tool_parameters": {"key": "abcdef123456"}}]},
        "abcdef123456",
    ),
    "a token": ({"system_message": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"}, "eyJhbGciOi"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_never_written(name: str) -> None:
    data, secret = SECRETS[name]
    made = made_of(data)
    assert secret not in made.yaml() + made.json()
    assert secret not in repr(made)
    assert len(made.secrets) == 1
    assert next(iter(made.secrets)).isidentifier()


def test_what_is_no_secret_is_written() -> None:
    parameters = {"type": "object", "properties": {"email": {"type": "string"}, "token": {"type": "string"}}}
    tool = {
        **HTTP,
        "parameters": parameters,
        "endpoint": {**HTTP["endpoint"], "body": {"key": "status", "t": "{token}"}},
    }
    made = made_of({"basic_settings": BASIC, "tools": [tool]})
    assert made.secrets == {}
    assert made.data["agents"]["Eva"]["tools"][0]["http"]["parameters"] == parameters
    assert made_of(with_llm(api_key="EMPTY", generate_cfg={"stop_token": "</s>", "max_tokens": 9})).secrets == {}


# What is written, the line, the field, and a part of what is said.
BAD: dict[str, tuple[object, int | None, str, str]] = {
    "nothing": ("", 1, "", "must be a mapping of an agent's fields"),
    "a list": ("- a\n", 1, "", "must be a mapping"),
    "no YAML": ("llm: {model: a\n", 2, "", "is not valid YAML"),
    "a depth": ("{a: " * 3000, None, "", "nested too deeply"),
    "half a character": ('{"system_message": "\\ud83d"}', None, "", "half a character"),
    "secrets": (
        {"system_message": "x", "credentials": [f"hunter{n}" for n in range(201)]},
        None,
        "",
        "than 200 secrets",
    ),
    "a key twice": ("strategy: cot\nstrategy: cot\n", 2, "strategy", "is there twice"),
    "a definition": ({"agents": {}}, 1, "", "is a file of definitions already"),
    "a component": ({"provider": "a.B", "component_type": "agent", "config": {}}, 1, "", "AutoGen"),
    "another format": ({"nodes": []}, 1, "", "is of no format that is known: agent-entity ("),
    "a slip of the pen": ({"function_lst": []}, 2, "function_lst", "did you mean 'function_list'?"),
    "two formats": ({"llm": LLM, "action_books": []}, 1, "", "could be function-list or action-books"),
    "no model": ({**ENTITY, "model": None}, 3, "model", "must be a text"),
    "no strategy": ({k: v for k, v in ENTITY.items() if k != "strategy"}, 1, "strategy", "is required"),
    "a strategy": ({**ENTITY, "strategy": "react"}, 4, "strategy", "must be 'function_call' or 'cot', and is 'react'"),
    "iterations": ({**ENTITY, "max_iteration": 100}, 5, "max_iteration", "must be at most 99"),
    "no iterations": ({**ENTITY, "max_iteration": 0}, 5, "max_iteration", "must be at least 1"),
    "iterations in words": ({**ENTITY, "max_iteration": "5"}, 5, "max_iteration", "must be a whole number"),
    "tools": ({**ENTITY, "tools": {}}, 6, "tools", "must be a list"),
    "a tool": ({**ENTITY, "tools": [{"tool_nam": "x"}]}, 7, "tools[0].tool_name", "is required"),
    "a prompt": ({**ENTITY, "prompt": "Hi."}, 6, "prompt", "must be a mapping"),
    "a model's name": ({"llm": {}}, 2, "llm.model", "is required"),
    "hot": (with_llm(generate_cfg={"temperature": 3}), 6, "llm.generate_cfg.temperature", "must be at most 2"),
    "a seed": (with_llm(generate_cfg={"seed": "x"}), 6, "llm.generate_cfg.seed", "must be a whole number"),
    "tokens": (with_llm(generate_cfg={"max_input_tokens": 0}), 6, "llm.generate_cfg.max_input_tokens", "at least 1"),
    "retries": (with_llm(generate_cfg={"max_retries": -1}), 6, "llm.generate_cfg.max_retries", "from 0 to 10"),
    "many functions": (
        {"function_list": [f"f{n}" for n in range(999)]},
        131,
        "function_list[128]",
        "may have 128 tools",
    ),
    "a function": ({"function_list": [{"timeout": 1}]}, 3, "function_list[0].name", "is required"),
    "a function's name": ({"function_list": [""]}, 3, "function_list[0]", "must not be empty"),
    "pieces": ({"system_message": "x", "rag_cfg": {"top_k": 0}}, 4, "rag_cfg.top_k", "greater than or equal to 1"),
    "a URL of files": ({"system_message": "x", "files": ["a.pdf", "x://a"]}, 5, "files[1]", "must begin with https://"),
    "pieces of files": (
        {"system_message": "x", "files": ["a.pdf"], "rag_cfg": {"chunk_size": 50, "chunk_overlap": 0}},
        7,
        "rag_cfg.chunk_size",
        "between 100 and 4096",
    ),
    "an overlap": (
        {"system_message": "x", "rag_cfg": {"chunk_size": 5, "chunk_overlap": 9}},
        5,
        "rag_cfg.chunk_overlap",
        "less than `chunk_size`",
    ),
    "no settings": ({"action_books": []}, 1, "basic_settings", "is required"),
    "no bot's name": ({"basic_settings": {}}, 2, "basic_settings.name", "is required"),
    "a rule": (
        {"basic_settings": BASIC, "action_books": [{"action": "x"}]},
        7,
        "action_books[0].condition",
        "is required",
    ),
    "a rule's tool": (
        {**books(), "action_books": [{"condition": "a", "action": "b", "tools": ["sav"]}]},
        None,
        "action_books[0].tools[0]",
        "there is no tool 'sav'; did you mean 'save'?",
    ),
    "a tool twice": ({"basic_settings": BASIC, "tools": [HTTP, HTTP]}, None, "tools[1].name", "is there twice"),
    "a tool without its address": (
        {"basic_settings": BASIC, "tools": [{"name": "a", "description": "b"}]},
        None,
        "tools[0].endpoint",
        "is required",
    ),
    "a method": (books(method="FETCH"), None, "tools[0].endpoint.method", "must be 'GET', 'HEAD', 'POST'"),
    "an address": (books(url="ftp://example.com"), None, "tools[0].endpoint.url", "must begin with https://"),
    "who is called": (books(url="https://{email}/x"), None, "tools[0].endpoint.url", "must not stand in the host"),
    "a placeholder": (books(body={"a": "{mail}"}), None, "tools[0].endpoint.body.a", "did you mean 'email'?"),
    "a time": (books(timeout=0.0), None, "tools[0].endpoint.timeout", "must be more than 0"),
    "a header": (books(headers={"Host": "x"}), None, "tools[0].endpoint.headers", "cannot be set"),
    "a name of ours": (
        {
            "basic_settings": BASIC,
            "tools": [{**HTTP, "parameters": {"properties": {"userId": {}}}, "endpoint": {"url": "https://a.b"}}],
        },
        None,
        "tools[0]",
        "userId is filled in by the system",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_of_the_source(name: str) -> None:
    written, line, field, said = BAD[name]
    text = written if isinstance(written, str) else json.dumps(written, indent=1)
    with pytest.raises(DefinitionError) as caught:
        convert(text, "bot.json")
    problem = next((each for each in caught.value.problems if said in str(each)), None)
    assert problem is not None, caught.value
    assert (problem.file, problem.field) == ("bot.json", field)
    assert line in (None, problem.line)


def test_the_format_can_be_said() -> None:
    assert convert('{"llm": {"model": "m"}, "action_books": []}', "a.json", "function-list").format == "function-list"
    with pytest.raises(DefinitionError, match=r"a\.json: there is no format 'books'"):
        convert("{}", "a.json", "books")


def test_what_others_write_stays_in_its_comment() -> None:
    made = made_of({**ENTITY, "x\nagents:\n  evil: {}": "a\u2028b\nc", "model": "m\n#x"})
    assert list(made.definitions.agents) == ["bot"]
    assert list(parse(made.yaml(), "made", {}).data) == ["agents"]


def test_json_that_yaml_reads_in_another_way() -> None:
    made = convert('{\n\t"llm": {"model": "m", "generate_cfg": {"temperature": 1e-1}}, "name": "a\\tb 1e5"\n}')
    assert made.data == {"agents": {"a_b_1e5": {"model": {"profile": "m", "temperature": 0.1}}}}
