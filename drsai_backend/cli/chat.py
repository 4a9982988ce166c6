"""The chat (`drsai chat`) is a conversation in the terminal, with teams in this process or with a server."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import shlex
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, cast

import openai
from pydantic import SecretStr
from rich.console import Console
from rich.markup import escape

from drsai_backend.access.principal import ANONYMOUS
from drsai_backend.api.openai.speech import Piece, Speech
from drsai_backend.cli.database import read_settings, show_url
from drsai_backend.cli.logs import configure_logging
from drsai_backend.cli.screen import in_line, make_console, make_transcript, print_error, print_rows
from drsai_backend.database import Database
from drsai_backend.datamodel import RunStatus
from drsai_backend.datamodel.audit import By
from drsai_backend.datamodel.owner import DEFAULT_TENANT, Owner
from drsai_backend.definitions import load_all
from drsai_backend.drsai import DrSai
from drsai_backend.errors import ConfigurationError, Conflict, DrSaiError, NotFound, UnknownModel
from drsai_backend.features.extensions import means_of
from drsai_backend.features.threads.commands.threads import print_list
from drsai_backend.json_types import JsonObject, as_object
from drsai_backend.runs import RunEnded
from drsai_backend.runs.threads.views import ThreadDetail, ThreadSummary

HELP: Final = """\
  /threads   your latest conversations
  /help      this
  /quit      end (Ctrl-D does too)
  Ctrl-C     stops an answer"""
_LISTED: Final = 10


def chat(
    model: str | None,
    thread_id: str | None,
    *,
    teams: list[str] | None,
    database_url: str | None,
    base_url: str | None,
    user_id: str | None,
    tenant: str | None,
) -> None:
    """Talk until the input ends. Exits with 1 when the input is no terminal and a message had no answer."""
    if base_url is not None and (teams or database_url is not None):
        raise ConfigurationError("--base-url talks to a server, which has its own teams and database")
    if base_url is not None and tenant is not None:
        raise ConfigurationError("--base-url talks to a server, which knows the tenant by the key in DRSAI_API_KEY")
    options = (
        ("--base-url", base_url),
        ("--database-url", None if database_url is None else Database(database_url).url_safe),
        *(("--teams", each) for each in teams or ()),
        ("--tenant", tenant),
        ("--user", user_id),
    )
    with asyncio.Runner() as runner:
        if base_url is None:
            owner = Owner(tenant or DEFAULT_TENANT, user_id or ANONYMOUS)
            talk = _Local(owner, runner, teams, database_url)
        else:
            talk = _Remote(user_id, base_url, read_settings().api_key)
        chat = _Chat(runner, talk, [(name, value) for name, value in options if value is not None])
        try:
            failed = chat.run(model, thread_id)
        except openai.APIError as error:
            assert isinstance(talk, _Remote)
            raise ConfigurationError(talk.explain(error)) from None
        finally:
            runner.run(talk.close())
    if failed and not sys.stdin.isatty():
        sys.exit(1)


@dataclass(frozen=True, slots=True)
class _Ended:
    """How an answer ended. `error` is one line, `asked` the question that it waits with."""

    status: RunStatus
    error: str | None = None
    asked: JsonObject | None = None


class _Local:
    """Runs the teams in this process. `thread_id`: None before the first message of a new thread."""

    def __init__(self, owner: Owner, runner: asyncio.Runner, teams: list[str] | None, database_url: str | None) -> None:
        settings = read_settings(database_url=database_url)
        if settings.log_level == "DEBUG":
            configure_logging(settings)
        else:
            # Python prints warnings of a program without logging, in the middle of the conversation.
            logging.getLogger().addHandler(logging.NullHandler())
        self.thread_id: str | None = None
        self._drsai = DrSai(load_all(teams, means_of(settings)) if teams else None, settings=settings, by=By.CLI)
        self._caller = self._drsai.user(owner.user_id, tenant=owner.tenant)
        runner.run(self._drsai.open())
        self.close = self._drsai.close
        models = self._drsai.models
        answers = "OFFLINE DEMO MODEL (fixed rules, no language model)" if models.is_demo else models.describe()
        self.runs_on = [("answers", answers), ("database", show_url(self._drsai.database))]
        """As labels and values."""

    async def models(self) -> list[str]:
        return self._drsai.engine.teams.names()

    async def resume(self, thread_id: str) -> ThreadDetail | None:
        """Continue a thread. None: there is no such thread, and the first message begins it."""
        self.thread_id = thread_id
        with contextlib.suppress(NotFound):
            return await self._caller.get_thread(thread_id)

    async def say(self, model: str, text: str) -> AsyncIterator[Piece | _Ended]:
        """The pieces of text that a plain chat window would be shown, and how it ended."""
        try:
            handle = await self._caller.start(model, text, thread_id=self.thread_id)
        except DrSaiError as error:
            # Here the team is the user's own, who is told what its factory raised.
            cause = "" if error.__cause__ is None else f": {error.__cause__}"
            yield _Ended(RunStatus.ERROR, error.message + cause)
            return
        self.thread_id = handle.thread_id
        speech = Speech(marks=True)
        async for event in handle.events():
            for piece in speech.hear(event):
                yield piece
            if isinstance(event, RunEnded):
                error, failure = event.error_message, handle.failure
                if error is not None and failure is not None and not isinstance(failure, DrSaiError):
                    error = f"{error} ({type(failure).__name__}: {failure})"
                yield _Ended(event.status, error, event.input_request)

    async def stop(self) -> bool:
        """End the run under way; `say` then comes to its end. False: this cannot be done from here."""
        if self.thread_id is not None:
            with contextlib.suppress(Conflict, NotFound):  # it has just ended
                await self._caller.stop(self.thread_id)
        return True

    async def threads(self, limit: int) -> list[ThreadSummary]:
        return (await self._caller.list_threads(limit=limit)).items


class _Remote:
    """Asks a server that was started with `drsai serve`. All calls as those of `_Local`. `user_id`: None for the key's,
    or anonymous where none is needed."""

    def __init__(self, user_id: str | None, base_url: str, key: SecretStr | None) -> None:
        if not base_url.startswith(("http://", "https://")):
            raise ConfigurationError("--base-url must start with http:// or https://")
        self.thread_id: str | None = None
        self._user: JsonObject = {} if user_id is None else {"user": user_id}
        self._base_url = base_url.rstrip("/")
        self._has_key = key is not None
        # Not OPENAI_API_KEY: that is for the model's endpoint, not for this server. No time limit: a run has none.
        sent, timeout = "none" if key is None else key.get_secret_value(), openai.Timeout(None, connect=10)
        self._client = openai.AsyncOpenAI(base_url=self._base_url, api_key=sent, max_retries=0, timeout=timeout)
        self.close = self._client.close
        self.runs_on = [("server", self._base_url)]

    async def models(self) -> list[str]:
        # Here a key that may not act as others is refused; in a chat request `user` would be a tag, without a word.
        return [model.id async for model in self._client.models.list(extra_query=self._user)]

    async def resume(self, thread_id: str) -> ThreadDetail | None:
        self.thread_id = thread_id
        with contextlib.suppress(openai.NotFoundError):
            return ThreadDetail.model_validate(await self._get(f"/threads/{thread_id}", self._user))

    async def say(self, model: str, text: str) -> AsyncIterator[Piece | _Ended]:
        extra = self._user if self.thread_id is None else {**self._user, "thread_id": self.thread_id}
        ended = _Ended(RunStatus.ERROR, "the connection broke before the answer was complete")
        try:
            stream = await self._client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": text}],
                stream=True,
                extra_body=extra,
            )
            async with stream:
                async for chunk in stream:
                    more = chunk.model_extra or {}
                    self.thread_id = more.get("thread_id") or self.thread_id
                    details = more.get("drsai", {})
                    for choice in chunk.choices:
                        if choice.delta.content:
                            yield Piece(str(details.get("source") or model), choice.delta.content)
                        if choice.finish_reason is not None:
                            status = RunStatus(details.get("status", "completed"))
                            ended = _Ended(status, asked=details.get("input_request"))
        except openai.APIError as error:
            ended = _Ended(RunStatus.ERROR, self.explain(error))
        yield ended

    async def stop(self) -> bool:
        return False  # a server continues a run whose client has left

    async def threads(self, limit: int) -> list[ThreadSummary]:
        page = await self._get("/threads", {**self._user, "limit": limit})
        return [ThreadSummary.model_validate(item) for item in page["data"]]

    async def _get(self, path: str, query: Mapping[str, object]) -> JsonObject:
        return cast("JsonObject", await self._client.get(path, cast_to=object, options={"params": query}))

    def explain(self, error: openai.APIError) -> str:
        """An error of the `openai` client in one line."""
        if isinstance(error, openai.APIConnectionError):
            return f"no answer from {self._base_url}: is `drsai serve` running there?{_because(error)}"
        message = str(as_object(error.body).get("message") or error.message)
        if isinstance(error, openai.AuthenticationError) and not self._has_key:
            return (
                f"{self._base_url} needs an API key: set DRSAI_API_KEY to one "
                "(where the server is, `drsai keys add --user NAME` makes it)"
            )
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return f"{self._base_url} refuses the key that DRSAI_API_KEY is set to: {message}"
        return message


def _because(error: openai.APIConnectionError) -> str:
    """Say that the certificate is the trouble, if it is."""
    is_tls = "CERTIFICATE_VERIFY_FAILED" in str(error.__cause__)
    return " Its certificate is not trusted here: SSL_CERT_FILE names one that is" if is_tls else ""


class _Chat:
    """One conversation. `options` are repeated where it is said how to continue it."""

    def __init__(self, runner: asyncio.Runner, talk: _Local | _Remote, options: list[tuple[str, str]]) -> None:
        self._runner = runner
        self._talk = talk
        self._options = options
        self._console = make_console()
        self._transcript = make_transcript(self._console)

    def run(self, model: str | None, thread_id: str | None) -> bool:
        """Answer message after message. True when one of them failed."""
        model = self._begin(model, thread_id)
        failed = False
        for text in _lines(self._console):
            if text in ("/quit", "/exit", "/q"):
                break
            if text.startswith("/"):
                self._command(text)
                continue
            if not sys.stdin.isatty():
                self._transcript.user(text)
            ended = self._runner.run(self._answer(model, text))
            self._print_end(ended)
            failed = failed or ended.error is not None
        self._farewell()
        return failed

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
        rows += [(label, in_line(value)) for label, value in self._talk.runs_on]
        if thread_id is not None:
            state = " [dim](new)[/]"
            if resumed is not None:
                title = f": “{in_line(resumed.title)}”" if resumed.title else ""
                state = f", {resumed.message_count} messages{title}"
            rows.append(("thread", in_line(thread_id) + state))
        print_rows(self._console, rows, indent=0)
        if sys.stdin.isatty():
            self._console.print("[dim]/help shows the commands, Ctrl-D ends.[/]")
        self._console.print()
        asked = None if resumed is None else resumed.input_request
        if asked is not None and asked.get("prompt"):
            self._console.print(f"[yellow]You were asked:[/] {escape(asked['prompt'])}\n")
        return model

    async def _answer(self, model: str, text: str) -> _Ended:
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
        return _Ended(RunStatus.RUNNING) if showing.cancelled() else showing.result()

    async def _show(self, model: str, text: str) -> _Ended:
        ended = _Ended(RunStatus.ERROR)
        with self._transcript.answering():
            async for item in self._talk.say(model, text):
                if isinstance(item, _Ended):
                    ended = item
                else:
                    self._transcript.piece(item)
        return ended

    def _print_end(self, ended: _Ended) -> None:
        if ended.error is not None:
            print_error(ended.error)
        elif ended.status is RunStatus.STOPPED:
            self._console.print("[yellow]Stopped.[/] [dim]What was finished is kept.[/]")
        elif ended.status is RunStatus.RUNNING:
            self._console.print("[yellow]Left.[/] [dim]The server continues the run; the thread keeps its answer.[/]")
        elif ended.status is RunStatus.AWAITING_INPUT:
            what = "waits for the answer" if (ended.asked or {}).get("for_others") else "is the answer"
            self._console.print(f"[yellow]Your next message {what}.[/]")
        self._console.print()

    def _command(self, text: str) -> None:
        if text == "/help":
            self._console.print(HELP)
        elif text != "/threads":
            self._console.print(f"There is no {in_line(text.split()[0])}.\n{HELP}")
        elif threads := self._runner.run(self._talk.threads(_LISTED)):
            print_list(self._console, threads)
        else:
            self._console.print("There are none yet.")
        self._console.print()

    def _farewell(self) -> None:
        if self._talk.thread_id is not None:
            words = ["drsai", "chat", "--thread", self._talk.thread_id]
            words += [word for option in self._options for word in option]
            self._console.print("[dim]Continue this conversation:[/]")
            self._console.print(f"  {shlex.join(words)}", markup=False, soft_wrap=True)


def _lines(console: Console) -> Iterator[str]:
    """The messages: what is typed, or the lines of a file or pipe. Empty ones are none."""
    if not sys.stdin.isatty():
        yield from filter(None, map(str.strip, sys.stdin))
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
