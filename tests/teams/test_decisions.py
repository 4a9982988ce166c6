"""A person's decision in plain words."""

from __future__ import annotations

from typing import Any

import pytest

from drsai_backend.errors import InvalidRequest
from drsai_backend.teams.suspension import parse_decision

pytestmark = pytest.mark.usefixtures("spotless")

APPROVAL = {"type": "approval", "choices": ["approve", "deny", "edit"]}
RETRY = {"type": "approval", "choices": ["run", "result", "stop"]}


@pytest.mark.parametrize(
    ("request_", "text", "decision", "reason", "arguments", "content"),
    [
        (APPROVAL, "approve", "approve", None, None, None),
        (APPROVAL, " Yes. ", "approve", None, None, None),
        (APPROVAL, "y", "approve", None, None, None),
        (APPROVAL, "OK!", "approve", None, None, None),
        (APPROVAL, "批准", "approve", None, None, None),
        (APPROVAL, "是。", "approve", None, None, None),
        (APPROVAL, "n", "deny", None, None, None),
        (APPROVAL, "No, it is wrong", "deny", "it is wrong", None, None),
        (APPROVAL, "deny: too much", "deny", "too much", None, None),
        (APPROVAL, "拒绝\uff1a太多", "deny", "太多", None, None),
        (APPROVAL, "否", "deny", None, None, None),
        (APPROVAL, 'edit {"a": [1]}', "edit", None, {"a": [1]}, None),
        (APPROVAL, 'Edit: {"a": 1}', "edit", None, {"a": 1}, None),
        (RETRY, "run", "run", None, None, None),
        (RETRY, "run again", "run", None, None, None),
        (RETRY, "result: 42: yes", "result", None, None, "42: yes"),
        (RETRY, "stop.", "stop", None, None, None),
    ],
)
def test_words(
    request_: dict[str, Any], text: str, decision: str, reason: str | None, arguments: Any, content: str | None
) -> None:
    answer = {"decision": decision, "reason": reason, "arguments": arguments, "content": content or text}
    assert parse_decision(text, request_) == answer


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (APPROVAL, ""),
        (APPROVAL, "no problem"),
        (APPROVAL, "yes, but not today"),
        (APPROVAL, "notify me"),
        (APPROVAL, "edit"),
        (APPROVAL, "edit {a: 1}"),
        (APPROVAL, "edit [1]"),
        (APPROVAL, "run"),
        (RETRY, "approve"),
        (RETRY, "result"),
        (RETRY, "What happened?"),
    ],
)
def test_other_words(request_: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_decision(text, request_)
    assert raised.value.param == "messages"


def test_the_refusal_says_what_may_be_said() -> None:
    with pytest.raises(InvalidRequest, match=r"'approve', 'deny: <reason>', 'edit \{<arguments as JSON>\}'"):
        parse_decision("perhaps", APPROVAL)


def test_plain_answers() -> None:
    assert parse_decision(" as it is ", {"type": "text_input", "choices": None}) == {"content": " as it is "}
