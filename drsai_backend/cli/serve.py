"""A server (`drsai serve`) or a worker (`drsai worker`) is a process in which teams run, with the HTTP server or
without, until it is told to stop.

The database is opened and the port taken before uvicorn starts, so that whatever is wrong is one line and exit code 1;
what the console says is printed when requests are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, cast

import uvicorn
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from drsai_backend import jobs
from drsai_backend.cli import servers
from drsai_backend.cli.address import Address, find_address, hosts_of, listen, proxies_of, tls_of, url_of
from drsai_backend.cli.database import named, show_url
from drsai_backend.cli.isolated import isolation
from drsai_backend.cli.logs import configure_logging
from drsai_backend.cli.screen import make_console, print_rows
from drsai_backend.cli.server import Connections, Server
from drsai_backend.cli.verbs import print_problems
from drsai_backend.config import Settings
from drsai_backend.database import Database
from drsai_backend.definitions import load_all
from drsai_backend.drsai import DrSai
from drsai_backend.errors import ConfigurationError, DrSaiError
from drsai_backend.features.extensions import means_of, serving
from drsai_backend.models.local import LocalModelServer
from drsai_backend.teams.context import TeamFactory

_CLOSE_SECONDS: Final = 15.0
"""What clients may take beyond the runs' grace to read the end of their answers."""


def serve(
    settings: Settings,
    teams: list[str] | None,
    *,
    insecure: bool,
    local_model: bool,
    access_log: bool,
    listening: socket.socket | None = None,
) -> None:
    """Serve until told to stop. `listening`: the socket, where there is one already."""
    count = 1 if listening is not None else servers.count_of(settings)
    address = find_address(settings)
    configure_logging(settings)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listening or listen(settings, address))
        if local_model:
            make_console().print("Starting the local model …")
            settings = stack.enter_context(LocalModelServer()).settings(settings)
        settings = stack.enter_context(serving(settings))
        server = _ServerProcess(settings, teams, insecure=insecure, access_log=access_log)
        if count == 1:
            server(listening)
        else:
            # Made once here and thrown away: what is imported for it, the servers share.
            DrSai(settings=settings).app()
            if code := servers.run(count, listening, server):
                sys.exit(code)


@dataclass(frozen=True)
class _ServerProcess:
    """What a server is made of. It can be sent to another process, which makes it there."""

    settings: Settings
    teams: list[str] | None
    insecure: bool
    access_log: bool

    def __call__(self, listening: socket.socket, *, keeper: Connection | None = None, speaks: bool = True) -> None:
        """Serve until told to stop: `servers.Serve`. With a `keeper`, others serve on the same socket."""
        settings, address = self.settings, find_address(self.settings)
        if keeper is not None:
            configure_logging(settings)
        try:
            tls = tls_of(settings)
            given = load_all(self.teams, means_of(settings)) if self.teams else None
            if not self.insecure and not address.is_loopback and not _is_guarded(settings):
                raise ConfigurationError(
                    f"{settings.host} is no loopback address, and nobody needs a key: everybody who reaches it could "
                    "read and change all threads. Make a key (drsai keys add --user NAME), set DRSAI_AUTH=required, or "
                    "use 127.0.0.1; --insecure if it shall be open"
                )
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                drsai = _worker(settings, self.teams, given)
                runner.run(_serve(drsai, address, listening, tls, self.access_log, keeper, speaks))
        except DrSaiError as error:
            if keeper is None:
                raise
            print_problems(named(error, settings.database_url))
            sys.exit(1)


def work(settings: Settings, teams: list[str] | None) -> None:
    configure_logging(settings)
    with serving(settings) as settings:
        asyncio.run(_work(_worker(settings, teams, load_all(teams, means_of(settings)) if teams else None)))


def _worker(settings: Settings, teams: list[str] | None, given: dict[str, TeamFactory] | None) -> DrSai:
    """Return what runs the teams `given`, of the files `teams`, and starts processes for runs that may kill it."""
    drsai = DrSai(given, settings=settings)
    drsai.engine.isolated_by(isolation(settings, teams))
    return drsai


def _is_guarded(settings: Settings) -> bool:
    """Whether a key is needed. Looked up before the server is there, which would begin to work at once."""
    if settings.auth == "required" or settings.jwt_issuer is not None:
        return True
    file = Database(settings.database_url).sqlite_path
    return (file is None or Path(file).exists()) and asyncio.run(_has_keys(settings))


async def _has_keys(settings: Settings) -> bool:
    settings = settings.model_copy(update={"require_model": False})  # a local one is not there yet
    async with DrSai(settings=settings, worker=False) as drsai:
        return await drsai.keys.any_exist()


async def _serve(
    drsai: DrSai,
    address: Address,
    listening: socket.socket,
    tls: ssl.SSLContext | None,
    access_log: bool,
    keeper: Connection | None,
    speaks: bool,
) -> None:
    settings = drsai.settings
    # Nearly a second, for which the loop of a process that has begun to work would stand still.
    app = drsai.app(hosts=hosts_of(settings, address), is_open=True)
    async with drsai:
        config = uvicorn.Config(
            app,
            lifespan="off",  # the database is open already
            ws_max_size=settings.max_body_bytes,
            ws_per_message_deflate=False,  # what counts of a message is what it has sent
            log_config=None,
            access_log=access_log,
            server_header=False,
            proxy_headers=bool(settings.trusted_proxies),  # or uvicorn believes those of 127.0.0.1
            forwarded_allow_ips=proxies_of(settings),
            timeout_keep_alive=int(settings.keep_alive_seconds),
            timeout_graceful_shutdown=int(settings.shutdown_grace_seconds + _CLOSE_SECONDS),
        )
        server = Server(config, Connections(settings), drain=drsai.drain, tls=tls, is_alone=keeper is None)
        _on_signals(server.stop, speaks=keeper is None)
        if speaks:
            await _print_serving(drsai, url_of(settings, listening), address)
        if keeper is not None:
            servers.watch(keeper, server.stop)
        _settle_garbage()
        await server.serve([listening])


async def _work(drsai: DrSai) -> None:
    stopping = asyncio.Event()
    async with drsai:
        _on_signals(stopping.set)
        _print_working(drsai)
        await stopping.wait()


def _on_signals(stop: Callable[[], None], *, speaks: bool = True) -> None:
    """Call `stop` at the first SIGINT or SIGTERM. The second ends the process on the spot: others find its runs.
    `speaks`: whether the first is answered on the terminal."""
    is_stopping = False

    def hear(number: int) -> None:
        nonlocal is_stopping
        if is_stopping:
            os._exit(128 + number)
        is_stopping = True
        if speaks:
            make_console(stderr=True).print("Stopping; once more to stop at once.")
        stop()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, hear, number)
        except NotImplementedError:  # Windows, whose loop is woken by a signal all the same.
            signal.signal(number, lambda number, _: loop.call_soon_threadsafe(hear, number))


async def _print_serving(drsai: DrSai, url: str, address: Address) -> None:
    """Say where, what and on what this serves, who may ask, and how."""
    needs_key = await drsai.authenticator.is_required()
    teams = drsai.engine.teams
    console = make_console()
    console.print(f"[bold]drsai_backend[/] serves [bold]{escape(url)}/v1[/]\n", soft_wrap=True)
    models = Table.grid(padding=(0, 2, 0, 0))
    models.add_column(style="dim", min_width=10, no_wrap=True)
    models.add_column(style="bold green", overflow="fold")
    models.add_column()
    for name in teams.names():
        models.add_row("" if models.row_count else "  models", name, Text(teams.description(name)))
    console.print(models)
    rows = [
        ("console", f"[bold]{escape(url)}/console[/]"),
        ("database", escape(show_url(drsai.database))),
        ("answers", _answers(drsai)),
    ]
    if drsai.models.is_demo:
        rows.append(("", "Set OPENAI_API_KEY or OPENAI_BASE_URL, and DRSAI_MODEL, for one."))
    if needs_key:
        issuer = drsai.settings.jwt_issuer
        rows.append(("access", "by API key" if issuer is None else f"by API key, or token of {escape(issuer)}"))
        made = "makes one" if await drsai.keys.any_exist() else "makes the first one"
    else:
        rows.append(("access", "open: nobody needs a key until the first one is made"))
        made = "makes it"
    print_rows(console, [*rows, ("", f"[bold]drsai keys add --user NAME[/] {made}")])
    if not address.is_loopback and not needs_key:
        console.print("\n[bold red]INSECURE[/]: whoever reaches this machine can read and change all threads.")
    if not address.is_loopback and drsai.settings.ssl_certfile is None:
        console.print(
            "\n[bold yellow]CLEAR TEXT[/]: who listens on the way reads keys and messages. Use --ssl-certfile and\n"
            "--ssl-keyfile, or a proxy with TLS that alone reaches this address."
        )
    name = teams.names()[0]
    # A request to paste into a shell, broken where a shell and JSON allow it, so that no terminal breaks it. Another
    # team's thread would refuse it.
    key = '  -H "Authorization: Bearer $DRSAI_API_KEY" \\\n' if needs_key else ""
    curl = (
        f"curl {url}/v1/chat/completions \\\n{key}"
        f"  -H 'Content-Type: application/json' -d '{{\n"
        f'    "model": "{name}", "thread_id": "hello-{name}",\n'
        f'    "messages": [{{"role": "user", "content": "My name is Ada."}}]}}\''
    )
    console.print("\nTry it:\n")
    console.print(curl, markup=False, soft_wrap=True)
    console.print("\n[dim]Ctrl-C stops.[/]")


def _print_working(drsai: DrSai) -> None:
    """Say what this runs, where, and how it learns of work."""
    if drsai.database.dialect == "sqlite":
        hears = "by looking; on PostgreSQL, other machines could take part"
    elif jobs.available():
        hears = "by jobs in the database, shared with all other processes"
    else:
        hears = "by looking; with the extra `postgres`, at once"
    console = make_console()
    console.print(f"[bold]drsai_backend[/] works on [bold]{escape(show_url(drsai.database))}[/]\n", soft_wrap=True)
    rows = [
        ("models", f"[bold green]{escape(', '.join(drsai.engine.teams.names()))}[/]"),
        ("answers", _answers(drsai)),
        ("does", "background runs, runs of processes that died, inputs that wait, retention"),
        ("hears of it", hears),
    ]
    print_rows(console, rows)
    console.print("\n[dim]Ctrl-C stops.[/]")


def _answers(drsai: DrSai) -> str:
    if drsai.models.is_demo:
        return "[bold yellow]OFFLINE DEMO MODEL[/]: fixed rules, no language model."
    return f"[bold]{escape(drsai.models.describe())}[/]"


def _settle_garbage() -> None:
    # What was imported lives as long as the process: about 200,000 objects, most of them of AutoGen and the
    # openai client. Each full collection walks through all of them, and the garbage of a streamed answer (pydantic
    # models, futures) makes collections frequent. Frozen objects are left out, and higher thresholds let most garbage
    # die by its reference count first: 1.3 to 1.9 times as many streamed requests per second.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it happens to be installed."""
    try:
        import uvloop  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    return cast("Callable[[], asyncio.AbstractEventLoop]", uvloop.new_event_loop)  # pyright: ignore[reportUnknownMemberType]
