"""`drsai demo`: a group chat, its process killed in the middle of a run, and another process that goes on.

Nothing is acted. This process starts two others (`_demo_worker`) one after the other and has nothing in common with
them but a database; what it says about the thread it reads from there.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from drsai_backend.api.openai.speech import Piece
from drsai_backend.cli._demo_worker import USER
from drsai_backend.cli._screen import Colours, make_console
from drsai_backend.cli._settings import named_database, show_url
from drsai_backend.cli._transcript import make_transcript
from drsai_backend.database import Database, DatabaseManager
from drsai_backend.datamodel import AutoGenMessage, JournalEntry, Thread
from drsai_backend.errors import DrSaiError, RunFailed
from drsai_backend.runs._identity import new_thread_id
from drsai_backend.state import decode_state
from drsai_backend.state.store import JournalStateStore

FIRST: Final = "Write a few lines about rivers."
SECOND: Final = "Now a few lines about rivers in winter."
WORDS_BEFORE_THE_KILL: Final = 7
_CUT_IS_SEEN: Final = 0.8


def demo(database_url: str | None) -> None:
    """Run the demo.

    Raises:
        DatabaseError: the database of `--database-url` cannot be used.
        RunFailed: one of the processes did something that the demo does not expect.
    """
    # Of this process there is nothing to log; the others send what they have to say.
    logging.getLogger().addHandler(logging.NullHandler())
    with ExitStack() as stack:
        if database_url is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drsai-demo-")))
            database_url = f"sqlite:///{folder / 'demo.db'}"
        database = stack.enter_context(_closing(named_database(database_url, must_exist=False)))
        db = DatabaseManager(database=database, state_store=JournalStateStore())
        db.ensure_schema_sync()
        _Demo(make_console(), db, database, new_thread_id()).play()


class _Demo:
    def __init__(self, console: Console, db: DatabaseManager, database: Database, thread_id: str) -> None:
        self._console = console
        self._db = db
        self._database = database
        self._thread_id = thread_id
        self._colours = Colours()
        self._before: dict[str, list[tuple[str, str]]] = {}
        """What each agent remembered when its process had been killed."""

    def play(self) -> None:
        say = self._say
        say(
            "A writer and a reviewer work on a text. In the middle of it their process is killed; another process, "
            "which shares nothing with it but a database, goes on with the same run."
        )
        say(f"[dim]database  {escape(show_url(self._database))}\nthread    {escape(self._thread_id)}[/]")
        say("[dim]model     offline demo model: fixed rules, no language model[/]", gap=False)
        self._first_process()
        self._what_is_stored()
        self._second_process()
        self._print_transcript()

    # --- the acts -----------------------------------------------------------------------------------------------

    def _first_process(self) -> None:
        self._title("1  The first process")
        transcript = make_transcript(self._console)
        with self._start([FIRST]) as worker, transcript.answering():
            spoken = 0
            speaking = ""
            for event in worker.events():
                if event["type"] == "opened":
                    self._console.print()
                    transcript.user(FIRST)
                elif event["type"] == "piece":
                    transcript.piece(Piece(event["source"], event["text"]))
                    if event["source"] != speaking:
                        speaking, spoken = event["source"], 0
                    spoken += 1
                    if speaking == "reviewer" and spoken >= WORDS_BEFORE_THE_KILL:
                        worker.kill()
                        break
                elif event["type"] == "ended":
                    raise RunFailed(f"the first process came to an end by itself: {event}")
        self._console.print(f"\n[bold red]kill -9 {worker.pid}[/]  in the middle of the reviewer's sentence.")
        time.sleep(_CUT_IS_SEEN)

    def _what_is_stored(self) -> None:
        self._title("2  What the database holds now")
        thread = self._thread()
        self._say(
            f"The thread's status is [cyan]{thread.status.value}[/]: nobody was left to change it. Stored are",
            gap=False,
        )
        self._console.print()
        self._messages()
        self._say(
            f"Turn {thread.turn} was finished and is stored; what the reviewer had begun to say is not. "
            "What each agent remembers is stored with the turn:"
        )
        self._before = memory(decode_state(thread.state or ""))
        for name, lines in self._before.items():
            self._console.print()
            self._console.print(f"  [bold {self._colours.of(name)}]{escape(name)}[/] remembers")
            for source, text in lines:
                self._console.print(Text(f"    {source}: {' '.join(text.split())}"), no_wrap=True, overflow="ellipsis")

    def _second_process(self) -> None:
        self._title("3  The second process")
        transcript = make_transcript(self._console)
        with self._start([None, SECOND]) as worker, transcript.answering():
            for event in worker.events():
                if event["type"] == "started" and event["attempt"] > 1:
                    self._say(
                        "[dim]It opened the database, found that the process of the run is gone, and goes on with the "
                        f"run (attempt {event['attempt']}): it is the reviewer's turn.[/]",
                        gap=False,
                    )
                    self._console.print()
                elif event["type"] == "started":
                    self._say("The next message of the user, on the same thread:")
                    self._console.print()
                    transcript.user(SECOND)
                elif event["type"] == "piece":
                    transcript.piece(Piece(event["source"], event["text"]))
                elif event["type"] == "ended" and event["status"] != "completed":
                    raise RunFailed(f"the second process did not get to an end: {event.get('error_message')}")

    def _print_transcript(self) -> None:
        self._title("4  The thread, as stored")
        thread = self._thread()
        self._messages(whole=True)
        self._say(
            f"Status [green]{thread.status.value}[/]: {thread.last_seq} messages, each stored once, "
            f"in {thread.turn} turns."
        )
        for name, lines in memory(decode_state(thread.state or "")).items():
            kept = sum(line in self._before.get(name, []) for line in lines)
            self._say(
                f"[bold {self._colours.of(name)}]{escape(name)}[/] remembers {len(lines)} of them, "
                f"{kept} from before the kill.",
                gap=False,
            )

    def _start(self, tasks: list[str | None]) -> _Worker:
        worker = _Worker(self._database, self._thread_id, tasks)
        self._say(f"[dim]Process {worker.pid} starts.[/]", gap=False)
        return worker

    # --- what is stored -----------------------------------------------------------------------------------------

    def _thread(self) -> Thread:
        filters = {"user_id": USER, "thread_id": self._thread_id}
        return self._db.sync.get(Thread, filters, load_messages=False)[0]

    def _messages(self, *, whole: bool = False) -> None:
        """The stored messages, with the turns that they were stored in. A user's message is stored before its turn."""
        filters = {"user_id": USER, "thread_id": self._thread_id}
        rows = self._db.sync.get(AutoGenMessage, filters, order="seq")
        turns = self._db.sync.get(JournalEntry, {"thread_key": rows[0].thread_key}, order="turn")
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="dim", no_wrap=True, min_width=9)
        table.add_column(no_wrap=True, min_width=max(len(str(row.config["source"])) for row in rows))
        table.add_column()
        before: JournalEntry | None = None
        for row in rows:
            source, content = str(row.config["source"]), " ".join(str(row.config["content"]).split())
            turn = next((turn for turn in turns if turn.first_seq <= (row.seq or 0) <= turn.last_seq), None)
            if turn is not None:
                if before is not None and turn.run_id == before.run_id and turn.epoch > before.epoch:
                    table.add_row("", "", "[dim]— killed here —[/]")
                before = turn
            label = "" if turn is None or source == "user" else f"turn {turn.turn}"
            table.add_row(
                f"  {label}",
                Text(source, f"bold {self._colours.of(source)}"),
                Text(content, no_wrap=not whole, overflow="ellipsis"),
            )
        self._console.print(table)

    # --- words --------------------------------------------------------------------------------------------------

    def _title(self, text: str) -> None:
        self._console.print()
        self._console.print(Rule(f"[bold]{text}[/]", align="left", style="dim"))
        self._console.print()

    def _say(self, text: str, *, gap: bool = True) -> None:
        if gap:
            self._console.print()
        self._console.print(text)


def memory(state: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    """What each agent of a saved state knows: (source, text) of the messages in its model context, and of those that
    it was sent and has not been asked about yet."""
    found: dict[str, list[tuple[str, str]]] = {}
    agents: dict[str, Any] = state.get("agent_states", {})
    for name, holder in agents.items():
        context = holder.get("agent_state", {}).get("llm_context")
        if context is not None:
            messages: list[dict[str, Any]] = [*context["messages"], *holder["message_buffer"]]
            found[name] = [(str(message.get("source")), str(message.get("content"))) for message in messages]
    return found


class _Worker:
    """A process of `_demo_worker`, and what it tells, line by line."""

    def __init__(self, database: Database, thread_id: str, tasks: list[str | None]) -> None:
        # By standard input, as a database URL may hold a password and everybody may read a command line.
        self._order = json.dumps({"database_url": database.url, "thread_id": thread_id, "tasks": tasks})
        self._process = subprocess.Popen(
            [sys.executable, "-m", "drsai_backend.cli._demo_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._process.pid

    def __enter__(self) -> _Worker:
        assert self._process.stdin is not None
        self._process.stdin.write(self._order)
        self._process.stdin.close()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def events(self) -> Generator[dict[str, Any]]:
        """Raises `DrSaiError`: the process failed."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            event = json.loads(line)
            if event["type"] == "failed":
                raise DrSaiError(event["message"])
            yield event
        if self._process.wait() != 0:
            assert self._process.stderr is not None
            words = self._process.stderr.read().strip().splitlines()
            raise RunFailed(f"the demo's process ended with {self._process.returncode}: {words[-1] if words else ''}")

    def kill(self) -> None:
        """SIGKILL: the process gets no chance to do anything more. Waits, so that its id is free."""
        self._process.kill()
        self._process.wait()


@contextmanager
def _closing(database: Database) -> Generator[Database]:
    try:
        yield database
    finally:
        database.close_sync()
