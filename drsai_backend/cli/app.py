"""The app is `drsai` itself: the groups of its commands, and the commands that have none."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

import drsai_backend
from drsai_backend.cli.database import read_settings
from drsai_backend.cli.options import AsJson, DatabaseUrl
from drsai_backend.cli.screen import print_error
from drsai_backend.cli.verbs import in_words
from drsai_backend.errors import ConfigurationError, DrSaiError
from drsai_backend.features.builtin import BUILTIN
from drsai_backend.lazily import imported


def _of_extensions() -> dict[str, str]:
    """Return, by name, where the commands of extensions are. Without any, nothing heavy is imported."""
    if "DRSAI_EXTENSIONS" not in os.environ and not Path(".env").exists():
        return {}
    from drsai_backend.config import Settings

    settings = Settings(require_model=False)
    if not settings.extensions:
        return {}
    from drsai_backend.features.extensions import kinds_of

    return {kind.name: kind.commands for kind in kinds_of(settings) if kind.commands is not None}


class _Groups(TyperGroup):
    """`drsai`, with the commands of the extensions that the settings name."""

    def list_commands(self, ctx: Any) -> list[str]:
        known, own = super().list_commands(ctx), dict[str, str]()
        try:
            own = _of_extensions()
        except DrSaiError as error:
            print_error(error.message)  # The help is shown nevertheless.
        return [*known, *(name for name in own if name not in known)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if (found := super().get_command(ctx, cmd_name)) is not None:
            return found
        if (target := _of_extensions().get(cmd_name)) is None:
            return None
        module, _, attribute = target.partition(":")
        app = getattr(importlib.import_module(module), attribute, None)
        if not isinstance(app, typer.Typer):
            raise ConfigurationError(f"{target}, the commands of the extension {cmd_name}, is no `typer.Typer`")
        in_words(app)
        group = typer.main.get_group(app)
        group.name = cmd_name
        return group


app = typer.Typer(
    name="drsai",
    cls=_Groups,
    help="Multi-agent group chats that survive a restart, behind OpenAI Chat Completions.",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_groups: dict[str, typer.Typer] = {}
for _each in BUILTIN:
    if _each.commands is None:
        continue
    _commands = imported(_each.commands)
    if (_group := _groups.setdefault(_each.group, _commands)) is _commands:
        app.add_typer(_group, name=_each.group)
    else:
        _group.registered_commands += _commands.registered_commands

Teams = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TEAMS]...",
        help="Your teams: Python files or modules with `teams = {name: factory}`, and YAML or JSON files of "
        "definitions or of AutoGen's component configs. [default: the built-in teams assistant and writers]",
    ),
]
TeamsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="TEAMS", help="Your own teams, as for `drsai serve`. May be given several times."),
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"] | None,
    typer.Option(case_sensitive=False, help="[default: $DRSAI_LOG_LEVEL, else info]"),
]


def _version(value: bool) -> None:
    if value:
        typer.echo(f"drsai {drsai_backend.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None and (text := context.get_help()):
        typer.echo(text)


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where to. [default: here]")] = Path(),
    yaml: Annotated[bool, typer.Option("--yaml", help="A team by definition, without a line of Python.")] = False,
    as_json: AsJson = False,
) -> None:
    """Begin a project: write a team, a test of it, `.env.example` and a file for Docker Compose."""
    from drsai_backend.cli import init

    init.init(folder, yaml=yaml, as_json=as_json)


@app.command()
def serve(
    teams: Teams = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. [default: $DRSAI_HOST, else 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0: any free port. [default: $DRSAI_PORT, else 8000]")
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Processes on this port. [default: $DRSAI_WORKERS, else on PostgreSQL one a core, 4 at most, and 1 on "
            "SQLite]",
        ),
    ] = None,
    database_url: DatabaseUrl = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure",
            help="Listen on other addresses than loopback though nobody needs a key: everybody may use it.",
        ),
    ] = False,
    ssl_certfile: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Serve https with this certificate. [default: $DRSAI_SSL_CERTFILE]"),
    ] = None,
    ssl_keyfile: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its private key. [default: $DRSAI_SSL_KEYFILE]")
    ] = None,
    forwarded_allow_ips: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Addresses or networks of proxies whose X-Forwarded-For and -Proto are believed, with commas. "
            "[default: $DRSAI_TRUSTED_PROXIES, else none]",
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Model profiles, as YAML or JSON. [default: $DRSAI_MODELS, else none]"),
    ] = None,
    local_model: Annotated[
        bool, typer.Option("--local-model", help="Answer with a small language model on this machine.")
    ] = False,
    require_model: Annotated[
        bool, typer.Option("--require-model", help="Do not start with the offline demo model.")
    ] = False,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
    log_level: LogLevel = None,
    reload: Annotated[
        bool, typer.Option("--reload", help="Start again when a file of the project changes; while you work on it.")
    ] = False,
) -> None:
    """Serve teams as models of an OpenAI-compatible API."""
    options: dict[str, object] = {
        "host": host,
        "port": port,
        "workers": workers,
        "database_url": database_url,
        "ssl_certfile": ssl_certfile,
        "ssl_keyfile": ssl_keyfile,
        "trusted_proxies": forwarded_allow_ips,
        "log_level": log_level,
        "models": models,
        "require_model": require_model or None,
    }
    if reload:
        if (workers or 1) > 1:
            raise typer.BadParameter("with --reload one process serves", param_hint="--workers")
        from drsai_backend.cli import reload as reloading

        reloading.reload(options, teams or [], insecure=insecure, local_model=local_model, access_log=access_log)
    else:
        from drsai_backend.cli import serve

        serve.serve(read_settings(**options), teams, insecure=insecure, local_model=local_model, access_log=access_log)


@app.command()
def doctor(
    teams: Teams = None,
    no_model: Annotated[bool, typer.Option("--no-model", help="Do not ask the model endpoint a word.")] = False,
    models: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Model profiles, as YAML or JSON. [default: $DRSAI_MODELS, else none]"),
    ] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Look at all that a deployment needs, change nothing, and say what is wrong: exit code 1 where something is.

    Teams, database and schema, clock, secrets, disk, model endpoint, MCP servers, jobs; and whether the stored state of
    each thread can be loaded into today's teams.
    """
    from drsai_backend.cli import doctor

    settings = read_settings(database_url=database_url, models=models, log_level="ERROR")
    if not doctor.doctor(settings, teams, ask_model=not no_model, as_json=as_json):
        raise typer.Exit(1)


@app.command()
def top(
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="How often it is read.")] = 2,
    once: Annotated[bool, typer.Option("--once", help="Print it once, and end.")] = False,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Watch what is live and what waits, of all users: runs, workers, jobs, webhooks. Ctrl-C ends.

    It reads the database alone, whatever servers and workers do meanwhile.
    """
    from drsai_backend.features.all_runs.commands import top

    top.top(database_url, once=once, as_json=as_json, seconds=every)


@app.command()
def worker(
    teams: TeamsOption = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many runs may begin at the same time. [default: $DRSAI_JOB_CONCURRENCY, else 10]"
        ),
    ] = None,
    database_url: DatabaseUrl = None,
    log_level: LogLevel = None,
) -> None:
    """Run what needs no client: background runs, runs of processes that died, inputs that wait.

    Every `drsai serve` does so too; workers take load off the servers, on any machine that reaches the database.
    """
    from drsai_backend.cli import serve

    settings = read_settings(job_concurrency=concurrency, database_url=database_url, log_level=log_level)
    serve.work(settings, teams)


@app.command()
def mcp(
    teams: TeamsOption = None,
    user: Annotated[str, typer.Option(metavar="NAME", help="Whose threads.")] = "anonymous",
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="The user's tenant.")] = "default",
    database_url: DatabaseUrl = None,
    log_level: LogLevel = None,
) -> None:
    """Offer the teams as tools of an MCP server, over standard input and output.

    For programs that start such servers themselves; `drsai serve` offers the same at `/mcp`.
    """
    from drsai_backend.cli import mcp

    settings = read_settings(database_url=database_url, log_level=log_level)
    mcp.mcp(settings, teams, user_id=user, tenant=tenant)


@app.command()
def chat(
    model: Annotated[
        str | None,
        typer.Option(
            "--model", "-m", metavar="MODEL", help="The team to talk to. [default: the thread's, else the first]"
        ),
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", "-t", metavar="THREAD", help="Continue this conversation.")
    ] = None,
    teams: TeamsOption = None,
    database_url: DatabaseUrl = None,
    base_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Talk to a running server, for example http://127.0.0.1:8000/v1."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose threads. [default: the user of $DRSAI_API_KEY, else anonymous]"),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(metavar="TENANT", help="The user's tenant, without --base-url. [default: default]")
    ] = None,
) -> None:
    """Talk to a team in this terminal, with a server (--base-url) or without one.

    A server that needs a key gets that of DRSAI_API_KEY. Ctrl-C stops an answer, Ctrl-D ends. Without a terminal every
    line of the input is a message.
    """
    from drsai_backend.cli import chat

    chat.chat(model, thread, teams=teams, database_url=database_url, base_url=base_url, user_id=user, tenant=tenant)


@app.command()
def demo(
    database_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="`sqlite:///file` or `postgresql://…`. [default: a temporary file]"),
    ] = None,
) -> None:
    """Watch a group chat lose its process in the middle of a run, and resume in another one.

    Runs on the offline demo model, and on a temporary SQLite database unless `--database-url` is given.
    """
    from drsai_backend.cli import demo

    demo.demo(database_url)


for _each in (app, *_groups.values()):
    in_words(_each)
