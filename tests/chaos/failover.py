"""A failover to a standby that is behind, under servers with warm threads and live runs: whose thread a row key is, its
epoch and its turn come again for other users. Nothing of one user is in another's thread, or in a model call of theirs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx

from drsai_backend.database import migrations
from tests.chaos.checks import Broken
from tests.chaos.databases import query
from tests.chaos.report import Outcome
from tests.chaos.world import QUICK, TEAMS
from tests.support.commands import Command, Commands
from tests.support.model_server import ModelRequest, ModelServer
from tests.support.standby import Pair

_TAG: Final = re.compile(r"\[(\w+)\.\d+\]")
_HELD: Final = "and wait"
_PATIENCE: Final = 60.0
_LATE: Final = "SELECT id FROM thread WHERE user_id LIKE 'late%'"
_NEW: Final = "SELECT id FROM thread WHERE user_id LIKE 'new%'"

INVARIANTS: Final = {
    "a message is of its thread's user": """
        SELECT t.thread_id, m.seq FROM autogenmessage m JOIN thread t ON t.id = m.thread_key
        WHERE (m.tenant, m.user_id, m.thread_id) IS DISTINCT FROM (t.tenant, t.user_id, t.thread_id)
            OR substring(m.config->>'content' FROM '\\[(\\w+)\\.') IS DISTINCT FROM t.user_id
    """,
    "messages are numbered 1 to the thread's last": """
        SELECT t.thread_id, t.last_seq FROM thread t LEFT JOIN autogenmessage m ON m.thread_key = t.id
        GROUP BY t.id HAVING count(m.id) <> t.last_seq OR coalesce(max(m.seq), 0) <> t.last_seq
    """,
    "turns are numbered 1 to the thread's last": """
        SELECT t.thread_id, t.turn FROM thread t LEFT JOIN journalentry j ON j.thread_key = t.id
        GROUP BY t.id HAVING count(j.turn) <> t.turn OR coalesce(max(j.turn), 0) <> t.turn
    """,
    "what names a run is of that run's thread": """
        SELECT m.thread_key, m.run_id FROM (SELECT thread_key, run_id FROM autogenmessage
            UNION SELECT thread_key, run_id FROM journalentry UNION SELECT thread_key, run_id FROM turnstep
            UNION SELECT id, run_id FROM thread UNION SELECT thread_key, run_id FROM queuedinput) m
        LEFT JOIN run r ON r.run_id = m.run_id AND r.thread_key = m.thread_key WHERE r.run_id IS NULL
    """,
    "all is over": """
        SELECT t.thread_id, t.status, r.status FROM run r JOIN thread t ON t.id = r.thread_key
        WHERE r.status <> 'completed' OR t.status <> 'completed' OR r.finished_at IS NULL OR t.lease_owner IS NOT NULL
    """,
    "nothing waits": """
        SELECT t.thread_id, t.queued FROM thread t WHERE t.queued > 0 OR EXISTS (
            SELECT FROM queuedinput q WHERE q.thread_key = t.id) OR EXISTS (
            SELECT FROM turnstep s WHERE s.thread_key = t.id)
    """,
}
"""Queries of the rows that break them, once everything has come to rest."""


class Models:
    """A model server that says whose question it answers, and holds answers back until it is told to `release` them."""

    def __init__(self) -> None:
        self.server = ModelServer(strict=False)
        self.server.script(None, self._answer)
        self.mixed: list[set[str]] = []
        self._released = False

    async def _answer(self, request: ModelRequest) -> str:
        texts = [str(message.get("content")) for message in request.messages]
        users = {user for text in texts for user in _TAG.findall(text)}
        if len(users) != 1:
            self.mixed.append(users)
        while _HELD in texts[-1] and not self._released:  # noqa: ASYNC110 - the server has a loop of its own
            await asyncio.sleep(0.02)
        return f"Yes, [{'.0] ['.join(users)}.0]."

    def release(self) -> None:
        self._released = True


class FailingOver:
    """Servers on a primary whose standby takes its place.

    Args:
        users: of each kind: `old` ones were there before replication stopped, `late` ones came after that and are
            forgotten by the standby, `new` ones come after the failover.
        servers: processes.
    """

    def __init__(self, pair: Pair, commands: Commands, folder: Path, *, users: int, servers: int = 3) -> None:
        self._pair, self._commands, self._folder = pair, commands, folder
        self._users, self._servers = users, servers
        self._models = Models()
        self._sent: dict[str, int] = {}
        self._kept: set[tuple[str, str]] = set()
        self._http: httpx.AsyncClient
        self._bases: list[str] = []
        self.outcome = Outcome("failover, postgresql")

    async def run(self) -> Outcome:
        """All of it."""
        migrations.upgrade(self._pair.url)
        async with httpx.AsyncClient(timeout=_PATIENCE) as self._http:
            with self._models.server:
                started = [self._start() for _ in range(self._servers)]
                self._bases = [await asyncio.to_thread(each.base_url) for each in started]
                try:
                    await self._scenario()
                finally:
                    for each in started:
                        await asyncio.to_thread(each.die)
                self._judge(started)
        return self.outcome

    def _start(self) -> Command:
        environment = {
            "OPENAI_BASE_URL": self._models.server.base_url,
            "OPENAI_API_KEY": "unused",
            "DRSAI_DATABASE_URL": self._pair.url,
            "CHAOS_TOOLS": str(self._folder / "tools.jsonl"),
            **QUICK,
        }
        return self._commands.start("serve", str(TEAMS), "--port", "0", cwd=self._folder, env=environment)

    async def _scenario(self) -> None:
        old, late, new = ([f"{kind}{number}" for number in range(self._users)] for kind in ("old", "late", "new"))
        await self._ask(old)
        await self._ask(old)
        # One of them has a run under way that both servers know, and two later ones have runs that one knows.
        live = [asyncio.create_task(self._ask(["oldlive"], _HELD))]
        await self._until_live(1)
        await asyncio.to_thread(self._pair.cut)
        await self._ask(late)
        await self._ask([*old, *late])
        live.append(asyncio.create_task(self._ask(["latelive0", "latelive1"], _HELD, may_fail=True)))
        await self._until_live(3)
        self._kept.clear()  # Of what the primary alone has, nothing is left.
        lost = await asyncio.to_thread(query, self._pair.url, _LATE)
        await asyncio.to_thread(self._pair.fail_over)
        # In the order of the late ones, which gives them their keys; from other servers than those that are warm.
        await self._ask(new, shift=1)
        await self._ask(new, shift=1)
        live.append(asyncio.create_task(self._ask(["newlive0", "newlive1"], _HELD, shift=1)))
        await self._until_live(3)
        self._models.release()
        await asyncio.gather(*live)
        for shift in (0, 1):
            await self._ask([*old, *late, *new], shift=shift)
        await self._ask(["oldlive", "latelive0", "latelive1", "newlive0", "newlive1"])
        again = await asyncio.to_thread(query, self._pair.url, _NEW)
        self.outcome.figures["keys that came again"] = sum(row in again for row in lost)
        await self._until_live(0)

    async def _until_live(self, count: int) -> None:
        """Until so many runs are live."""
        async with asyncio.timeout(_PATIENCE):
            while True:
                rows = await asyncio.to_thread(query, self._pair.url, "SELECT 1 FROM run WHERE status = 'running'")
                if len(rows) == count:
                    return
                await asyncio.sleep(0.05)

    async def _ask(self, users: Sequence[str], more: str = "", *, shift: int = 0, may_fail: bool = False) -> None:
        """Each of the users says the next thing, one after the other; each to the server of their own, or `shift` ones
        further. `may_fail`: the run may be lost with the primary."""
        asked = [self._say(user, f"[{user}.{self._next(user)}] hello {more}", shift, may_fail) for user in users]
        if more:
            await asyncio.gather(*asked)
        else:
            for each in asked:
                await each

    def _next(self, user: str) -> int:
        self._sent[user] = self._sent.get(user, 0) + 1
        return self._sent[user]

    async def _say(self, user: str, text: str, shift: int, may_fail: bool) -> None:
        base = self._bases[(int(re.sub(r"\D", "", user) or 0) + shift) % len(self._bases)]
        body = {"model": "solo", "user": user, "thread_id": user, "messages": [{"role": "user", "content": text}]}
        async with asyncio.timeout(_PATIENCE):
            while True:
                answer = await self._http.post(f"{base}/chat/completions", json=body)
                self.outcome.add(f"answers {answer.status_code}")
                if answer.is_success or may_fail:
                    break
                assert answer.status_code == 503, answer.text
                await asyncio.sleep(0.1)
        if answer.is_success:
            self._kept.add((user, text.strip()))
            said = answer.json()["choices"][0]["message"]["content"]
            if _TAG.findall(said) != [user]:
                self.outcome.broken.append(Broken(f"{user} was answered {said!r}", user))

    def _judge(self, started: Sequence[Command]) -> None:
        """What is stored, and what models were shown."""
        url, outcome = self._pair.url, self.outcome
        outcome.figures["threads"] = len(query(url, "SELECT 1 FROM thread"))
        outcome.figures["runs"] = len(query(url, "SELECT 1 FROM run"))
        outcome.figures["model calls"] = len(self._models.server.requests)
        outcome.broken += [Broken(f"a model was shown words of {sorted(users)}", "-") for users in self._models.mixed]
        for what, rows in ((what, query(url, statement)) for what, statement in INVARIANTS.items()):
            outcome.broken += [Broken(f"not so: {what}: {row}", "-") for row in rows[:5]]
        said = "SELECT user_id, config->>'content' AS text FROM autogenmessage WHERE config->>'source' = 'user'"
        stored: list[Any] = [(row["user_id"], row["text"].strip()) for row in query(url, said)]
        outcome.broken += [Broken(f"{text!r} was answered and is lost", user) for user, text in self._kept - {*stored}]
        outcome.complain(line for each in started for line in _tracebacks(each.stderr))


def _tracebacks(log: str) -> list[str]:
    return [line for line in log.splitlines() if line.startswith("Traceback") or "internal_error" in line]
