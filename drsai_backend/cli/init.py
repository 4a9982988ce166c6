"""The command `drsai init` makes the files that a project begins with. Their templates are in the folder `project`,
beside this."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from drsai_backend.cli.screen import in_line, tell
from drsai_backend.errors import ConfigurationError

_TEMPLATES: Final = Path(__file__).with_name("project")
_TEAM_FILE: Final = "TEAM_FILE"
"""What stands for the name of the team's file in the others."""


def init(folder: Path, *, yaml: bool, as_json: bool) -> None:
    """Write a team, a test of it, `.env.example` and a file for Docker Compose.

    Raises:
        ConfigurationError: one of the files is there already, or cannot be written.
    """
    team = "team.yaml" if yaml else "team.py"
    names = {team: team, "test_team.py": "test_team.py", "env.example": ".env.example", "compose.yaml": "compose.yaml"}
    texts = {folder / name: (_TEMPLATES / f"{kept}.txt").read_text("utf-8") for kept, name in names.items()}
    if there := [path.name for path in texts if path.exists()]:
        raise ConfigurationError(f"{folder} has {', '.join(there)} already: nothing was written")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text.replace(_TEAM_FILE, team), "utf-8")
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be written: {error.strerror}") from None
    tried = f"[bold]drsai serve {in_line(str(folder / team))} --reload[/]"
    tell(
        f"wrote {in_line(', '.join(map(str, texts)))}\n\nTry it: {tried}",
        {"files": [*map(str, texts)]},
        as_json=as_json,
    )
