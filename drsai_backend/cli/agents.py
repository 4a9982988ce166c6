"""`drsai agents validate | show | schema | convert`: definitions of agents and teams in files."""

from __future__ import annotations

import json
from pathlib import Path

from drsai_backend.cli.database import read_settings
from drsai_backend.cli.screen import in_line, make_console, print_json
from drsai_backend.definitions import DefinitionError, Definitions, Means, Problem, json_schema, read_definitions
from drsai_backend.definitions.convert import convert_file
from drsai_backend.definitions.files import is_of_components
from drsai_backend.errors import ConfigurationError
from drsai_backend.teams.registry import load_teams


def validate(files: list[str]) -> None:
    """Each file by itself; what is wrong with any of them is told of all."""
    wrong: list[Problem] = []
    console = make_console()
    for file in files:
        try:
            if is_of_components(file):
                console.print(f"{in_line(file)}: {', '.join(load_teams(file))} (component configs)", soft_wrap=True)
                continue
            found = _read(file)
        except ConfigurationError as error:
            wrong += error.problems if isinstance(error, DefinitionError) else [Problem(error.message)]
        else:
            console.print(f"{in_line(file)}: {', '.join(found.served)}", soft_wrap=True)
    if wrong:
        raise DefinitionError(wrong)


def show(file: str, name: str | None) -> None:
    """What a file comes to, with all that it includes."""
    found = _read(file)
    data = found.model_dump(mode="json", by_alias=True, exclude_unset=True)
    if name is None:
        print_json(data)
        return
    for section in ("agents", "teams"):
        if name in data.get(section, {}):
            print_json(data[section][name])
            return
    raise ConfigurationError(f"{file} has no agent or team {name!r}: it has {', '.join([*found.agents, *found.teams])}")


def schema() -> None:
    print_json(json_schema())


def convert(file: str, format: str | None, out: str | None, *, as_json: bool, force: bool) -> None:
    """Write what a file of others comes to; what has no place is told on stderr."""
    if out is not None and not force and Path(out).exists():
        raise ConfigurationError(f"{out} is there already: --force replaces it")
    made = convert_file(file, format)
    is_json = as_json or (out is not None and out.endswith(".json"))
    text = made.json() if is_json else made.yaml()
    if out is None:
        make_console().out(text, end="", highlight=False)
    else:
        try:
            Path(out).write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{out} cannot be written: {error.strerror}") from None
    told = make_console(stderr=True)
    for note in made.notes:
        told.print(f"[bold yellow]Note:[/] {in_line(str(note))}", soft_wrap=True)
    for name, field in made.secrets.items():
        text = f"{field} is not written: set the environment variable {name}"
        told.print(f"[bold yellow]Secret:[/] {in_line(text)}", soft_wrap=True)
    if is_json:  # YAML has them as comments.
        for about, part in (("for DRSAI_MODELS", made.profiles), ("not available yet", made.later)):
            if part:
                text = f"{about}: {json.dumps(part, ensure_ascii=False)}"
                told.print(f"[bold yellow]Note:[/] {in_line(text)}", soft_wrap=True)


def _read(file: str) -> Definitions:
    return read_definitions(file, Means.of(read_settings(require_model=False)).python)
