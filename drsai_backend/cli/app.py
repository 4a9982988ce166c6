"""What can be typed: the commands, their arguments and options. Nothing heavy is imported before a command runs.

Each command is a function of the same name in another module; its errors end in `main` as one line.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

import drsai_backend
from drsai_backend import cli

app = typer.Typer(
    name="drsai",
    help="Multi-agent group chats that survive a restart, behind OpenAI Chat Completions.",
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
threads_app = typer.Typer(help="Look at stored conversations, move or delete them.", no_args_is_help=True)
keys_app = typer.Typer(help="Make, list and revoke API keys; rotate the secret of model keys.", no_args_is_help=True)
users_app = typer.Typer(help="List users, or delete one with all that is theirs.", no_args_is_help=True)
audit_app = typer.Typer(help="Look at who did what: keys, deletions, exports, shares, answers.")
db_app = typer.Typer(help="Bring the database schema up to date, or take it back.", no_args_is_help=True)
app.add_typer(threads_app, name="threads")
app.add_typer(keys_app, name="keys")
app.add_typer(users_app, name="users")
app.add_typer(audit_app, name="audit")
app.add_typer(db_app, name="db")

DatabaseUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="`sqlite:///file` or `postgresql://…`. [default: $DRSAI_DATABASE_URL, else sqlite:///drsai.db]",
    ),
]
User = Annotated[str, typer.Option(metavar="NAME", help="Whose threads.")]
Tenant = Annotated[str, typer.Option(metavar="TENANT", help="The user's tenant.")]
Teams = Annotated[
    str | None,
    typer.Argument(
        metavar="[TEAMS]",
        help="Your teams: a Python file or module with `teams = {name: factory}`, or a YAML or JSON file of AutoGen "
        "component configs. [default: the built-in teams assistant and writers]",
    ),
]
TeamsOption = Annotated[str | None, typer.Option(metavar="TEAMS", help="Your own teams, as for `drsai serve`.")]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
ThreadId = Annotated[str, typer.Argument(metavar="THREAD", help="Its id.")]
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
def serve(
    teams: Teams = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. [default: $DRSAI_HOST, else 127.0.0.1]")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0: any free port. [default: $DRSAI_PORT, else 8000]")
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
    local_model: Annotated[
        bool, typer.Option("--local-model", help="Answer with a small language model on this machine.")
    ] = False,
    require_model: Annotated[
        bool, typer.Option("--require-model", help="Do not start with the offline demo model.")
    ] = False,
    access_log: Annotated[bool, typer.Option("--access-log", help="Log every request.")] = False,
    log_level: LogLevel = None,
) -> None:
    """Serve teams as models of an OpenAI-compatible API."""
    settings = cli.database.read_settings(
        host=host,
        port=port,
        database_url=database_url,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
        trusted_proxies=forwarded_allow_ips,
        log_level=log_level,
        require_model=require_model or None,
    )
    cli.serve.serve(settings, teams, insecure=insecure, local_model=local_model, access_log=access_log)


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
    settings = cli.database.read_settings(job_concurrency=concurrency, database_url=database_url, log_level=log_level)
    cli.serve.work(settings, teams)


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
    cli.chat.chat(model, thread, teams=teams, database_url=database_url, base_url=base_url, user_id=user, tenant=tenant)


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
    cli.demo.demo(database_url)


@threads_app.command("list")
def threads_list(
    user: User = "anonymous",
    tenant: Tenant = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many at most.")] = 20,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List a user's threads, newest first."""
    cli.threads.list_threads(cli.threads.Owner(tenant, user), limit, database_url, as_json=as_json)


@threads_app.command("show")
def threads_show(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show a thread and its messages."""
    cli.threads.show_thread(cli.threads.Owner(tenant, user), thread, database_url, as_json=as_json)


@threads_app.command("state")
def threads_state(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    decoded: Annotated[bool, typer.Option("--decoded", help="As JSON instead of base64.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Print what the agents of a thread remember: their saved state."""
    cli.threads.print_state(cli.threads.Owner(tenant, user), thread, database_url, decoded=decoded)


@threads_app.command("delete")
def threads_delete(
    threads: Annotated[list[str], typer.Argument(metavar="THREAD…", help="Ids.")],
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete threads with all that belongs to them."""
    cli.threads.delete_threads(cli.threads.Owner(tenant, user), threads, database_url, yes=yes)


@threads_app.command("cancel")
def threads_cancel(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Stop what a thread does or waits for. Its finished turns stay."""
    cli.threads.cancel(cli.threads.Owner(tenant, user), thread, database_url)


@threads_app.command("pause")
def threads_pause(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Pause a thread's live run at its next turn boundary."""
    cli.threads.pause(cli.threads.Owner(tenant, user), thread, database_url)


@threads_app.command("resume")
def threads_resume(
    thread: ThreadId, user: User = "anonymous", tenant: Tenant = "default", database_url: DatabaseUrl = None
) -> None:
    """Resume a paused run, in a running server or worker."""
    cli.threads.resume(cli.threads.Owner(tenant, user), thread, database_url)


WithUser = Annotated[str | None, typer.Option("--with", metavar="NAME", help="A user of the same tenant.")]
WithRole = Annotated[str | None, typer.Option("--role", metavar="NAME", help="Everybody of the tenant who has it.")]


@threads_app.command("share")
def threads_share(
    thread: ThreadId,
    with_user: WithUser = None,
    with_role: WithRole = None,
    right: Annotated[str, typer.Option(metavar="RIGHT", help="read, answer or write.")] = "read",
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Show a thread to another user or role, or change what they may do with it."""
    cli.threads.share(user, thread, with_user, with_role, right, tenant, database_url)


@threads_app.command("unshare")
def threads_unshare(
    thread: ThreadId,
    with_user: WithUser = None,
    with_role: WithRole = None,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Take a share of a thread back."""
    cli.threads.unshare(user, thread, with_user, with_role, tenant, database_url)


@threads_app.command("shares")
def threads_shares(
    thread: ThreadId,
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List with whom a thread is shared."""
    cli.threads.list_shares(user, thread, tenant, database_url, as_json=as_json)


@threads_app.command("export")
def threads_export(
    thread: ThreadId,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="`-`: standard output.")] = "-",
    user: User = "anonymous",
    tenant: Tenant = "default",
    database_url: DatabaseUrl = None,
) -> None:
    """Write a thread to a file, for `import` into another database. API keys are left out."""
    cli.threads.export(cli.threads.Owner(tenant, user), thread, output, database_url)


@threads_app.command("import")
def threads_import(
    file: Annotated[str, typer.Argument(metavar="FILE", help="`-`: standard input.")],
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose it shall be. [default: as in the file]")
    ] = None,
    tenant: Tenant = "default",
    thread_id: Annotated[str | None, typer.Option(metavar="NEW", help="Its id here. [default: as in the file]")] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="BYTES",
            help="What the file, and what it unpacks to, may have; it takes up to eight times as much memory. "
            "[default: 64MiB]",
        ),
    ] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Store an exported thread. It continues here exactly where it stood."""
    cli.threads.import_(file, tenant, user, thread_id, database_url, max_size)


@threads_app.command("prune")
def threads_prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Unchanged for longer: `30d`, `12h`, `2w`.")],
    status: Annotated[
        str, typer.Option(metavar="LIST", help="Only of these, separated by commas.")
    ] = "created,completed,stopped,error",
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user's. [default: all]")] = None,
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say how many.")] = False,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete threads that have not changed for long. One on which a run is live is never deleted."""
    cli.threads.prune(older_than, status, tenant, user, database_url, dry_run=dry_run, yes=yes)


@keys_app.command("create")
def keys_create(
    user: Annotated[str, typer.Option(metavar="NAME", help="Who asks with it.")],
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="The user's tenant.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPE",
            help="What it may do: a scope such as `threads:read`, or a role: viewer, user, operator, admin. May be "
            "given several times. [default: user]",
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option(metavar="TIME", help="For how long it works: `90d`, `12h`. [default: until revoked]")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="What you call it: `laptop`, say.")] = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Make a key and print it, this one time: only its SHA-256 is stored. What it is goes to stderr."""
    cli.keys.create(user, tenant, scope or ["user"], expires, name, database_url)


@keys_app.command("list")
def keys_list(
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user's. [default: all]")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List keys, newest first: whose they are, what they may do, when they were used last. Never the keys."""
    cli.keys.list_keys(tenant, user, database_url, as_json=as_json)


@keys_app.command("revoke")
def keys_revoke(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="`key_…`, as `list` shows it.")],
    database_url: DatabaseUrl = None,
) -> None:
    """End a key. It stops working within two seconds, in all servers."""
    cli.keys.revoke(key_id, database_url)


@keys_app.command("rotate-secret")
def keys_rotate_secret(database_url: DatabaseUrl = None) -> None:
    """Encrypt the stored model keys anew, with $DRSAI_SECRET_KEY; servers may run meanwhile.

    First give all servers the new secret, and the one before it as $DRSAI_SECRET_KEY_OLD. Where no secret is set, the
    file beside an SQLite database gets a new one by itself. After an interruption, run it once more.
    """
    cli.keys.rotate_secret(database_url)


@users_app.command("list")
def users_list(
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="Whose users.")] = "default",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="NAME", help="Those whose names come after this one.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the users of a tenant to whom anything belongs, with how many threads are theirs."""
    cli.users.list_users(tenant, after, limit, database_url, as_json=as_json)


@users_app.command("delete")
def users_delete(
    user: Annotated[str, typer.Argument(metavar="USER", help="Who.")],
    tenant: Annotated[str, typer.Option(metavar="TENANT", help="The user's tenant.")] = "default",
    export: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write all that is theirs to a ZIP archive first, a file per thread."),
    ] = None,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Stop what a user runs, and delete their keys, threads and all else that is theirs. The audit log stays.

    What was cut off can be repeated: it deletes the rest.
    """
    cli.users.delete(user, tenant, export, database_url, yes=yes)


@audit_app.callback(invoke_without_command=True)
def audit(
    context: typer.Context,
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what they did, or others did to what is theirs.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="ACTION", help="Only these: `thread.deleted`, or all of a kind: `thread`.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many at most.")] = 50,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Those before this entry.")] = None,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    if context.invoked_subcommand is None:
        cli.audit.list_audit(tenant, user, action, after, limit, database_url, as_json=as_json)


@audit_app.command("prune")
def audit_prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="Older than that: `365d`, `52w`.")],
    tenant: Annotated[str | None, typer.Option(metavar="TENANT", help="Only this one's. [default: all]")] = None,
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Delete old entries. New ones say how many are gone."""
    cli.audit.prune(older_than, tenant, database_url, yes=yes)


@db_app.command("upgrade")
def db_upgrade(
    revision: Annotated[str, typer.Argument(help="Where to.")] = "head", database_url: DatabaseUrl = None
) -> None:
    """Make the tables, or bring them up to date."""
    cli.database.upgrade(revision, database_url)


@db_app.command("downgrade")
def db_downgrade(
    revision: Annotated[str, typer.Argument(help="Where to: a revision, -1 for one step, or base.")],
    database_url: DatabaseUrl = None,
    yes: Yes = False,
) -> None:
    """Take the tables back to an earlier revision. `base` drops all of them, and what they hold."""
    cli.database.downgrade(revision, database_url, yes=yes)


@db_app.command("current")
def db_current(database_url: DatabaseUrl = None) -> None:
    """Show the revision of the database."""
    cli.database.current(database_url)
