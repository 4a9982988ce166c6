"""What waits for people in the console: it is answered where it stands, and goes when somebody else has answered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import FunctionTool
from playwright.async_api import Locator, Page, expect

from drsai_backend import RunContext
from drsai_backend.agents import requires_approval
from drsai_backend.datamodel.owner import Owner
from tests.access.checks import SECRET, sign
from tests.console.conftest import Console, Open
from tests.support.issuer import AUDIENCE, ISSUER
from tests.support.model_server import ModelServer, Reply, ToolCall
from tests.support.threads import until

PEOPLE = {"ann": ["treasurer"], "tom": ["treasurer"], "bob": ["clerk"]}
"""With their roles."""
HOSTILE = '<img src=x onerror=alert(1)> "><svg onload=alert(1)> \u202ehcet'


def payer(context: RunContext, **approval: Any) -> AssistantAgent:
    async def pay(to: str, amount: int) -> str:
        return f"paid {amount} to {to}"

    tool = requires_approval(deadline=timedelta(hours=2), **approval)(FunctionTool(pay, "Pays."))
    client = context.model_client()
    return AssistantAgent("payer", client, tools=[tool], reflect_on_tool_use=True, model_client_stream=True)


def of_treasurers(context: RunContext) -> AssistantAgent:
    return payer(context, by="role:treasurer", not_by="asker")


async def ask(console: Console, *threads: str, key: str | None = None, of: str | None = None) -> None:
    """Have the payer pay on these threads for who has the key, so that each waits for an approval of theirs, or of who
    has the key `of`."""
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=console.url, headers=headers) as http:
        for thread in threads:
            body: dict[str, Any] = {"model": "payer", "thread_id": thread, "background": True}
            body["messages"] = [{"role": "user", "content": f"{HOSTILE} {thread}"}]
            assert (await http.post("/v1/chat/completions", json=body)).status_code == 202

        if of is not None:
            http.headers["authorization"] = f"Bearer {of}"

        async def waits() -> bool:
            found = (await http.get("/v1/input-requests")).json()["data"]
            return {*threads} <= {each["thread_id"] for each in found}

        await until(waits)


def scripted(model: ModelServer) -> None:
    """The model pays 5 for each question, and tells what came of it."""

    def answer(request: Any) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(f"It says: {request.last}")
        return Reply(tool_calls=[ToolCall("pay", {"to": HOSTILE, "amount": 5})])

    model.script(None, answer)


def row(page: Page, thread: str) -> Locator:
    return page.locator(".waiting").filter(has_text=thread)


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_approved_changed_denied_and_answered_elsewhere(opened: Open, model: ModelServer, theme: str) -> None:
    scripted(model)
    console = await opened({"payer": payer}, context={"color_scheme": theme, "viewport": {"width": 390, "height": 800}})
    page = await console.open("approvals")
    await expect(page.get_by_text("Nothing waits for you")).to_be_visible()
    await ask(console, "t/one", "t/two", "t/three")
    # They come by themselves.
    await expect(page.locator(".waiting")).to_have_count(3)
    await expect(row(page, "t/one")).to_contain_text("payer of payer")
    await expect(row(page, "t/one")).to_contain_text("1 h 59 m left")
    await expect(row(page, "t/one")).to_contain_text(HOSTILE[:20])
    assert await page.locator("main svg, main img").count() == 0
    await console.is_accessible()
    await row(page, "t/one").get_by_role("button", name="Approve with changes").click()
    arguments = row(page, "t/one").get_by_label("Arguments")
    await arguments.fill("{")
    await row(page, "t/one").get_by_role("button", name="Approve with changes").click()
    await expect(page.get_by_text("This is not a JSON object")).to_be_visible()
    await arguments.fill('{"to": "bob", "amount": 7}')
    await row(page, "t/one").get_by_role("button", name="Approve with changes").click()
    await expect(row(page, "t/one")).to_have_count(0)
    await row(page, "t/two").get_by_label("Reason").fill("not on a Sunday")
    # Somebody else is faster.
    async with httpx.AsyncClient(base_url=console.url) as http:
        [two] = [each for each in (await http.get("/v1/input-requests")).json()["data"] if each["thread_id"] == "t/two"]
        await page.route("**/v1/input-requests*", lambda _: None)  # Nothing is looked at anew meanwhile.
        answer = {"id": two["id"], "decision": "approve"}
        assert (await http.post("/v1/threads/t%2Ftwo/input", json=answer)).status_code == 202
    await row(page, "t/two").get_by_role("button", name="Deny").click()
    await expect(page.get_by_text("This was answered or withdrawn meanwhile.")).to_be_visible()
    await expect(row(page, "t/two")).to_have_count(0)
    # Of what goes by itself, whoever looks is told.
    await page.unroute_all()
    await page.reload()
    await expect(row(page, "t/three")).to_have_count(1)
    await ask(console, "t/four")
    await expect(row(page, "t/four")).to_have_count(1)
    async with httpx.AsyncClient(base_url=console.url, headers={"content-type": "application/json"}) as http:
        assert (await http.post("/v1/threads/t%2Ffour/cancel")).status_code == 200
    await expect(page.get_by_text("t/four: This was answered or withdrawn meanwhile.")).to_be_visible()
    await expect(row(page, "t/four")).to_have_count(0)
    # The third is answered in its chat.
    await row(page, "t/three").get_by_role("link").first.click()
    question = page.get_by_role("group", name="Approval")
    await question.get_by_label("Reason").fill("not on a Sunday")
    await console.is_accessible()
    await question.get_by_role("button", name="Deny").click()
    await expect(page.get_by_role("article").last).to_contain_text("It says:")
    await expect(page.get_by_role("article").last).to_contain_text("not on a Sunday")
    await page.goto(f"{console.url}/console/chat/t%2Fone")
    await expect(page.get_by_role("article").last).to_contain_text("It says: paid 7 to bob")


async def test_who_may_not_answer_is_not_asked_to(opened: Open, model: ModelServer) -> None:
    scripted(model)
    console = await opened({"payer": payer}, auth="required")
    key = (await console.drsai.keys.create(Owner("default", "ann"), ["user"])).key.get_secret_value()
    viewer = (await console.drsai.keys.create(Owner("default", "ann"), ["viewer"])).key.get_secret_value()
    await ask(console, "t", key=key)
    page = await console.open("approvals")
    await page.get_by_label("API key or token").fill(viewer)
    await page.get_by_role("button", name="Sign in").click()
    await expect(row(page, " t")).to_contain_text("Your key does not allow answers.")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    # Nor is there a chat for them.
    await expect(row(page, " t").get_by_role("link")).to_have_text(["Run"])


async def test_a_role_is_asked_and_nobody_else(opened: Open, model: ModelServer) -> None:
    scripted(model)
    values = {"jwt_secret": SECRET, "jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_roles_claim": "groups"}
    console = await opened({"payer": of_treasurers}, auth="required", **values)
    tokens = {user: sign(sub=user, scope="user", groups=groups) for user, groups in PEOPLE.items()}
    pages: list[Page] = []
    for token in tokens.values():
        await console.turn_to()
        pages.append(await console.enter("approvals", token))
        await expect(pages[-1].get_by_text("Nothing waits for you")).to_be_visible()
    ann, tom, bob = pages
    await ask(console, "t", key=tokens["ann"], of=tokens["tom"])
    await expect(row(tom, " t")).to_contain_text("asked by ann · for role:treasurer")
    await expect(row(tom, " t").get_by_role("link")).to_have_count(0)  # They may answer, and not read the thread.
    for other in (ann, bob):
        await other.reload()
        await expect(other.get_by_text("Nothing waits for you")).to_be_visible()
    # Who asked reads whom it waits for, and cannot answer.
    await ann.goto(f"{console.url}/console/chat/t")
    question = ann.get_by_role("group", name="Approval")
    await expect(question).to_contain_text("This is for others to answer. role:treasurer")
    await expect(question.get_by_role("button", name="Approve")).to_have_count(0)
    await row(tom, " t").get_by_role("button", name="Approve", exact=True).click()
    await expect(tom.get_by_text("Nothing waits for you")).to_be_visible()
    await expect(ann.get_by_role("article").last).to_contain_text("It says: paid 5 to")
    await expect(ann.get_by_text("tom: approve")).to_be_visible()
