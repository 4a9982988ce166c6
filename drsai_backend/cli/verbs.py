"""The verbs of the command line are one set over all nouns (`list`, `show`, `add`, `edit`, `remove`; of documents with
versions `apply`, `history`, `rollback`), and the words of earlier releases, which still do what they did, and warn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from typer.core import TyperGroup

from drsai_backend.cli.screen import print_error, warn
from drsai_backend.errors import DrSaiError

OLD_WORDS: Final[Mapping[str, str]] = {
    "agents delete": "agents remove",
    "db current": "db show",
    "files delete": "files remove",
    "files upload": "files add",
    "keys create": "keys add",
    "keys revoke": "keys remove",
    "threads cancel": "runs cancel",
    "threads delete": "threads remove",
    "threads pause": "runs pause",
    "threads resume": "runs resume",
    "threads retry": "runs retry",
    "threads steps": "runs steps",
    "tools delete": "tools remove",
    "tools invoke": "tools try",
    "tools put": "tools apply",
    "users delete": "users remove",
}
"""What commands were called, and what they are called now. Arguments and options are the same."""
_REQUESTS: Final = (
    (r"GET /v1/(agents|tools)/([^/\s]+)/versions", r"`drsai \1 history \2`"),
    (r"GET /v1/config/([^/\s]+)/versions", r"`drsai config history --environment \1`"),
    (r"GET /v1/agents/schema", "`drsai agents schema`"),
    (r"PUT /v1/(agents|tools)/\S+", r"`drsai \1 apply`"),
    (r"POST /v1/(agents|tools)\b", r"`drsai \1 apply`"),
    (r"GET /v1/webhooks/deliveries", "`drsai webhooks list`"),
    (r"POST /v1/webhooks/secret, or ", ""),  # The command is named there.
)
"""What errors tell clients of the API to ask, and what does the same here."""


class Verbs(TyperGroup):
    """The commands of a noun, by their names of today and by those of earlier releases, which no help shows."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        old = f"{self.name} {cmd_name}"
        if (found := super().get_command(ctx, cmd_name)) is not None or old not in OLD_WORDS:
            return found
        root, (noun, verb) = ctx.find_root(), OLD_WORDS[old].split()
        renamed(old, OLD_WORDS[old])
        return root.command.get_command(root, noun).get_command(ctx, verb)


class ListedAlone(Verbs):
    """The commands of a noun that alone, or with options alone, is its `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_list = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        return super().parse_args(ctx, ["list", *args] if is_list else args)


def renamed(old: str, new: str) -> None:
    """Warn that a command, or one of its options, has another name now."""
    warn(f"`drsai {old}` is `drsai {new}` now; the old words go with 0.4")


def in_commands(message: str) -> str:
    """Return what an error says with commands for the requests that it names."""
    for request, command in _REQUESTS:
        message = re.sub(request, command, message)
    return message


def print_problems(error: DrSaiError) -> None:
    """Print an error on stderr, in words for who types; of a definition, a line for each thing that is wrong."""
    for each in getattr(error, "problems", (error.message,)):
        print_error(in_commands(str(each)))
