"""Whatever a file of others holds: what is written is a valid definition without its secrets, or an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.definitions import DefinitionError
from drsai_backend.definitions.check import check as checked
from drsai_backend.definitions.convert import convert
from drsai_backend.definitions.policy import NOTHING_ALLOWED
from drsai_backend.definitions.source import parse

SECRET = "hunter2hunter2"
TEXTS = st.one_of(
    st.text(max_size=30),
    st.text("${}:#-'\"\\ \n\t|>&*!%@`a,[]", max_size=20),
    st.sampled_from(
        ["", "{{name}}", "${HOME}", f"Bearer {SECRET}", "{email}", "calculator", "https://a.b/c", "x" * 70]
    ),
)
ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 200)
    | st.floats(allow_nan=False, allow_infinity=False, width=16)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)


_NOTHING: dict[str, Any] = {}


def _joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **other}


def part(required: dict[str, Any], optional: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """An object of the format, of which now and then something is wrong or not known."""
    known = st.fixed_dictionaries(required, optional={**optional, "token": st.just(SECRET)})
    odd = st.dictionaries(st.sampled_from([*required, *optional, "x", "a\nb"]) | TEXTS, ANY, max_size=1)
    return st.builds(_joined, known, st.one_of(st.just(_NOTHING), st.just(_NOTHING), odd))


OPTIONS = st.dictionaries(
    TEXTS | st.sampled_from(["place", "days", "units", "timeout", "expression", "count", "token"]), ANY, max_size=2
)
ENTITY = part(
    {
        "provider": st.sampled_from(["openai", "azure", "acme/acme"]),
        "model": TEXTS,
        "strategy": st.sampled_from(["function_call", "cot"]),
        "max_iteration": st.integers(1, 99),
    },
    {
        "tools": st.lists(
            part(
                {"tool_name": TEXTS | st.sampled_from(["weather", "google_search"])},
                {"provider_type": st.sampled_from(["api", "builtin"]), "tool_parameters": OPTIONS},
            ),
            max_size=3,
        ),
        "prompt": part(
            {},
            {
                "simple_prompt_template": TEXTS,
                "prompt_messages": st.lists(
                    part({"role": st.sampled_from(["system", "user", "assistant"])}, {"text": TEXTS}), max_size=3
                ),
            },
        ),
    },
)
FUNCTIONS = part(
    {
        "llm": part(
            {"model": TEXTS},
            {
                "api_key": st.just(SECRET) | TEXTS,
                "model_server": TEXTS,
                "model_type": TEXTS,
                "cache_dir": TEXTS,
                "generate_cfg": part(
                    {},
                    {
                        "temperature": st.floats(0, 2),
                        "max_input_tokens": st.integers(1, 9999),
                        "stop": st.lists(TEXTS, max_size=2),
                        "function_choice": TEXTS,
                        "top_k": ANY,
                    },
                ),
            },
        )
    },
    {
        "function_list": st.lists(
            TEXTS | st.builds(_joined, part({"name": TEXTS | st.sampled_from(["weather", "web_search"])}, {}), OPTIONS),
            max_size=3,
        ),
        "system_message": TEXTS,
        "name": TEXTS,
        "description": TEXTS,
        "files": st.lists(TEXTS, max_size=2),
        "rag_cfg": part({}, {"top_k": st.integers(1, 9), "retrieval_type": TEXTS}),
    },
)
BOOKS = part(
    {"basic_settings": part({"name": TEXTS}, {"description": TEXTS, "tone": TEXTS, "chatbot_id": TEXTS})},
    {
        "action_books": st.lists(
            part({"condition": TEXTS, "action": TEXTS}, {"tools": st.lists(TEXTS, max_size=2)}), max_size=2
        ),
        "tools": st.lists(
            part(
                {
                    "name": st.sampled_from(["save", "load"]),
                    "description": TEXTS,
                    "endpoint": part(
                        {"url": st.sampled_from(["https://a.b/c", "https://a.b/{email}", "x"])},
                        {
                            "method": st.sampled_from(["GET", "post"]),
                            "headers": st.dictionaries(st.sampled_from(["A", "Authorization"]), TEXTS, max_size=2),
                            "body": ANY,
                            "query_params": OPTIONS,
                        },
                    ),
                },
                {"parameters": st.just({"type": "object", "properties": {"email": {"type": "string"}}})},
            ),
            max_size=2,
        ),
    },
)


@pytest.mark.parametrize("format", ["agent-entity", "function-list", "action-books"])
def test_what_is_written_can_be_read(format: str) -> None:
    made = 0

    @settings(max_examples=100, deadline=None, derandomize=True, database=None)
    @given({"agent-entity": ENTITY, "function-list": FUNCTIONS, "action-books": BOOKS}[format])
    def check(data: dict[str, Any]) -> None:
        nonlocal made
        try:
            found = convert(json.dumps(data), "bot.json", format)
        except DefinitionError:
            return
        made += 1
        variables = {name: f"${{{name}}}" for name in found.secrets}
        for text in (found.yaml(), found.json()):
            assert SECRET not in text
            again, wrong = checked(parse(text, "made", variables).data, NOTHING_ALLOWED)
            assert (again, wrong) == (found.definitions, [])
        assert SECRET not in repr(found)

    check()
    assert made >= 15
