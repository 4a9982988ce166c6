"""Two tries of a request have one digest; another request has another one, wherever it differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autogen_core import FunctionCall
from hypothesis import given, settings
from hypothesis import strategies as st

from drsai_backend.access.principal import Principal
from drsai_backend.models import ModelParams
from drsai_backend.models.images import EncodedImage
from drsai_backend.runs import InputMessage
from drsai_backend.runs.intake.request_digest import RequestDigests
from drsai_backend.runs.requests import RunLimits
from drsai_backend.teams.client_tools.definitions import ClientTool, ClientTools, ToolOutput
from tests.support.asks import admitted

contents: Any = st.one_of(
    st.text(max_size=3),
    st.lists(st.one_of(st.text(max_size=3), st.sampled_from(["AAAA", "BBBB"]).map(EncodedImage)), max_size=2),
)
calls = st.lists(st.builds(FunctionCall, st.just("1"), st.sampled_from(["{}", "[]"]), st.just("f")), max_size=1)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
messages: Any = st.builds(InputMessage, roles, contents, st.none(), calls, st.sampled_from([None, "1", "2"]))
histories = st.one_of(st.lists(messages, max_size=4), st.lists(messages, min_size=15, max_size=24))


def anew(message: InputMessage) -> InputMessage:
    """The same in other objects, as the body of another request has them."""
    content: Any = message.content
    if not isinstance(content, str):
        content = [each[:] if isinstance(each, str) else EncodedImage(each.to_base64()) for each in content]
    return replace(message, content=content)


def said(message: InputMessage) -> object:
    content = message.content
    parts = content if isinstance(content, str) else [e if isinstance(e, str) else [e.to_base64()] for e in content]
    return message.role, parts, message.calls, message.call_id


@settings(max_examples=100, deadline=None)
@given(histories, st.data())
def test_it_tells_all_messages_apart(sent: list[InputMessage], data: st.DataObject) -> None:
    digests, request = RequestDigests(), admitted("crew", sent)
    first = digests.of(request)
    for known in (digests, RequestDigests()):
        assert known.of(request.but(messages=[anew(each) for each in sent])) == first
    changed = list(sent)
    place = data.draw(st.integers(0, len(sent)))
    other = data.draw(messages)
    if place == len(sent):
        changed.append(other)
    elif (name := data.draw(st.sampled_from(["role", "content", "calls", "call_id", None]))) is not None:
        changed[place] = replace(sent[place], **{name: getattr(other, name)})
    else:
        changed[place : place + 1] = data.draw(st.sampled_from([[], [sent[place], other]]))
    same = [said(each) for each in changed] == [said(each) for each in sent]
    for known in (digests, RequestDigests()):
        assert (known.of(request.but(messages=changed)) == first) is same


def test_it_tells_all_else_apart() -> None:
    """And a system prompt before a long document, which ends as the other one's does."""
    document = "x" * 5_000
    asked = [InputMessage("system", "A"), *(InputMessage("user", f"{n}{document}") for n in range(20))]
    digests = RequestDigests()
    tools = ClientTools((ClientTool("look"),))
    others = [
        *({"messages": [InputMessage("system", "B"), *asked[1:]]}, {"messages": asked[1:]}, {"team": "other"}),
        *({"principal": Principal("eve")}, {"principal": Principal("anonymous", "acme")}, {"owner": "eve"}),
        *({"params": ModelParams(temperature=0.5)}, {"extra": {"a": 1}}, {"stream": True}, {"n": 1}),
        *({"client_tools": tools}, {"client_tools": replace(tools, choice="required")}, {"thread_id": "t"}),
        *({"limits": RunLimits(max_turns=1)}, {"on_busy": "reject"}, {"background": True}, {"history": "import"}),
        {"tool_results": [ToolOutput("1", "x")]},
        {"tool_results": [ToolOutput("1", "x", is_error=True)]},
    ]
    found = {digests.of(admitted(**{"team": "crew", "messages": asked, **values})) for values in ({}, *others)}
    assert len(found) == len(others) + 1
    assert {len(each) for each in found} == {20}
