"""The built-in features are those that come along; here is their list. It imports none: `drsai --help` needs their
commands and nothing else."""

from __future__ import annotations

from typing import Final, NamedTuple


class Builtin(NamedTuple):
    """Commands that come along, and the feature whose they are.

    Attributes:
        group: the noun of the commands; those of one noun add to each other, and the first says what it is.
        commands: where they are, a `typer.Typer`, as `package.module:attribute`. None: the feature has none.
        feature: the feature, by its folder, or its class where it is more than routes, written in the same way. None:
            it is another line's, or the core's.
    """

    group: str
    commands: str | None
    feature: str | None = None


def _feature(group: str, folder: str, kind: str | None = None, commands: str | None = "commands") -> Builtin:
    there = f"drsai_backend.features.{folder}"
    where = None if commands is None else f"{there}.{commands}:app"
    return Builtin(group, where, folder if kind is None else f"{there}.extension:{kind}")


BUILTIN: Final = (
    _feature("threads", "threads", commands="commands.threads"),
    _feature("threads", "travel"),
    _feature("threads", "shares"),
    Builtin("threads", "drsai_backend.features.threads.commands.archive:app"),
    Builtin("runs", "drsai_backend.features.threads.commands.runs:app"),
    _feature("runs", "all_runs", commands="commands.runs"),
    _feature("runs", "model_calls", "ModelCalls"),
    _feature("agents", "stored_definitions"),
    _feature("files", "files", "Files"),
    _feature("knowledge", "knowledge", "Knowledge"),
    _feature("tools", "registered_tools"),
    _feature("tools", "mcp_servers", commands=None),
    _feature("memory", "memory", "Memory"),
    _feature("usage", "usage", "Usage"),
    # Before limits: what a request reserves of budgets counts only where it is stored.
    _feature("budgets", "budgets", "Budgets"),
    _feature("limits", "limits", "Limits"),
    _feature("switches", "switches", "Switches"),
    # After all that hears of it.
    _feature("config", "config", "Config"),
    _feature("metrics", "metrics", "Metrics", commands=None),
    _feature("traces", "traces", "Traces", commands=None),
    _feature("keys", "keys"),
    _feature("users", "users"),
    _feature("audit", "audit", "Audit"),
    _feature("webhooks", "webhooks"),
    Builtin("db", "drsai_backend.cli.schema:app"),
    Builtin("tenants", "drsai_backend.cli.tenants:app"),
)
"""In the order of the help."""

NOUNS: Final = frozenset(
    {
        "init",
        "serve",
        "doctor",
        "top",
        "worker",
        "mcp",
        "chat",
        "demo",
        *(each.group for each in BUILTIN if each.commands is not None),
    }
)
"""What follows `drsai` already: no extension has commands of such a name."""
