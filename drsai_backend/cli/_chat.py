"""`drsai chat`: a conversation in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import shlex
import sys
from collections.abc import Iterator
from typing import Final

import openai
from rich.console import Console
from rich.markup import escape

from drsai_backend.cli._logging import configure_logging
from drsai_backend.cli._screen import in_line, make_console, print_error, print_rows
from drsai_backend.cli._settings import read_settings, show_url
from drsai_backend.cli._talk import Ended, LocalTalk, RemoteTalk, Talk, describe_api_error
from drsai_backend.cli._threads import print_list
from drsai_backend.cli._transcript import make_transcript
from drsai_backend.database import Database
from drsai_backend.datamodel import RunStatus
from drsai_backend.drsai import DrSai
from drsai_backend.errors import ConfigurationError, UnknownModel
from drsai_backend.teams.registry import load_teams

HELP: Final = """\
  /threads   your latest conversations
  /help      this
  /quit      end (Ctrl-D does too)
  Ctrl-C     stops an answer"""
_LISTED: Final = 10


def chat(
    *,
    model: str | None,
    thread_id: str | None,
    teams: str | None,
    database_url: str | None,
    base_url: str | None,
    user_id: str,
) -> None:
    """Talk until the input ends. Exits with 1 when the input is no terminal and a message had no answer.

    Raises:
        ConfigurationError: options that exclude each other, settings or teams that cannot be used, no such server.
        UnknownModel, DatabaseError: as `DrSai`.
    """
    if base_url is not None and (teams is not None or database_url is not None):
        raise ConfigurationError("--base-url talks to a server, which has its own teams and database")
    with asyncio.Runner() as runner:
        if base_url is not None:
            talk: Talk = RemoteTalk(_checked(base_url), user_id)
        else:
            talk = runner.run(_local(teams, database_url, user_id))
        options = {
            "--base-url": base_url,
            "--database-url": None if database_url is None else Database(database_url).url_safe,
            "--teams": teams,
        }
        options["--user"] = user_id if user_id != "anonymous" else None
        chat = _Chat(runner, talk, {name: value for name, value in options.items() if value is not None})
        try:
            failed = chat.run(model, thread_id)
        except openai.APIError as error:
            raise ConfigurationError(describe_api_error(error, base_url or "")) from None
        finally:
            runner.run(talk.close())
    if failed and not sys.stdin.isatty():
        sys.exit(1)


async def _local(teams: str | None, database_url: str | None, user_id: str) -> Talk:
    settings = read_settings(database_url=database_url)
    if settings.log_level == "DEBUG":
        configure_logging(settings)
    else:
        # Python prints warnings of a program without logging, in the middle of the conversation.
        logging.getLogger().addHandler(logging.NullHandler())
    drsai = DrSai(None if teams is None else load_teams(teams), settings=settings)
    await drsai.open()
    return LocalTalk(drsai, drsai.engine.teams.names(), show_url(drsai.database), user_id)


class _Chat:
    """One conversation. `options` are repeated where it is said how to go on with it."""

    def __init__(self, runner: asyncio.Runner, talk: Talk, options: dict[str, str]) -> None:
        self._runner = runner
        self._talk = talk
        self._options = options
        self._console = make_console()
        self._transcript = make_transcript(self._console)
        self._failed = False

    def run(self, model: str | None, thread_id: str | None) -> bool:
        """Answer message after message. True when one of them failed."""
        model = self._begin(model, thread_id)
        for text in _lines(self._console):
            if text.startswith("/"):
                if text in ("/quit", "/exit", "/q"):
                    break
                self._command(text)
                continue
            if not sys.stdin.isatty():
                self._transcript.user(text)
            self._ended(self._runner.run(self._answer(model, text)))
        self._farewell()
        return self._failed

    def _begin(self, model: str | None, thread_id: str | None) -> str:
        models = self._runner.run(self._talk.models())
        resumed = None if thread_id is None else self._runner.run(self._talk.resume(thread_id))
        if model is None:
            model = resumed.team if resumed is not None and resumed.team is not None else models[0]
        if model not in models:
            raise UnknownModel(f"unknown model {model!r}; available: {', '.join(models)}")
        others = [name for name in models if name != model]
        also = f"  [dim](also there: {in_line(', '.join(others))})[/]" if others else ""
        rows = [("model", f"[bold green]{in_line(model)}[/]{also}")]
        rows += [(label, in_line(value)) for label, value in self._runner.run(self._talk.where())]
        if resumed is not None:
            title = f": “{in_line(resumed.title)}”" if resumed.title else ""
            rows.append(("thread", f"{in_line(thread_id or '')}, {resumed.messages} messages{title}"))
        elif thread_id is not None:
            rows.append(("thread", f"{in_line(thread_id)} [dim](new)[/]"))
        print_rows(self._console, rows, indent=0)
        if sys.stdin.isatty():
            self._console.print("[dim]/help shows the commands, Ctrl-D ends.[/]")
        self._console.print()
        if resumed is not None and resumed.question:
            self._console.print(f"[yellow]You were asked:[/] {escape(resumed.question)}\n")
        return model

    async def _answer(self, model: str, text: str) -> Ended:
        showing = asyncio.create_task(self._show(model, text))
        try:
            await asyncio.wait([showing])
        except asyncio.CancelledError:  # Ctrl-C
            task = asyncio.current_task()
            assert task is not None
            task.uncancel()
            if not await self._talk.stop():
                showing.cancel()
            await asyncio.wait([showing])
        if showing.cancelled():
            return Ended(RunStatus.RUNNING, self._talk.thread_id)
        return showing.result()

    async def _show(self, model: str, text: str) -> Ended:
        ended: Ended | None = None
        with self._transcript.answering():
            async for item in self._talk.say(model, text):
                if isinstance(item, Ended):
                    ended = item
                else:
                    self._transcript.piece(item)
        assert ended is not None
        return ended

    def _ended(self, ended: Ended) -> None:
        if ended.error is not None:
            self._failed = True
            print_error(ended.error)
        elif ended.status is RunStatus.STOPPED:
            self._console.print("[yellow]Stopped.[/] [dim]What was finished is kept.[/]")
        elif ended.status is RunStatus.RUNNING:
            self._console.print(
                "[yellow]Left.[/] [dim]The server goes on with the run; the thread keeps its answer.[/]"
            )
        elif ended.status is RunStatus.AWAITING_INPUT:
            self._console.print("[yellow]Your next message is the answer.[/]")
        self._console.print()

    def _command(self, text: str) -> None:
        if text == "/help":
            self._console.print(HELP)
        elif text == "/threads":
            threads = self._runner.run(self._talk.threads(_LISTED))
            if threads:
                print_list(self._console, threads)
            else:
                self._console.print("There are none yet.")
        else:
            self._console.print(f"There is no {in_line(text.split()[0])}.\n{HELP}")
        self._console.print()

    def _farewell(self) -> None:
        if self._talk.thread_id is None:
            return
        words = ["drsai", "chat", "--thread", self._talk.thread_id]
        for name, value in self._options.items():
            words += [name, value]
        self._console.print("[dim]Go on with this conversation:[/]")
        self._console.print(f"  {shlex.join(words)}", markup=False, soft_wrap=True)


def _lines(console: Console) -> Iterator[str]:
    """The messages: what is typed, or the lines of a file or pipe. Empty ones are none."""
    if not sys.stdin.isatty():
        for line in sys.stdin:
            if line.strip():
                yield line.strip()
        return
    with contextlib.suppress(ImportError):
        importlib.import_module("readline")  # gives input() editing and history
    # readline has to know which characters of a prompt take no room.
    prompt = "\001\033[1;96m\002you >\001\033[0m\002 " if console.color_system else "you> "
    while True:
        try:
            line = input(prompt).strip()
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print("\n[dim]Ctrl-D or /quit ends.[/]")
            continue
        if line:
            yield line


def _checked(base_url: str) -> str:
    if not base_url.startswith(("http://", "https://")):
        raise ConfigurationError("--base-url must start with http:// or https://")
    return base_url.rstrip("/")
