"""`drsai agents validate | show | schema`: definitions of agents and teams in files."""

from __future__ import annotations

from drsai_backend.cli.database import read_settings
from drsai_backend.cli.screen import in_line, make_console, print_json
from drsai_backend.definitions import DefinitionError, Definitions, Means, Problem, json_schema, read_definitions
from drsai_backend.definitions.files import as_written, is_of_components
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
    data = as_written(file, Means.of(read_settings(require_model=False)).python)
    if name is None:
        print_json(data)
        return
    for section in ("agents", "teams"):
        if name in data.get(section, {}):
            print_json(data[section][name])
            return
    raise ConfigurationError(
        f"{file} has no agent or team {name!r}: it has {', '.join([*data.get('agents', ()), *data.get('teams', ())])}"
    )


def schema() -> None:
    print_json(json_schema())


def _read(file: str) -> Definitions:
    return read_definitions(file, Means.of(read_settings(require_model=False)).python)
