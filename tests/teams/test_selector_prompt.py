"""A selector's prompt is anybody's text: names in it are replaced, and nothing else in it means anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend import SelectorGroupChat
from tests.support.scripted import ScriptedClient
from tests.support.teams.scenarios import agent

NAMES = ("{roles}", "{participants}", "{history}")
pieces = st.one_of(st.sampled_from([*NAMES, "{{", "}}"]), st.text("ab {}:!.[]0%$", max_size=6))


async def asked(prompt: str) -> str:
    """What the model is asked for the next speaker."""
    texts = list[str]()

    def rule(messages: Sequence[Any], options: dict[str, Any]) -> str:
        texts.append(messages[0].content)
        return "ann"

    members = [agent("ann", stream=False), agent("bob", stream=False)]
    team = SelectorGroupChat(members, ScriptedClient(rule), max_turns=1, selector_prompt=prompt)
    await team.run(task="Hello.")
    return texts[0]


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("{history}|{participants}", "user: Hello.\n\n|['ann', 'bob']"),
        ("{roles}", "ann: ann helps.\nbob: bob helps."),
        ("{{roles}} }} {{{participants}}}", "{roles} } {['ann', 'bob']}"),
        ("{roles:>1000000}", "{roles:>1000000}"),
        ("{history.__init__} {history[0]} {history!r}", "{history.__init__} {history[0]} {history!r}"),
        ('{"speaker": "…"} } {', '{"speaker": "…"} } {'),
        ("{0} {} {other}", "{0} {} {other}"),
    ],
)
async def test_names_are_replaced_and_nothing_else(prompt: str, text: str) -> None:
    assert (await asked(prompt)).strip() == text.strip()


@given(st.lists(pieces, max_size=8).map("".join))
async def test_any_text_is_a_prompt(prompt: str) -> None:
    asked_for = await asked(prompt)
    assert len(asked_for) <= len(prompt) + 100 * (1 + sum(prompt.count(name) for name in NAMES))
    if "{" not in prompt and "}" not in prompt:
        assert asked_for == prompt
