"""The calls of `DrSai` as they were before `DrSai.user`: each does what its new form does, and says what to write."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from drsai_backend import DrSai
from drsai_backend.caller import Caller
from drsai_backend.errors import DrSaiError
from drsai_backend.runs import Answer
from tests.support.threads import settings

TALK = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]
TOOL = {"description": "x", "endpoint": {"url": "https://api.example.com/"}}
ANSWER = Answer("none", content="x")
ANN: Any = {"user_id": "ann", "tenant": "acme"}
ACME: Any = {"tenant": "acme"}

# By verb: as it was, with the user by position and by name, and as it is. Each has a thread of its own, and its run.
FORMS: dict[str, list[Callable[[Any, str, str], Any]]] = {
    "start": [
        lambda d, t, r: d.start("assistant", "x", thread_id=t, **ANN),
        lambda u, t, r: u.start("assistant", "x", thread_id=t),
    ],
    "run": [
        lambda d, t, r: d.run("assistant", "x", thread_id=t, **ANN),
        lambda d, t, r: d.run(team="assistant", task="x", owner="ann", thread_id=t, **ANN),
        lambda u, t, r: u.run("assistant", "x", thread_id=t),
    ],
    "run_stream": [
        lambda d, t, r: d.run_stream("assistant", "x", thread_id=t, **ANN),
        lambda u, t, r: u.run_stream("assistant", "x", thread_id=t),
    ],
    "answer": [
        lambda d, t, r: d.answer("ann", t, ANSWER, **ACME),
        lambda d, t, r: d.answer("ann", t, answer=ANSWER, roles=["clerk"], owner="ann", **ACME),
        lambda u, t, r: u.answer(t, ANSWER),
    ],
    **{
        verb: [
            lambda d, t, r, verb=verb: getattr(d, verb)("ann", t, **ACME),
            lambda d, t, r, verb=verb: getattr(d, verb)("ann", thread_id=t, **ACME),
            lambda d, t, r, verb=verb: getattr(d, verb)(thread_id=t, **ANN),
            lambda u, t, r, verb=verb: getattr(u, verb)(t),
        ]
        for verb in (
            *("stop", "pause", "resume", "retry", "list_runs", "get_thread", "list_messages", "turns", "branches"),
            *("fork", "clear_history", "list_shares", "delete_thread"),
        )
    },
    **{
        verb: [
            lambda d, t, r, verb=verb: getattr(d, verb)("ann", r, **ACME),
            lambda d, t, r, verb=verb: getattr(d, verb)("ann", run_id=r, **ACME),
            lambda d, t, r, verb=verb: getattr(d, verb)(run_id=r, **ANN),
            lambda u, t, r, verb=verb: getattr(u, verb)(r),
        ]
        for verb in ("get_run", "cancel_run")
    },
    "steps": [
        lambda d, t, r: d.steps(r, **ANN),
        lambda d, t, r: d.steps(run_id=r, **ANN),
        lambda u, t, r: u.steps(r),
    ],
    **{
        verb: [
            lambda d, t, r, verb=verb: getattr(d, verb)("ann", limit=2, **ACME),
            lambda d, t, r, verb=verb: getattr(d, verb)(limit=2, **ANN),
            lambda u, t, r, verb=verb: getattr(u, verb)(limit=2),
        ]
        for verb in ("list_threads", "list_shared_threads", "input_requests")
    },
    "rewind": [
        lambda d, t, r: d.rewind("ann", t, turn=0, **ACME),
        lambda u, t, r: u.rewind(t, turn=0),
    ],
    "load_history": [
        lambda d, t, r: d.load_history("ann", t, TALK, **ACME),
        lambda d, t, r: d.load_history("ann", t, messages=TALK, **ACME),
        lambda u, t, r: u.load_history(t, TALK),
    ],
    "share_thread": [
        lambda d, t, r: d.share_thread("ann", t, with_user="bob", **ACME),
        lambda u, t, r: u.share_thread(t, with_user="bob"),
    ],
    "unshare_thread": [
        lambda d, t, r: d.unshare_thread("ann", t, with_user="bob", **ACME),
        lambda u, t, r: u.unshare_thread(t, with_user="bob"),
    ],
    "tools.put": [lambda d, t, r: d.tools.put(t, TOOL, **ANN), lambda u, t, r: u.tools.put(t, TOOL)],
    "tools.list": [lambda d, t, r: d.tools.list(**ACME), lambda u, t, r: u.tools.list()],
    **{
        f"tools.{verb}": [
            lambda d, t, r, verb=verb: getattr(d.tools, verb)("x", **ACME),
            lambda u, t, r, verb=verb: getattr(u.tools, verb)("x"),
        ]
        for verb in ("get", "delete", "statistics")
    },
    "tools.invoke": [lambda d, t, r: d.tools.invoke("x", {}, **ANN), lambda u, t, r: u.tools.invoke("x", {})],
    "agents.put": [lambda d, t, r: d.agents.put("x", {}, **ANN), lambda u, t, r: u.agents.put("x", {})],
    "agents.list": [lambda d, t, r: d.agents.list(**ANN), lambda u, t, r: u.agents.list()],
    **{
        f"agents.{verb}": [
            lambda d, t, r, verb=verb: getattr(d.agents, verb)("x", **ANN),
            lambda u, t, r, verb=verb: getattr(u.agents, verb)("x"),
        ]
        for verb in ("get", "delete", "versions")
    },
    "agents.roll_back": [
        lambda d, t, r: d.agents.roll_back("x", 1, **ANN),
        lambda u, t, r: u.agents.roll_back("x", 1),
    ],
}


YOUNGER = {"set_meta", "tools.versions", "tools.roll_back"}
"""Verbs that never had another form."""


@pytest.fixture
async def drsai(migrated_sqlite: str) -> AsyncIterator[DrSai]:
    async with DrSai(database_url=migrated_sqlite, settings=settings()) as drsai:
        yield drsai


async def outcome(form: Callable[[Any, str, str], Any], caller: Caller, thread: str, run: str) -> tuple[object, ...]:
    """What comes of a call, without ids and times."""
    try:
        made = form(caller, thread, run)
        found = [each async for each in made] if inspect.isasyncgen(made) else await made
    except DrSaiError as error:
        return (type(error), str(error).replace(thread, "t"))
    if hasattr(found, "wait"):
        found = await found.wait()
    items = getattr(found, "items", found)
    many = len(items) if isinstance(items, list) else None
    return (type(found), many, getattr(found, "status", None), getattr(found, "message_count", None))


def verbs_of(cls: type) -> set[str]:
    found = inspect.getmembers(cls, inspect.isfunction)
    return {n for n, f in found if n[0] != "_" and (inspect.iscoroutinefunction(f) or inspect.isasyncgenfunction(f))}


def test_every_verb_is_here(drsai: DrSai) -> None:
    parts = {f"{part}.{verb}" for part in ("tools", "agents") for verb in verbs_of(type(getattr(drsai, part)))}
    assert FORMS.keys() == (verbs_of(Caller) | parts) - YOUNGER


@pytest.mark.parametrize("verb", FORMS)
async def test_a_verb_does_the_same_in_each_form(drsai: DrSai, verb: str) -> None:
    ann = drsai.user("ann", tenant="acme")
    outcomes: list[object] = []
    *old, new = FORMS[verb]
    for number, form in enumerate((new, *old)):
        for thread in (await ann.list_threads()).items:  # Each finds one.
            await ann.delete_thread(thread.thread_id)
        names = f"t{number}", str((await ann.run("assistant", "Hello.", thread_id=f"t{number}")).run_id)
        if form is new:
            outcomes.append(await outcome(form, ann, *names))
            continue
        with pytest.deprecated_call(match=rf"write `drsai\.user\(user_id.*\)\.{verb}\(…\)`") as warned:
            outcomes.append(await outcome(form, drsai, *names))
        assert {each.filename for each in warned} == {__file__}
    assert outcomes == [outcomes[0]] * len(outcomes)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: d.get_thread(),
        lambda d: d.get_thread("ann", "t", "x"),
        lambda d: d.run("assistant", "x", "y"),
        lambda d: d.steps("ann", "run"),
        lambda d: d.stop("ann", "t", colour="red"),
        lambda d: d.tools.get("ann", "x"),
        lambda d: d.user("ann").get_thread("ann", "t"),
        lambda d: d.user("ann").stop(thread_id="t", user_id="ann"),
    ],
)
def test_what_was_no_form_is_none(drsai: DrSai, call: Callable[[DrSai], Any]) -> None:
    with pytest.raises(TypeError):
        call(drsai)


async def test_a_run_takes_no_other_options(drsai: DrSai) -> None:
    with pytest.raises(TypeError, match="a run takes no colour, stream"):
        await drsai.run("assistant", "x", colour="red", stream=True)  # type: ignore[call-arg]


def test_without_asyncio(migrated_sqlite: str) -> None:
    with DrSai(database_url=migrated_sqlite, settings=settings()).sync as sync:
        sync.user("ann").run("assistant", "Hello.", thread_id="t")
        with pytest.deprecated_call(match="write `drsai.user") as warned:
            sync.run("assistant", "Hello.", thread_id="t", user_id="ann")  # type: ignore[call-arg]
        assert {each.filename for each in warned} == {__file__}
        assert sync.user("ann").get_thread("t").message_count == 4


async def test_the_verbs_are_coroutine_functions(drsai: DrSai) -> None:
    """AutoGen's `FunctionTool` and others tell by that how to call them."""
    for name in ("run", "start", "get_thread"):
        assert asyncio.iscoroutinefunction(getattr(drsai, name))
    assert not asyncio.iscoroutinefunction(drsai.run_stream)


async def test_a_wrong_argument_of_the_new_form_is_told_of_that(drsai: DrSai) -> None:
    with pytest.raises(TypeError, match="limit"):
        await drsai.get_thread("t", limit=3)  # type: ignore[call-arg]
