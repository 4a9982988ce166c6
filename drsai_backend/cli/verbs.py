"""The verbs of the command line are one set over all nouns (`list`, `show`, `add`, `edit`, `remove`; of documents with
versions `apply`, `history`, `rollback`), and the words of earlier releases, which still do what they did, and warn."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from typer import Typer
from typer.core import TyperCommand, TyperGroup

from drsai_backend.cli.database import named
from drsai_backend.cli.screen import print_error, warn
from drsai_backend.errors import ConfigurationError, DatabaseUnavailable, DrSaiError, InvalidRequest

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
_FIELDS: Final = {
    "expires_after[seconds]": "expires",
    "group_by": "by",
    "new_thread_id": "thread_id",
    "roles": "role",
    "secrets": "secret",
    "trusted_proxies": "forwarded_allow_ips",
    "user_id": "user",
}
"""Fields of the API and of Python that a command calls otherwise than they are called there."""

_NO_TEXT: Final = re.compile("[\ud800-\udfff]")
"""What Python makes of bytes of a command line that are not UTF-8."""


class WrongWords(DrSaiError):
    """The words of a command cannot be, as where the parser refuses them: exit code 2. The text says which."""


class Words(TyperCommand):
    """A command whose errors name what was typed: its options and arguments, where others have fields.

    Raises:
        WrongWords: in place of an InvalidRequest, or a ConfigurationError, whose `param` is one of these.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (InvalidRequest, ConfigurationError) as error:
            raise self._told(error, ctx.params) from None
        except DatabaseUnavailable as error:
            if "database_url" not in ctx.params:
                raise
            raise named(error, ctx.params["database_url"]) from None

    def _told(self, error: DrSaiError, given: Mapping[str, object]) -> DrSaiError:
        words = self._words()
        error.message = re.sub(r"`([\w\[\]]+)`", lambda found: f"`{words.get(found[1], found[1])}`", error.message)
        field = error.param or ""
        if re.search("lone surrogate|cannot be stored in its column", error.message):
            for name, value in given.items():
                if isinstance(value, str) and _NO_TEXT.search(value):
                    return WrongWords(f"{words[name]}: that is no text in UTF-8")
        # Subclasses tell what is stored or served. What is configured is wrong here only where it was typed here.
        is_typed = type(error) is InvalidRequest or given.get(_FIELDS.get(field, field)) is not None
        if field not in words or not is_typed or type(error) not in (InvalidRequest, ConfigurationError):
            return error
        word = words[field]
        text = re.sub(rf"^(DRSAI_)?{field}(?=:| must | reaches )", word, error.message, flags=re.IGNORECASE)
        return WrongWords(text if word in text else f"{word}: {text}")

    def _words(self) -> dict[str, str]:
        """Return what is typed, by the names of fields: `--older-than`, `NAME`."""
        found = dict[str, str]()
        for each in self.params:
            is_option = each.param_type_name == "option"
            word = max(each.opts, key=len) if is_option else (each.metavar or each.name).strip("[]….").upper()
            found |= {name.strip("-").replace("-", "_"): word for name in (*each.opts, each.name)}
        return {name: found[word] for name, word in _FIELDS.items() if word in found} | found


def in_words(commands: Typer) -> None:
    """Have the commands of a group, those of its groups not among them, tell errors in words for who types."""
    for each in commands.registered_commands:
        if each.cls is TyperCommand:
            each.cls = Words


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
