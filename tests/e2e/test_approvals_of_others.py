"""An approval that is not the asker's: they read who decides and until when, and no word of theirs is taken for one.

And of two equal approvals, in two chats that name no thread, the one of the chat that answers is meant.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import openai
import pytest

from drsai_backend import Answer, AssistantAgent, RunContext, requires_approval
from drsai_backend.runs.transcript import asked_after
from tests.api.test_mcp import client
from tests.e2e.conftest import Serve, Service
from tests.support.model_server import ModelRequest, ModelServer, Reply, ToolCall
from tests.support.threads import QUICK, until

Said = list[dict[str, Any]]


class Till:
    """A team with a tool that pays, once it was approved."""

    def __init__(self, **approval: Any) -> None:
        self.approval = approval
        self.paid: list[int] = []

    def __call__(self, context: RunContext) -> AssistantAgent:
        @requires_approval(**self.approval)
        async def pay(euros: int) -> str:
            """Pays."""
            self.paid.append(euros)
            return f"paid {euros}"

        return AssistantAgent("clerk", context.model_client(), tools=[pay], reflect_on_tool_use=True)


def clerk(request: ModelRequest) -> Reply:
    last = request.messages[-1]
    if last["role"] == "tool":
        return Reply(f"So: {last['content']}")
    if "Pay" in str(last["content"]):
        return Reply(tool_calls=[ToolCall("pay", {"euros": 5})])
    return Reply(f"Sure: {last['content']}")


async def by_chat(service: Service, said: Said, **more: Any) -> str:
    made = await service.client.chat.completions.create(model="crew", messages=said, extra_body=more)  # type: ignore[arg-type]
    return made.choices[0].message.content or ""


async def by_responses(service: Service, said: Said, **more: Any) -> str:
    made = await service.client.responses.create(model="crew", input=said, extra_body=more)  # type: ignore[arg-type]
    assert [item.type for item in made.output] == ["message"]  # There is nothing that they could approve.
    return made.output_text


async def by_messages(service: Service, said: Said, **more: Any) -> str:
    body = {"model": "crew", "max_tokens": 99, "messages": said, **more}
    made = await service.http.post("/v1/messages", json=body)
    if made.status_code != 200:
        raise openai.APIStatusError(made.text, response=made, body=made.json())
    return "".join(part["text"] for part in made.json()["content"])


@pytest.mark.parametrize("way", [by_chat, by_responses, by_messages])
@pytest.mark.parametrize("named", [{}, {"thread_id": "t"}])
async def test_the_asker_reads_who_decides(serve: Serve, model: ModelServer, way: Any, named: dict[str, str]) -> None:
    till = Till(by="role:treasurer", not_by="asker", deadline=timedelta(days=2))
    service = await serve({"crew": till}, **QUICK)
    model.script(None, clerk)
    said: Said = [{"role": "user", "content": "Pay five."}]
    asks = await way(service, said, **named)
    [thread] = (await service.drsai.list_threads()).items
    question = (await service.drsai.get_thread(thread.thread_id)).input_request
    assert question is not None
    until_then = question["deadline"][:19].replace("T", " ")
    assert f"role:treasurer decides this until {until_then} UTC, and not anonymous, who asked." in asks
    said += [{"role": "assistant", "content": asks}]
    asked = len(model.requests)
    for word in ("approve", "Deny: too much", "同意。"):
        for policy in ("enqueue", "interrupt"):
            with pytest.raises(openai.APIStatusError) as refused:
                await way(service, [*said, {"role": "user", "content": word}], on_busy=policy, **named)
            assert refused.value.status_code == 403
            assert "role:treasurer decides this until" in refused.value.message
    waits = await way(service, [*said, {"role": "user", "content": "And what is new?"}], **named)
    assert waits.startswith("This message waits in the queue")
    assert "somebody else" in waits
    assert "your next message" not in waits.lower()
    assert "what you send next is the answer" not in waits
    assert (len(model.requests), till.paid) == (asked, [])
    denied = Answer(question["id"], decision="deny", reason="no money")
    handle = await service.drsai.user("tom", roles=["treasurer"], owner="anonymous").answer(thread.thread_id, denied)
    await handle.wait()

    async def all_done() -> bool:
        head = await service.drsai.get_thread(thread.thread_id)
        return head.status.is_final and any("And what is new?" in str(each.messages[-1]) for each in model.requests)

    await until(all_done)
    assert till.paid == []
    sent = str([each.messages for each in model.requests])
    assert "no money" in sent
    for word in ("'approve'", "Deny: too much", "同意"):
        assert word not in sent
    # Every word of theirs is on the thread, or was refused.
    assert (await service.drsai.list_threads()).items[0].thread_id == thread.thread_id


async def test_in_the_background_too(serve: Serve, model: ModelServer) -> None:
    service = await serve({"crew": Till(not_by="asker")})
    model.script(None, clerk)
    text = await by_responses(service, [{"role": "user", "content": "Pay five."}], thread_id="t")
    del text
    [thread] = (await service.drsai.list_threads()).items
    for word, status in (("yes", 403), ("Anything new?", 200)):
        body = {"model": "crew", "input": word, "background": True, "conversation": thread.thread_id}
        made = await service.http.post("/v1/responses", json=body)
        assert made.status_code == status, made.text
        assert ("Somebody else, with whom this thread is shared, decides this" in made.text) == (status == 403)


async def test_mcp_says_who_decides(serve: Serve, model: ModelServer) -> None:
    service = await serve({"crew": Till(by="user:bob")})
    model.script(None, clerk)
    async with client(service.drsai.app()) as asked:
        waits = await asked.call_tool("crew", {"message": "Pay five."})
        note = waits.content[-1].text
        assert "user:bob decides this, and not anonymous, who asked." in note
        assert "`answer`" not in note
        where = {"thread_id": waits.structured_content["thread_id"]}
        for attempt in ({"answer": "approve"}, {"message": "approve"}):
            refused = await asked.call_tool("crew", {**attempt, **where})
            assert refused.structured_content["error"]["code"] == "forbidden"
        assert "user:bob decides" in refused.content[-1].text
        queued = await asked.call_tool("crew", {"message": "Anything new?", **where})
        assert (queued.is_error, queued.structured_content["status"]) == (False, "awaiting_input")


async def test_whoever_may_decide_is_asked(serve: Serve, model: ModelServer) -> None:
    """An asker who is the one that decides reads nothing of others, and their word is the answer."""
    till = Till(by="user:anonymous")
    service = await serve({"crew": till})
    model.script(None, clerk)
    said: Said = [{"role": "user", "content": "Pay five."}]
    asks = await by_chat(service, said)
    assert "who asked" not in asks
    said += [{"role": "assistant", "content": asks}, {"role": "user", "content": "approve"}]
    assert await by_chat(service, said) == "So: paid 5"
    assert till.paid == [5]


@pytest.mark.parametrize("way", [by_chat, by_messages])
async def test_of_two_equal_approvals_that_of_the_chat_is_meant(serve: Serve, model: ModelServer, way: Any) -> None:
    till = Till()
    service, other = await serve({"crew": till}), await serve({"crew": till})
    model.script(None, clerk)
    said: Said = [{"role": "user", "content": "Pay five."}]
    chats = [[*said, {"role": "assistant", "content": await way(each, said)}] for each in (service, other, service)]
    threads = [each.thread_id for each in reversed((await service.drsai.list_threads()).items)]
    assert len(threads) == 3

    async def waiting() -> list[str]:
        items = (await service.drsai.list_threads()).items
        return sorted(each.thread_id for each in items if each.status == "awaiting_input")

    approves: Said = [{"role": "user", "content": "approve"}]
    assert await way(other, [*chats[0], *approves]) == "So: paid 5"
    assert await waiting() == sorted(threads[1:])
    # Made again, the answer is no approval of another chat's.
    await way(other, [*chats[0], *approves])
    assert await waiting() == sorted(threads[1:])
    assert till.paid == [5]
    denies: Said = [{"role": "user", "content": "deny: enough"}]
    assert "enough" in await way(service, [*chats[2], *denies])
    assert await waiting() == [threads[1]]
    assert await way(other, [*chats[1], *approves]) == "So: paid 5"
    assert (await waiting(), till.paid) == ([], [5, 5])


def test_an_approval_of_an_older_release_is_what_its_client_has() -> None:
    asked = {"id": "q", "type": "approval", "kind": "approval", "source": "clerk", "prompt": "Is that approved?"}
    assert asked_after(asked, None) == "Is that approved?"
