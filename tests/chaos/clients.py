"""Clients: they send inputs, read answers and logs, answer questions, and come back whatever happens in between."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import httpx

from tests.chaos.checks import FINAL, Account, Broken, Read, Sent, Told
from tests.chaos.schedule import weighted
from tests.chaos.tenants import key_header, place_of
from tests.chaos.world import World

PATIENCE = 120.0
"""Seconds after which a run is believed to be stuck."""
_AWAY = (httpx.TransportError,)


@dataclass(frozen=True, slots=True)
class Frame:
    """A server-sent event."""

    name: str
    id: str
    data: str


async def frames(response: httpx.Response) -> AsyncIterator[Frame]:
    """The server-sent events of an answer; comments are left out."""
    name = id = data = ""
    async for line in response.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "id":
            id = value
        elif field == "data":
            data = value
        elif not line:
            if data:
                yield Frame(name, id, data)
            name = id = data = ""


class Refused(Exception):
    """The server said no: a status below 500."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__(f"{response.status_code} {response.text[:300]}")
        self.status = response.status_code


class Client:
    """Speaks for one thread. What it knows of the thread is in `account`.

    Args:
        world: whose servers it asks, any of them at any time.
        leaves: how likely it is to leave in the middle of a stream, at each event.
        begun: called when a server has taken an input.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        world: World,
        thread: str,
        team: str,
        chance: Random,
        *,
        leaves: float = 0.0,
        begun: Callable[[], None] = lambda: None,
    ) -> None:
        self._http = http
        self._world = world
        self._chance = chance
        self._leaves = leaves
        self._begun = begun
        self._number = 0
        self.thread = thread
        self._place = place_of(thread).thread_id
        self._key = key_header(thread)
        self.team = team
        self.account = Account(thread)
        self.left = 0
        """How often it left in the middle of a stream."""
        self.away = 0
        """How often a server said 503."""

    # --- one request after another until one is answered ---------------------------------------------------------

    async def request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Ask again and again, any server, until one answers. Returns the JSON.

        Raises:
            Refused: with a status below 500.
        """
        tried: Counter[str] = Counter()
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    base = await self._world.pick(self._chance)
                    try:
                        response = await self._http.request(
                            method, f"{base}{path}", json=body, headers={**self._key, **(headers or {})}
                        )
                    except _AWAY as error:
                        tried[f"{base} {type(error).__name__}"] += 1
                        await self._pause()
                        continue
                    if response.status_code == 503:
                        self.away += 1
                        tried[f"{base} {response.text}"] += 1
                        await self._pause()
                        continue
                    if response.status_code >= 400:
                        raise Refused(response)
                    return response.json()
        except TimeoutError:
            raise TimeoutError(f"{method} {path}: {dict(tried)}") from None

    async def _pause(self) -> None:
        await asyncio.sleep(self._chance.uniform(0.02, 0.3))

    # --- inputs ---------------------------------------------------------------------------------------------------

    async def say(self, way: str, policy: str = "enqueue", *, cancel_on_leave: bool = False) -> str | None:
        """Send an input by a `way`: "stream", "whole" or "background". Returns the run's id once it has been taken,
        read to its end or left; None when it was refused."""
        self._number += 1
        sent = Sent(f"[{self.thread}.{self._number}] Go on.", policy)
        sent.began = time.monotonic()
        self.account.sent.append(sent)
        body: dict[str, Any] = {
            "model": self.team,
            "thread_id": self._place,
            "messages": [{"role": "user", "content": sent.text}],
            "on_busy": policy,
        }
        if way == "background":
            body["background"] = True
        else:
            body["stream"] = way == "stream"
            body["on_disconnect"] = "cancel" if cancel_on_leave else "continue"
        headers = {**self._key, "Idempotency-Key": f"{self.thread}-{self._number}"}
        try:
            async with asyncio.timeout(PATIENCE):
                while not sent.refused:
                    base = await self._world.pick(self._chance)
                    try:
                        if await self._try(base, body, headers, sent, cancel_on_leave=cancel_on_leave):
                            break
                    except _AWAY:
                        # The server cannot tell a connection that broke, or was silent for too long, from one that was
                        # left; a run that has not begun is then dropped.
                        sent.withdrawn = sent.withdrawn or cancel_on_leave
                    if sent.acknowledged:
                        break  # its log tells the rest
                    await self._pause()
        except TimeoutError:
            stands = await self._stands(sent.run_id)
            self._stuck(f"{sent.text} ({way}) was not answered in {PATIENCE:.0f} s; {stands}", sent.run_id)
        return sent.run_id

    async def _try(
        self, base: str, body: dict[str, Any], headers: dict[str, str], sent: Sent, *, cancel_on_leave: bool
    ) -> bool:
        """One attempt. False: it is to be made again."""
        url = f"{base}/v1/chat/completions"
        async with self._http.stream("POST", url, json=body, headers=headers) as response:
            run_id = response.headers.get("x-run-id")
            if response.status_code >= 400 and run_id is None:
                await response.aread()
                if response.status_code == 503:
                    self.away += 1
                    return False
                sent.refused = f"{response.status_code} {response.text[:200]}"
                if response.status_code != 409:
                    self._stuck(f"refused: {sent.refused}", None)
                return True
            assert run_id is not None, response.headers
            if sent.run_id not in (None, run_id):
                self._stuck(f"one key, two runs: {sent.run_id}", run_id)
            if not sent.acknowledged:
                sent.taken = time.monotonic()
            sent.run_id, sent.acknowledged = run_id, True
            self._begun()
            if not body.get("stream"):
                await response.aread()
                if response.status_code == 200:
                    self._note(run_id, response.json()["drsai"])
                return True
            async for frame in frames(response):
                if self._leaves and self._chance.random() < self._leaves:
                    self.left += 1
                    sent.withdrawn = sent.withdrawn or cancel_on_leave
                    return True
                if frame.data == "[DONE]":
                    return True
                data = json.loads(frame.data)
                if "drsai" in data:
                    self._note(run_id, data["drsai"])
        return True

    def _note(self, run_id: str, details: dict[str, Any]) -> None:
        for item in details.get("messages", ()):  # other frames say who speaks
            self.account.told.append(Told(item["seq"], item["source"], item["content"], run_id))

    def _stuck(self, what: str, run_id: str | None) -> None:
        self.account.stuck.append(Broken(what, self.thread, run_id))

    # --- logs -----------------------------------------------------------------------------------------------------

    async def follow(self, run_id: str, *, answer: bool = True) -> str:
        """Read a run's log to its end, from whichever servers, and answer its questions (`answer`). Returns the
        status that it ended with. A log that tells nothing new for `PATIENCE` is stuck."""
        log: list[Read] = []
        self.account.read.append(log)
        connection, status = 0, ""
        question: dict[str, Any] | None = None
        told = 0
        try:
            async with asyncio.timeout(PATIENCE) as patience:
                while True:
                    connection += 1
                    base = await self._world.pick(self._chance)
                    status, question = await self._read(base, run_id, log, connection, question)
                    # Who kills its processes one after the other, before it ends, keeps it from ending.
                    if len(log) > told:
                        told = len(log)
                        patience.reschedule(asyncio.get_running_loop().time() + PATIENCE)
                    if status == "awaiting_input" and answer:
                        if question is None:
                            # Read before the answer was lost with its server.
                            run = await self.request("GET", f"/v1/runs/{run_id}")
                            question = run["input_request"] if run["status"] == "awaiting_input" else None
                        if question is not None:
                            await self.answer(question)
                        question = None
                        await self._pause()
                    elif status:
                        return status
                    else:
                        await self._pause()
        except TimeoutError:
            at, stands = log[-1].id if log else "its beginning", await self._stands(run_id)
            self._stuck(f"the log told nothing in {PATIENCE:.0f} s, at {at}; {stands}", run_id)
            return ""

    async def _stands(self, run_id: str | None) -> str:
        """What servers say of a run and its thread now, for whoever looks for the fault."""
        said: list[str] = []
        for path in (*([f"/v1/runs/{run_id}"] if run_id else []), f"/v1/threads/{self._place}"):
            try:
                said.append(f"GET {path}: {json.dumps(await self.request('GET', path))[:1000]}")
            except (Refused, TimeoutError) as error:
                said.append(f"GET {path}: {error}")
        return "; ".join(said)

    async def _read(
        self, base: str, run_id: str, log: list[Read], connection: int, question: dict[str, Any] | None
    ) -> tuple[str, dict[str, Any] | None]:
        """One connection. Returns the status of an end that was read, else "", and the last question that was."""
        headers = {**self._key, "Last-Event-ID": log[-1].id} if log else self._key
        url = f"{base}/v1/runs/{run_id}/events"
        try:
            async with self._http.stream("GET", url, headers=headers) as response:
                if response.status_code == 204:
                    run = await self.request("GET", f"/v1/runs/{run_id}")
                    return run["status"], question
                if response.status_code != 200:
                    await response.aread()
                    if response.status_code == 404:
                        self._stuck("an acknowledged run is not there", run_id)
                        return "lost", question
                    return "", question
                async for frame in frames(response):
                    if not frame.id:
                        return "", question  # the stream broke off
                    data = json.loads(frame.data)
                    if frame.name == "input_request":
                        question = data["input_request"]
                    log.append(_as_read(frame, data, connection, base))
                    if frame.name == "message":
                        told = Told(data["seq"], data["source"], data["content"], run_id)
                        self.account.told.append(told)
                    if frame.name == "end":
                        return data["status"], question
                    if self._leaves and self._chance.random() < self._leaves:
                        self.left += 1
                        return "", question
        except _AWAY:
            pass
        return "", question

    # --- a person's part ------------------------------------------------------------------------------------------

    async def answer(self, question: dict[str, Any]) -> None:
        """Answer a question: text, or about a tool call whatever chance says."""
        body: dict[str, Any] = {"id": question["id"]}
        sent = None
        if question["type"] == "approval":
            self.account.asked += 1
            decision = weighted(self._chance, (("run", 2), ("result", 2), ("stop", 1)))
            body["decision"] = decision
            token = (question["tool"] or {}).get("arguments", {}).get("token", "")
            if decision == "run":
                self.account.allowed[token] += 1
            elif decision == "result":
                body["text"] = f"the result of {token}"
        else:
            self._number += 1
            sent = Sent(f"[{self.thread}.{self._number}] This is what I want.", "answer")
            self.account.sent.append(sent)
            body["text"] = sent.text
        try:
            run = await self.request("POST", f"/v1/threads/{self._place}/input", body)
        except Refused as refusal:
            # An attempt before, whose answer was cut off, was taken; or the run was stopped by others.
            if refusal.status != 409:
                self._stuck(f"an answer was refused: {refusal}", None)
            return
        if sent is not None:
            sent.run_id, sent.acknowledged = run["id"], True

    async def control(self, name: str) -> bool:
        """Cancel, pause or resume the thread. False: there was nothing to do it to."""
        try:
            await self.request("POST", f"/v1/threads/{self._place}/{name}", {})
        except Refused as refusal:
            if refusal.status not in (404, 409):
                self._stuck(f"{name} was refused: {refusal}", None)
            return False
        return True

    async def tend(self) -> bool:
        """Answer the thread's question, or resume it. Returns whether everything on it has ended."""
        try:
            thread = await self.request("GET", f"/v1/threads/{self._place}")
        except Refused as refusal:
            if refusal.status != 404:  # nothing was ever stored
                self._stuck(f"its state was not told: {refusal}", None)
            return True
        if thread["status"] == "awaiting_input" and thread["input_request"] is not None:
            await self.answer(thread["input_request"])
        elif thread["status"] == "paused":
            await self.control("resume")
        return thread["status"] in FINAL and not thread["queued"]

    async def come_to_rest(self) -> None:
        """Answer and resume until everything on the thread has ended."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not await self.tend():  # noqa: ASYNC110  # others bring it to rest
                    await asyncio.sleep(self._chance.uniform(0.1, 0.3))
        except TimeoutError:
            self._stuck(f"the thread did not come to rest in {PATIENCE:.0f} s", None)


def _as_read(frame: Frame, data: dict[str, Any], connection: int, place: str) -> Read:
    return Read(
        id=frame.id,
        name=frame.name,
        connection=connection,
        place=place,
        run_id=data["run_id"],
        seq=data.get("seq", 0),
        source=data.get("source", ""),
        text=data.get("text") or data.get("content") or "",
        message_id=data.get("message_id") or data.get("message", {}).get("id") or "",
        attempt=data.get("attempt", 0),
    )
