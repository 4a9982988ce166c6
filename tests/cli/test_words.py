"""What was typed and cannot be ends with 2 and names the option, wherever it is refused; what is not there, or fails,
ends with 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.commands import Commands


@pytest.fixture(scope="module")
def here(all_commands: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database, in which somebody has a thread."""
    commands = all_commands
    folder = tmp_path_factory.mktemp("words")
    assert commands.run("chat", cwd=folder, stdin="hello\n").wait() == 0
    [thread] = commands.run("threads", "list", cwd=folder).stdout.split("\n")[:1]
    exported = ("export", thread.split()[0], "-o", "t.thread")
    assert commands.run("threads", *exported, cwd=folder).wait() == 0
    assert commands.run("threads", "import", "t.thread", "--thread-id", "t", cwd=folder).wait() == 0
    (folder / "t.thread").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("threads prune --older-than 30", "--older-than 30: a time is a number with m, h, d or w, such as 30d"),
        ("threads prune --older-than 9d --status nope", "--status 'nope': there is created, running, "),
        ("threads import t.thread --max-size much", "--max-size much: a size is a number of bytes, or such as 1GiB"),
        ("threads rewind t", "where to is missing: give `--at`, `--turn` or `--branch`"),
        ("threads rewind t --at 1 --turn 1", "`--at` cannot be combined with `--turn`: give one of them"),
        ("threads share t", "name `--with` or `--role`: one of the two"),
        ("threads share t --with bob --right own", "`--right` must be read, answer or write, not 'own'"),
        ("threads unshare t", "name `--with` or `--role`: one of the two"),
        ("threads fork t --thread-id ", "`--thread-id` must have 1 to 255 characters"),
        ("runs list --after nope", "`--after` is not the `next` of an earlier page"),
        ("runs list --status error", "that searches the runs of all users: say --all-users"),
        ("runs list --all-users --slower-than 1e30", "--slower-than must be 0 to "),
        ("runs slow --last 2", "--last 2: a time is a number"),
        ("keys add --user ann --scope bogus", "--scope: there is no scope or role 'bogus', but viewer, "),
        ("keys add --user ann --expires 30", "--expires 30: a time is a number"),
        ("keys add --user ", "`--user` must have 1 to 255 characters"),
        ("keys add --user ann --role ", "`--role` must have 1 to 255 characters"),
        ("keys edit key_1", "say what to change: --webhook-url URL, or --no-webhook"),
        ("switches off nothing x -m no", "KIND: a 'nothing' cannot be switched off, but team, "),
        ("switches off team x", "`--message` must have 1 to 500 characters: who asks is told it"),
        ("limits set user ann", "say what is limited: `--requests`, `--tokens`, `--runs` or `--streams`"),
        ("budgets set thread x --cost-day 1", "`NAME` must be USER/THREAD, the ids of a user and of a thread"),
        ("usage --by nothing", "--by: there is no group 'nothing', but day, "),
        ("audit --action nothing", "--action: there is no action 'nothing', but "),
        ("config get max_turnz", "there is no setting 'max_turnz'; did you mean 'max_turns'?"),
        ("config set max_turns banana", "max_turns: "),
        ("config get --environment a/b", "--environment: "),
        ("files add t.thread --user ann --purpose fun", "`--purpose` must be one of assistants, "),
        ("files add t.thread --user ann --expires 1m", "`--expires` must be between 3600 (an hour) and "),
        ("memory list", "--user: name a user, or say --shared"),
        ("tools apply x t.thread --type ftp", "`--type` must be one of http, mcp, not 'ftp'"),
        ("db upgrade nope", "REVISION: there is no revision 'nope', but 0001, "),
        (
            "threads list --database-url mysql://me:hush@host/x",
            "the database URL (DRSAI_DATABASE_URL, --database-url) ",
        ),
        ("serve --forwarded-allow-ips nobody", "--forwarded-allow-ips: must be IP addresses or networks, "),
    ],
)
def test_words_that_cannot_be(commands: Commands, here: Path, typed: str, told: str) -> None:
    ended = commands.run(*typed.split(" "), cwd=here)
    assert (ended.wait(), ended.stderr[: len(told) + 7], ended.stdout) == (2, f"Error: {told}", "")
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("threads show nope", "anonymous has no thread 'nope' here"),
        ("threads rewind t --at 99", "the thread has no message 99: the newest is 2"),
        ("threads turns t --branch 9", "the thread has no branch 9"),
        ("threads import nofile", "nofile cannot be read: No such file or directory"),
        ("threads export t -o no/folder", "no/folder cannot be written: "),
        ("files add nofile --user ann", "nofile cannot be read: No such file or directory"),
        ("users remove ann --yes --export no/folder", "--export no/folder: no file can be written there"),
        ("tools try x nofile", "nofile cannot be read: No such file or directory"),
        (
            "tools apply x t.thread --secret KEY",
            "--secret KEY: its value is read from DRSAI_TOOL_SECRET_KEY, which is ",
        ),
        ("keys remove key_1", "no key 'key_1' here"),
    ],
)
def test_what_is_not_there_is_no_matter_of_words(commands: Commands, here: Path, typed: str, told: str) -> None:
    ended = commands.run(*typed.split(" "), cwd=here)
    assert (ended.wait(), ended.stderr[: len(told) + 7]) == (1, f"Error: {told}")
    assert ended.stderr.count("\n") == 1


def test_a_setting_of_the_environment_was_not_typed(commands: Commands, here: Path) -> None:
    ended = commands.run("threads", "list", cwd=here, env={"DRSAI_DATABASE_URL": "mysql://me:hush@host/x"})
    assert (ended.wait(), ended.stdout) == (1, "")
    assert ended.stderr.startswith("Error: the database URL (DRSAI_DATABASE_URL, --database-url) is of 'mysql'")


@pytest.mark.parametrize(
    "typed",
    [
        "threads list --database-url {}",
        "serve --port 0 --database-url {}",
        "serve --port 0 --workers 2 --database-url {}",
        "db copy {} sqlite:///new.db",
        "tenants move acme sqlite:///drsai.db {} --yes",
    ],
)
def test_a_database_that_is_not_reached_is_named(commands: Commands, here: Path, typed: str) -> None:
    ended = commands.run(*typed.format("postgresql://me:hush@127.0.0.1:1/x").split(), cwd=here)
    assert ended.wait() == 1
    assert ended.stderr == "Error: the database cannot be reached: postgresql://me:***@127.0.0.1:1/x\n"


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("threads show t\udcff", "THREAD"),
        ("threads list --user a\udcff", "--user"),
        ("keys add --user ann --name \udcff", "--name"),
    ],
)
def test_bytes_that_are_no_text(commands: Commands, here: Path, typed: str, word: str) -> None:
    """What was typed in another charset than UTF-8 comes as lone surrogates."""
    ended = commands.run(*typed.split(" "), cwd=here)
    assert (ended.wait(), ended.stderr) == (2, f"Error: {word}: that is no text in UTF-8\n")
