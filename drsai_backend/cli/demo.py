"""The demo (`drsai demo`) shows a group chat, its process killed in the middle of a run, and another process that
resumes the run.

Nothing is acted. This process starts two others (this module, run as a program) one after the other and shares nothing
with them but a database; what it says about the thread it reads from there. Each of the others reads one JSON object
from standard input (`database_url`, `thread_id`, `tasks`; null stands for the run that is under way there) and writes
one per line: `opened`, `started` with the attempt, `piece` of an answer, `ended`, or `failed`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from rich.markup import escape
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from drsai_backend.access.principal import Principal
from drsai_backend.api.openai.speech import Piece, Speech
from drsai_backend.cli.database import opened, show_url
from drsai_backend.cli.screen import Colours, make_console, make_transcript
from drsai_backend.config import Settings
from drsai_backend.datamodel import AutoGenMessage, JournalEntry, Thread
from drsai_backend.drsai import DrSai
from drsai_backend.errors import DrSaiError, RunFailed
from drsai_backend.json_types import JsonObject
from drsai_backend.runs import Position, RunEnded, RunEvent, RunStarted
from drsai_backend.runs.events import ENDED
from drsai_backend.state import decode_state
from drsai_backend.sync import SyncDrSai

USER: Final = "demo"
FIRST: Final = "Write a few lines about rivers."
SECOND: Final = "Now a few lines about rivers in winter."
WORDS_BEFORE_THE_KILL: Final = 7
SECONDS_PER_WORD: Final = 0.07
_CUT_IS_SEEN: Final = 0.8


def demo(database_url: str | None) -> None:
    # This process has nothing to log; the others send what they have to say.
    logging.getLogger().addHandler(logging.NullHandler())
    with ExitStack() as stack:
        if database_url is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="drsai-demo-")))
            database_url = f"sqlite:///{folder / 'demo.db'}"
        _Demo(stack.enter_context(opened(database_url, must_exist=False))).play()


class _Demo:
    def __init__(self, drsai: SyncDrSai) -> None:
        self._drsai = drsai
        self._thread_id = f"demo_{secrets.token_hex(8)}"
        self._console = make_console()
        self._colours = Colours()

    def play(self) -> None:
        self._say(
            "A writer and a reviewer work on a text. In the middle of it their process is killed; another process, "
            "which shares nothing with it but a database, resumes the same run."
        )
        database = escape(show_url(self._drsai.drsai.database))
        self._say(f"[dim]database  {database}\nthread    {escape(self._thread_id)}[/]")
        self._say("[dim]model     offline demo model: fixed rules, no language model[/]", gap=False)
        self._title("1  The first process")
        self._first_process()
        self._title("2  What the database holds now")
        before = self._what_is_stored()
        self._title("3  The second process")
        self._second_process()
        self._title("4  The thread, as stored")
        self._whole_thread(before)

    # --- the acts -----------------------------------------------------------------------------------------------

    def _first_process(self) -> None:
        transcript = make_transcript(self._console)
        with self._process(FIRST) as process, transcript.answering():
            words: list[str] = []
            for event in _events(process):
                if event["type"] == "opened":
                    self._console.print()
                    transcript.user(FIRST)
                elif event["type"] == "piece":
                    transcript.piece(Piece(event["source"], event["text"]))
                    words.append(event["source"])
                    if words[-WORDS_BEFORE_THE_KILL:] == ["reviewer"] * WORDS_BEFORE_THE_KILL:
                        process.kill()  # SIGKILL: it gets no chance to do anything more.
                        break
                elif event["type"] == "ended":
                    raise RunFailed(f"the first process came to an end by itself: {event}")
        self._console.print(f"\n[bold red]kill -9 {process.pid}[/]  in the middle of the reviewer's sentence.")
        time.sleep(_CUT_IS_SEEN)

    def _what_is_stored(self) -> dict[str, list[tuple[str, str]]]:
        """Returns what each agent remembered when its process had been killed."""
        thread = self._thread()
        self._say(
            f"The thread's status is [cyan]{thread.status.value}[/]: nobody was left to change it. Stored are\n",
            gap=False,
        )
        self._print_messages()
        self._say(
            f"Turn {thread.turn} was finished and is stored; what the reviewer had begun to say is not. "
            "What each agent remembers is stored with the turn:"
        )
        memories = _memories(thread)
        for name, lines in memories.items():
            self._say(f"  [bold {self._colours.of(name)}]{escape(name)}[/] remembers")
            for source, text in lines:
                self._console.print(Text(f"    {source}: {' '.join(text.split())}"), no_wrap=True, overflow="ellipsis")
        return memories

    def _second_process(self) -> None:
        transcript = make_transcript(self._console)
        # An answer is shown to its end before something else is printed.
        with self._process(None, SECOND) as process, ExitStack() as answer:
            for event in _events(process):
                if event["type"] == "started" and event["attempt"] > 1:
                    self._say(
                        "[dim]It opened the database, found that the process of the run is gone, and resumes the run "
                        f"(attempt {event['attempt']}): it is the reviewer's turn.[/]\n",
                        gap=False,
                    )
                elif event["type"] == "started":
                    self._say("The next message of the user, on the same thread:\n")
                    transcript.user(SECOND)
                if event["type"] == "started":
                    answer.enter_context(transcript.answering())
                elif event["type"] == "ended":
                    answer.close()
                    if event["status"] != "completed":
                        raise RunFailed(f"the second process did not get to an end: {event.get('error_message')}")
                elif event["type"] == "piece":
                    transcript.piece(Piece(event["source"], event["text"]))

    def _whole_thread(self, before: dict[str, list[tuple[str, str]]]) -> None:
        thread = self._thread()
        self._print_messages(whole=True)
        self._say(
            f"Status [green]{thread.status.value}[/]: {thread.last_seq} messages, each stored once, "
            f"in {thread.turn} turns."
        )
        for name, lines in _memories(thread).items():
            kept = sum(line in before.get(name, []) for line in lines)
            self._say(
                f"[bold {self._colours.of(name)}]{escape(name)}[/] remembers {len(lines)} of them, "
                f"{kept} from before the kill.",
                gap=False,
            )

    @contextmanager
    def _process(self, *tasks: str | None) -> Generator[subprocess.Popen[str]]:
        """Another process, which has got its order and is gone in the end."""
        url = self._drsai.drsai.database.url
        # By standard input, as a database URL may hold a password and everybody may read a command line.
        order = json.dumps({"database_url": url, "thread_id": self._thread_id, "tasks": tasks})
        pipe = subprocess.PIPE
        program = [sys.executable, "-m", __name__]
        with subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
            assert process.stdin is not None
            self._say(f"[dim]Process {process.pid} starts.[/]", gap=False)
            try:
                process.stdin.write(order)
                process.stdin.close()
                yield process
            finally:
                process.kill()

    # --- what is stored -----------------------------------------------------------------------------------------

    def _thread(self) -> Thread:
        filters = {"user_id": USER, "thread_id": self._thread_id}
        return self._drsai.db.get(Thread, filters, load_messages=False)[0]

    def _print_messages(self, *, whole: bool = False) -> None:
        """Print the stored messages with the turns that they were stored in: a user's message has none."""
        rows = self._drsai.db.get(AutoGenMessage, {"user_id": USER, "thread_id": self._thread_id}, order="seq")
        turns = self._drsai.db.get(JournalEntry, {"thread_key": rows[0].thread_key}, order="turn")
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
            label = "" if turn is None or source == "user" else f"  turn {turn.turn}"
            speaker = Text(source, f"bold {self._colours.of(source)}")
            table.add_row(label, speaker, Text(content, no_wrap=not whole, overflow="ellipsis"))
        self._console.print(table)

    # --- words --------------------------------------------------------------------------------------------------

    def _title(self, text: str) -> None:
        self._console.print("", Rule(f"[bold]{text}[/]", align="left", style="dim"), "")

    def _say(self, text: str, *, gap: bool = True) -> None:
        self._console.print("\n" * gap + text)


def _memories(thread: Thread) -> dict[str, list[tuple[str, str]]]:
    """Return what each agent of a thread knows: (source, text) of the messages in its model context, and of those that
    it was sent and has not been asked about yet."""
    found: dict[str, list[tuple[str, str]]] = {}
    agents: JsonObject = decode_state(thread.state or "").get("agent_states", {})
    for name, holder in agents.items():
        context = holder.get("agent_state", {}).get("llm_context")
        if context is not None:
            messages: list[JsonObject] = [*context["messages"], *holder["message_buffer"]]
            found[name] = [(str(message.get("source")), str(message.get("content"))) for message in messages]
    return found


def _events(process: subprocess.Popen[str]) -> Iterator[JsonObject]:
    """Yield what a process tells, line by line. Raises `DrSaiError`: it failed."""
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        event = json.loads(line)
        if event["type"] == "failed":
            raise DrSaiError(event["message"])
        yield event
    if process.wait() != 0:
        words = process.stderr.read().strip().splitlines()
        raise RunFailed(f"the demo's process ended with {process.returncode}: {words[-1] if words else ''}")


# --- the other processes --------------------------------------------------------------------------------------------


def _main() -> None:
    logging.getLogger().addHandler(logging.NullHandler())
    try:
        asyncio.run(_work(**json.loads(sys.stdin.read())))
    except DrSaiError as error:
        _tell("failed", message=error.message)


async def _work(database_url: str, thread_id: str, tasks: list[str | None]) -> None:
    settings = Settings(database_url=database_url, demo_delay=SECONDS_PER_WORD, require_model=False)
    # The demo shows a process, not a model: it costs nobody anything.
    settings = settings.model_copy(update={"openai_api_key": None, "openai_base_url": None})
    async with DrSai(settings=settings) as drsai:
        rows = await drsai.db.get(Thread, {"user_id": USER, "thread_id": thread_id}, load_messages=False)
        _tell("opened")
        for task in tasks:
            if task is None:
                # Opening has found the run and resumed it.
                at = Position(rows[0].last_seq, rows[0].epoch - 1, ENDED)
                log = drsai.engine.follow_run(Principal(USER), rows[0].run_id or "", at)
                await _tell_all(logged.event async for logged in log)
            else:
                handle = await drsai.user(USER).start("writers", task, thread_id=thread_id)
                await _tell_all(handle.events())


async def _tell_all(events: AsyncIterator[RunEvent]) -> None:
    speech = Speech(marks=True)
    async for event in events:
        if isinstance(event, RunStarted):
            _tell("started", attempt=event.attempt)
        for piece in speech.hear(event):
            _tell("piece", source=piece.source, text=piece.text)
        if isinstance(event, RunEnded):
            _tell("ended", status=event.status.value, error_message=event.error_message)


def _tell(kind: str, **values: object) -> None:
    print(json.dumps({"type": kind, **values}), flush=True)  # noqa: T201


if __name__ == "__main__":
    _main()
