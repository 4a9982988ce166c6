"""Who may answer is another than who asked: approvals by a role or a user, over processes, tenants and deadlines."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from autogen_agentchat.base import Response
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResultMessage
from sqlalchemy.orm import Session

from drsai_backend import Answer, AssistantAgent, DrSai, DrSaiAgent, RunStatus, Thread, requires_approval
from drsai_backend.access.principal import ROLES, Principal
from drsai_backend.database.moving import refuse_runs
from drsai_backend.datamodel import Run, utcnow
from drsai_backend.datamodel.base import table_of
from drsai_backend.datamodel.owner import ThreadName
from drsai_backend.errors import ConfigurationError, DrSaiError, Forbidden, InvalidRequest, NotFound
from drsai_backend.runs import InputMessage
from drsai_backend.runs.threads.queries import input_requests_query
from drsai_backend.tools import Approval, approval_of, tool
from tests.support.asks import asks
from tests.support.scripted import ScriptedClient
from tests.support.threads import QUICK, Make, until

ANN = ThreadName("acme", "ann", "t")
TREASURER: dict[str, Any] = {"tenant": "acme", "roles": ["treasurer"]}


def paying(pay: Any, arguments: dict[str, Any]) -> RoundRobinGroupChat:
    """A clerk who calls the tool once for each message, but for thanks."""

    def rule(messages: Any, _: Any) -> Any:
        last = messages[-1]
        if isinstance(last, FunctionExecutionResultMessage):
            return "told: " + last.content[0].content
        if "thanks" in str(last.content):
            return "welcome"
        return [FunctionCall("1", json.dumps(arguments), "pay")]

    clerk = AssistantAgent("clerk", ScriptedClient(rule), tools=[pay], reflect_on_tool_use=True)
    return RoundRobinGroupChat([clerk], max_turns=1)


class Till:
    """An agent whose tool pays, once it was approved."""

    def __init__(self, **approval: Any) -> None:
        self.approval = approval
        self.paid: list[str] = []

    def __call__(self) -> RoundRobinGroupChat:
        @requires_approval(**self.approval)
        async def pay(to: str) -> str:
            """Pays."""
            self.paid.append(to)
            return f"paid {to}"

        return paying(pay, {"to": "ada"})


async def asked(drsai: DrSai, user_id: str = "ann", tenant: str = "acme") -> dict[str, Any]:
    result = await drsai.user(user_id, tenant=tenant).run("crew", "pay ada", thread_id="t")
    assert result.status is RunStatus.AWAITING_INPUT
    assert result.input_request is not None
    return result.input_request


async def stored(drsai: DrSai, name: ThreadName = ANN) -> Thread:
    [thread] = await drsai.db.of_tenant(name.tenant).get(Thread, {"user_id": name.user_id, "thread_id": name.thread_id})
    return thread


async def received(drsai: DrSai) -> list[tuple[str, str | None]]:
    messages = (await stored(drsai)).messages
    return [(each["decision"], each["user_id"]) for each in messages if each["type"] == "UserInputReceivedEvent"]


async def waiting(drsai: DrSai, user_id: str, *, tenant: str = "acme", roles: Any = ()) -> list[tuple[str, str]]:
    page = await drsai.user(user_id, tenant=tenant, roles=roles).input_requests()
    return [(item.owner, item.thread_id) for item in page.items]


async def test_a_role_approves_what_another_has_asked(make: Make) -> None:
    till = Till(by="role:treasurer", not_by="asker")
    drsai, other = await make({"crew": till}), await make({"crew": till})
    question = await asked(drsai)
    assert {key: question[key] for key in ("by", "not_by", "asker")} == {
        "by": "role:treasurer",
        "not_by": "asker",
        "asker": "ann",
    }
    # Another tenant's thread of the same name asks as well, and is nobody's here.
    await asked(drsai, tenant="other")
    assert await waiting(other, "bob", roles=["treasurer"]) == [("ann", "t")]
    assert await waiting(other, "bob") == []
    assert await waiting(other, "ann") == []
    assert await waiting(other, "ann", roles=["treasurer"]) == []
    before = await stored(drsai)
    answer = Answer(question["id"], decision="approve")
    refused: list[tuple[Any, type[DrSaiError]]] = [
        (drsai.user("ann", tenant="acme").answer("t", answer), Forbidden),
        (drsai.user("ann", tenant="acme", roles=["treasurer"]).answer("t", answer), Forbidden),
        (drsai.user("bob", tenant="acme", owner="ann").answer("t", answer), NotFound),
        (drsai.user("bob", tenant="acme", roles=["clerk"], owner="ann").answer("t", answer), NotFound),
        (drsai.user("bob", tenant="third", roles=["treasurer"], owner="ann").answer("t", answer), NotFound),
    ]
    for attempt, error in refused:
        with pytest.raises(error):
            await attempt
    as_bob = Principal("bob", "acme", roles=frozenset(["treasurer"]), acted_by="ann")
    with pytest.raises(Forbidden):
        await drsai.engine.answer(as_bob, ANN, answer)
    assert (await stored(drsai)).revision == before.revision
    assert till.paid == []
    with pytest.raises(NotFound):  # Who may answer need not be able to read.
        await other.engine.get_thread(Principal("bob", "acme", roles=frozenset(["treasurer"])), ANN)
    handle = await other.user("bob", owner="ann", **TREASURER).answer("t", answer)
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert till.paid == ["ada"]
    assert await received(drsai) == [("approve", "bob")]
    assert await waiting(other, "bob", roles=["treasurer"]) == []


class Purse:
    """An agent whose tool pays: up to 100 nobody is asked, up to 1,000 a clerk, and a treasurer above that."""

    def __init__(self, amount: int) -> None:
        self.amount = amount
        self.paid: list[int] = []

    def __call__(self) -> RoundRobinGroupChat:
        def by(arguments: dict[str, Any]) -> bool | Approval:
            if arguments["amount"] <= 100:
                return False
            return Approval(by="role:clerk" if arguments["amount"] <= 1000 else "role:treasurer", not_by="asker")

        @tool(requires_approval=by)
        async def pay(amount: int) -> str:
            """Pays."""
            self.paid.append(amount)
            return f"paid {amount}"

        return paying(pay, {"amount": self.amount})


async def answered(drsai: DrSai, role: str, question: dict[str, Any], decision: Any, **values: Any) -> Any:
    who = drsai.user(role, tenant="acme", owner="ann", roles=[role])
    handle = await who.answer("t", Answer(question["id"], decision=decision, **values))
    return await handle.wait()


async def test_changed_arguments_are_approved_by_whom_they_need(make: Make) -> None:
    """The clerk may not have more paid than a clerk may approve, in whatever process and however often."""
    purse = Purse(200)
    first, second = await make({"crew": purse}), await make({"crew": purse})
    question = await asked(first)
    assert question["by"] == "role:clerk"
    end = await answered(first, "clerk", question, "edit", arguments={"amount": 5000})
    assert (end.status, purse.paid) == (RunStatus.AWAITING_INPUT, [])
    again = end.input_request
    assert (again["by"], again["tool"]["arguments"]) == ("role:treasurer", {"amount": 5000})
    assert "5000" in again["prompt"]
    assert await waiting(second, "clerk", roles=["clerk"]) == []
    with pytest.raises(NotFound):
        await answered(second, "clerk", again, "approve")
    end = await answered(second, "treasurer", again, "edit", arguments={"amount": 6000})
    assert (end.status, purse.paid) == (RunStatus.COMPLETED, [6000]), "a treasurer has said so"
    assert await received(first) == [("edit", "clerk"), ("edit", "treasurer")]


async def test_changed_arguments_that_others_deny(make: Make) -> None:
    purse = Purse(200)
    drsai = await make({"crew": purse})
    end = await answered(drsai, "clerk", await asked(drsai), "edit", arguments={"amount": 5000})
    end = await answered(drsai, "treasurer", end.input_request, "deny", reason="too much")
    assert (end.status, purse.paid) == (RunStatus.COMPLETED, [])
    assert (await stored(drsai)).messages[-1]["content"] == "told: The call was denied: too much"


@pytest.mark.parametrize("amount", [50, 300])
async def test_changed_arguments_that_need_nobody_else(make: Make, amount: int) -> None:
    purse = Purse(200)
    drsai = await make({"crew": purse})
    end = await answered(drsai, "clerk", await asked(drsai), "edit", arguments={"amount": amount})
    assert (end.status, purse.paid) == (RunStatus.COMPLETED, [amount])


async def test_a_message_of_the_asker_is_not_the_answer(make: Make) -> None:
    till = Till(by="user:bob")
    drsai = await make({"crew": till}, **QUICK)
    question = await asked(drsai)
    for on_question in ("wait", "answer"):
        message = [InputMessage("user", "approve, thanks")]
        request = asks("crew", message, Principal("ann", "acme"), "t", on_question=on_question)
        handle = await drsai.engine.start(*request)
        end = await handle.wait()
        assert (end.status, end.queued_behind is not None) == (RunStatus.AWAITING_INPUT, True)
    background = asks("crew", [InputMessage("user", "ok thanks")], Principal("ann", "acme"), "t", background=True)
    await drsai.engine.start(*background)
    await asyncio.sleep(0.5)
    assert ((await stored(drsai)).queued, till.paid) == (3, [])
    handle = await drsai.user("bob", tenant="acme", owner="ann").answer("t", Answer(question["id"], decision="deny"))
    assert (await handle.wait()).status is RunStatus.COMPLETED

    async def all_run() -> bool:
        thread = await stored(drsai)
        return thread.queued == 0 and thread.status is RunStatus.COMPLETED

    await until(all_run)
    texts = [message.get("content") for message in (await stored(drsai)).messages]
    assert texts.count("welcome") == 3
    assert await received(drsai) == [("deny", "bob")]


async def test_who_steers_the_run_has_asked_as_well(make: Make) -> None:
    till = Till(by="role:treasurer", not_by="asker")

    def team() -> RoundRobinGroupChat:
        slow = AssistantAgent("slow", first)
        return RoundRobinGroupChat([slow, *till()._participants], max_turns=2)

    first = ScriptedClient(lambda *_: "go on")
    drsai = await make({"crew": team}, **QUICK)
    first.hold()
    handle = await drsai.user("ann", tenant="acme").start("crew", "pay", thread_id="t")
    await drsai.user("ann", tenant="acme").share_thread("t", with_user="bob", right="write")
    steering = await drsai.user("bob", tenant="acme", owner="ann").start(
        "crew", "ada, twice", thread_id="t", on_busy="steer"
    )
    first.release()
    end = await handle.wait()
    assert end.status is RunStatus.AWAITING_INPUT
    assert end.input_request is not None
    del steering
    messages = (await stored(drsai)).messages
    assert [each["metadata"] for each in messages if each.get("content") == "ada, twice"] == [{"user_id": "bob"}]
    answer = Answer(end.input_request["id"], decision="approve")
    with pytest.raises(Forbidden):
        await drsai.user("bob", owner="ann", **TREASURER).answer("t", answer)
    done = await drsai.user("eve", owner="ann", **TREASURER).answer("t", answer)
    assert (await done.wait()).status is RunStatus.COMPLETED


async def test_a_deadline_that_passes_denies_the_call(make: Make) -> None:
    """In whatever process, and the run continues."""
    till = Till(by="role:treasurer", deadline=timedelta(seconds=0.3))
    first = await make({"crew": till}, sweep_seconds=60)
    question = await asked(first)
    assert question["deadline"] > question["asked_at"]
    assert (await stored(first)).status is RunStatus.AWAITING_INPUT
    second = await make({"crew": till}, **QUICK)

    async def is_over() -> bool:
        return (await stored(second)).status.is_final

    await until(is_over)
    thread = await stored(second)
    assert (thread.status, till.paid) == (RunStatus.COMPLETED, [])
    assert await received(second) == [("expired", None)]
    said = thread.messages[-1]["content"]
    assert said.startswith("told: The call was denied: nobody of role:treasurer answered until 2")


async def test_it_denies_nothing_while_the_tenant_is_moved(make: Make, database_url: str) -> None:
    till = Till(by="role:treasurer", deadline=timedelta(seconds=0.3))
    drsai = await make({"crew": till}, **QUICK)
    await asked(drsai)
    await asyncio.to_thread(refuse_runs, database_url, "acme")
    await asyncio.sleep(1)
    assert (await stored(drsai)).status is RunStatus.AWAITING_INPUT
    await drsai.switches.on("tenant", "acme")

    async def is_over() -> bool:
        return (await stored(drsai)).status.is_final

    await until(is_over)


def asking(**options: Any) -> Any:
    class Asking(DrSaiAgent):
        async def on_messages_stream(self, messages: Any, cancellation_token: Any) -> Any:
            text = await self.request_input("Which?", **options)
            yield Response(chat_message=TextMessage(content=f"{text} it is", source=self.name))

    return lambda: RoundRobinGroupChat([Asking("asking", ScriptedClient(lambda *_: "x"))], max_turns=1)


async def test_request_input_of_another_user(make: Make) -> None:
    drsai = await make({"crew": asking(by="user:bob", deadline=timedelta(hours=1))})
    question = await asked(drsai)
    assert (question["by"], question["type"]) == ("user:bob", "text_input")
    assert await waiting(drsai, "bob") == [("ann", "t")]
    handle = await drsai.user("bob", tenant="acme", owner="ann").answer("t", Answer(question["id"], "red"))
    assert (await handle.wait()).status is RunStatus.COMPLETED
    assert (await stored(drsai)).messages[-1]["content"] == "red it is"


async def test_a_plain_question_that_is_late_stops_the_run(make: Make) -> None:
    drsai = await make({"crew": asking(by="user:bob", deadline=timedelta(seconds=0.2))}, **QUICK)
    await asked(drsai)

    async def is_over() -> bool:
        return (await stored(drsai)).status.is_final

    await until(is_over)
    assert (await stored(drsai)).status is RunStatus.STOPPED


@pytest.mark.parametrize("options", [{"by": "bob"}, {"by": "role:"}, {"by": "team:x"}, {"not_by": "bob"}])
def test_approvers_that_nobody_can_be(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        requires_approval(**options)
    with pytest.raises(ConfigurationError):
        requires_approval(deadline=timedelta())


def test_a_tools_own_mark_goes_first() -> None:
    @requires_approval(by="role:a")
    def tool() -> None: ...

    @requires_approval
    def bench() -> None: ...

    assert [approval.by for approval in (approval_of(tool, bench), approval_of(bench, tool)) if approval] == [
        "role:a",
        None,
    ]
    assert approval_of(print) is None


async def test_what_waits_is_found_by_an_index(make: Make) -> None:
    """Beside 10,000 threads of the tenant that wait for others."""
    drsai = await make({"crew": Till(by="role:treasurer")})
    await asked(drsai)
    who = Principal("bob", "acme", roles=frozenset(["treasurer", "clerk"]))
    database = drsai.database

    def fill(session: Session) -> None:
        thread, run = table_of(Thread), table_of(Run)
        connection, now = session.connection(), utcnow()
        common = {"created_at": now, "updated_at": now, "version": "0.0.1", "status": RunStatus.AWAITING_INPUT}
        rest = {"revision": 1, "last_seq": 0, "turn": 0, "journal_debt": 0, "epoch": 1, "user_id": "ann"}
        question = {"id": "q", "by": "user:ann"}
        rows = [
            {**common, **rest, "tenant": "acme", "thread_id": f"t{n}", "run_id": f"r{n}", "input_request": question}
            for n in range(10_000)
        ]
        connection.execute(sa.insert(thread), rows)
        found = connection.execute(sa.select(thread.c.id, thread.c.run_id).where(thread.c.run_id.like("r%"))).all()
        waits = {"team": "crew", "attempt": 1, "first_seq": 0, "last_seq": 0, "started_at": now, "waits_in": "acme"}
        runs = [
            {**common, **waits, "run_id": name, "thread_key": key, "waits_for": "user:ann"}
            for key, name in found
            if not name.startswith("run_")
        ]
        connection.execute(sa.insert(run), runs)

    def plan(session: Session) -> str:
        connection = session.connection()
        is_postgresql = connection.dialect.name == "postgresql"
        if is_postgresql:
            connection.execute(sa.text("ANALYZE"))
        query = input_requests_query(who, None).limit(21)
        text = str(query.compile(connection, compile_kwargs={"literal_binds": True})).replace("%%", "%")
        explain = "EXPLAIN " if is_postgresql else "EXPLAIN QUERY PLAN "
        return "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + text))

    await database.write(fill)
    shown = await database.read(plan)
    assert "ix_run_waits_for" in shown
    assert "Seq Scan on run" not in shown
    assert "Seq Scan on thread" not in shown.replace("Seq Scan on threadshare", "")
    assert "SCAN thread" not in shown.replace("SCAN threadshare", "")
    assert "SCAN run" not in shown
    assert await waiting(drsai, "bob", roles=["treasurer", "clerk"]) == [("ann", "t")]


@pytest.mark.parametrize("levels", [64, 300, 20_000])
async def test_arguments_that_are_nested_too_deeply(make: Make, levels: int) -> None:
    """They are refused whichever way they come, before anything is stored, and the question waits on."""
    drsai = await make({"crew": Till()})
    question = await asked(drsai)
    before = await stored(drsai)
    deep = f'{{"amount": {"[" * levels}{"]" * levels}}}'
    given = f'{{"id": "{question["id"]}", "decision": "edit", "arguments": {deep}}}'
    message = {"role": "user", "content": f"edit {deep}"}
    asking: list[tuple[str, Any]] = [
        ("/v1/threads/t/input", {"content": given.encode()}),
        ("/v1/threads/t/input", {"json": {"id": question["id"], "text": f"edit {deep}"}}),
        ("/v1/chat/completions", {"json": {"model": "crew", "thread_id": "t", "messages": [message]}}),
    ]
    transport = httpx.ASGITransport(drsai.app(lambda _: Principal("ann", "acme", ROLES["user"])))
    headers = {"content-type": "application/json"}
    async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as http:
        for path, body in asking:
            answer = await http.post(path, **body)
            assert answer.status_code == 400, (path, answer.text)
            assert "nested" in answer.text or "depth limit" in answer.text, (path, answer.text)
    value: Any = 1
    for _ in range(levels):
        value = [value]
    for each in (Answer(question["id"], f"edit {deep}"), Answer(question["id"], None, "edit", None, {"amount": value})):
        with pytest.raises(InvalidRequest, match="nested"):
            await drsai.user("ann", tenant="acme").answer("t", each)
    assert await stored(drsai) == before
    assert before.status is RunStatus.AWAITING_INPUT
