"""`drsai agents`: files of definitions are checked, shown, and described to editors."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.examples.processes import ROOT
from tests.support.commands import Command, Commands

Run = Callable[..., Command]
GOOD = ROOT / "examples" / "team.yaml"


@pytest.fixture
def agents(commands: Commands, tmp_path: Path):
    def run(*arguments: str) -> Command:
        return commands.run("agents", *arguments, cwd=tmp_path)

    return run


def test_files_are_checked(agents: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("agents:\n  ann:\n    promt: Hi.\n    max_iterations: 0\n")
    (tmp_path / "parts.json").write_text('{"agents": {"bob": {}}}')
    good = agents("validate", str(GOOD), "parts.json", str(ROOT / "examples" / "teams.yaml"))
    assert (good.wait(), good.stdout.splitlines()) == (
        0,
        [
            f"{GOOD}: helper, newsroom",
            "parts.json: bob",
            f"{ROOT / 'examples' / 'teams.yaml'}: pirate, debate (component configs)",
        ],
    )
    bad = agents("validate", "bad.yaml", str(GOOD))
    assert bad.wait() == 1
    assert bad.stderr.splitlines() == [
        "Error: bad.yaml:3: agents.ann.promt: there is no such field; did you mean 'prompt'?",
        "Error: bad.yaml:4: agents.ann.max_iterations: must be at least 1",
    ]
    assert bad.stdout == f"{GOOD}: helper, newsroom\n"


def test_stores_that_are_not_there_yet_are_told(commands: Commands, database_url: str, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text("agents:\n  ann: {knowledge: [handbook]}\n")
    (tmp_path / "leave.md").write_text("Thirty days.")
    place, why = "team.yaml: agents.ann.knowledge.stores[0]", "there is no vector store 'handbook'"
    told = f"{place}: names no store that is there yet: {why}"

    def run(*arguments: str, url: str = database_url) -> tuple[int, str, str]:
        command = commands.run(*arguments, cwd=tmp_path, env={"DRSAI_DATABASE_URL": url})
        return command.wait(), command.stdout, command.stderr

    code, out, warned = run("agents", "validate", "team.yaml")
    assert (code, out) == (0, "team.yaml: ann\n")
    assert told in " ".join(warned.split())
    assert run("knowledge", "add", "handbook", "leave.md", "--user", "ada")[0] == 0
    assert told in " ".join(run("agents", "validate", "team.yaml")[2].split())
    assert run("agents", "validate", "team.yaml", "--user", "ada") == (0, "team.yaml: ann\n", "")
    for url in ("sqlite:///none.db", "postgresql://127.0.0.1:9/none"):  # No database is at hand.
        assert run("agents", "validate", "team.yaml", url=url) == (0, "team.yaml: ann\n", "")
    assert not (tmp_path / "none.db").exists()


def test_what_has_no_effect_is_told_beside_what_is_served(agents: Run, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text("agents:\n  ann: {tool_choice: required, stream: yes}\n")
    checked = agents("validate", "team.yaml")
    assert (checked.wait(), checked.stdout) == (0, "team.yaml: ann\n")
    assert checked.stderr.splitlines() == [
        "team.yaml:2: agents.ann.stream: yes is read as true, and YAML 1.2 has it as a text: write true, or put it in "
        "quotes",
        "team.yaml:2: agents.ann.tool_choice: has no effect: the agent has no tools of its own",
    ]


def test_what_a_file_comes_to(agents: Run, tmp_path: Path) -> None:
    (tmp_path / "bob.yaml").write_text("agents:\n  bob: {prompt: Hi.}\n")
    (tmp_path / "team.yaml").write_text("include: [bob.yaml]\nserve: [bob]\n")
    shown = agents("show", "team.yaml")
    assert json.loads(shown.stdout) == {"agents": {"bob": {"prompt": "Hi."}}, "serve": ["bob"]}
    assert json.loads(agents("show", "team.yaml", "bob").stdout) == {"prompt": "Hi."}
    unknown = agents("show", "team.yaml", "eve")
    assert (unknown.wait(), unknown.stderr) == (1, "Error: team.yaml has no agent or team 'eve': it has bob\n")


def test_the_schema_for_editors(agents: Run) -> None:
    schema = json.loads(agents("schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator: Any = jsonschema.Draft202012Validator(schema)
    good = yaml.safe_load(GOOD.read_text())
    assert list(validator.iter_errors({**good, "include": ["other.yaml"]})) == []
    assert list(validator.iter_errors({"agents": {"ann": {"promt": "Hi."}}}))
    assert list(validator.iter_errors({"agents": {"ann": {"tools": [{"builtin": "x", "mcp": "y"}]}}}))


def test_definitions_are_applied_compared_rolled_back_and_tried(
    commands: Commands, migrated_sqlite: str, tmp_path: Path
) -> None:
    env = {"DRSAI_DATABASE_URL": migrated_sqlite, "DRSAI_DEMO_DELAY": "0"}

    def typed(*arguments: str) -> Command:
        return commands.run("agents", *arguments, cwd=tmp_path, env=env)

    file = tmp_path / "team.yaml"
    file.write_text("agents:\n  bob: {description: Greets., prompt: Hi.}\n")
    assert "bob can be stored" in typed("apply", "team.yaml", "bob", "--check").stdout
    applied = typed("apply", "team.yaml", "bob", "--for", "all")
    assert "bob, for all, is version 1; servers have it within two seconds" in applied.stdout, applied.stderr
    again = typed("apply", "team.yaml", "bob", "--for", "all")
    assert again.stdout == "bob is stored as it is in team.yaml, as version 1\n", again.stderr
    same = typed("diff", "team.yaml", "bob", "--for", "all")
    assert "bob is stored as it is in team.yaml" in same.stdout
    file.write_text("agents:\n  bob: {description: Greets., prompt: Bye.}\n")
    changed = typed("diff", "team.yaml", "bob", "--for", "all").stdout.splitlines()
    assert '-      "prompt": "Hi."' in changed
    assert '+      "prompt": "Bye."' in changed
    typed("apply", "team.yaml", "bob", "--for", "all").wait()
    back = typed("rollback", "bob", "1", "--for", "all")
    assert "bob is version 3, equal to 1" in back.stdout, back.stderr
    history = typed("history", "bob").stdout.splitlines()
    assert [line.split("  ")[0] for line in history] == ["version 3", "version 2", "version 1"]
    assert ("as version 1" in history[0], "served" in history[0]) == (True, True)
    [row] = json.loads(typed("list", "--json").stdout)
    assert (row["name"], row["visibility"], row["version"]) == ("bob", "all", 3)
    assert '"prompt": "Hi."' in typed("show", "bob").stdout
    for source in (("bob",), ("team.yaml", "bob")):
        tried = typed("try", *source, "Hello.")
        assert (tried.wait(), bool(tried.stdout.strip())) == (0, True), tried.stderr
    assert commands.run("threads", "list", "--json", cwd=tmp_path, env=env).stdout.strip() in ("", "[]")
    assert "deleted bob" in typed("remove", "bob", "--for", "all", "--yes").stdout
    gone = typed("show", "bob")
    assert (gone.wait(), "there is no agent 'bob'" in gone.stderr) == (1, True)


def test_what_is_applied_is_what_the_name_needs_and_for_whom(
    commands: Commands, migrated_sqlite: str, tmp_path: Path
) -> None:
    env = {"DRSAI_DATABASE_URL": migrated_sqlite, "DRSAI_DEMO_DELAY": "0"}
    (tmp_path / "team.yaml").write_text(
        "agents:\n  ann: {prompt: Hi., tools: [sums, {agent: cat}]}\n  bob: {prompt: Hi., tools: [other]}\n  cat: {}\n"
        "tools: {sums: {builtin: calculator}, other: {builtin: current_time}}\n"
        "teams:\n  duo: {kind: round_robin, participants: [ann], max_turns: 1}\n"
    )

    def typed(*arguments: str) -> Command:
        return commands.run("agents", *arguments, cwd=tmp_path, env=env)

    assert typed("apply", "team.yaml", "duo", "--for", "tenant").wait() == 0
    stored = json.loads(typed("show", "duo", "--json").stdout)["definition"]
    assert {section: sorted(parts) for section, parts in stored.items()} == {
        "agents": ["ann", "cat"],
        "teams": ["duo"],
        "tools": ["sums"],
    }
    for command in (("rollback", "duo", "1"), ("remove", "duo", "--yes")):
        other = typed(*command)
        assert other.wait() == 1
        assert "no agent 'duo' for its user; the one that is served is for the tenant: --for tenant" in other.stderr
    mistyped = typed("try", "du", "Hi.")
    assert (mistyped.wait(), mistyped.stderr) == (1, "Error: there is no agent 'du'; did you mean 'duo'?\n")
    for command in (("try", "nobody", "Hi."), ("show", "nobody"), ("history", "nobody"), ("remove", "nobody", "--yes")):
        none = typed(*command)
        listed = "`drsai agents list --user anonymous` shows those there are"
        assert (none.wait(), none.stderr) == (1, f"Error: there is no agent 'nobody' here; {listed}\n")
    missing = typed("try", "nobody.yaml", "Hi.")
    assert (missing.wait(), missing.stderr) == (1, "Error: nobody.yaml: there is no such file\n")


@pytest.mark.parametrize("text", ["from x import y\n\nteams = {'a': y}\n", "import x\n"])
def test_python_is_no_file_of_definitions(agents: Run, tmp_path: Path, text: str) -> None:
    """The second is a text of YAML."""
    (tmp_path / "team.py").write_text(text)
    for words in (("validate", "team.py"), ("show", "team.py"), ("apply", "team.py", "a"), ("try", "team.py", "Hi.")):
        ended = agents(*words)
        told = "is Python: definitions are YAML or JSON (.yaml, .yml, .json); `drsai doctor` looks at teams in Python"
        assert (ended.wait(), ended.stderr) == (1, f"Error: team.py: {told}\n")


def test_agents_of_others_are_converted(agents: Run, tmp_path: Path) -> None:
    bot = {"llm": {"model": "m", "api_key": "hunter22"}, "system_message": "Hi.", "colour": "red"}
    (tmp_path / "bot.json").write_text(json.dumps(bot))
    shown = agents("convert", "bot.json")
    assert (shown.wait(), shown.stderr.splitlines()) == (
        0,
        [
            "Note: bot.json:1: llm.api_key: put the key into the variable LLM_API_KEY; OPENAI_API_KEY is the usual one",
            'Note: bot.json:1: colour: has no place in a definition (it was "red")',
            "Secret: llm.api_key is not written: set the environment variable LLM_API_KEY",
        ],
    )
    assert yaml.safe_load(shown.stdout) == {"agents": {"bot": {"prompt": "Hi.", "model": "m"}}}
    assert agents("convert", "bot.json", "--from", "function-list", "-o", "made.yaml").wait() == 0
    assert (tmp_path / "made.yaml").read_text() == shown.stdout
    assert agents("validate", "made.yaml").stdout == "made.yaml: bot\n"

    again = agents("convert", "bot.json", "-o", "made.yaml")
    assert (again.wait(), again.stderr) == (1, "Error: made.yaml is there already: --force replaces it\n")
    as_json = agents("convert", "bot.json", "-o", "made.json")
    assert as_json.wait() == 0
    assert '"key_env": "LLM_API_KEY"' in as_json.stderr, "JSON has no comments"
    assert json.loads((tmp_path / "made.json").read_text()) == yaml.safe_load(shown.stdout)

    (tmp_path / "bad.json").write_text('{"llm": {"model": "m",\n "generate_cfg": {"temperature": 9}}}')
    bad = agents("convert", "bad.json")
    assert (bad.wait(), bad.stdout) == (1, "")
    assert bad.stderr == "Error: bad.json:2: llm.generate_cfg.temperature: must be at most 2.0\n"
