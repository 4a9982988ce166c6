"""`drsai serve` and `drsai worker`: this process runs teams, with the HTTP server or without, until it is told to stop.

The database is opened and the port taken before uvicorn starts, so that whatever is wrong is one line and exit code 1;
what the console says is printed when requests are answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import ipaddress
import os
import signal
import socket
from collections.abc import Callable
from typing import Final, cast

import uvicorn
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from drsai_backend import jobs
from drsai_backend.api import create_app
from drsai_backend.api.http.middleware import Hosts
from drsai_backend.cli.database import show_url
from drsai_backend.cli.logs import configure_logging
from drsai_backend.cli.screen import make_console, print_rows
from drsai_backend.cli.server import Connections, Server
from drsai_backend.config import Settings
from drsai_backend.drsai import DrSai
from drsai_backend.errors import ConfigurationError
from drsai_backend.models.local import LocalModelServer
from drsai_backend.teams.context import TeamFactory
from drsai_backend.teams.registry import load_teams

_CLOSE_SECONDS: Final = 15.0
"""What clients may take beyond the runs' grace to read the end of their answers."""
_BACKLOG: Final = 2048


def serve(settings: Settings, teams: str | None, *, insecure: bool, local_model: bool, access_log: bool) -> None:
    address = _address(settings, insecure=insecure)
    configure_logging(settings)
    given = None if teams is None else load_teams(teams)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listen(settings, address))
        if local_model:
            make_console().print("Starting the local model …")
            settings = stack.enter_context(LocalModelServer()).settings(settings)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(settings, given, listening, access_log=access_log))


def work(settings: Settings, teams: str | None) -> None:
    configure_logging(settings)
    asyncio.run(_work(settings, None if teams is None else load_teams(teams)))


async def _serve(
    settings: Settings, teams: dict[str, TeamFactory] | None, listening: socket.socket, *, access_log: bool
) -> None:
    bound = str(listening.getsockname()[0])
    async with DrSai(teams, settings=settings) as drsai:
        config = uvicorn.Config(
            create_app(drsai.engine, settings, hosts=_hosts(settings, bound)),
            lifespan="off",  # the database is open already
            ws="none",
            log_config=None,
            access_log=access_log,
            server_header=False,
            timeout_keep_alive=int(settings.keep_alive_seconds),
            timeout_graceful_shutdown=int(settings.shutdown_grace_seconds + _CLOSE_SECONDS),
        )
        server = Server(config, Connections(settings), drain=drsai.drain)
        _on_signals(server.stop)
        _print_serving(drsai, _url(settings.host, listening), bound)
        _settle_garbage()
        await server.serve([listening])


async def _work(settings: Settings, teams: dict[str, TeamFactory] | None) -> None:
    stopping = asyncio.Event()
    async with DrSai(teams, settings=settings) as drsai:
        _on_signals(stopping.set)
        _print_working(drsai)
        await stopping.wait()


def _on_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at the first SIGINT or SIGTERM. The second ends the process on the spot: others find its runs."""
    is_stopping = False

    def hear(number: int) -> None:
        nonlocal is_stopping
        if is_stopping:
            os._exit(128 + number)
        is_stopping = True
        make_console(stderr=True).print("Stopping; once more to stop at once.")
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        with contextlib.suppress(NotImplementedError):  # Windows
            asyncio.get_running_loop().add_signal_handler(number, hear, number)


def _print_serving(drsai: DrSai, url: str, bound: str) -> None:
    """Say where, what and on what this serves, and how to ask it."""
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
    rows = [("database", escape(show_url(drsai.database))), ("answers", _answers(drsai))]
    if drsai.models.is_demo:
        rows.append(("", "Set OPENAI_API_KEY or OPENAI_BASE_URL, and DRSAI_MODEL, for one."))
    print_rows(console, rows)
    if not _is_loopback(bound):
        console.print(
            "\n[bold red]INSECURE[/]: whoever reaches this machine can read and change all threads, in clear text."
        )
    name = teams.names()[0]
    # A request to paste into a shell, broken where a shell and JSON allow it, so that no terminal breaks it. Another
    # team's thread would refuse it.
    curl = (
        f"curl {url}/v1/chat/completions \\\n"
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


# --- the address ----------------------------------------------------------------------------------------------------


def _address(settings: Settings, *, insecure: bool) -> tuple[socket.AddressFamily, tuple[object, ...]]:
    """The socket address to listen on."""
    try:
        found = socket.getaddrinfo(
            settings.host or None, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError:
        raise ConfigurationError(f"the host {settings.host!r} has no address here") from None
    found.sort(key=lambda item: item[0] != socket.AF_INET)  # "localhost" is both; clients try IPv4 at the latest
    family, _, _, _, address = found[0]
    if not insecure and not _is_loopback(str(address[0])):
        raise ConfigurationError(
            f"{settings.host} is no loopback address: everybody who reaches it could read and change all threads, and "
            "HTTP is clear text. Use 127.0.0.1, or --insecure if that is wanted"
        )
    return family, address


def _is_loopback(address: str) -> bool:
    """Whether only this machine reaches an IP address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def _hosts(settings: Settings, bound: str) -> Hosts | None:
    """On loopback, what a browser on this machine calls it. Elsewhere a name is anybody's guess, and a server that all
    may reach has nothing that a rebound name would open."""
    if _is_loopback(bound):
        return Hosts(settings.allowed_hosts)
    return Hosts(settings.allowed_hosts, any_address=True) if settings.allowed_hosts else None


def _listen(settings: Settings, address: tuple[socket.AddressFamily, tuple[object, ...]]) -> socket.socket:
    # With the protocol named, or asyncio would not turn off Nagle's algorithm: 40 ms on every streamed answer.
    listening = socket.socket(address[0], socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address[1])
        # From now on, so that another server cannot take the port while this one gets ready.
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        where = f"port {settings.port} of {settings.host}"
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(f"{where} is in use; take another with --port (0: any free one)") from None
        raise ConfigurationError(f"{where} cannot be listened on: {error.strerror}") from None
    listening.setblocking(False)
    return listening


def _url(host: str, listening: socket.socket) -> str:
    bound, port = listening.getsockname()[:2]
    if ipaddress.ip_address(str(bound).partition("%")[0]).is_unspecified:
        host = "[::1]" if ":" in bound else "127.0.0.1"
    elif ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{port}"
