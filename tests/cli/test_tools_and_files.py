"""`drsai tools` and `drsai files`: the verbs of `/v1/tools` and `/v1/files`, typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Command, Commands
from tests.tools.http.conftest import Said, Site, site

__all__ = ["site"]


class Typed:
    def __init__(self, commands: Commands, url: str, folder: Path) -> None:
        self._commands = commands
        allowed = '["127.0.0.0/8"]'
        self._env = {"DRSAI_DATABASE_URL": url, "DRSAI_ALLOWED_ADDRESSES": allowed, "DRSAI_SECRET_KEY": "k" * 32}
        self._folder = folder

    def __call__(self, *arguments: str, **more: str) -> Command:
        return self._commands.run(*arguments, cwd=self._folder, env={**self._env, **more})


@pytest.fixture
def typed(commands: Commands, database_url: str, tmp_path: Path) -> Typed:
    return Typed(commands, database_url, tmp_path)


def test_tools_are_put_tried_listed_and_deleted(typed: Typed, site: Site, tmp_path: Path) -> None:
    site.answer = lambda sent: Said({"text": "sun"})
    file = tmp_path / "weather.yaml"
    file.write_text(
        "description: The weather.\n"
        "parameters: [{name: city, type: string, required: true}]\n"
        f"endpoint: {{url: '{site.url}/w/{{city}}', headers: {{K: '{{secret:KEY}}'}}}}\n"
        "result: $.text\n"
    )
    missing = typed("tools", "apply", "weather", str(file), "--secret", "KEY")
    assert (missing.wait(), "DRSAI_TOOL_SECRET_KEY, which is not set" in missing.stderr) == (1, True)
    put = ("tools", "apply", "weather", str(file), "--secret", "KEY", "--tenant", "acme")
    for version in (1, 2):
        made = typed(*put, DRSAI_TOOL_SECRET_KEY="s3cret-value")
        assert f"weather of tenant acme is version {version};" in made.stdout, made.stderr

    tried = typed("tools", "try", "weather", '{"city": "paris"}', "--tenant", "acme")
    assert (tried.stdout, site.requests[-1].headers["k"]) == ("sun\n", "s3cret-value")
    wrong = typed("tools", "try", "weather", "--tenant", "acme")
    assert (wrong.wait(), wrong.stdout) == (1, "")
    assert "city" in wrong.stderr

    listed = json.loads(typed("tools", "list", "--tenant", "acme", "--json").stdout)
    assert [(row["name"], row["version"], row["secrets"]) for row in listed] == [("weather", 2, ["KEY"])]
    assert "weather  http  version 2, now by anonymous" in typed("tools", "list", "--tenant", "acme").stdout
    shown = typed("tools", "show", "weather", "--tenant", "acme")
    assert "calls    1, 0 failed" in shown.stdout
    assert "s3cret-value" not in shown.stdout
    again = json.loads(typed("tools", "rollback", "weather", "1", "--tenant", "acme", "--json").stdout)
    assert (again["version"], again["secrets"]) == (3, ["KEY"])
    assert typed("tools", "try", "weather", '{"city": "rome"}', "--tenant", "acme").stdout == "sun\n"
    assert site.requests[-1].headers["k"] == "s3cret-value", "with the credentials of that version"
    versions = json.loads(typed("tools", "history", "weather", "--tenant", "acme", "--json").stdout)
    assert [each["version"] for each in versions] == [3, 2, 1]
    never = typed("tools", "rollback", "weather", "9", "--tenant", "acme")
    assert (never.wait(), "/v1/" in never.stderr) == (1, False)
    assert "no version 9 of tool 'weather': `drsai tools history weather` lists them" in never.stderr
    other = typed("tools", "show", "weather")
    assert (other.wait(), "of the default tenant here; `drsai tools list` shows" in other.stderr) == (1, True)
    gone = typed("tools", "remove", "weather", "--tenant", "acme", "--yes")
    assert gone.stdout == "deleted weather\n"
    assert typed("tools", "list", "--tenant", "acme").stdout == "tenant acme has no tools here\n"


def test_files_are_stored_listed_read_and_deleted(typed: Typed, tmp_path: Path) -> None:
    content = bytes(range(256)) * 2048  # more than one part
    (tmp_path / "notes.bin").write_bytes(content)
    of_ann = ("--user", "ann")
    made = typed("files", "add", "notes.bin", "--expires", "2h", *of_ann)
    file_id = made.stdout.strip()
    assert file_id.startswith("file-"), made.stderr
    assert "notes.bin of ann, 512.0 KiB, is stored" in made.stderr

    [row] = json.loads(typed("files", "list", "--json", *of_ann).stdout)
    assert (row["file_id"], row["bytes"], row["purpose"]) == (file_id, len(content), "user_data")
    assert "notes.bin" in typed("files", "show", file_id, *of_ann).stdout
    other = typed("files", "download", file_id, "--user", "bob")
    assert (other.wait(), "`drsai files list --user bob` shows" in other.stderr) == (1, True)

    refused = typed("files", "download", file_id, *of_ann)
    assert (refused.wait(), "notes.bin exists" in refused.stderr) == (1, True)
    assert typed("files", "download", file_id, "-o", "copy.bin", *of_ann).wait() == 0
    assert (tmp_path / "copy.bin").read_bytes() == content
    assert (tmp_path / "copy.bin").stat().st_mode & 0o777 == 0o600

    assert "say --yes" in typed("files", "remove", file_id, *of_ann).stderr
    assert typed("files", "remove", file_id, "--yes", *of_ann).stdout == f"deleted {file_id}\n"
    assert typed("files", "list", *of_ann).stdout == "ann has no files here\n"
    bad = typed("files", "add", "no.bin", *of_ann)
    assert (bad.wait(), "no.bin cannot be read" in bad.stderr) == (1, True)
